// SPDX-License-Identifier: Apache-2.0
/* engine/account - what engine_account.c and engine_account_host.c share; see
 * engine_core.h for the others. */
#pragma once

#include "engine/core.h"
#include "filter/counts.h"

/* What one look brought. */
struct account_counts {
	struct filter_count *items; /* owned */
	size_t count, capacity;
};
/* A filter_counts_fn; the data is a struct account_counts. What finds no memory is left
 * out. */
void engine_account_on_count(void *data, const struct filter_count *c);
/* Packets that left by the link, unless they stayed inside. */
void engine_account_passed(struct engine_sandbox *g, const struct filter_count *c,
			   int64_t now_ms);

/* -- engine_account_host.c ---------------------------------------------------------- */

/* One look for all sandboxes of the host, if it is not too soon. */
void engine_account_host(struct engine_host *h, bool refused, bool passed,
			 int64_t now_ms);
/* What was refused to @g so far doesn't count. */
void engine_account_host_begin(struct engine_host *h, struct engine_sandbox *g);
/* One at once at what @g was refused and at what has passed, and the window of @g ends.
 */
void engine_account_host_now(struct engine_host *h, struct engine_sandbox *g,
			     int64_t now_ms);
