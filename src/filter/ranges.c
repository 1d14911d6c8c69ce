// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_internal.h"

#include <stdlib.h>
#include <string.h>

bool filter_key_next(const uint8_t *key, size_t size, uint8_t *ret)
{
	uint8_t next[16];

	memcpy(next, key, size);
	for (size_t i = size; i-- > 0;) {
		if (++next[i] != 0) {
			memcpy(ret, next, size);
			return true;
		}
	}
	return false;
}

/* Unused bytes of a range are zero, so the whole can be compared. */
static int compare_ranges(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct filter_range));
}

/* @b starts in @a or right behind it; @a starts first. */
static bool joins(const struct filter_range *a, const struct filter_range *b, size_t size)
{
	uint8_t next[16];

	if (!filter_key_next(a->to, size, next))
		return true;
	return memcmp(b->from, next, size) <= 0;
}

size_t filter_ranges_merge(struct filter_range *ranges, size_t count, size_t key_size)
{
	size_t kept = 0;

	if (count == 0)
		return 0;
	qsort(ranges, count, sizeof(*ranges), compare_ranges);
	for (size_t i = 1; i < count; i++) {
		struct filter_range *last = &ranges[kept];

		if (!joins(last, &ranges[i], key_size))
			ranges[++kept] = ranges[i];
		else if (memcmp(ranges[i].to, last->to, key_size) > 0)
			memcpy(last->to, ranges[i].to, key_size);
	}
	return kept + 1;
}
