// SPDX-License-Identifier: Apache-2.0
#include "filter/host_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "base/arena.h"
#include "filter/nft.h"

enum { CAPACITY_MIN = 16 /* of host_learned */ };

/* ---- what each member has learned ---- */

/* Its entry, or the free one where it would be. */
static struct host_learned_entry *entry_of(const struct host_learned *l,
					   const struct hash_key *key,
					   const struct addr *a, uint8_t port_list,
					   bool draining)
{
	uint8_t bytes[sizeof(a->bytes) + 3] = { a->family, port_list, draining };
	size_t i;

	memcpy(bytes + 3, a->bytes, sizeof(a->bytes));
	i = (size_t)hash_bytes(key, bytes, sizeof(bytes)) & (l->capacity - 1);
	while (l->at[i].taken &&
	       (l->at[i].port_list != port_list || l->at[i].draining != draining ||
		!addr_equal(&l->at[i].addr, a)))
		i = (i + 1) & (l->capacity - 1);
	return &l->at[i];
}

void host_learned_done(struct host_learned *l)
{
	free(l->at);
	*l = (struct host_learned){ 0 };
}

/* At most three quarters are taken, and after a move half. */
int host_learned_reserve(struct host_learned *l, const struct hash_key *key, size_t count,
			 int64_t now_ms)
{
	struct host_learned bigger = { .capacity = CAPACITY_MIN };
	size_t wanted = count;

	if (l->used + count <= l->capacity / 4 * 3)
		return 0;
	for (size_t i = 0; i < l->capacity; i++)
		wanted += l->at[i].taken && l->at[i].until_ms > now_ms;
	while (bigger.capacity / 2 < wanted)
		bigger.capacity *= 2;
	bigger.at = calloc(bigger.capacity, sizeof(*bigger.at));
	if (!bigger.at)
		return -ENOMEM;
	/* What the kernel has no longer is left behind. */
	for (size_t i = 0; i < l->capacity; i++) {
		const struct host_learned_entry *e = &l->at[i];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		*entry_of(&bigger, key, &e->addr, e->port_list, e->draining) = *e;
		bigger.used++;
	}
	free(l->at);
	*l = bigger;
	return 0;
}

/* One that is removed keeps its entry until the next move. */
void host_learned_note(struct host_learned *l, const struct hash_key *key,
		       const struct filter_learn *item, bool draining, int64_t now_ms)
{
	struct host_learned_entry *e;

	if (l->capacity == 0)
		return;
	e = entry_of(l, key, &item->addr, item->port_list, draining);
	if (!e->taken) {
		if (!draining && item->lifetime_ms == 0)
			return;
		*e = (struct host_learned_entry){
			.addr = item->addr,
			.port_list = item->port_list,
			.taken = true,
			.draining = draining,
		};
		l->used++;
	}
	if (draining)
		e->until_ms = INT64_MAX;
	else if (item->lifetime_ms == 0)
		e->until_ms = 0;
	else if (item->refresh || e->until_ms <= now_ms)
		e->until_ms = now_ms + item->lifetime_ms;
}

/* ---- a member's elements ---- */

void host_level_name(size_t level, bool pairs, char ret[FILTER_NAME_MAX])
{
	char *end = stpcpy(ret, level == 0 ? "uids" : pairs ? "pairs_" : "cgroups_");

	static_assert(HOST_LEVELS <= 100, "two digits");
	if (level >= 10)
		*end++ = (char)('0' + level / 10);
	if (level > 0)
		*end++ = (char)('0' + level % 10);
	*end = '\0';
}

/* What a set or map has for a member. It doesn't move: it points into itself. */
struct host_element {
	const char *set;
	char name[FILTER_NAME_MAX];
	uint8_t key[FILTER_KEY_MAX];
	struct element e;
};

static void append(struct host_element *h, const void *key, size_t size)
{
	memcpy(h->key + h->e.size, key, size);
	h->e.size += size;
}

/* The sets with an element for every member. */
static const char *const element_sets[HOST_ELEMENT_KINDS] = { "live", "owns", "current",
							      "ids" };

static void host_element(const struct host_member *m, enum host_element_kind kind,
			 struct host_element *ret)
{
	uint32_t mark = host_mark(m), id = host_id_mark(m);
	size_t level = host_level_of(&m->who);
	bool is_user = level == 0;

