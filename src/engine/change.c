// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Another policy for a sandbox that runs is one kernel transaction; then everything that
 * is served goes by the new plan.
 *
 *   1. what was learned is judged by the new plan (learned_rebase); where all of it goes
 *      on as it is, its table stays (learned_stays)
 *   2. the ruleset of the next generation takes the old one's place in one transaction;
 *      the learned sets stay in it, and of what they hold it brings, moves and takes away
 *      what is not the same any more, or makes them anew where what they hold isn't known
 *      for sure; a failure leaves everything as it was
 *   3. the sandbox's plan and table are exchanged: queries that wait are judged again
 *      before they are answered, relay flows that aren't allowed any more are reset
 *
 * Sets with ranges are loaded before, and so is what the sets for open flows have to
 * hold; the transaction then brings the rest. In the same steps what was learned is
 * judged (learned_judge).
 *
 * Open flows that are still allowed find their address in a set and get the new
 * generation's mark; all others are refused with their next packet. */
#include "engine/sandbox.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "engine/core.h"
#include "policy/policy.h"
#include "sandbox/accounting.h"
#include "sandbox/budgets.h"
#include "sandbox/learned.h"
#include "sandbox/plan_file.h"

enum { JUDGED_MAX = 768 }; /* addresses of a step, a microsecond each */

/* Everything that takes the place of something at once. */
struct next {
	struct plan plan;
	struct filter_shared_params shared_params;
	struct filter_params owned_params;
	const struct ruleset *rules;
	struct learned_rebased learned;	 /* its table is NULL where there is none */
	struct learned_judging *judging; /* of what is learned; NULL: not judged */
	/* The table of what is learned stays, and this is what changes in the kernel. */
	const struct filter_difference *stays;
	bool staged;
	bool anew; /* it isn't known what the kernel's sets hold */
};

/* The ruleset of n->plan under @generation. */
static int build(const struct sandbox *s, struct next *n, uint16_t generation,
		 struct arena *arena, struct err *err)
{
	struct filter_shared_params *shared = &n->shared_params;

	*shared = s->shared_params;
	n->owned_params = s->owned_params;
	if (!s->shared && !s->host) {
		n->owned_params.generation = generation;
		return ruleset_build_owned(&n->plan, &n->owned_params, arena, &n->rules,
					   err);
	}
	shared->generation = generation;
	/* TCP goes through the relay where the names that connections show are to be
	 * checked, and nowhere else: a namespace that isn't ours has a way out of its
	 * own. */
	shared->relay = plan_verify(&n->plan) == POLICY_VERIFY_TLS &&
			!shared->redirect_only;
	if (shared->relay && (!s->relay || shared->relay_port == 0))
		return err_set(err, -EOPNOTSUPP,
			       "verify: tls needs the relay, which isn't there");
	/* The host's table has numbers of its own: this one only counts changes. */
	return s->host ? 0
		       : ruleset_build_shared(&n->plan, shared, arena, &n->rules, err);
}

static uint16_t generation_of(const struct sandbox *s)
{
	return s->shared || s->host ? s->shared_params.generation
				    : s->owned_params.generation;
}

/* 0 is the mark of a flow that no ruleset has accepted. An even one follows an odd one:
 * by that sets have other names than those that stand. */
static uint16_t next_generation(const struct sandbox *s)
{
	uint16_t now = generation_of(s);

	return now == UINT16_MAX ? FILTER_GENERATION_FIRST + 1 : (uint16_t)(now + 1);
}

static int put(struct sandbox *s, const struct next *n, const struct filter_state *state,
	       int64_t now_ms, struct err *err)
{
	const struct filter_host_sandbox member = {
		.id = (uint16_t)s->id,
		.member = s->member,
		.plan = &n->plan,
		.relay = n->shared_params.relay,
		.state = state,
	};
	int r = s->host ? filter_host_set(s->host, &member, now_ms, err)
			: filter_replace(&s->filter, n->rules, state, err);

	/* The kernel's counters begin anew. */
	if (r == 0 && s->accounting)
		s->accounting->total = 0;
	return r;
}

/* Into the kernel with it: all of it or nothing. */
static int load(struct sandbox *s, struct next *n, int64_t now_ms, struct arena *arena,
		struct err *err)
{
	struct filter_state state = { .staged = n->staged,
				      .self_port_count = s->self_ports.count };
	struct filter_self_port *self_ports = NULL;
	int r = 0;

