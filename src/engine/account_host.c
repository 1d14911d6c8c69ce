// SPDX-License-Identifier: Apache-2.0
/* The host's table counts for all its sandboxes in the same sets, so one look is for all
 * of them. A look takes as long as there are destinations in use: the next one waits for
 * two hundred times that. What one sandbox was refused can be looked at alone: each first
 * packet to a destination was logged, so all of them are known here, unless a log was
 * lost. */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/account.h"
#include "engine/host.h"
#include "sandbox/refused.h"

enum {
	LOOK_MS = 250,
	SHARE = 200, /* of the time between looks, one is spent looking */
	DRAINS_MAX = 16,
	ALONE_MAX = 64, /* destinations of one sandbox; with more of them, all are read */
};

static int compare_members(const void *a, const void *b)
{
	const struct filter_count *x = a, *y = b;

	return x->member < y->member ? -1 : x->member > y->member;
}

static int compare_to_member(const void *key, const void *b)
{
	const struct filter_count *y = b;
	uint32_t member = *(const uint32_t *)key;

	return member < y->member ? -1 : member > y->member;
}

/* Those of one sandbox, of all that are sorted. */
static const struct filter_count *find_counts(const struct account_counts *k,
					      uint32_t member, size_t *ret_count)
{
	const struct filter_count *first, *last;

	*ret_count = 0;
	if (k->count == 0)
		return NULL;
	first = bsearch(&member, k->items, k->count, sizeof(*first), compare_to_member);
	if (!first)
		return NULL;
	for (last = first; last + 1 < k->items + k->count && last[1].member == member;)
		last++;
	while (first > k->items && first[-1].member == member)
		first--;
	*ret_count = (size_t)(last - first) + 1;
	return first;
}

static bool read_counts(struct engine_host *h, bool refused, struct account_counts *ret)
{
	*ret = (struct account_counts){ 0 };
	if (!h->stands || filter_counts_read(filter_host_conn(h->table), refused,
					     engine_account_on_count, ret) < 0)
		return false;
	if (ret->count > 0)
		qsort(ret->items, ret->count, sizeof(*ret->items), compare_members);
	return true;
}

static struct engine_sandbox *host_at(const struct engine_core *c, size_t slot)
{
	struct engine_sandbox *g = c->guarded[slot];

	return g && g->kind == ATTACH_HOST && g->sandbox.accounts ? g : NULL;
}

static void drain(struct engine_host *h)
{
	for (int i = 0; i < DRAINS_MAX; i++)
		engine_host_drain_refused(h);
}

static struct filter_count key_of(const struct engine_sandbox *g,
				  const struct accounts_flow *f)
{
	return (struct filter_count){
		.addr = f->addr,
		.port = f->port,
		.protocol = f->protocol,
		.member = g->sandbox.id,
	};
}

/* False: all have to be looked at, after what was found here. */
static bool look_at_refused_of(struct engine_host *h, struct engine_sandbox *g,
			       int64_t now_ms)
{
	struct filter_conn *c = filter_host_conn(h->table);
	struct accounts *a = g->sandbox.accounts;
	struct filter_count keys[ALONE_MAX];
	struct account_counts k = { 0 };
	size_t count;
	int r = 0;

	drain(h);
	count = a->flow_count;
	if (!h->stands || h->lost != h->lost_seen || !accounts_know_flows(a) ||
	    count > ALONE_MAX)
		return false;
	for (size_t i = 0; i < count; i++)
		keys[i] = key_of(g, &a->flows[i]);
	for (size_t i = 0; i < count && r == 0; i++)
		r = filter_counts_read_one(c, true, &keys[i], engine_account_on_count,
					   &k);
	drain(h);
	accounts_looked(&g->sandbox, NULL, k.items, k.count, now_ms);
	free(k.items);
	return r == 0;
}

static void look_at_refused(struct engine_host *h, int64_t now_ms)
{
	struct account_counts k;
	uint64_t lost = h->lost;

	if (!read_counts(h, true, &k))
		return;
	h->lost_seen = lost;
	drain(h);
	for (size_t i = 0; i < h->core->slots; i++) {
		struct engine_sandbox *g = host_at(h->core, i);
		const struct filter_count *first;
		size_t count;

		if (!g)
			continue;
		first = find_counts(&k, g->sandbox.id, &count);
		if (count > 0 || g->sandbox.accounts->look_at_ms <= now_ms)
			accounts_looked(&g->sandbox, NULL, first, count, now_ms);
	}
	free(k.items);
}

static void look_at_passed(struct engine_host *h, int64_t now_ms)
{
	struct account_counts k;

	if (!read_counts(h, false, &k))
		k.count = 0;
	for (size_t i = 0; i < k.count; i++) {
		struct engine_sandbox *g = engine_core_find(h->core, k.items[i].member);

		if (g && g->kind == ATTACH_HOST)
			engine_account_passed(g, &k.items[i], now_ms);
	}
	free(k.items);
	for (size_t i = 0; i < h->core->slots; i++) {
		struct engine_sandbox *g = host_at(h->core, i);

		if (!g || g->sandbox.accounts->window_ends_ms > now_ms)
			continue;
		relay_account(h->core->relay, &g->sandbox);
		accounts_close(&g->sandbox, now_ms);
	}
}

void engine_account_host(struct engine_host *h, bool refused, bool passed, int64_t now_ms)
{
	int64_t begun_ms = clock_now_ms();

	if (now_ms < h->counts_from_ms)
		return;
	if (refused)
		look_at_refused(h, now_ms);
	if (passed)
		look_at_passed(h, now_ms);
	h->counts_from_ms = now_ms + LOOK_MS + (clock_now_ms() - begun_ms) * SHARE;
}

void engine_account_host_now(struct engine_host *h, struct engine_sandbox *g,
			     int64_t now_ms)
{
	g->sandbox.accounts->window_ends_ms = now_ms;
	if (!look_at_refused_of(h, g, now_ms))
		look_at_refused(h, now_ms);
	look_at_passed(h, now_ms);
}

void engine_account_host_begin(struct engine_host *h, struct engine_sandbox *g)
{
	const struct accounts *a = g->sandbox.accounts;

	/* One that stays is told of when it counts something. */
	for (size_t i = 0; h->stands && i < MIN(a->flow_count, (size_t)ALONE_MAX); i++) {
		const struct filter_count key = key_of(g, &a->flows[i]);

		(void)!filter_counts_forget(filter_host_conn(h->table), &key);
	}
	accounts_begin(&g->sandbox, 0);
}
