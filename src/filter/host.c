// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A CHANGE
 *
 * What is asked for is written into a batch first, beside a copy of what it changes here;
 * only when the kernel has taken the batch does the copy take the old one's place. Plans
 * and levels (user ids; each level of cgroups) are counted: with its first user a batch
 * makes its chains and sets, with its last one it takes them away.
 *
 * A plan has chains and sets of its own, and no packet meets them before a member has it.
 * So those of a plan with many ranges are loaded in transactions of their own, some
 * ranges in each, and the chains last; from then on it stands like any other plan, only
 * that nobody has it yet. The change itself then finds it there.
 *
 * THE WHOLE TABLE
 *
 * A table that stands is replaced by another one in one transaction, but a packet that is
 * on its way through the old one just then may miss what it looks up there, and who is no
 * member is free. So a second table, behind both, drops what members send meanwhile and
 * neither of the two has accepted: that flow has no mark of theirs. What they accept
 * passes, so that nobody has to send again.
 *
 * One that somebody has taken away is put back the same way: that second table is a tenth
 * of the work, and from then on nothing is open. */
#include "filter/host_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/arena.h"
#include "filter/nft.h"
#include "policy/policy.h"

enum {
	TIDY_MAX = 128, /* elements that filter_host_tidy() takes away at a time */
	NUMBERS_AHEAD = 1 << 15,
};

/* ---- owners ---- */

static void host_plan_free(struct host_plan *p)
{
	if (!p)
		return;
	free((void *)(uintptr_t)p->plan.bytes);
	free(p);
}

static void host_member_free(struct host_member *m)
{
	if (!m)
		return;
	host_learned_done(&m->learned);
	free(m);
}

static void host_stale_free(struct host_stale *l)
{
	host_learned_done(&l->learned);
	free(l);
}

/* ---- plans ---- */

/* A number that no plan has, and none had lately: flows may have it in their marks.
 * 0: there is none. */
static uint16_t plan_number(const struct filter_host *h)
{
	uint16_t number = h->plan_number;

	for (size_t tries = 0; tries < UINT16_MAX; tries++) {
		const struct host_plan *p = h->plans;

		number = (uint16_t)(number % UINT16_MAX + 1);
		while (p && p->number != number)
			p = p->next;
		if (!p)
			return number;
	}
	return 0;
}

/* What a plan would be in the kernel. */
static int host_plan_digest(struct filter_host *h, const struct plan *plan, bool relay,
			    struct host_digest *ret, struct err *err)
{
	const struct host_plan unnumbered = { .relay = relay, .plan = *plan };
	const struct hash_key other = { ~h->key.k0, ~h->key.k1 };
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, 0);
	int r;

	for (const struct host_plan *p = h->plans; p; p = p->next)
		if (p->relay == relay && plan_same_state(&p->plan, plan) &&
		    p->plan.size == plan->size &&
		    memcmp(p->plan.bytes, plan->bytes, plan->size) == 0) {
			*ret = p->digest;
			return 0;
		}
	r = host_put_plan(&w, h, HOST_PLAN_COMES, &unnumbered, err);
	if (r == 0)
		r = w.failed;
	if (r < 0)
		return r;
	ret->of[0] = hash_bytes(&h->key, w.bytes, w.size);
	ret->of[1] = hash_bytes(&other, w.bytes, w.size);
	return 0;
}

/* A copy of @plan, not linked yet; NULL: no memory, or no number. */
static struct host_plan *host_plan_new(struct filter_host *h, const struct plan *plan,
				       bool relay, const struct host_digest *digest)
{
	uint16_t number = plan_number(h);
	CLEAN(mem) struct host_plan *p = number ? calloc(1, sizeof(*p)) : NULL;
	uint8_t *bytes = p ? malloc(plan->size) : NULL; /* aligned to 16 */

	if (!bytes)
		return NULL;
	memcpy(bytes, plan->bytes, plan->size);
	p->plan = *plan;
	p->plan.bytes = bytes;
	p->relay = relay;
	p->number = number;
	p->digest = *digest;
	p->serial = ++h->serial;
	h->plan_number = number;
	return TAKE_PTR(p);
}

