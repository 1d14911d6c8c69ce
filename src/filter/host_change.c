// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * What is asked for is written into a batch first, beside a copy of what it changes here;
 * only when the kernel has taken the batch does the copy take the old one's place. Plans
 * and ways (user ids; each level of cgroups) are counted: with its first user a batch
 * makes its chains and sets, with its last one it takes them away.
 *
 * A plan has chains and sets of its own, and no packet meets them before a member has it.
 * So those of a plan with many ranges are loaded in transactions of their own, some
 * ranges in each, and the chains last; from then on it stands like any other plan, only
 * that nobody has it yet. The change itself then finds it there. */
#include "filter/host_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "filter/netlink.h"
#include "filter/set.h"

/* ---- plans ---- */

static bool plan_is(const struct host_plan *p, const struct plan *plan, bool relay)
{
	return p->relay == relay && p->plan.size == plan->size &&
	       memcmp(p->plan.bytes, plan->bytes, plan->size) == 0;
}

static struct host_plan *plan_copy(const struct plan *plan, bool relay, uint16_t number)
{
	struct host_plan *p = calloc(1, sizeof(*p));
	uint8_t *bytes = malloc(plan->size); /* aligned to 16 */

	if (!p || !bytes) {
		free(p);
		free(bytes);
		return NULL;
	}
	memcpy(bytes, plan->bytes, plan->size);
	p->plan = (struct plan){ bytes, plan->size };
	p->relay = relay;
	p->number = number;
	return p;
}

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

int host_plan_digest(struct filter_host *h, const struct plan *plan, bool relay,
		     struct host_digest *ret, struct err *err)
{
	const struct host_plan unnumbered = { .relay = relay, .plan = *plan };
	const struct hash_key other = { ~h->key.k0, ~h->key.k1 };
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, 0);
	int r;

	for (const struct host_plan *p = h->plans; p; p = p->next)
		if (plan_is(p, plan, relay)) {
			*ret = p->digest;
			return 0;
		}
	r = host_put_plan(&w, h, true, &unnumbered, err);
	if (r == 0)
		r = w.failed;
	if (r < 0)
		return r;
	ret->of[0] = hash_bytes(&h->key, w.bytes, w.size);
	ret->of[1] = hash_bytes(&other, w.bytes, w.size);
	return 0;
}

struct host_plan *host_plan_new(struct filter_host *h, const struct plan *plan,
				bool relay, const struct host_digest *digest)
{
	uint16_t number = plan_number(h);
	struct host_plan *p = number ? plan_copy(plan, relay, number) : NULL;

	if (!p)
		return NULL;
	p->digest = *digest;
	p->serial = ++h->serial;
	h->plan_number = number;
	return p;
}

struct host_plan *host_plan_find(const struct filter_host *h,
				 const struct host_digest *digest, uint64_t since)
{
	struct host_plan *newest = NULL;

	/* The newest: so those that change one after the other meet again in one. */
	for (struct host_plan *p = h->plans; p; p = p->next)
		if (p->serial > since && memcmp(&p->digest, digest, sizeof(*digest)) == 0)
			newest = p;
	return newest;
}

void host_plan_link(struct filter_host *h, struct host_plan *p)
{
	p->made = ++h->made;
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

void host_plan_remove(struct filter_host *h, struct host_plan *p, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);

	nl_batch(&w);
	if (h->loaded && host_put_plan(&w, h, false, p, err) == 0) {
		nl_batch_end(&w);
		(void)!nl_transact(&h->conn, &w, NULL);
	}
	plan_unlink(h, p);
}

/* ---- who the members are ---- */

static size_t bucket_of(const struct filter_host *h, const struct filter_member *who)
{
	const uint64_t key[] = { who->kind, who->cgroup, who->uid };

	return (size_t)hash_bytes(&h->key, key, sizeof(key)) & (HOST_BUCKETS - 1);
}

struct host_member *host_find_member(const struct filter_host *h,
				     const struct filter_member *who)
{
	struct host_member *m = h->by_who[bucket_of(h, who)];

	while (m && (m->who.kind != who->kind || m->who.cgroup != who->cgroup ||
		     m->who.uid != who->uid))
		m = m->next;
	return m;
}

static void member_link(struct filter_host *h, struct host_member *m)
{
	struct host_member **bucket = &h->by_who[bucket_of(h, &m->who)];

	m->next = *bucket;
	*bucket = m;
	h->members[m->id] = m;
	h->count++;
	h->left_over += m->left_over;
}