	*ret = (struct host_element){ .set = element_sets[kind] };
	ret->e.key = ret->key;
	ret->e.maps = kind == HOST_CURRENT || kind == HOST_WHO ||
		      (kind == HOST_FLOWS && is_user);
	if (ret->e.maps)
		ret->e.value = kind == HOST_CURRENT ? mark : id;
	if (kind == HOST_LIVE || kind == HOST_OWNS)
		append(ret, &mark, sizeof(mark));
	if (kind == HOST_LIVE)
		append(ret, &mark, sizeof(mark));
	if (kind == HOST_OWNS || kind == HOST_CURRENT || kind == HOST_KNOWN)
		append(ret, &id, sizeof(id));
	if (kind < HOST_WHO)
		return;
	host_level_name(level, kind == HOST_FLOWS, ret->name);
	ret->set = kind == HOST_FLOWS && is_user ? "orphans" : ret->name;
	if (!is_user)
		append(ret, &m->who.cgroup, sizeof(m->who.cgroup));
	else if (kind == HOST_WHO)
		append(ret, &m->who.uid, sizeof(m->who.uid));
	if (kind == HOST_FLOWS)
		append(ret, &id, sizeof(id));
}

/* ---- elements ---- */

static bool is_same(const struct element *a, const struct element *b)
{
	return a->size == b->size && memcmp(a->key, b->key, a->size) == 0 &&
	       a->maps == b->maps && (!a->maps || a->value == b->value);
}

/* Add or delete the elements of @m but those that @other (may be NULL) has as well: what
 * stays isn't touched. */
void host_put_member(struct nl_writer *w, bool add, const struct host_member *m,
		     const struct host_member *other)
{
	struct elements k = { .w = w, .table = HOST_TABLE };

	for (int kind = 0; kind < HOST_ELEMENT_KINDS; kind++) {
		struct host_element e, same;

		host_element(m, (enum host_element_kind)kind, &e);
		if (other) {
			host_element(other, (enum host_element_kind)kind, &same);
			if (strcmp(e.set, same.set) == 0 && is_same(&e.e, &same.e))
				continue;
		}
		elements_put(&k, add, e.set, &e.e);
	}
	elements_end(&k);
}

void host_put_kind(struct nl_writer *w, const struct filter_host *h, const char *table,
		   enum host_element_kind kind)
{
	struct elements k = { .w = w, .table = table };
	const bool of_level = kind >= HOST_WHO;

	/* One level at a time where the set is a level's. */
	for (size_t level = 0; level < (of_level ? HOST_LEVELS : 1); level++) {
		if (of_level && h->level_users[level] == 0)
			continue;
		for (size_t i = 0; i < HOST_IDS; i++) {
			const struct host_member *m = h->members[i];
			struct host_element e;

			if (!m || (of_level && host_level_of(&m->who) != level))
				continue;
			host_element(m, kind, &e);
			elements_put(&k, true, e.set, &e.e);
		}
	}
	elements_end(&k);
}

static void put_passed(struct elements *k, uint32_t mark)
{
	elements_put(
		k, true, "passed",
		&(struct element){ .key = (const uint8_t *)&mark, .size = sizeof(mark) });
}

void host_put_passed(struct nl_writer *w, const struct filter_host *h)
{
	struct elements k = { .w = w, .table = HOST_GUARD_TABLE };

	for (size_t i = 0; i < HOST_IDS; i++) {
		if (!h->members[i])
			continue;
		put_passed(&k, host_mark(h->members[i]));
		put_passed(&k, host_id_mark(h->members[i]));
	}
	for (size_t i = 0; i < h->live_count; i++)
		put_passed(&k, h->live[i]);
	elements_end(&k);
}

/* A packet that was on its way when a batch came may find the chain still empty: it comes
 * back then, and is dropped. */
static void put_plan_verdicts(struct nl_writer *w, bool add, const struct host_plan *p)
{
	struct elements k = { .w = w, .table = HOST_TABLE };
	const uint32_t number = p->number;
	char chain[FILTER_NAME_MAX];
	const struct element e = { .key = (const uint8_t *)&number,
				   .size = sizeof(number),
				   .maps = true,
				   .chain = chain };

	snprintf(chain, sizeof(chain), "p%u_output", p->number);
	elements_put(&k, add, "plans", &e);
	snprintf(chain, sizeof(chain), "p%u_nat", p->number);
	elements_put(&k, add, "plans_nat", &e);
	elements_end(&k);
}

