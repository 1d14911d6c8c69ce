// SPDX-License-Identifier: Apache-2.0
/* Two tables beside the one of members (filter/host.h), in which cgroups of no member are
 * refused.
 *
 * WHAT HAS ENDED: weir_ended
 *
 *     output   socket cgroupv2 level 2 @ended_2 goto stranger
 *
 * for each level with a cgroup that has ended; the sockets of those below it are refused
 * with it. A level that is new comes as a rule more, and a cgroup as an element, so what
 * stands is not touched.
 *
 * Where the whole table is replaced, a packet that is on its way through the old one may
 * miss what it looks up there, and would be free. So a second table with the same
 * content stands while that is done.
 *
 * WHAT NOBODY KNOWS: weir_parents
 *
 *     output   socket cgroupv2 level 2 @guarded_2 socket cgroupv2 level 3 != @known_3
 *              goto stranger
 *
 * for each level with a guarded cgroup. A packet from the guarded cgroup itself has none
 * at the level below: the rule doesn't match. */
#include "filter/host.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter.h>

#include "filter/message.h"
#include "filter/nft.h"
#include "filter/ruleset_build.h"

/* ---- what both tables are made of ---- */

/* A set of cgroups at @level, which come and go. */
static struct filter_set *level_set(struct builder *b, const char *stem, size_t level)
{
	struct filter_set *s = ruleset_new_set(b, FILTER_KEY_CGROUP);

	snprintf(s->name, sizeof(s->name), "%s_%zu", stem, level);
	s->changes = true;
	s->level = (uint8_t)level;
	return s;
}

/* An element of that set. */
static void put_cgroup(struct elements *k, bool add, const char *stem, uint64_t id,
		       uint8_t level)
{
	const struct element e = { .key = (const uint8_t *)&id, .size = sizeof(id) };
	char name[FILTER_NAME_MAX];

	snprintf(name, sizeof(name), "%s_%u", stem, level);
	elements_put(k, add, name, &e);
}

/* The chain of what leaves, which accepts; what it leads to @ret_stranger is refused.
 * NULL: no memory. */
static struct filter_chain *begin_rules(struct builder *b, struct arena *arena,
					const struct filter_chain **ret_stranger)
{
	struct filter_chain *stranger, *output;

	*b = (struct builder){ .arena = arena, .family_count = FAMILIES };
	if (!ruleset_start(b, FILTER_NAMES_HOST, 0))
		return NULL;
	ruleset_build_related(b);
	stranger = ruleset_plain_chain(b, "stranger");
	output = ruleset_base_chain(b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT,
				    true);
	ruleset_stranger(b, stranger);
	*ret_stranger = stranger;
	return output;
}

/* What @put writes takes the place of what stands as @table; or, unless @any, nothing. */
static int replace_table(struct filter_conn *c, const char *table, bool any,
			 nft_put_fn *put, const void *data, const char *why,
			 struct err *err)
{
	struct nft_found old;
	int r = nft_table_find(c, table, &old);

	if (r == 0 && any)
		return nft_table_replace(c, &old, put, data, err);
	if (r == 0 && old.exists)
		r = nft_table_remove(c, table);
	return r < 0 ? err_sys(err, r, "%s", why) : 0;
}

/* @c is NULL where memory is out. */
static int open_conn(struct filter_conn *c, int fd, const char *why, struct err *err)
{
	int r = c ? filter_conn_init(c, fd, err) : err_sys(err, -ENOMEM, "%s", why);

	if (r == 0)
		c->naming = FILTER_NAMES_HOST;
	return r;
}

/* ---- sockets of cgroups that are gone ---- */

static const char no_ended[] = "cannot refuse cgroups that are gone";

#define ENDED_TABLE	  "weir_ended"
#define ENDED_GUARD_TABLE "weir_ended_guard"

enum { ENDED_LEVELS = FILTER_HOST_LEVEL_MAX + 1 };

