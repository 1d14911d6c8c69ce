// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     output   socket cgroupv2 level 2 @ended_2 goto stranger
 *
 * for each level with a cgroup that has ended; the sockets of those below it are refused
 * with it. A level that is new comes as a rule more, and a cgroup as an element, so what
 * stands is not touched.
 *
 * Where the whole table is replaced, a packet that is on its way through the old one may
 * miss what it looks up there, and would be free. So a second table with the same
 * content stands while that is done. */
#include "filter/ended.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter.h>

#include "filter/host.h"
#include "filter/message.h"
#include "filter/nft.h"
#include "filter/ruleset_build.h"

#define ENDED_TABLE	  "weir_ended"
#define ENDED_GUARD_TABLE "weir_ended_guard"

enum { ENDED_LEVELS = FILTER_HOST_LEVEL_MAX + 1 };

struct filter_ended {
	struct filter_conn conn;
	bool loaded;		      /* a table of ours stands */
	bool has_level[ENDED_LEVELS]; /* and has a set and a rule for it */
};

/* ---- the ruleset ---- */

static void ended_set_name(size_t level, char ret[FILTER_NAME_MAX])
{
	snprintf(ret, FILTER_NAME_MAX, "ended_%zu", level);
}

static int build_ended(const bool has_level[ENDED_LEVELS], struct arena *arena,
		       const struct ruleset **ret)
{
	struct builder b = { .arena = arena, .family_count = FAMILIES };
	struct filter_chain *stranger, *output;

	if (!ruleset_start(&b, FILTER_NAMES_HOST, 0))
		return -ENOMEM;
	stranger = ruleset_plain_chain(&b, "stranger");
	output = ruleset_base_chain(&b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);
	output->accept = true;
	ruleset_stranger(&b, stranger);
	for (size_t level = 1; level < ENDED_LEVELS; level++) {
		struct filter_set *s;

		if (!has_level[level])
			continue;
		s = ruleset_new_set(&b, FILTER_KEY_CGROUP);
		ended_set_name(level, s->name);
		s->changes = true;
		s->level = (uint8_t)level;
		stmt_rule(&b, output);
		stmt_add(&b, FILTER_IN_SET)->set = s;
		stmt_go(&b, FILTER_GOTO, stranger);
	}
	*ret = b.rs;
	return b.failed ? -ENOMEM : 0;
}

/* ---- the batch ---- */

static void put_ended(struct elements *k, bool add, const struct filter_ended_cgroup *c)
{
	const struct element e = { .key = (const uint8_t *)&c->id,
				   .size = sizeof(c->id) };
	char name[FILTER_NAME_MAX];

	ended_set_name(c->level, name);
	elements_put(k, add, name, &e);
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
		return err_sys(err, r, "cannot refuse cgroups that are gone");
	nft_sets(w, all->table, rs);
	nft_chains(w, all->table, rs);
	for (size_t i = 0; i < all->count; i++)
		put_ended(&k, true, &all->at[i]);
	elements_end(&k);
	return 0;
}

/* ---- the whole table ---- */

/* @table with @all takes the place of what has its name; @count 0: of nothing. */
static int replace_ended(struct filter_ended *e, struct ended_all *all, const char *table,
			 struct err *err)
{
	struct nft_found old;
	int r = nft_table_find(&e->conn, table, &old);

	all->table = table;
	if (r == 0 && all->count > 0)
		return nft_table_replace(&e->conn, &old, put_all_ended, all, err);
	if (r == 0 && old.exists)
		r = nft_table_remove(&e->conn, table);
	return r < 0 ? err_sys(err, r, "cannot refuse cgroups that are gone") : 0;
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

		ended_set_name(level, name);
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

/* ---- changes ---- */

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
	put_ended(&k, true, c);
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
		put_ended(&k, false, &some[i]);
	elements_end(&k);
	nl_batch_end(&w);
	return nl_transact(&e->conn, &w, NULL);
}

/* ---- the whole ---- */

bool filter_ended_stands(struct filter_ended *e)
{
	return !e->loaded || nft_table_stands(&e->conn, ENDED_TABLE);
}

int filter_ended_new(int fd, struct filter_ended **ret, struct err *err)
{
	struct filter_ended *e = calloc(1, sizeof(*e));
	int r = e ? filter_conn_init(&e->conn, fd, err)
		  : err_sys(err, -ENOMEM, "cannot refuse cgroups that are gone");

	if (r < 0) {
		free(e);
		return r;
	}
	e->conn.naming = FILTER_NAMES_HOST;
	*ret = e;
	return 0;
}