/* ---- objects ---- */

void host_put_plan_chains(struct nl_writer *w, const struct host_plan *p,
			  const struct ruleset *rs)
{
	nft_chains(w, HOST_TABLE, rs);
	put_plan_verdicts(w, true, p);
}

int host_put_plan(struct nl_writer *w, const struct filter_host *h,
		  enum host_plan_parts parts, const struct host_plan *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_plan(h, p, &arena, &rs, err);

	if (r < 0)
		return r;
	if (parts & HOST_PLAN_SETS)
		nft_sets(w, HOST_TABLE, rs);
	if (parts & HOST_PLAN_CHAINS)
		host_put_plan_chains(w, p, rs);
	if (parts != HOST_PLAN_GOES)
		return 0;
	put_plan_verdicts(w, false, p);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		nft_delete(w, NFT_MSG_DELRULE, HOST_TABLE, c->name);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		nft_delete(w, NFT_MSG_DELCHAIN, HOST_TABLE, c->name);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		nft_delete(w, NFT_MSG_DELSET, HOST_TABLE, s->name);
	return 0;
}

int host_put_level(struct nl_writer *w, const struct filter_host *h, bool add,
		   size_t level)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_base(h, &arena, &rs);

	if (r < 0)
		return r;
	for (const struct filter_set *s = rs->sets; s && add; s = s->next) {
		const bool is_cgroups = s->key == FILTER_KEY_CGROUP ||
					s->key == FILTER_KEY_CGROUP_FLOW;

		if (level == 0 ? s->key == FILTER_KEY_UID
			       : is_cgroups && s->level == level)
			nft_set(w, HOST_TABLE, s);
	}
	for (const struct filter_chain *c = rs->chains; c; c = c->next) {
		if (!host_chain_has_levels(c))
			continue;
		nft_delete(w, NFT_MSG_DELRULE, HOST_TABLE, c->name);
		for (const struct filter_rule *rule = c->rules; rule; rule = rule->next)
			nft_rule(w, HOST_TABLE, c, rule);
	}
	for (int pairs = 0; pairs < (level > 0 ? 2 : 1) && !add; pairs++) {
		char name[FILTER_NAME_MAX];

		host_level_name(level, pairs, name);
		nft_delete(w, NFT_MSG_DELSET, HOST_TABLE, name);
	}
	return 0;
}

/* ---- what is learned ---- */

void host_put_stale(struct nl_writer *w, uint32_t mark,
		    const struct host_learned_entry *e)
{
	const struct set_owner o = { FILTER_NAMES_HOST, mark };
	const struct filter_learn gone = { .addr = e->addr, .port_list = e->port_list };

	set_put_changes(w, &o, e->draining ? FILTER_ROLE_DRAINING : FILTER_ROLE_LEARNED,
			SET_ANY, &gone, 1, false);
}

/* What is @draining, or isn't, and lives. Return: how many. */
static size_t list_learned(const struct host_learned *l, bool draining, int64_t now_ms,
			   struct filter_learn *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < l->capacity; i++) {
		const struct host_learned_entry *e = &l->at[i];

		if (e->taken && e->draining == draining && e->until_ms > now_ms)
			ret[count++] = (struct filter_learn){
				.addr = e->addr,
				.port_list = e->port_list,
				.lifetime_ms =
					draining ? 0 : (uint32_t)(e->until_ms - now_ms),
			};
	}
	return count;
}

int host_put_learned(struct nl_writer *w, const struct host_member *m, int64_t now_ms)
{
	const struct set_owner o = { FILTER_NAMES_HOST, host_mark(m) };
	const struct host_learned *l = &m->learned;
	CLEAN(mem) struct filter_learn *items = NULL;
	size_t count;

	if (l->used == 0)
		return 0;
	items = calloc(l->used, sizeof(*items));
	if (!items)
		return -ENOMEM;
	count = list_learned(l, false, now_ms, items);
	set_put_items(w, &o, FILTER_ROLE_LEARNED, items, count);
	count = list_learned(l, true, now_ms, items);
	set_put_items(w, &o, FILTER_ROLE_DRAINING, items, count);
	return 0;
}

/* ---- reading back ---- */

