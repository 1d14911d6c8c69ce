// SPDX-License-Identifier: Apache-2.0
/* Four times a second: events that were added up are reported, as far as they are due.
 * Reading the filter's counters takes a millisecond where there are many, so the
 * sandboxes take turns, and a turn ends after two milliseconds. */
#include "engine/core.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/special.h"
#include "engine/host.h"
#include "filter/filter.h"
#include "sandbox/accounting.h"
#include "sandbox/budgets.h"
#include "sys/link.h"

enum {
	TICK_MS = 250,
	TURN_MS = 2,
	BUDGETS_MS = 1000, /* so often what the kernel lets pass is counted for budgets */
	DRAINS_MAX = 64,   /* of the log's queue: more than it holds */
	READ_TRIES = 8,
};

/* Counters of the filter, as they were read. */
struct account_counts {
	struct filter_count *items; /* owned */
	size_t count, capacity;
	bool is_incomplete; /* some weren't read, or found no memory */
	bool is_late;	    /* some are left for the next time */
};

/* A filter_counts_fn; the data is a struct account_counts. */
static void on_count(void *data, const struct filter_count *c)
{
	struct account_counts *k = data;

	if (ARRAY_GROW(k->items, k->count, k->capacity))
		k->items[k->count++] = *c;
	else
		k->is_incomplete = true;
}

/* Both families. What was read before a failure counts: the kernel has begun at 0 again,
 * but for a set that it says has changed meanwhile. */
static void read_all(struct filter_conn *c, bool refused, struct account_counts *k)
{
	static const enum addr_family families[] = { ADDR_V4, ADDR_V6 };

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		const size_t before = k->count;
		int r = -EAGAIN;

		for (int tries = 0; tries < READ_TRIES && r == -EAGAIN; tries++) {
			k->count = before;
			r = filter_counts_read(c, families[i], refused, on_count, k);
		}
		if (r == -EAGAIN)
			k->count = before;
		k->is_late |= r == -EAGAIN;
		k->is_incomplete |= r < 0 && r != -EAGAIN;
	}
}

static int compare_members(const void *a, const void *b)
{
	const struct filter_count *x = a, *y = b;

	return x->member < y->member ? -1 : x->member > y->member;
}

/* By sandbox, then by address. */
static int compare_counts(const void *a, const void *b)
{
	const struct filter_count *x = a, *y = b;
	int r = compare_members(a, b);

	return r ? r : addr_compare(&x->addr, &y->addr);
}

static void sort_counts(struct account_counts *k)
{
	if (k->count > 0)
		qsort(k->items, k->count, sizeof(*k->items), compare_counts);
}

static bool has_filter(const struct engine_sandbox *g)
{
	return g->sandbox.filter.fd >= 0 && !g->sandbox.host &&
	       g->enforce != ENFORCED_NOTHING;
}

/* Every packet that is in a counter has been logged before, if it was to be: so the log
 * is read after the counters, and to its end. */
static void read_refused(struct engine_sandbox *g, int64_t now_ms)
{
	struct sandbox *s = &g->sandbox;
	struct account_counts k = { 0 };
	uint64_t total = 0;

	s->accounting->read_at_ms = now_ms + ACCOUNTING_READ_MAX_MS;
	if (filter_total(&s->filter, true, &total) < 0)
		return;
	/* A packet is in the total before it is in any other counter. */
	if (total > 0)
		read_all(&s->filter, true, &k);
	for (int i = 0; i < DRAINS_MAX && engine_sandbox_drain_refused(g); i++)
		;
	accounting_count(s, &total, k.items, k.count, now_ms);
	free(k.items);
}

/* Packets that left by the link, unless they stayed inside. */
static void count_passed(struct engine_sandbox *g, const struct filter_count *c,
			 struct passed_payers *payers, int64_t now_ms)
{
	const int route_fd = g->kind == ATTACH_NETNS ? g->route_fd : g->core->route_fd;

	if (c->packets == 0)
		return;
	/* Loopback, and what else is the sandbox's own. */
	if (g->kind == ATTACH_OWNED ? addr_special(&c->addr) == SPECIAL_LOOPBACK
				    : link_addr_is_local(route_fd, &c->addr) > 0)
		return;
	passed_count(&g->sandbox, c, payers, now_ms);
}

