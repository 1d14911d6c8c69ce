// SPDX-License-Identifier: Apache-2.0
/* sandbox/learned - the addresses that a sandbox's DNS answers have taught, and the
 * names they came from. Never shared between sandboxes. Pure: time is an argument,
 * the kernel's sets are changed by the caller.
 *
 * An entry (name, address) lives from the commit of the answer that carried it until
 * `expires_ms`: the TTL, but at least LIMIT_MIN_LIFETIME_SEC and at most
 * LIMIT_MAX_LIFETIME_SEC, plus LIMIT_GRACE_SEC. The kernel's element for (address,
 * port list) lives as long as the longest entry that wants it.
 *
 * When a table is full the entry that expires first makes room; an answer is never
 * refused for it. */
#pragma once

#include "base/arena.h"
#include "base/hash.h"
#include "dns/name.h"
#include "filter/filter.h"
#include "policy/plan.h"

struct learned;

/* How much longer than an entry of ours the kernel's element may live. */
enum { LEARNED_SLACK_MS = 2000 };

struct learned *learned_new(const struct plan *plan, const struct hash_key *key);
void learned_free(struct learned *l);

/* The longest TTL that an answer may have under this plan. */
uint32_t learned_ttl_max(const struct plan *plan);

/* One address of an answer for @name, whose verdict is @verdict, with @ttl_sec. */
struct learned_item {
	const struct dns_name *name;
	struct plan_verdict verdict;
	struct addr addr;
	uint32_t ttl_sec;
	uint32_t lifetime_ms; /* 0: from the TTL and the limits; else exactly this */
	bool is_passing;      /* the self-test's: not in the snapshot, and forgotten */
};

/* What has to be sent to the kernel so that @item may be used until its TTL (grace
 * included) has passed: the element to add or refresh, at *@ret. Nothing when the
 * kernel's element outlives the TTL anyway, or when what is already prepared does.
 * Marks nothing as learned yet, but makes sure that there will be memory for it. Each
 * successful call is followed by one learned_commit() or learned_abort() of the same
 * item.
 * Return: how many elements, 0 or 1, or -ENOMEM. */
int learned_prepare(struct learned *l, const struct learned_item *item, int64_t now_ms,
		    struct filter_learn *ret) MUST_CHECK;
/* The kernel has acknowledged what was prepared for @item. */
void learned_commit(struct learned *l, const struct learned_item *item, int64_t now_ms);
/* It has not. */
void learned_abort(struct learned *l, const struct learned_item *item, int64_t now_ms);
/* Elements that no name wants any more and that the kernel would keep: write their
 * deletions to @changes (room for @max), to be sent in one transaction with whatever
 * else. Return: how many. */
size_t learned_sweep(struct learned *l, int64_t now_ms, struct filter_learn *changes,
		     size_t max) MUST_CHECK;
/* A transaction with deletions failed: they end by their own timeouts, and until then
 * what is learned anew may be there already. */
void learned_sweep_failed(struct learned *l);

/* @name does not teach @a any more: with the next transaction that learned_sweep() writes
 * for, the kernel refuses new flows to it, unless another name teaches it. */
void learned_forget(struct learned *l, const struct dns_name *name, const struct addr *a,
		    int64_t now_ms);

/* For the relay and for explain: a name that taught us @a and is still valid. */
struct learned_use {
	struct dns_name name;
	uint32_t rule;
	uint8_t port_list;
	uint8_t flags; /* PLAN_PRIVATE … of the rule */
	int64_t expires_ms;
};
/* Return: how many, newest first, at most @max. */
size_t learned_find(const struct learned *l, const struct addr *a, int64_t now_ms,
		    struct learned_use *ret, size_t max);
/* Each rule whose names teach @a. A rule may come more than once. */
typedef void learned_rule_fn(void *data, uint32_t rule, uint8_t port_list);
void learned_rules(const struct learned *l, const struct addr *a, learned_rule_fn *fn,
		   void *data);
/* Each whose names taught @a and that is in force still: a flow may outlive what opened
 * it. All that has ended is gone through. Return: false: more has ended than is kept, so
 * there may be others. */
bool learned_past_rules(const struct learned *l, const struct addr *a,
			learned_rule_fn *fn, void *data);
/* Does @name, among however many, teach @a now? */
bool learned_teaches(const struct learned *l, const struct dns_name *name,
		     const struct addr *a, int64_t now_ms);

enum { LEARNED_ADDRS_MAX = 1024 };
/* The valid addresses of @name, of @family (ADDR_NONE: of all). Return: how many, at most
 * @max and LEARNED_ADDRS_MAX, those that were committed last first. */
size_t learned_addrs(const struct learned *l, const struct dns_name *name,
		     enum addr_family family, int64_t now_ms, struct addr *ret,
		     size_t max);

/* Drop what has expired. Return: when to call again (ms), INT64_MAX when empty. */
int64_t learned_expire(struct learned *l, int64_t now_ms);

/* -- a change of the policy --------------------------------------------------------- */

/* Remember what has ended, too, so that flows that are open outlive a change of the
 * policy: at most LEARNED_PAST_MAX pairs of a name and an address, the newest. */
enum { LEARNED_PAST_MAX = 4096 };
void learned_keep_past(struct learned *l);

/* What a table becomes under another plan, and what the kernel's sets then hold. The
 * arrays live in the caller's arena. */
