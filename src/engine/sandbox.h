// SPDX-License-Identifier: Apache-2.0
/* engine/sandbox - one of the sandboxes that an engine holds: its plan, what it has
 * learned, its filter, from the first ruleset to the last.
 *
 * `weir run` has one of the kind OWNED, `weir sidecar` one of the kind SHARED, both with
 * the id 0; `weir daemon` has any number of NETNS and HOST, with ids from 1 on.
 *
 * HOW THE KINDS DIFFER
 * Everything that asks the kernel goes through ops_of() in sandbox.c, one row of
 * functions for each kind. An OWNED, SHARED or NETNS sandbox has a table in a namespace
 * of its own, and sockets there. A HOST has neither: it is an entry in the one table of
 * the host's own namespace, which host.c looks after, as it does after the
 * listeners on which all of them ask. Who asked is read from the mark, with the sandbox's
 * id above the plan's number, and looked up with engine_core_find(). */
#pragma once

#include "base/arena.h"
#include "base/rate.h"
#include "proto/message.h"
#include "relay/relay.h"
#include "resolver/dns_service.h"
#include "sandbox/learned.h"
#include "sandbox/sandbox.h"
#include "sys/loop.h"

struct engine_core;
struct engine_sandbox;
struct grants;

/* The kernel's generation id, and how many transactions of ours there had been then. */
struct engine_sandbox_seen {
	uint32_t generation_id, commits;
};

/* What the engine's process wants to know of a sandbox. */
struct engine_sandbox_observer {
	sandbox_event_fn *on_event; /* data: the struct engine_sandbox, as of the next */
	sandbox_answered_fn *on_answered; /* may be NULL */
	/* The rules were put back, or one has ended: they have another generation. */
	void (*on_status)(struct engine_sandbox *g);
	/* The end of engine_sandbox_change(); @err says why not when @r < 0. */
	void (*on_changed)(struct engine_sandbox *g, int r, const struct err *err);
	/* dns: pinned: @name lacks something. */
	void (*on_unpinned)(struct engine_sandbox *g, const char *name,
			    const struct resolver_unpinned *fault);
	/* dns: pinned: a round is over; g->is_pinned is false in the first one. @why says
	 * which name that is required has no address, or is "". */
	void (*on_pinned)(struct engine_sandbox *g, const char *why);
};

/* -- change.c: another policy for a sandbox that runs ---------------------------------
 */

/* Install the ruleset of @plan for the first time, over whatever is there: @s has
 * filter, its parameters (with the generation of the ruleset that is there, 0 for none)
 * and own set. What s->learned has, if there is one, is in the new sets. Failure leaves
 * everything as it was, here and below; verify: tls without a relay is one (-EOPNOTSUPP).
 * In a shared namespace the ruleset is read back: -EBADMSG, what stands is another one.
 */
int sandbox_install(struct sandbox *s, const struct plan *plan,
		    struct err *err) MUST_CHECK;
/* After an engine that is gone: what is there says that it was made of what @plan makes
 * today, under the generation of @said, and its learned sets hold what s->learned has. So
 * it stays as it is, and becomes ours. Return: 0, or -errno: nothing was changed, and
 * sandbox_install() is due. */
int sandbox_take_over(struct sandbox *s, const struct plan *plan,
		      const struct filter_said *said) MUST_CHECK;
/* @plan's bytes have to stay as long as the sandbox has it; the old
 * one's may go after success. The generation in s->shared_params is then the new one's.
 */
int sandbox_change(struct sandbox *s, const struct plan *plan, int64_t now_ms,
		   struct err *err) MUST_CHECK;
/* The same in steps, for a policy with many address ranges or a sandbox that has learned
 * many addresses: what is large is loaded beside the ruleset in force, about a
 * millisecond's worth at a time, and packets don't meet it before the change; and what
 * open flows go on to is put where the change finds it. */
struct sandbox_staging {
	struct plan plan;
	struct filter_shared_params params; /* with the generation that comes */
	const struct ruleset *rules;	    /* in @arena; NULL before the first step */
	struct arena arena;
	struct learned_judging *judging; /* in @arena; NULL: nothing is learned */
	bool is_judged;			 /* all of what is learned */
	struct filter_staging progress;
};
/* One step; @st is { 0 } before the first. After the last one sandbox_staging_done() is
 * due when the change has been made, sandbox_stage_abandon() when it has not. Return: 1,
 * call again in another turn; 0, done; or -errno
 * (-ESTALE: the generation has changed meanwhile; -EOPNOTSUPP: not a shared namespace):
 * sandbox_change() still works then. */
