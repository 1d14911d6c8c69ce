// SPDX-License-Identifier: Apache-2.0
/* control/control - weir-control: what of a sidecar wants libraries and files. HTTP API,
 * policy changes, log, event store, webhooks; one thread, one event loop.
 *
 *   main.c            start and end; what this process may reach
 *   link.c            the channels to supervisor and engine; which engine gets a sandbox
 *   change.c          from a document to a plan in force, and back when a step fails; a
 *                     sandbox of which too much was denied; the always-rules files
 *   record.c          events and lookups: ring, log, streams, store, webhook; how much
 *                     was denied, and review tasks, for the API
 *   socket_owner.c    whose process a denial was
 *   webhook.c         weir-webhook, the connections that it asks for, what is sent, and
 *                     the addresses of its hosts
 *   status.c          what /status and /metrics say
 *   sandboxes.c       the daemon's: sandboxes come and go; what the daemons have
 *   sandboxes_list.c  the daemon's: what its API is asked and says of them
 *   secure.c          the daemon's: its API over TCP, with TLS and a token
 *
 * A sandbox is a struct control_sandbox, in a sidecar and in a daemon. A sidecar has one,
 * control.own. A daemon's are made and freed; its control.own stands for what belongs to
 * none of them: events of a sandbox that is gone, the top of the API. */
#pragma once

#include <sys/utsname.h>

#include "api/api.h"
#include "base/index.h"
#include "event/traffic.h"
#include "events/jsonl_writer.h"
#include "events/sqlite.h"
#include "opensandbox/log.h"
#include "opensandbox/policy.h"
#include "opensandbox/policy_file.h"
#include "outputs/postgres_state.h"
#include "proto/message.h"
#include "resolver/resolver.h"
#include "sandbox/sandbox.h"
#include "settings/settings.h"
#include "sys/process.h"

enum {
	CONTROL_EVENTS_KEPT = 2048, /* distinct ones, in memory */
	CONTROL_NOTES_MAX = 9,
	CONTROL_ASK_MS = 5000, /* for the engine's and the supervisor's answers */
	CONTROL_ATTACH_MS =
		15000, /* for the daemon's, about a sandbox that comes or goes */
	CONTROL_STATS_AGE_MS = 500, /* of what takes long to ask for, or of many */
	CONTROL_KEY_SIZE = 40,
	CONTROL_SANDBOX_EVENTS_KEPT =
		128, /* of each sandbox of the daemon's, in memory */
};

/* A sandbox that is being closed. */
struct control_closing {
	struct loop_timer again;
	bool due; /* it isn't yet, or isn't kept */
	/* By whom the closed policy is kept already; true as well where nobody has to. */
	bool is_with_supervisor, is_in_state_dir, is_in_file;
	int64_t pause_ms; /* before the next try; 0: none has failed */
	char why[EVENT_REASON_SIZE];
	char shown[112]; /* in words, for the status */
};

/* One sandbox: a sidecar's, or one of a daemon's. */
struct control_sandbox {
	struct control *side;
	struct control_link *link; /* to the engine that has it */
	uint32_t id; /* in events; as control_sandbox_find() has it. 0: control.own */
	struct ipc_sandbox spec;    /* of a daemon's; all zero in control.own */
	struct index_entry by_name; /* until it is gone */
	struct index_entry by_key;
	char key[CONTROL_KEY_SIZE]; /* a network namespace; "": none */
	bool stale;	  /* another daemon has it now, and has not yet said what it is */
	int64_t since_ms; /* wall clock: of this mode */
	struct document *document; /* in force, owned */
	uint8_t *plan_bytes;	   /* of it, owned; NULL: there is none */
	struct plan plan;
	struct event_ring *ring; /* NULL before the first event */
	struct traffic *traffic; /* owned; NULL before the first byte */
	struct rate asked;	 /* questions about its processes */
	struct control_closing closing;
	struct loop_timer restore; /* the engine enforces another plan: give it that of
				    * the policy in force */
	unsigned int restore_failures; /* in a row */
	uint64_t updates, failures;
	char gone[64]; /* why it has ended; it is freed when nobody uses it. "": not yet
			*/
	struct ipc_stats stats;
	int64_t stats_at_ms;
	uint64_t denies; /* names, flows and packets that were refused */
	int64_t audited_ms;
	struct ipc_audit audit;
	char strays[96]; /* audit.strays in words, for the status */
	struct api_counter counters[SANDBOX_COUNTER_COUNT];
};

