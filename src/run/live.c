// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The paths are those of the daemon's API, so that the same verbs ask:
 *
 *   GET /sandboxes/ID, /sandboxes/ID/status     what `weir ps` and `weir status` show
 *   GET /sandboxes/ID/policy                    the policy in force
 *   POST or PUT /sandboxes/ID/policy            another policy in its place
 *   PATCH /sandboxes/ID/policy                  rules in front of those in force
 *   GET /sandboxes/ID/review[/7]                what is asked for, and not decided
 *   POST /sandboxes/ID/review/7/accept, dismiss decide one, as api/review.c says
 *
 * GET tags the policy, and a change with If-Match is made of the tagged one alone.
 *
 * A policy is read and compiled here and given to the engine, which puts it into the
 * kernel in one transaction and cuts what it forbids; then the answer leaves. Whatever
 * fails leaves the old policy. The engine is asked over a channel of its own, which is
 * made for the first question: a run that nobody asks has none. */
#include "run/live.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "dns/message.h"
#include "event/json.h"
#include "outputs/client.h"
#include "policy/document.h"
#include "policy/explain.h"
#include "policy/lookalike.h"
#include "run/report.h"
#include "sandbox/plan_file.h"
#include "sandbox/sandbox.h"
#include "sys/process.h"

enum { COMMAND_SHOWN = 200 /* bytes */ };

static const struct run_policy *policy_of(const struct live *l)
{
	return *l->newest;
}

/* --- the engine --- */

static void on_engine_says(struct loop_source *source, uint32_t events);

static int reach_engine(struct live *l, struct err *err)
{
	const struct ipc_message m = { .type = IPC_PEER };
	CLEAN(fd) int end = -1;
	int fd, r;

	if (l->engine.fd >= 0)
		return 0;
	r = process_pair(&fd, &end, err);
	if (r < 0)
		return r;
	l->engine = (struct loop_source){ .fd = fd, .on_ready = on_engine_says };
	r = process_dont_wait(fd);
	if (r == 0)
		r = loop_add(l->loop, &l->engine, EPOLLIN);
	if (r == 0)
		r = ipc_send(l->engine_fd, &m, &end, 1);
	if (r < 0) {
		loop_remove(l->loop, &l->engine);
		close(fd);
		l->engine.fd = -1;
		return err_sys(err, r, "cannot ask the engine");
	}
	return 0;
}

static int send_engine(struct live *l, const struct ipc_message *m, int plan_fd,
		       struct err *err)
{
	int r = reach_engine(l, err);

	if (r < 0)
		return r;
	r = ipc_send(l->engine.fd, m, &plan_fd, plan_fd < 0 ? 0 : 1);
	return r < 0 ? err_sys(err, r, "cannot ask the engine") : 0;
}

static int ask_engine(struct live *l, uint32_t type, int plan_fd, struct err *err)
{
	const struct ipc_message m = { .type = type };

	return send_engine(l, &m, plan_fd, err);
}

/* --- the policy --- */

static struct document *document_of(const struct run_policy *p)
{
	CLEAN(mem) char *text = NULL;
	struct document *d = NULL;
	struct err ignored = { 0 };

	if (daemon_policy_json(&p->policy, &p->asked, &text) == 0 &&
	    document_parse(text_of(text), NULL, NULL, &d, &ignored) < 0)
		d = NULL;
	return d;
}

static void answer_policy(struct live *l)
{
	struct document *d = document_of(policy_of(l));
	CLEAN(mem) char *policy = d ? document_json(d, false) : NULL;
	char tag[DOCUMENT_TAG_SIZE] = "";
	char *answer = NULL;

	if (policy)
		document_tag(policy, tag);
	if (policy &&
	    asprintf(&answer, "{\"status\":\"ok\",\"mode\":\"%s\",\"policy\":%s}\n",
		     document_mode(d), policy) < 0)
		answer = NULL;
	document_free(d);
	control_socket_answer_tagged(&l->socket, tag, answer);
}

/* If-Match names what is in force, or isn't there. */
static bool is_expected(const struct live *l, const struct control_request *r)
{
	struct document *d;
	struct text list;
	bool named;

	if (!control_request_header(r, "If-Match", &list))
		return true;
	d = document_of(policy_of(l));
	named = d && document_is_named(d, list);
	document_free(d);
	return named;
}

