// SPDX-License-Identifier: Apache-2.0
/* Rules that end, and rules whose budget is used up. The plan stays; which of its ends
 * lie ahead changes, or which budgets are used up, and the sandbox goes over to that as
 * to another policy: under the kernel's next generation, in which flows that no other
 * rule allows are cut, as the relay cuts its own. */
#include "engine/core.h"

#include <stdio.h>

#include "base/clock.h"
#include "sandbox/budgets.h"
#include "sandbox/grants.h"

enum { EVERY_MS = 250 }; /* at least so often: the wall clock may have been set */

static void report(struct engine_sandbox *g, uint32_t rule, const char *why)
{
	struct event e = event_make(EVENT_CHANGE, EVENT_LAUNCH);

	e.rule = rule;
	snprintf(e.name, sizeof(e.name), "%s", plan_rule(&g->plan, rule).target);
	event_set_reason(&e, why);
	sandbox_notice(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

/* What has ended, and what begins anew, since @before. */
static void report_changes(struct engine_sandbox *g, const struct plan *before)
{
	const uint64_t anew = before->spent & ~g->plan.spent;

	for (uint32_t i = 0;
	     before->ends_ahead != g->plan.ends_ahead && i < plan_rule_count(before); i++)
		if (plan_rule_is_over(&g->plan, i) && !plan_rule_is_over(before, i))
			report(g, i, "the time of the rule is over");
	for (size_t i = 0; i < plan_budget_count(before); i++)
		if (anew >> i & 1)
			report(g, plan_budget(before, i).rule,
			       "the budget of the rule begins anew");
}

static void report_spent(struct engine_sandbox *g)
{
	const uint64_t news = budgets_take_news(g->sandbox.budgets);

	for (size_t i = 0; news != 0 && i < plan_budget_count(&g->plan); i++) {
		const uint32_t rule = plan_budget(&g->plan, i).rule;

		if (news >> i & 1)
			report(g, rule,
			       rule == PLAN_NO_RULE ? PLAN_SPENT_ALL : PLAN_SPENT_REASON);
	}
}

static void report_stuck(struct engine_sandbox *g, const struct err *err)
{
	struct event e = event_make(EVENT_PANIC, EVENT_ADDRESS);

	snprintf(e.reason, sizeof(e.reason),
		 "a rule has ended, and the filter keeps it: %.80s", err->text);
	sandbox_notice(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

/* Where the filter fails, names and the relay go by the new plan all the same, and the
 * filter is tried again. */
static void go_over(struct engine_sandbox *g, struct plan next)
{
	const struct plan before = g->plan;
	struct err err = { 0 };
	int r;

	engine_account_all(g);
	r = engine_sandbox_change_at_once(g, &next, &err);
	if (r < 0 && g->enforce != ENFORCED_NOTHING) {
		if (plan_same_state(&g->sandbox.plan, &next))
			return; /* reported */
		sandbox_set_plan(&g->sandbox, &next);
		relay_recheck(&g->sandbox);
		report_stuck(g, &err);
		return;
	}
	g->plan = next;
	if (r < 0)
		sandbox_set_plan(&g->sandbox, &next);
	report_changes(g, &before);
	/* Without memory for it names are closed. */
	(void)!engine_sandbox_pin(g);
	if (g->observer->on_status)
		g->observer->on_status(g);
}

void engine_grants_on_unkept(struct engine_sandbox *g)
{
	if (plan_budget_count(&g->plan) > 0 && !g->sandbox.budgets)
		report(g, PLAN_NO_RULE,
		       "what passes can't be counted across a restart: every budget is "
		       "used up");
}

/* Where the filter failed, names and the relay go by another plan than the filter. */
static bool is_in_force(const struct engine_sandbox *g, const struct plan *p)
{
	return plan_same_state(&g->plan, p) && plan_same_state(&g->sandbox.plan, p);
}

/* Return: the milliseconds to the next look; INT64_MAX: none is needed. */
static int64_t look_at(struct engine_sandbox *g)
{
	const int64_t wall_ms = clock_wall_ms(), now_ms = loop_now_ms(g->core->loop);
	struct budgets *budgets = g->sandbox.budgets;
	struct plan next = g->plan;
	int64_t next_ms;

	next.ends_ahead = grants_ahead(g->grants, wall_ms, now_ms);
	next.spent = budgets_spent(budgets, &next, now_ms);
	report_spent(g);
	/* A change that is under way is followed by a look of its own. */
	if (!g->change.is_under_way) {
		next.spent =
			budgets_hold(budgets, g->sandbox.plan.spent, next.spent, now_ms);
		if (!is_in_force(g, &next))
			go_over(g, next);
	}
	next_ms = budgets_next_ms(budgets, &next, now_ms);
	if (next.ends_ahead != 0) {
		next_ms = MIN(next_ms, grants_next_ms(g->grants, wall_ms, now_ms));
		next_ms = MIN(next_ms, (int64_t)EVERY_MS);
	}
	if (!is_in_force(g, &next) || next.spent != budgets_spent(budgets, &next, now_ms))
		next_ms = MIN(next_ms, (int64_t)EVERY_MS);
	return next_ms;
}

static bool is_watched(const struct engine_sandbox *g)
{
	return g->grants || plan_budget_count(&g->plan) > 0;
}

static void look(struct engine_core *c)
{
	int64_t next_ms = INT64_MAX;

	for (size_t i = 0; i < c->slots; i++) {
		struct engine_sandbox *g = c->sandboxes[i];

		if (g && is_watched(g))
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

void engine_grants_count(struct engine_sandbox *g, struct plan *plan, bool is_first)
{
	struct budgets *old = g->sandbox.budgets;
	const int64_t now_ms = loop_now_ms(g->core->loop);
	void *kept = plan_budget_count(plan) > 0 ? engine_sandbox_kept_budgets(g) : NULL;

	g->sandbox.budgets = is_first && g->restarted ? budgets_adopt(kept, plan, now_ms)
						      : budgets_new(old, plan, now_ms);
	budgets_free(old);
	budgets_keep(g->sandbox.budgets, kept);
	if (kept || g->kind == ATTACH_OWNED || plan_budget_count(plan) == 0)
		return;
	budgets_free(g->sandbox.budgets);
	g->sandbox.budgets = NULL;
	plan->spent = UINT64_MAX;
	engine_grants_on_unkept(g);
}

void engine_grants_watch(struct engine_sandbox *g)
{
	struct engine_core *c = g->core;

	c->grants.on_fire = on_grants;
	if (is_watched(g) &&
	    loop_timer_start(c->loop, &c->grants, loop_now_ms(c->loop)) < 0)
		loop_stop(c->loop);
}

void engine_grants_on_spent(struct sandbox *s)
{
	engine_grants_watch(CONTAINER_OF(s, struct engine_sandbox, sandbox));
}