struct filter_ended {
	struct filter_conn conn;
	bool loaded;		      /* a table of ours stands */
	bool has_level[ENDED_LEVELS]; /* and has a set and a rule for it */
};

static int build_ended(const bool has_level[ENDED_LEVELS], struct arena *arena,
		       const struct ruleset **ret)
{
	const struct filter_chain *stranger;
	struct builder b;
	struct filter_chain *output = begin_rules(&b, arena, &stranger);

	if (!output)
		return -ENOMEM;
	for (size_t level = 1; level < ENDED_LEVELS; level++) {
		if (!has_level[level])
			continue;
		stmt_rule(&b, output);
		stmt_add(&b, FILTER_IN_SET)->set = level_set(&b, "ended", level);
		stmt_go(&b, FILTER_GOTO, stranger);
	}
	*ret = b.rs;
	return b.failed ? -ENOMEM : 0;
}

/* What the writer of a whole table gets. */
struct ended_all {
	const char *table;
	const struct filter_ended_cgroup *at;
	size_t count;
	bool has_level[ENDED_LEVELS];
};

static int put_all_ended(struct nl_writer *w, const void *data, struct err *err)
{
	const struct ended_all *all = data;
	struct elements k = { .w = w, .table = all->table };
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = build_ended(all->has_level, &arena, &rs);

	if (r < 0)
		return err_sys(err, r, "%s", no_ended);
	nft_sets(w, all->table, rs);
	nft_chains(w, all->table, rs);
	for (size_t i = 0; i < all->count; i++)
		put_cgroup(&k, true, "ended", all->at[i].id, all->at[i].level);
	elements_end(&k);
	return 0;
}

/* @table with @all takes the place of what has its name; @count 0: of nothing. */
static int replace_ended(struct filter_ended *e, struct ended_all *all, const char *table,
			 struct err *err)
{
	all->table = table;
	return replace_table(&e->conn, table, all->count > 0, put_all_ended, all,
			     no_ended, err);
}

int filter_ended_load(struct filter_ended *e, const struct filter_ended_cgroup *all,
		      size_t count, struct err *err)
{
	struct ended_all now = { .at = all, .count = count };
	struct ended_all nothing = { 0 };
	int r;

	for (size_t i = 0; i < count; i++)
		now.has_level[all[i].level] = true;
	r = replace_ended(e, &now, ENDED_GUARD_TABLE, err);
	if (r == 0)
		r = replace_ended(e, &now, ENDED_TABLE, err);
	if (r < 0)
		return r;
	e->loaded = count > 0;
	memcpy(e->has_level, now.has_level, sizeof(e->has_level));
	/* Should the second table stay, it refuses nothing else. */
	return replace_ended(e, &nothing, ENDED_GUARD_TABLE, err);
}

/* One level of the table. */
struct ended_reading {
	filter_ended_fn *fn;
	void *data;
	uint8_t level;
};

static int on_ended(void *data, const struct element *e)
{
	const struct ended_reading *k = data;
	uint64_t id;

	if (e->size != sizeof(id))
		return -EBADMSG;
	memcpy(&id, e->key, sizeof(id));
	return k->fn(k->data, id, k->level);
}

