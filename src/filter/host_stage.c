// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A plan has chains and sets of its own, and no packet meets them before a member has it.
 * So those of a plan with many ranges are loaded in transactions of their own, some
 * ranges in each, and the chains last; from then on it stands like any other plan, only
 * that nobody has it yet. The change itself then finds it there. */
#include "filter/host_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "filter/netlink.h"

enum { STAGE_RANGES = 300 /* that are loaded at a time */ };

struct place {
	const struct filter_set *set; /* the next one, from @range on */
	size_t range;
};

struct filter_host_stage {
	struct host_plan *plan; /* owned until it stands, then it has one user in us */
	struct arena arena;
	const struct ruleset *rules;
	struct place at;
	uint64_t loads; /* of the host's: another one has taken away what was loaded */
	bool stands;
};

static bool is_large(const struct ruleset *rs)
{
	size_t ranges = 0;

	for (const struct filter_set *s = rs->sets; s; s = s->next)
		ranges += s->range_count;
	return ranges >= FILTER_LARGE;
}

static void stage_free(struct filter_host_stage *st)
{
	if (!st->stands)
		host_plan_free(st->plan);
	arena_done(&st->arena);
	free(st);
}

/* Return: 1, it is worth it; 0, it isn't; or -errno. */
static int begin(struct filter_host *h, uint16_t id, const struct plan *plan, bool relay,
		 struct filter_host_stage **ret, struct err *err)
{
	struct filter_host_stage *st;
	struct host_digest digest;
	int r = h->loaded ? host_plan_digest(h, plan, relay, &digest, err) : 0;

	if (r < 0 || !h->loaded || host_plan_find(h, &digest, h->newest[id]))
		return r;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->plan = host_plan_new(h, plan, relay, &digest);
	r = st->plan ? host_build_plan(h, st->plan, &st->arena, &st->rules, err)
		     : -ENOMEM;
	if (r < 0 || !is_large(st->rules)) {
		stage_free(st);
		return r;
	}
	st->at.set = st->rules->sets;
	st->loads = h->loads;
	*ret = st;
	return 1;
}

/* Sets that are all there, and a part of the next one. */
static void put_some(struct nl_writer *w, struct place *at)
{
	size_t left = STAGE_RANGES;

	while (at->set && left > 0) {
		size_t until = MIN(at->set->range_count, at->range + left);

		if (at->range == 0)
			netlink_set(w, HOST_TABLE, at->set);
		netlink_elements(w, HOST_TABLE, at->set, at->range, until);
		left -= MAX(until - at->range, (size_t)1);
		at->range = until;
		if (until == at->set->range_count)
			*at = (struct place){ at->set->next, 0 };
	}
}

static int advance(struct filter_host *h, struct filter_host_stage *st, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct place at = st->at;
	bool last = !at.set;
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (last)
		host_put_plan_chains(&w, st->plan, st->rules);
	else
		put_some(&w, &at);
	nl_batch_end(&w);
	r = nl_transact(&h->conn, &w, &seq);
	if (r < 0)
		return netlink_report(&w, seq, r, err);
	st->at = at;
	if (last) {
		host_plan_link(h, st->plan);
		st->plan->users = 1;
		st->stands = true;
	}
	return last ? 0 : 1;
}

int filter_host_stage(struct filter_host *h, uint16_t id, const struct plan *plan,
		      bool relay, struct filter_host_stage **progress, struct err *err)
{
	struct filter_host_stage *st = *progress;

	if (!st)
		return begin(h, id, plan, relay, progress, err);
	if (st->stands)
		return 0;
	if (st->loads != h->loads || !h->loaded)
		return err_set(err, -ESTALE, "the table was made anew meanwhile");
	return advance(h, st, err);
}

/* What was loaded of it. */
static void take_away(struct filter_host *h, const struct filter_host_stage *st)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);

	nl_batch(&w);
	for (const struct filter_set *s = st->rules->sets; s; s = s->next) {
		if (s == st->at.set && st->at.range == 0)
			break;
		netlink_set_delete(&w, HOST_TABLE, s->name);
		if (s == st->at.set)
			break;
	}
	nl_batch_end(&w);
	(void)!nl_transact(&h->conn, &w, NULL); /* or with the next load */
}

void filter_host_stage_end(struct filter_host *h, struct filter_host_stage *st)
{
	struct err ignored = { 0 };

	if (!st)
		return;
	if (st->stands && --st->plan->users == 0)
		host_plan_remove(h, st->plan, &ignored);
	else if (!st->stands && st->loads == h->loads)
		take_away(h, st);
	stage_free(st);
}
