// SPDX-License-Identifier: Apache-2.0
/* Packets that the filter has refused: see HOW REFUSED PACKETS ARE COUNTED in accounts.h.
 */
#include <stdlib.h>
#include <string.h>

#include "sandbox/accounts.h"
#include "sandbox/refused.h"
#include "sandbox/sandbox.h"

enum { FLOWS_FIRST = 32 };

static int compare_places(const struct addr *x, uint8_t protocol_x, uint16_t port_x,
			  const struct addr *y, uint8_t protocol_y, uint16_t port_y)
{
	int r = memcmp(x, y, sizeof(*x));

	if (r == 0)
		r = protocol_x - protocol_y;
	return r ? r : port_x - port_y;
}

static int compare_flows(const void *a, const void *b)
{
	const struct accounts_flow *x = a, *y = b;

	return compare_places(&x->addr, x->protocol, x->port, &y->addr, y->protocol,
			      y->port);
}

static int compare_to_flow(const void *key, const void *b)
{
	const struct filter_count *x = key;
	const struct accounts_flow *y = b;

	return compare_places(&x->addr, x->protocol, x->port, &y->addr, y->protocol,
			      y->port);
}

static bool make_room(struct accounts *a)
{
	size_t capacity = MAX(a->flow_capacity * 2, (size_t)FLOWS_FIRST);
	struct accounts_flow *grown;

	if (a->flow_count < a->flow_capacity)
		return true;
	if (capacity > ACCOUNTS_FLOWS_MAX)
		return false;
	grown = reallocarray(a->flows, capacity, sizeof(*grown));
	if (!grown)
		return false;
	a->flows = grown;
	a->flow_capacity = capacity;
	return true;
}

static void look_soon(struct accounts *a, int64_t now_ms)
{
	a->look_every_ms = ACCOUNTS_LOOK_MS;
	a->look_at_ms = MIN(a->look_at_ms, now_ms + ACCOUNTS_LOOK_MS);
}

/* One that finds no room is counted twice. */
void accounts_logged(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms)
{
	struct accounts *a = s->accounts;

	if (!a)
		return;
	a->told++;
	look_soon(a, now_ms);
	if (strcmp(p->prefix, FILTER_PREFIX_REFUSED) != 0)
		return;
	if (!make_room(a)) {
		a->is_short = true;
		return;
	}
	a->flows[a->flow_count++] = (struct accounts_flow){
		.addr = p->destination,
		.port = p->destination_port,
		.protocol = p->protocol,
		.uid = p->uid,
		.packets = 1,
		.bytes = p->length,
	};
}

/* Sort, and add up what was logged more than once. The newest log says the sender. */
static void sort_flows(struct accounts *a)
{
	size_t used = 0;

	if (a->flow_count > 0)
		qsort(a->flows, a->flow_count, sizeof(*a->flows), compare_flows);
	for (size_t i = 0; i < a->flow_count; i++) {
		struct accounts_flow *f = &a->flows[i];
		struct accounts_flow *last = used > 0 ? &a->flows[used - 1] : NULL;

		if (last && compare_flows(last, f) == 0) {
			last->packets += f->packets;
			last->bytes += f->bytes;
			last->uid = f->packets > 0 ? f->uid : last->uid;
		} else {
			a->flows[used++] = *f;
		}
	}
	a->flow_count = used;
}

/* What the filter doesn't count any more goes. One that was logged after the counters
 * were read is met by the next look. */
static void forget_flows(struct accounts *a)
{
	size_t used = 0;

	for (size_t i = 0; i < a->flow_count; i++) {
		struct accounts_flow *f = &a->flows[i];

		if (!f->counted && f->packets == 0)
			continue;
		f->counted = false;
		a->flows[used++] = *f;
	}
	a->flow_count = used;
}

static uint64_t left_of(uint64_t counted, uint64_t *logged)
{
	uint64_t known = MIN(counted, *logged);

	*logged -= known;
	return counted - known;
}

/* Return: how many packets nobody has told of. */
static uint64_t take_count(struct sandbox *s, const struct filter_count *given,
			   int64_t now_ms)
{
	struct accounts *a = s->accounts;
	struct accounts_flow *f = a->flow_count > 0
					  ? bsearch(given, a->flows, a->flow_count,
						    sizeof(*f), compare_to_flow)
					  : NULL;
	struct filter_count c = *given;

	if (f) {
		c.packets = left_of(c.packets, &f->packets);
		c.bytes = left_of(c.bytes, &f->bytes);
		f->counted = true;
	}
	a->is_short |= !f;
	if (c.packets > 0)
		refused_count(s, &c, f ? f->uid : UINT32_MAX, now_ms);
	return c.packets;
}

/* Return: packets that were refused and that nobody has told of. What came after the
 * total was read is told already. */
static uint64_t take_total(struct sandbox *s, uint64_t total, int64_t now_ms)
{
	struct accounts *a = s->accounts;
	/* A ruleset that was made anew counts anew. */
	uint64_t grown = total < a->total ? total : total - a->total;
	uint64_t lost = grown > a->told ? grown - a->told : 0;
	struct event others = accounts_others(EVENT_ADDRESS, lost);

	a->total = total;
	a->told = a->told > grown ? a->told - grown : 0;
	s->counters[COUNT_PACKETS_DENIED] += lost;
	s->counters[COUNT_PACKETS_LOST] += lost;
	if (lost > 0)
		sandbox_event(s, &others, now_ms);
	return lost;
}

void accounts_looked(struct sandbox *s, const uint64_t *total,
		     const struct filter_count *counts, size_t count, int64_t now_ms)
{
	struct accounts *a = s->accounts;
	uint64_t found = 0, lost = 0;

	sort_flows(a);
	a->is_short = false;
	for (size_t i = 0; i < count; i++)
		found += take_count(s, &counts[i], now_ms);
	forget_flows(a);
	a->told += found;
	if (total)
		lost = take_total(s, *total, now_ms);
	a->look_every_ms = found + lost > 0
				   ? ACCOUNTS_LOOK_MS
				   : MIN(a->look_every_ms * 2, ACCOUNTS_LOOK_MAX_MS);
	a->look_at_ms = count > 0 || a->flow_count > 0 || lost > 0
				? now_ms + a->look_every_ms
				: INT64_MAX;
}

bool accounts_know_flows(const struct accounts *a)
{
	return !a->is_short;
}

void accounts_begin(struct sandbox *s, uint64_t total)
{
	struct accounts *a = s->accounts;

	a->total = total;
	a->told = 0;
	a->flow_count = 0;
	a->is_short = false;
	a->look_at_ms = INT64_MAX;
}
