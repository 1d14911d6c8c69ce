// SPDX-License-Identifier: Apache-2.0
#include "relay/ports.h"

#include <string.h>

#include "base/share.h"

size_t ports_server(const struct endpoint *to)
{
	uint32_t h = to->port;

	for (size_t i = 0; i < addr_size(&to->addr); i++)
		h = h * 31 + to->addr.bytes[i];
	return h % PORTS_SERVERS;
}

/* Forget what has rested long enough. */
static void turn_to(struct ports_used *p, int64_t now_ms)
{
	const int64_t turn = now_ms / PORTS_TURN_MS;

	for (size_t i = 0; i < PORTS_SERVERS && p->turn < turn; i++) {
		int64_t from = MAX(p->turn, turn - PORTS_TURNS);

		while (from++ < turn)
			p->servers[i].resting[from % PORTS_TURNS] = 0;
	}
	p->turn = MAX(p->turn, turn);
}

static size_t taken(struct ports_used *p, size_t server, int64_t now_ms)
{
	size_t n = p->servers[server].open;

	turn_to(p, now_ms);
	for (size_t i = 0; i < PORTS_TURNS; i++)
		n += p->servers[server].resting[i];
	return n;
}

bool ports_take(struct ports_used *mine, struct ports_used *all, size_t server,
		size_t max, int64_t now_ms)
{
	if (!share_has_room(taken(mine, server, now_ms), taken(all, server, now_ms), max))
		return false;
	mine->servers[server].open++;
	all->servers[server].open++;
	return true;
}

void ports_give(struct ports_used *p, size_t server, bool rests, int64_t now_ms)
{
	turn_to(p, now_ms);
	p->servers[server].open--;
	p->servers[server].resting[p->turn % PORTS_TURNS] += rests;
}