	if (state.self_port_count > 0) {
		self_ports =
			arena_array(arena, state.self_port_count, sizeof(*self_ports));
		r = self_ports ? 0 : -ENOMEM;
	}
	if (r < 0)
		return err_set(err, r, "out of memory");
	if (self_ports)
		sandbox_self_ports_list(&s->self_ports, self_ports);
	state.self_ports = self_ports;
	if (n->judging && !s->filter.unsure)
		n->stays = learned_stays(s->learned, &n->plan, n->judging, arena);
	state.difference = n->stays;
	if (n->stays && put(s, n, &state, now_ms, err) == 0)
		return 0;
	n->stays = state.difference = NULL;
	if (s->learned &&
	    learned_rebase(s->learned, &n->plan, now_ms, arena, &n->learned) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	state.learned = n->learned.learned;
	state.learned_count = n->learned.learned_count;
	/* In a namespace that is ours the relay knows which of its flows go on. */
	if (s->shared || s->host || s->owned_params.direct_udp ||
	    s->owned_params.direct_tcp) {
		state.draining = n->learned.draining;
		state.draining_count = n->learned.draining_count;
	}
	if (!n->anew)
		state.difference = n->learned.difference;
	r = put(s, n, &state, now_ms, err);
	/* The kernel's sets don't hold what the difference starts from. */
	if (r < 0 && state.difference) {
		state.difference = NULL;
		r = put(s, n, &state, now_ms, err);
	}
	/* Rather the policy without those flows than no policy. */
	if (r == -EMSGSIZE && state.draining_count > 0) {
		state.draining_count = 0;
		r = put(s, n, &state, now_ms, err);
		if (r == 0)
			learned_keep_none(n->learned.table);
	}
	if (r < 0)
		learned_free(n->learned.table);
	return r;
}

/* Nothing here can fail. */
static void take_place(struct sandbox *s, const struct next *n)
{
	sandbox_set_plan(s, &n->plan);
	s->shared_params = n->shared_params;
	s->owned_params = n->owned_params;
	/* Ports that the old ruleset still exempted are not in the new one. */
	s->self_ports.stale_count = 0;
	s->self_ports.is_unsure = false;
	/* The kernel has more than is known then. */
	if (n->stays && learned_stayed(s->learned, n->judging, n->stays) < 0)
		s->filter.unsure = true;
	if (!n->learned.table)
		return;
	learned_set_plan(n->learned.table, &s->plan);
	learned_set_active(n->learned.table);
	learned_snapshot_move(s->learned, n->learned.table);
	learned_free(s->learned);
	s->learned = n->learned.table;
}

static int replace_with(struct sandbox *s, struct next *n, struct arena *arena,
			int64_t now_ms, struct err *err)
{
	int r = build(s, n, next_generation(s), arena, err);

	if (r == 0)
		r = load(s, n, now_ms, arena, err);
	if (r < 0)
		return r;
	take_place(s, n);
	return 0;
}

static int replace(struct sandbox *s, const struct plan *plan, bool anew, int64_t now_ms,
		   struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct next n = { .plan = *plan, .anew = anew || !s->shared };

	return replace_with(s, &n, &arena, now_ms, err);
}

static bool is_stale(const struct sandbox *s, const struct sandbox_staging *st)
{
	return !st->rules || st->params.generation != next_generation(s);
}

int sandbox_install(struct sandbox *s, const struct plan *plan, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct next n = { .plan = *plan, .anew = true };
	int r;

	if ((s->shared || s->host) && s->learned)
		learned_keep_past(s->learned);
	r = replace_with(s, &n, &arena, clock_now_ms(), err);
	return r < 0 || !s->shared ? r : filter_verify(&s->filter, n.rules, err);
}

int sandbox_take_over(struct sandbox *s, const struct plan *plan,
		      const struct filter_said *said)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct next n = { .plan = *plan };
	struct err ignored = { 0 };
	int r = said->digest == 0 || !s->shared
			? -ESTALE
			: build(s, &n, said->generation, &arena, &ignored);

	if (r == 0 && ruleset_digest(n.rules) != said->digest)
		r = -ESTALE;
	if (r == 0)
		r = filter_take_over(&s->filter);
	if (r < 0)
		return r;
	learned_keep_past(s->learned);
	take_place(s, &n);
	return 0;
}

