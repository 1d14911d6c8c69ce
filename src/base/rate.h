// SPDX-License-Identifier: Apache-2.0
/* base/rate - a token bucket in eight bytes.
 *
 * Kept as the time at which the bucket is full again (the "virtual scheduling" form of
 * GCRA, ITU-T I.371): taking a token moves that time on by one interval, and a token is
 * there as long as it lies no further ahead than the burst. The zero value is a full
 * bucket. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct rate {
	int64_t full_at_ns;
};

/* Take one token of a bucket that gets @count tokens in @period_ms and holds @burst.
 * UINT32_MAX for @count: unlimited. 0: there is never one. Return: there was one. */
static inline bool rate_take(struct rate *r, uint32_t count, uint32_t period_ms,
			     uint32_t burst, int64_t now_ms)
{
	int64_t now_ns = now_ms * 1000000;
	int64_t interval_ns, full_at_ns;

	if (count == UINT32_MAX)
		return true;
	if (count == 0)
		return false;
	interval_ns = (int64_t)period_ms * 1000000 / count;
	full_at_ns = MAX(r->full_at_ns, now_ns) + interval_ns;
	if (full_at_ns - now_ns > (int64_t)MAX(burst, 1u) * interval_ns)
		return false;
	r->full_at_ns = full_at_ns;
	return true;
}

/* Nothing has been taken that is not there again. */
static inline bool rate_is_full(const struct rate *r, int64_t now_ms)
{
	return r->full_at_ns <= now_ms * 1000000;
}
