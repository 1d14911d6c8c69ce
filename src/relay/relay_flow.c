// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/special.h"
#include "policy/plan.h"
#include "relay/relay_internal.h"
#include "sandbox/budgets.h"
#include "sandbox/learned.h"
#include "sandbox/verdict.h"
#include "sys/link.h"
#include "sys/sock.h"

enum {
	KEEPALIVE_IDLE_SEC = 300,
	KEEPALIVE_INTERVAL_SEC = 30,
	KEEPALIVE_PROBES = 6,
	SENDING_LOOK_MS = 100, /* how often what a socket still has is looked at */
};

void relay_reset_fd(int fd)
{
	sock_reset(fd);
	close(fd);
}

void relay_set_option(int fd, int level, int option, int value)
{
	/* None of them decides what may pass: a socket without one still works. */
	(void)setsockopt(fd, level, option, &value, sizeof(value));
}

void relay_set_options(int fd)
{
	relay_set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	relay_set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	relay_set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_SEC);
	relay_set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_SEC);
	relay_set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
	/* Urgent bytes are bytes like others. */
	relay_set_option(fd, SOL_SOCKET, SO_OOBINLINE, 1);
}

/* ---- the bytes of a flow ---- */

static bool pipe_borrow(struct relay_sandbox *g, struct relay_way *way)
{
	struct relay *r = g->relay;
	struct relay_pipe *p = SLIST_FIRST(&r->pipes);

	if (way->pipe)
		return true;
	if (g->pipe_count >= RELAY_PIPES_PER_SANDBOX)
		return false;
	if (p) {
		SLIST_REMOVE_HEAD(&r->pipes, link);
	} else {
		p = r->pipe_count < r->pipes_max ? calloc(1, sizeof(*p)) : NULL;
		if (!p || pipe2(p->fd, O_NONBLOCK | O_CLOEXEC) < 0) {
			free(p);
			return false;
		}
		r->pipe_count++;
	}
	g->pipe_count++;
	way->pipe = p;
	return true;
}

void relay_way_done(struct relay_sandbox *g, struct relay_way *way)
{
	struct relay_pipe *p = way->pipe;

	if (!p)
		return;
	way->pipe = NULL;
	g->pipe_count--;
	if (way->waiting > 0) {
		close(p->fd[0]);
		close(p->fd[1]);
		free(p);
		g->relay->pipe_count--;
	} else {
		SLIST_INSERT_HEAD(&g->relay->pipes, p, link);
	}
	way->waiting = 0;
}

/* What came of one system call on a socket. */
enum step { STEP_BLOCKED, STEP_MOVED, STEP_EOF, STEP_FAILED };

static enum step step_of(ssize_t n, bool *ready)
{
	if (n > 0)
		return STEP_MOVED;
	if (n == 0)
		return STEP_EOF;
	if (errno == EINTR)
		return STEP_MOVED;
	if (errno != EAGAIN)
		return STEP_FAILED;
	*ready = false;
	return STEP_BLOCKED;
}

static void use_up(struct relay_way *way, size_t n)
{
	if (way->allowed != RELAY_ALL)
		way->allowed -= n;
}

/* Plain copies keep nothing between calls: bytes are looked at, sent as far as they
 * can be, and only then taken. */
static enum step copy_once(struct relay *r, struct relay_way *way, uint64_t allowed,
			   struct relay_side *from, struct relay_side *to, size_t *moved)
{
	size_t room = (size_t)MIN((uint64_t)RELAY_COPY_BYTES, allowed);
	ssize_t seen = recv(from->source.fd, r->copy_buffer, room, MSG_PEEK);
	enum step step = step_of(seen, &from->readable);
	ssize_t sent;

	if (step != STEP_MOVED || seen < 0)
		return step;
	sent = send(to->source.fd, r->copy_buffer, (size_t)seen, MSG_NOSIGNAL);
	step = step_of(sent, &to->writable);
	if (step == STEP_EOF)
		return STEP_FAILED;
	if (step != STEP_MOVED || sent < 0)
		return step;
	*moved += (size_t)sent;
	use_up(way, (size_t)sent);
	/* TCP: MSG_TRUNC throws the bytes away without copying them. */
	if (recv(from->source.fd, NULL, (size_t)sent, MSG_TRUNC) != sent)
		return STEP_FAILED;
	return STEP_MOVED;
}