int sandbox_change(struct sandbox *s, const struct plan *plan, int64_t now_ms,
		   struct err *err)
{
	int r = replace(s, plan, false, now_ms, err);

	if (r == 0)
		relay_recheck(s);
	return r;
}

/* Return: 1, it was a step; 0, there was nothing to do; or -errno. */
static int stage_learned(struct sandbox *s, struct sandbox_staging *st)
{
	CLEAN(mem) struct filter_learn *items = calloc(JUDGED_MAX, sizeof(*items));
	size_t count;
	int r;

	if (!items)
		return -ENOMEM;
	st->is_judged = !learned_judge(s->learned, &st->plan, clock_now_ms(), st->judging,
				       items, JUDGED_MAX, &count);
	r = count > 0 ? filter_drain(&s->filter, items, count) : 0;
	/* The kernel has more than is known then. */
	if (r == 0 && learned_note_draining(s->learned, items, count) < 0) {
		s->filter.unsure = true;
		r = -ENOMEM;
	}
	return r < 0 ? r : count > 0 || !st->is_judged;
}

/* The sets of open flows are those of the rules that stand, and of those that come. */
static bool may_judge(const struct sandbox *s, const struct sandbox_staging *st)
{
	return st->judging && !s->filter.unsure && !st->is_judged &&
	       st->params.relay == s->shared_params.relay;
}

int sandbox_stage(struct sandbox *s, const struct plan *plan, struct sandbox_staging *st,
		  struct err *err)
{
	struct next n = { .plan = *plan };
	int r;

	if (!s->shared)
		return err_set(err, -EOPNOTSUPP,
			       "not in steps: the namespace is our own");
	if (!st->rules) {
		r = build(s, &n, next_generation(s), &st->arena, err);
		if (r < 0)
			return r;
		st->plan = n.plan;
		st->params = n.shared_params;
		st->rules = n.rules;
		if (s->learned)
			st->judging = learned_judging_new(s->learned, plan, &st->arena);
		return ruleset_has_ahead(st->rules) || may_judge(s, st) ? 1 : 0;
	}
	if (is_stale(s, st))
		return err_set(err, -ESTALE, "another ruleset stands now");
	if (may_judge(s, st)) {
		r = stage_learned(s, st);
		if (r != 0)
			return r < 0 ? err_sys(err, r, "cannot load the filter's sets")
				     : r;
	}
	r = filter_stage(&s->filter, st->rules, &st->progress);
	return r < 0 ? err_sys(err, r, "cannot load the filter's sets with ranges") : r;
}

int sandbox_change_staged(struct sandbox *s, const struct sandbox_staging *st,
			  int64_t now_ms, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct next n = { .plan = st->plan,
			  .shared_params = st->params,
			  .owned_params = s->owned_params,
			  .rules = st->rules,
			  .judging = st->is_judged ? st->judging : NULL,
			  .staged = true };

	/* Or what stood or was staged is not as it should be: all of it anew. */
	if (is_stale(s, st) || load(s, &n, now_ms, &arena, err) < 0)
		return sandbox_change(s, &st->plan, now_ms, err);
	take_place(s, &n);
	relay_recheck(s);
	return 0;
}

void sandbox_stage_abandon(struct sandbox *s, struct sandbox_staging *st)
{
	if (!is_stale(s, st))
		filter_unstage(&s->filter, st->rules, &st->progress);
	sandbox_staging_done(st);
}

void sandbox_staging_done(struct sandbox_staging *st)
{
	arena_done(&st->arena);
	*st = (struct sandbox_staging){ 0 };
}

int sandbox_verify(struct sandbox *s, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct next n = { .plan = s->plan };
	int r;

	if (s->host)
		return filter_host_verify_one(s->host, (uint16_t)s->id, err);
	r = build(s, &n, generation_of(s), &arena, err);
	return r < 0 ? r : filter_verify(&s->filter, n.rules, err);
}

int sandbox_renew(struct sandbox *s, int64_t now_ms, struct err *err)
{
	int r = replace(s, &s->plan, true, now_ms, err);

	if (r == 0)
		relay_recheck(s);
	return r;
}

/* Under the next generation: what slipped through while the filter was not as it should
 * be doesn't go on. */
