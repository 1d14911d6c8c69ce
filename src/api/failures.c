// SPDX-License-Identifier: Apache-2.0
#include "api/failures.h"

#include <stddef.h>

#include "api/conns.h"

static bool is_past(int64_t since_ms, int64_t now_ms)
{
	return now_ms - since_ms >= (int64_t)FAILURES_SEC * 1000;
}

/* Its place, or the one that it would get: a free one, or the oldest. */
static size_t find(const struct failures *f, const struct prefix *network, bool *ret_is)
{
	size_t best = 0;

	for (size_t i = 0; i < FAILURES_NETWORKS; i++) {
		*ret_is = f->places[i].count > 0 &&
			  conns_same_network(&f->places[i].network, network);
		if (*ret_is)
			return i;
		if (f->places[best].count > 0 &&
		    (f->places[i].count == 0 ||
		     f->places[i].since_ms < f->places[best].since_ms))
			best = i;
	}
	return best;
}

void failures_add(struct failures *f, const struct prefix *network, int64_t now_ms)
{
	bool is;
	size_t i = find(f, network, &is);

	if (!is || is_past(f->places[i].since_ms, now_ms)) {
		f->places[i].network = *network;
		f->places[i].count = 0;
		f->places[i].since_ms = now_ms;
	}
	f->places[i].count++;
}

uint32_t failures_wait(const struct failures *f, const struct prefix *network,
		       int64_t now_ms)
{
	bool is;
	size_t i = find(f, network, &is);
	int64_t gone_ms;

	if (!is || f->places[i].count < FAILURES_MAX ||
	    is_past(f->places[i].since_ms, now_ms))
		return 0;
	gone_ms = now_ms - f->places[i].since_ms;
	return (uint32_t)(FAILURES_SEC - gone_ms / 1000);
}
