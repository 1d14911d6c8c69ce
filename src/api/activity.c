// SPDX-License-Identifier: Apache-2.0
/* What the store knows of some time: /activity, how much happened when; /top, what most
 * of it was about; /events/stored, event by event; /denies/count, how much was refused,
 * of memory where nothing is stored. Each answer reads a bounded number of rows, whatever
 * a sandbox has written there. */
#include <inttypes.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"

#define MINUTE_MS INT64_C(60000)
#define DAY_MS	  INT64_C(86400000)
#define DAYS_MAX  INT64_C(400)

enum {
	PARAMETER_SIZE = 280,
	BUCKETS_DEFAULT = 60,
	TOP_DEFAULT = 10,
	TOP_MAX = 1000,
	KEY_MAX = 1024,	  /* bytes that are shown */
	TOP_SCAN = 50000, /* rows that are added up */
	STORED_DEFAULT = 100,
	STORED_MAX = 500,
	STORED_SCAN = 20000, /* rows that are looked at for one page */
	STORED_BYTES_MAX = 2 << 20,
	COUNT_SCAN = 50000, /* rows that are looked at, however many a sandbox has made */
};

/* ---- parameters ---- */

/* Return: false when the parameter is wrong, and that was answered. */
static bool read_time(struct api_request *r, const char *name, int64_t otherwise_ms,
		      int64_t *ret_ms)
{
	const int64_t now_ms = clock_wall_ms();
	char text[PARAMETER_SIZE];
	int found = request_query(r->query, name, text, sizeof(text));

	*ret_ms = otherwise_ms;
	if (found == 0 || (found > 0 && request_time(text_of(text), now_ms, ret_ms)))
		return true;
	return reply_error(r, HTTP_BAD_REQUEST, "invalid %s", name);
}

static bool read_number(struct api_request *r, const char *name, uint32_t max,
			uint32_t otherwise, uint32_t *ret)
{
	char text[16];
	int found = request_query(r->query, name, text, sizeof(text));

	*ret = otherwise;
	if (found == 0 || (found > 0 && text_to_u32(text_of(text), max, ret) && *ret > 0))
		return true;
	return reply_error(r, HTTP_BAD_REQUEST, "invalid %s", name);
}

/* From "since" to "until": the last day up to now, unless they say otherwise. */
static bool read_span(struct api_request *r, int64_t *ret_since_ms, int64_t *ret_until_ms)
{
	const int64_t now_ms = clock_wall_ms();

	if (!read_time(r, "until", now_ms, ret_until_ms) ||
	    !read_time(r, "since", *ret_until_ms - DAY_MS, ret_since_ms))
		return false;
	if (*ret_since_ms < *ret_until_ms &&
	    *ret_until_ms - *ret_since_ms <= DAYS_MAX * DAY_MS)
		return true;
	return reply_error(
		r, HTTP_BAD_REQUEST,
		"invalid since: it is before until, and not by more than 400 days");
}

/* Return: false when it can't be had, and that was answered. */
static bool open_store(struct api_request *r, struct sqlite_reader **ret,
		       const char **ret_sandbox)
{
	struct err err = { 0 };

	if (!r->ops->store)
		return reply_error(r, HTTP_NOT_FOUND, "events are not stored here");
	return r->ops->store(r->ops->data, ret, ret_sandbox, &err) == 0 ||
	       reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
}

/* ---- /activity ---- */

static void put_series(struct jtext *j, const char *name, const struct sqlite_bucket *b,
		       size_t count, enum event_action action)
{
	jtext_open(j, name, '[');
	for (size_t i = 0; i < count; i++)
		jtext_count(j, NULL,
			    (action == EVENT_NONE ? b[i].bytes : b[i].packets[action]));
	jtext_close(j, ']');
}