static void answer_changed(struct live *l)
{
	struct document *d = document_of(policy_of(l));
	char *answer = NULL;

	if (d && asprintf(&answer, "{\"status\":\"ok\",\"mode\":\"%s\"}\n",
			  document_mode(d)) < 0)
		answer = NULL;
	document_free(d);
	control_socket_answer(&l->socket, HTTP_OK, answer);
}

static void settle_task(struct review *t, enum review_state state, const char *who)
{
	t->state = state;
	t->decided_ms = clock_wall_ms();
	snprintf(t->who, sizeof(t->who), "%s", who);
}

static void finish_grant(struct live *l, const char *fault)
{
	struct review *t = run_reviews_find(&l->reviews, l->accepting);

	l->grants = false;
	l->accepting = 0;
	if (t && !fault)
		settle_task(t, REVIEW_ACCEPTED, l->who);
	if (t)
		l->on_granted(l, t, fault);
}

static void refuse(struct live *l, int code, const char *why)
{
	l->failures++;
	if (l->grants) {
		finish_grant(l, why);
		return;
	}
	l->accepting = 0;
	control_socket_refuse(&l->socket,
			      code == -EINVAL  ? HTTP_BAD_REQUEST
			      : code == -EPERM ? HTTP_CONFLICT
					       : HTTP_FAILED,
			      why);
}

/* The engine was told once and for all which name servers it asks. */
static int check_servers(const struct live *l, const struct run_policy *next,
			 struct err *err)
{
	if (!run_policy_asks_names(l->spec, next) || l->spec->upstreams.count > 0)
		return 0;
	return err_set(err, -EINVAL,
		       "the policy has names, and no name server was known when the run "
		       "began");
}

static int begin_change(struct live *l, struct text text, struct err *err)
{
	CLEAN(fd) int plan_fd = -1;
	int r;

	if (l->next)
		return err_set(err, -EBUSY, "another change is under way");
	r = run_policy_read(l->spec, text, &l->next, err);

	if (r == 0)
		r = check_servers(l, l->next, err);
	if (r == 0) {
		plan_fd = plan_file_make(l->next->plan.bytes, l->next->plan.size, err);
		r = plan_fd < 0 ? plan_fd : ask_engine(l, IPC_CHANGE, plan_fd, err);
	}
	if (r < 0) {
		run_policy_free(l->next);
		l->next = NULL;
	}
	return r;
}

static void set_policy(struct live *l, struct text text)
{
	struct err err = { 0 };
	int r = begin_change(l, text, &err);

	if (r < 0)
		refuse(l, r, err.text);
}

/* @merged is taken; @r and @err are what came of making it. */
static void set_document(struct live *l, struct document *merged, int r,
			 const struct err *err)
{
	CLEAN(mem) char *text = r == 0 ? document_json(merged, false) : NULL;

	document_free(merged);
	if (text)
		set_policy(l, text_of(text));
	else if (r == 0 || r == -ENOMEM)
		refuse(l, -ENOMEM, "out of memory");
	else
		refuse(l, r, err->text);
}

static void patch_policy(struct live *l, struct text rules)
{
	struct document *old = document_of(policy_of(l)), *merged = NULL;
	struct err err = { 0 };
	int r = old ? document_merge(old, rules, &merged, &err) : -ENOMEM;

	if (r == 0)
		r = document_settle_ends(merged, clock_wall_ms());
	document_free(old);
	set_document(l, merged, r, &err);
}

/* --- review tasks --- */

struct review *live_note(struct live *l, const struct event *e)
{
	struct review *t = run_reviews_note(&l->reviews, e, l->socket.id);

	if (t)
		lookalike_find(&policy_of(l)->plan, e->name, t->looks_like);
	return t;
}

/* A grant is added to the rule that decides now: it need not say what that one opens. */
static bool is_decided_by_own_rule(const struct plan *p, const struct review *t)
{
	struct plan_verdict v = { .rule = PLAN_NO_RULE };
	struct dns_name name;

	if (t->is_name && dns_name_parse(text_of(t->destination), &name) == 0)
		v = plan_match_name(p, &name);
	return v.rule != PLAN_NO_RULE &&
	       text_equal_nocase(text_of(plan_rule(p, v.rule).target), t->destination);
}