/* One that is there already, and newer than @since; or NULL. */
static struct host_plan *host_plan_find(const struct filter_host *h,
					const struct host_digest *digest, uint64_t since)
{
	struct host_plan *newest = NULL;

	/* The newest: so those that change one after the other meet again in one. */
	for (struct host_plan *p = h->plans; p; p = p->next)
		if (p->serial > since && memcmp(&p->digest, digest, sizeof(*digest)) == 0)
			newest = p;
	return newest;
}

/* The kernel has it now. */
static void host_plan_link(struct filter_host *h, struct host_plan *p)
{
	p->in_kernel = true;
	*h->plans_end = p;
	h->plans_end = &p->next;
	h->plan_number = p->number;
}

static void plan_unlink(struct filter_host *h, struct host_plan *gone)
{
	struct host_plan **at = &h->plans;

	while (*at != gone)
		at = &(*at)->next;
	*at = gone->next;
	if (h->plans_end == &gone->next)
		h->plans_end = at;
	host_plan_free(gone);
}

/* ---- who the members are ---- */

static size_t bucket_of(const struct filter_host *h, const struct member *who)
{
	const uint64_t key[] = { who->kind, who->cgroup, who->uid };

	return (size_t)hash_bytes(&h->key, key, sizeof(key)) & (HOST_BUCKETS - 1);
}

/* The member that has the control group or the user id of @who, or NULL. */
static struct host_member *host_find_member(const struct filter_host *h,
					    const struct member *who)
{
	struct host_member *m = h->by_who[bucket_of(h, who)];

	while (m && (m->who.kind != who->kind || m->who.cgroup != who->cgroup ||
		     m->who.uid != who->uid))
		m = m->next;
	return m;
}

/* ---- changes ---- */

/* A member in the place of another one, either of which may be missing. */
struct change {
	struct filter_host *host;
	struct nl_writer *w;
	struct host_member *old, *new;
	struct host_plan *plan; /* of @new; not linked yet when it has no users */
	struct err *err;
};

static void put_without(struct nl_writer *w, uint32_t mark, const struct host_learned *l)
{
	for (size_t i = 0; i < l->capacity; i++)
		if (l->at[i].taken)
			host_put_stale(w, mark, &l->at[i]);
}

/* Ways come before what belongs to them, and go after it. The counts of their users are
 * as they will be while the batch is written. */
static int write_members_change(const struct change *k, const struct filter_state *state)
{
	struct filter_host *h = k->host;
	size_t old = k->old ? host_level_of(&k->old->who) : 0;
	size_t new = k->new ? host_level_of(&k->new->who) : 0;
	int r = 0;

	if (k->new && h->level_users[new]++ == 0)
		r = host_put_level(k->w, h, true, new);
	if (r < 0)
		return r;
	if (k->old)
		host_put_member(k->w, false, k->old, k->new);
	if (k->new) {
		const uint32_t mark = host_mark(k->new);
		const struct set_owner o = { FILTER_NAMES_HOST, mark };

		/* Where the mark was the sandbox's before, the elements that it had
		 * learned then are in the sets still. */
		for (const struct host_stale *l = h->stale; l; l = l->next)
			if (l->mark == mark)
				put_without(k->w, mark, &l->learned);
		if (k->old && host_mark(k->old) == mark)
			put_without(k->w, mark, &k->old->learned);
		host_put_member(k->w, true, k->new, k->old);
		set_put_items(k->w, &o, FILTER_ROLE_LEARNED, state->learned,
			      state->learned_count);
		set_put_items(k->w, &o, FILTER_ROLE_DRAINING, state->draining,
			      state->draining_count);
	}
	if (k->old && k->old->plan->users == 1 && k->old->plan != k->plan)
		r = host_put_plan(k->w, h, HOST_PLAN_GOES, k->old->plan, k->err);
	if (r == 0 && k->old && --h->level_users[old] == 0)
		r = host_put_level(k->w, h, false, old);
	return r;
}

