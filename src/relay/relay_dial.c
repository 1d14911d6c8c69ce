// SPDX-License-Identifier: Apache-2.0
/* The dial of one connection: one address, or several that race.
 *
 * HOW IT WORKS
 * The client's connect() has succeeded before anything is dialled, so the client can't do
 * what RFC 8305 ("Happy Eyeballs") asks of it: the relay does. The address that was asked
 * for is dialled first. ATTEMPT_DELAY_MS later, or as soon as an attempt has failed, the
 * next learned address of the same name is dialled as well, the other family first, then
 * in turns; no attempt is given up for it. The first that answers is the flow's server,
 * and the others are closed. The client is reset once the last one has failed.
 *
 * Which addresses those are is the policy's to say, each time (relay_verdict_other()):
 * the flow's name teaches the address at this moment and opens it on this port, and no
 * rule denies it. They are judged when they are dialled, again when the plan has changed,
 * and once more when they have answered, by what the client has shown meanwhile; an
 * attempt that doesn't pass is closed like one that failed. A flow that no look-up
 * opened, but an address rule or the default action, has its one address.
 *
 * An address that failed, or that was overtaken, is dialled last for REMEMBER_MS. What is
 * remembered is the sandbox's own, in a table where the newer takes the older's place.
 *
 * Each attempt beside a flow's first is one more flow to the limits: where there is no
 * room for it, it is dialled later. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "relay/relay_internal.h"
#include "sandbox/learned.h"
#include "sys/sock.h"

enum {
	ATTEMPT_DELAY_MS = 250,
	REMEMBER_MS = 60 * 1000,
	REMEMBERED = 64,
	SILENT_MS = 1000, /* an attempt that is younger may still be answered */
};

struct relay_slow {
	struct endpoint to;
	int64_t until_ms;
};

/* ---- what is remembered ---- */

/* NULL: nothing is remembered yet, and @make is false or there is no memory. */
static struct relay_slow *slow_slot(struct relay_sandbox *g, const struct endpoint *to,
				    bool make)
{
	if (!g->slow && make)
		g->slow = calloc(REMEMBERED, sizeof(*g->slow));
	return g->slow ? &g->slow[relay_endpoint_hash(to) % REMEMBERED] : NULL;
}

static bool is_slow(const struct relay_flow *f, const struct addr *a)
{
	const struct endpoint to = { .addr = *a, .port = f->asked.port };
	const struct relay_slow *s = slow_slot(f->served, &to, false);

	return s && s->until_ms > loop_now_ms(f->served->relay->loop) &&
	       endpoint_equal(&s->to, &to);
}

static void remember(struct relay_flow *f, const struct endpoint *to)
{
	struct relay_slow *s = slow_slot(f->served, to, true);

	if (s)
		*s = (struct relay_slow){ *to, loop_now_ms(f->served->relay->loop) +
						       REMEMBER_MS };
}

/* ---- one attempt ---- */

static void on_attempt(struct loop_source *s, uint32_t events)
{
	struct relay_attempt *a = CONTAINER_OF(s, struct relay_attempt, side.source);

	relay_side_note(&a->side, events);
	relay_flow_queue(a->flow);
}

/* @a is over, or its socket is the flow's server now. */
static void attempt_leave(struct relay_attempt *a)
{
	struct relay_sandbox *g = a->flow->served;

	g->extra_attempts -= a->extra;
	g->relay->extra_attempts -= a->extra;
	a->side.source.fd = -1;
	a->flow->dial->open--;
}

static void attempt_close(struct relay_attempt *a, bool reset)
{
	if (a->side.source.fd < 0)
		return;
	relay_side_close(a->flow, &a->side, reset);
	attempt_leave(a);
}

/* Return: 0 or -errno; -EADDRNOTAVAIL: the sandbox has its share of the machine's ports
 * to the server. */
