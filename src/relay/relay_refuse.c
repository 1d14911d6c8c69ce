// SPDX-License-Identifier: Apache-2.0
/* What a refused client is told, and what control is.
 *
 * A client that showed TLS or HTTP gets an answer in its own protocol, at once. Then our
 * side of its connection is shut down and what it still sends is read and thrown away for
 * a moment: closing a socket with unread bytes would send a reset, which makes the
 * client's kernel throw the answer away. When requests have passed before on
 * the same connection, the server is told that no more come, and the answers still due
 * go first. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/special.h"
#include "policy/explain.h"
#include "relay/relay_internal.h"
#include "relay/tls.h"
#include "sys/sock.h"

enum {
	BODY_SIZE = 4096,
	MESSAGE_SIZE = BODY_SIZE + 256,
	DRAIN_STEPS = 32, /* reads of RELAY_COPY_BYTES in one run */
};
static_assert(MESSAGE_SIZE <= (int)RELAY_COPY_BYTES, "written into the copy buffer");

static struct event event_for(const struct endpoint *to, enum event_action action)
{
	return (struct event){
		.packets = 1,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.action = (uint8_t)action,
		.layer = EVENT_ADDRESS,
		.protocol = IPPROTO_TCP,
		.remote = to->addr,
		.port = to->port,
	};
}

static void set_reason(struct event *e, const char *reason)
{
	size_t size = MIN(strlen(reason), sizeof(e->reason) - 1);

	memcpy(e->reason, reason, size);
	e->reason[size] = '\0';
}

/* Nobody is led to open the host's own or another special address by accident. */
static bool is_ordinary(const struct relay_question *q)
{
	enum addr_special special = addr_special(&q->to.addr);

	return !q->host_local && q->to.addr.family != ADDR_NONE &&
	       (special == SPECIAL_NOT || special == SPECIAL_PRIVATE);
}