/* What has passed. A set of the kernel that is full counts no further destination, and
 * lets its packets pass: these are in a total. @is_last: the counters are about to go
 * with the ruleset. Return: whether all that has passed is in @k, or the next time reads
 * it. */
static bool read_whole(struct filter_conn *c, bool is_last, struct account_counts *k)
{
	uint64_t uncounted = 0;
	int r = -EAGAIN;

	read_all(c, false, k);
	sort_counts(k);
	for (int tries = 0; tries < READ_TRIES && r == -EAGAIN; tries++)
		r = filter_total(c, false, &uncounted);
	k->is_late |= r == -EAGAIN;
	/* Not there: nothing passes by the link. */
	return !k->is_incomplete && !(is_last && k->is_late) && uncounted == 0 &&
	       (r == 0 || r == -ENOENT || r == -EAGAIN);
}

static void read_passed(struct engine_sandbox *g, bool is_last, int64_t now_ms)
{
	struct sandbox *s = &g->sandbox;
	struct passed_payers payers = { .sandbox = NULL };
	struct account_counts k = { 0 };
	const bool is_whole = read_whole(&s->filter, is_last, &k);

	for (size_t i = 0; i < k.count; i++)
		count_passed(g, &k.items[i], &payers, now_ms);
	if (!is_whole) {
		s->counters[COUNT_PASSED_DROPPED]++;
		sandbox_spend_all(s, now_ms);
	}
	free(k.items);
}

/* -- the table of the host ---------------------------------------------------------- */

/* The host's table counts for all its sandboxes in the same sets, so all are read at
 * once. Reading takes the longer the more destinations are in use: the next time comes
 * after two hundred times that, and where a budget is counted after two seconds at most.
 * The refusals of one sandbox can be read alone: each first packet to a destination was
 * logged, so all destinations are known here, unless a log was lost. */

enum {
	READ_EVERY_MS = 250,
	SHARE = 200, /* one part of the time is spent reading, */
	READ_AFTER_MAX_MS =
		2000, /* but who waits for the end of a budget waits no longer */
	HOST_DRAINS_MAX = 16,
	ALONE_MAX = 64, /* destinations of one sandbox; with more of them, all are read */
};

/* Those of one sandbox, of all that are sorted. */
static const struct filter_count *find_counts(const struct account_counts *k,
					      uint32_t member, size_t *ret_count)
{
	const struct filter_count key = { .member = member };
	const struct filter_count *first, *last;

	*ret_count = 0;
	if (k->count == 0)
		return NULL;
	first = bsearch(&key, k->items, k->count, sizeof(*first), compare_members);
	if (!first)
		return NULL;
	for (last = first; last + 1 < k->items + k->count && last[1].member == member;)
		last++;
	while (first > k->items && first[-1].member == member)
		first--;
	*ret_count = (size_t)(last - first) + 1;
	return first;
}

static struct engine_sandbox *host_at(const struct engine_core *c, size_t slot)
{
	struct engine_sandbox *g = c->sandboxes[slot];

	return g && g->kind == ATTACH_HOST && g->sandbox.accounting ? g : NULL;
}

static void drain(struct engine_host *h)
{
	for (int i = 0; i < HOST_DRAINS_MAX; i++)
		engine_host_drain_refused(h);
}

static struct filter_count key_of(const struct engine_sandbox *g,
				  const struct accounting_flow *f)
{
	return (struct filter_count){
		.addr = f->addr,
		.port = f->port,
		.protocol = f->protocol,
		.member = g->sandbox.id,
	};
}

/* Return: false: more was refused than is known here; read all. */
static bool read_refused_of(struct engine_host *h, struct engine_sandbox *g,
			    int64_t now_ms)
{
	struct filter_conn *c = filter_host_conn(h->table);
	struct accounting *a = g->sandbox.accounting;
	struct filter_count keys[ALONE_MAX];
	struct account_counts k = { 0 };
	size_t count;
	int r = 0;

	drain(h);
	count = a->flow_count;
	if (!h->is_active || h->lost != h->lost_seen || a->is_short || count > ALONE_MAX)
		return false;
	for (size_t i = 0; i < count; i++)
		keys[i] = key_of(g, &a->flows[i]);
	for (size_t i = 0; i < count && r == 0; i++)
		r = filter_counts_read_one(c, true, &keys[i], on_count, &k);
	drain(h);
	accounting_count(&g->sandbox, NULL, k.items, k.count, now_ms);
	free(k.items);
	return r == 0;
}

