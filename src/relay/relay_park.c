// SPDX-License-Identifier: Apache-2.0
/* Connections to the address that stands for a name that asks (sandbox/asks.h).
 *
 * HOW IT WORKS
 * Such a connection is accepted, as each that the relay gets, and then nothing is read of
 * it and nothing is dialled: it is parked, until its name is granted. The name is looked
 * up then, as if the sandbox had asked for it, under the plan of that moment and through
 * the same checks; what it teaches is what the connection is dialled to, and from there
 * on it is a connection like others: what it shows is judged, and so is its address. The
 * client has noticed nothing.
 *
 * A connection that is refused, because somebody said so, a rule does by now, or its time
 * is over, gets the answer that denied names get, in its own protocol. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "dns/message.h"
#include "policy/plan.h"
#include "relay/relay_internal.h"
#include "sandbox/asks.h"
#include "sandbox/learned.h"
#include "sys/sock.h"

enum {
	LOOK_UP_MS = 30 * 1000, /* the resolver has long given up by then */
};

static int64_t now_of(const struct relay_flow *f)
{
	return loop_now_ms(f->served->relay->loop);
}

void relay_park_leave(struct relay_flow *f)
{
	if (f->is_parked)
		asks_unpark(f->served->sandbox);
	f->is_parked = false;
	f->lookups = 0;
}

static struct event event_of(const struct relay_flow *f, uint32_t rule)
{
	struct event e = event_make(EVENT_DENY, EVENT_NAME);

	e.protocol = IPPROTO_TCP;
	e.port = f->asked.port;
	e.rule = rule;
	sandbox_event_name(&e, &f->name);
	(void)!sock_ends(f->client.source.fd, &e.from, &e.to);
	return e;
}

/* @allowable: a rule could let it through. */
static void refuse_as(struct relay_flow *f, const struct plan_verdict *v, const char *why,
		      bool allowable)
{
	struct sandbox *s = f->served->sandbox;
	struct event e = event_of(f, v->rule);

	relay_park_leave(f);
	loop_timer_stop(f->served->relay->loop, &f->timer);
	f->timed_out = false;
	f->reported = true;
	f->sinkhole = true;
	f->rule = v->rule;
	f->reason = why;
	f->allowable = allowable;
	e.allowable = allowable;
	event_set_reason(&e, why);
	s->counters[COUNT_FLOWS_DENIED]++;
	sandbox_event(s, &e, now_of(f));
	f->state = FLOW_ACCEPTED;
	relay_flow_await_first(f);
	if (f->state != FLOW_DEAD)
		relay_flow_queue(f);
}

static void refuse_parked(struct relay_flow *f, const struct plan_verdict *v,
			  const char *why)
{
	refuse_as(f, v, why, v->action != POLICY_DENY || v->rule == PLAN_NO_RULE);
}

/* The granted name is looked up, once for all flows that wait for it. */
static void begin_look_up(struct relay_flow *f)
{
	struct sandbox *s = f->served->sandbox;
	struct relay_flow *other;

	relay_park_leave(f);
	f->timed_out = false;
	if (!s->look_up ||
	    loop_timer_in(f->served->relay->loop, &f->timer, LOOK_UP_MS) < 0) {
		relay_flow_abort(f);
		return;
	}
	LIST_FOREACH(other, &f->served->flows, in_sandbox)
	{
		if (other != f && other->state == FLOW_PARKED && other->lookups > 0 &&
		    dns_name_equal(&other->name, &f->name)) {
			f->lookups = other->lookups;
			return;
		}
	}
	f->lookups = s->ipv6 ? 2 : 1;
	s->look_up(s, &f->name, DNS_TYPE_A);
	if (s->ipv6)
		s->look_up(s, &f->name, DNS_TYPE_AAAA);
}

/* @f takes a place. Whoever has closed its side may have gone, or wait with one side
 * closed: nothing tells which. So of those that have, the newest for the name and port
 * alone waits on, and a client that tries again and again takes two places. */
static void refuse_superseded(const struct relay_flow *f, const struct plan_verdict *v)
{
	struct relay_flow *other, *next;
	struct tcp_info info;
	socklen_t size;
	bool is_newest = true;

	for (other = LIST_FIRST(&f->served->flows); other; other = next) {
		next = LIST_NEXT(other, in_sandbox); /* the newest comes first */
		if (other == f || other->state != FLOW_PARKED || !other->is_parked ||
		    other->asked.port != f->asked.port ||
		    !dns_name_equal(&other->name, &f->name))
			continue;
		/* The client has finished sending: it may wait for an answer or not. */
		size = sizeof(info);
		if (!other->client.hung_up &&
		    (getsockopt(other->client.source.fd, IPPROTO_TCP, TCP_INFO, &info,
				&size) < 0 ||
		     info.tcpi_state == TCP_ESTABLISHED))
			continue;
		/* The one that came after it waits for the same rule. */
		if (!is_newest)
			refuse_as(other, v,
				  "asked, closed by the client, and asked again", false);
		is_newest = false;
	}
}