int filter_ended_read(struct filter_ended *e, filter_ended_fn *fn, void *data)
{
	struct nft_found old;
	int r = nft_table_find(&e->conn, ENDED_TABLE, &old);

	if (r < 0 || !old.exists)
		return r;
	for (size_t level = 1; level < ENDED_LEVELS; level++) {
		struct ended_reading k = { fn, data, (uint8_t)level };
		char name[FILTER_NAME_MAX];

		snprintf(name, sizeof(name), "ended_%zu", level);
		r = elements_read(&e->conn,
				  &(struct elements_query){ .table = ENDED_TABLE,
							    .set = name,
							    .fn = on_ended,
							    .data = &k });
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

/* The set of @level, and the rule that looks there, behind the other rules. */
static int put_level(struct nl_writer *w, struct filter_ended *e, size_t level)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r;

	e->has_level[level] = true;
	r = build_ended(e->has_level, &arena, &rs);
	e->has_level[level] = false;
	if (r < 0)
		return r;
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		if (s->level == level)
			nft_set(w, ENDED_TABLE, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		for (const struct filter_rule *rule = c->rules; rule; rule = rule->next)
			if (rule->stmts[0].set && rule->stmts[0].set->level == level)
				nft_rule(w, ENDED_TABLE, c, rule);
	return 0;
}

int filter_ended_add(struct filter_ended *e, const struct filter_ended_cgroup *c)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, e->conn.seq);
	struct elements k = { .w = &w, .table = ENDED_TABLE };
	int r = 0;

	if (c->level == 0 || c->level >= ENDED_LEVELS)
		return -EINVAL;
	if (!e->loaded)
		return 1;
	nl_batch(&w);
	if (!e->has_level[c->level])
		r = put_level(&w, e, c->level);
	if (r < 0)
		return r;
	put_cgroup(&k, true, "ended", c->id, c->level);
	elements_end(&k);
	nl_batch_end(&w);
	r = nl_transact(&e->conn, &w, NULL);
	if (r == 0)
		e->has_level[c->level] = true;
	return r;
}

int filter_ended_remove(struct filter_ended *e, const struct filter_ended_cgroup *some,
			size_t count)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, e->conn.seq);
	struct elements k = { .w = &w, .table = ENDED_TABLE };

	if (!e->loaded)
		return 1;
	nl_batch(&w);
	for (size_t i = 0; i < count; i++)
		put_cgroup(&k, false, "ended", some[i].id, some[i].level);
	elements_end(&k);
	nl_batch_end(&w);
	return nl_transact(&e->conn, &w, NULL);
}

bool filter_ended_stands(struct filter_ended *e)
{
	return !e->loaded || nft_table_stands(&e->conn, ENDED_TABLE);
}

int filter_ended_new(int fd, struct filter_ended **ret, struct err *err)
{
	CLEAN(mem) struct filter_ended *e = calloc(1, sizeof(*e));
	int r = open_conn(e ? &e->conn : NULL, fd, no_ended, err);

	if (r == 0)
		*ret = TAKE_PTR(e);
	return r;
}

/* ---- deny by default below a cgroup ---- */

static const char no_parents[] = "cannot guard what is above the cgroups";

#define PARENTS_TABLE "weir_parents"

enum { LEVELS = FILTER_HOST_LEVEL_MAX + 2 };

struct cgroup_at {
	uint64_t id;
	uint8_t level;
};

struct list {
	struct cgroup_at *at; /* owned */
	size_t count, capacity;
};

struct filter_parents {
	struct filter_conn conn;
	struct list guarded, known;
	bool loaded; /* a table of ours stands */
};

static struct cgroup_at *find_cgroup(const struct list *l, uint64_t id)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].id == id)
			return &l->at[i];
	return NULL;
}

static int add(struct list *l, uint64_t id, uint8_t level)
{
	if (!ARRAY_GROW(l->at, l->count, l->capacity))
		return -ENOMEM;
	l->at[l->count++] = (struct cgroup_at){ id, level };
	return 0;
}

static bool has_level(const struct list *l, size_t level)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].level == level)
			return true;
	return false;
}

/* It is in a set: what is above it is guarded somewhere. */
static bool is_in_kernel(const struct filter_parents *p, const struct cgroup_at *c)
{
	return p->loaded && c->level > 0 && has_level(&p->guarded, c->level - 1u);
}

