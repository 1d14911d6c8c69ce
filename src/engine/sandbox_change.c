// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A step in each turn, so that whoever asks something meanwhile has his answer between
 * two of them:
 *
 *   first      the plan is mapped and its ruleset built
 *   then       large sets are loaded beside what stands (sandbox_stage())
 *   last       one transaction, and everything goes by the new plan
 *   then       the relay cuts what that forbids: nothing of it leaves after the answer
 *
 * When control goes away nobody would hear how it ended: the change is given up, and the
 * next control finds the plan in force that the supervisor has. A repair in between makes
 * what is staged worthless; then the last step does all of it. */
#include "engine/sandbox.h"

#include <errno.h>
#include <sys/mman.h>

#include "engine/core.h"
#include "proto/plan_file.h"

static void unmap(const struct plan *p)
{
	if (p->bytes)
		munmap((void *)(uintptr_t)p->bytes, p->size);
}

/* What is mapped at @c->next then is not needed any more. */
static void end(struct engine_sandbox *g)
{
	struct engine_sandbox_change *c = &g->change;

	if (g->sandbox.host)
		filter_host_stage_end(g->sandbox.host, c->host_stage);
	unmap(&c->next);
	*c = (struct engine_sandbox_change){ 0 };
}

static void give_up(struct engine_sandbox *g, int r, const struct err *err)
{
	sandbox_stage_abandon(&g->sandbox, &g->change.staging);
	end(g);
	g->told->on_changed(g, r, err);
}

static void take_over(struct engine_sandbox *g)
{
	struct engine_sandbox_change *c = &g->change;
	struct plan next = c->next;

	sandbox_staging_done(&c->staging);
	c->next = g->plan;
	g->plan = next;
	g->plan_id = plan_file_id(&g->plan);
	if (g->sandbox.accounts) /* a window of another length may begin */
		g->sandbox.accounts->window_ends_ms = 0;
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
	g->told->on_changed(g, 0, &none);
}

/* The same in the host's table. */
static int host_step(struct engine_sandbox *g, struct err *err)
{
	struct engine_sandbox_change *c = &g->change;
	struct err ignored = { 0 };
	int r;

	if (c->is_staged)
		return engine_sandbox_change_at_once(g, &c->next, err);
	r = filter_host_stage(g->sandbox.host, (uint16_t)g->sandbox.id, &c->next,
			      plan_verify(&c->next) == POLICY_VERIFY_TLS, &c->host_stage,
			      &ignored);
	c->is_staged = r <= 0;
	return 1;
}

/* Return: 1, another turn is needed; 0, it is changed; or -errno. */
static int step(struct engine_sandbox *g, struct err *err)
{
	struct engine_sandbox_change *c = &g->change;
	struct err ignored = { 0 };
	int r;

	if (g->sandbox.host)
		return host_step(g, err);
	if (!g->sandbox.shared || g->enforce == ENFORCED_NOTHING)
		return engine_sandbox_change_at_once(g, &c->next, err);
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
	return sandbox_change_staged(&g->sandbox, &c->staging, g->core->relay,
				     loop_now_ms(g->core->loop), err);
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
	/* What happened so far is told with the rules that it was judged by. */
	if (g->change.is_staged)
		engine_account_all(g);
	r = step(g, &err);
	if (r > 0) {
		next_turn(g);
	} else if (r < 0) {
		give_up(g, r, &err);
	} else {
		take_over(g);
		wait_for_relay(g);
	}
}

int engine_sandbox_change(struct engine_sandbox *g, int plan_fd, struct err *err)
{
	struct engine_sandbox_change *c = &g->change;
	int r;

	if (c->is_under_way)
		return err_set(err, -EBUSY, "another change is under way");
	r = plan_file_map(plan_fd, &c->next, err);
	if (r < 0)
		return r;
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
		return;
	}
	sandbox_stage_abandon(&g->sandbox, &c->staging);
	end(g);
}
