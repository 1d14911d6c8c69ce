// SPDX-License-Identifier: Apache-2.0
/* What the store knows of some time: /activity, how much happened when; /top, what most
 * of it was about; /events/stored, event by event. Each answer reads a bounded number of
 * rows, whatever a sandbox has written there. */
#include <inttypes.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "event/json.h"

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
	reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid %s", name);
	return false;
}

static bool read_number(struct api_request *r, const char *name, uint32_t max,
			uint32_t otherwise, uint32_t *ret)
{
	char text[16];
	int found = request_query(r->query, name, text, sizeof(text));

	*ret = otherwise;
	if (found == 0 || (found > 0 && text_to_u32(text_of(text), max, ret) && *ret > 0))
		return true;
	reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid %s", name);
	return false;
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
	reply_error(r, MHD_HTTP_BAD_REQUEST,
		    "invalid since: it is before until, and not by more than 400 days");
	return false;
}

/* Return: false when it can't be had, and that was answered. */
static bool open_store(struct api_request *r, struct sqlite_reader **ret,
		       const char **ret_sandbox)
{
	struct err err = { 0 };

	*ret = NULL;
	if (!r->ops->store)
		reply_error(r, MHD_HTTP_NOT_FOUND, "events are not stored here");
	else if (r->ops->store(r->ops->data, ret, ret_sandbox, &err) == 0)
		return true;
	else
		reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", err.text);
	sqlite_reader_close(*ret);
	*ret = NULL;
	return false;
}

/* ---- /activity ---- */

static void put_series(FILE *out, const char *name, const struct sqlite_bucket *b,
		       size_t count, enum event_action action)
{
	fprintf(out, ",\"%s\":[", name);
	for (size_t i = 0; i < count; i++)
		fprintf(out, "%s%" PRIu64, i > 0 ? "," : "",
			action == EVENT_NONE ? b[i].bytes : b[i].packets[action]);
	fputc(']', out);
}

static void put_activity(FILE *out, int64_t first, int64_t minutes,
			 const struct sqlite_bucket *b, size_t count)
{
	static const enum event_action shown[] = { EVENT_ALLOW, EVENT_DENY, EVENT_LIMIT,
						   EVENT_FAIL };
	char since[JTEXT_TIME_SIZE];

	fprintf(out, "{\"since\":\"%s\",\"step\":%" PRId64,
		jtext_time(first * MINUTE_MS, true, since), minutes * 60);
	for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
		put_series(out, event_action_name(shown[i]), b, count, shown[i]);
	put_series(out, "bytes", b, count, EVENT_NONE);
	fputs("}\n", out);
}

/* The buckets are whole minutes, and begin at multiples of their length. */
void answer_activity(struct api_request *r)
{
	struct sqlite_bucket *buckets;
	struct sqlite_reader *store;
	struct err err = { 0 };
	const char *sandbox = NULL;
	struct reply_stream s;
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
		reply_error(r, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
		return;
	}
	if (open_store(r, &store, &sandbox)) {
		if (sqlite_activity(store, sandbox, first, minutes, count, buckets,
				    &err) < 0) {
			reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", err.text);
		} else if (reply_open(r, &s)) {
			put_activity(s.out, first, minutes, buckets, count);
			reply_close(r, &s, JSON_TYPE);
		}
		sqlite_reader_close(store);
	}
	free(buckets);
}

/* ---- /top ---- */

struct list {
	FILE *out;
	size_t count;
};

static bool put_top(void *data, const struct sqlite_top *t)
{
	struct list *l = data;
	char last[JTEXT_TIME_SIZE], key[EVENT_JSON_SIZE];
	struct jtext j;

	jtext_init(&j, key, sizeof(key));
	jtext_string(&j, text_of(t->key), KEY_MAX);
	fprintf(l->out,
		"%s{\"key\":%.*s,\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64
		",\"events\":%" PRIu64 ",\"last\":\"%s\"}",
		l->count++ > 0 ? "," : "", (int)j.used, key, t->packets, t->bytes,
		t->rows, jtext_time(t->last_ms, true, last));
	return true;
}

/* "of" and "by". */
static bool read_top(struct api_request *r, struct sqlite_query *q, enum sqlite_by *ret)
{
	char of[16] = "deny", by[16] = "destination";
	int of_found = request_query(r->query, "of", of, sizeof(of));
	int by_found = request_query(r->query, "by", by, sizeof(by));

	q->action = strcmp(of, "allow") == 0 ? EVENT_ALLOW : EVENT_DENY;
	if (of_found < 0 || (q->action == EVENT_DENY && strcmp(of, "deny") != 0)) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid of");
		return false;
	}
	if (by_found >= 0 && sqlite_by_parse(by, ret) &&
	    (q->action == EVENT_DENY ||
	     (*ret != SQLITE_BY_RULE && *ret != SQLITE_BY_PROCESS)))
		return true;
	reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid by");
	return false;
}