/* The channels to an engine and to whoever started it: the supervisor, or a daemon. */
struct control_link {
	struct control *side;
	uint32_t engine; /* its number: its place among the links */
	struct loop_source from_supervisor, from_engine; /* fd -1 while it is away */
	struct loop_timer away;	  /* while an engine that was there is away */
	unsigned int away_looks;  /* of that timer, in a row */
	bool heard;		  /* from the engine that is there now */
	bool is_active;		  /* the engine serves; a sidecar's: the plan in force */
	uint32_t restarts;	  /* of the engine, and */
	uint32_t daemon_restarts; /* of its daemon */
	int64_t patience_ms;  /* for how long it may be waited for while it is away, as */
	int64_t waited_at_ms; /* of this time (clock_now_ms) */
	char lacking[ERR_TEXT_SIZE]; /* a daemon's: what it doesn't serve, or "" */
	/* sandboxes.c; in a sidecar there are none */
	struct control_sandbox *
		*sandboxes; /* by id, from 1 to IPC_SANDBOXES_MAX; owned */
	size_t control_sandbox_count;
	uint32_t highest_id; /* none is above */
	/* What is still to be asked about, a few in each turn: the daemon's list from the
	 * one after this on; those that it has told of since; those that the engine may
	 * enforce something else for. UINT32_MAX: nothing. */
	uint32_t listed_id, compared_id;
	uint64_t reported[IPC_SANDBOXES_MAX / 64 + 1]; /* a bit each */
	bool has_reported;			       /* of any */
	bool took_over; /* the daemon has said that the engine has all there were */
	bool known;	/* those that there were are here, too; it stays so */
	bool checked;	/* what its daemon has was compared with what is here */
	bool full;	/* it had no room for another one; none has gone since */
};

struct control {
	struct sidecar_spec spec;
	struct loop *loop;
	struct loglines *log;
	struct api *api;
	struct control_secure *secure; /* the API over TCP; NULL: there is none */
	struct control_sandbox own;
	struct control_webhook *webhook; /* NULL: no URL is told */
	struct sqlite_writer *store;	 /* NULL: events are in memory alone */
	struct jsonl_writer *jsonl;	 /* NULL: none */
	char lacking[ERR_TEXT_SIZE];	 /* what could not be confined here, or "" */
	char log_shown[ERR_TEXT_SIZE];	 /* which of the logs can't be written */
	bool is_state_shared;		 /* others may write to --state-dir */
	char untrusted[ERR_TEXT_SIZE];	 /* why nothing is kept in --state-dir, or "" */
	struct loop_source signals;
	struct api_label labels[SIDECAR_ATTRS_MAX];
	/* What a browser may call the API: the host's own name, and what was asked for.
	 */
	struct utsname host;
	const char *hosts[1 + SIDECAR_HOSTS_MAX];

	/* link.c */
	struct control_link links[IPC_ENGINES_MAX];
	size_t link_count;	   /* a sidecar has one */
	struct control_link *link; /* the first, to the supervisor or the first daemon */
	uint32_t ask;		   /* the number of the last question; odd, so never 0 */
	struct ipc_status status;

	/* sandboxes.c; in a sidecar there are none */
	bool many; /* the daemon's control */
	struct {
		uint32_t id;
		char name[IPC_SANDBOX_NAME_MAX + 1];
	} refused; /* the last attach that failed: its events come behind */
	struct index sandboxes_by_name, sandboxes_by_key;
	struct loop_timer relist;
	int64_t denies_at_ms; /* of all of them */
	uint64_t network;     /* the inode of the network namespace that this is in */
	gid_t group;	      /* whose members may use the API; 0: root alone */

	/* change.c */
	struct sidecar_policy_context policy; /* what documents are built for */
	struct policy_file file;	      /* a sidecar's */

	/* record.c */
	size_t upstreams_given; /* of spec.upstreams; the others were found behind
				   127.0.0.11 */
	bool dns_inner;		/* nobody was found, and it sends questions back */

