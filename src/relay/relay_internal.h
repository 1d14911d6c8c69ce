// SPDX-License-Identifier: Apache-2.0
/* relay/relay_internal - what the relay's files share: relay.c (entry points,
 * listeners), relay_flow.c (one connection's life, and its bytes), relay_park.c (names
 * that ask), relay_dial.c (the dial, where several addresses may race), relay_check.c
 * (what a connection shows, and what a refused client is told).
 *
 * HOW IT WORKS
 * Each flow has two sockets: the client's, accepted inside the sandbox's namespace, and
 * the server's, dialled outside. Both are registered once, edge-triggered, for
 * everything; so a flow costs no epoll_ctl() while it runs. A handler only notes what
 * its socket has become (readable, writable, failed) and puts the flow into the ready
 * queue. relay_work(), which runs after the batch of events, takes flows from the queue
 * in order, gives each a quantum of bytes
 * and of system calls, and stops at a budget per turn; a flow that
 * has more to do goes to the end of the queue. So no flow starves another, the loop's
 * turns stay short, and the DNS side is served between them.
 *
 * No wake-up is lost: `readable` and `writable` are cleared only by an EAGAIN of that
 * very socket, and after an EAGAIN the kernel reports the next change. No busy loop: a
 * flow is queued only by an event, a timer, or bytes that were moved.
 *
 * A pipe is filled only when it is empty, so an EAGAIN while filling can only come from
 * the socket; and it is filled only when the other side can be written, so a slow
 * reader stops the sender (its own socket buffer fills, and TCP tells it). A pipe goes
 * back to the pool when it is empty. One that isn't, because its flow died, is closed:
 * bytes never cross from one flow to another.
 *
 * What a connection shows (`verify: tls`) is read where it lies: the client's bytes stay
 * in its socket, MSG_PEEK looks at them, and `up.allowed` says how many of them may be
 * moved. Bytes that are neither TLS nor HTTP are judged once and then all may pass. Of
 * TLS each hello is judged, and only its own bytes may pass, until the server's answer or
 * the client's next message shows that no other hello can follow (relay/tls.h). Of HTTP
 * each request's head is judged, so `up.allowed` grows by one request, or one piece of a
 * body, at a time. Where the server has switched to TLS, or has opened a tunnel for a
 * CONNECT, what comes next are first bytes again. Nothing is copied, held back in a
 * buffer of ours, or sent in another order, and a flow that waits costs no memory. Where
 * bytes without a name may pass, the server is dialled at once and its bytes pass at
 * once, because it may have to speak first; everywhere else nothing leaves before the
 * name is judged. */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

#include "base/addr.h"
#include "relay/http.h"
#include "relay/relay.h"
#include "sandbox/verdict.h"
#include "sys/listeners.h"

#define RELAY_ALL UINT64_MAX

enum {
	RELAY_SPLICE_BYTES = 256 * 1024, /* asked of one splice(); larger pipes than the
					  * kernel's default measured no faster */
	RELAY_PIPES_PER_SANDBOX = 64,	 /* at once; beyond it: plain copies */
	RELAY_COPY_BYTES = 64 * 1024,
	RELAY_FLOW_QUANTUM =
		256 * 1024, /* bytes per flow and direction, then the next one */
	RELAY_TURN_BUDGET = 1024 * 1024, /* bytes per turn of the loop */
	RELAY_FLOW_STEPS = 32, /* system calls per flow and direction: tiny segments */
	RELAY_STEP_COST = 2 * 1024,   /* what one of them costs of the budget, in bytes */
	RELAY_SPARE_FLOWS = 128,      /* freed flows kept for the next connections */
	RELAY_LOOK_BYTES = 16 * 1024, /* looked at to find a name */
	RELAY_LOOK_MS = 5 * 1000,     /* in which it has to be there */
	RELAY_SINKHOLE_MS = 1000, /* the same at an address that stands for denied names,
				   * on no web port: the server may be who speaks first */
	RELAY_WORD_MS = 250, /* in which a word has to become a request, or is none */
	/* Flows under a new policy: their part of the turn's budget, and what one that is
	 * judged, and one that is reset besides, takes of it. */
	RELAY_RECHECK_BUDGET = RELAY_TURN_BUDGET / 2,
	RELAY_RECHECK_COST = 2 * 1024,
	RELAY_RECHECK_RESET_COST = 16 * 1024,
	RELAY_GOODBYE_MS =
		1000, /* for a refused client, and the answers still due to it */
};