static enum step pipe_fill(struct relay_way *way, uint64_t allowed,
			   struct relay_side *from)
{
	size_t most = (size_t)MIN((uint64_t)RELAY_SPLICE_BYTES, allowed);
	ssize_t n = splice(from->source.fd, NULL, way->pipe->fd[1], NULL, most,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	enum step step = step_of(n, &from->readable);
	char byte;

	/* splice() also says 0 in front of urgent data once the peer has finished: only
	 * recv() can tell that from the end. */
	if (step == STEP_EOF && recv(from->source.fd, &byte, 1, MSG_PEEK) != 0) {
		from->urgent = true;
		return STEP_MOVED;
	}
	if (n > 0) {
		way->waiting = (uint32_t)n;
		use_up(way, (size_t)n);
	}
	return step;
}

static enum step pipe_drain(struct relay_way *way, struct relay_side *to, size_t *moved)
{
	ssize_t n = splice(way->pipe->fd[0], NULL, to->source.fd, NULL, way->waiting,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	enum step step = step_of(n, &to->writable);

	if (step == STEP_EOF)
		return STEP_FAILED;
	if (n > 0) {
		way->waiting -= (uint32_t)n;
		*moved += (size_t)n;
	}
	return step;
}

/* What is taken of a budget is never more than it has, whatever flows share it. */
static enum step move_once(struct relay_flow *f, struct relay_way *way,
			   struct relay_side *from, struct relay_side *to, size_t *moved)
{
	struct sandbox *s = f->served->sandbox;
	const struct plan *p = &s->plan;
	const struct endpoint *dialled = &f->dialled;
	const int64_t now_ms = loop_now_ms(f->served->relay->loop);
	const bool is_up = way == &f->up;
	const size_t before = *moved;
	uint64_t allowed, which = 0;
	struct plan_verdict v;
	enum step step;

	if (!to->writable)
		return STEP_BLOCKED;
	if (way->waiting > 0)
		return pipe_drain(way, to, moved);
	/* These budgets pay: the policy's own, that of the rule which opened the flow,
	 * that of the rule which opened the tunnel that the flow is, and that of the
	 * address rule which opens the address, where any name may be shown. */
	if (plan_budget_count(p) > 0) {
		v = plan_judge_addr(p, &dialled->addr, IPPROTO_TCP, dialled->port);
		which = budgets_of(p, PLAN_NO_RULE) | budgets_of(p, f->opened_rule) |
			f->other_budgets | budgets_of(p, v.rule);
	}
	allowed = MIN(way->allowed, budgets_left(s->budgets, p, which, !is_up, now_ms));
	if (!from->readable || allowed == 0)
		return STEP_BLOCKED;
	if (from->urgent || !pipe_borrow(f->served, way))
		step = copy_once(f->served->relay, way, allowed, from, to, moved);
	else
		step = pipe_fill(way, allowed, from);
	sandbox_spend(s, which, is_up ? *moved - before + way->waiting : 0,
		      is_up ? 0 : *moved - before + way->waiting, now_ms);
	return step;
}

enum relay_moved relay_move(struct relay_flow *f, struct relay_way *way,
			    struct relay_side *from, struct relay_side *to, size_t *cost)
{
	enum step step = STEP_MOVED;
	size_t moved = 0, steps = 0;

