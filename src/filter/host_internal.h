// SPDX-License-Identifier: Apache-2.0
/* filter/host_internal - what the parts of filter/host share: host.c has the members,
 * what each has learned, changes them one by one and replaces the whole table;
 * host_table.c writes and reads what the table has for each member; ruleset.c builds
 * chains and sets. */
#pragma once

#include "base/hash.h"
#include "filter/host.h"
#include "filter/nft.h"
#include "filter/ruleset.h"

enum {
	HOST_IDS = 1 << 16,
	HOST_LEVELS =
		FILTER_HOST_LEVEL_MAX + 1, /* 0: user ids; else a level of cgroups */
	HOST_MARK_SHIFT = FILTER_MEMBER_SHIFT,
	HOST_BUCKETS = 1 << 12,
};
#define HOST_TABLE	 "weir_host"
#define HOST_GUARD_TABLE "weir_host_guard"
#define HOST_MEMBER_MASK 0xffff0000u /* of a mark */

/* ---- host_table.c: what is learned ---- */

/* What stands in the kernel under one mark. */
struct host_learned_entry {
	struct addr addr;
	uint8_t port_list;
	bool taken;
	bool draining;	  /* in the set of draining addresses */
	int64_t until_ms; /* the kernel has it no longer; INT64_MAX when @draining */
};

struct host_learned {
	struct host_learned_entry *at; /* owned; open addressing */
	size_t capacity, used;
};

void host_learned_done(struct host_learned *l);
/* Make room for @count more, so that host_learned_note() can't fail. */
int host_learned_reserve(struct host_learned *l, const struct hash_key *key, size_t count,
			 int64_t now_ms) MUST_CHECK;
/* @item was added, or removed when its lifetime is 0. */
void host_learned_note(struct host_learned *l, const struct hash_key *key,
		       const struct filter_learn *item, bool draining, int64_t now_ms);

/* ---- what stands ---- */

/* What tells the chains and sets of one plan from those of another. Names aren't in them:
 * many policies have the same. */
struct host_digest {
	uint64_t of[2];
};

/* A plan that members have, as chains and sets whose names begin with its number. */
struct host_plan {
	uint16_t number; /* not 0 */
	uint64_t serial; /* grows from plan to plan */
	struct host_digest digest;
	uint32_t users;
	bool in_kernel; /* and in the host's list of plans */
	bool relay;
	struct plan plan; /* owned bytes */
	struct host_plan *next;
};

struct host_member {
	uint16_t id;
	struct member who;
	struct host_plan *plan; /* counted */
	struct host_learned learned;
	bool left_over;		  /* of an earlier process; everything is closed to it */
	struct host_member *next; /* in its bucket */
};

/* Elements of a mark that is no member's. */
struct host_stale {
	uint32_t mark;
	struct host_learned learned;
	size_t at;
	struct host_stale *next;
};

struct filter_host {
	struct filter_conn conn;
	struct filter_host_params params;
	struct hash_key key;
	bool loaded;
	uint64_t loads;			   /* so many */
	uint64_t serial;		   /* of the plan that was made last */
	uint16_t plan_number;		   /* the last one that was given */
	uint32_t level_users[HOST_LEVELS]; /* 0: the kernel has no set for it */
	struct host_plan *plans,
		**plans_end; /* in the order in which the kernel has them */
	struct host_stale *stale;
	/* While a table that another process has made is replaced: the marks of flows
	 * that it had accepted. */
	uint32_t *live;
	size_t live_count;
	size_t count, left_over;
	struct host_member *members[HOST_IDS]; /* owned */
	struct host_member *by_who[HOST_BUCKETS];
	/* The newest plan that whoever had an id has had: a mark must not come again, for
	 * flows that were accepted under another policy may still have it. */
	uint64_t newest[HOST_IDS];
};

static inline uint32_t host_mark(const struct host_member *m)
{
	return (uint32_t)m->id << HOST_MARK_SHIFT | m->plan->number;
}

