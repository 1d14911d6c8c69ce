// SPDX-License-Identifier: Apache-2.0
/* filter/counts - what the kernel has counted for each destination since it was asked
 * last: packets that were refused, and those that left by the link.
 *
 * The rules of report and of passed put each destination into a set, with a counter. A
 * kernel that can (6.5 and later) gives the elements and sets their counters to zero in
 * one go; of an older one they are read and then deleted, and packets that pass in
 * between are not counted. */
#pragma once

#include "filter/filter.h"

struct filter_count {
	struct addr addr;
	uint16_t port;
	uint8_t protocol;
	uint32_t member;	 /* of the host's table: the sandbox; else 0 */
	uint64_t packets, bytes; /* since the last time; may be 0 */
};
typedef void filter_counts_fn(void *data, const struct filter_count *count);

/* Both families. @refused: what was refused; else what has passed. Nothing where the
 * ruleset has no such set. Return: 0 or -errno. */
int filter_counts_read(struct filter_conn *c, bool refused, filter_counts_fn *fn,
		       void *data) MUST_CHECK;
/* The same of one destination of the host's table, @key's, and no other; nothing when it
 * is not in the set. -EOPNOTSUPP: an older kernel, where it can't be done. */
int filter_counts_read_one(struct filter_conn *c, bool refused,
			   const struct filter_count *key, filter_counts_fn *fn,
			   void *data) MUST_CHECK;
/* What was refused to @key's destination is forgotten. */
int filter_counts_forget(struct filter_conn *c,
			 const struct filter_count *key) MUST_CHECK;
/* Packets that were refused since the ruleset that stands was installed. */
int filter_refused_total(struct filter_conn *c, uint64_t *ret) MUST_CHECK;