	if (way->ended)
		return MOVE_END;
	while (step == STEP_MOVED && moved < RELAY_FLOW_QUANTUM &&
	       steps++ < RELAY_FLOW_STEPS)
		step = move_once(f, way, from, to, &moved);
	if (way->waiting == 0)
		relay_way_done(f->served, way);
	if (way == &f->up)
		f->sent += moved;
	else
		f->received += moved;
	f->answered = f->answered || f->received > 0;
	*cost += moved + steps * RELAY_STEP_COST;
	switch (step) {
	case STEP_BLOCKED:
		return MOVE_WAIT;
	case STEP_MOVED:
		return MOVE_MORE;
	case STEP_EOF:
		way->ended = true;
		f->ended_first |= way == &f->up && !f->down.ended;
		if (!way->keep_open && shutdown(to->source.fd, SHUT_WR) < 0)
			return MOVE_FAILED;
		return MOVE_END;
	default:
		return MOVE_FAILED;
	}
}

/* ---- events ---- */

void relay_flow_queue(struct relay_flow *f)
{
	struct relay_sandbox *g = f->served;

	if (f->queued || f->state == FLOW_DEAD)
		return;
	f->queued = true;
	if (TAILQ_EMPTY(&g->ready))
		TAILQ_INSERT_TAIL(&g->relay->ready, g, in_ready);
	TAILQ_INSERT_TAIL(&g->ready, f, in_queue);
	relay_schedule(g->relay);
}

void relay_side_note(struct relay_side *side, uint32_t events)
{
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		side->readable = true;
	if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
		side->writable = true;
	if (events & EPOLLERR)
		side->failed = true;
	if (events & (EPOLLRDHUP | EPOLLHUP))
		side->hung_up = true;
	if (events & EPOLLPRI)
		side->urgent = true;
}

static void on_client(struct loop_source *s, uint32_t events)
{
	struct relay_flow *f = CONTAINER_OF(s, struct relay_flow, client.source);

	relay_side_note(&f->client, events);
	relay_flow_queue(f);
}

void relay_flow_on_server(struct loop_source *s, uint32_t events)
{
	struct relay_flow *f = CONTAINER_OF(s, struct relay_flow, server.source);

	relay_side_note(&f->server, events);
	relay_flow_queue(f);
}

static void on_timer(struct loop_timer *t)
{
	struct relay_flow *f = CONTAINER_OF(t, struct relay_flow, timer);

	f->timed_out = true;
	relay_flow_queue(f);
}

static void on_patience_over(struct loop_timer *t)
{
	struct relay_flow *f = CONTAINER_OF(t, struct relay_flow, patience);

	f->out_of_patience = true;
	relay_flow_queue(f);
}

void relay_side_close(struct relay_flow *f, struct relay_side *side, bool reset)
{
	const int64_t now_ms = loop_now_ms(f->served->relay->loop);
	const bool is_server = side == &f->server;
	const bool is_open = side->writable && !side->failed;
	/* Whoever says the end first keeps the port for a minute. */
	const bool ends = !reset && is_open && !(is_server && f->down.ended);
	const bool rests = ends || (is_server && f->ended_first);
	int fd = side->source.fd;

	if (fd < 0)
		return;
	loop_remove(f->served->relay->loop, &side->source);
	if (side->own_port != 0) {
		/* The last packet leaves while the port is still known as Weir's. */
		if (reset)
			sock_reset(fd);
		own_let_go(&f->served->sandbox->own, fd, (enum addr_family)side->family,
			   IPPROTO_TCP, side->own_port);
		side->own_port = 0;
	}
	if (side->ports_of != 0) {
		ports_give(f->served->ports, side->ports_of - 1U, rests, now_ms);
		ports_give(&f->served->relay->ports, side->ports_of - 1U, rests, now_ms);
		side->ports_of = 0;
	}
	side->source.fd = -1;
	if (reset)
		relay_reset_fd(fd);
	else
		close(fd);
}

void relay_flow_end(struct relay_flow *f, bool reset)
{
	struct relay_sandbox *g = f->served;
	struct relay *r = g->relay;

	relay_flow_account(f);
	relay_park_leave(f);
	relay_side_close(f, &f->client, reset);
	relay_side_close(f, &f->server, reset);
	relay_dial_stop(f, reset);
	relay_way_done(g, &f->up);
	relay_way_done(g, &f->down);
	loop_timer_stop(r->loop, &f->timer);
	loop_timer_stop(r->loop, &f->patience);
	if (f->queued) {
		f->queued = false;
		TAILQ_REMOVE(&g->ready, f, in_queue);
		if (TAILQ_EMPTY(&g->ready))
			TAILQ_REMOVE(&r->ready, g, in_ready);
	}
	free(TAKE_PTR(f->refused));
	f->state = FLOW_DEAD;
	if (g->unchecked == f)
		g->unchecked = LIST_NEXT(f, in_sandbox);
	LIST_REMOVE(f, in_sandbox);
	g->flow_count--;
	r->flow_count--;
	TAILQ_INSERT_TAIL(&r->dead, f, in_queue);
	relay_schedule(r);
}

void relay_flow_abort(struct relay_flow *f)
{
	relay_flow_end(f, true);
}

/* Whatever can't be looked up counts as the host's own. So does an IPv6 address that
 * carries an IPv4 address of the host: a translator leads back to the host. */
static bool is_host_local(const struct relay *r, const struct addr *a)
{
	struct addr v4;

	return link_addr_is_local(r->route_fd, a) != 0 ||
	       (addr_embedded_v4(a, &v4) && link_addr_is_local(r->route_fd, &v4) != 0);
}

struct relay_question relay_flow_question(const struct relay_flow *f,
					  const struct endpoint *to)
{
	const struct sandbox *s = f->served->sandbox;
	bool host_local = addr_equal(&to->addr, &f->asked.addr)
				  ? f->host_local
				  : is_host_local(f->served->relay, &to->addr);

	return (struct relay_question){
		.plan = &s->plan,
		.learned = s->learned,
		.to = *to,
		.host_local = host_local,
		.shared = s->shared && s->own.mark != 0,
		.now_ms = loop_now_ms(f->served->relay->loop),
	};
}

size_t relay_flow_recheck(struct relay_flow *f)
{
	enum relay_shown shown = (enum relay_shown)f->shown;
	struct relay_question q;
	struct relay_verdict v;

	if (!f->recheck)
		return 0;
	f->recheck = false;
	/* The rule that has refused @f may have another number by now, or be gone. */
	f->rule = PLAN_NO_RULE;
	f->allowable = false;
	if (f->state == FLOW_WAITING || f->state == FLOW_REFUSED ||
	    f->state == FLOW_DEAD || f->sinkhole)
		return 0;
	if (f->state == FLOW_PARKED) {
		relay_park_recheck(f);
		return RELAY_RECHECK_COST;
	}
	/* A flow of the time before `verify: tls` has shown bytes of some kind. */
	if (shown == SHOWN_NOTHING && f->check == CHECK_DONE)
		shown = SHOWN_BYTES;
	q = relay_flow_question(f, &f->asked);
	v = relay_verdict_again(&q, shown, &f->name, f->taught);
	if (v.allowed && !addr_equal(&f->dialled.addr, &f->asked.addr)) {
		q = relay_flow_question(f, &f->dialled);
		v = relay_verdict_again(&q, shown, &f->name, f->taught);
	}
	if (v.allowed && f->several) {
		relay_fail(
			f->served, &f->dialled, &f->name,
			"the policy has changed, and the connection had several names");
		relay_flow_abort(f);
		return RELAY_RECHECK_RESET_COST;
	}
	if (v.allowed) {
		f->opened_rule = v.rule; /* its number may be another one */
		relay_dial_recheck(f);
		return RELAY_RECHECK_COST;
	}
	if (f->state == FLOW_CLOSING) {
		relay_goodbye_now(f);
	} else {
		relay_refuse(f->served, &q.to, &v);
		relay_flow_abort(f);
	}
	return RELAY_RECHECK_RESET_COST;
}

/* The kernel still has bytes for a server that reads slowly: a socket that is closed now
 * would send them on its own, whatever the policy becomes meanwhile. False as well when
 * they can't be waited for. */
static bool is_still_sending(struct relay_flow *f)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	return getsockopt(f->server.source.fd, IPPROTO_TCP, TCP_INFO, &info, &size) ==
		       0 &&
	       info.tcpi_notsent_bytes > 0 &&
	       loop_timer_in(f->served->relay->loop, &f->timer, SENDING_LOOK_MS) == 0;
}

/* Move bytes both ways; end the flow when both have ended or a side is broken. A side
 * that has failed is read to its last byte first, as far as the other one takes it. */
static size_t flow_move(struct relay_flow *f)
{
	size_t cost = 0;
	enum relay_moved up = relay_move(f, &f->up, &f->client, &f->server, &cost);
	enum relay_moved down = relay_move(f, &f->down, &f->server, &f->client, &cost);
	/* What was judged has gone, and more may be there. */
	const bool checks_server = f->check == CHECK_ANSWER || f->check == CHECK_HELLO;
	const bool is_to_be_checked =
		(f->check == CHECK_FIRST && f->word && f->answered) ||
		(relay_reads_client(f) && f->up.allowed == 0 && f->client.readable) ||
		(checks_server && f->down.allowed == 0 && f->server.readable);

	if (up == MOVE_FAILED || down == MOVE_FAILED ||
	    (f->client.failed && up != MOVE_MORE) ||
	    (f->server.failed && down != MOVE_MORE))
		relay_flow_abort(f);
	else if (up == MOVE_END && down == MOVE_END && !is_still_sending(f))
		relay_flow_end(f, false);
	else if (up == MOVE_MORE || down == MOVE_MORE || is_to_be_checked)
		relay_flow_queue(f);
	return cost;
}

static void report_open(struct relay_flow *f);

/* The self-test wants to know whether the first allowed host can be reached, not to talk
 * to it: it is told so, and no byte passes in either direction. */
static void flow_check_dial(struct relay_flow *f)
{
	if (f->client.failed) {
		relay_flow_abort(f);
		return;
	}
	if (!relay_dial_run(f))
		return;
	f->state = FLOW_OPEN;
	f->opened = true;
	report_open(f);
	if (f->served->sandbox->state != SANDBOX_TESTING)
		return;
	if (send(f->client.source.fd, "W", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
		relay_flow_end(f, false);
	else
		relay_flow_abort(f);
}

void relay_flow_await_first(struct relay_flow *f)
{
	const bool is_short = f->sinkhole && !plan_is_web_port(f->asked.port);

	if (loop_timer_in(f->served->relay->loop, &f->patience,
			  is_short ? RELAY_SINKHOLE_MS : RELAY_LOOK_MS) == 0)
		return;
	relay_limit(f->served, LIMIT_FLOWS, "no memory is free");
	relay_flow_abort(f);
}

/* Dial now, or when a name was shown. */
void relay_flow_begin(struct relay_flow *f)
{
	const struct plan *p = &f->served->sandbox->plan;
	struct relay_question q;
	struct relay_verdict v;

	if (relay_park_begin(f))
		return;
	f->state = FLOW_ACCEPTED;
	f->sinkhole = (plan_denied_names(p) == POLICY_DENIED_REFUSE || plan_asks(p)) &&
		      sinkhole_has(&f->asked.addr);
	if (f->sinkhole) {
		relay_flow_await_first(f);
		return;
	}
	f->host_local = is_host_local(f->served->relay, &f->asked.addr);
	q = relay_flow_question(f, &f->asked);
	v = relay_verdict_of(&q);
	f->name = v.name;
	f->taught = v.taught;
	f->opened_rule = v.rule;
	if (!v.allowed) {
		relay_refuse(f->served, &q.to, &v);
		relay_flow_abort(f);
		return;
	}
	f->served->sandbox->counters[COUNT_FLOWS]++;
	if (plan_verify(p) == POLICY_VERIFY_DNS) {
		f->check = CHECK_DONE;
		f->up.allowed = RELAY_ALL;
	}
	/* The self-test shows nothing, and no byte of it passes. */
	if (f->check == CHECK_DONE || f->served->sandbox->state == SANDBOX_TESTING) {
		relay_dial_start(f);
		return;
	}
	v = relay_verdict_shown(&q, SHOWN_BYTES, &f->name, &f->name);
	if (v.allowed) {
		f->name = v.name;
		f->taught = v.taught;
		f->opened_rule = v.rule;
		relay_dial_start(f);
	} else {
		relay_flow_await_first(f);
	}
}

size_t relay_flow_run(struct relay_flow *f)
{
	size_t cost = RELAY_STEP_COST;

	cost += relay_flow_recheck(f);
	if (f->state == FLOW_DEAD)
		return cost;
	if (f->state == FLOW_WAITING) {
		if (f->client.failed) {
			relay_flow_abort(f);
		} else if (f->timed_out) {
			f->timed_out = false;
			relay_flow_begin(f);
		}
		return cost;
	}
	if (f->state == FLOW_PARKED) {
		relay_park_run(f);
		return cost;
	}
	if (f->state == FLOW_CLOSING)
		return relay_finish(f);
	if (f->state == FLOW_REFUSED)
		return relay_drain_client(f);
	if (f->state == FLOW_DIALLING)
		flow_check_dial(f);
	if (f->check != CHECK_DONE && f->state != FLOW_DEAD)
		cost += relay_check(f);
	if (f->state == FLOW_OPEN)
		cost += flow_move(f);
	return cost;
}

void relay_flow_start(struct relay_sandbox *g, int client_fd,
		      const struct endpoint *asked, int64_t wait_ms)
{
	struct relay *r = g->relay;
	struct relay_flow *f = LIST_FIRST(&r->spares);

	if (f) {
		LIST_REMOVE(f, in_sandbox);
		r->spare_count--;
		*f = (struct relay_flow){ 0 };
	} else {
		f = calloc(1, sizeof(*f));
	}
	if (!f) {
		relay_limit(g, LIMIT_FLOWS, "no memory is free");
		relay_reset_fd(client_fd);
		return;
	}
	f->served = g;
	f->asked = f->dialled = *asked;
	f->state = FLOW_WAITING;
	f->client.source = (struct loop_source){ .fd = client_fd, .on_ready = on_client };
	f->server.source.fd = -1;
	f->timer.on_fire = on_timer;
	f->patience.on_fire = on_patience_over;
	f->down.allowed = RELAY_ALL;
	LIST_INSERT_HEAD(&g->flows, f, in_sandbox);
	g->flow_count++;
	r->flow_count++;
	if (loop_add(r->loop, &f->client.source, RELAY_SIDE_EVENTS) < 0 ||
	    (wait_ms > 0 && loop_timer_in(r->loop, &f->timer, wait_ms) < 0))
		relay_flow_abort(f);
	else if (wait_ms == 0)
		relay_flow_begin(f);
}

/* ---- what has passed ---- */

static struct event passed_event(const struct relay_flow *f)
{
	const struct sandbox *s = f->served->sandbox;
	const bool is_open = plan_is_open(&s->plan);
	const bool no_name = f->shown == SHOWN_NO_NAME && is_open;
	const struct dns_name *name = f->name.size > 0 ? &f->name : NULL;
	struct learned_use use;
	struct event e = relay_event(&f->dialled, EVENT_ALLOW);

	/* Where no name opened the flow or was shown: under an open plan
	 * (policy/advice.h) a rule opens every address, and the name that was looked up
	 * last is told. Without a server name in what was shown no name's rule opens the
	 * address. */
	if (!name && is_open && !no_name &&
	    learned_find(s->learned, &f->dialled.addr,
			 loop_now_ms(f->served->relay->loop), &use, 1) > 0)
		name = &use.name;
	if (f->shown == SHOWN_NAME || no_name)
		e.layer = EVENT_NAME;
	e.rule = f->opened_rule;
	e.bytes = f->sent;
	e.received = f->received;
	e.claimed = f->shown == SHOWN_NAME && !f->taught;
	if (name)
		sandbox_event_name(&e, name);
	return e;
}

/* The server has answered. */
static void report_open(struct relay_flow *f)
{
	struct event e;

	if (!plan_is_open(&f->served->sandbox->plan))
		return;
	e = passed_event(f);
	(void)!sock_ends(f->client.source.fd, &e.from, &e.to);
	sandbox_opened(f->served->sandbox, &e, loop_now_ms(f->served->relay->loop));
}

void relay_flow_account(struct relay_flow *f)
{
	struct relay_sandbox *g = f->served;
	struct event e = passed_event(f);
	bool refused = f->state == FLOW_CLOSING || f->state == FLOW_REFUSED;

	relay_dial_report(f);
	if (f->sent == 0 && f->received == 0 && (!f->opened || refused))
		return;
	f->sent = f->received = 0;
	f->opened = false;
	sandbox_passed(g->sandbox, &e, loop_now_ms(g->relay->loop));
}
