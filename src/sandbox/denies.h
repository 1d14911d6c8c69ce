// SPDX-License-Identifier: Apache-2.0
/* sandbox/denies - how many packets of a sandbox were denied lately, for `on_denies`.
 *
 * The window is counted in DENIES_STEPS parts, the oldest of them in whole: what is as
 * much as one part older than the window may count. The engine counts, before
 * LIMIT_EVENTS_PER_SECOND: a flood can't hide. */
#pragma once

#include "policy/plan.h"

enum { DENIES_STEPS = 64 };

struct denies {
	uint64_t packets[DENIES_STEPS + 1]; /* by the number of the part */
	uint64_t sum;			    /* of them */
	int64_t step;			    /* of the newest one */
	int64_t quiet_until_ms;		    /* the limit was reported */
};

enum { DENIES_AGAIN_MS = 1000 };

/* @packets more were denied. Return: whether that is more than @on allows, and has to be
 * told: at most once a window, and of a stop, which somebody may have missed, each
 * DENIES_AGAIN_MS. With another policy @d begins anew, all zero. */
bool denies_add(struct denies *d, const struct plan_on_denies *on, uint64_t packets,
		int64_t now_ms) MUST_CHECK;