static void park(struct relay_flow *f, const struct plan_verdict *v)
{
	struct sandbox *s = f->served->sandbox;
	const int64_t ms = 1000 * (int64_t)plan_limit(&s->plan, LIMIT_ASK_TIMEOUT_SEC);
	const struct asked what = { .name = f->name,
				    .protocol = IPPROTO_TCP,
				    .port = f->asked.port };
	struct event e = event_of(f, v->rule);

	if (asks_is_dismissed(s, &what)) {
		refuse_parked(f, v, ASKS_DISMISSED);
		return;
	}
	refuse_superseded(f, v);
	if (!asks_park(s, &e, now_of(f))) {
		refuse_parked(f, v, ASKS_TOO_MANY);
		return;
	}
	f->is_parked = true;
	if (loop_timer_in(f->served->relay->loop, &f->timer, ms) < 0)
		refuse_parked(f, v, ASKS_TOO_MANY);
}

/* By the plan as it is now. */
void relay_park_recheck(struct relay_flow *f)
{
	const struct plan *p = &f->served->sandbox->plan;
	const struct plan_verdict v = plan_match_name(p, &f->name);
	const bool has_port =
		plan_port_list_has(p, v.port_list, IPPROTO_TCP, f->asked.port);

	if (v.action == POLICY_DENY)
		refuse_parked(f, &v, plan_reason(v, "the name is not allowed"));
	else if (v.action == POLICY_ASK && !has_port)
		refuse_parked(f, &v, "the rule does not list this port");
	else if (v.action == POLICY_ALLOW && has_port && f->lookups == 0)
		begin_look_up(f);
	else if (f->lookups > 0 && !(v.action == POLICY_ALLOW && has_port))
		refuse_parked(f, &v, "the grant has ended");
	/* A grant of another port of the name leaves this one waiting. */
	else if (f->lookups == 0 && !f->is_parked)
		park(f, &v);
}

bool relay_park_begin(struct relay_flow *f)
{
	struct sandbox *s = f->served->sandbox;
	const struct dns_name *name = asks_name(s, &f->asked.addr, now_of(f));

	if (!name)
		return false;
	f->state = FLOW_PARKED;
	f->name = *name;
	relay_park_recheck(f);
	return true;
}

/* Of the family that the client has dialled, if the name has one of it. */
static bool find_address(const struct relay_flow *f, struct addr *ret)
{
	const struct sandbox *s = f->served->sandbox;
	const enum addr_family own = (enum addr_family)f->asked.addr.family;
	const enum addr_family other = own == ADDR_V4 ? ADDR_V6 : ADDR_V4;

	return learned_addrs(s->learned, &f->name, own, now_of(f), ret, 1) > 0 ||
	       ((s->ipv6 || other == ADDR_V4) &&
		learned_addrs(s->learned, &f->name, other, now_of(f), ret, 1) > 0);
}

void relay_park_run(struct relay_flow *f)
{
	uint8_t byte;
	/* The client has closed its side, and nothing that it sent is to go anywhere. */
	const bool is_gone = f->client.failed ||
			     (f->client.hung_up && recv(f->client.source.fd, &byte, 1,
							MSG_PEEK | MSG_DONTWAIT) == 0);
	const bool is_over = f->timed_out, is_looked_up = f->is_looked_up;
	const struct plan_verdict v =
		plan_match_name(&f->served->sandbox->plan, &f->name);
	struct addr a;

	f->timed_out = f->is_looked_up = false;
	if (is_gone)
		relay_flow_abort(f);
	else if (f->lookups == 0 && f->is_dismissed)
		refuse_parked(f, &v, ASKS_DISMISSED);
	else if (is_over && f->is_parked)
		refuse_parked(f, &v, ASKS_UNANSWERED);
	else if (is_looked_up && find_address(f, &a)) {
		/* The connection goes on as if it had been made to @a. */
		relay_park_leave(f);
		loop_timer_stop(f->served->relay->loop, &f->timer);
		f->timed_out = false;
		f->asked.addr = f->dialled.addr = a;
		f->name = (struct dns_name){ .size = 0 };
		relay_flow_begin(f);
		if (f->state != FLOW_DEAD)
			relay_flow_queue(f);
	} else if ((is_looked_up && f->lookups == 0) || is_over) {
		f->served->sandbox->counters[COUNT_FLOWS_FAILED]++;
		relay_fail(f->served, &f->asked, &f->name,
			   "the granted name has no address");
		relay_flow_abort(f);
	}
}

void relay_looked_up(struct sandbox *s, const struct dns_name *name)
{
	struct relay_flow *f;

	if (!s->relayed)
		return;
	LIST_FOREACH(f, &s->relayed->flows, in_sandbox)
	{
		if (f->state != FLOW_PARKED || f->lookups == 0 ||
		    !dns_name_equal(&f->name, name))
			continue;
		f->lookups--;
		f->is_looked_up = true;
		relay_flow_queue(f);
	}
}

void relay_dismiss(struct sandbox *s, const struct asked *what)
{
	const struct plan_verdict v = plan_match_name(&s->plan, &what->name);
	struct relay_flow *f;

	if (!s->relayed)
		return;
	LIST_FOREACH(f, &s->relayed->flows, in_sandbox)
	{
		/* The grant has come first, and the flow will hear of it. */
		if (v.action == POLICY_ALLOW &&
		    plan_port_list_has(&s->plan, v.port_list, IPPROTO_TCP, f->asked.port))
			continue;
		if (f->state != FLOW_PARKED || !f->is_parked ||
		    (what->port != 0 && what->port != f->asked.port) ||
		    (what->protocol != 0 && what->protocol != IPPROTO_TCP) ||
		    !dns_name_equal(&f->name, &what->name))
			continue;
		f->is_dismissed = true;
		relay_flow_queue(f);
	}
}
