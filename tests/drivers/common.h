// SPDX-License-Identifier: Apache-2.0
/* What the drivers of the filter and of the engine have in common. */
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "filter/host.h"

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int compare_times(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* "uid:UID" or "cgroup:ID:LEVEL" */
static inline struct member member_of(const char *who)
{
	struct member m = { 0 };
	char *end;

	if (strncmp(who, "uid:", 4) == 0) {
		m.kind = MEMBER_UID;
		m.uid = (uint32_t)strtoul(who + 4, NULL, 10);
	} else if (strncmp(who, "cgroup:", 7) == 0) {
		m.kind = MEMBER_CGROUP;
		m.cgroup = strtoull(who + 7, &end, 10);
		m.level = (uint8_t)atoi(end + 1);
	}
	return m;
}
