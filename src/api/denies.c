// SPDX-License-Identifier: Apache-2.0
/* /denies: what was refused, from the ring in memory, the newest first. /denies/count:
 * how much, from the store where there is one. */
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"

enum {
	DENIES_DEFAULT = 100,
	DENIES_BYTES_MAX = 1 << 20,
	PARAMETER_SIZE = 280,
	COUNT_SCAN = 50000, /* rows that are looked at, however many a sandbox has made */
};

struct denies_filter {
	int64_t since_ms; /* of the first occurrence */
	char name[PARAMETER_SIZE];
	uint32_t limit;
	const struct api_request *request; /* of one sandbox alone, perhaps */
};

/* Return: NULL, or which parameter is wrong. */
static const char *read_filter(const struct api_request *r, struct denies_filter *f)
{
	char text[PARAMETER_SIZE];
	int found = request_query(r->query, "since", text, sizeof(text));

	*f = (struct denies_filter){ .limit = DENIES_DEFAULT, .request = r };
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

static bool is_wanted_denial(const struct denies_filter *f, const struct event *e)
{
	const struct api_request *r = f->request;

	return e->action == EVENT_DENY && e->ts_ms >= f->since_ms &&
	       (!r->is_about_one || e->sandbox == r->sandbox) &&
	       (!f->name[0] || request_name_matches(f->name, e->name));
}

/* The newest first. Return: whether there are more than were asked for. */
static bool write_denies(const struct api_ops *ops, const struct denies_filter *f,
			 struct jtext *j)
{
	const struct event_ring *ring = ops->events(ops->data);
	size_t written = 0;
	struct event_row row;

	for (size_t i = event_ring_count(ring); i-- > 0;) {
		const struct event *e = event_ring_at(ring, i);

		if (!is_wanted_denial(f, e))
			continue;
		if (written++ == f->limit || j->used > DENIES_BYTES_MAX)
			return true;
		ops->row(ops->data, e, &row);
		jtext_open(j, NULL, '{');
		event_put(j, &row);
		jtext_bool(j, "allowable", e->allowable);
		jtext_close(j, '}');
	}
	return false;
}

void answer_denies(struct api_request *r)
{
	const struct api_ops *ops = r->ops;
	struct denies_filter filter;
	struct jtext j = { .grows = true };
	const char *wrong = read_filter(r, &filter);
	bool more;

	if (wrong) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid %s", wrong);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_open(&j, "denies", '[');
	more = write_denies(ops, &filter, &j);
	jtext_close(&j, ']');
	jtext_bool(&j, "more", more);
	jtext_count(&j, "forgotten", event_ring_dropped(ops->events(ops->data)));
	jtext_close(&j, '}');
	reply_json(r, MHD_HTTP_OK, &j);
}

/* ---- /denies/count ---- */

/* Of the ring: what is in it, and of a folded event all that began since then. */
static void count_in_memory(const struct api_request *r, int64_t since_ms,
			    uint64_t *ret_events, uint64_t *ret_packets)
{
	const struct event_ring *ring = r->ops->events(r->ops->data);

	*ret_events = *ret_packets = 0;
	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (e->action != EVENT_DENY || e->ts_ms < since_ms ||
		    (r->is_about_one && e->sandbox != r->sandbox))
			continue;
		++*ret_events;
		*ret_packets += e->packets;
	}
}

/* Return: as sqlite_count_denied(). */
static int count_in_store(const struct api_request *r, int64_t since_ms,
			  uint64_t *ret_events, uint64_t *ret_packets, struct err *err)
{
	const char *sandbox = NULL;
	struct sqlite_reader *store = NULL;
	struct sqlite_sum sum = { 0 };
	int code = r->ops->store(r->ops->data, &store, &sandbox, err);

	if (code == 0)
		code = sqlite_count_denied(store, sandbox, since_ms, COUNT_SCAN, &sum,
					   err);
	sqlite_reader_close(store);
	*ret_events = sum.rows;
	*ret_packets = sum.packets;
	return code;
}

void answer_denies_count(struct api_request *r)
{
	uint64_t events = 0, packets = 0;
	const char *from = "store";
	char text[PARAMETER_SIZE];
	int64_t since_ms = 0;
	struct err err = { 0 };
	struct jtext j = { .grows = true };
	int cut = 0, found = request_query(r->query, "since", text, sizeof(text));

	if (found < 0 ||
	    (found > 0 && !request_time(text_of(text), clock_wall_ms(), &since_ms))) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid since");
		return;
	}
	if (!r->ops->store && r->api->config.sandboxes.find && !r->is_about_one) {
		reply_error(r, MHD_HTTP_NOT_FOUND, "events are not stored here");
		return;
	}
	if (!r->ops->store) {
		count_in_memory(r, since_ms, &events, &packets);
		from = "memory";
	} else if ((cut = count_in_store(r, since_ms, &events, &packets, &err)) < 0) {
		reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", err.text);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_count(&j, "events", events);
	jtext_count(&j, "packets", packets);
	jtext_member(&j, "from", from);
	jtext_bool(&j, "cut", cut > 0);
	jtext_close(&j, '}');
	reply_json(r, MHD_HTTP_OK, &j);
}