/* The kernel takes all of the batch @w or nothing. */
static int transact(struct filter_host *h, struct nl_writer *w, struct err *err)
{
	uint32_t seq;
	int r;

	nl_batch_end(w);
	r = nl_transact(&h->conn, w, &seq);
	return r < 0 ? nft_report(w, seq, r, err) : 0;
}

/* The kernel has a set's ranges a moment after the rules of the same batch (install.c):
 * so a plan is there before any member has it. */
static int put_plan_first(struct filter_host *h, struct host_plan *plan, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	int r;

	nl_batch(&w);
	r = host_put_plan(&w, h, HOST_PLAN_COMES, plan, err);
	if (r < 0)
		return err->code ? r : err_sys(err, r, "cannot build the filter");
	r = transact(h, &w, err);
	if (r == 0)
		host_plan_link(h, plan);
	return r;
}

/* No member has @plan: take it away. Without success it goes with the next load. */
static void drop_plan(struct filter_host *h, struct host_plan *plan)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct err ignored = { 0 };

	nl_batch(&w);
	if (h->loaded && host_put_plan(&w, h, HOST_PLAN_GOES, plan, &ignored) == 0) {
		nl_batch_end(&w);
		(void)!nl_transact(&h->conn, &w, NULL);
	}
	plan_unlink(h, plan);
}

/* One transaction; nothing when the table isn't ours yet. */
static int commit_change(const struct change *k, const struct filter_state *state)
{
	struct filter_host *h = k->host;
	uint32_t users[HOST_LEVELS];
	int r;

	if (!h->loaded)
		return 0;
	nl_batch(k->w);
	memcpy(users, h->level_users, sizeof(users));
	r = write_members_change(k, state);
	memcpy(h->level_users, users, sizeof(users));
	if (r < 0)
		return k->err->code ? r : err_sys(k->err, r, "cannot build the filter");
	return transact(h, k->w, k->err);
}

static void settle_new(const struct change *k)
{
	struct filter_host *h = k->host;
	struct host_member *m = k->new, **bucket = &h->by_who[bucket_of(h, &m->who)];
	const uint32_t mark = host_mark(m);

	/* What was left under the mark is gone. */
	for (struct host_stale **at = &h->stale; *at;) {
		struct host_stale *l = *at;

		if (l->mark != mark) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		host_stale_free(l);
	}
	h->level_users[host_level_of(&m->who)]++;
	k->plan->users++;
	if (!k->plan->in_kernel)
		host_plan_link(h, k->plan);
	h->newest[m->id] = k->plan->serial;
	m->next = *bucket;
	*bucket = m;
	h->members[m->id] = m;
	h->count++;
	h->left_over += m->left_over;
}

static void settle_old(const struct change *k)
{
	struct filter_host *h = k->host;
	struct host_member *old = k->old, **at = &h->by_who[bucket_of(h, &old->who)];
	struct host_stale *l = NULL;
	uint32_t mark = host_mark(old);

	while (*at != old)
		at = &(*at)->next;
	*at = old->next;
	if (h->members[old->id] == old)
		h->members[old->id] = NULL;
	h->count--;
	h->left_over -= old->left_over;
	/* Without memory what was learned ends by its lifetime. */
	if ((!k->new || host_mark(k->new) != mark) && old->learned.used > 0)
		l = calloc(1, sizeof(*l));
	if (l) {
		l->mark = mark;
		l->learned = old->learned;
		old->learned = (struct host_learned){ 0 };
		l->next = h->stale;
		h->stale = l;
	}
	h->level_users[host_level_of(&old->who)]--;
	if (--old->plan->users == 0)
		plan_unlink(h, old->plan);
	host_member_free(old);
}

/* What was written is so. */
static void settle(const struct change *k)
{
	if (k->new)
		settle_new(k);
	if (k->old)
		settle_old(k);
}
/* ---- attach, change ---- */