int sandbox_repair(struct sandbox *s, int64_t now_ms, struct err *err)
{
	int r = sandbox_renew(s, now_ms, err);

	s->counters[COUNT_REPAIRS] += r == 0;
	return r;
}

/* -- another plan, in turns of the loop --------------------------------------------- */

/* A step in each turn, so that queries are answered between two of them:
 *
 *   first      the plan is mapped and its ruleset built
 *   then       sets with ranges are loaded beside those in force (sandbox_stage())
 *   last       one transaction, and everything goes by the new plan
 *   then       the relay cuts what that forbids: nothing of it leaves after the answer
 *
 * When control goes away it would not hear how it ended: the change is given up, and the
 * next control finds the plan in force that the supervisor has. A repair in between makes
 * what is staged worthless; then the last step does all of it. */

/* What is mapped at @c->next then is not needed any more. */
static void end(struct engine_sandbox *g)
{
	struct engine_sandbox_change *c = &g->change;

	if (g->sandbox.host)
		filter_host_stage_end(g->sandbox.host, c->host_stage);
	plan_file_unmap(&c->next);
	grants_free(c->grants);
	*c = (struct engine_sandbox_change){ 0 };
}

/* Another policy is in force: not when a rule ends or a budget is used up, for the
 * sandbox could bring that about. */
static void count_policy(struct engine_sandbox *g)
{
	g->policy_number++;
	g->sandbox.counters[COUNT_POLICY_CHANGES]++;
	g->sandbox.denies = (struct denies){ 0 };
}

static void take_over(struct engine_sandbox *g)
{
	struct engine_sandbox_change *c = &g->change;
	struct plan next = c->next;
	struct plan counted = c->next;
	struct grants *grants = c->grants;

	sandbox_staging_done(&c->staging);
	c->next = g->plan;
	g->plan = next;
	c->grants = g->grants;
	g->grants = grants;
	engine_grants_count(g, &counted, false);
	count_policy(g);
	g->plan_id = plan_file_id(&g->plan);
	if (g->sandbox.accounting) /* a window of another length may begin */
		g->sandbox.accounting->window_ends_ms = 0;
	/* Without memory for it names are closed. */
	(void)!engine_sandbox_pin(g);
	end(g);
	g->change = (struct engine_sandbox_change){ .is_under_way = true,
						    .is_in_force = true };
}

static void on_turn(struct loop_deferred *d);

static void next_turn(struct engine_sandbox *g)
{
	g->change.turn.run = on_turn;
	loop_defer(g->core->loop, &g->change.turn);
}

static void wait_for_relay(struct engine_sandbox *g)
{
	const struct err none = { 0 };

	if (relay_is_rechecking(&g->sandbox)) {
		next_turn(g);
		return;
	}
	g->change = (struct engine_sandbox_change){ 0 };
	engine_grants_watch(g);
	g->observer->on_changed(g, 0, &none);
}

/* Return: 1, another turn is needed; 0, it is changed; or -errno. */
static int step(struct engine_sandbox *g, struct err *err)
{
	struct engine_sandbox_change *c = &g->change;
	struct err ignored = { 0 };
	int r;

	if (g->sandbox.host) {
		if (c->is_staged)
			return engine_sandbox_change_at_once(g, &c->next, err);
		r = filter_host_stage(g->sandbox.host, (uint16_t)g->sandbox.id, &c->next,
				      plan_verify(&c->next) == POLICY_VERIFY_TLS,
				      &c->host_stage, &ignored);
		c->is_staged = r <= 0;
		return 1;
	}
	if (!g->sandbox.shared || g->enforce == ENFORCED_NOTHING) {
		engine_account_all(g);
		return engine_sandbox_change_at_once(g, &c->next, err);
	}
	if (!c->is_staged) {
		r = sandbox_stage(&g->sandbox, &c->next, &c->staging, &ignored);
		/* Sets that are not all there are not gone over to. */
		if (r < 0)
			sandbox_stage_abandon(&g->sandbox, &c->staging);
		c->is_staged = r <= 0;
		return 1;
	}
	if (!c->staging.rules)
		return engine_sandbox_change_at_once(g, &c->next, err);
	return sandbox_change_staged(&g->sandbox, &c->staging, loop_now_ms(g->core->loop),
				     err);
}

