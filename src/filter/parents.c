// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     output   socket cgroupv2 level 2 @guarded_2 socket cgroupv2 level 3 != @known_3
 *              goto stranger
 *
 * for each level with a guarded cgroup. A packet from the guarded cgroup itself has none
 * at the level below: the rule doesn't match. */
#include "filter/host.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <linux/netfilter.h>

#include "filter/message.h"
#include "filter/nft.h"
#include "filter/ruleset_build.h"

#define TABLE "weir_parents"

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

/* ---- what is to be ---- */

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

/* ---- the ruleset ---- */

static struct filter_set *level_set(struct builder *b, const char *stem, size_t level)
{
	struct filter_set *s = ruleset_new_set(b, FILTER_KEY_CGROUP);

	snprintf(s->name, sizeof(s->name), "%s_%zu", stem, level);
	s->changes = true;
	s->level = (uint8_t)level;
	return s;
}

static void build_levels(const struct filter_parents *p, struct builder *b,
			 struct filter_chain *c, const struct filter_chain *stranger)
{
	c->accept = true;
	for (size_t level = 1; level + 1 < LEVELS; level++) {
		const struct filter_set *guarded, *known;

		if (!has_level(&p->guarded, level))
			continue;
		guarded = level_set(b, "guarded", level);
		known = level_set(b, "known", level + 1);
		stmt_rule(b, c);
		stmt_add(b, FILTER_IN_SET)->set = guarded;
		stmt_add(b, FILTER_FLOW_NEW)->set = known;
		stmt_go(b, FILTER_GOTO, stranger);
	}
}

static int build(const struct filter_parents *p, struct arena *arena,
		 const struct ruleset **ret)
{
	struct builder b = { .arena = arena, .family_count = FAMILIES };
	struct filter_chain *stranger, *output;

	if (!ruleset_start(&b, FILTER_NAMES_HOST, 0))
		return -ENOMEM;
	stranger = ruleset_plain_chain(&b, "stranger");
	output = ruleset_base_chain(&b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);
	ruleset_stranger(&b, stranger);
	build_levels(p, &b, output, stranger);
	*ret = b.rs;
	return b.failed ? -ENOMEM : 0;
}

/* ---- the batch ---- */

static void put_cgroup(struct nl_writer *w, bool add, const char *stem,
		       const struct cgroup_at *c)
{
	struct elements k = { .w = w, .table = TABLE };
	const struct element e = { .key = (const uint8_t *)&c->id,
				   .size = sizeof(c->id) };
	char name[FILTER_NAME_MAX];

	snprintf(name, sizeof(name), "%s_%u", stem, c->level);
	elements_put(&k, add, name, &e);
	elements_end(&k);
}

/* It is in a set: what is above it is guarded somewhere. */
static bool is_in_kernel(const struct filter_parents *p, const struct cgroup_at *c)
{
	return p->loaded && c->level > 0 && has_level(&p->guarded, c->level - 1u);
}

static int put_parents(struct nl_writer *w, const void *data, struct err *err)
{
	const struct filter_parents *p = data;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = build(p, &arena, &rs);

	if (r < 0)
		return err_sys(err, r, "cannot guard what is above the cgroups");
	nft_sets(w, TABLE, rs);
	nft_chains(w, TABLE, rs);
	for (size_t i = 0; i < p->guarded.count; i++)
		put_cgroup(w, true, "guarded", &p->guarded.at[i]);
	for (size_t i = 0; i < p->known.count; i++)
		if (has_level(&p->guarded, p->known.at[i].level - 1u))
			put_cgroup(w, true, "known", &p->known.at[i]);
	return 0;
}

int filter_parents_load(struct filter_parents *p, struct err *err)
{
	struct nft_found old;
	int r = nft_table_find(&p->conn, TABLE, &old);

	if (r == 0 && p->guarded.count > 0) {
		r = nft_table_replace(&p->conn, &old, put_parents, p, err);
	} else {
		if (r == 0 && old.exists)
			r = nft_table_remove(&p->conn, TABLE);
		if (r < 0)
			err_sys(err, r, "cannot guard what is above the cgroups");
	}
	if (r == 0)
		p->loaded = p->guarded.count > 0;
	return r;
}

/* ---- changes ---- */

static void take_out(struct list *l, struct cgroup_at *c)
{
	*c = l->at[--l->count];
}

static int change(struct filter_parents *p, bool add, const char *stem,
		  const struct cgroup_at *c)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, p->conn.seq);

	nl_batch(&w);
	put_cgroup(&w, add, stem, c);
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
	take_out(&p->guarded, found);
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
	take_out(&p->known, found);
	return is_in_kernel(p, &c) ? change(p, false, "known", &c) : 0;
}

/* ---- the whole ---- */

bool filter_parents_stands(struct filter_parents *p)
{
	return !p->loaded || nft_table_stands(&p->conn, TABLE);
}

int filter_parents_new(int fd, struct filter_parents **ret, struct err *err)
{
	struct filter_parents *p = calloc(1, sizeof(*p));
	int r = p ? filter_conn_init(&p->conn, fd, err)
		  : err_sys(err, -ENOMEM, "cannot guard what is above the cgroups");

	if (r < 0) {
		free(p);
		return r;
	}
	p->conn.naming = FILTER_NAMES_HOST;
	*ret = p;
	return 0;
}