static int check(const struct filter_host *h, const struct filter_host_sandbox *s,
		 struct err *err)
{
	const struct member *who = &s->member;
	const struct host_member *m = host_find_member(h, who);
	bool is_valid = false;

	switch (who->kind) {
	case MEMBER_CGROUP:
		is_valid = who->cgroup != 0 && who->level > 0 &&
			   who->level <= FILTER_HOST_LEVEL_MAX;
		break;
	case MEMBER_UID:
		is_valid = who->uid != UINT32_MAX;
		break;
	case MEMBER_NONE:
		break;
	}
	if (s->id == 0 || !is_valid)
		return err_set(err, -EINVAL,
			       "cannot attach: not a sandbox's number, "
			       "cgroup or user id");
	if (s->relay && h->params.relay_port == 0)
		return err_set(err, -EINVAL, "cannot attach: there is no relay");
	if (m && m->id != s->id)
		return err_set(err, -EEXIST,
			       "cannot attach: sandbox %u is that cgroup or user id",
			       m->id);
	return 0;
}

static int note_state(struct filter_host *h, struct host_member *m,
		      const struct filter_state *state, int64_t now_ms)
{
	int r;

	if (!set_items_are_valid(state->learned, state->learned_count) ||
	    !set_items_are_valid(state->draining, state->draining_count))
		return -EINVAL;
	r = host_learned_reserve(&m->learned, &h->key,
				 state->learned_count + state->draining_count, now_ms);
	if (r < 0)
		return r;
	for (size_t i = 0; i < state->learned_count; i++)
		host_learned_note(&m->learned, &h->key, &state->learned[i], false,
				  now_ms);
	for (size_t i = 0; i < state->draining_count; i++)
		host_learned_note(&m->learned, &h->key, &state->draining[i], true,
				  now_ms);
	return 0;
}

static int set(struct filter_host *h, const struct filter_host_sandbox *s, int64_t now_ms,
	       struct err *err)
{
	static const struct filter_state nothing;
	const struct filter_state *state = s->state ? s->state : &nothing;
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct change k = { .host = h, .w = &w, .err = err };
	struct host_digest digest;
	int r = check(h, s, err);

	if (r < 0)
		return r;
	k.old = h->members[s->id];
	k.new = calloc(1, sizeof(*k.new));
	r = host_plan_digest(h, s->plan, s->relay, &digest, err);
	if (r == 0)
		k.plan = host_plan_find(h, &digest, h->newest[s->id]);
	if (r == 0 && !k.plan)
		k.plan = host_plan_new(h, s->plan, s->relay, &digest);
	if (r == 0)
		r = k.plan && k.new ? note_state(h, k.new, state, now_ms) : -ENOMEM;
	if (r < 0) {
		if (err->code == 0)
			err_sys(err, r, "cannot attach");
	} else {
		k.new->id = s->id;
		k.new->who = s->member;
		k.new->plan = k.plan;
		if (h->loaded && !k.plan->in_kernel)
			r = put_plan_first(h, k.plan, err);
		w = nl_writer(NULL, 0, h->conn.seq);
		if (r == 0)
			r = commit_change(&k, state);
	}
	if (r < 0) {
		host_member_free(k.new);
		if (k.plan && !k.plan->in_kernel)
			host_plan_free(k.plan);
		else if (k.plan && k.plan->users == 0)
			drop_plan(h, k.plan);
		return r;
	}
	settle(&k);
	return 0;
}

/* Write it down without a transaction: it is to be loaded. @s->id 0: any that is free,
 * from the last one down. */
static int host_write_down(struct filter_host *h, const struct filter_host_sandbox *s,
			   bool left_over, struct err *err)
{
	struct filter_host_sandbox given = *s;
	bool loaded = h->loaded;
	int r;

	if (given.id == 0) {
		given.id = HOST_IDS - 1;
		while (given.id > 0 && h->members[given.id])
			given.id--;
	}
	h->loaded = false;
	r = set(h, &given, 0, err);
	h->loaded = loaded;
	if (r == 0 && left_over) {
		h->members[given.id]->left_over = true;
		h->left_over++;
	}
	return r;
}