	/* change.c */
	struct static_rules static_rules;
	struct arena static_rules_arena; /* of the texts in `policy` */
	struct log_skip_names *skip;	 /* of log_skip.always; read at the start alone */
	struct loop_source notify;
	struct loop_timer poll;

	struct control_socket_owner *socket_owner; /* NULL: it can't be asked */

	/* webhook.c */
	struct review_key review_key;
	bool signs_answers; /* there is a key */
	struct loop_timer notify_reviews;
	unsigned int notify_tries; /* left: the store is a moment behind */
	struct control_notices {
		size_t count;	  /* were told since the pause before @again_ms */
		size_t under_way; /* weir-webhook has them */
		int64_t again_ms;
		uint32_t pause_ms; /* 0, or it failed lately: one at a time */
	} notices[SIDECAR_WEBHOOKS_MAX];

	/* status.c */
	struct sqlite_state store_state;
	struct jsonl_state jsonl_state;
	struct postgres_state postgres;
	char policy_notes[CONTROL_NOTES_MAX][ERR_TEXT_SIZE]; /* the last is spare */
	size_t policy_note_count;
};

/* -- link.c ------------------------------------------------------------------------- */

void control_link_init(struct control *s); /* there is no engine yet */
int control_link_open(struct control *s, struct err *err) MUST_CHECK;
/* Messages have the sandbox's number in @l's engine; here it is that in all of them.
 *
 * Send @m with @fd (-1: none) to the engine and wait for one of the answers (two may be
 * the same). What comes in between is dealt with. @ret_fd may be NULL. Return: 0;
 * -EPIPE: the engine went, and whatever it did is undone when it is back; or -errno. */
struct control_answer {
	uint32_t yes, no, neither; /* neither: IPC_NONE, there are two */
};
int control_ask_engine(struct control_link *l, const struct ipc_message *m, int fd,
		       const struct control_answer *wanted, struct ipc_message *ret,
		       int *ret_fd) MUST_CHECK;
/* The engine is there, or comes within CONTROL_ASK_MS: it is being started. */
bool control_await_engine(struct control_link *l);
/* The engine that spoke last is still there; another one may have come, or comes. */
bool control_engine_is_same(struct control_link *l);
/* The engine of @l is not to be trusted with what it was asked: one that is still there
 * might do it later, and only a new one brings a new channel. Its supervisor replaces it.
 * @error -EPIPE: it has ended by itself. */
void control_drop_engine(struct control_link *l, int error);
/* Deal with what it has said so far: of a sandbox that is to be forgotten. */
void control_hear_engine(struct control_link *l);
/* Send what has no answer. */
void control_send_engine(struct control_link *l, const struct ipc_message *m);
void control_send_daemon(struct control_link *l, const struct ipc_message *m);
/* A socket whose packets the filter exempts; @socket has family and protocol, and gets
 * the port. IPC_SOCKET_DONE gives it back. Return: it, owned by the caller, or -errno. */
int control_borrow_socket(struct control *s, struct ipc_socket *socket) MUST_CHECK;
/* Ask the supervisor and wait for one of two answers, as above. */
int control_ask_supervisor(struct control_link *l, const struct ipc_message *m,
			   const int *fds, size_t count,
			   const struct control_answer *wanted, struct ipc_message *ret,
			   int *ret_fd) MUST_CHECK;
/* Have the supervisor do what it may refuse. Return: 0, @ret is its @done; or -errno with
 * its reason: -EMFILE, its engine is full; -EPERM, it refuses. */
int control_order(struct control_link *l, const struct ipc_message *m, const int *fds,
		  size_t count, uint32_t done, struct ipc_message *ret,
		  struct err *err) MUST_CHECK;

/* -- change.c ----------------------------------------------------------------------- */

/* The text that the supervisor holds, as document and plan of the sidecar's sandbox. */
int control_policy_open(struct control *s, struct err *err) MUST_CHECK;
/* An event of @w itself: it came, changed or goes. */
void control_record(struct control_sandbox *w, const char *reason);
/* The policy in force has changed, or is one of a closed sandbox. */
void control_record_policy(struct control_sandbox *w);
/* So much of a sidecar's policy the kernel holds (enum ipc_enforced). */
void control_note_enforced(struct control *s, uint8_t enforced);
/* The sidecar's engine says what is in force. */
void control_on_status(struct control *s, const struct ipc_status *status);

