// SPDX-License-Identifier: Apache-2.0
/* What a command asks for, as the run keeps it. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "../sandbox/test_plan.h"
#include "run/live.h"

enum { ASKED = 1 };

static bool is_asked(struct live *l, int64_t id)
{
	return id == ASKED;
}

TEST(a_task_that_somebody_is_asked_for_stays)
{
	struct run_policy policy = { 0 }, *newest = &policy;
	struct live l = { .newest = &newest, .is_asked = is_asked };
	uint8_t *bytes = plan_from("defaultAction: ask\negress: []\n", &policy.plan);

	for (int i = 0; i <= RUN_REVIEWS_MAX; i++) {
		struct event e = { .action = EVENT_ASK, .layer = EVENT_NAME };

		snprintf(e.name, sizeof(e.name), "n%d.test", i);
		snprintf(e.advice, sizeof(e.advice), "n%d.test", i);
		assert_non_null(live_note(&l, &e));
	}
	assert_int_equal(l.reviews.count, RUN_REVIEWS_MAX);
	assert_non_null(run_reviews_find(&l.reviews, ASKED));
	assert_null(run_reviews_find(&l.reviews, ASKED + 1));
	assert_non_null(run_reviews_find(&l.reviews, ASKED + 2));
	assert_non_null(run_reviews_find(&l.reviews, l.reviews.last_id));
	free(l.reviews.tasks);
	free(bytes);
}