int sandbox_stage(struct sandbox *s, const struct plan *plan, struct sandbox_staging *st,
		  struct err *err) MUST_CHECK;
/* sandbox_change() to what is staged, or all at once if that has become stale, or fails.
 */
int sandbox_change_staged(struct sandbox *s, const struct sandbox_staging *st,
			  int64_t now_ms, struct err *err) MUST_CHECK;
void sandbox_staging_done(struct sandbox_staging *st);
void sandbox_stage_abandon(struct sandbox *s, struct sandbox_staging *st);
/* Make the ruleset that should be in force and compare it with the kernel's. 0: they are
 * the same. */
int sandbox_verify(struct sandbox *s, struct err *err) MUST_CHECK;
/* Make the filter anew from the same plan, and all sets with the lifetimes that are left.
 */
int sandbox_renew(struct sandbox *s, int64_t now_ms, struct err *err) MUST_CHECK;
/* Put back what somebody else removed or changed: as sandbox_change() to the same plan.
 * What passed meanwhile and is not allowed is cut. (The host's table, s->host, is put
 * back as a whole, by filter_host_load().) */
int sandbox_repair(struct sandbox *s, int64_t now_ms, struct err *err) MUST_CHECK;

/* A change that is under way. */
struct engine_sandbox_change {
	bool is_under_way, is_staged;
	bool is_in_force;      /* and the relay still cuts what it forbids */
	struct plan next;      /* mapped, owned */
	struct grants *grants; /* of it; owned */
	struct sandbox_staging staging;
	struct filter_host_stage *host_stage; /* HOST: the same, in the host's table */
	struct loop_deferred turn;
};

struct engine_sandbox {
	struct engine_core *core; /* NULL: in no engine */
	enum attach_kind kind;
	enum ipc_enforced enforce;
	bool restarted; /* an engine was here before: take over what it has learned */
	bool remade;	/* restarted, as another cgroup: which has learned nothing */
	bool owner;	/* OWNED: the table in the kernel is owner|persist */
	struct sandbox sandbox;
	struct plan plan;      /* mapped, owned; all zero: none */
	int64_t evaluated_ms;  /* OWNED: see struct engine_config */
	struct grants *grants; /* of the plan; owned; NULL: no rule ends */
	int64_t budgets_at_ms; /* when the kernel's counters are due for budgets */
	struct learned_snapshot snapshot; /* mapped, owned */
	size_t snapshot_bytes;		  /* reserved of it */
	int route_fd;			  /* NETNS: a route socket in there, owned */
	const struct engine_sandbox_observer *observer;
	struct rate answered_rate; /* of answers that are reported */
	uint64_t plan_id;	   /* of what it enforces */
	uint32_t adopted;  /* learned addresses taken over from the engine before */
	bool sees_refused; /* by NFLOG */
	struct engine_sandbox_change change;
	uint32_t policy_number; /* of the policy in force; the first one's is 0 */
	/* dns: pinned. The end of a round that the self-test overlaps is reported after
	 * the self-test. */
	bool is_pinned;	     /* the first round was reported */
	bool is_pin_lost;    /* the last policy's names found no memory */
	struct err unpinned; /* the first name of a round that is required */
	struct loop_source nflog;
	bool is_unverified; /* what stood was taken over, and not read back yet */
	bool is_late;	    /* a suspend has put off what ends in the kernel */
	struct engine_sandbox_seen seen;
	int64_t routes_ms; /* not before */
};

/* No plan, no descriptors. */
void engine_sandbox_init(struct engine_sandbox *g, enum attach_kind kind, uint32_t id);
/* Close and unmap what it has. It is in no engine; rules stay. */
void engine_sandbox_done(struct engine_sandbox *g);

/* -- into an engine ----------------------------------------------------------------- */

/* @g has plan, descriptors (in sandbox.fds, but filter.fd still -1), snapshot, enforce,
 * observer, and the parameters of its ruleset in sandbox.shared_params (OWNED: in
 * sandbox.owned_params): install the ruleset, over whatever is there (OWNED: it was
 * installed); read it back; serve. On failure rules may stand, and @g is in no engine.
 */
int engine_sandbox_activate(struct engine_sandbox *g, struct engine_core *c,
			    struct err *err) MUST_CHECK;