/* Everything is closed to @who, under any number that is free. */
static int keep_closed(struct filter_host *h, const struct member *who, struct err *err)
{
	CLEAN(mem) uint8_t *bytes = NULL;
	struct filter_host_sandbox s = { .member = *who };
	const struct policy nothing = { 0 };
	struct plan plan;
	size_t size;
	int r;

	if (host_find_member(h, who))
		return 0; /* it has been set */
	r = policy_compile(&nothing, &bytes, &size, err);
	if (r == 0)
		r = plan_open(bytes, size, &plan, err);
	s.plan = &plan;
	return r < 0 ? r : host_write_down(h, &s, true, err);
}

/* Members that were left over are closed. One that is set comes under the number of who
 * asks, and one that has the number of another gets a number that is free: for both the
 * whole table is made anew, see above. */
int filter_host_set(struct filter_host *h, const struct filter_host_sandbox *s,
		    int64_t now_ms, struct err *err)
{
	struct host_member *m = host_find_member(h, &s->member);
	struct host_member *other = h->members[s->id];
	const bool is_elsewhere = m && m->left_over && m->id != s->id;
	const bool is_in_the_way = other && other->left_over && other != m &&
				   (!m || m->left_over);
	const struct member who = is_in_the_way ? other->who : (struct member){ 0 };
	const bool loaded = h->loaded;
	struct change forget = { .host = h };
	int r;

	if (!is_elsewhere && !is_in_the_way)
		return set(h, s, now_ms, err);
	h->loaded = false; /* should it fail, both are found in the kernel again */
	if (is_elsewhere) {
		forget.old = m;
		settle(&forget);
	}
	if (is_in_the_way) {
		forget.old = other;
		settle(&forget);
	}
	r = host_write_down(h, s, false, err);
	if (r == 0 && is_in_the_way)
		r = keep_closed(h, &who, err);
	return r < 0 || !loaded ? r : filter_host_load(h, now_ms, err);
}

void filter_host_forget(struct filter_host *h, uint16_t id)
{
	struct host_member *m = h->members[id];

	if (!m || m->left_over)
		return;
	m->left_over = true;
	h->left_over++;
}

bool filter_host_is_forgotten(const struct filter_host *h, uint16_t id)
{
	return h->members[id] && h->members[id]->left_over;
}

int filter_host_remove(struct filter_host *h, uint16_t id, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct change k = { .host = h, .w = &w, .err = err, .old = h->members[id] };
	int r;

	if (!k.old)
		return 0;
	r = commit_change(&k, NULL);
	if (r < 0)
		return r;
	settle(&k);
	return 0;
}

/* ---- large plans ---- */

struct filter_host_stage {
	struct host_plan *plan; /* owned until it stands, then it has one user in us */
	struct arena arena;
	const struct ruleset *rules;
	struct filter_staging at;
	uint64_t loads; /* of the host's: another one has taken away what was loaded */
	bool stands;
};

static void stage_free(struct filter_host_stage *st)
{
	if (!st->stands)
		host_plan_free(st->plan);
	arena_done(&st->arena);
	free(st);
}

/* Return: 1, it is worth it; 0, it isn't; or -errno. */
static int stage_begin(struct filter_host *h, uint16_t id, const struct plan *plan,
		       bool relay, struct filter_host_stage **ret, struct err *err)
{
	struct filter_host_stage *st;
	struct host_digest digest;
	size_t ranges = 0;
	int r = h->loaded ? host_plan_digest(h, plan, relay, &digest, err) : 0;

	if (r < 0 || !h->loaded || host_plan_find(h, &digest, h->newest[id]))
		return r;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->plan = host_plan_new(h, plan, relay, &digest);
	r = st->plan ? host_build_plan(h, st->plan, &st->arena, &st->rules, err)
		     : -ENOMEM;
	for (const struct filter_set *s = r < 0 ? NULL : st->rules->sets; s; s = s->next)
		ranges += s->range_count;
	if (r < 0 || ranges < FILTER_LARGE) {
		stage_free(st);
		return r;
	}
	st->at.next = st->rules->sets;
	st->loads = h->loads;
	*ret = st;
	return 1;
}