static int attempt_connect(struct relay_attempt *a)
{
	struct relay_sandbox *g = a->flow->served;
	struct relay *relay = g->relay;
	const size_t server = ports_server(&a->to);
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(&a->to, &sa);
	int fd = a->side.source.fd, r;

	/* Where Weir lives in the sandbox's namespace nobody else has its ports. */
	if (g->sandbox->own.mark == 0) {
		if (!g->ports)
			g->ports = calloc(1, sizeof(*g->ports));
		if (!g->ports)
			return -ENOMEM;
		if (!ports_take(g->ports, &relay->ports, server, relay->ports_max,
				loop_now_ms(relay->loop))) {
			relay_limit(g, LIMIT_FLOWS,
				    "too many connections to one server in a minute");
			a->reported = true;
			return -EADDRNOTAVAIL;
		}
		a->side.ports_of = (uint8_t)(server + 1);
	}
	if (a->to.addr.family == ADDR_V6)
		relay_set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	r = own_hold(&g->sandbox->own, fd, (enum addr_family)a->to.addr.family,
		     IPPROTO_TCP);
	if (r < 0)
		return r;
	a->side.own_port = (uint16_t)r;
	if (connect(fd, (const struct sockaddr *)&sa, size) < 0 && errno != EINPROGRESS)
		return -errno;
	/* While the SYN is on its way. */
	relay_set_options(fd);
	return loop_add(relay->loop, &a->side.source, RELAY_SIDE_EVENTS);
}

/* An attempt that failed with @r has not been made: the address is dialled again, once
 * the limits, the machine or the filter have room for it. */
static bool is_for_later(int r)
{
	return r == -EAGAIN || r == -EMFILE || r == -ENFILE || r == -ENOSPC ||
	       r == -EADDRINUSE;
}

/* Return: 0 (under way), -EAGAIN (the limits have no room for it now), or -errno. */
static int attempt_begin(struct relay_flow *f, const struct endpoint *to)
{
	struct relay_sandbox *g = f->served;
	struct relay_dial *d = f->dial;
	struct relay_attempt *a = &d->attempts[d->made];
	int family = to->addr.family == ADDR_V6 ? AF_INET6 : AF_INET;
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	bool extra = d->open > 0;
	const struct relay_need need = { .more = extra };
	enum plan_limit limit;
	int64_t wait_ms;
	int r = 0;

	if (fd < 0)
		return -errno;
	assert(d->made < ARRAY_SIZE(d->attempts)); /* one for each of d->next */
	*a = (struct relay_attempt){
		.side = { .source = { .fd = fd, .on_ready = on_attempt },
			  .family = to->addr.family },
		.flow = f,
		.to = *to,
		.began_ms = loop_now_ms(g->relay->loop),
		.extra = extra,
	};
	/* The first is the connection's own, which has been counted. */
	if (d->made > 0 && relay_shortage(g, fd, &need, &limit, &wait_ms))
		r = -EAGAIN;
	d->open++;
	g->extra_attempts += extra;
	g->relay->extra_attempts += extra;
	r = r < 0 ? r : attempt_connect(a);
	if (r < 0)
		attempt_close(a, false);
	if (!is_for_later(r))
		d->made++;
	a->error = -r;
	return r;
}

/* May the flow go to @to now? What was asked for is judged for itself. */
static bool is_allowed(const struct relay_flow *f, const struct endpoint *to)
{
	struct relay_question asked, q;

	if (addr_equal(&to->addr, &f->asked.addr) || !f->taught)
		return addr_equal(&to->addr, &f->asked.addr);
	asked = relay_flow_question(f, &f->asked);
	q = relay_flow_question(f, to);
	return relay_verdict_other(&q, &asked, (enum relay_shown)f->shown, &f->name);
}

