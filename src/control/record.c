// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"

enum { ERRNO_MAX = 4096 }; /* the kernel's MAX_ERRNO, and one */

static const struct plan *plan_of(struct control *s, uint32_t sandbox)
{
	const struct control_sandbox *w = control_sandbox_of(s, sandbox);

	if (w && w != &s->own)
		return &w->plan;
	return s->own.plan_bytes ? &s->own.plan : NULL;
}

void control_row(void *data, const struct event *e, struct event_row *ret)
{
	struct control *s = ((struct control_sandbox *)data)->side;
	const struct control_sandbox *w = control_sandbox_of(s, e->sandbox);

	if (w && w != &s->own)
		event_row_fill(ret, e, w->spec.name, &w->plan);
	/* A launch that failed: there is no such sandbox, only its name. */
	else if (s->many && e->action == EVENT_PANIC)
		event_row_fill(ret, e, e->name, NULL);
	else if (s->many && e->sandbox != 0 && e->sandbox == s->refused.id)
		event_row_fill(ret, e, s->refused.name, NULL);
	else
		event_row_fill(ret, e, s->spec.sandbox_id,
			       s->own.plan_bytes ? &s->own.plan : NULL);
}

static struct event_ring *ring_of(struct control *s, uint32_t sandbox)
{
	struct control_sandbox *w = control_sandbox_of(s, sandbox);
	struct event_ring *ring = w ? control_sandbox_ring(w) : NULL;

	return ring ? ring : s->own.ring;
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

/* Of the sandbox, and of all together. */
static void count_bytes(struct control *s, const struct event *e)
{
	struct control_sandbox *w = control_sandbox_of(s, e->sandbox);
	struct control_sandbox *both[] = { w != &s->own ? w : NULL, &s->own };

	if (e->action != EVENT_ALLOW || (e->bytes == 0 && e->received == 0))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		if (both[i] && !both[i]->traffic)
			both[i]->traffic = traffic_new();
		if (both[i] && both[i]->traffic)
			traffic_add(both[i]->traffic, e);
	}
}

void control_on_event(struct control *s, const struct event *given)
{
	struct event e = *given;
	struct event_row row;

	/* That is not the engine's to say. */
	e.pid = 0;
	memset(e.command, 0, sizeof(e.command));
	if (e.action == EVENT_LIMIT && e.limit == EVENT_LIMIT_DENIES &&
	    !control_on_denies(s, &e))
		return;
	/* What is asked of the ring is denials. */
	if (e.action != EVENT_ALLOW)
		event_ring_add(ring_of(s, e.sandbox), &e);
	count_bytes(s, &e);
	control_row(&s->own, &e, &row);
	if (s->store)
		event_row_compare(&row, plan_of(s, e.sandbox));
	if (!control_socket_owner_ask(s, &row))
		control_on_row(s, &row);
	if (e.action == EVENT_DENY)
		control_webhook_denied(s, &e);
	if ((e.action == EVENT_DENY || e.action == EVENT_ASK) && e.allowable)
		control_notify_soon(s);
	if (event_is_refusal(&e) || e.action == EVENT_LIMIT)
		loglines_denied(s->log, e.ts_ms, &row);
	else if (e.action == EVENT_PANIC)
		loglines_say(s->log, e.ts_ms, LOGLINES_ERROR, "%s%s%s", row.sandbox,
			     row.sandbox[0] ? ": " : "", e.reason);
	/* A sidecar's one neither comes nor goes. */
	else if (e.action == EVENT_CHANGE && s->many)
		loglines_say(s->log, e.ts_ms, LOGLINES_INFO, "%s: %s", row.sandbox,
			     e.reason);
}

/* The engine will speak of it by that number. */
static void learn_upstream(struct control *s, const struct upstream_trouble *t)
{
	struct endpoint *known;

	if (s->upstreams_given == 0)
		s->upstreams_given = s->spec.upstream_count;
	if (t->server < s->upstreams_given || t->server > s->spec.upstream_count ||
	    t->server >= ARRAY_SIZE(s->spec.upstreams))
		return;
	known = &s->spec.upstreams[t->server];
	if (t->server == s->spec.upstream_count)
		s->spec.upstream_count++;
	else if (addr_equal(&known->addr, &t->at.addr) && known->port == t->at.port)
		return;
	*known = t->at;
	s->dns_inner = false;
	loglines_say(s->log, clock_wall_ms(), LOGLINES_INFO,
		     "[dns] 127.0.0.11 asks on from inside this sandbox: what it doesn't "
		     "know is asked of %s",
		     ENDPOINT_SHOWN(&t->at));
}