/* A set whose elements are read. */
struct reading {
	struct filter_host *host;
	const char *set;
	const uint8_t *key; /* one element, not all */
	size_t size;
	enum host_element_kind kind; /* of the elements in it, for on_member() */
	element_fn *fn;
	size_t count; /* for @fn */
	host_member_fn *on_member;
	struct err *err;
};

static int elements_differ(const struct reading *k)
{
	return err_set(k->err, -EBADMSG,
		       "the filter in the kernel is not ours: elements of set '%s'",
		       k->set);
}

static int read_set(struct reading *k)
{
	return elements_read(&k->host->conn,
			     &(struct elements_query){ .table = HOST_TABLE,
						       .set = k->set,
						       .key = k->key,
						       .key_size = k->size,
						       .fn = k->fn,
						       .data = k });
}

/* ---- who the members are ---- */

static uint32_t u32_at(const uint8_t *bytes)
{
	uint32_t v;

	memcpy(&v, bytes, sizeof(v));
	return v;
}

static int on_member(void *data, const struct element *e)
{
	struct reading *k = data;
	/* The member's mark is what the map gives, or a part of the key. */
	size_t at = strncmp(k->set, "pairs_", strlen("pairs_")) == 0 ? sizeof(uint64_t)
								     : 0;
	uint32_t mark = e->maps ? e->value : u32_at(e->key + at);
	const struct host_member *m = k->host->members[mark >> HOST_MARK_SHIFT];
	struct host_element wanted;

	if (!m)
		return elements_differ(k);
	host_element(m, k->kind, &wanted);
	k->count++;
	return strcmp(wanted.set, k->set) == 0 && is_same(&wanted.e, e)
		       ? 0
		       : elements_differ(k);
}

static int on_plan(void *data, const struct element *e)
{
	struct reading *k = data;
	const char *kind = strcmp(k->set, "plans") == 0 ? "output" : "nat";

	for (const struct host_plan *p = k->host->plans; p; p = p->next) {
		char name[FILTER_NAME_MAX];

		if (e->size != sizeof(uint32_t) || u32_at(e->key) != p->number)
			continue;
		snprintf(name, sizeof(name), "p%u_%s", p->number, kind);
		k->count++;
		return e->chain && strcmp(e->chain, name) == 0 ? 0 : elements_differ(k);
	}
	return elements_differ(k);
}

static int verify_plans(struct filter_host *h, const char *set, struct err *err)
{
	struct reading k = { .host = h, .set = set, .fn = on_plan, .err = err };
	int r = read_set(&k);
	size_t expected = 0;

	for (const struct host_plan *p = h->plans; p; p = p->next)
		expected++;
	return r == 0 && k.count != expected ? elements_differ(&k) : r;
}

/* HOST_ELEMENT_KINDS: it has no element for each member. */
static enum host_element_kind element_kind_of(const struct filter_set *s)
{
	for (int i = 0; i < HOST_WHO; i++)
		if (strcmp(s->name, element_sets[i]) == 0)
			return (enum host_element_kind)i;
	if (s->key == FILTER_KEY_UID || s->key == FILTER_KEY_CGROUP)
		return HOST_WHO;
	return s->key == FILTER_KEY_CGROUP_FLOW || strcmp(s->name, "orphans") == 0
		       ? HOST_FLOWS
		       : HOST_ELEMENT_KINDS;
}

static int verify_members(struct filter_host *h, const struct ruleset *base,
			  struct err *err)
{
	int r = verify_plans(h, "plans", err);

	if (r == 0)
		r = verify_plans(h, "plans_nat", err);
	for (const struct filter_set *s = base->sets; r == 0 && s; s = s->next) {
		struct reading k = {
			.host = h,
			.set = s->name,
			.kind = element_kind_of(s),
			.fn = on_member,
			.err = err,
		};

		if (k.kind == HOST_ELEMENT_KINDS)
			continue;
		r = read_set(&k);
		if (r == 0 &&
		    k.count != (k.kind < HOST_WHO ? h->count : h->level_users[s->level]))
			r = elements_differ(&k);
	}
	return r;
}

/* Chains in the order in which the kernel made them; sets are found by their names. */
struct merge {
	struct filter_set **sets_end;
	struct filter_chain **chains_end;
};

