// SPDX-License-Identifier: Apache-2.0
#include "main/shared_internal.h"

#include <stdio.h>

#include "net/link.h"
#include "sandbox/change.h"

enum {
	WATCH_EVERY_MS = 50,
	ROUTES_EVERY = 20, /* turns of the watch */
};

static void remember_generation(struct shared *e, uint32_t id)
{
	e->generation_id = id;
	e->commits = e->core.sandbox.filter.commits;
}

void shared_remember_ruleset(struct shared *e)
{
	uint32_t id;

	if (filter_generation_id(&e->core.sandbox.filter, &id) == 0)
		remember_generation(e, id);
}

/* What our own transactions since then have made of it; the kernel never uses 0. */
static bool is_expected(const struct shared *e, uint32_t id)
{
	uint32_t ours = e->core.sandbox.filter.commits - e->commits;
	uint32_t expected = e->generation_id + ours;

	return id == expected || (expected < e->generation_id && id == expected + 1);
}

static void tell_repair(struct shared *e, int r, const struct err *err)
{
	struct event event = {
		.action = EVENT_PANIC,
		.layer = EVENT_ADDRESS,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
	};

	snprintf(event.reason, sizeof(event.reason), "%s",
		 r < 0 ? "others have changed the filter; it can't be put back"
		       : "others had changed the filter; it was put back");
	sandbox_event(&e->core.sandbox, &event, loop_now_ms(e->core.loop));
}

static void look_after(struct shared *e)
{
	struct sandbox *s = &e->core.sandbox;
	struct err err = { 0 };
	uint32_t id;
	int r;

	if (filter_generation_id(&s->filter, &id) < 0)
		return;
	if (is_expected(e, id)) {
		remember_generation(e, id);
		return;
	}
	r = sandbox_verify(s, &err);
	if (r < 0) {
		r = sandbox_repair(s, e->core.relay, loop_now_ms(e->core.loop), &err);
		tell_repair(e, r, &err);
		shared_tell_standing(e, IPC_STANDS, false);
	}
	/* Should it not stand, the next turn looks again. */
	if (r == 0)
		shared_remember_ruleset(e);
}

/* An address may come or go at any time: AAAA is served while there is a way out. */
void shared_look_for_ipv6(struct shared *e)
{
	e->core.sandbox.ipv6 = link_has_default_route(e->core.route_fd, 6) == 1;
}

static int start_watch(struct shared *e)
{
	return loop_timer_start(e->core.loop, &e->watch,
				loop_now_ms(e->core.loop) + WATCH_EVERY_MS);
}

static void on_watch(struct loop_timer *t)
{
	struct shared *e = CONTAINER_OF(t, struct shared, watch);

	if (e->config.enforce != ENFORCED_NOTHING)
		look_after(e);
	if (++e->watched % ROUTES_EVERY == 0)
		shared_look_for_ipv6(e);
	if (start_watch(e) < 0)
		loop_stop(e->core.loop);
}

int shared_watch(struct shared *e)
{
	e->watch.on_fire = on_watch;
	return start_watch(e);
}