static void read_refused_of_all(struct engine_host *h, int64_t now_ms)
{
	struct account_counts k = { 0 };
	uint64_t lost = h->lost;

	if (!h->is_active)
		return;
	read_all(filter_host_conn(h->table), true, &k);
	sort_counts(&k);
	if (!k.is_incomplete)
		h->lost_seen = lost;
	drain(h);
	for (size_t i = 0; i < h->core->slots; i++) {
		struct engine_sandbox *g = host_at(h->core, i);
		const struct filter_count *first;
		size_t count;

		if (!g)
			continue;
		first = find_counts(&k, g->sandbox.id, &count);
		if (count > 0 || g->sandbox.accounting->read_at_ms <= now_ms)
			accounting_count(&g->sandbox, NULL, first, count, now_ms);
	}
	free(k.items);
}

/* @is_first: the table is that of an engine before. */
static void count_passed_of_all(struct engine_host *h, bool is_first, int64_t now_ms)
{
	struct passed_payers payers = { .sandbox = NULL };
	struct account_counts k = { 0 };
	const bool is_whole = read_whole(filter_host_conn(h->table), is_first, &k);

	for (size_t i = 0; i < k.count; i++) {
		struct engine_sandbox *g = engine_core_find(h->core, k.items[i].member);

		if (g && g->kind == ATTACH_HOST && (g->restarted || !is_first))
			count_passed(g, &k.items[i], &payers, now_ms);
	}
	free(k.items);
	for (size_t i = 0; i < h->core->slots && !is_whole; i++) {
		struct engine_sandbox *g = host_at(h->core, i);

		if (g && (g->restarted || !is_first))
			sandbox_spend_all(&g->sandbox, now_ms);
	}
}

static void read_passed_of_all(struct engine_host *h, int64_t now_ms)
{
	if (h->is_active)
		count_passed_of_all(h, false, now_ms);
	for (size_t i = 0; i < h->core->slots; i++) {
		struct engine_sandbox *g = host_at(h->core, i);

		if (!g || g->sandbox.accounting->window_ends_ms > now_ms)
			continue;
		relay_account(&g->sandbox);
		accounting_close(&g->sandbox, now_ms);
	}
}

/* Which counters of the host's table some sandbox wants to be read. */
struct host_wants {
	bool refused, passed;
	bool budgets; /* what has passed is wanted for those */
};

static void read_host(struct engine_host *h, const struct host_wants *wants,
		      int64_t now_ms)
{
	int64_t begun_ms = clock_now_ms();

	if (now_ms < h->counts_from_ms &&
	    !(wants->budgets && now_ms >= h->counts_read_ms + READ_AFTER_MAX_MS))
		return;
	if (wants->refused)
		read_refused_of_all(h, now_ms);
	if (wants->passed)
		read_passed_of_all(h, now_ms);
	h->counts_read_ms = now_ms;
	h->counts_from_ms = now_ms + READ_EVERY_MS + (clock_now_ms() - begun_ms) * SHARE;
}

/* -- windows ------------------------------------------------------------------------ */

static void close_window(struct engine_sandbox *g, bool is_last, int64_t now_ms)
{
	relay_account(&g->sandbox);
	if (has_filter(g))
		read_passed(g, is_last, now_ms);
	accounting_close(&g->sandbox, now_ms);
}

static void account(struct engine_sandbox *g, struct host_wants *wants, int64_t now_ms)
{
	const struct accounting *a = g->sandbox.accounting;
	bool refused = a->read_at_ms <= now_ms, passed, counts;

	if (a->window_ends_ms == 0)
		accounting_open(&g->sandbox, now_ms);
	passed = a->window_ends_ms <= now_ms;
	counts = g->sandbox.budgets && g->budgets_at_ms <= now_ms;
	if (counts)
		g->budgets_at_ms = now_ms + BUDGETS_MS;
	if (g->kind == ATTACH_HOST) {
		wants->refused |= refused;
		wants->passed |= passed || counts;
		wants->budgets |= counts;
	} else {
		if (counts && !passed && has_filter(g))
			read_passed(g, false, now_ms);
		if (refused && has_filter(g))
			read_refused(g, now_ms);
		if (passed)
			close_window(g, false, now_ms);
	}
	accounting_report(&g->sandbox, now_ms, false);
}