struct learned_rebased {
	/* Owned by the caller until it takes the old one's place. Keeps no snapshot yet.
	 */
	struct learned *table;
	struct filter_learn *learned; /* with the lifetimes that are left */
	size_t learned_count;
	/* For flows that are open and may go on, though what opened them has ended or
	 * will before their next packet: @learned, and what has ended, as far as its name
	 * is still allowed. */
	struct filter_learn *draining;
	size_t draining_count;
	/* The same as changes of what the kernel has; NULL: that is not known, or too
	 * much changes. */
	const struct filter_difference *difference;
};
/* Judge every entry of @old by @plan: what is still allowed is carried over, under its
 * new rule and port list. @old is not changed: should the transaction fail, free the new
 * table and go on. No item is prepared and not committed at this time. The new table
 * borrows @plan; see learned_set_plan().
 * Return: 0 or -ENOMEM. */
int learned_rebase(const struct learned *old, const struct plan *plan, int64_t now_ms,
		   struct arena *arena, struct learned_rebased *ret) MUST_CHECK;
/* What @plan says of a table, found ahead of a change. In @arena; NULL: no memory. */
struct learned_judging;
struct learned_judging *learned_judging_new(const struct learned *l,
					    const struct plan *plan, struct arena *arena);
/* Judge the next @max items of the table. *@ret_count items of @ret are learned and go on
 * under @plan, on the same ports, and are not in the kernel's sets for open flows yet.
 * There they open nothing that is not open: these sets are for flows that were let
 * through before, to where new ones are let through. Return: there are more. */
bool learned_judge(const struct learned *l, const struct plan *plan, int64_t now_ms,
		   struct learned_judging *j, struct filter_learn *ret, size_t max,
		   size_t *ret_count) MUST_CHECK;
/* The kernel has acknowledged them. -ENOMEM: they have to go again. */
int learned_note_draining(struct learned *l, const struct filter_learn *items,
			  size_t count) MUST_CHECK;
/* All that is learned, and has ended, goes on under @plan and its port list, so that the
 * table can stay, and no new one has to be made of it. What learned_judge() has judged is
 * not judged again. Return: what changes in the kernel's sets, in @arena; NULL: something
 * does not go on, or that is not known: learned_rebase() is due. */
const struct filter_difference *learned_stays(const struct learned *l,
					      const struct plan *plan,
					      struct learned_judging *j,
					      struct arena *arena);
/* The kernel has acknowledged @d: the entries get the rules of the new plan. -ENOMEM:
 * what the kernel has for open flows isn't known any more. */
int learned_stayed(struct learned *l, const struct learned_judging *j,
		   const struct filter_difference *d) MUST_CHECK;
/* The kernel's sets are made of this table now, and every change of it will be sent to
 * the kernel. */
void learned_set_active(struct learned *l);
/* The kernel holds nothing for open flows: a ruleset without them was put in place. */
void learned_keep_none(struct learned *l);
/* The same plan lies elsewhere from now on. */
void learned_set_plan(struct learned *l, const struct plan *plan);

/* -- outliving the engine ----------------------------------------------------------- */

enum {
	LEARNED_SNAPSHOT_SIZE = 4 * 1024 * 1024,
	LEARNED_SNAPSHOT_RECORDS = 9 * 1024,
	/* What is reserved is a multiple of it, and begins at one. */
	LEARNED_SNAPSHOT_STEP = 4096,
};

/* Where a copy of all entries, and of what has ended, outlives the engine. */
struct learned_snapshot {
	/* Shared memory of LEARNED_SNAPSHOT_SIZE, aligned to LEARNED_SNAPSHOT_STEP; NULL:
	 * none.
	 */
	void *bytes;
	/* All of it is zero, and none of it is touched before there is something to keep:
	 * so it takes no memory. */
	bool is_fresh;
	/* There was no room for the entry that was learned last: it is not in the copy.
	 */
	bool is_full;
	/* See to it that bytes from @from up to @to can be read and written, or return
	 * false. A page of a sparse file on a full file system is SIGBUS. NULL: all can.
	 */
	bool (*reserve)(struct learned_snapshot *s, size_t from, size_t to);
};

/* Keep the copy in @s (borrowed) from now on: what is committed is written through, what
 * ends is taken out. A crash at any moment leaves each record whole or absent. Not in it
 * are entries for which nothing can be reserved, and those beyond
 * LEARNED_SNAPSHOT_RECORDS, which only a policy with higher limits than the default has.
 */
void learned_snapshot_keep(struct learned *l, struct learned_snapshot *s);
/* @to, which takes the place of @from, keeps the copy from now on, if there is one. */
void learned_snapshot_move(struct learned *from, struct learned *to);
/* Take over what an engine before us left in @s, before anything else is learned:
 * entries whose bytes are sound, whose name @l's plan allows under the same port list,
 * whose time (CLOCK_BOOTTIME) has not come, and whose element the kernel has (@has says
 * for how long yet, in ms; 0: not). What has ended is taken over, too, as far as its name
 * is allowed. Return: how many entries. */
typedef uint32_t learned_has_fn(void *data, const struct addr *a, uint8_t port_list);
size_t learned_snapshot_adopt(struct learned *l, struct learned_snapshot *s,
			      int64_t now_ms, learned_has_fn *has, void *data);

/* After an adoption: the kernel has only elements that @l knows, and none for longer than
 * until @until_ms. Return: false, and nothing is taken for so: no engine has the kernel
 * keep an address for that long. */
bool learned_bound_doubt(struct learned *l, int64_t until_ms) MUST_CHECK;

struct learned_counts {
	size_t names, addresses, evicted;
	size_t elements; /* that the kernel has to have for them */
};
struct learned_counts learned_counts(const struct learned *l);