static void on_turn(struct loop_deferred *d)
{
	struct engine_sandbox *g = CONTAINER_OF(d, struct engine_sandbox, change.turn);
	struct err err = { 0 };
	int r;

	if (g->change.is_in_force) {
		wait_for_relay(g);
		return;
	}
	/* What happened so far is reported with the rules of the old plan. */
	if (g->change.is_staged)
		engine_account_all(g);
	r = step(g, &err);
	if (r > 0) {
		next_turn(g);
	} else if (r < 0) {
		sandbox_stage_abandon(&g->sandbox, &g->change.staging);
		end(g);
		g->observer->on_changed(g, r, &err);
	} else {
		take_over(g);
		wait_for_relay(g);
	}
}

/* The filter, names and the relay go by @plan, and nothing of them is to be mended: nor
 * has a lack of room or memory closed a rule. */
static bool is_enforced(const struct engine_sandbox *g, const struct plan *plan)
{
	struct filter_host *host = g->sandbox.host;
	const struct filter_conn *filter = host ? filter_host_conn(host)
						: &g->sandbox.filter;

	return g->enforce != ENFORCED_NOTHING && plan_file_id(plan) == g->plan_id &&
	       plan_same_state(&g->plan, &g->sandbox.plan) && !filter->unsure &&
	       (!host || filter_host_is_loaded(host)) && !g->is_pin_lost &&
	       (plan_budget_count(&g->plan) == 0 || g->sandbox.budgets) &&
	       (plan_end_count(&g->plan) == 0 || g->grants);
}

int engine_sandbox_change(struct engine_sandbox *g, int plan_fd, struct err *err)
{
	struct engine_sandbox_change *c = &g->change;
	const struct err none = { 0 };
	int r;

	if (c->is_under_way)
		return err_set(err, -EBUSY, "another change is under way");
	r = plan_file_map(plan_fd, &c->next, err);
	if (r < 0)
		return r;
	/* Generations are few (budgets.h): whoever asks again and again for what stands
	 * uses none of them. */
	if (is_enforced(g, &c->next)) {
		plan_file_unmap(&c->next);
		count_policy(g);
		g->observer->on_changed(g, 0, &none);
		return 0;
	}
	c->grants = engine_grants_new(g, &c->next);
	/* What is counted until the change is in force is counted for the old plan. */
	budgets_free(
		budgets_new(g->sandbox.budgets, &c->next, loop_now_ms(g->core->loop)));
	c->is_under_way = true;
	next_turn(g);
	return 0;
}

void engine_sandbox_change_cancel(struct engine_sandbox *g)
{
	struct engine_sandbox_change *c = &g->change;

	if (!c->is_under_way)
		return;
	loop_defer_cancel(g->core->loop, &c->turn);
	if (c->is_in_force) {
		*c = (struct engine_sandbox_change){ 0 };
		engine_grants_watch(g);
		return;
	}
	sandbox_stage_abandon(&g->sandbox, &c->staging);
	end(g);
}

/* ---- rules that end, and budgets that are used up ---- */

/* Rules that end, and rules whose budget is used up. The plan stays; which of its ends
 * lie ahead changes, or which budgets are used up, and the sandbox goes over to that as
 * to another policy: under the kernel's next generation, in which flows that no other
 * rule allows are cut, as the relay cuts its own. */

enum {
	EVERY_MS = 250, /* at least so often: the wall clock may have been set */
	GRANTS_TURN_MS = 2,
};

static void report(struct engine_sandbox *g, uint32_t rule, const char *why)
{
	struct event e = event_make(EVENT_CHANGE, EVENT_LAUNCH);

	e.rule = rule;
	snprintf(e.name, sizeof(e.name), "%s", plan_rule(&g->plan, rule).target);
	event_set_reason(&e, why);
	sandbox_notice(&g->sandbox, &e, loop_now_ms(g->core->loop));
}

/* Where the filter fails, names and the relay go by the new plan all the same, and the
 * filter is tried again. */