static void on_tick(struct loop_timer *t)
{
	struct engine_core *c = CONTAINER_OF(t, struct engine_core, account);
	int64_t now_ms = loop_now_ms(c->loop), begun_ms = clock_now_ms();
	struct host_wants wants = { 0 };

	for (size_t i = 0; i < c->slots && clock_now_ms() - begun_ms < TURN_MS; i++) {
		struct engine_sandbox *g;

		if (c->account_at >= c->slots)
			c->account_at = 0;
		g = c->sandboxes[c->account_at++];
		if (g && g->sandbox.accounting && g->sandbox.state == SANDBOX_RUNNING)
			account(g, &wants, now_ms);
	}
	if (c->host && (wants.refused || wants.passed))
		read_host(c->host, &wants, now_ms);
	if (loop_timer_start(c->loop, t, now_ms + TICK_MS) < 0)
		loop_stop(c->loop);
}

int engine_account_init(struct engine_core *c)
{
	c->events.left = ACCOUNTING_POOL_MAX;
	c->account.on_fire = on_tick;
	return loop_timer_in(c->loop, &c->account, TICK_MS);
}

void engine_account_begin(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	struct account_counts before = { 0 };
	uint64_t total = 0;
	int r;

	if (s->accounting && g->kind == ATTACH_HOST && g->core->host) {
		const struct engine_host *h = g->core->host;
		const size_t most = h->is_active ? ALONE_MAX : 0;

		/* A counter that stays is reported when it has counted something. */
		for (size_t i = 0; i < MIN(s->accounting->flow_count, most); i++) {
			const struct filter_count key =
				key_of(g, &s->accounting->flows[i]);

			(void)!filter_counts_forget(filter_host_conn(h->table), &key);
		}
		accounting_begin(s, 0);
	}
	if (!s->accounting || !has_filter(g))
		return;
	r = filter_total(&s->filter, true, &total);
	if (r < 0)
		total = 0;
	/* Counters that can't be read now are reported once too often, not never. */
	if (r < 0 || total > 0)
		read_all(&s->filter, true, &before);
	if (!g->restarted)
		read_all(&s->filter, false, &before);
	free(before.items);
	accounting_begin(s, total);
}

void engine_account_passed_before(struct engine_sandbox *g)
{
	if (g->sandbox.accounting)
		read_passed(g, true, loop_now_ms(g->core->loop));
}

void engine_account_host_before(struct engine_host *h)
{
	count_passed_of_all(h, true, loop_now_ms(h->core->loop));
}

void engine_account_read(struct engine_sandbox *g)
{
	int64_t now_ms = loop_now_ms(g->core->loop);

	if (!g->sandbox.accounting)
		return;
	if (g->kind == ATTACH_HOST && g->core->host)
		(void)!read_refused_of(g->core->host, g, now_ms);
	else if (has_filter(g))
		read_refused(g, now_ms);
}

static void account_all(struct engine_sandbox *g, bool reads_host)
{
	struct engine_host *h = g->kind == ATTACH_HOST ? g->core->host : NULL;
	const int64_t now_ms = loop_now_ms(g->core->loop);

	if (!g->sandbox.accounting)
		return;
	if (!h && has_filter(g))
		read_refused(g, now_ms);
	if (h && !read_refused_of(h, g, now_ms) && reads_host)
		read_refused_of_all(h, now_ms);
	if (h && reads_host)
		read_passed_of_all(h, now_ms);
	close_window(g, true, now_ms);
	accounting_report(&g->sandbox, now_ms, true);
}

void engine_account_all(struct engine_sandbox *g)
{
	account_all(g, true);
}

void engine_account_own(struct engine_sandbox *g)
{
	account_all(g, false);
}
