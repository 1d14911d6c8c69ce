// SPDX-License-Identifier: Apache-2.0
/* engine/change - another policy for a sandbox that runs: one kernel transaction, then
 * everything that is served goes by the new plan.
 *
 *   1. what was learned is judged by the new plan (learned_rebase)
 *   2. the ruleset of the next generation takes the old one's place in one transaction;
 *      the learned sets stay in it, and of what they hold it brings, moves and takes away
 *      what is not the same any more, or makes them anew where what they hold isn't known
 *      for sure; a failure leaves everything as it was
 *   3. the sandbox's plan and table are exchanged: queries that wait are judged again
 *      before they are answered, relay flows that aren't allowed any more are reset
 *
 * Open flows that are still allowed find their address in a set and get the new
 * generation's mark; all others are refused with their next packet. */
#pragma once

#include "base/arena.h"
#include "relay/relay.h"
#include "sandbox/sandbox.h"

/* Install the ruleset of @plan for the first time, over whatever stands: @s has filter,
 * its parameters (with the generation of what stands, 0 for nothing) and own set. What
 * s->learned has, if there is one, is in the new sets. Failure leaves everything as it
 * was, here and below; verify: tls without a relay is one (-EOPNOTSUPP). */
int sandbox_install(struct sandbox *s, const struct plan *plan,
		    struct err *err) MUST_CHECK;
/* @relay may be NULL. @plan's bytes have to stay as long as the sandbox has it; the old
 * one's may go after success. The generation in s->shared_params is then the new one's.
 */
int sandbox_change(struct sandbox *s, const struct plan *plan, struct relay *relay,
		   int64_t now_ms, struct err *err) MUST_CHECK;
/* The same in steps, for a policy with many address ranges: what is large is loaded
 * beside what stands, about a millisecond's worth at a time, and packets don't meet it
 * before the change. */
struct sandbox_staging {
	struct plan plan;
	struct filter_shared_params params; /* with the generation that comes */
	const struct ruleset *rules;	    /* in @arena; NULL before the first step */
	struct arena arena;
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
			  struct relay *relay, int64_t now_ms,
			  struct err *err) MUST_CHECK;
void sandbox_staging_done(struct sandbox_staging *st);
void sandbox_stage_abandon(struct sandbox *s, struct sandbox_staging *st);
/* Make the ruleset that should stand and hold it against the kernel's. 0: it stands. */
int sandbox_verify(struct sandbox *s, struct err *err) MUST_CHECK;
/* Put back what somebody else removed or changed: as sandbox_change() to the same plan.
 * What passed meanwhile and is not allowed is cut. (The host's table, s->host, is put
 * back as a whole, by filter_host_load().) */
int sandbox_repair(struct sandbox *s, struct relay *relay, int64_t now_ms,
		   struct err *err) MUST_CHECK;