/* The self-test is over: denials are events and count from now on. */
void engine_sandbox_begin(struct engine_sandbox *g);
/* Nothing of it is served any more, and it is in no engine. Rules stay. */
void engine_sandbox_leave(struct engine_sandbox *g);
/* Take its rules away, which opens it. */
int engine_sandbox_remove_rules(struct engine_sandbox *g, struct err *err) MUST_CHECK;
/* They stay, and no engine answers for the sandbox any more. */
void engine_sandbox_forget_rules(struct engine_sandbox *g);

/* Resolve the names of its plan ahead, if that says so (dns: pinned): at the start, and
 * after a change. Until it is done, and where it fails, queries fail. */
int engine_sandbox_pin(struct engine_sandbox *g) MUST_CHECK;
/* What it says about itself now. */
void engine_sandbox_status(const struct engine_sandbox *g, struct ipc_status *ret);
void engine_sandbox_stats(const struct engine_sandbox *g, struct ipc_stats *ret);

/* -- change.c: another plan, in turns of the loop -------------------------------------
 */

/* Another plan, from a sealed memfd; the caller closes it. A step in each turn of the
 * loop; the last one ends in observer->on_changed(). The plan that stands takes no step
 * and no generation: on_changed() comes at once. On failure nothing is changed. While one
 * change is under way another one fails (-EBUSY). */
int engine_sandbox_change(struct engine_sandbox *g, int plan_fd,
			  struct err *err) MUST_CHECK;
/* Another plan, which stays mapped, in this turn. On failure nothing is changed. */
int engine_sandbox_change_at_once(struct engine_sandbox *g, const struct plan *next,
				  struct err *err) MUST_CHECK;
/* Give up what is under way, if anything is; its end is not reported. */
void engine_sandbox_change_cancel(struct engine_sandbox *g);

/* -- what is learned outlives the engine --------------------------------------------- */

/* Map the file @fd of LEARNED_SNAPSHOT_SIZE, which the caller closes. Return: 0, or
 * -errno:
 * @g goes on without a snapshot, and its status says so. */
int engine_sandbox_snapshot_map(struct engine_sandbox *g, int fd);
/* The kernel can say that a page can't be had: the file need not be reserved ahead. */
bool engine_sandbox_snapshot_may_be_sparse(void);
void engine_sandbox_snapshot_done(struct engine_sandbox *g);
/* Where budgets_keep() keeps its counts: behind what is learned, and none of what all
 * share. NULL: that can't be had, or not the first page. */
void *engine_sandbox_kept_budgets(struct engine_sandbox *g);
/* @g leaves its engine: others may have what it took of what all share. */
void engine_sandbox_snapshot_leave(struct engine_sandbox *g);

/* Elements of the kernel's learned sets when this engine came. Zero: none. */
struct engine_elements {
	struct engine_element *items; /* owned */
	size_t count, capacity;
	size_t max;  /* over it the rest is not taken over */
	bool is_cut; /* the kernel had more than were read */
};
/* Return: 0, or -errno and there are none. */
int engine_elements_read(struct engine_elements *e, struct filter_conn *c,
			 size_t lists) MUST_CHECK;
/* Take over what the snapshot says that @g had learned, as far as @e (NULL: nothing) has
 * it. */
void engine_sandbox_adopt(struct engine_sandbox *g, const struct engine_elements *e);

/* -- refused packets, and others who change the ruleset ----------------------------- */

/* Return: whether there may be more. */
bool engine_sandbox_drain_refused(struct engine_sandbox *g);
/* Read the rules back, and put them back if they aren't what they should be, or are late.
 */
void engine_sandbox_verify(struct engine_sandbox *g);
/* The kernel's generation id is what it should be from now on. Before the rules are read
 * back or made, not after: what others change meanwhile is seen by the next check. */
void engine_sandbox_seen_now(struct engine_sandbox_seen *seen, struct filter_conn *c);
/* Have others changed something since? 1: they have; 0: they haven't, and @seen is now;
 * or -errno: that can't be seen. */
int engine_sandbox_seen_check(struct engine_sandbox_seen *seen,
			      struct filter_conn *c) MUST_CHECK;
/* An event: others had changed the filter. @r says whether it could be put back. */
void engine_sandbox_report_repair(struct engine_sandbox *g, int r);
/* Put the filter back if others have changed it. Return: there was something to check. */
bool engine_sandbox_audit(struct engine_sandbox *g);
