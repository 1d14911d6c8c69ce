// SPDX-License-Identifier: Apache-2.0
/* Rules that end. The plan stays; which of its ends lie ahead changes, and the sandbox
 * goes over to that as to another policy: under the kernel's next generation, in which
 * flows that no other rule allows are cut, as the relay cuts its own. */
#include "engine/core.h"

#include <stdio.h>

#include "base/clock.h"
#include "sandbox/grants.h"

enum { EVERY_MS = 250 }; /* at least so often: the wall clock may have been set */

static void report(struct engine_sandbox *g, uint32_t rule, const char *why)
{
	struct event e = {
		.action = EVENT_CHANGE,
		.layer = EVENT_LAUNCH,
		.rule = rule,
		.uid = UINT32_MAX,
	};

	snprintf(e.name, sizeof(e.name), "%s", plan_rule(&g->plan, rule).target);
	snprintf(e.reason, sizeof(e.reason), "%s", why);
	sandbox_event(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

/* What ends ahead of @before has, and @g's plan hasn't. */
static void report_ended(struct engine_sandbox *g, const struct plan *before)
{
	for (uint32_t i = 0; i < plan_rule_count(before); i++)
		if (plan_rule_is_over(&g->plan, i) && !plan_rule_is_over(before, i))
			report(g, i, "the time of the rule is over");
}

static void report_stuck(struct engine_sandbox *g, const struct err *err)
{
	struct event e = {
		.action = EVENT_PANIC,
		.layer = EVENT_ADDRESS,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
	};

	snprintf(e.reason, sizeof(e.reason),
		 "a rule has ended, and the filter keeps it: %.80s", err->text);
	sandbox_event(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

/* Where the filter fails, names and the relay go by the new plan all the same, and the
 * filter is tried again. */
static void end_rules(struct engine_sandbox *g, uint64_t ends_ahead)
{
	const struct plan before = g->plan;
	struct plan next = g->plan;
	struct err err = { 0 };
	int r;

	next.ends_ahead = ends_ahead;
	engine_account_all(g);
	r = engine_sandbox_change_at_once(g, &next, &err);
	if (r < 0 && g->enforce != ENFORCED_NOTHING) {
		if (g->sandbox.plan.ends_ahead == ends_ahead)
			return; /* reported */
		sandbox_set_plan(&g->sandbox, &next);
		if (g->core->relay)
			relay_recheck(g->core->relay, &g->sandbox);
		report_stuck(g, &err);
		return;
	}
	g->plan = next;
	if (r < 0)
		sandbox_set_plan(&g->sandbox, &next);
	report_ended(g, &before);
	/* Without memory for it names are closed. */
	(void)!engine_sandbox_pin(g);
	if (g->observer->on_status)
		g->observer->on_status(g);
}

/* Return: the milliseconds to the next look; INT64_MAX: none is needed. */
static int64_t look_at(struct engine_sandbox *g)
{
	const int64_t wall_ms = clock_wall_ms(), now_ms = loop_now_ms(g->core->loop);
	const uint64_t ahead = grants_ahead(g->grants, wall_ms, now_ms);

	/* A change that is under way is followed by a look of its own. */
	if (ahead != g->plan.ends_ahead && !g->change.is_under_way)
		end_rules(g, ahead);
	if (ahead == 0 && g->plan.ends_ahead == 0)
		return INT64_MAX;
	return MIN(grants_next_ms(g->grants, wall_ms, now_ms), (int64_t)EVERY_MS);
}

static void look(struct engine_core *c)
{
	int64_t next_ms = INT64_MAX;

	for (size_t i = 0; i < c->slots; i++) {
		struct engine_sandbox *g = c->sandboxes[i];

		if (g && g->grants)
			next_ms = MIN(next_ms, look_at(g));
	}
	if (next_ms < INT64_MAX &&
	    loop_timer_start(c->loop, &c->grants, loop_now_ms(c->loop) + next_ms) < 0)
		loop_stop(c->loop);
}

static void on_grants(struct loop_timer *t)
{
	look(CONTAINER_OF(t, struct engine_core, grants));
}

struct grants *engine_grants_new(const struct engine_sandbox *g, struct plan *plan)
{
	return grants_new(g->grants, plan, clock_wall_ms(), loop_now_ms(g->core->loop));
}

void engine_grants_watch(struct engine_sandbox *g)
{
	struct engine_core *c = g->core;

	c->grants.on_fire = on_grants;
	if (g->grants && loop_timer_start(c->loop, &c->grants, loop_now_ms(c->loop)) < 0)
		loop_stop(c->loop);
}