struct relay_pipe {
	int fd[2]; /* owned */
	SLIST_ENTRY(relay_pipe) link;
};
SLIST_HEAD(relay_pipe_list, relay_pipe);

#define RELAY_SIDE_EVENTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET)

enum relay_state {
	FLOW_NONE = 0,
	FLOW_WAITING, /* for LIMIT_NEW_FLOWS_PER_SECOND; not judged yet */
	FLOW_PARKED,  /* its name asks: nothing is read, nothing dialled; see relay_park.c
		       */
	FLOW_ACCEPTED, /* allowed by its destination; nothing dialled: what the first
			* bytes show is judged before the flow goes on */
	FLOW_DIALLING, /* connects are under way; the client's bytes stay in its socket */
	FLOW_OPEN,     /* bytes pass, as far as they are judged */
	FLOW_CLOSING,  /* refused, but answers to what passed before are still due */
	FLOW_REFUSED,  /* told so; what the client still sends is thrown away */
	FLOW_DEAD,     /* sockets closed; waits to be reaped */
};

enum relay_check {
	CHECK_FIRST = 0, /* the first bytes are awaited; none has passed */
	CHECK_HELLO,	 /* a hello has passed, and another may follow */
	CHECK_HTTP,	 /* each request is judged */
	CHECK_ANSWER,	 /* an Upgrade or CONNECT has passed: its answer decides */
	CHECK_DONE,	 /* judged for good */
};

enum relay_refusal {
	REFUSAL_RESET = 0,
	REFUSAL_ALERT_NAME,   /* TLS: unrecognized_name */
	REFUSAL_ALERT_ACCESS, /* TLS: access_denied */
	REFUSAL_HTTP_400,
	REFUSAL_HTTP_403,
	REFUSAL_CLOSE, /* nothing is said: the client may ask again on a new connection */
};

struct relay_side {
	struct loop_source
		source; /* its fd is owned by the flow; -1 when there is none */
	bool readable, writable;
	bool failed;  /* EPOLLERR or EPOLLHUP was seen */
	bool hung_up; /* the peer has finished; what it sent before may be unread */
	bool urgent; /* urgent data was seen: splice() stops at it, so copy from now on */
	uint8_t family;	   /* of a server's address */
	uint8_t ports_of;  /* the server's place in ports_used + 1; 0: not counted */
	uint16_t own_port; /* that the filter knows as Weir's; 0: none (sys/sock.h)
			    */
};

/* One direction of a flow. */
struct relay_way {
	struct relay_pipe *pipe; /* borrowed while @waiting > 0 */
	uint64_t allowed; /* bytes that may be taken from the socket, or RELAY_ALL */
	uint32_t waiting; /* bytes in the pipe */
	bool ended;	  /* end of file was read and passed on */
	bool keep_open;	  /* don't pass the end on: more is to be said */
};

