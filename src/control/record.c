// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"

void control_tame(char *text, size_t size)
{
	text[size - 1] = '\0';
	for (; *text; text++)
		if (*text < 0x20 || *text > 0x7e)
			*text = '?';
}

enum { ERRNO_MAX = 4096 }; /* the kernel's MAX_ERRNO, and one */

void control_row(void *data, const struct event *e, struct event_row *ret)
{
	const struct control *s = data;
	const struct control_sandbox *w = s->many ? control_sandbox_find(s, e->sandbox)
						  : NULL;

	if (w)
		event_row_fill(ret, e, w->spec.name, &w->plan);
	/* A launch that failed: there is no such sandbox, only its name. */
	else if (s->many && e->action == EVENT_PANIC)
		event_row_fill(ret, e, e->name, NULL);
	else if (s->many && e->sandbox != 0 && e->sandbox == s->refused.id)
		event_row_fill(ret, e, s->refused.name, NULL);
	else
		event_row_fill(ret, e, s->spec.sandbox_id,
			       s->plan_bytes ? &s->plan : NULL);
}

static struct event_ring *ring_of(struct control *s, uint32_t sandbox)
{
	struct control_sandbox *w = s->many ? control_sandbox_find(s, sandbox) : NULL;
	struct event_ring *ring = w ? control_sandbox_ring(w) : NULL;

	return ring ? ring : s->ring;
}

void control_on_row(struct control *s, const struct event_row *row)
{
	api_on_event(s->api, row);
	control_secure_event(s, row);
	if (s->store)
		sqlite_writer_add(s->store, row);
	if (s->jsonl)
		jsonl_writer_add(s->jsonl, row);
}

void control_on_process(struct control *s, const struct event *e)
{
	event_ring_name(ring_of(s, e->sandbox), e);
}

void control_on_event(struct control *s, const struct event *given)
{
	struct event e = *given;
	struct event_row row;

	control_tame(e.name, sizeof(e.name));
	control_tame(e.reason, sizeof(e.reason));
	/* That is not the engine's to say. */
	e.pid = 0;
	memset(e.command, 0, sizeof(e.command));
	if (e.action == EVENT_LIMIT && e.limit == EVENT_LIMIT_DENIES &&
	    !control_on_denies(s, &e))
		return;
	/* What is asked of the ring is denials. */
	if (e.action != EVENT_ALLOW)
		event_ring_add(ring_of(s, e.sandbox), &e);
	control_row(s, &e, &row);
	if (!control_socket_owner_ask(s, &row))
		control_on_row(s, &row);
	if (e.action == EVENT_DENY)
		control_webhook_denied(s, &e);
	if (e.action == EVENT_DENY && e.allowable)
		control_tell_soon(s);
	if (e.action == EVENT_DENY || e.action == EVENT_LIMIT)
		loglines_denied(s->log, e.ts_ms, &row);
	else if (e.action == EVENT_PANIC)
		loglines_say(s->log, e.ts_ms, LOGLINES_ERROR, "%s%s%s", row.sandbox,
			     row.sandbox[0] ? ": " : "", e.reason);
	/* A sidecar's one neither comes nor goes. */
	else if (e.action == EVENT_CHANGE && s->many)
		loglines_say(s->log, e.ts_ms, LOGLINES_INFO, "%s: %s", row.sandbox,
			     e.reason);
}

static const struct endpoint *upstream_of(const struct control *s,
					  const struct upstream_trouble *t)
{
	return t->server < s->spec.upstream_count ? &s->spec.upstreams[t->server] : NULL;
}

static const char *rcode_name(uint8_t rcode)
{
	static const char *const names[] = { "NOERROR",	 "FORMERR", "SERVFAIL",
					     "NXDOMAIN", "NOTIMP",  "REFUSED" };

	return rcode < ARRAY_SIZE(names) ? names[rcode] : "an error";
}

/* The engine will speak of it by that number. */
static void learn_upstream(struct control *s, const struct upstream_trouble *t)
{
	char text[ENDPOINT_TEXT_SIZE];
	struct endpoint *place;

	if (s->upstreams_given == 0)
		s->upstreams_given = s->spec.upstream_count;
	if (t->server < s->upstreams_given || t->server > s->spec.upstream_count ||
	    t->server >= ARRAY_SIZE(s->spec.upstreams))
		return;
	place = &s->spec.upstreams[t->server];
	if (t->server == s->spec.upstream_count)
		s->spec.upstream_count++;
	else if (addr_equal(&place->addr, &t->at.addr) && place->port == t->at.port)
		return;
	*place = t->at;
	s->dns_inner = false;
	loglines_say(s->log, clock_wall_ms(), LOGLINES_INFO,
		     "[dns] 127.0.0.11 asks on from inside this sandbox: what it doesn't "
		     "know is asked of %s",
		     endpoint_format(&t->at, text));
}

static void on_inner(struct control *s)
{
	if (!s->dns_inner)
		loglines_say(
			s->log, clock_wall_ms(), LOGLINES_ERROR,
			"[dns] 127.0.0.11 asks on from inside this sandbox, and whom is "
			"not known: name the servers by OPENSANDBOX_EGRESS_DNS_UPSTREAM "
			"(--dns-upstream)");
	s->dns_inner = true;
}

