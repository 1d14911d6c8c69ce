// SPDX-License-Identifier: Apache-2.0
#include "sandbox/grants.h"

#include <stdlib.h>

struct end {
	int64_t wall_ms; /* as the policy has it */
	int64_t now_ms;	 /* on the clock that never steps; INT64_MIN: it has passed */
};

struct grants {
	size_t count;
	struct end ends[];
};

static bool has_ended(const struct end *e, int64_t wall_ms, int64_t now_ms)
{
	return e->wall_ms <= wall_ms || e->now_ms <= now_ms;
}

/* What @old says of the end at @wall_ms; INT64_MAX: nothing. */
static int64_t known_end(const struct grants *old, int64_t wall_ms)
{
	for (size_t i = 0; old && i < old->count; i++)
		if (old->ends[i].wall_ms == wall_ms)
			return old->ends[i].now_ms;
	return INT64_MAX;
}

struct grants *grants_new(const struct grants *old, struct plan *plan, int64_t wall_ms,
			  int64_t now_ms)
{
	const size_t count = plan_end_count(plan);
	struct grants *g = NULL;

	plan->ends_ahead = 0;
	if (count > 0)
		g = calloc(1, sizeof(*g) + count * sizeof(*g->ends));
	if (!g)
		return NULL;
	g->count = count;
	for (size_t i = 0; i < count; i++) {
		const int64_t end_ms = plan_end(plan, i);
		int64_t left_ms, at_ms;

		if (__builtin_sub_overflow(end_ms, wall_ms, &left_ms) ||
		    __builtin_add_overflow(now_ms, left_ms, &at_ms))
			at_ms = INT64_MIN;
		g->ends[i] = (struct end){ end_ms, MIN(at_ms, known_end(old, end_ms)) };
	}
	plan->ends_ahead = grants_ahead(g, wall_ms, now_ms);
	return g;
}

void grants_free(struct grants *g)
{
	free(g);
}

uint64_t grants_ahead(struct grants *g, int64_t wall_ms, int64_t now_ms)
{
	uint64_t ahead = 0;

	for (size_t i = 0; g && i < g->count; i++) {
		if (has_ended(&g->ends[i], wall_ms, now_ms))
			g->ends[i].now_ms = INT64_MIN;
		else
			ahead |= UINT64_C(1) << i;
	}
	return ahead;
}

int64_t grants_next_ms(const struct grants *g, int64_t wall_ms, int64_t now_ms)
{
	int64_t next_ms = INT64_MAX;

	for (size_t i = 0; g && i < g->count; i++) {
		const struct end *e = &g->ends[i];

		if (has_ended(e, wall_ms, now_ms))
			continue;
		next_ms = MIN(next_ms, e->wall_ms - wall_ms);
		next_ms = MIN(next_ms, e->now_ms - now_ms);
	}
	return next_ms;
}
