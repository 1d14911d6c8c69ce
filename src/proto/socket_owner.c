// SPDX-License-Identifier: Apache-2.0
#include "proto/socket_owner.h"

#include <netinet/in.h>
#include <time.h>

bool socket_owner_question_of(const struct event *e, int64_t now_ms, int64_t wall_ms,
			      struct socket_owner_question *ret)
{
	const int64_t age_ms = wall_ms - e->ts_ms;
	uint8_t protocol = e->protocol;

	/* A lookup has no protocol of its own: whoever asked over TCP has dialled
	 * somebody. */
	if (e->layer == EVENT_DNS)
		protocol = e->to.addr.family == ADDR_NONE ? IPPROTO_UDP : IPPROTO_TCP;
	if ((e->action != EVENT_DENY && e->action != EVENT_ALLOW &&
	     e->action != EVENT_ASK) ||
	    e->from.addr.family == ADDR_NONE || e->from.port == 0 ||
	    (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) || age_ms < 0 ||
	    age_ms > SOCKET_OWNER_AGE_MAX_MS)
		return false;
	*ret = (struct socket_owner_question){
		.protocol = protocol,
		.from = e->from,
		.to = e->to,
		.at_ms = now_ms - age_ms,
	};
	return true;
}

void socket_owner_take(struct event *e, const struct owner *o)
{
	size_t i = 0;

	if (o->pid <= 0)
		return;
	e->pid = (uint32_t)o->pid;
	if (e->uid == UINT32_MAX)
		e->uid = o->uid;
	for (; i < sizeof(e->command) - 1 && i < sizeof(o->command) && o->command[i]; i++)
		e->command[i] = o->command[i] >= 0x20 && o->command[i] <= 0x7e
					? o->command[i]
					: '?';
	e->command[i] = '\0';
}

bool socket_owner_may(struct socket_owner_pace *p, int64_t now_ms)
{
	return p->paid_at_us - now_ms * 1000 <= SOCKET_OWNER_OWED_MS * INT64_C(1000) &&
	       rate_take(&p->rate, SOCKET_OWNER_PER_SECOND, 1000, SOCKET_OWNER_PER_SECOND,
			 now_ms);
}

static int64_t worked_us(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

void socket_owner_look(struct socket_owner_pace *p)
{
	p->begun_us = worked_us();
}

void socket_owner_looked(struct socket_owner_pace *p, int64_t now_ms)
{
	p->paid_at_us = MAX(p->paid_at_us, now_ms * 1000) +
			SOCKET_OWNER_PART * (worked_us() - p->begun_us);
}
