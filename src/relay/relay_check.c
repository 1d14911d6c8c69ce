// SPDX-License-Identifier: Apache-2.0
/* What a connection shows, and what a client is told that was refused for it.
 *
 * HOW IT WORKS
 * How bytes are looked at where they lie, and how many may pass: relay_internal.h.
 *
 * A client that showed TLS or HTTP gets an answer in its own protocol, at once. Then our
 * side of its connection is shut down and what it still sends is read and thrown away for
 * a moment: closing a socket with unread bytes would send a reset, which makes the
 * client's kernel throw the answer away. When requests have passed before on the same
 * connection, the server is told that no more come, and the answers still due go first.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "event/json.h"
#include "policy/advice.h"
#include "policy/explain.h"
#include "policy/plan.h"
#include "relay/first.h"
#include "relay/relay_internal.h"
#include "relay/tls.h"
#include "sandbox/budgets.h"
#include "sys/sock.h"

static_assert(RELAY_LOOK_BYTES <= (int)RELAY_COPY_BYTES, "looked at in the copy buffer");
/* A reader that wants more than is looked at would wait for ever. */
static_assert(RELAY_LOOK_BYTES >= (int)TLS_FIRST_MAX, "a hello");
static_assert(RELAY_LOOK_BYTES >= (int)HTTP_HEAD_MAX, "a head");
static_assert(RELAY_LOOK_BYTES >= (int)FIRST_LINE_MAX, "a first line");

static const struct dns_name nobody;

/* Looking costs more than moving: the bytes are copied and read, and may be looked at
 * again when more come. */
enum { LOOK_COST = 8 };

enum {
	OPTION_SIZE = EVENT_ADVICE_SIZE + 16,
	/* Whatever is escaped. */
	BODY_SIZE = JTEXT_ESCAPE_MAX * (EVENT_NAME_SIZE + EVENT_REASON_SIZE +
					POLICY_EXPLAIN_SIZE + OPTION_SIZE) +
		    128,
	MESSAGE_SIZE = BODY_SIZE + 256,
	DRAIN_STEPS = 32, /* reads of RELAY_COPY_BYTES in one run */
};
static_assert(MESSAGE_SIZE <= (int)RELAY_COPY_BYTES, "written into the copy buffer");

/* ---- what a refused client is told ---- */

struct event relay_event(const struct endpoint *to, enum event_action action)
{
	struct event e = event_make(action, EVENT_ADDRESS);

	e.protocol = IPPROTO_TCP;
	e.remote = to->addr;
	e.port = to->port;
	return e;
}