struct relay_flow {
	LIST_ENTRY(relay_flow) in_sandbox;
	TAILQ_ENTRY(relay_flow) in_queue; /* of the ready; later the list of the dead */
	struct relay_sandbox *served;
	struct relay_side client, server;
	struct relay_way up, down;  /* client to server, server to client */
	struct relay_dial *dial;    /* owned; NULL unless FLOW_DIALLING */
	struct loop_timer timer;    /* of the dial */
	struct loop_timer patience; /* of the check, then of the goodbye */
	struct endpoint asked;	    /* original destination */
	struct endpoint dialled; /* the same until another address of its name has won */
	uint8_t state;		 /* enum relay_state */
	bool queued, timed_out, out_of_patience, host_local;
	uint8_t check;	 /* enum relay_check */
	uint8_t shown;	 /* enum relay_shown, of what was judged last */
	uint8_t refusal; /* enum relay_refusal */
	bool passed;	 /* a request has been let through */
	bool several;	 /* more than one name, or kind of bytes, was let through */
	bool recheck;	 /* the plan has changed: judged before it moves a byte */
	bool connect, h2c, tls;	 /* of the request whose answer is awaited */
	bool word;		 /* they are a word, and may be a request's */
	bool answered;		 /* the server has said something */
	bool sinkhole;		 /* @asked stands for denied names: never dialled */
	bool reported;		 /* that it is refused: what it shows is not judged */
	bool is_parked;		 /* it waits for a grant */
	bool is_dismissed;	 /* it is to wait no more */
	bool is_looked_up;	 /* one of @lookups has ended */
	uint8_t lookups;	 /* of its granted name, that are under way */
	bool early_data;	 /* announced by the last hello */
	bool opened;		 /* the server answered, and nobody was told yet */
	bool ended_first;	 /* the server was told of the end before it said one */
	uint32_t opened_rule;	 /* that allows it, or PLAN_NO_RULE */
	uint64_t other_budgets;	 /* that pay as well: of what opened the tunnel */
	uint64_t sent, received; /* client to server and back, since it was told */
	struct http_stream http;
	bool allowable; /* of the refusal, as are the next three */
	uint32_t rule;
	const char *reason;
	struct dns_name *refused; /* owned; that was shown; NULL: none */
	struct dns_name name;	  /* that opened it, or that it showed; size 0: none */
	bool taught;		  /* a look-up of @name had given the address */
};
/* One address that is dialled. */
struct relay_attempt {
	struct relay_side side; /* fd -1: the attempt is over */
	struct relay_flow *flow;
	struct endpoint to;
	int64_t began_ms;
	int error;     /* why it failed, positive; 0: it has not */
	bool extra;    /* counted in extra_attempts */
	bool reported; /* that it failed, or is silent */
};

/* While the flow is dialling; see relay_dial.c. */
struct relay_dial {
	struct relay_attempt attempts[RELAY_ADDRESSES_MAX];
	struct addr next[RELAY_ADDRESSES_MAX]; /* to be dialled, in this order */
	uint8_t made, open;		       /* attempts */
	uint8_t next_at, next_count;
	bool planned; /* @next has the other addresses of the name */
	int64_t began_ms;
};
TAILQ_HEAD(relay_flow_queue, relay_flow);
static_assert(sizeof(struct relay_flow) <= 640, "a flow that is idle costs little");

/* The machine's ports that connections to a server take.
 *
 * A connection takes one of the machine's ports, some 28,000, away from all others to
 * the same address and port: while it is open, and, where the machine closed it first,
 * for a minute more (TIME_WAIT). A sandbox that begins connections and ends them at once
 * would have all of them within seconds, and nobody else on the machine would reach that
 * server. So a sandbox takes no more than it leaves free (base/rate.h).
 *
 * Servers are told apart by a hash: two may count as one, which then has the ports of
 * one. What rests is counted by turns, so that a port counts for one turn longer than it
 * rests. */

enum {
	PORTS_SERVERS = 64,
	PORTS_TURN_MS = 20 * 1000,
	PORTS_TURNS = 4, /* the one that has begun, and the minute before it */
	PORTS_USUAL = 60999 - 32768 + 1, /* ip_local_port_range where nobody changed it */
};

/* Of one sandbox, or of all. { 0 } has none. */
struct ports_used {
	struct {
		uint32_t open;
		uint32_t resting[PORTS_TURNS];
	} servers[PORTS_SERVERS];
	int64_t turn; /* the newest of them */
};