int filter_host_stage(struct filter_host *h, uint16_t id, const struct plan *plan,
		      bool relay, struct filter_host_stage **progress, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct filter_host_stage *st = *progress;
	int r;

	if (!st)
		return stage_begin(h, id, plan, relay, progress, err);
	if (st->stands)
		return 0;
	if (st->loads != h->loads || !h->loaded)
		return err_set(err, -ESTALE, "the table was made anew meanwhile");
	if (st->at.next) {
		r = nft_stage(&h->conn, HOST_TABLE, &st->at);
		return r < 0 ? err_sys(err, r, "cannot load a plan's sets") : 1;
	}
	/* The sets are there: now the chains. */
	nl_batch(&w);
	host_put_plan_chains(&w, st->plan, st->rules);
	r = transact(h, &w, err);
	if (r < 0)
		return r;
	host_plan_link(h, st->plan);
	st->plan->users = 1;
	st->stands = true;
	return 0;
}

void filter_host_stage_end(struct filter_host *h, struct filter_host_stage *st)
{
	if (!st)
		return;
	if (st->stands && --st->plan->users == 0) {
		drop_plan(h, st->plan);
	} else if (!st->stands && st->loads == h->loads) {
		nft_unstage(&h->conn, HOST_TABLE, st->rules->sets, &st->at);
	}
	stage_free(st);
}

/* ---- learning ---- */

int filter_host_learn(struct filter_host *h, uint16_t id,
		      const struct filter_learn *items, size_t count, int64_t now_ms)
{
	struct host_member *m = h->members[id];
	struct set_owner o = { .naming = FILTER_NAMES_HOST };
	int r;

	if (!m)
		return -ENOENT;
	if (!h->loaded)
		return -EAGAIN;
	o.mark = host_mark(m);
	r = host_learned_reserve(&m->learned, &h->key, count, now_ms);
	if (r == 0)
		r = set_learn(&h->conn, &o, items, count);
	for (size_t i = 0; i < count && r == 0; i++)
		host_learned_note(&m->learned, &h->key, &items[i], false, now_ms);
	return r;
}

bool filter_host_tidy(struct filter_host *h, int64_t now_ms)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct host_stale *l = h->stale;
	size_t count = 0;

	if (!l || !h->loaded)
		return false;
	nl_batch(&w);
	for (; l->at < l->learned.capacity && count < TIDY_MAX; l->at++) {
		const struct host_learned_entry *e = &l->learned.at[l->at];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		host_put_stale(&w, l->mark, e);
		count++;
	}
	nl_batch_end(&w);
	if (count > 0)
		(void)!nl_transact(&h->conn, &w, NULL); /* they end by themselves */
	if (l->at == l->learned.capacity) {
		h->stale = l->next;
		host_stale_free(l);
	}
	return h->stale;
}

/* ---- all of it ---- */

/* What the writers of a whole table get. */
struct host_now {
	const struct filter_host *host;
	int64_t now_ms;
	bool is_lost;  /* the table: nothing is accepted */
	bool staged;   /* the plans' sets are there: members get their plans at once */
	bool *is_ours; /* whether the plan of that number is */
};

