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

struct denies_filter {
	int64_t since_ms; /* of the first occurrence */
	char name[PARAMETER_SIZE];
	uint32_t limit;
};

/* Return: NULL, or which parameter is wrong. */
static const char *read_filter(const struct api_request *r, struct denies_filter *f)
{
	char text[PARAMETER_SIZE];
	int found = request_query(r->query, "since", text, sizeof(text));

	*f = (struct denies_filter){ .limit = DENIES_DEFAULT };
	if (found < 0 ||
	    (found > 0 && !request_time(text_of(text), clock_wall_ms(), &f->since_ms)))
		return "since";
	if (request_query(r->query, "name", f->name, sizeof(f->name)) < 0)
		return "name";
	found = request_query(r->query, "limit", text, sizeof(text));
	if (found < 0 ||
	    (found > 0 &&
	     (!text_to_u32(text_of(text), API_DENIES_MAX, &f->limit) || f->limit == 0)))
		return "limit";
	return NULL;
}

void answer_denies(struct api_request *r)
{
	const struct api_ops *ops = r->ops;
	const struct event_ring *ring = ops->events(ops->data);
	struct denies_filter f;
	const char *wrong = read_filter(r, &f);
	struct jtext j = { .grows = true };
	struct event_row row;
	size_t written = 0;
	bool more = false;

	if (wrong) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid %s", wrong);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_open(&j, "denies", '[');
	for (size_t i = event_ring_count(ring); i-- > 0;) {
		const struct event *e = event_ring_at(ring, i);

		if (e->action != EVENT_DENY || e->ts_ms < f.since_ms ||
		    !request_is_about(r, e) ||
		    (f.name[0] && !request_name_matches(f.name, e->name)))
			continue;
		more = written++ == f.limit || j.used > DENIES_BYTES_MAX;
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