static void member_unlink(struct filter_host *h, struct host_member *m)
{
	struct host_member **at = &h->by_who[bucket_of(h, &m->who)];

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	if (h->members[m->id] == m)
		h->members[m->id] = NULL;
	h->count--;
	h->left_over -= m->left_over;
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

static bool comes(const struct change *k, size_t way)
{
	return k->new &&host_way_of(&k->new->who) == way && k->host->ways[way].users == 0;
}

static bool goes(const struct change *k, size_t way)
{
	return k->old && host_way_of(&k->old->who) == way &&
	       k->host->ways[way].users == 1 &&
	       !(k->new &&host_way_of(&k->new->who) == way);
}

/* Ways come before what belongs to them, and go after it. */
static int put_ways(const struct change *k, bool add)
{
	struct filter_host *h = k->host;
	uint64_t made[HOST_WAYS];
	bool changed = false;
	int r = 0;

	for (size_t i = 0; i < HOST_WAYS; i++)
		made[i] = h->ways[i].made;
	for (size_t i = 0; i < HOST_WAYS && r == 0; i++) {
		if (comes(k, i))
			h->ways[i].made = h->made + 1;
		if (add ? !comes(k, i) : !goes(k, i))
			continue;
		changed = true;
		if (add)
			r = host_put_way_sets(k->w, h, true, i);
		else
			h->ways[i].made = 0;
	}
	if (changed && r == 0)
		r = host_put_way_rules(k->w, h);
	for (size_t i = 0; i < HOST_WAYS; i++)
		h->ways[i].made = made[i];
	for (size_t i = 0; i < HOST_WAYS && r == 0 && !add; i++)
		if (goes(k, i))
			r = host_put_way_sets(k->w, h, false, i);
	return r;
}

/* The mark was the sandbox's before: what it had learned then is in the way. */
static void put_without(struct nl_writer *w, uint32_t mark, const struct host_learned *l)
{
	for (size_t i = 0; i < l->capacity; i++)
		if (l->at[i].taken)
			host_put_stale(w, mark, &l->at[i]);
}

static void put_new(const struct change *k, const struct filter_state *state)
{
	uint32_t mark = host_mark(k->new);

	for (const struct host_stale *l = k->host->stale; l; l = l->next)
		if (l->mark == mark)
			put_without(k->w, mark, &l->learned);
	if (k->old && host_mark(k->old) == mark)
		put_without(k->w, mark, &k->old->learned);
	host_put_member(k->w, true, k->new, k->old);
	host_put_state(k->w, k->new, state);
}

static bool plan_goes(const struct change *k)
{
	return k->old && k->old->plan->users == 1 && k->old->plan != k->plan;
}

static int write_change(const struct change *k, const struct filter_state *state)
{
	int r = put_ways(k, true);

	if (r == 0 && k->new && k->plan->made == 0)
		r = host_put_plan(k->w, k->host, true, k->plan, k->err);
	if (r < 0)
		return r;
	if (k->old)
		host_put_member(k->w, false, k->old, k->new);
	if (k->new)
		put_new(k, state);
	if (plan_goes(k))
		r = host_put_plan(k->w, k->host, false, k->old->plan, k->err);
	return r < 0 ? r : put_ways(k, false);
}

/* One transaction; nothing when the table isn't ours yet. */
static int commit_change(const struct change *k, const struct filter_state *state)
{
	struct filter_host *h = k->host;
	uint32_t seq;
	int r;

	if (!h->loaded)
		return 0;
	nl_batch(k->w);
	r = write_change(k, state);
	if (r < 0)
		return k->err->code ? r : err_sys(k->err, r, "cannot build the filter");
	nl_batch_end(k->w);
	r = nl_transact(&h->conn, k->w, &seq);
	return r < 0 ? netlink_report(k->w, seq, r, k->err) : 0;
}

/* What was left under @mark is gone. */
static void clear_stale(struct filter_host *h, uint32_t mark)
{
	for (struct host_stale **at = &h->stale; *at;) {
		struct host_stale *l = *at;

		if (l->mark != mark) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		host_stale_free(l);
	}
}

static void leave_stale(struct filter_host *h, struct host_member *m, uint32_t mark)
{
	struct host_stale *l;

	if (m->learned.used == 0)
		return;
	l = calloc(1, sizeof(*l)); /* without it they end by their lifetime */
	if (!l)
		return;
	l->mark = mark;
	l->learned = m->learned;
	m->learned = (struct host_learned){ 0 };
	l->next = h->stale;
	h->stale = l;
}

static void settle_new(const struct change *k)
{
	struct filter_host *h = k->host;
	size_t way = host_way_of(&k->new->who);

	clear_stale(h, host_mark(k->new));
	if (h->ways[way].users++ == 0)
		h->ways[way].made = ++h->made;
	k->plan->users++;
	if (k->plan->made == 0)
		host_plan_link(h, k->plan);
	h->newest[k->new->id] = k->plan->serial;
	member_link(h, k->new);
}

static void settle_old(const struct change *k)
{
	struct filter_host *h = k->host;
	size_t way = host_way_of(&k->old->who);
	uint32_t mark = host_mark(k->old);

	member_unlink(h, k->old);
	if (!k->new || host_mark(k->new) != mark)
		leave_stale(h, k->old, mark);
	if (--h->ways[way].users == 0)
		h->ways[way].made = 0;
	if (--k->old->plan->users == 0)
		plan_unlink(h, k->old->plan);
	host_member_free(k->old);
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

static bool member_is_valid(const struct filter_member *m)
{
	switch (m->kind) {
	case FILTER_MEMBER_CGROUP:
		return m->cgroup != 0 && m->level > 0 &&
		       m->level <= FILTER_HOST_LEVEL_MAX;
	case FILTER_MEMBER_UID:
		return m->uid != UINT32_MAX;
	case FILTER_MEMBER_NONE:
		break;
	}
	return false;
}

static int check(const struct filter_host *h, const struct filter_host_sandbox *s,
		 struct err *err)
{
	const struct host_member *m = host_find_member(h, &s->member);

	if (s->id == 0 || !member_is_valid(&s->member))
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

	for (size_t i = 0; i < state->learned_count; i++)
		if (!set_item_is_valid(&state->learned[i]))
			return -EINVAL;
	for (size_t i = 0; i < state->kept_count; i++)
		if (!set_item_is_valid(&state->kept[i]))
			return -EINVAL;
	r = host_learned_reserve(&m->learned, &h->key,
				 state->learned_count + state->kept_count, now_ms);
	if (r < 0)
		return r;
	for (size_t i = 0; i < state->learned_count; i++)
		host_learned_note(&m->learned, &h->key, &state->learned[i], false,
				  now_ms);
	for (size_t i = 0; i < state->kept_count; i++)
		host_learned_note(&m->learned, &h->key, &state->kept[i], true, now_ms);
	return 0;
}

static struct host_member *member_new(const struct filter_host_sandbox *s)
{
	struct host_member *m = calloc(1, sizeof(*m));

	if (m) {
		m->id = s->id;
		m->who = s->member;
	}
	return m;
}

static int find_plan(struct filter_host *h, const struct filter_host_sandbox *s,
		     struct host_plan **ret, struct err *err)
{
	struct host_digest digest;
	int r = host_plan_digest(h, s->plan, s->relay, &digest, err);

	if (r < 0)
		return r;
	*ret = host_plan_find(h, &digest, h->newest[s->id]);
	if (!*ret)
		*ret = host_plan_new(h, s->plan, s->relay, &digest);
	return *ret ? 0 : -ENOMEM;
}

static int set(struct filter_host *h, const struct filter_host_sandbox *s, int64_t now_ms,
	       struct err *err)
{
	static const struct filter_state nothing;
	const struct filter_state *state = s->state ? s->state : &nothing;
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct change k = { .host = h, .w = &w, .err = err };
	int r = check(h, s, err);

	if (r < 0)
		return r;
	k.old = h->members[s->id];
	k.new = member_new(s);
	r = find_plan(h, s, &k.plan, err);
	if (r == 0)
		r = k.new ? note_state(h, k.new, state, now_ms) : -ENOMEM;
	if (r < 0) {
		if (err->code == 0)
			err_sys(err, r, "cannot attach");
	} else {
		k.new->plan = k.plan;
		r = commit_change(&k, state);
	}
	if (r < 0) {
		host_member_free(k.new);
		if (k.plan && k.plan->made == 0)
			host_plan_free(k.plan);
		return r;
	}
	settle(&k);
	return 0;
}

/* Who was left over with that cgroup or user id under another number. NULL: nobody. */
static struct host_member *find_in_the_way(const struct filter_host *h,
					   const struct filter_host_sandbox *s)
{
	struct host_member *m = host_find_member(h, &s->member);

	return m && m->left_over && m->id != s->id ? m : NULL;
}

/* From closed to guarded, by way of all of it anew: see host.c. */
static int take_over(struct filter_host *h, const struct filter_host_sandbox *s,
		     struct host_member *m, int64_t now_ms, struct err *err)
{
	const struct change forget = { .host = h, .old = m };
	bool loaded = h->loaded;
	int r;

	settle(&forget);
	h->loaded = false; /* should it fail, he is found there again */
	r = host_write_down(h, s, false, err);
	return r < 0 || !loaded ? r : filter_host_load(h, now_ms, err);
}

int filter_host_set(struct filter_host *h, const struct filter_host_sandbox *s,
		    int64_t now_ms, struct err *err)
{
	struct host_member *m = find_in_the_way(h, s);

	return m ? take_over(h, s, m, now_ms, err) : set(h, s, now_ms, err);
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

static uint16_t last_free_id(const struct filter_host *h)
{
	size_t i = HOST_IDS - 1;

	while (i > 0 && h->members[i])
		i--;
	return (uint16_t)i;
}

int host_write_down(struct filter_host *h, const struct filter_host_sandbox *s,
		    bool left_over, struct err *err)
{
	struct filter_host_sandbox given = *s;
	bool loaded = h->loaded;
	int r;

	if (given.id == 0)
		given.id = last_free_id(h);
	h->loaded = false;
	r = set(h, &given, 0, err);
	h->loaded = loaded;
	if (r == 0 && left_over) {
		h->members[given.id]->left_over = true;
		h->left_over++;
	}
	return r;
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

enum { STAGE_RANGES = 300 /* that are loaded at a time */ };

struct stage_at {
	const struct filter_set *set; /* the next one, from @range on */
	size_t range;
};

struct filter_host_stage {
	struct host_plan *plan; /* owned until it stands, then it has one user in us */
	struct arena arena;
	const struct ruleset *rules;
	struct stage_at at;
	uint64_t loads; /* of the host's: another one has taken away what was loaded */
	bool stands;
};

static bool is_large(const struct ruleset *rs)
{
	size_t ranges = 0;

	for (const struct filter_set *s = rs->sets; s; s = s->next)
		ranges += s->range_count;
	return ranges >= FILTER_LARGE;
}

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
	int r = h->loaded ? host_plan_digest(h, plan, relay, &digest, err) : 0;

	if (r < 0 || !h->loaded || host_plan_find(h, &digest, h->newest[id]))
		return r;
	st = calloc(1, sizeof(*st));
	if (!st)
		return -ENOMEM;
	st->plan = host_plan_new(h, plan, relay, &digest);
	r = st->plan ? host_build_plan(h, st->plan, &st->arena, &st->rules, err)
		     : -ENOMEM;
	if (r < 0 || !is_large(st->rules)) {
		stage_free(st);
		return r;
	}
	st->at.set = st->rules->sets;
	st->loads = h->loads;
	*ret = st;
	return 1;
}

/* Sets that are all there, and a part of the next one. */
static void put_some(struct nl_writer *w, struct stage_at *at)
{
	size_t left = STAGE_RANGES;

	while (at->set && left > 0) {
		size_t until = MIN(at->set->range_count, at->range + left);

		if (at->range == 0)
			netlink_set(w, HOST_TABLE, at->set);
		netlink_elements(w, HOST_TABLE, at->set, at->range, until);
		left -= MAX(until - at->range, (size_t)1);
		at->range = until;
		if (until == at->set->range_count)
			*at = (struct stage_at){ at->set->next, 0 };
	}
}

static int stage_advance(struct filter_host *h, struct filter_host_stage *st,
			 struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct stage_at at = st->at;
	bool last = !at.set;
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (last)
		host_put_plan_chains(&w, st->plan, st->rules);
	else
		put_some(&w, &at);
	nl_batch_end(&w);
	r = nl_transact(&h->conn, &w, &seq);
	if (r < 0)
		return netlink_report(&w, seq, r, err);
	st->at = at;
	if (last) {
		host_plan_link(h, st->plan);
		st->plan->users = 1;
		st->stands = true;
	}
	return last ? 0 : 1;
}

int filter_host_stage(struct filter_host *h, uint16_t id, const struct plan *plan,
		      bool relay, struct filter_host_stage **progress, struct err *err)
{
	struct filter_host_stage *st = *progress;

	if (!st)
		return stage_begin(h, id, plan, relay, progress, err);
	if (st->stands)
		return 0;
	if (st->loads != h->loads || !h->loaded)
		return err_set(err, -ESTALE, "the table was made anew meanwhile");
	return stage_advance(h, st, err);
}

/* What was loaded of it. */
static void stage_take_away(struct filter_host *h, const struct filter_host_stage *st)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);

	nl_batch(&w);
	for (const struct filter_set *s = st->rules->sets; s; s = s->next) {
		if (s == st->at.set && st->at.range == 0)
			break;
		netlink_set_delete(&w, HOST_TABLE, s->name);
		if (s == st->at.set)
			break;
	}
	nl_batch_end(&w);
	(void)!nl_transact(&h->conn, &w, NULL); /* or with the next load */
}

void filter_host_stage_end(struct filter_host *h, struct filter_host_stage *st)
{
	struct err ignored = { 0 };

	if (!st)
		return;
	if (st->stands && --st->plan->users == 0)
		host_plan_remove(h, st->plan, &ignored);
	else if (!st->stands && st->loads == h->loads)
		stage_take_away(h, st);
	stage_free(st);
}
