// SPDX-License-Identifier: Apache-2.0
/* Four times a second: what was added up is told, as far as it is due. Looking at the
 * filter's counters takes a millisecond where there are many, so the sandboxes take
 * turns, and a turn ends after two. */
#include "engine/account.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/special.h"
#include "engine/host.h"
#include "sandbox/refused.h"
#include "sys/link.h"

enum {
	TICK_MS = 250,
	TURN_MS = 2,
	DRAINS_MAX = 64, /* of the log's queue: more than it holds */
};

void engine_account_on_count(void *data, const struct filter_count *c)
{
	struct account_counts *k = data;

	if (k->count == k->capacity) {
		size_t capacity = MAX(k->capacity * 2, (size_t)64);
		struct filter_count *grown =
			reallocarray(k->items, capacity, sizeof(*grown));

		if (!grown)
			return;
		k->items = grown;
		k->capacity = capacity;
	}
	k->items[k->count++] = *c;
}

static bool has_filter(const struct engine_sandbox *g)
{
	return g->sandbox.filter.fd >= 0 && !g->sandbox.host &&
	       (g->kind == ENGINE_SANDBOX_OWNED || g->enforce != ENFORCED_NOTHING);
}

/* Every packet that is in a counter has been logged before, if it was to be: so the log
 * is read after the counters, and to its end. */
static void look_at_refused(struct engine_sandbox *g, int64_t now_ms)
{
	struct sandbox *s = &g->sandbox;
	struct account_counts k = { 0 };
	uint64_t total = 0;

	s->accounts->look_at_ms = now_ms + ACCOUNTS_LOOK_MAX_MS;
	if (filter_refused_total(&s->filter, &total) < 0 ||
	    filter_counts_read(&s->filter, true, engine_account_on_count, &k) < 0) {
		free(k.items);
		return;
	}
	for (int i = 0; i < DRAINS_MAX && engine_sandbox_drain_refused(g); i++)
		;
	accounts_looked(s, &total, k.items, k.count, now_ms);
	free(k.items);
}

/* Loopback, and what else is the sandbox's own. */
static bool is_inside(const struct engine_sandbox *g, const struct addr *a)
{
	int route_fd = g->kind == ATTACH_NETNS ? g->route_fd : g->core->route_fd;

	if (g->kind == ENGINE_SANDBOX_OWNED)
		return addr_special(a) == SPECIAL_LOOPBACK;
	return link_addr_is_local(route_fd, a) != 0;
}

void engine_account_passed(struct engine_sandbox *g, const struct filter_count *c,
			   int64_t now_ms)
{
	if (c->packets > 0 && !is_inside(g, &c->addr))
		passed_count(&g->sandbox, c, now_ms);
}

static void look_at_passed(struct engine_sandbox *g, int64_t now_ms)
{
	struct sandbox *s = &g->sandbox;
	struct account_counts k = { 0 };

	if (filter_counts_read(&s->filter, false, engine_account_on_count, &k) < 0)
		k.count = 0;
	for (size_t i = 0; i < k.count; i++)
		engine_account_passed(g, &k.items[i], now_ms);
	/* It was full: others may have passed. */
	s->counters[COUNT_PASSED_DROPPED] += k.count >= ACCOUNTS_EVENTS_MAX;
	free(k.items);
}

static void close_window(struct engine_sandbox *g, int64_t now_ms)
{
	relay_account(g->core->relay, &g->sandbox);
	if (has_filter(g))
		look_at_passed(g, now_ms);
	accounts_close(&g->sandbox, now_ms);
}

/* What some sandbox of the host wants looked at: see engine_account_host.c. */
struct host_wants {
	bool refused, passed;
};

static void account(struct engine_sandbox *g, struct host_wants *wants, int64_t now_ms)
{
	const struct accounts *a = g->sandbox.accounts;
	bool refused = a->look_at_ms <= now_ms, passed;

	if (a->window_ends_ms == 0)
		accounts_open(&g->sandbox, now_ms);
	passed = a->window_ends_ms <= now_ms;
	if (g->kind == ATTACH_HOST) {
		wants->refused |= refused;
		wants->passed |= passed;
	} else {
		if (refused && has_filter(g))
			look_at_refused(g, now_ms);
		if (passed)
			close_window(g, now_ms);
	}
	accounts_tell(&g->sandbox, now_ms, false);
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
		g = c->guarded[c->account_at++];
		if (g && g->sandbox.accounts && g->sandbox.state == SANDBOX_RUNNING)
			account(g, &wants, now_ms);
	}
	if (c->host && (wants.refused || wants.passed))
		engine_account_host(c->host, wants.refused, wants.passed, now_ms);
	if (loop_timer_start(c->loop, t, now_ms + TICK_MS) < 0)
		loop_stop(c->loop);
}

int engine_account_init(struct engine_core *c)
{
	c->events.left = ACCOUNTS_POOL_MAX;
	c->account.on_fire = on_tick;
	return loop_timer_start(c->loop, &c->account, loop_now_ms(c->loop) + TICK_MS);
}

void engine_account_add(struct engine_core *c, struct engine_sandbox *g)
{
	if (!g->sandbox.accounts)
		g->sandbox.accounts = accounts_new(&c->events);
}

static void ignore_count(void *data, const struct filter_count *c)
{
}

void engine_account_begin(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	uint64_t total = 0;

	if (s->accounts && g->kind == ATTACH_HOST && g->core->host)
		engine_account_host_begin(g->core->host, g);
	if (!s->accounts || !has_filter(g))
		return;
	if (filter_refused_total(&s->filter, &total) < 0)
		total = 0;
	/* What can't be read now is told once too often: better than never. */
	(void)!filter_counts_read(&s->filter, true, ignore_count, NULL);
	(void)!filter_counts_read(&s->filter, false, ignore_count, NULL);
	accounts_begin(s, total);
}

void engine_account_all(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	int64_t now_ms = loop_now_ms(g->core->loop);

	if (!s->accounts)
		return;
	if (g->kind == ATTACH_HOST && g->core->host)
		engine_account_host_now(g->core->host, g, now_ms);
	else if (has_filter(g))
		look_at_refused(g, now_ms);
	if (g->kind != ATTACH_HOST)
		close_window(g, now_ms);
	accounts_tell(s, now_ms, true);
}