static inline uint32_t host_id_mark(const struct host_member *m)
{
	return (uint32_t)m->id << HOST_MARK_SHIFT;
}

static inline size_t host_level_of(const struct member *m)
{
	return m->kind == MEMBER_UID ? 0 : m->level;
}

/* ---- host_table.c: what a batch is made of ---- */

/* The name of @level's map, or of its pairs. */
void host_level_name(size_t level, bool pairs, char ret[FILTER_NAME_MAX]);
/* Add or delete the elements of @m but those that @other (may be NULL) has as well: what
 * stays isn't touched. */
void host_put_member(struct nl_writer *w, bool add, const struct host_member *m,
		     const struct host_member *other);

/* Where a member has an element each. */
enum host_element_kind {
	HOST_LIVE = 0, /* its marks */
	HOST_OWNS,
	HOST_CURRENT, /* its mark by its id */
	HOST_KNOWN,   /* its id, as it stands in flows */
	HOST_WHO,     /* in the map of its level; in the others all have one */
	HOST_FLOWS,   /* the level's pairs; of user ids, the orphans */
	HOST_ELEMENT_KINDS
};
/* Add each member's element of @kind; of a level's set only where the level has users. */
void host_put_kind(struct nl_writer *w, const struct filter_host *h, const char *table,
		   enum host_element_kind kind);

/* What of a plan comes; or all of it goes. */
enum host_plan_parts {
	HOST_PLAN_GOES = 0,
	HOST_PLAN_SETS = 1,
	HOST_PLAN_CHAINS = 2, /* when its sets are there */
	HOST_PLAN_COMES = HOST_PLAN_SETS | HOST_PLAN_CHAINS,
};
int host_put_plan(struct nl_writer *w, const struct filter_host *h,
		  enum host_plan_parts parts, const struct host_plan *p,
		  struct err *err) MUST_CHECK;
/* HOST_PLAN_CHAINS of a plan whose ruleset is built already. */
void host_put_plan_chains(struct nl_writer *w, const struct host_plan *p,
			  const struct ruleset *rs);
/* A level comes, with its sets, or goes, and the rules that ask for each level are
 * those for the levels that @h has now. */
int host_put_level(struct nl_writer *w, const struct filter_host *h, bool add,
		   size_t level) MUST_CHECK;
/* What @m has learned, as far as it lives. */
int host_put_learned(struct nl_writer *w, const struct host_member *m,
		     int64_t now_ms) MUST_CHECK;
/* Take one away; it may have ended meanwhile. */
void host_put_stale(struct nl_writer *w, uint32_t mark,
		    const struct host_learned_entry *e);
/* The marks of flows that the guard's table lets pass: what a table has accepted that
 * stands, or will. */
void host_put_passed(struct nl_writer *w, const struct filter_host *h);

/* ---- host_table.c: what stands ---- */

/* Who the members of the table that stands are. */
typedef int host_member_fn(struct filter_host *h, const struct member *who,
			   struct err *err);
/* h->live, from the table that stands, as far as it can be read. */
void host_read_live(struct filter_host *h);
int host_read_members(struct filter_host *h, host_member_fn *fn,
		      struct err *err) MUST_CHECK;
/* The largest number of a plan in a table that stands; 0: there is none. */
int host_read_plan_number(struct filter_host *h, uint16_t *ret) MUST_CHECK;

/* ---- ruleset.c ---- */

/* The chains and sets that are there whoever the members are, and those of the levels in
 * use. Lives in @arena. */
int host_build_base(const struct filter_host *h, struct arena *arena,
		    const struct ruleset **ret) MUST_CHECK;
/* A table that drops what members send. */
int host_build_guard(const struct filter_host *h, struct arena *arena,
		     const struct ruleset **ret) MUST_CHECK;
/* Those of a plan. */
int host_build_plan(const struct filter_host *h, const struct host_plan *p,
		    struct arena *arena, const struct ruleset **ret,
		    struct err *err) MUST_CHECK;
/* A chain whose rules depend on the levels in use. */
bool host_chain_has_levels(const struct filter_chain *c);