static int add_objects(struct merge *m, struct arena *arena, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		struct filter_set *copy = arena_alloc(arena, sizeof(*copy));

		if (!copy)
			return -ENOMEM;
		*copy = *s;
		copy->next = NULL;
		*m->sets_end = copy;
		m->sets_end = &copy->next;
	}
	for (const struct filter_chain *c = rs->chains; c; c = c->next) {
		struct filter_chain *copy = arena_alloc(arena, sizeof(*copy));

		if (!copy)
			return -ENOMEM;
		*copy = *c;
		copy->next = NULL;
		*m->chains_end = copy;
		m->chains_end = &copy->next;
	}
	return 0;
}

int filter_host_verify(struct filter_host *h, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct ruleset all = { .naming = FILTER_NAMES_HOST };
	struct merge m = { &all.sets, &all.chains };
	const struct ruleset *base, *rs;
	struct err why = { 0 };
	int r = host_build_base(h, &arena, &base);

	/* The base and all plans as one ruleset. */
	if (r == 0)
		r = add_objects(&m, &arena, base);
	for (const struct host_plan *p = h->plans; r == 0 && p; p = p->next) {
		r = host_build_plan(h, p, &arena, &rs, &why);
		if (r == 0)
			r = add_objects(&m, &arena, rs);
	}
	if (r == 0)
		r = filter_verify(&h->conn, &all, &why);
	if (r == 0)
		r = verify_members(h, base, &why);
	return nft_verified(r, &why, err);
}

int filter_host_verify_one(struct filter_host *h, uint16_t id, struct err *err)
{
	const struct host_member *m = h->members[id];
	struct err why = { 0 };
	int r = 0;

	if (!m)
		return err_sys(err, -ENOENT, "cannot read the filter back");
	for (int kind = 0; kind < HOST_ELEMENT_KINDS && r == 0; kind++) {
		struct host_element e;
		struct reading k = {
			.host = h,
			.kind = (enum host_element_kind)kind,
			.key = e.key,
			.fn = on_member,
			.err = &why,
		};

		host_element(m, k.kind, &e);
		k.set = e.set;
		k.size = e.e.size;
		r = read_set(&k);
		if (r == 0 && k.count != 1)
			r = elements_differ(&k);
	}
	return nft_verified(r, &why, err);
}

/* ---- what an earlier process has left ---- */

static int on_live_mark(void *data, const struct element *e)
{
	const struct reading *k = data;
	struct filter_host *h = k->host;
	uint32_t *live = reallocarray(h->live, h->live_count + 1, sizeof(*live));

	if (!live)
		return -ENOMEM;
	live[h->live_count++] = u32_at(e->key);
	h->live = live;
	return 0;
}

void host_read_live(struct filter_host *h)
{
	struct reading k = { .host = h, .set = "live", .fn = on_live_mark };

	(void)!read_set(&k);
}

static int on_who(void *data, const struct element *e)
{
	const struct reading *k = data;
	struct member who = { .kind = MEMBER_UID };

	if (k->count == 0 && e->size == sizeof(who.uid)) {
		memcpy(&who.uid, e->key, sizeof(who.uid));
	} else if (k->count > 0 && e->size == sizeof(who.cgroup)) {
		who.kind = MEMBER_CGROUP;
		who.level = (uint8_t)k->count;
		memcpy(&who.cgroup, e->key, sizeof(who.cgroup));
	} else {
		return -EBADMSG;
	}
	return k->on_member(k->host, &who, k->err);
}

int host_read_members(struct filter_host *h, host_member_fn *fn, struct err *err)
{
	int r = 0;

	for (size_t level = 0; level < HOST_LEVELS && r == 0; level++) {
		char name[FILTER_NAME_MAX];
		struct reading k = {
			.host = h,
			.set = name,
			.fn = on_who,
			.on_member = fn,
			.count = level,
			.err = err,
		};

		host_level_name(level, false, name);
		r = read_set(&k);
		if (r == -ENOENT)
			r = 0; /* a level without a member */
	}
	return r;
}

static int on_number(void *data, const struct element *e)
{
	struct reading *k = data;

	k->count = MAX(k->count, (size_t)(uint16_t)u32_at(e->key));
	return 0;
}

int host_read_plan_number(struct filter_host *h, uint16_t *ret)
{
	struct reading k = { .host = h, .set = "plans", .fn = on_number };
	int r = read_set(&k);

	if (r < 0 && r != -ENOENT)
		return r;
	*ret = (uint16_t)k.count;
	return 0;
}