/* Under another policy another rule grants what is open, or none does. */
static void advise_anew(struct live *l)
{
	struct plan plan = policy_of(l)->plan;
	char advice[EVENT_ADVICE_SIZE];

	plan_set_time(&plan, clock_wall_ms());
	for (size_t i = 0; i < l->reviews.count; i++) {
		struct review *t = &l->reviews.tasks[i];
		struct event e = {
			.layer = t->port == 0 ? EVENT_DNS : EVENT_ADDRESS,
			.protocol = t->protocol,
			.port = t->port,
			.query_type = DNS_TYPE_A,
		};

		if (t->state != REVIEW_OPEN)
			continue;
		if (t->is_name)
			snprintf(e.name, sizeof(e.name), "%s", t->destination);
		else if (!addr_parse(t->destination, strlen(t->destination), &e.remote))
			continue;
		advice_write(&plan, &e, advice);
		if (!advice[0] || !t->advice[0] || !is_decided_by_own_rule(&plan, t))
			snprintf(t->advice, sizeof(t->advice), "%s", advice);
		lookalike_find(&plan, e.name, t->looks_like);
	}
}

int live_dismiss(struct live *l, struct review *t, const char *who, struct err *err)
{
	struct ipc_message m = {
		.type = IPC_DISMISS,
		.dismissed = { .protocol = t->protocol, .port = t->port },
	};
	int r;

	snprintf(m.dismissed.destination, sizeof(m.dismissed.destination), "%s",
		 t->destination);
	r = send_engine(l, &m, -1, err);
	if (r == 0)
		settle_task(t, REVIEW_DISMISSED, who);
	return r;
}

static void answer_task(struct live *l, const struct review *t)
{
	char json[REVIEW_JSON_SIZE];

	review_json(t, json);
	control_socket_answer(&l->socket, HTTP_OK, strdup(json));
}

static void answer_tasks(struct live *l)
{
	char json[REVIEW_JSON_SIZE], *text = NULL;
	size_t size = 0, count = 0;
	FILE *out = open_memstream(&text, &size);

	if (out) {
		fputs("{\"tasks\":[", out);
		for (size_t i = l->reviews.count; i-- > 0;) {
			if (l->reviews.tasks[i].state != REVIEW_OPEN)
				continue;
			review_json(&l->reviews.tasks[i], json);
			fprintf(out, "%s%s", count++ > 0 ? "," : "", json);
		}
		fputs("]}\n", out);
		if (fclose(out) != 0) {
			free(text);
			text = NULL;
		}
	}
	control_socket_answer(&l->socket, HTTP_OK, text);
}

static void answer_accepted(struct live *l)
{
	struct review *t = run_reviews_find(&l->reviews, l->accepting);

	l->accepting = 0;
	if (!t) {
		answer_changed(l);
		return;
	}
	settle_task(t, REVIEW_ACCEPTED, l->who);
	answer_task(l, t);
}

/* Begin to grant @t, as live_accept() says. */
static void grant(struct live *l, const struct review *t, const char *length,
		  const char *who)
{
	struct document *old = document_of(policy_of(l)), *granted = NULL;
	char rules[REVIEW_GRANT_SIZE];
	struct err err = { 0 };
	int r = -ENOMEM;

	l->accepting = t->id;
	snprintf(l->who, sizeof(l->who), "%s", who);
	if (!review_grant(t, length, rules))
		r = err_set(&err, -EPERM, "no rule can allow this");
	else if (old)
		r = document_grant(old, text_of(rules), clock_wall_ms(), &granted, &err);
	document_free(old);
	set_document(l, granted, r, &err);
}

static void accept_task(struct live *l, const struct review *t, struct text body)
{
	char length[REVIEW_LENGTH_SIZE];
	const int r = review_read_accept(body, t, length);

	if (r == -ESTALE)
		control_socket_refuse(&l->socket, HTTP_CONFLICT, REVIEW_CHANGED);
	else if (r < 0)
		control_socket_refuse(&l->socket, HTTP_BAD_REQUEST, REVIEW_ACCEPT_WORDS);
	else
		grant(l, t, length, "api");
}

bool live_accept(struct live *l, struct review *t, const char *length, const char *who)
{
	if (l->next)
		return false;
	l->grants = true;
	grant(l, t, length, who);
	return true;
}

static void on_dismiss(struct live *l, struct review *t)
{
	struct err err = { 0 };

	if (live_dismiss(l, t, "api", &err) < 0)
		control_socket_refuse(&l->socket, HTTP_FAILED, err.text);
	else
		answer_task(l, t);
}