/* The buckets are whole minutes, and begin at multiples of their length. */
void answer_activity(struct api_request *r)
{
	CLEAN(mem) struct sqlite_bucket *buckets = NULL;
	CLEAN(reader) struct sqlite_reader *store = NULL;
	static const enum event_action shown[] = { EVENT_ALLOW, EVENT_DENY, EVENT_LIMIT,
						   EVENT_FAIL };
	struct jtext j = { .grows = true };
	struct err err = { 0 };
	const char *sandbox = NULL;
	int64_t since_ms, until_ms, minutes, first;
	uint32_t wanted;
	size_t count;

	if (!read_span(r, &since_ms, &until_ms) ||
	    !read_number(r, "buckets", SQLITE_BUCKETS_MAX - 1, BUCKETS_DEFAULT, &wanted))
		return;
	minutes = (until_ms - since_ms + wanted * MINUTE_MS - 1) / (wanted * MINUTE_MS);
	first = MAX(since_ms, INT64_C(0)) / MINUTE_MS / minutes * minutes;
	count = (size_t)((MAX(until_ms, INT64_C(0)) - 1) / MINUTE_MS / minutes -
			 first / minutes) +
		1;
	count = MIN(count, (size_t)SQLITE_BUCKETS_MAX);
	buckets = calloc(count, sizeof(*buckets));
	if (!buckets) {
		reply_error(r, HTTP_FAILED, "out of memory");
		return;
	}
	if (!open_store(r, &store, &sandbox))
		return; /* it has answered */
	if (sqlite_activity(store, sandbox, first, minutes, count, buckets, &err) < 0) {
		reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_when(&j, "since", first * MINUTE_MS);
	jtext_number(&j, "step", true, minutes * 60);
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		put_series(&j, event_action_name(shown[i]), buckets, count, shown[i]);
	put_series(&j, "bytes", buckets, count, EVENT_NONE);
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}

/* ---- /top ---- */

static bool put_top(void *data, const struct sqlite_top *t)
{
	struct jtext *j = data;

	jtext_open(j, NULL, '{');
	jtext_key(j, "key");
	jtext_string(j, text_of(t->key), KEY_MAX);
	jtext_count(j, "packets", t->packets);
	jtext_count(j, "bytes", t->bytes);
	jtext_count(j, "events", t->rows);
	jtext_when(j, "last", t->last_ms);
	jtext_close(j, '}');
	return true;
}

void answer_top(struct api_request *r)
{
	struct sqlite_query q = { .scan = TOP_SCAN };
	enum sqlite_by by = SQLITE_BY_NONE;
	CLEAN(reader) struct sqlite_reader *store = NULL;
	CLEAN(jtext) struct jtext j = { .grows = true };
	char of[16] = "deny", by_text[16] = "destination";
	struct err err = { 0 };
	int of_found, by_found, code;
	uint32_t max;

	if (!read_span(r, &q.since_ms, &q.until_ms))
		return;
	of_found = request_query(r->query, "of", of, sizeof(of));
	by_found = request_query(r->query, "by", by_text, sizeof(by_text));
	q.action = strcmp(of, "allow") == 0 ? EVENT_ALLOW : EVENT_DENY;
	if (of_found < 0 || (q.action == EVENT_DENY && strcmp(of, "deny") != 0)) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid of");
		return;
	}
	if (by_found < 0 || !sqlite_by_parse(by_text, &by) ||
	    (q.action != EVENT_DENY &&
	     (by == SQLITE_BY_RULE || by == SQLITE_BY_PROCESS))) {
		reply_error(r, HTTP_BAD_REQUEST, "invalid by");
		return;
	}
	if (!read_number(r, "limit", TOP_MAX, TOP_DEFAULT, &max) ||
	    !open_store(r, &store, &q.sandbox))
		return;
	q.max = max;
	jtext_open(&j, NULL, '{');
	jtext_open(&j, "top", '[');
	code = sqlite_top(store, by, &q, put_top, &j, &err);
	jtext_close(&j, ']');
	jtext_bool(&j, "complete", code == 0);
	jtext_close(&j, '}');
	if (code < 0)
		reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
	else
		reply_json(r, HTTP_OK, &j);
}

/* ---- /events/stored ---- */

struct page {
	struct jtext json;
	char find[PARAMETER_SIZE];
	int64_t last_ms, last_id;
	size_t max, count, seen;
	enum event_action action; /* EVENT_NONE: any */
	bool is_cut;		  /* there may be more */
};

static bool is_like(const struct event_row *row, const char *part)
{
	char remote[ENDPOINT_TEXT_SIZE] = "";
	const struct event *e = &row->event;
	const struct endpoint at = { e->remote, e->port };

	if (e->remote.family != ADDR_NONE)
		endpoint_format(&at, remote);
	return strcasestr(e->name, part) || strcasestr(remote, part) ||
	       strcasestr(row->rule, part) || strcasestr(e->reason, part) ||
	       strcasestr(e->command, part) || strcasestr(row->sandbox, part);
}

static bool put_row(void *data, int64_t id, const struct event_row *row)
{
	struct page *p = data;

	p->is_cut = p->count == p->max || p->seen == STORED_SCAN ||
		    p->json.used > STORED_BYTES_MAX;
	if (p->is_cut)
		return false;
	p->seen++;
	p->last_ms = row->event.ts_ms;
	p->last_id = id;
	if ((p->action != EVENT_NONE && row->event.action != p->action) ||
	    (p->find[0] && !is_like(row, p->find)))
		return true;
	p->count++;
	jtext_open(&p->json, NULL, '{');
	jtext_number(&p->json, "id", true, id);
	event_put(&p->json, row);
	jtext_close(&p->json, '}');
	return true;
}