/* A policy on its way into force. */
struct control_candidate {
	struct document *document; /* owned; NULL: the one in force */
	uint8_t *bytes;		   /* owned */
	struct plan plan;
	int plan_fd, text_fd;
};
/* Compile @d. Nothing has happened yet. */
int control_compile(struct control *s, const struct document *d,
		    struct control_candidate *c, struct err *err) MUST_CHECK;
/* What is wrong with @d, told to @on_fault: nothing changes. Return: as
 * sidecar_policy_build(). */
int control_check(struct control *s, const struct document *d, sidecar_fault_fn *on_fault,
		  void *to, struct err *err) MUST_CHECK;
/* Its plan and @d as files. */
int control_candidate_files(struct control_candidate *c, const struct document *d,
			    struct err *err) MUST_CHECK;
void control_candidate_done(struct control_candidate *c);
static inline void clean_candidate(struct control_candidate *c)
{
	control_candidate_done(c);
}
/* @c is in force in @w from now on; what @c has is taken. */
void control_take(struct control_sandbox *w, struct control_candidate *c);
/* The engine enforces another plan than the one in force: it gets that. What fails is
 * tried again, less and less often; in the end the engine gets a successor. */
void control_restore_plan(struct control_sandbox *w);
/* Put @next, which is taken, in force. What closes the sandbox is over with a whole
 * policy, unless more was denied while that was put in force. */
enum api_failure control_change(struct control_sandbox *w, struct document *next,
				struct err *err);

/* -- sandboxes.c, sandboxes_list.c
 * ----------------------------------------------------------- */

/* Begin to ask for the sandboxes that the daemons have. */
int control_sandboxes_open(struct control *s, struct err *err) MUST_CHECK;
/* A daemon's by the number in its engine, and that of the engine IPC_ENGINE_SHIFT above
 * it. */
struct control_sandbox *control_sandbox_find(const struct control *s, uint32_t id);
/* As control_sandbox_find(); in a sidecar its one sandbox, whatever @id is. */
struct control_sandbox *control_sandbox_of(struct control *s, uint32_t id);
/* The first one above @id that is there, NULL: none. */
struct control_sandbox *control_sandbox_after(const struct control *s, uint32_t id);
/* Every engine serves. */
bool control_engines_are_active(const struct control *s);
/* The first thing that an engine should serve and doesn't, or "". */
const char *control_lacking(const struct control *s);
/* All that there were when we or the daemon started are there, and known here. */
bool control_sandboxes_are_known(const struct control *s);
struct control_sandbox *control_sandbox_named(const struct control *s, const char *name);
/* Return: the HTTP status, with @err. */
unsigned int control_sandbox_attach(struct control *s, const struct ipc_sandbox *spec,
				    struct document *policy, struct err *err);
unsigned int control_sandbox_detach(struct control_sandbox *w, struct err *err);
/* The engine is another one, or came back. */
void control_sandboxes_on_engine(struct control_link *l);
/* @l has a daemon now, the first one or another one. */
int control_sandboxes_on_link(struct control_link *l) MUST_CHECK;
/* What the daemon says without having been asked. */
void control_sandboxes_on_daemon(struct control_link *l, struct ipc_message *m);
/* w->denies of all of them, as it was a moment ago at most: one question for many. */
void control_sandboxes_denies(struct control *s);
/* Read w->stats and w->denies from the engine. Return: 0 or -errno. */
int control_sandbox_stats(struct control_sandbox *w);
/* Read w->audit, unless it was read a moment ago. */
void control_sandbox_audit(struct control_sandbox *w);
/* Where its events are. NULL: out of memory. */
struct event_ring *control_sandbox_ring(struct control_sandbox *w);

/* -- link.c: which engine ----------------------------------------------------------- */

/* What no two sandboxes can be: the namespace of @spec, or "". */
void control_namespace_key(const struct ipc_sandbox *spec, char ret[CONTROL_KEY_SIZE]);
/* The engine for @spec, which knows then what it is: that with the fewest, if need be one
 * that is started for it. -EMFILE: all are full; -EEXIST: it is guarded already. */