static void go_over(struct engine_sandbox *g, struct plan next)
{
	struct event stuck = event_make(EVENT_PANIC, EVENT_ADDRESS);
	const struct plan before = g->plan;
	const uint64_t closed = before.spent | g->sandbox.plan.spent;
	struct err err = { 0 };
	struct engine_core *c = g->core;
	uint64_t anew;
	int r;

	if (g->kind == ATTACH_HOST && c->grants_counted)
		engine_account_own(g);
	else
		engine_account_all(g);
	c->grants_counted |= g->kind == ATTACH_HOST;
	r = engine_sandbox_change_at_once(g, &next, &err);
	if (r < 0 && g->enforce != ENFORCED_NOTHING) {
		if (plan_same_state(&g->sandbox.plan, &next))
			return; /* reported */
		sandbox_set_plan(&g->sandbox, &next);
		relay_recheck(&g->sandbox);
		snprintf(stuck.reason, sizeof(stuck.reason),
			 "a rule has ended, and the filter keeps it: %.80s", err.text);
		sandbox_notice(&g->sandbox, &stuck, loop_now_ms(g->core->loop));
		return;
	}
	g->plan = next;
	if (r < 0)
		sandbox_set_plan(&g->sandbox, &next);
	/* What has ended, and what begins anew. */
	anew = before.spent & ~g->plan.spent;
	for (uint32_t i = 0;
	     before.ends_ahead != g->plan.ends_ahead && i < plan_rule_count(&before); i++)
		if (plan_rule_is_over(&g->plan, i) && !plan_rule_is_over(&before, i))
			report(g, i, "the time of the rule is over");
	for (size_t i = 0; i < plan_budget_count(&before); i++)
		if (anew >> i & 1)
			report(g, plan_budget(&before, i).rule,
			       "the budget of the rule begins anew");
	/* To pin is to ask for every name. A budget is the sandbox's to use up, and what
	 * is pinned of its names has stayed. */
	if (before.ends_ahead != g->plan.ends_ahead)
		(void)!engine_sandbox_pin(g); /* without memory names are closed */
	if (closed & ~g->plan.spent)
		resolver_pin_restore(dns_service_resolver(g->core->dns), &g->sandbox,
				     closed & ~g->plan.spent, loop_now_ms(g->core->loop));
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
	uint64_t news;

	next.ends_ahead = grants_ahead(g->grants, wall_ms, now_ms);
	next.spent = budgets_spent(budgets, &next, now_ms);
	news = budgets_take_news(budgets);
	for (size_t i = 0; news != 0 && i < plan_budget_count(&g->plan); i++) {
		const uint32_t rule = plan_budget(&g->plan, i).rule;

		if (news >> i & 1)
			report(g, rule,
			       rule == PLAN_NO_RULE ? PLAN_SPENT_ALL : PLAN_SPENT_REASON);
	}
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
	/* Something waits. */
	if (!is_in_force(g, &next) ||
	    next.spent != (budgets_spent(budgets, &next, now_ms) | budgets_due(budgets)))
		next_ms = MIN(next_ms, (int64_t)EVERY_MS);
	return next_ms;
}

static bool is_watched(const struct engine_sandbox *g)
{
	return g->grants || plan_budget_count(&g->plan) > 0;
}

/* Look at some of the sandboxes: to go over takes milliseconds, and many may do it at one
 * time. */
static void on_grants(struct loop_timer *t)
{
	struct engine_core *c = CONTAINER_OF(t, struct engine_core, grants);
	const int64_t now_ms = loop_now_ms(c->loop), begun_ms = clock_now_ms();
	int64_t at_ms = now_ms, left_ms;

	if (c->grants_at == 0) {
		c->grants_next_ms = INT64_MAX;
		c->grants_counted = false;
	}
	for (; c->grants_at < c->slots && clock_now_ms() - begun_ms < GRANTS_TURN_MS;
	     c->grants_at++) {
		struct engine_sandbox *g = c->sandboxes[c->grants_at];

		left_ms = g && is_watched(g) ? look_at(g) : INT64_MAX;
		if (left_ms < INT64_MAX)
			c->grants_next_ms = MIN(c->grants_next_ms, now_ms + left_ms);
	}
	if (c->grants_at >= c->slots) {
		c->grants_at = 0;
		at_ms = c->grants_next_ms;
	}
	if (at_ms < INT64_MAX && loop_timer_by(c->loop, t, at_ms) < 0)
		loop_stop(c->loop);
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
	if (!is_watched(g))
		return;
	/* A round that is under way may be past @g: another one follows it. */
	c->grants_next_ms = loop_now_ms(c->loop);
	if (loop_timer_by(c->loop, &c->grants, c->grants_next_ms) < 0)
		loop_stop(c->loop);
}

void engine_grants_on_spent(struct sandbox *s)
{
	engine_grants_watch(CONTAINER_OF(s, struct engine_sandbox, sandbox));
}
