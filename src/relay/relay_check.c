// SPDX-License-Identifier: Apache-2.0
/* What a connection shows: see HOW IT WORKS in relay_internal.h. */
#include <errno.h>
#include <sys/socket.h>

#include "relay/first.h"
#include "relay/relay_internal.h"
#include "relay/tls.h"

static_assert(RELAY_LOOK_BYTES <= (int)RELAY_COPY_BYTES, "looked at in the copy buffer");
/* A reader that wants more than is looked at would wait for ever. */
static_assert(RELAY_LOOK_BYTES >= (int)TLS_FIRST_MAX, "a hello");
static_assert(RELAY_LOOK_BYTES >= (int)HTTP_HEAD_MAX, "a head");
static_assert(RELAY_LOOK_BYTES >= (int)FIRST_LINE_MAX, "a first line");

static const struct dns_name nobody;

/* Looking costs more than moving: the bytes are copied and read, and may be looked at
 * again when more come. */
enum { LOOK_COST = 8 };

/* Bytes that lie in a socket. */
struct sight {
	const uint8_t *bytes;
	size_t size;
	bool at_end; /* nothing comes after them */
};

/* False: nothing is there, or the socket is broken (the flow is then ended). */
static bool look(struct relay_flow *f, struct relay_side *side, struct sight *ret)
{
	struct relay *r = f->guest->relay;
	ssize_t n;

	if (!side->readable)
		return false;
	/* A peer that was seen to have finished has nothing under way. */
	ret->at_end = side->hung_up;
	do {
		n = recv(side->source.fd, r->copy_buffer, RELAY_LOOK_BYTES, MSG_PEEK);
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

static void be_patient(struct relay_flow *f)
{
	struct loop *loop = f->guest->relay->loop;

	if (f->patience.slot == 0 &&
	    loop_timer_start(loop, &f->patience, loop_now_ms(loop) + RELAY_LOOK_MS) < 0)
		f->out_of_patience = true;
}

static void refuse(struct relay_flow *f, enum relay_refusal how, uint32_t rule,
		   const char *reason)
{
	const struct relay_judgement j = { .rule = rule, .reason = reason };

	relay_refuse_shown(f, how, &j, NULL);
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
		be_patient(f);
}

static const struct endpoint *destination(const struct relay_flow *f)
{
	return f->dials > 0 ? &f->dialled : &f->asked;
}

static struct relay_judgement judge(const struct relay_flow *f, enum relay_shown shown,
				    const struct dns_name *name)
{
	struct relay_question q = relay_flow_question(f, destination(f));

	return relay_judge_shown(&q, shown, name, &f->name);
}

static void accept_shown(struct relay_flow *f, enum relay_shown shown,
			 const struct relay_judgement *j)
{
	loop_timer_stop(f->guest->relay->loop, &f->patience);
	f->out_of_patience = false;
	if (f->sent > 0 && !dns_name_equal(&f->name, &j->name)) {
		relay_flow_account(f);
		f->opened = true;
	}
	f->shown = (uint8_t)shown;
	f->name = j->name;
	f->opened_rule = j->rule;
	if (f->state == FLOW_ACCEPTED)
		relay_flow_dial(f);
}

static void accept_all(struct relay_flow *f, enum relay_shown shown,
		       const struct relay_judgement *j)
{
	f->check = CHECK_DONE;
	f->up.allowed = RELAY_ALL;
	accept_shown(f, shown, j);
}

/* --- neither TLS nor HTTP --- */

static void check_bytes(struct relay_flow *f)
{
	struct relay_judgement j = judge(f, SHOWN_BYTES, &nobody);

	if (j.allowed)
		accept_all(f, SHOWN_BYTES, &j);
	else
		relay_refuse_shown(f, REFUSAL_RESET, &j,
				   f->name.size > 0 ? &f->name : NULL);
}

/* --- TLS --- */

static void check_tls_name(struct relay_flow *f, const struct tls_hello *hello)
{
	struct text t = { hello->name.text, hello->name.size };
	struct relay_judgement j;
	struct dns_name name;

	if (dns_name_parse(t, &name) < 0) {
		refuse(f, REFUSAL_ALERT_NAME, PLAN_NO_RULE,
		       tls_fault_text(TLS_NAME_MALFORMED));
		return;
	}
	j = judge(f, SHOWN_NAME, &name);
	if (j.allowed)
		accept_all(f, SHOWN_NAME, &j);
	else
		relay_refuse_shown(f, REFUSAL_ALERT_ACCESS, &j, &name);
}

static void check_tls(struct relay_flow *f, const struct sight *sight)
{
	struct relay_judgement j;
	struct tls_hello hello;

	switch (tls_hello_read(sight->bytes, sight->size, &hello)) {
	case TLS_NEED_MORE:
		await_more(f, sight);
		return;
	case TLS_OK:
		check_tls_name(f, &hello);
		return;
	case TLS_NOT:
		check_bytes(f);
		return;
	case TLS_BAD:
		break;
	}
	j = judge(f, SHOWN_NO_NAME, &nobody);
	if (hello.fault == TLS_NO_NAME && j.allowed)
		accept_all(f, SHOWN_NO_NAME, &j);
	else
		refuse(f, REFUSAL_ALERT_NAME, j.rule, tls_fault_text(hello.fault));
}

/* --- HTTP --- */

static bool is_destination(const struct relay_flow *f, const struct wire_host *h)
{
	return h->kind == WIRE_HOST_ADDRESS &&
	       addr_equal(&h->addr, &destination(f)->addr);
}

static void let_request_pass(struct relay_flow *f, const struct http_piece *piece)
{
	const struct http_request *r = &piece->request;

	f->up.allowed = piece->pass;
	if (r->upgrade || r->connect) {
		f->check = CHECK_ANSWER;
		f->connect = r->connect;
		f->h2c = r->h2c;
		f->down.allowed = 0;
	}
	f->passed = true;
}

/* Answers are not followed, so only that of the first request can be told from others:
 * a later Upgrade has to come on a connection of its own. Clients repeat what was asked
 * on a connection that closes without an answer. */
static bool comes_too_late(const struct relay_flow *f, const struct http_request *r)
{
	return f->passed && (r->upgrade || r->connect);
}

static void check_request(struct relay_flow *f, const struct http_piece *piece)
{
	const struct http_request *r = &piece->request;
	bool named = r->host.kind == WIRE_HOST_NAME;
	enum relay_shown shown = named ? SHOWN_NAME : SHOWN_NO_NAME;
	struct text t = { r->host.text, r->host.size };
	struct dns_name name = { 0 };
	struct relay_judgement j;

	if (named && dns_name_parse(t, &name) < 0) {
		refuse(f, REFUSAL_HTTP_400, PLAN_NO_RULE, http_fault_text(HTTP_BAD_HOST));
		return;
	}
	j = judge(f, shown, &name);
	if (r->host.kind == WIRE_HOST_ADDRESS && !is_destination(f, &r->host))
		refuse(f, REFUSAL_HTTP_403, PLAN_NO_RULE, "the Host is another address");
	else if (!j.allowed)
		relay_refuse_shown(f, REFUSAL_HTTP_403, &j, named ? &name : NULL);
	else if (comes_too_late(f, r))
		relay_hang_up(f);
	else {
		let_request_pass(f, piece);
		accept_shown(f, shown, &j);
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

/* --- the answer to an Upgrade or a CONNECT --- */

static void become_tunnel(struct relay_flow *f)
{
	f->check = CHECK_DONE;
	f->up.allowed = f->down.allowed = RELAY_ALL;
}

static void go_on_judging(struct relay_flow *f)
{
	f->check = CHECK_HTTP;
	f->down.allowed = RELAY_ALL;
}

static void settle_answer(struct relay_flow *f, const struct http_status *status)
{
	bool switched = !f->connect && status->code == 101;
	bool connected = f->connect && status->code / 100 == 2;

	if (switched && f->h2c)
		refuse(f, REFUSAL_RESET, PLAN_NO_RULE, "HTTP/2 without TLS");
	else if (switched || connected)
		become_tunnel(f);
	else if (status->code / 100 == 1 && status->code != 101)
		f->down.allowed = status->size; /* the real answer comes behind it */
	else
		go_on_judging(f);
}

static size_t cost_of(const struct sight *sight)
{
	return sight->size * LOOK_COST;
}

static void read_answer(struct relay_flow *f, const struct sight *sight)
{
	struct http_status status;

	switch (http_status_read(sight->bytes, sight->size, &status)) {
	case HTTP_PASS:
		settle_answer(f, &status);
		return;
	case HTTP_NEED_MORE:
		if (sight->at_end)
			go_on_judging(f);
		else
			f->server.readable = false;
		return;
	default:
		go_on_judging(f);
	}
}

static size_t check_answer(struct relay_flow *f)
{
	struct sight sight;

	if (f->down.allowed > 0 || f->server.source.fd < 0 ||
	    !look(f, &f->server, &sight))
		return 0;
	read_answer(f, &sight);
	return cost_of(&sight);
}

/* --- in order --- */

static void check_first(struct relay_flow *f, const struct sight *sight)
{
	const char *reason = "";

	if (sight->size == 0) {
		if (f->state == FLOW_ACCEPTED)
			relay_flow_end(f, false);
		else
			check_bytes(f);
		return;
	}
	switch (first_kind(sight->bytes, sight->size, &reason)) {
	case FIRST_NEED_MORE:
		await_more(f, sight);
		return;
	case FIRST_TLS:
		check_tls(f, sight);
		return;
	case FIRST_HTTP:
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

static size_t check_client(struct relay_flow *f)
{
	struct sight sight;

	if (f->up.allowed > 0 || !look(f, &f->client, &sight))
		return 0;
	if (f->check == CHECK_FIRST)
		check_first(f, &sight);
	else
		check_http(f, &sight);
	return cost_of(&sight);
}

static bool is_silent(const struct relay_flow *f)
{
	uint8_t byte;
	ssize_t n = recv(f->client.source.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

	return f->check == CHECK_FIRST && n < 0 && errno == EAGAIN;
}

/* A client that waits for the server to speak needs what one without a name needs. */
static void run_out_of_patience(struct relay_flow *f)
{
	struct relay_judgement j = { .rule = PLAN_NO_RULE,
				     .reason = "no name came in 5 s" };

	if (is_silent(f))
		j.allowable = judge(f, SHOWN_BYTES, &nobody).allowable;
	relay_refuse_shown(f, REFUSAL_RESET, &j, j.allowable ? &f->name : NULL);
}

static bool is_waiting(const struct relay_flow *f)
{
	return f->check == CHECK_FIRST || f->check == CHECK_HTTP;
}

size_t relay_check(struct relay_flow *f)
{
	size_t cost = RELAY_STEP_COST;

	if (f->client.failed && f->state == FLOW_ACCEPTED) {
		relay_flow_abort(f);
		return cost;
	}
	if (f->check == CHECK_ANSWER)
		cost += check_answer(f);
	if (f->state < FLOW_CLOSING && is_waiting(f))
		cost += check_client(f);
	if (f->out_of_patience && is_waiting(f) && f->state < FLOW_CLOSING)
		run_out_of_patience(f);
	return cost;
}