void answer_top(struct api_request *r)
{
	struct sqlite_query q = { .scan = TOP_SCAN };
	enum sqlite_by by = SQLITE_BY_NONE;
	struct sqlite_reader *store;
	struct err err = { 0 };
	struct reply_stream s;
	struct list list = { 0 };
	uint32_t max;
	int code;

	if (!read_span(r, &q.since_ms, &q.until_ms) || !read_top(r, &q, &by) ||
	    !read_number(r, "limit", TOP_MAX, TOP_DEFAULT, &max) ||
	    !open_store(r, &store, &q.sandbox))
		return;
	q.max = max;
	if (reply_open(r, &s)) {
		list.out = s.out;
		fputs("{\"top\":[", s.out);
		code = sqlite_top(store, by, &q, put_top, &list, &err);
		fprintf(s.out, "],\"complete\":%s}\n", code == 0 ? "true" : "false");
		if (code < 0) {
			fclose(s.out);
			free(s.body);
			reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", err.text);
		} else {
			reply_close(r, &s, JSON_TYPE);
		}
	}
	sqlite_reader_close(store);
}

/* ---- /events/stored ---- */

struct page {
	struct list list;
	char find[PARAMETER_SIZE];
	int64_t last_ms, last_id;
	size_t max, seen, bytes;
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
	       strcasestr(row->command, part) || strcasestr(row->sandbox, part);
}

static bool put_row(void *data, int64_t id, const struct event_row *row)
{
	struct page *p = data;
	char json[EVENT_JSON_SIZE];

	p->is_cut = p->list.count == p->max || p->seen == STORED_SCAN ||
		    p->bytes > STORED_BYTES_MAX;
	if (p->is_cut)
		return false;
	p->seen++;
	p->last_ms = row->event.ts_ms;
	p->last_id = id;
	if ((p->action != EVENT_NONE && row->event.action != p->action) ||
	    (p->find[0] && !is_like(row, p->find)))
		return true;
	p->bytes += event_json(row, json);
	fprintf(p->list.out, "%s{\"id\":%" PRId64 ",%s", p->list.count++ > 0 ? "," : "",
		id, json + 1);
	return true;
}

static bool parse_action(const char *text, enum event_action *ret)
{
	for (int i = EVENT_NONE; i < EVENT_ACTION_COUNT; i++) {
		*ret = (enum event_action)i;
		if (!text[0] ||
		    (i > EVENT_NONE && strcmp(event_action_name(*ret), text) == 0))
			return true;
	}
	return false;
}

/* "action", "find", "limit", and "before": where the page before has ended. */
static bool read_page(struct api_request *r, struct sqlite_query *q, struct page *p)
{
	char action[16] = "", before[48] = "";
	struct request_event_id at;
	uint32_t max;

	if (request_query(r->query, "action", action, sizeof(action)) < 0 ||
	    !parse_action(action, &q->action)) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid action");
		return false;
	}
	if (request_query(r->query, "find", p->find, sizeof(p->find)) < 0) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid find");
		return false;
	}
	if (!read_number(r, "limit", STORED_MAX, STORED_DEFAULT, &max))
		return false;
	p->max = max;
	if (request_query(r->query, "before", before, sizeof(before)) == 0)
		return true;
	if (!request_event_id(text_of(before), &at) || at.epoch >= INT64_MAX ||
	    at.number > INT64_MAX) {
		reply_error(r, MHD_HTTP_BAD_REQUEST, "invalid before");
		return false;
	}
	if ((int64_t)at.epoch < q->until_ms) {
		q->until_ms = (int64_t)at.epoch + 1;
		q->below_id = (int64_t)at.number;
	}
	return true;
}

void answer_stored(struct api_request *r)
{
	struct sqlite_query q = { .max = STORED_SCAN + 1 };
	struct page p = { 0 };
	struct sqlite_reader *store;
	struct err err = { 0 };
	struct reply_stream s;

	if (!read_span(r, &q.since_ms, &q.until_ms) || !read_page(r, &q, &p) ||
	    !open_store(r, &store, &q.sandbox))
		return;
	/* One sandbox has no index of an action: what is looked at is counted here. */
	if (q.sandbox) {
		p.action = q.action;
		q.action = EVENT_NONE;
	}
	if (reply_open(r, &s)) {
		p.list.out = s.out;
		fputs("{\"events\":[", s.out);
		if (sqlite_find(store, &q, put_row, &p, &err) < 0) {
			fclose(s.out);
			free(s.body);
			reply_error(r, MHD_HTTP_SERVICE_UNAVAILABLE, "%s", err.text);
		} else {
			fputs("],\"next\":", s.out);
			if (p.is_cut)
				fprintf(s.out, "\"%" PRIx64 "-%" PRId64 "\"}\n",
					(uint64_t)p.last_ms, p.last_id);
			else
				fputs("null}\n", s.out);
			reply_close(r, &s, JSON_TYPE);
		}
	}
	sqlite_reader_close(store);
}