void relay_dial_report(struct relay_flow *f)
{
	int64_t now_ms = loop_now_ms(f->served->relay->loop);

	for (size_t i = 0; f->dial && i < f->dial->made; i++) {
		struct relay_attempt *a = &f->dial->attempts[i];
		bool silent = a->error == 0 && now_ms - a->began_ms >= SILENT_MS;
		const char *why;

		if (a->reported || a->error == EACCES || (a->error == 0 && !silent))
			continue;
		switch (a->error) {
		case 0:
		case ETIMEDOUT:
			why = "the server does not answer";
			break;
		case ECONNREFUSED:
			why = "the server refuses the connection";
			break;
		case ENETUNREACH:
		case EHOSTUNREACH:
			why = "there is no way to the server";
			break;
		case EADDRNOTAVAIL:
			why = "this machine has no port left to the server";
			break;
		default:
			why = "the server can't be reached";
		}
		a->reported = true;
		relay_fail(f->served, &a->to, &f->name, why);
	}
}

/* ---- all of them ---- */

/* Put all addresses that are left into the order of the dial: what was asked for, then
 * the others of the flow's name, the other family first, and in turns; but the slow ones
 * last. */
static void plan_dial(struct relay_flow *f)
{
	const struct sandbox *s = f->served->sandbox;
	const enum addr_family own = (enum addr_family)f->asked.addr.family;
	const enum addr_family families[] = { own == ADDR_V4 ? ADDR_V6 : ADDR_V4, own };
	struct relay_dial *d = f->dial;
	struct addr all[RELAY_ADDRESSES_MAX] = { f->asked.addr };
	struct addr found[2][RELAY_ADDRESSES_MAX];
	size_t first = d->next_at; /* 1: what was asked for has been dialled */
	size_t found_count[2] = { 0 }, count = 1;

	for (size_t i = 0; i < ARRAY_SIZE(families) && f->taught; i++)
		if (families[i] == ADDR_V4 || s->ipv6)
			found_count[i] =
				learned_addrs(s->learned, &f->name, families[i],
					      loop_now_ms(f->served->relay->loop),
					      found[i], RELAY_ADDRESSES_MAX);
	for (size_t i = 0; i < 2 * RELAY_ADDRESSES_MAX; i++) {
		const struct addr *a = &found[i % 2][i / 2];

		if (i / 2 < found_count[i % 2] && count < RELAY_ADDRESSES_MAX &&
		    !addr_equal(a, &f->asked.addr))
			all[count++] = *a;
	}
	d->planned = true;
	d->next_at = d->next_count = 0;
	for (int slow = 0; slow < 2; slow++)
		for (size_t i = first; i < count; i++)
			if (is_slow(f, &all[i]) == (slow == 1))
				d->next[d->next_count++] = all[i];
}

/* Return: 0; -EAGAIN: later; -ENOENT: none is left; or -errno that ends the flow. */
static int dial_next(struct relay_flow *f)
{
	struct relay_dial *d = f->dial;

	for (;;) {
		struct endpoint to = { .port = f->asked.port };
		int r;

		if (d->next_at == d->next_count && d->planned)
			return -ENOENT;
		if (d->next_at == d->next_count) {
			plan_dial(f);
			continue;
		}
		to.addr = d->next[d->next_at];
		r = is_allowed(f, &to) ? attempt_begin(f, &to) : -EACCES;
		if (is_for_later(r))
			return d->open > 0 ? -EAGAIN : r;
		d->next_at++;
		if (r == 0)
			return 0;
		if (r != -EACCES && r != -EADDRNOTAVAIL)
			remember(f, &to);
	}
}

/* Dial the next address. When none is left and none is under way the client is reset: its
 * connect() has succeeded long ago, and a reset is all that can still be said. */
static void go_on(struct relay_flow *f)
{
	struct relay_dial *d = f->dial;
	struct loop *loop = f->served->relay->loop;
	const int64_t now_ms = loop_now_ms(loop);
	int64_t at_ms = now_ms + ATTEMPT_DELAY_MS;
	int r = dial_next(f);

	if (d->open > 0 || (r == -EAGAIN && now_ms - d->began_ms < RELAY_CONNECT_MS)) {
		/* The timer is for the next attempt, and for the end of the oldest. */
		if (d->planned && d->next_at == d->next_count) {
			at_ms = INT64_MAX;
			for (size_t i = 0; i < d->made; i++)
				if (d->attempts[i].side.source.fd >= 0)
					at_ms = MIN(at_ms, d->attempts[i].began_ms +
								   RELAY_CONNECT_MS);
		}
		r = loop_timer_start(loop, &f->timer, at_ms);
		if (r == 0)
			return;
	}
	if (r == -ENOENT)
		f->served->sandbox->counters[COUNT_FLOWS_FAILED]++;
	else
		relay_limit(f->served, LIMIT_FLOWS, "no descriptor or port is free");
	relay_flow_abort(f);
}

