// SPDX-License-Identifier: Apache-2.0
/* sandbox/budgets - what the rules of a plan have left: of a budget of bytes, and of
 * their time.
 *
 * BUDGETS
 * The relay asks before it takes bytes how many may pass, so what goes by it ends at the
 * byte. What the kernel lets pass is counted there for each address and added here about
 * once a second, so that much more may have passed. A period begins with its first byte.
 *
 * ENDS
 * The text of a policy has the end as a time of the wall clock, which anybody's NTP may
 * step. So each end gets a second time when a plan with it comes: on the clock that never
 * steps and goes on during suspend. The rule ends with the earlier of both, and what has
 * ended stays so. An end that the plan before had keeps its second time; after a restart
 * of the process the wall clock alone is left. */
#pragma once

#include "policy/plan.h"
#include "sandbox/learned.h"

struct budgets;
struct sandbox;

/* Those of @plan. A rule whose target @old has as well, the same budget or another one,
 * goes on where it was: of several rules with that target, where the one with the same
 * ports was. @old stays the caller's and may be NULL. plan->spent is set.
 * Return: NULL where @plan has none, or memory is out: then all are used up. */
struct budgets *budgets_new(const struct budgets *old, struct plan *plan,
			    int64_t now_ms) MUST_CHECK;
void budgets_free(struct budgets *b);

/* Keep a copy of the counts in @kept from now on: memory of BUDGETS_KEPT_SIZE that
 * outlives the engine, and the caller's. A crash at any moment leaves it whole. */
enum {
	BUDGETS_KEPT_SIZE = 8192,
	/* In a snapshot, behind what is learned. */
	BUDGETS_KEPT_AT = LEARNED_SNAPSHOT_SIZE - BUDGETS_KEPT_SIZE,
};
void budgets_keep(struct budgets *b, void *kept);
/* Note in the snapshot @fd, a fresh file, that what was counted is lost: what it keeps
 * isn't sound. Return: 0 or -errno. */
int budgets_lose(int fd) MUST_CHECK;
/* budgets_new() after an engine that is gone, with what it left in @kept. Where nobody
 * has kept anything, all zero, none has been counted; where @kept is NULL or isn't sound,
 * all are used up: those with a period for a whole one, the others for good. */
struct budgets *budgets_adopt(const void *kept, struct plan *plan,
			      int64_t now_ms) MUST_CHECK;
/* The bit of @rule's own budget, bit i of plan_budget(i); 0: it has none. What may leave
 * by all rules together has a bit of its own: that of PLAN_NO_RULE. */
uint64_t budgets_of(const struct plan *p, uint32_t rule);
/* Bytes that may pass by all budgets of the bits of @which now, in that direction;
 * UINT64_MAX: any. */
uint64_t budgets_left(const struct budgets *b, const struct plan *p, uint64_t which,
		      bool received, int64_t now_ms);
/* So many have passed, for which each of them pays. Return: one is used up by that. */
bool budgets_count(struct budgets *b, const struct plan *p, uint64_t which, uint64_t sent,
		   uint64_t received, int64_t now_ms);
/* plan.spent as of now. */
uint64_t budgets_spent(const struct budgets *b, const struct plan *p, int64_t now_ms);
/* What is to count as used up instead of @closed: @spent, and those of @closed that begin
 * anew and have to wait. Each that opens takes a generation of the policy, and one more
 * when it is used up. There are 65,535, and the kernel keeps an idle flow for five days:
 * so 4,096 may open at once, and one every 16 seconds, so that no generation returns
 * while a flow may still have its mark.
 *
 * And no more than one change in BUDGETS_CHANGE_MS: until then it is @closed. A change
 * takes the engine milliseconds, and a sandbox that has many budgets brings about as many
 * as it likes. budgets_left() says at once what is used up. What was used up closes even
 * where its period is over by then (budgets_due()): a flow that had nothing left waits to
 * be cut. */
enum { BUDGETS_CHANGE_MS = 250 };
uint64_t budgets_hold(struct budgets *b, uint64_t closed, uint64_t spent, int64_t now_ms);
/* Bit i: plan_budget(i) was used up, and budgets_hold() has not said so yet. */
uint64_t budgets_due(const struct budgets *b);
/* Bit i: that of plan_budget(i) was used up since this was asked last. */
uint64_t budgets_take_news(struct budgets *b);
/* The milliseconds until one that is used up begins anew; INT64_MAX: none does. */
int64_t budgets_next_ms(const struct budgets *b, const struct plan *p, int64_t now_ms);

/* The same of @s, which may have none; who has a budget that is used up is told. */
void sandbox_spend(struct sandbox *s, uint64_t which, uint64_t sent, uint64_t received,
		   int64_t now_ms);
/* What has passed can't all be counted: each budget that cuts is used up. */
void sandbox_spend_all(struct sandbox *s, int64_t now_ms);

/* ---- which ends of a plan's rules lie ahead ---- */

struct grants;

/* Those of @plan, whose ends_ahead are set; @old, which may be NULL, belongs to the plan
 * before and stays the caller's. Return: NULL where @plan has no ends, or memory is out:
 * then none lies ahead. */
struct grants *grants_new(const struct grants *old, struct plan *plan, int64_t wall_ms,
			  int64_t now_ms) MUST_CHECK;
void grants_free(struct grants *g);
/* plan.ends_ahead as of now. */
uint64_t grants_ahead(struct grants *g, int64_t wall_ms, int64_t now_ms);
/* The milliseconds to the next end; INT64_MAX: none lies ahead. */
int64_t grants_next_ms(const struct grants *g, int64_t wall_ms, int64_t now_ms);
