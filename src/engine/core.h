// SPDX-License-Identifier: Apache-2.0
/* engine/core - what every engine does, whoever started it: DNS, learned addresses,
 * relay and refused packets of its sandboxes on one event loop. */
#pragma once

#include "engine/sandbox.h"
#include "relay/relay.h"
#include "resolver/dns_service.h"
#include "sandbox/accounting.h"

enum {
	ENGINE_SANDBOXES_MAX = 65536, /* ids have 16 bits; over it: -ENOSPC */
	/* Tamper watch: all sandboxes each turn of 50 ms, but at most this many. So with
	 * up to 500 each is audited within 100 ms, with more in turn, at 5,000 audits a
	 * second. Where the kernel lets no other process change a table that has an
	 * owner, an audit finds nothing but a kernel that has lost it: a tenth of them
	 * will do.
	 */
	ENGINE_AUDITS_MAX = 250,
	ENGINE_AUDITS_OWNED_MAX = 25,
	ENGINE_WATCH_EVERY_MS = 50,
	/* The last sandbox that was taken over, or the last try. */
	ENGINE_VERIFY_AFTER_MS = 100,
};

struct engine_host;

struct engine_core {
	struct loop *loop;
	struct dns_service *dns;
	struct relay *relay;
	struct hash_key key;
	int route_fd;
	/* By id; NULL: the id is free. Borrowed: engine.c frees them. */
	struct engine_sandbox **sandboxes;
	size_t slots, count;
	struct engine_host *host; /* owned; NULL: no sandbox of the host's namespace */
	size_t host_count;	  /* of @count, those that are of it */
	int64_t repin_ms;	  /* dns: pinned: how often, where a policy doesn't say */
	struct loop_timer expiry;
	size_t snapshot_bytes;	  /* sandbox.c: that all share */
	size_t expiry_at;	  /* slot that is next in this round */
	int64_t expiry_next_ms;	  /* the soonest that this round has seen */
	struct loop_timer grants; /* the next end of a rule */
	size_t grants_at;	  /* slot that is next in this round */
	int64_t grants_next_ms;	  /* when the next round is due, as far as is known */
	bool grants_counted;	  /* the host's counters were read in this round */
	/* Puts back rules that others change; started once, with ENGINE_WATCH_EVERY_MS */
	struct loop_timer watch;
	size_t watch_at;
	/* Reads back what was taken over, one sandbox after the other, once no more of
	 * them come: started anew by each, with ENGINE_VERIFY_AFTER_MS; and makes anew
	 * what is late */
	struct loop_timer verify;
	size_t verify_at;
	int64_t slept_ms; /* clock_slept_ms() when all filters were last made anew */
	/* account.c */
	struct aggregation_pool events; /* that wait, of all sandboxes */
	struct loop_timer account;
	size_t account_at;
	char missing[ERR_TEXT_SIZE]; /* what could not be confined */
};

/* Loop, DNS, relay; nothing is served yet. @dns has everything but loop and key. */
int engine_core_init(struct engine_core *c, const struct dns_service_config *dns,
		     struct err *err) MUST_CHECK;
/* @g takes the place of its id. -EEXIST: it is taken; -ENOSPC; -ENOMEM. */
int engine_core_add(struct engine_core *c, struct engine_sandbox *g) MUST_CHECK;
void engine_core_take_out(struct engine_core *c, struct engine_sandbox *g);
struct engine_sandbox *engine_core_find(const struct engine_core *c, uint32_t id);
/* @slept_ms is clock_slept_ms(): if it has grown, have all filters made anew. */
void engine_core_look_for_suspend(struct engine_core *c, int64_t slept_ms);
/* Serve the DNS and relay sockets of @s. */
int engine_core_serve(struct engine_core *c, struct sandbox *s,
		      struct err *err) MUST_CHECK;

/* -- change.c: rules that end, and budgets that are used up -------------------------- */

/* The ends of @plan, which @g is about to have; NULL: none lies ahead. */
struct grants *engine_grants_new(const struct engine_sandbox *g,
				 struct plan *plan) MUST_CHECK;
/* @g has a plan whose rules may end: they do from now on. */
void engine_grants_watch(struct engine_sandbox *g);
/* What passes by the rules of @plan counts from now on. In `weir run` the sandbox ends
 * with its engine; where another one may come, what can't be kept for it is used up. */
void engine_grants_count(struct engine_sandbox *g, struct plan *plan, bool is_first);
/* An event, if the counts of budgets can't be kept. */
void engine_grants_on_unkept(struct engine_sandbox *g);
/* A budget of an engine_sandbox's @s is used up. */
void engine_grants_on_spent(struct sandbox *s);

/* -- account.c: what is reported at the end of a window ------------------------ */

int engine_account_init(struct engine_core *c) MUST_CHECK;
/* What was refused so far was the self-test's, and so is what has passed, unless an
 * engine was here before. */
void engine_account_begin(struct engine_sandbox *g);
/* What the kernel has counted for @g, or for all sandboxes of the host, while no engine
 * was there. What the one before had learned is adopted, and its ruleset stands. */
void engine_account_passed_before(struct engine_sandbox *g);
void engine_account_host_before(struct engine_host *h);
/* What was refused up to now is in @g's counters, unless it was refused very many
 * destinations. */
void engine_account_read(struct engine_sandbox *g);
/* Everything that is known and untold: @g ends, or another plan's rules are counted from
 * now on. */
void engine_account_all(struct engine_sandbox *g);
/* The same without the counters that all sandboxes of the host share: an
 * engine_account_all() of another one has just read them. */
void engine_account_own(struct engine_sandbox *g);

/* -- the first steps of an engine's process ----------------------------------------- */

/* Fork an engine, which runs @run and ends with the calling process; only SIGKILL counts
 * in there, and the end of its channels. Return: its pid, or -errno. */
pid_t engine_fork(void (*run)(const void *config), const void *config,
		  struct err *err) MUST_CHECK;
/* Only SIGKILL counts then, and the end of the channels. */
void engine_reset_signals(void);
/* A session of its own, /dev/null on 0 to 2, the descriptors *@keep[i] on 3 + i (and
 * *@keep[i] says so; -1 stays -1 and its place empty), everything else closed. */
int engine_keep_only(int *const keep[], size_t count) MUST_CHECK;