/* "action", "find", "limit", and "before": where the page before has ended. */
static bool read_page(struct api_request *r, struct sqlite_query *q, struct page *p)
{
	char action[16] = "", before[48] = "";
	struct request_event_id at;
	uint32_t max;

	if (request_query(r->query, "action", action, sizeof(action)) < 0)
		return reply_error(r, HTTP_BAD_REQUEST, "invalid action");
	q->action = event_action_find(action);
	if (action[0] && q->action == EVENT_NONE)
		return reply_error(r, HTTP_BAD_REQUEST, "invalid action");
	if (request_query(r->query, "find", p->find, sizeof(p->find)) < 0)
		return reply_error(r, HTTP_BAD_REQUEST, "invalid find");
	if (!read_number(r, "limit", STORED_MAX, STORED_DEFAULT, &max))
		return false;
	p->max = max;
	if (request_query(r->query, "before", before, sizeof(before)) == 0)
		return true;
	if (!request_event_id(text_of(before), &at) || at.epoch >= INT64_MAX ||
	    at.number > INT64_MAX)
		return reply_error(r, HTTP_BAD_REQUEST, "invalid before");
	if ((int64_t)at.epoch < q->until_ms) {
		q->until_ms = (int64_t)at.epoch + 1;
		q->below_id = (int64_t)at.number;
	}
	return true;
}

void answer_stored(struct api_request *r)
{
	struct sqlite_query q = { .max = STORED_SCAN + 1 };
	struct page p = { .json = { .grows = true } };
	CLEAN(reader) struct sqlite_reader *store = NULL;
	struct err err = { 0 };
	char next[48] = "";
	int code;

	if (!read_span(r, &q.since_ms, &q.until_ms) || !read_page(r, &q, &p) ||
	    !open_store(r, &store, &q.sandbox))
		return;
	/* One sandbox has no index of an action: what is looked at is counted here. */
	if (q.sandbox) {
		p.action = q.action;
		q.action = EVENT_NONE;
	}
	jtext_open(&p.json, NULL, '{');
	jtext_open(&p.json, "events", '[');
	code = sqlite_find(store, &q, put_row, &p, &err);
	jtext_close(&p.json, ']');
	if (p.is_cut)
		snprintf(next, sizeof(next), "%" PRIx64 "-%" PRId64, (uint64_t)p.last_ms,
			 p.last_id);
	jtext_text(&p.json, "next", next, sizeof(next));
	jtext_close(&p.json, '}');
	if (code < 0)
		reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
	else
		reply_json(r, HTTP_OK, &p.json);
	clean_jtext(&p.json);
}

/* ---- /denies/count ---- */

/* Of the ring: what is in it, and of a folded event all that began since then. */
static void count_in_memory(const struct api_request *r, int64_t since_ms,
			    struct sqlite_sum *ret)
{
	const struct event_ring *ring = r->ops->events(r->ops->data);

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (e->action != EVENT_DENY || e->ts_ms < since_ms ||
		    !request_is_about(r, e))
			continue;
		ret->rows++;
		ret->packets += e->packets;
	}
}

void answer_denies_count(struct api_request *r)
{
	const bool in_memory = !r->ops->store && request_has_policy(r);
	CLEAN(reader) struct sqlite_reader *store = NULL;
	const char *sandbox = NULL;
	struct sqlite_sum sum = { 0 };
	struct err err = { 0 };
	struct jtext j = { .grows = true };
	int64_t since_ms;
	int cut = 0;

	if (!read_time(r, "since", 0, &since_ms) ||
	    (!in_memory && !open_store(r, &store, &sandbox)))
		return;
	if (in_memory)
		count_in_memory(r, since_ms, &sum);
	else
		cut = sqlite_count_denied(store, sandbox, since_ms, COUNT_SCAN, &sum,
					  &err);
	if (cut < 0) {
		reply_error(r, HTTP_UNAVAILABLE, "%s", err.text);
		return;
	}
	jtext_open(&j, NULL, '{');
	jtext_count(&j, "events", sum.rows);
	jtext_count(&j, "packets", sum.packets);
	jtext_member(&j, "from", in_memory ? "memory" : "store");
	jtext_bool(&j, "cut", cut > 0);
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}