void relay_refuse(struct relay_guest *g, const struct relay_question *q, uint32_t rule,
		  const char *reason)
{
	struct event e = event_for(&q->to, EVENT_DENY);

	g->sandbox->counters[COUNT_FLOWS_DENIED]++;
	e.rule = rule;
	e.allowable = rule == PLAN_NO_RULE && is_ordinary(q);
	set_reason(&e, reason);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

void relay_limit(struct relay_guest *g, enum plan_limit limit, const char *reason)
{
	static const struct endpoint nowhere;
	struct event e = event_for(&nowhere, EVENT_LIMIT);

	g->sandbox->counters[COUNT_FLOWS_LIMITED]++;
	e.limit = (uint8_t)(limit + 1);
	set_reason(&e, reason);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

static void report(struct relay_flow *f)
{
	struct relay_guest *g = f->guest;
	struct event e = event_for(f->dials > 0 ? &f->dialled : &f->asked, EVENT_DENY);
	char text[DNS_NAME_TEXT_SIZE];

	g->sandbox->counters[COUNT_FLOWS_DENIED]++;
	e.layer = EVENT_NAME;
	e.rule = f->rule;
	e.allowable = f->allowable;
	if (f->name.size > 0)
		snprintf(e.name, sizeof(e.name), "%s", dns_name_format(&f->name, text));
	set_reason(&e, f->reason);
	(void)!sock_ends(f->client.source.fd, &e.from, &e.to);
	sandbox_event(g->sandbox, &e, loop_now_ms(g->relay->loop));
}

/* --- the answer --- */

struct body {
	char text[BODY_SIZE];
	size_t size;
};

static void body_add(struct body *b, const char *text)
{
	size_t size = MIN(strlen(text), sizeof(b->text) - 1 - b->size);

	memcpy(b->text + b->size, text, size);
	b->size += size;
	b->text[b->size] = '\0';
}

/* "key": "value"; @value is printable ASCII, and NULL is null. */
static void body_add_member(struct body *b, const char *key, const char *value)
{
	char escaped[3] = { '\\' };

	body_add(b, b->size > 1 ? ", \"" : "\"");
	body_add(b, key);
	body_add(b, value ? "\": \"" : "\": null");
	for (; value && *value; value++) {
		escaped[1] = *value;
		body_add(b, *value == '"' || *value == '\\' ? escaped : escaped + 1);
	}
	body_add(b, value ? "\"" : "");
}

static void write_body(const struct relay_flow *f, struct body *ret)
{
	const struct plan *plan = &f->guest->sandbox->plan;
	char text[DNS_NAME_TEXT_SIZE], rule[POLICY_EXPLAIN_SIZE];
	char option[DNS_NAME_TEXT_SIZE + 32];
	bool named = f->name.size > 0;

	ret->size = 0;
	if (named) {
		dns_name_format(&f->name, text);
		snprintf(option, sizeof(option), "--allow %s:%u", text, f->asked.port);
	}
	body_add(ret, "{");
	body_add_member(ret, "error", "refused by weir");
	body_add_member(ret, "name", named ? text : NULL);
	body_add_member(ret, "reason", f->reason);
	body_add_member(ret, "rule",
			policy_explain_rule(plan, f->rule, rule, sizeof(rule)));
	body_add_member(ret, "allow", named && f->allowable ? option : NULL);
	body_add(ret, "}\n");
}

static size_t write_http(const struct relay_flow *f, char *ret)
{
	bool forbidden = f->refusal == REFUSAL_HTTP_403;
	struct body body;

	write_body(f, &body);
	return (size_t)snprintf(ret, MESSAGE_SIZE,
				"HTTP/1.1 %s\r\n"
				"Content-Type: application/json\r\n"
				"Content-Length: %zu\r\n"
				"Cache-Control: no-store\r\n"
				"Connection: close\r\n\r\n%s",
				forbidden ? "403 Forbidden" : "400 Bad Request",
				body.size, body.text);
}

/* Into @ret, of MESSAGE_SIZE. Return: its size. */
static size_t write_answer(const struct relay_flow *f, uint8_t *ret)
{
	switch (f->refusal) {
	case REFUSAL_CLOSE:
		return 0;
	case REFUSAL_ALERT_NAME:
		tls_alert_write(TLS_ALERT_UNRECOGNIZED_NAME, ret);
		return TLS_ALERT_SIZE;
	case REFUSAL_ALERT_ACCESS:
		tls_alert_write(TLS_ALERT_ACCESS_DENIED, ret);
		return TLS_ALERT_SIZE;
	default:
		return write_http(f, (char *)ret);
	}
}

/* Say it, and that no more comes. */
static void say(struct relay_flow *f)
{
	struct relay *r = f->guest->relay;
	size_t size = write_answer(f, r->copy_buffer);
	int fd = f->client.source.fd;
	bool told = size == 0 || send(fd, r->copy_buffer, size,
				      MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)size;

	f->out_of_patience = false;
	if (!told || shutdown(fd, SHUT_WR) < 0 ||
	    loop_timer_start(r->loop, &f->patience,
			     loop_now_ms(r->loop) + RELAY_GOODBYE_MS) < 0) {
		relay_flow_abort(f);
		return;
	}
	f->state = FLOW_REFUSED;
	f->client.readable = true;
	relay_flow_queue(f);
}

static void keep_going(struct relay_flow *f)
{
	struct loop *loop = f->guest->relay->loop;

	f->state = FLOW_CLOSING;
	f->up.allowed = 0;
	f->down.allowed = RELAY_ALL;
	f->down.keep_open = true;
	if (loop_timer_start(loop, &f->patience, loop_now_ms(loop) + RELAY_GOODBYE_MS) <
	    0)
		relay_flow_abort(f);
	else
		relay_flow_queue(f);
}

void relay_refuse_shown(struct relay_flow *f, enum relay_refusal how,
			const struct relay_judgement *j, const struct dns_name *name)
{
	struct relay *r = f->guest->relay;

	f->refusal = (uint8_t)how;
	f->rule = j->rule;
	f->reason = j->reason;
	f->allowable = j->allowable;
	f->name = name ? *name : (struct dns_name){ .size = 0 };
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
		say(f);
	}
}

void relay_hang_up(struct relay_flow *f)
{
	f->refusal = REFUSAL_CLOSE;
	keep_going(f);
}

/* --- the goodbye --- */

void relay_goodbye_now(struct relay_flow *f)
{
	relay_side_close(f, &f->server, true);
	relay_way_done(f->guest, &f->up);
	relay_way_done(f->guest, &f->down);
	say(f);
}

/* What was let through goes to the server, then the end; its answers come back. */
static size_t finish(struct relay_flow *f)
{
	size_t cost = RELAY_STEP_COST;
	enum relay_moved down, up = MOVE_WAIT;

	if (!f->up.ended)
		up = relay_move(f, &f->up, &f->client, &f->server, &cost);
	if (f->up.waiting == 0 && !f->up.ended) {
		f->up.ended = true;
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

/* Read what the client still sends, to its end. */
static size_t drain(struct relay_flow *f)
{
	int fd = f->client.source.fd;
	ssize_t n = 1;

	for (int i = 0; i < DRAIN_STEPS && n > 0; i++)
		n = recv(fd, NULL, RELAY_COPY_BYTES, MSG_TRUNC | MSG_DONTWAIT);
	if (n > 0)
		relay_flow_queue(f);
	else if (n == 0)
		relay_flow_end(f, false);
	else if (errno != EAGAIN && errno != EINTR)
		relay_flow_abort(f);
	else if (f->out_of_patience)
		relay_flow_end(f, false);
	return DRAIN_STEPS * RELAY_STEP_COST;
}

size_t relay_goodbye(struct relay_flow *f)
{
	return f->state == FLOW_CLOSING ? finish(f) : drain(f);
}