/* @what is behind "/review". */
static void on_review(struct live *l, const struct control_request *r, const char *what)
{
	const bool is_get = text_equal(r->method, "GET");
	struct text rest = text_of(what), id, verb;
	struct review *t = NULL;
	uint32_t number;

	text_split(&rest, '?', &verb); /* who decides: the run's own user */
	if (is_get && verb.len == 0) {
		answer_tasks(l);
		return;
	}
	rest = verb;
	text_split(&rest, '/', &verb); /* what is before the first slash: nothing */
	text_split(&rest, '/', &id);
	verb = rest;
	if (text_to_u32(id, INT32_MAX, &number))
		t = run_reviews_find(&l->reviews, number);
	if (!t)
		control_socket_refuse(&l->socket, HTTP_NOT_FOUND,
				      "there is no such task");
	else if (is_get && !verb.ptr)
		answer_task(l, t);
	else if (!text_equal(r->method, "POST"))
		control_socket_refuse(&l->socket, HTTP_BAD_METHOD, "GET or POST");
	else if (text_equal(verb, "accept"))
		accept_task(l, t, r->body);
	else if (text_equal(verb, "dismiss"))
		on_dismiss(l, t);
	else
		control_socket_refuse(&l->socket, HTTP_NOT_FOUND, "accept or dismiss");
}

/* Return: whether @m is the answer to a change. */
static bool on_change_answer(struct live *l, struct ipc_message *m)
{
	struct run_policy *next = l->next;

	if (!next || (m->type != IPC_CHANGED && m->type != IPC_UNCHANGED))
		return false;
	l->next = NULL;
	if (m->type == IPC_CHANGED) {
		next->number = policy_of(l)->number + 1;
		l->on_policy(l, next);
		if (l->grants)
			finish_grant(l, NULL);
		else if (l->accepting == 0)
			answer_changed(l);
		else
			answer_accepted(l);
		advise_anew(l);
		return true;
	}
	run_policy_free(next);
	ipc_sanitize(m->text, sizeof(m->text));
	refuse(l, -EIO, m->text);
	return true;
}

/* --- how it is --- */

/* On one line. What isn't UTF-8 is escaped. */
static json_t *command_json(char *const *argv)
{
	char line[COMMAND_SHOWN], shown[4 * COMMAND_SHOWN];
	size_t used = 0;
	json_t *j;

	line[0] = '\0';
	for (size_t i = 0; argv[i] && used < sizeof(line) - 1; i++)
		used += (size_t)snprintf(line + used, sizeof(line) - used, "%s%s",
					 i > 0 ? " " : "", argv[i]);
	for (char *c = line; *c; c++)
		if (text_is_blank(*c))
			*c = ' ';
	j = json_string(line);
	return j ? j : json_string(text_escape(text_of(line), shown, sizeof(shown)));
}

static json_t *short_status(const struct live *l, const struct ipc_stats *stats)
{
	const struct run_policy *p = policy_of(l);
	const bool tls = plan_verify(&p->plan) == POLICY_VERIFY_TLS;
	struct document *d = document_of(p);
	json_t *j = json_pack("{s:s, s:s, s:o, s:i, s:s, s:s, s:i, s:I}", "id",
			      l->socket.id, "kind", "run", "run",
			      command_json(l->spec->argv), "pid", (int)getpid(), "mode",
			      tls ? "dns+nftables+tls" : "dns+nftables", "policyMode",
			      d ? document_mode(d) : "?", "rules", (int)p->policy.count,
			      "denies", (json_int_t)sandbox_denied(stats->counters));

	document_free(d);
	return j;
}

static json_t *whole_status(const struct live *l, const struct ipc_stats *stats)
{
	char since[JTEXT_TIME_SIZE];
	json_t *j = short_status(l, stats);
	json_t *learned = json_pack("{s:I, s:I}", "names", (json_int_t)stats->names,
				    "addresses", (json_int_t)stats->addresses);

	json_object_set_new(j, "fullIsolation", json_true());
	json_object_set_new(j, "since",
			    json_string(jtext_time(l->started_ms, true, since)));
	json_object_set_new(j, "closed", json_null());
	json_object_set_new(j, "degradations", json_array());
	json_object_set_new(j, "generation", json_integer(policy_of(l)->number + 1));
	json_object_set_new(j, "grants",
			    policy_grants_json(&policy_of(l)->plan, clock_wall_ms()));
	json_object_set_new(j, "learned", learned);
	json_object_set_new(j, "policyUpdates", json_integer(policy_of(l)->number));
	json_object_set_new(j, "policyFailures", json_integer(l->failures));
	json_object_set_new(j, "counters", report_counters_json(stats->counters));
	json_object_set_new(j, "version", json_string(WEIR_VERSION));
	return j;
}

