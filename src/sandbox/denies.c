// SPDX-License-Identifier: Apache-2.0
#include "sandbox/denies.h"

#include <string.h>

enum { PLACES = DENIES_STEPS + 1 };

/* Let go of what is older than the window. */
static void move_to(struct denies *d, int64_t step)
{
	if (step - d->step >= PLACES) {
		memset(d->packets, 0, sizeof(d->packets));
		d->sum = 0;
	}
	for (int64_t i = d->step + 1; i <= step && step - d->step < PLACES; i++) {
		uint64_t *place = &d->packets[(uint64_t)i % PLACES];

		d->sum -= *place;
		*place = 0;
	}
	d->step = MAX(d->step, step);
}

bool denies_add(struct denies *d, const struct plan_on_denies *on, uint64_t packets,
		int64_t now_ms)
{
	const int64_t window_ms = (int64_t)on->window_sec * 1000;

	if (on->count == 0 || window_ms == 0)
		return false;
	move_to(d, now_ms * DENIES_STEPS / window_ms);
	/* The sum can't overflow: nothing counts beyond what is too many. */
	packets = MIN(packets, (uint64_t)on->count + 1);
	d->packets[(uint64_t)d->step % PLACES] += packets;
	d->sum += packets;
	if (d->sum <= on->count || now_ms < d->quiet_until_ms)
		return false;
	d->quiet_until_ms = now_ms + (on->action == ON_DENIES_STOP
					      ? MIN(window_ms, (int64_t)DENIES_AGAIN_MS)
					      : window_ms);
	return true;
}
