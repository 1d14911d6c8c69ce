// SPDX-License-Identifier: Apache-2.0
/* base/rate - how much one may take of what many share: a token bucket in eight bytes.
 *
 * Kept as the time at which the bucket is full again (the "virtual scheduling" form of
 * GCRA, ITU-T I.371): taking a token moves that time on by one interval, and a token is
 * there as long as it lies no further ahead than the burst. The zero value is a full
 * bucket. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

struct rate {
	int64_t full_at_ns;
};

/* Take one token of a bucket that gets @count tokens in @period_ms and holds @burst, or
 * one that will be there in at most @wait_ms. UINT32_MAX for @count: unlimited. 0: there
 * is never one. Return: how many ms until it is there, or -1: there is none. */
static inline int64_t rate_take_later(struct rate *r, uint32_t count, uint32_t period_ms,
				      uint32_t burst, int64_t wait_ms, int64_t now_ms)
{
	const int64_t ms = 1000000;
	int64_t now_ns = now_ms * ms;
	int64_t interval_ns, full_at_ns, wait_ns;

	if (count == UINT32_MAX)
		return 0;
	if (count == 0)
		return -1;
	interval_ns = (int64_t)period_ms * ms / count;
	full_at_ns = MAX(r->full_at_ns, now_ns) + interval_ns;
	wait_ns = full_at_ns - now_ns - (int64_t)MAX(burst, 1u) * interval_ns;
	if (wait_ns > wait_ms * ms)
		return -1;
	r->full_at_ns = full_at_ns;
	return wait_ns > 0 ? (wait_ns + ms - 1) / ms : 0;
}

/* Return: there was one. */
static inline bool rate_take(struct rate *r, uint32_t count, uint32_t period_ms,
			     uint32_t burst, int64_t now_ms)
{
	return rate_take_later(r, count, period_ms, burst, 0, now_ms) == 0;
}

/* Nothing has been taken that is not there again. */
static inline bool rate_is_full(const struct rate *r, int64_t now_ms)
{
	return r->full_at_ns <= now_ms * 1000000;
}

/* Of a table: how much one sandbox may take of one that all sandboxes of an engine share.
 *
 * A sandbox takes no more entries than it leaves free. So n sandboxes that take what they
 * can leave the (n + 1)th part to the next one, and one sandbox alone has half.
 *
 * May a sandbox that has @mine entries take one more of @all, of which @used are in use?
 */
static inline bool share_has_room(size_t mine, size_t used, size_t all)
{
	return used < all && mine < all - used;
}
