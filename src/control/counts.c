// SPDX-License-Identifier: Apache-2.0
/* How much was denied, counted in the store: for whoever breaks a circuit by it. */
#include <errno.h>

#include "control/control.h"

enum { COUNT_MS = 1000 }; /* a search that takes longer is ended */

/* @sandbox NULL: any. */
static int count(const struct control *s, const char *sandbox, int64_t since_ms,
		 struct sqlite_sum *ret, struct err *err)
{
	const struct sqlite_query q = { .action = EVENT_DENY,
					.sandbox = sandbox,
					.since_ms = since_ms };
	struct sqlite_reader *reader = NULL;
	int r = sqlite_reader_open(s->spec.state_dir, COUNT_MS, &reader, err);

	if (r == 0)
		r = sqlite_count(reader, &q, ret, err);
	sqlite_reader_close(reader);
	return r;
}

static int control_count(void *data, int64_t since_ms, uint64_t *ret_events,
			 uint64_t *ret_packets, struct err *err)
{
	struct sqlite_sum sum = { 0 };
	int r = count(data, NULL, since_ms, &sum, err);

	*ret_events = sum.rows;
	*ret_packets = sum.packets;
	return r;
}

static int control_sandbox_count(void *data, int64_t since_ms, uint64_t *ret_events,
				 uint64_t *ret_packets, struct err *err)
{
	const struct control_sandbox *w = data;
	struct sqlite_sum sum = { 0 };
	int r = count(w->side, w->spec.name, since_ms, &sum, err);

	*ret_events = sum.rows;
	*ret_packets = sum.packets;
	return r;
}

void control_count_ops(const struct control *s, struct api_ops *ret)
{
	ret->count_denies = s->store ? control_count : NULL;
}

void control_sandbox_count_ops(const struct control_sandbox *w, struct api_ops *ret)
{
	ret->count_denies = w->side->store ? control_sandbox_count : NULL;
}