static void ask_status(struct live *l, bool whole)
{
	struct err err = { 0 };

	l->whole_status = whole;
	l->asks_status = true;
	if (ask_engine(l, IPC_STATS, -1, &err) == 0)
		return;
	l->asks_status = false;
	control_socket_refuse(&l->socket, HTTP_FAILED, err.text);
}

static void answer_status(struct live *l, const struct ipc_stats *stats)
{
	json_t *j = l->whole_status ? whole_status(l, stats) : short_status(l, stats);

	l->asks_status = false;
	control_socket_answer(&l->socket, HTTP_OK, json_dumps(j, JSON_COMPACT));
	json_decref(j);
}

/* --- what is asked --- */

/* What is below /sandboxes/ID; NULL: another one. */
static const char *below(const struct live *l, struct text path, char room[64])
{
	char own[96];
	size_t len = (size_t)snprintf(own, sizeof(own), "/sandboxes/%s", l->socket.id);

	if (path.len < len || path.len - len >= 64 || memcmp(path.ptr, own, len) != 0)
		return NULL;
	snprintf(room, 64, "%.*s", (int)(path.len - len), path.ptr + len);
	return room;
}

static void on_policy_request(struct live *l, const struct control_request *r)
{
	const bool is_patch = text_equal(r->method, "PATCH");

	if (text_equal(r->method, "GET"))
		answer_policy(l);
	else if (!is_patch && !text_equal(r->method, "POST") &&
		 !text_equal(r->method, "PUT"))
		control_socket_refuse(&l->socket, HTTP_BAD_METHOD,
				      "GET, POST, PUT or PATCH");
	else if (!is_expected(l, r))
		control_socket_refuse(&l->socket, HTTP_PRECONDITION_FAILED,
				      DOCUMENT_IS_ANOTHER);
	else if (is_patch)
		patch_policy(l, r->body);
	else
		set_policy(l, r->body);
}

static void on_request(struct control_socket *s, const struct control_request *r)
{
	struct live *l = CONTAINER_OF(s, struct live, socket);
	const bool is_get = text_equal(r->method, "GET");
	char room[64];
	const char *what = below(l, r->path, room);

	if (!what)
		control_socket_refuse(s, HTTP_NOT_FOUND, "no such sandbox");
	else if (!is_get && l->next)
		control_socket_refuse(s, HTTP_CONFLICT, "another change is under way");
	else if (is_get && (!what[0] || strcmp(what, "/status") == 0))
		ask_status(l, what[0] != '\0');
	else if (strncmp(what, "/review", 7) == 0 && strchr("/?", what[7]))
		on_review(l, r, what + 7);
	else if (strcmp(what, "/policy") != 0)
		control_socket_refuse(s, HTTP_NOT_FOUND, "a run is not asked for that");
	else
		on_policy_request(l, r);
}

static void on_engine_says(struct loop_source *source, uint32_t events)
{
	struct live *l = CONTAINER_OF(source, struct live, engine);
	struct ipc_message m;
	size_t count;
	int r;

	while ((r = ipc_receive(source->fd, &m, NULL, 0, &count)) == 0) {
		if (!on_change_answer(l, &m) && m.type == IPC_STATS && l->asks_status)
			answer_status(l, &m.stats);
	}
	/* Its end shows on the other channel, and is the run's. */
	if (r != -EAGAIN)
		loop_remove(l->loop, source);
}

/* --- from its start to its end --- */

int live_open(struct live *l, const struct run_spec *spec, struct err *err)
{
	struct err none = { 0 };
	int r = control_socket_open(&l->socket, spec->id, &none);

	l->spec = spec;
	l->engine.fd = -1;
	l->socket.on_request = on_request;
	/* A caller who named the run means to ask it; another one is not told. */
	return r < 0 && spec->id ? err_set(err, r, "%s", none.text) : 0;
}

int live_serve(struct live *l, struct loop *loop, int engine_fd)
{
	l->loop = loop;
	l->engine_fd = engine_fd;
	return control_socket_serve(&l->socket, loop);
}

void live_close(struct live *l)
{
	control_socket_close(&l->socket);
	run_policy_free(l->next);
	l->next = NULL;
	run_reviews_done(&l->reviews);
	if (!l->loop || l->engine.fd < 0)
		return;
	loop_remove(l->loop, &l->engine);
	close(l->engine.fd);
	l->engine.fd = -1;
}