/* A sandbox that is served. */
struct relay_sandbox {
	struct relay *relay;
	struct sandbox *sandbox; /* borrowed; NULL once detached, and for listeners that
				  * many share */
	struct listeners listeners;
	LIST_HEAD(, relay_flow) flows;
	struct relay_flow_queue ready;	     /* to run */
	TAILQ_ENTRY(relay_sandbox) in_ready; /* while there are any */
	uint32_t flow_count, pipe_count;
	uint32_t extra_attempts;  /* to dial, beside the first of each flow */
	struct relay_slow *slow;  /* owned; see relay_dial.c; NULL: none yet */
	struct ports_used *ports; /* owned; NULL: none yet */
	struct rate new_flows;	  /* LIMIT_NEW_FLOWS_PER_SECOND */
	LIST_ENTRY(relay_sandbox) link;
	bool has_changed;	      /* its plan; it is in the relay's list of those */
	struct relay_flow *unchecked; /* the next one to judge, and all behind it */
	TAILQ_ENTRY(relay_sandbox) in_changed;
};
LIST_HEAD(relay_sandbox_list, relay_sandbox);
TAILQ_HEAD(relay_sandbox_queue, relay_sandbox);

struct relay {
	struct loop *loop;
	int route_fd;
	int spare_fd; /* given up to be able to refuse; -1 while it is gone */
	struct relay_shared shared;	/* by_socket NULL: there is none */
	uint32_t flow_count, flows_max; /* of all sandboxes, by descriptors */
	uint32_t extra_attempts;	/* the same */
	int fds_max; /* from this one on they are for others, who attach */
	uint32_t pipe_count, pipes_max;
	uint32_t spare_count;
	uint32_t ports_max;	 /* that the machine has, to each server */
	struct ports_used ports; /* of all sandboxes */
	struct relay_sandbox_list sandboxes, dead_sandboxes;
	struct relay_sandbox_queue changed; /* whose flows are to be judged again */
	struct relay_pipe_list pipes;
	struct relay_sandbox_queue ready; /* that have flows to run: each one in turn */
	struct relay_flow_queue dead;
	LIST_HEAD(, relay_flow) spares;
	struct loop_deferred work;
	uint8_t *copy_buffer; /* RELAY_COPY_BYTES, owned */
};

/* relay.c */
void relay_schedule(struct relay *r);
/* Take the next flow to run, of each sandbox in turn. NULL: there is none. */
struct relay_flow *relay_next(struct relay *r);
struct relay_need {
	uint32_t more;	 /* than are counted already: 0 or 1 */
	int64_t wait_ms; /* that it may have to wait */
};
/* What @g lacks for a connection on @fd. NULL: nothing, and it counts as a new flow,
 * which begins in *@ret_wait_ms. */
const char *relay_shortage(struct relay_sandbox *g, int fd, const struct relay_need *need,
			   enum plan_limit *ret, int64_t *ret_wait_ms);
/* For tables in which the newer may take the place of the older, or two are one. */
uint32_t relay_endpoint_hash(const struct endpoint *to);
/* The place of @to. */
size_t ports_server(const struct endpoint *to);
/* Count one more connection to @server, in @mine and in @all, of which the machine has
 * @max. Return: false: a sandbox with @mine may have no other one. */
bool ports_take(struct ports_used *mine, struct ports_used *all, size_t server,
		size_t max, int64_t now_ms);
/* That one is closed; @rests: its port is taken for a minute more. */
void ports_give(struct ports_used *p, size_t server, bool rests, int64_t now_ms);

/* relay_flow.c */

/* Takes @client_fd, and resets it when there is no memory. The flow begins in @wait_ms.
 */
void relay_flow_start(struct relay_sandbox *g, int client_fd,
		      const struct endpoint *asked, int64_t wait_ms);
/* Do what its events call for. Return: what it costs of the turn's budget. */
size_t relay_flow_run(struct relay_flow *f);
/* Run it after the others that wait. */
void relay_flow_queue(struct relay_flow *f);
/* Both sides are closed; @reset: with a reset. */
void relay_flow_end(struct relay_flow *f, bool reset);
void relay_flow_abort(struct relay_flow *f);
/* If the plan has changed: reset it where the plan, as it is now, doesn't allow it.
 * Return: what it costs of the turn's budget. */