void relay_dial_start(struct relay_flow *f)
{
	f->dial = calloc(1, sizeof(*f->dial));
	if (!f->dial) {
		relay_limit(f->served, LIMIT_FLOWS, "no memory is free");
		relay_flow_abort(f);
		return;
	}
	f->state = FLOW_DIALLING;
	f->dial->began_ms = loop_now_ms(f->served->relay->loop);
	if (is_slow(f, &f->asked.addr))
		plan_dial(f);
	else
		f->dial->next[f->dial->next_count++] = f->asked.addr;
	go_on(f);
}

void relay_dial_stop(struct relay_flow *f, bool reset)
{
	if (!f->dial)
		return;
	if (f->server.source.fd < 0) /* nobody has answered */
		relay_dial_report(f);
	for (size_t i = 0; i < f->dial->made; i++)
		attempt_close(&f->dial->attempts[i], reset);
	loop_timer_stop(f->served->relay->loop, &f->timer);
	free(TAKE_PTR(f->dial));
}

void relay_dial_recheck(struct relay_flow *f)
{
	for (size_t i = 0; f->dial && i < f->dial->made; i++)
		if (f->dial->attempts[i].side.source.fd >= 0 &&
		    !is_allowed(f, &f->dial->attempts[i].to)) {
			f->dial->attempts[i].error = EACCES;
			attempt_close(&f->dial->attempts[i], true);
		}
	if (f->dial && f->dial->open == 0)
		go_on(f);
}

/* @winner is the flow's server now, and what began before it, and is behind, is slow. */
static bool end_race(struct relay_flow *f, struct relay_attempt *winner)
{
	struct relay_slow *s = slow_slot(f->served, &winner->to, false);

	for (struct relay_attempt *a = f->dial->attempts; a < winner; a++)
		if (a->side.source.fd >= 0)
			remember(f, &a->to);
	if (is_slow(f, &winner->to.addr))
		s->until_ms = 0;
	f->dialled = winner->to;
	loop_remove(f->served->relay->loop, &winner->side.source);
	f->server = winner->side;
	f->server.source.on_ready = relay_flow_on_server;
	attempt_leave(winner);
	relay_dial_stop(f, false);
	if (loop_add(f->served->relay->loop, &f->server.source, RELAY_SIDE_EVENTS) == 0)
		return true;
	relay_limit(f->served, LIMIT_FLOWS, "no memory is free");
	relay_flow_abort(f);
	return false;
}

bool relay_dial_run(struct relay_flow *f)
{
	const int64_t now_ms = loop_now_ms(f->served->relay->loop);
	bool is_due = f->timed_out;

	f->timed_out = false;
	for (size_t i = 0; i < f->dial->made; i++) {
		struct relay_attempt *a = &f->dial->attempts[i];
		socklen_t size = sizeof(int);
		int e = 0;

		if (a->side.source.fd < 0)
			continue;
		if (!a->side.writable) {
			if (now_ms < a->began_ms + RELAY_CONNECT_MS)
				continue;
			e = ETIMEDOUT;
		} else if (getsockopt(a->side.source.fd, SOL_SOCKET, SO_ERROR, &e,
				      &size) < 0) {
			e = errno;
		}
		if (e == 0 && is_allowed(f, &a->to))
			return end_race(f, a);
		if (e != 0)
			remember(f, &a->to);
		a->error = e != 0 ? e : EACCES;
		attempt_close(a, e == 0);
		is_due = true;
	}
	if (is_due)
		go_on(f);
	return false;
}