void relay_refuse(struct relay_sandbox *g, const struct endpoint *to,
		  const struct relay_verdict *v)
{
	struct event e = relay_event(to, EVENT_DENY);

	g->sandbox->counters[COUNT_FLOWS_DENIED]++;
	e.rule = v->rule;
	e.allowable = v->allowable;
	event_set_reason(&e, v->reason);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

void relay_fail(struct relay_sandbox *g, const struct endpoint *to,
		const struct dns_name *name, const char *reason)
{
	struct event e = relay_event(to, EVENT_FAIL);

	if (name->size > 0)
		sandbox_event_name(&e, name);
	event_set_reason(&e, reason);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

void relay_limit(struct relay_sandbox *g, enum plan_limit limit, const char *reason)
{
	static const struct endpoint nowhere;
	struct event e = relay_event(&nowhere, EVENT_LIMIT);

	g->sandbox->counters[COUNT_FLOWS_LIMITED]++;
	e.limit = (uint8_t)(limit + 1);
	event_set_reason(&e, reason);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

/* What @f showed was refused. */
static struct event refusal_of(const struct relay_flow *f)
{
	struct event e = relay_event(&f->dialled, EVENT_DENY);

	e.layer = EVENT_NAME;
	e.rule = f->rule;
	e.allowable = f->allowable;
	if (f->refused)
		sandbox_event_name(&e, f->refused);
	event_set_reason(&e, f->reason);
	return e;
}

static void report(struct relay_flow *f)
{
	struct relay_sandbox *g = f->served;
	const struct addr *a = &f->asked.addr;
	struct event e = refusal_of(f);
	struct addr own;

	if (f->reported)
		return;
	g->sandbox->counters[COUNT_FLOWS_DENIED]++;
	/* The look-up of the name was refused, and that was told. */
	if (f->sinkhole && sinkholes_gave(&g->sandbox->sinkholes, a)) {
		if (!f->refused)
			return;
		own = sinkhole_addr((enum addr_family)a->family, f->refused);
		if (addr_equal(&own, a))
			return;
	}
	(void)!sock_ends(f->client.source.fd, &e.from, &e.to);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

/* --- the answer --- */

/* With the blanks of a text for people. @value NULL is null. */
static void put_member(struct jtext *v, const char *key, const char *value)
{
	jtext_put(v, text_of(v->used > 1 ? ", " : ""));
	jtext_string(v, text_of(key), SIZE_MAX);
	jtext_put(v, text_of(": "));
	if (value)
		jtext_string(v, text_of(value), SIZE_MAX);
	else
		jtext_put(v, text_of("null"));
}

/* Into @ret, of MESSAGE_SIZE. Return: its size. */
static size_t write_http(const struct relay_flow *f, char *ret)
{
	const struct plan *plan = &f->served->sandbox->plan;
	char rule[POLICY_EXPLAIN_SIZE], advice[EVENT_ADVICE_SIZE];
	char option[OPTION_SIZE], text[BODY_SIZE];
	const struct event e = refusal_of(f);
	struct jtext body;

	snprintf(option, sizeof(option), "--allow %s",
		 e.allowable ? advice_write(plan, &e, advice) : "");
	jtext_init(&body, text, sizeof(text));
	jtext_put(&body, text_of("{"));
	put_member(&body, "error", "refused by weir");
	put_member(&body, "name", e.name[0] ? e.name : NULL);
	put_member(&body, "reason", f->reason);
	put_member(&body, "rule", policy_explain_rule(plan, f->rule, rule, sizeof(rule)));
	put_member(&body, "allow", e.allowable && advice[0] ? option : NULL);
	jtext_put(&body, text_of("}\n"));
	assert(!body.full);
	return (size_t)snprintf(ret, MESSAGE_SIZE,
				"HTTP/1.1 %s\r\n"
				"Content-Type: application/json\r\n"
				"Content-Length: %zu\r\n"
				"Cache-Control: no-store\r\n"
				"Connection: close\r\n\r\n%.*s",
				f->refusal == REFUSAL_HTTP_403 ? "403 Forbidden"
							       : "400 Bad Request",
				body.used, (int)body.used, text);
}

/* Say it, and that no more comes. */
static void say(struct relay_flow *f)
{
	struct relay *r = f->served->relay;
	int fd = f->client.source.fd;
	size_t size = 0;
	bool reported;

	switch (f->refusal) {
	case REFUSAL_CLOSE:
		break;
	case REFUSAL_ALERT_NAME:
		tls_alert_write(TLS_ALERT_UNRECOGNIZED_NAME, r->copy_buffer);
		size = TLS_ALERT_SIZE;
		break;
	case REFUSAL_ALERT_ACCESS:
		tls_alert_write(TLS_ALERT_ACCESS_DENIED, r->copy_buffer);
		size = TLS_ALERT_SIZE;
		break;
	default:
		size = write_http(f, (char *)r->copy_buffer);
	}
	reported = size == 0 || send(fd, r->copy_buffer, size,
				     MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;
	f->out_of_patience = false;
	if (!reported || shutdown(fd, SHUT_WR) < 0 ||
	    loop_timer_in(r->loop, &f->patience, RELAY_GOODBYE_MS) < 0) {
		relay_flow_abort(f);
		return;
	}
	f->state = FLOW_REFUSED;
	f->client.readable = true;
	relay_flow_queue(f);
}

static void keep_going(struct relay_flow *f)
{
	f->state = FLOW_CLOSING;
	f->up.allowed = 0;
	f->down.allowed = RELAY_ALL;
	f->down.keep_open = true;
	if (loop_timer_in(f->served->relay->loop, &f->patience, RELAY_GOODBYE_MS) < 0)
		relay_flow_abort(f);
	else
		relay_flow_queue(f);
}

/* Refuse @f for what it showed: @name (NULL: none). The client is told. What has passed,
 * and the answers still due, count for f->name as before. */
static void refuse_shown(struct relay_flow *f, enum relay_refusal how,
			 const struct relay_verdict *v, const struct dns_name *name)
{
	struct relay *r = f->served->relay;

	f->refusal = (uint8_t)how;
	f->rule = v->rule;
	f->reason = v->reason;
	f->allowable = v->allowable;
	f->refused = name ? malloc(sizeof(*name)) : NULL;
	if (name && !f->refused) {
		relay_limit(f->served, LIMIT_FLOWS, "no memory is free");
		relay_flow_abort(f);
		return;
	}
	if (name)
		*f->refused = *name;
	report(f);
	loop_timer_stop(r->loop, &f->timer);
	loop_timer_stop(r->loop, &f->patience);
	f->out_of_patience = false;
	if (how == REFUSAL_RESET) {
		relay_flow_abort(f);
	} else if (f->passed && f->state == FLOW_OPEN) {
		keep_going(f);
	} else {
		relay_side_close(f, &f->server, true);
		relay_dial_stop(f, true);
		say(f);
	}
}

/* --- the goodbye --- */

void relay_goodbye_now(struct relay_flow *f)
{
	relay_side_close(f, &f->server, true);
	relay_way_done(f->served, &f->up);
	relay_way_done(f->served, &f->down);
	say(f);
}

size_t relay_finish(struct relay_flow *f)
{
	size_t cost = RELAY_STEP_COST;
	enum relay_moved down, up = MOVE_WAIT;

	if (!f->up.ended)
		up = relay_move(f, &f->up, &f->client, &f->server, &cost);
	if (f->up.waiting == 0 && !f->up.ended) {
		f->up.ended = true;
		f->ended_first |= !f->down.ended;
		(void)shutdown(f->server.source.fd, SHUT_WR);
	}
	down = relay_move(f, &f->down, &f->server, &f->client, &cost);
	if (f->client.failed) {
		relay_flow_abort(f);
	} else if (down == MOVE_END || down == MOVE_FAILED || f->out_of_patience) {
		relay_goodbye_now(f);
	} else if (down == MOVE_MORE || up == MOVE_MORE) {
		relay_flow_queue(f);
	}
	return cost;
}

size_t relay_drain_client(struct relay_flow *f)
{
	int fd = f->client.source.fd;
	size_t cost = 0;
	ssize_t n = 1;

	for (int i = 0; i < DRAIN_STEPS && cost < RELAY_FLOW_QUANTUM && n > 0; i++) {
		n = recv(fd, NULL, RELAY_COPY_BYTES, MSG_TRUNC | MSG_DONTWAIT);
		cost += RELAY_STEP_COST + (size_t)MAX(n, (ssize_t)0);
	}
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		relay_flow_abort(f);
	else if (n == 0 || f->out_of_patience)
		relay_flow_end(f, false);
	else if (n > 0)
		relay_flow_queue(f);
	return cost;
}

/* ---- what a connection shows ---- */

/* Bytes that lie in a socket. */
struct sight {
	const uint8_t *bytes;
	size_t size;
	bool at_end; /* nothing comes after them */
};

/* False: nothing is there, or the socket is broken (the flow is then ended). */
static bool look(struct relay_flow *f, struct relay_side *side, size_t most,
		 struct sight *ret)
{
	struct relay *r = f->served->relay;
	ssize_t n;

	if (!side->readable)
		return false;
	/* A peer that was seen to have finished has nothing under way. */
	ret->at_end = side->hung_up;
	do {
		n = recv(side->source.fd, r->copy_buffer, most, MSG_PEEK);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		side->readable = false;
		return false;
	}
	if (n < 0) {
		relay_flow_abort(f);
		return false;
	}
	*ret = (struct sight){ r->copy_buffer, (size_t)n, ret->at_end || n == 0 };
	return true;
}

static void be_patient(struct relay_flow *f, int64_t ms)
{
	if (f->patience.slot == 0 &&
	    loop_timer_in(f->served->relay->loop, &f->patience, ms) < 0)
		f->out_of_patience = true;
}

static void refuse(struct relay_flow *f, enum relay_refusal how, uint32_t rule,
		   const char *reason)
{
	const struct relay_verdict v = { .rule = rule, .reason = reason };

	refuse_shown(f, how, &v, NULL);
}

/* What is there is not enough to tell. */
static void await_more(struct relay_flow *f, const struct sight *sight)
{
	if (sight->at_end) {
		refuse(f, REFUSAL_RESET, PLAN_NO_RULE, "it ended before it was complete");
		return;
	}
	f->client.readable = false;
	if (f->http.phase == HTTP_PHASE_HEAD) /* a body may take its time */
		be_patient(f, RELAY_LOOK_MS);
}

static struct relay_verdict verdict(const struct relay_flow *f, enum relay_shown shown,
				    const struct dns_name *name)
{
	struct relay_question q = relay_flow_question(f, &f->dialled);

	if (f->reported)
		return (struct relay_verdict){ .rule = f->rule,
					       .reason = f->reason,
					       .allowable = f->allowable };
	if (f->sinkhole)
		return relay_verdict_sinkhole(&q, shown, name);
	return relay_verdict_shown(&q, shown, name, f->taught ? &f->name : &nobody);
}

static void stop_waiting(struct relay_flow *f)
{
	loop_timer_stop(f->served->relay->loop, &f->patience);
	f->out_of_patience = false;
}

static void accept_shown(struct relay_flow *f, enum relay_shown shown,
			 const struct relay_verdict *v)
{
	const bool is_renamed = !dns_name_equal(&f->name, &v->name);

	stop_waiting(f);
	if (f->sent + f->received > 0 && is_renamed) {
		relay_flow_account(f);
		f->opened = true;
	}
	/* Something else has passed before, on the connection or to open the tunnel. One
	 * rule, or none, may let both pass, and deny one of them after a change. */
	if (f->shown != SHOWN_NOTHING &&
	    (is_renamed || f->shown != shown || f->opened_rule != v->rule)) {
		f->several = true;
		f->other_budgets |= budgets_of(&f->served->sandbox->plan, f->opened_rule);
	}
	f->shown = (uint8_t)shown;
	f->name = v->name;
	f->taught = v->taught;
	f->opened_rule = v->rule;
	if (f->state == FLOW_ACCEPTED)
		relay_dial_start(f);
}

static void accept_all(struct relay_flow *f, enum relay_shown shown,
		       const struct relay_verdict *v)
{
	f->check = CHECK_DONE;
	f->up.allowed = RELAY_ALL;
	accept_shown(f, shown, v);
}

/* --- neither TLS nor HTTP --- */

static void check_bytes(struct relay_flow *f)
{
	struct relay_verdict v = verdict(f, SHOWN_BYTES, &nobody);

	if (v.allowed)
		accept_all(f, SHOWN_BYTES, &v);
	else
		refuse_shown(f, REFUSAL_RESET, &v, f->name.size > 0 ? &f->name : NULL);
}

static void pass_all(struct relay_flow *f)
{
	stop_waiting(f);
	f->check = CHECK_DONE;
	f->up.allowed = f->down.allowed = RELAY_ALL;
}

/* --- TLS --- */

/* The hello passes, and nothing behind it. */
static void accept_hello(struct relay_flow *f, const struct tls_hello *hello,
			 enum relay_shown shown, const struct relay_verdict *v)
{
	f->check = CHECK_HELLO;
	f->up.allowed = hello->size;
	f->down.allowed = 0;
	f->early_data = hello->early_data;
	accept_shown(f, shown, v);
}

static void check_tls(struct relay_flow *f, const struct sight *sight)
{
	struct relay_verdict v;
	struct tls_hello hello;
	enum tls_read r = tls_hello_read(sight->bytes, sight->size, &hello);
	struct dns_name name;

	if (r == TLS_NEED_MORE) {
		await_more(f, sight);
	} else if (r == TLS_NOT) {
		check_bytes(f);
	} else if (r == TLS_BAD) {
		v = verdict(f, SHOWN_NO_NAME, &nobody);
		if (hello.fault == TLS_NO_NAME && v.allowed)
			accept_hello(f, &hello, SHOWN_NO_NAME, &v);
		else
			refuse(f, REFUSAL_ALERT_NAME, v.rule,
			       tls_fault_text(hello.fault));
	} else if (dns_name_parse((struct text){ hello.name.text, hello.name.size },
				  &name) < 0) {
		refuse(f, REFUSAL_ALERT_NAME, PLAN_NO_RULE,
		       tls_fault_text(TLS_NAME_MALFORMED));
	} else {
		v = verdict(f, SHOWN_NAME, &name);
		if (v.allowed)
			accept_hello(f, &hello, SHOWN_NAME, &v);
		else
			refuse_shown(f, REFUSAL_ALERT_ACCESS, &v, &name);
	}
}

/* --- behind a ClientHello --- */

/* A server goes by the last hello: it has to show what the first one did, a name or none.
 */
static void check_another_hello(struct relay_flow *f, const struct sight *sight)
{
	const struct relay_verdict differs = {
		.rule = PLAN_NO_RULE,
		.reason = "the second ClientHello shows another name",
	};
	struct dns_name name = { .size = 0 };
	struct tls_hello hello;
	enum tls_read r = tls_hello_read(sight->bytes, sight->size, &hello);
	bool same = false;

	if (r == TLS_NEED_MORE) {
		await_more(f, sight);
		return;
	}
	if (r == TLS_BAD && hello.fault != TLS_NO_NAME) {
		refuse(f, REFUSAL_ALERT_NAME, PLAN_NO_RULE, tls_fault_text(hello.fault));
		return;
	}
	if (r == TLS_BAD)
		same = f->shown == SHOWN_NO_NAME;
	else if (r == TLS_OK)
		same = dns_name_parse((struct text){ hello.name.text, hello.name.size },
				      &name) == 0 &&
		       f->shown == SHOWN_NAME && dns_name_equal(&name, &f->name);
	if (!same) {
		refuse_shown(f, REFUSAL_ALERT_ACCESS, &differs,
			     name.size > 0 ? &name : NULL);
		return;
	}
	stop_waiting(f);
	f->up.allowed = hello.size;
	f->early_data = hello.early_data;
}

static void check_behind_hello(struct relay_flow *f, const struct sight *sight)
{
	size_t size = 0;

	if (sight->size == 0) {
		f->up.allowed = RELAY_ALL; /* only the end is left to pass */
		return;
	}
	switch (tls_next_read(sight->bytes, sight->size, f->early_data, &size)) {
	case TLS_NEXT_MORE:
		await_more(f, sight);
		return;
	case TLS_NEXT_PASS:
		stop_waiting(f);
		f->up.allowed = size;
		return;
	case TLS_NEXT_HELLO:
		check_another_hello(f, sight);
		return;
	case TLS_NEXT_END:
		pass_all(f);
		return;
	case TLS_NEXT_UNKNOWN:
		refuse(f, REFUSAL_ALERT_NAME, PLAN_NO_RULE,
		       tls_fault_text(TLS_BAD_ORDER));
		return;
	}
}

/* The server's records, until its ServerHello: it answers the hello that counts. Where
 * the server says something else only the client's own records can end the reading. */
static void read_tls_answer(struct relay_flow *f, const struct sight *sight)
{
	size_t size = 0;

	switch (tls_answer_read(sight->bytes, sight->size, &size)) {
	case TLS_NEXT_MORE:
		if (sight->at_end)
			f->down.allowed = RELAY_ALL;
		else
			f->server.readable = false;
		return;
	case TLS_NEXT_PASS:
		f->down.allowed = size;
		return;
	case TLS_NEXT_END:
		pass_all(f);
		return;
	default:
		f->down.allowed = RELAY_ALL;
	}
}

/* --- HTTP --- */

/* Answers are not followed, so only that of the first request can be told from others:
 * a later Upgrade has to come on a connection of its own. The one on which requests have
 * passed is closed, which is no refusal: answers that are due come first, and clients
 * repeat what was asked on a connection that closes without an answer. */
static void check_request(struct relay_flow *f, const struct http_piece *piece)
{
	const struct http_request *r = &piece->request;
	const struct plan *p = &f->served->sandbox->plan;
	bool named = r->host.kind == WIRE_HOST_NAME, another_pays;
	enum relay_shown shown = named ? SHOWN_NAME : SHOWN_NO_NAME;
	struct text t = { r->host.text, r->host.size };
	struct dns_name name = { 0 };
	struct relay_verdict v;

	if (named && dns_name_parse(t, &name) < 0) {
		refuse(f, REFUSAL_HTTP_400, PLAN_NO_RULE, http_fault_text(HTTP_BAD_HOST));
		return;
	}
	v = verdict(f, shown, &name);
	/* What is still due for the requests before would count against the rule of
	 * this one. */
	another_pays =
		f->passed && v.rule != f->opened_rule &&
		((v.rule != PLAN_NO_RULE && budgets_of(p, v.rule) != 0) ||
		 (f->opened_rule != PLAN_NO_RULE && budgets_of(p, f->opened_rule) != 0));
	if (r->host.kind == WIRE_HOST_ADDRESS &&
	    !addr_equal(&r->host.addr, &f->dialled.addr))
		refuse(f, REFUSAL_HTTP_403, PLAN_NO_RULE, "the Host is another address");
	else if (!v.allowed)
		refuse_shown(f, REFUSAL_HTTP_403, &v, named ? &name : NULL);
	else if ((f->passed && (r->upgrade || r->connect)) || another_pays) {
		f->refusal = REFUSAL_CLOSE;
		keep_going(f);
	} else {
		f->up.allowed = piece->pass;
		if (r->upgrade || r->connect) {
			f->check = CHECK_ANSWER;
			f->connect = r->connect;
			f->h2c = r->h2c;
			f->tls = r->tls;
			f->down.allowed = 0;
		}
		f->passed = true;
		accept_shown(f, shown, &v);
	}
}

static void check_http(struct relay_flow *f, const struct sight *sight)
{
	struct http_piece piece = { .pass = 0 };

	if (sight->size == 0) {
		if (f->http.phase != HTTP_PHASE_HEAD)
			await_more(f, sight);
		else
			f->up.allowed = RELAY_ALL; /* only the end is left to pass */
		return;
	}
	switch (http_next(&f->http, sight->bytes, sight->size, &piece)) {
	case HTTP_NEED_MORE:
		await_more(f, sight);
		return;
	case HTTP_REQUEST:
		check_request(f, &piece);
		return;
	case HTTP_PASS:
		f->up.allowed = piece.pass;
		return;
	case HTTP_BAD:
		refuse(f, REFUSAL_HTTP_400, PLAN_NO_RULE, http_fault_text(piece.fault));
		return;
	}
}

/* The frames of HTTP/2 are not read, so whom they name isn't known. Where a rule opens
 * the address itself they are bytes like others. */
static void check_http2(struct relay_flow *f, const struct sight *sight)
{
	static const char preface[] = HTTP2_PREFACE;
	struct relay_verdict v = verdict(f, SHOWN_BYTES, &nobody);
	const bool is_open = verdict(f, SHOWN_NO_NAME, &nobody).allowed;

	if (sight->size < sizeof(preface) - 1 && !sight->at_end)
		await_more(f, sight);
	else if (sight->size >= sizeof(preface) - 1 &&
		 memcmp(sight->bytes, preface, sizeof(preface) - 1) == 0 && v.allowed &&
		 is_open)
		accept_all(f, SHOWN_BYTES, &v);
	else
		/* What the address rule wants besides, or a name that is denied. */
		refuse(f, REFUSAL_RESET, v.rule,
		       f->sinkhole || (is_open && !v.allowed)
			       ? v.reason
			       : http_fault_text(HTTP_VERSION_2));
}

/* --- the answer to an Upgrade or a CONNECT --- */

static void go_on_checking(struct relay_flow *f)
{
	f->check = CHECK_HTTP;
	f->down.allowed = RELAY_ALL;
}

static void read_answer(struct relay_flow *f, const struct sight *sight)
{
	struct http_answer answer;
	enum http_read r = http_answer_read(sight->bytes, sight->size, &answer);
	bool switched, connected;

	if (r == HTTP_NEED_MORE && !sight->at_end) {
		f->server.readable = false;
		return;
	}
	if (r != HTTP_PASS) {
		go_on_checking(f);
		return;
	}
	switched = !f->connect && answer.code == 101;
	/* With a body it is an answer like others, and the next request is read. */
	connected = f->connect && answer.code / 100 == 2 && !answer.body;
	if (switched && f->h2c)
		refuse(f, REFUSAL_RESET, PLAN_NO_RULE, "HTTP/2 without TLS");
	else if (connected || (switched && f->tls)) {
		/* A connection begins anew inside of this one: what TLS or HTTP shows in
		 * there counts too. */
		f->check = CHECK_FIRST;
		f->passed = false;
		f->http = (struct http_stream){ 0 };
		f->down.allowed = RELAY_ALL;
	} else if (switched)
		pass_all(f);
	else if (answer.code / 100 == 1 && answer.code != 101)
		f->down.allowed = answer.size; /* the real answer comes behind it */
	else
		go_on_checking(f);
}

/* --- in order --- */

/* A word that may be a method's or another protocol's, without the end of its line. Where
 * bytes may pass, a server that speaks first, or a client that says no more, tells: they
 * are bytes. */
static void check_word(struct relay_flow *f, const struct sight *sight)
{
	bool may_pass = verdict(f, SHOWN_BYTES, &nobody).allowed;

	if (may_pass && !f->word)
		stop_waiting(f);
	f->word = may_pass; /* nothing but more bytes tells otherwise */
	if (!may_pass) {
		await_more(f, sight);
	} else if (f->answered || f->out_of_patience || sight->at_end) {
		f->out_of_patience = false;
		check_bytes(f);
	} else {
		f->client.readable = false;
		be_patient(f, RELAY_WORD_MS);
	}
}

static void check_first(struct relay_flow *f, const struct sight *sight)
{
	const char *reason = "";
	enum first_kind kind;

	if (sight->size == 0) {
		if (f->state == FLOW_ACCEPTED)
			relay_flow_end(f, false);
		else
			pass_all(f); /* only the end is left to pass */
		return;
	}
	kind = first_kind(sight->bytes, sight->size, &reason);
	if (f->word && kind != FIRST_WORD) {
		f->word = false;
		stop_waiting(f);
	}
	switch (kind) {
	case FIRST_NEED_MORE:
		await_more(f, sight);
		return;
	case FIRST_WORD:
		check_word(f, sight);
		return;
	case FIRST_TLS:
		check_tls(f, sight);
		return;
	case FIRST_HTTP:
		if (sight->size >= 4 && memcmp(sight->bytes, HTTP2_PREFACE, 4) == 0) {
			check_http2(f, sight);
			return;
		}
		f->check = CHECK_HTTP;
		check_http(f, sight);
		return;
	case FIRST_NEITHER:
		check_bytes(f);
		return;
	case FIRST_BAD:
		refuse(f, REFUSAL_HTTP_400, PLAN_NO_RULE, reason);
		return;
	}
}

/* A client that waits for the server to speak needs what one without a name needs. */
static void run_out_of_patience(struct relay_flow *f)
{
	struct relay_verdict v = { .rule = PLAN_NO_RULE,
				   .reason = "no name came in 5 s" };
	uint8_t byte;

	if (f->check == CHECK_FIRST &&
	    recv(f->client.source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
	    errno == EAGAIN)
		v.allowable = verdict(f, SHOWN_BYTES, &nobody).allowable;
	refuse_shown(f, REFUSAL_RESET, &v, v.allowable ? &f->name : NULL);
}

/* A server may want a request's body before it answers an Upgrade: the body is read on.
 */
bool relay_reads_client(const struct relay_flow *f)
{
	return f->check == CHECK_FIRST || f->check == CHECK_HELLO ||
	       f->check == CHECK_HTTP ||
	       (f->check == CHECK_ANSWER && f->http.phase != HTTP_PHASE_HEAD);
}

size_t relay_check(struct relay_flow *f)
{
	const bool is_tls = f->check == CHECK_HELLO;
	size_t cost = RELAY_STEP_COST;
	struct sight sight;

	if (f->client.failed && f->state == FLOW_ACCEPTED) {
		relay_flow_abort(f);
		return cost;
	}
	if ((f->check == CHECK_ANSWER || is_tls) && f->down.allowed == 0 &&
	    f->state == FLOW_OPEN &&
	    look(f, &f->server, is_tls ? TLS_ANSWER_LOOK : RELAY_LOOK_BYTES, &sight)) {
		cost += sight.size * LOOK_COST;
		if (is_tls)
			read_tls_answer(f, &sight);
		else
			read_answer(f, &sight);
	}
	/* What was a word is looked at again, though nothing came behind it. */
	if (f->check == CHECK_FIRST && f->word && (f->out_of_patience || f->answered))
		f->client.readable = true;
	if (f->state < FLOW_CLOSING && relay_reads_client(f) && f->up.allowed == 0 &&
	    look(f, &f->client, RELAY_LOOK_BYTES, &sight)) {
		cost += sight.size * LOOK_COST;
		if (f->check == CHECK_FIRST)
			check_first(f, &sight);
		else if (f->check == CHECK_HELLO)
			check_behind_hello(f, &sight);
		else
			check_http(f, &sight);
	}
	if (f->out_of_patience && relay_reads_client(f) && f->state < FLOW_CLOSING)
		run_out_of_patience(f);
	return cost;
}
