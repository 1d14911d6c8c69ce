// SPDX-License-Identifier: Apache-2.0
/* event/traffic - bytes by destination, for as many destinations as metrics can bear.
 *
 * HOW IT WORKS
 * A sandbox chooses names below a wildcard, and every name in metrics is a series that
 * whoever collects them keeps. So TRAFFIC_SHOWN destinations are shown at a time, and a
 * new one takes the place of the one with the fewest bytes only where it has moved twice
 * as many: to bring one more name into the metrics costs the sandbox as many bytes as all
 * of that place together, and with N bytes there have never been more than TRAFFIC_SHOWN
 * times log2(N) names. The bytes of those that aren't shown are one sum. Each byte is
 * counted once, where its destination stood at that moment: counters only grow, and one
 * that comes again begins at zero. */
#pragma once

#include "event/event.h"

enum {
	TRAFFIC_SHOWN = 32,
	TRAFFIC_WAITING =
		32, /* whose bytes are counted, to see whether they belong there */
};

struct traffic_row {
	const char *destination; /* a name, or the address of what has none */
	uint64_t sent, received; /* since it is shown */
};

struct traffic;
/* NULL: no memory. */
struct traffic *traffic_new(void);
void traffic_free(struct traffic *t);
/* What @e says has passed. Without the memory it counts as one of the others. */
void traffic_add(struct traffic *t, const struct event *e);
/* Row @i of those that are shown, in no order; false: there are no more. */
bool traffic_row(const struct traffic *t, size_t i, struct traffic_row *ret);
/* Bytes of those that weren't shown at that moment; no destination. */
struct traffic_row traffic_others(const struct traffic *t);