int control_engine_choose(struct control *s, struct ipc_sandbox *spec,
			  struct control_link **ret, struct err *err) MUST_CHECK;

/* -- sandboxes_list.c ------------------------------------------------------------- */

void control_sandboxes_list(struct control *s, struct api_sandboxes *ret);

struct control_wish {
	struct ipc_sandbox spec;
	struct document *policy; /* owned */
	bool again;		 /* it may be there: with this policy from now on */
};

/* -- change.c: closing -------------------------------------------------------------- */

/* @w begins. */
void control_change_init(struct control_sandbox *w);
/* @w is about to be freed. */
void control_change_done(struct control_sandbox *w);
/* @w is not to be closed any more: there is another policy, or no sandbox. */
void control_closing_done(struct control_sandbox *w);
/* Why @w is closed, or is about to be; NULL: it isn't. */
const char *control_closed(const struct control_sandbox *w);
/* More was denied than the policy's on_denies takes. Return: whether @e is news. */
bool control_on_denies(struct control *s, const struct event *e);

/* -- secure.c ----------------------------------------------------------------------- */

/* Serve what INHERITED_TLS listens to. What is wrong with the files is told, and shows in
 * the status; nobody is served there then. */
int control_secure_open(struct control *s, struct err *err) MUST_CHECK;
/* The socket may listen now. */
void control_secure_listen(struct control *s);
/* Read the files again, after this turn; those that were good stay until new ones are. */
void control_secure_reload(struct control *s);
void control_secure_event(const struct control *s, const struct event_row *row);
/* Why nobody is served, or "". */
const char *control_secure_trouble(const struct control *s);
void control_secure_close(struct control *s);

/* -- main.c ------------------------------------------------------------------------- */

/* What the API asks of @w. */
void control_ops(struct control_sandbox *w, struct api_ops *ret);
/* What all ways to the API have in common. */
void control_api_config(struct control *s, struct api_config *ret);

/* -- record.c ----------------------------------------------------------------------- */

void control_on_event(struct control *s, const struct event *e);
/* Hand @row to the store, the log and the streams. */
void control_on_row(struct control *s, const struct event_row *row);
/* The process of an event that came is known now. */
void control_on_process(struct control *s, const struct event *e);
void control_on_trouble(struct control *s, const struct upstream_trouble *t);
void control_on_answered(struct control *s, uint32_t sandbox,
			 const struct ipc_answered *a);
/* An event with the rule that decided it. */
void control_row(void *data, const struct event *e, struct event_row *ret);

/* -- record.c: what the store knows ------------------------------------------------- */

/* What counts denials and answers about review tasks, in @ret; nothing where events
 * aren't stored. */
void control_store_ops(const struct control *s, struct api_ops *ret);

/* -- webhook.c ---------------------------------------------------------------------- */

/* Called once the stores are open: the review tasks that they have are sent from now on.
 */
int control_webhook_open(struct control *s, struct err *err) MUST_CHECK;
/* A program was started: @fd, owned from then on, leads to it. */
void control_webhook_attach(struct control *s, int fd);
void control_webhook_denied(struct control *s, const struct event *e);
void control_webhook_count(const struct control *s, struct api_status *ret);

/* -- socket_owner.c
 * ---------------------------------------------------------------------- */

/* Have one started. */
void control_socket_owner_open(struct control *s);
/* The socket owner was started; @fd, which control owns from then on, leads to it. */
void control_socket_owner_attach(struct control *s, int fd);
/* Ask whose process @row's denial was. Return: it will come to control_on_row(), whatever
 * is answered; false: nothing is asked. */
bool control_socket_owner_ask(struct control *s, const struct event_row *row);
/* Nothing is waited for any more. */
void control_socket_owner_close(struct control *s);

/* -- webhook.c: what is sent -------------------------------------------------------- */

/* Something was denied that a task may open for. */
void control_notify_soon(struct control *s);

/* -- status.c ----------------------------------------------------------------------- */

/* What the API is told of a sandbox, of the sidecar's as of one of the daemon's, and at
 * the top of the daemon's API of all of them. */
void control_status(void *data, struct api_status *ret);
bool control_healthy(void *data);