size_t relay_flow_recheck(struct relay_flow *f);
/* What there is to judge about @to, which is the flow's own destination unless the
 * dial went elsewhere. */
struct relay_question relay_flow_question(const struct relay_flow *f,
					  const struct endpoint *to);
void relay_side_close(struct relay_flow *f, struct relay_side *side, bool reset);
void relay_side_note(struct relay_side *side, uint32_t events);
/* The handler of f->server.source. */
void relay_flow_on_server(struct loop_source *s, uint32_t events);
void relay_set_option(int fd, int level, int option, int value);
/* Of a listener, whose connections inherit them, or of one connection. */
void relay_set_options(int fd);
/* Close with a reset. */
void relay_reset_fd(int fd);

/* Judge and dial what was asked for, or park it. The flow may end. */
void relay_flow_begin(struct relay_flow *f);
/* A flow waits for what the client shows: to be judged, or, where it is never dialled, to
 * be refused. It may end. */
void relay_flow_await_first(struct relay_flow *f);

/* What has passed since the last time, into the accounts. */
void relay_flow_account(struct relay_flow *f);

enum relay_moved {
	MOVE_WAIT = 0, /* nothing more until an event */
	MOVE_MORE,     /* the quantum is used up */
	MOVE_END,      /* end of file passed on */
	MOVE_FAILED,   /* a side is broken */
};
enum relay_moved relay_move(struct relay_flow *f, struct relay_way *way,
			    struct relay_side *from, struct relay_side *to, size_t *cost);
/* Give back, or close, the pipe of @way. */
void relay_way_done(struct relay_sandbox *g, struct relay_way *way);

/* relay_park.c */

/* What was asked for stands for a name that asks: FLOW_PARKED, or what its name has come
 * to. False: it stands for none. */
bool relay_park_begin(struct relay_flow *f);
/* Of a parked flow. It may end, or go on. */
void relay_park_run(struct relay_flow *f);
void relay_park_recheck(struct relay_flow *f);
/* It waits for nobody any more. */
void relay_park_leave(struct relay_flow *f);

/* relay_dial.c */

/* What was asked for is judged: dial it, and what comes after it. The flow may end. */
void relay_dial_start(struct relay_flow *f);
/* Of a flow that is dialling. Return: f->server is connected. Else the dial goes on, or
 * the flow has ended. */
bool relay_dial_run(struct relay_flow *f);
/* The plan has changed: end the attempts that it doesn't allow. The flow may end. */
void relay_dial_recheck(struct relay_flow *f);
/* Tell of attempts that have failed, or are silent, of a flow that has no server yet. */
void relay_dial_report(struct relay_flow *f);
/* End all attempts; @reset: with a reset, where the server has answered. */
void relay_dial_stop(struct relay_flow *f, bool reset);

/* relay_check.c */

/* Look at what came, and let as much pass as is judged. */
size_t relay_check(struct relay_flow *f);
/* What the client sends is judged before it passes. */
bool relay_reads_client(const struct relay_flow *f);

/* Count a refusal and tell control. */
void relay_refuse(struct relay_sandbox *g, const struct endpoint *to,
		  const struct relay_verdict *v);
/* A connection to @to, by no rule. */
struct event relay_event(const struct endpoint *to, enum event_action action);
/* @to, of @name, could not be reached: what it said, or that it said nothing. */
void relay_fail(struct relay_sandbox *g, const struct endpoint *to,
		const struct dns_name *name, const char *reason);
void relay_limit(struct relay_sandbox *g, enum plan_limit limit, const char *reason);
/* FLOW_CLOSING: the server gets and says no more, and the client is told. */
void relay_goodbye_now(struct relay_flow *f);
/* FLOW_CLOSING: what was let through goes to the server, then the end; its answers come
 * back. */
size_t relay_finish(struct relay_flow *f);
/* FLOW_REFUSED: read what the client still sends, to its end or until its time is over.
 */
size_t relay_drain_client(struct relay_flow *f);