/* In the order in which things were made. */
static int put_all(struct nl_writer *w, const void *data, struct err *err)
{
	const struct host_now *k = data;
	const struct filter_host *h = k->host;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *base;
	int r = host_build_base(h, &arena, &base);

	if (r < 0)
		return err_sys(err, r, "cannot build the filter");
	nft_sets(w, HOST_TABLE, base);
	nft_chains(w, HOST_TABLE, base);
	for (const struct host_plan *p = h->plans; p && r == 0; p = p->next)
		r = host_put_plan(w, h, k->staged ? HOST_PLAN_CHAINS : HOST_PLAN_COMES, p,
				  err);
	if (r < 0)
		return r;
	for (int kind = 0; kind < HOST_ELEMENT_KINDS; kind++)
		if (k->staged || kind != HOST_CURRENT)
			host_put_kind(w, h, HOST_TABLE, (enum host_element_kind)kind);
	for (size_t i = 0; i < HOST_IDS && r == 0; i++)
		if (h->members[i])
			r = host_put_learned(w, h->members[i], k->now_ms);
	return r < 0 ? err_sys(err, r, "cannot build the filter") : 0;
}

/* The guard's table: what members send is dropped, but what a table of members that
 * stands, or will, has accepted; where the table is lost, all of it. */
static int put_guard(struct nl_writer *w, const void *data, struct err *err)
{
	const struct host_now *k = data;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_guard(k->host, &arena, &rs);

	if (r < 0)
		return err_sys(err, r, "cannot build the filter");
	nft_sets(w, HOST_GUARD_TABLE, rs);
	nft_chains(w, HOST_GUARD_TABLE, rs);
	host_put_kind(w, k->host, HOST_GUARD_TABLE, HOST_WHO);
	if (!k->is_lost)
		host_put_passed(w, k->host);
	return 0;
}

/* A set of one of our plans: a plan of the table before has another number, or its sets
 * would have been in the way. */
static bool plan_set_stays(void *data, const char *name)
{
	const struct host_now *k = data;
	struct text t = text_of(name), number;
	uint32_t n;

	return name[0] == 'p' && text_split(&t, '_', &number) &&
	       text_to_u32((struct text){ number.ptr + 1, number.len - 1 }, UINT16_MAX,
			   &n) &&
	       k->is_ours[n];
}

/* The kernel has a set's ranges a moment after the rules of the same batch (install.c):
 * so the sets of the plans come into the table of the engine before, which becomes ours,
 * and then all else takes its place at once. On failure it stands as it was. */
static int take_over(struct filter_host *h, struct host_now *now, struct err *err)
{
	CLEAN(mem) bool *is_ours = calloc(UINT16_MAX + 1, sizeof(*is_ours));
	CLEAN(nl_writer) struct nl_writer w = { 0 };
	const struct nft_switch how = { HOST_TABLE, plan_set_stays, put_all, now };
	int r = is_ours ? filter_take_over(&h->conn) : -ENOMEM;

	if (r < 0 && r != -EOPNOTSUPP)
		return r;
	w = nl_writer(NULL, 0, h->conn.seq);
	nl_batch(&w);
	r = 0;
	for (const struct host_plan *p = h->plans; p && r == 0; p = p->next) {
		is_ours[p->number] = true;
		r = host_put_plan(&w, h, HOST_PLAN_SETS, p, err);
	}
	if (r < 0)
		return r;
	r = transact(h, &w, err);
	now->is_ours = is_ours;
	now->staged = true; /* for put_all() */
	if (r == 0)
		r = nft_table_switch(&h->conn, &how, err);
	now->staged = false;
	now->is_ours = NULL;
	return r;
}

/* Give the members their plans, whose sets are there by now. What they sent in between
 * was dropped. */
static int put_current(struct filter_host *h, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);

	nl_batch(&w);
	host_put_kind(&w, h, HOST_TABLE, HOST_CURRENT);
	return transact(h, &w, err);
}

/* Our table in the place of @old. A table of an engine before is taken over. A table of
 * ours has the plans' sets already, under the same names, and is all made anew: at once
 * in a repair, and in a load of filter_host_set() when take_over() has failed by them. */
static int put_table(struct filter_host *h, const struct nft_found *old,
		     struct host_now *now, struct err *err)
{
	struct err ignored = { 0 };
	int r;

	if (old->exists && !h->loaded && take_over(h, now, &ignored) == 0)
		return 0;
	r = nft_table_replace(&h->conn, old, put_all, now, err);
	if (r < 0)
		return r;
	h->conn.uncounted = 0;
	return put_current(h, err);
}