static int put_parents(struct nl_writer *w, const void *data, struct err *err)
{
	const struct filter_parents *p = data;
	const struct cgroup_at *guarded = p->guarded.at, *known = p->known.at;
	struct elements k = { .w = w, .table = PARENTS_TABLE };
	CLEAN(arena) struct arena arena = { 0 };
	const struct filter_chain *stranger;
	struct builder b;
	struct filter_chain *output = begin_rules(&b, &arena, &stranger);

	for (size_t level = 1; output && level + 1 < LEVELS; level++) {
		if (!has_level(&p->guarded, level))
			continue;
		stmt_rule(&b, output);
		stmt_add(&b, FILTER_IN_SET)->set = level_set(&b, "guarded", level);
		stmt_add(&b, FILTER_FLOW_NEW)->set = level_set(&b, "known", level + 1);
		stmt_go(&b, FILTER_GOTO, stranger);
	}
	if (!output || b.failed)
		return err_sys(err, -ENOMEM, "%s", no_parents);
	nft_sets(w, PARENTS_TABLE, b.rs);
	nft_chains(w, PARENTS_TABLE, b.rs);
	for (size_t i = 0; i < p->guarded.count; i++)
		put_cgroup(&k, true, "guarded", guarded[i].id, guarded[i].level);
	for (size_t i = 0; i < p->known.count; i++)
		if (has_level(&p->guarded, known[i].level - 1u))
			put_cgroup(&k, true, "known", known[i].id, known[i].level);
	elements_end(&k);
	return 0;
}

int filter_parents_load(struct filter_parents *p, struct err *err)
{
	const bool any = p->guarded.count > 0;
	int r = replace_table(&p->conn, PARENTS_TABLE, any, put_parents, p, no_parents,
			      err);

	if (r == 0)
		p->loaded = any;
	return r;
}

static int change(struct filter_parents *p, bool add, const char *stem,
		  const struct cgroup_at *c)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, p->conn.seq);
	struct elements k = { .w = &w, .table = PARENTS_TABLE };

	nl_batch(&w);
	put_cgroup(&k, add, stem, c->id, c->level);
	elements_end(&k);
	nl_batch_end(&w);
	return nl_transact(&p->conn, &w, NULL);
}

int filter_parents_guard(struct filter_parents *p, uint64_t cgroup, uint8_t level)
{
	const struct cgroup_at c = { cgroup, level };
	bool has_rule = p->loaded && has_level(&p->guarded, level);
	int r;

	if (level == 0 || level >= FILTER_HOST_LEVEL_MAX)
		return -EINVAL;
	if (find_cgroup(&p->guarded, cgroup))
		return 1;
	r = add(&p->guarded, cgroup, level);
	if (r < 0)
		return r;
	return has_rule ? change(p, true, "guarded", &c) : 1;
}

int filter_parents_unguard(struct filter_parents *p, uint64_t cgroup)
{
	struct cgroup_at *found = find_cgroup(&p->guarded, cgroup), c;

	if (!found)
		return 0;
	c = *found;
	*found = p->guarded.at[--p->guarded.count];
	if (!p->loaded || !has_level(&p->guarded, c.level))
		return 1;
	return change(p, false, "guarded", &c);
}

int filter_parents_know(struct filter_parents *p, uint64_t cgroup, uint8_t level)
{
	const struct cgroup_at c = { cgroup, level };
	int r = find_cgroup(&p->known, cgroup) ? 0 : add(&p->known, cgroup, level);

	return r < 0 || !is_in_kernel(p, &c) ? r : change(p, true, "known", &c);
}

int filter_parents_forget(struct filter_parents *p, uint64_t cgroup)
{
	struct cgroup_at *found = find_cgroup(&p->known, cgroup), c;

	if (!found)
		return 0;
	c = *found;
	*found = p->known.at[--p->known.count];
	return is_in_kernel(p, &c) ? change(p, false, "known", &c) : 0;
}

bool filter_parents_stands(struct filter_parents *p)
{
	return !p->loaded || nft_table_stands(&p->conn, PARENTS_TABLE);
}

int filter_parents_new(int fd, struct filter_parents **ret, struct err *err)
{
	CLEAN(mem) struct filter_parents *p = calloc(1, sizeof(*p));
	int r = open_conn(p ? &p->conn : NULL, fd, no_parents, err);

	if (r == 0)
		*ret = TAKE_PTR(p);
	return r;
}