void control_on_trouble(struct control *s, const struct upstream_trouble *t)
{
	static const char *const rcodes[] = { "NOERROR",  "FORMERR", "SERVFAIL",
					      "NXDOMAIN", "NOTIMP",  "REFUSED" };
	const struct endpoint *upstream =
		t->server < s->spec.upstream_count ? &s->spec.upstreams[t->server] : NULL;
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
				  t->rcode < ARRAY_SIZE(rcodes) ? rcodes[t->rcode]
								: "an error");
	else if (t->kind == UPSTREAM_ERROR)
		loglines_upstream(s->log, now_ms, LOGLINES_EXCHANGE, upstream, error);
	else if (t->kind == UPSTREAM_PROBE)
		loglines_upstream(s->log, now_ms, LOGLINES_PROBE, upstream, error);
	else if (t->kind == UPSTREAM_INNER && !s->dns_inner) {
		s->dns_inner = true;
		loglines_say(
			s->log, now_ms, LOGLINES_ERROR,
			"[dns] 127.0.0.11 asks on from inside this sandbox, and whom is "
			"not known: name the servers by OPENSANDBOX_EGRESS_DNS_UPSTREAM "
			"(--upstream)");
	}
}

void control_on_answered(struct control *s, uint32_t sandbox,
			 const struct ipc_answered *given)
{
	const struct control_sandbox *w = control_sandbox_of(s, sandbox);
	struct ipc_answered a = *given;

	ipc_sanitize(a.name, sizeof(a.name));
	if (!log_skip_names_has(s->skip, a.name))
		loglines_outbound(s->log, clock_wall_ms(), w ? w->spec.name : "", a.name,
				  a.addrs, MIN(a.count, (uint32_t)IPC_ANSWERED_MAX),
				  NULL);
}

/* -- what the store knows, for the API ---------------------------------------------- */

/* The store is opened for each question: they are few, and the file may be another one by
 * then. */

enum { SEARCH_MS = 1000 }; /* a search that takes longer is ended */

/* What is asked for at the top is of any. */
static const char *name_of(const struct control_sandbox *w)
{
	return w->spec.name[0] ? w->spec.name : NULL;
}

static int open_store(void *data, struct sqlite_reader **ret, const char **ret_sandbox,
		      struct err *err)
{
	const struct control_sandbox *w = data;

	*ret_sandbox = name_of(w);
	return sqlite_reader_open(w->side->spec.state_dir, SEARCH_MS, ret, err);
}

static int list_tasks(void *data, enum review_state state,
		      bool (*on_task)(void *to, const struct review *t), void *to,
		      struct err *err)
{
	const struct control_sandbox *w = data;
	CLEAN(review) struct review_store *store = NULL;
	int r = review_open(w->side->spec.state_dir, &store, err);

	return r < 0 ? r : review_list(store, state, name_of(w), on_task, to, err);
}

static int find_task(struct review_store *store, const struct control_sandbox *w,
		     int64_t id, struct review *ret, struct err *err)
{
	const char *name = name_of(w);
	int r = review_find(store, id, ret, err);

	if (r == 0 && name && strcmp(ret->sandbox, name) != 0)
		r = err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	return r;
}

static int show_task(void *data, int64_t id, struct review *ret, struct err *err)
{
	const struct control_sandbox *w = data;
	CLEAN(review) struct review_store *store = NULL;
	int r = review_open(w->side->spec.state_dir, &store, err);

	return r < 0 ? r : find_task(store, w, id, ret, err);
}

static int decide_task(void *data, int64_t id, enum review_state state, const char *who,
		       struct err *err)
{
	const struct control_sandbox *w = data;
	struct ipc_message m = { .type = IPC_DISMISS, .sandbox = w->id };
	CLEAN(review) struct review_store *store = NULL;
	struct review t;
	int r = review_open(w->side->spec.state_dir, &store, err);

	if (r == 0)
		r = find_task(store, w, id, &t, err);
	if (r == 0)
		r = review_decide(store, id, state, who, clock_wall_ms(), err);
	if (r < 0 || state != REVIEW_DISMISSED || !t.destination[0] || !w->link)
		return r;
	/* What asks for it is refused, on each of its ports: the task is about all of
	 * them. */
	snprintf(m.dismissed.destination, sizeof(m.dismissed.destination), "%s",
		 t.destination);
	control_send_engine(w->link, &m);
	return 0;
}

void control_store_ops(const struct control *s, struct api_ops *ret)
{
	if (!s->store)
		return;
	ret->store = open_store;
	ret->reviews = list_tasks;
	ret->review = show_task;
	ret->decide = decide_task;
}