static void clear_all_stale(struct filter_host *h)
{
	while (h->stale) {
		struct host_stale *l = h->stale;

		h->stale = l->next;
		host_stale_free(l);
	}
}

static int find_tables(struct filter_host *h, struct nft_found *table,
		       struct nft_found *guard)
{
	int r = nft_table_find(&h->conn, HOST_TABLE, table);

	return r < 0 ? r : nft_table_find(&h->conn, HOST_GUARD_TABLE, guard);
}

bool filter_host_is_loaded(const struct filter_host *h)
{
	return h->loaded;
}

int filter_host_is_owned(struct filter_host *h)
{
	struct nft_found table, guard;
	int r = find_tables(h, &table, &guard);

	return r < 0 ? r : h->loaded && table.owned && !guard.exists;
}

int filter_host_load(struct filter_host *h, int64_t now_ms, struct err *err)
{
	struct host_now now = { h, now_ms };
	struct nft_found table, guard;
	int r = find_tables(h, &table, &guard);

	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the host");
	now.is_lost = h->loaded && !table.exists && h->count > 0;
	if (table.exists && !h->loaded) {
		r = host_read_members(h, keep_closed, err);
		if (r < 0 && err->code == 0)
			err_sys(err, r, "cannot read what stands on the host");
	}
	/* What can't be read is dropped meanwhile. */
	if (table.exists && !h->loaded && r == 0)
		host_read_live(h);
	/* A table that is lost accepts nothing, and there is no time to lose. */
	if ((table.exists || now.is_lost) && r == 0)
		r = nft_table_replace(&h->conn, &guard, put_guard, &now, err);
	if (r == 0)
		r = put_table(h, &table, &now, err);
	/* If it stays, because the table failed, members are shut. */
	if (r == 0 && (table.exists || guard.exists || now.is_lost)) {
		r = nft_table_remove(&h->conn, HOST_GUARD_TABLE);
		if (r < 0)
			err_sys(err, r, "cannot open the filter again");
	}
	free(h->live);
	h->live = NULL;
	h->live_count = 0;
	if (r < 0)
		return r;
	h->loaded = true;
	h->loads++;
	clear_all_stale(h);
	return 0;
}

/* ---- the whole ---- */

int filter_host_new(int fd, const struct filter_host_params *params,
		    struct filter_host **ret, struct err *err)
{
	struct filter_host *h;
	int r;

	if (params->dns_port == 0 || params->dns_port == FILTER_DNS_PORT)
		return err_set(err, -EINVAL, "cannot guard the host: no port for DNS");
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_sys(err, -ENOMEM, "cannot guard the host");
	r = getrandom(&h->key, sizeof(h->key), 0) == sizeof(h->key)
		    ? filter_conn_init(&h->conn, fd, err)
		    : err_sys(err, -errno, "cannot guard the host");
	if (r < 0) {
		free(h);
		return r;
	}
	h->conn.naming = FILTER_NAMES_HOST;
	h->params = *params;
	h->plans_end = &h->plans;
	r = host_read_plan_number(h, &h->plan_number);
	if (r < 0) {
		filter_host_free(h);
		return err_sys(err, r, "cannot read what stands on the host");
	}
	/* Plans that are gone by now, with their table or without it, may have had higher
	 * ones, and flows still have them. */
	h->plan_number += (uint16_t)(h->key.k0 % NUMBERS_AHEAD);
	*ret = h;
	return 0;
}

void filter_host_free(struct filter_host *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < HOST_IDS; i++)
		host_member_free(h->members[i]);
	while (h->plans) {
		struct host_plan *p = h->plans;

		h->plans = p->next;
		host_plan_free(p);
	}
	clear_all_stale(h);
	filter_conn_done(&h->conn);
	free(h);
}

struct filter_conn *filter_host_conn(struct filter_host *h)
{
	return &h->conn;
}
