// SPDX-License-Identifier: Apache-2.0
/* /denies: what was refused, from the ring in memory, the newest first. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"

enum {
	DENIES_DEFAULT = 100,
	DENIES_BYTES_MAX = 1 << 20,
	PARAMETER_SIZE = 280,
};

void answer_denies(struct api_request *r)
{
	const struct api_ops *ops = r->ops;
	const struct event_ring *ring = ops->events(ops->data);
	char text[PARAMETER_SIZE], name[PARAMETER_SIZE] = "";
	struct jtext j = { .grows = true };
	uint32_t limit = DENIES_DEFAULT;
	int64_t since_ms = 0; /* of the first occurrence */
	const char *wrong = NULL;
	struct event_row row;
	size_t written = 0;
	bool more = false;
	int found = request_query(r->query, "since", text, sizeof(text));

	if (found < 0 ||
	    (found > 0 && !request_time(text_of(text), clock_wall_ms(), &since_ms)))
		wrong = "since";
	else if (request_query(r->query, "name", name, sizeof(name)) < 0)
		wrong = "name";
	found = request_query(r->query, "limit", text, sizeof(text));
	if (!wrong &&
	    (found < 0 ||
	     (found > 0 &&
	      (!text_to_u32(text_of(text), API_DENIES_MAX, &limit) || limit == 0))))
		wrong = "limit";
	if (wrong) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid %s", wrong);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_open(&j, "denies", '[');
	for (size_t i = event_ring_count(ring); i-- > 0;) {
		const struct event *e = event_ring_at(ring, i);

		if (e->action != EVENT_DENY || e->ts_ms < since_ms ||
		    !request_is_about(r, e) ||
		    (name[0] && !request_name_matches(name, e->name)))
			continue;
		more = written++ == limit || j.used > DENIES_BYTES_MAX;
		if (more)
			break;
		ops->row(ops->data, e, &row);
		jtext_open(&j, NULL, '{');
		event_put(&j, &row);
		jtext_bool(&j, "allowable", e->allowable);
		jtext_close(&j, '}');
	}
	jtext_close(&j, ']');
	jtext_bool(&j, "more", more);
	jtext_count(&j, "forgotten", event_ring_dropped(ring));
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}