void control_on_trouble(struct control *s, const struct upstream_trouble *t)
{
	const struct endpoint *upstream = upstream_of(s, t);
	const bool is_errno = t->error < 0 && t->error > -ERRNO_MAX;
	const char *error = !is_errno		     ? "an error"
			    : t->error == -ETIMEDOUT ? "timeout"
						     : strerror(-t->error);
	int64_t now_ms = clock_wall_ms();

	if (t->kind == UPSTREAM_BEHIND)
		learn_upstream(s, t);
	if (!upstream)
		return;
	if (t->kind == UPSTREAM_RCODE)
		loglines_upstream(s->log, now_ms, LOGLINES_NEXT, upstream,
				  rcode_name(t->rcode));
	else if (t->kind == UPSTREAM_ERROR)
		loglines_upstream(s->log, now_ms, LOGLINES_EXCHANGE, upstream, error);
	else if (t->kind == UPSTREAM_INNER)
		on_inner(s);
	else if (t->kind == UPSTREAM_PROBE)
		loglines_upstream(s->log, now_ms, LOGLINES_PROBE, upstream, error);
}

void control_on_answered(struct control *s, uint32_t sandbox,
			 const struct ipc_answered *given)
{
	const struct control_sandbox *w = s->many ? control_sandbox_find(s, sandbox)
						  : NULL;
	struct ipc_answered a = *given;

	control_tame(a.name, sizeof(a.name));
	if (!control_skips_log(s, a.name))
		loglines_outbound(s->log, clock_wall_ms(), w ? w->spec.name : "", a.name,
				  a.addrs, MIN(a.count, (uint32_t)IPC_ANSWERED_MAX),
				  NULL);
}

/* -- how much was denied ------------------------------------------------------------ */

/* How much was denied, counted in the store: for whoever breaks a circuit by it. */

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

/* -- review tasks ------------------------------------------------------------------- */

/* Review tasks of the store, for the API: all of them for a sidecar, which guards one
 * sandbox, and those of one for a daemon. The store is opened for each question: they are
 * few, and the file may be another one by then. */

/* @sandbox NULL: any. */
static int list_tasks(const struct control *s, const char *sandbox,
		      enum review_state state,
		      bool (*on_task)(void *to, const struct review *t), void *to,
		      struct err *err)
{
	struct review_store *store = NULL;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = review_list(store, state, sandbox, on_task, to, err);
	review_close(store);
	return r;
}

static int find_task(struct review_store *store, const char *sandbox, int64_t id,
		     struct review *ret, struct err *err)
{
	int r = review_find(store, id, ret, err);

	if (r == 0 && sandbox && strcmp(ret->sandbox, sandbox) != 0)
		r = err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	return r;
}

static int show(const struct control *s, const char *sandbox, int64_t id,
		struct review *ret, struct err *err)
{
	struct review_store *store = NULL;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = find_task(store, sandbox, id, ret, err);
	review_close(store);
	return r;
}

static int decide(const struct control *s, const char *sandbox, int64_t id,
		  enum review_state state, const char *who, struct err *err)
{
	struct review_store *store = NULL;
	struct review t;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = find_task(store, sandbox, id, &t, err);
	if (r == 0)
		r = review_decide(store, id, state, who, clock_wall_ms(), err);
	review_close(store);
	return r;
}

/* ---- of a sidecar ---- */

static int control_list(void *data, enum review_state state,
			bool (*on_task)(void *to, const struct review *t), void *to,
			struct err *err)
{
	return list_tasks(data, NULL, state, on_task, to, err);
}

static int control_show(void *data, int64_t id, struct review *ret, struct err *err)
{
	return show(data, NULL, id, ret, err);
}

static int control_decide(void *data, int64_t id, enum review_state state,
			  const char *who, struct err *err)
{
	return decide(data, NULL, id, state, who, err);
}

void control_review_ops(const struct control *s, struct api_ops *ret)
{
	if (!s->store)
		return;
	ret->reviews = control_list;
	ret->review = control_show;
	ret->decide = control_decide;
}

/* ---- of one sandbox of a daemon's ---- */

static int control_sandbox_list(void *data, enum review_state state,
				bool (*on_task)(void *to, const struct review *t),
				void *to, struct err *err)
{
	const struct control_sandbox *w = data;

	return list_tasks(w->side, w->spec.name, state, on_task, to, err);
}

static int control_sandbox_show(void *data, int64_t id, struct review *ret,
				struct err *err)
{
	const struct control_sandbox *w = data;

	return show(w->side, w->spec.name, id, ret, err);
}

static int control_sandbox_decide(void *data, int64_t id, enum review_state state,
				  const char *who, struct err *err)
{
	const struct control_sandbox *w = data;

	return decide(w->side, w->spec.name, id, state, who, err);
}

void control_sandbox_review_ops(const struct control_sandbox *w, struct api_ops *ret)
{
	if (!w->side->store)
		return;
	ret->reviews = control_sandbox_list;
	ret->review = control_sandbox_show;
	ret->decide = control_sandbox_decide;
}
