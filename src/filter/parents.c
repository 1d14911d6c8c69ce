// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     output   socket cgroupv2 level 2 @guarded_2 socket cgroupv2 level 3 != @known_3
 *              goto stranger
 *
 * for each level with a guarded cgroup. A packet from the guarded cgroup itself has none
 * at the level below: the rule doesn't match. */
#include "filter/parents.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/host.h"
#include "filter/message.h"
#include "filter/netlink.h"
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

static struct cgroup_at *find(const struct list *l, uint64_t id)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->at[i].id == id)
			return &l->at[i];
	return NULL;
}

static int add(struct list *l, uint64_t id, uint8_t level)
{
	if (l->count == l->capacity) {
		size_t capacity = 2 * l->capacity + 16;
		struct cgroup_at *at = reallocarray(l->at, capacity, sizeof(*at));

		if (!at)
			return -ENOMEM;
		l->at = at;
		l->capacity = capacity;
	}
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

static struct filter_set *named_set(struct builder *b, const char *stem, size_t level)
{
	struct filter_set *s = ruleset_new_set(b, FILTER_KEY_CGROUP);

	if (s) {
		snprintf(s->name, sizeof(s->name), "%s_%zu", stem, level);
		s->changes = true;
		s->level = (uint8_t)level;
	}
	return s;
}

static void build_stranger(struct builder *b, struct filter_chain *c)
{
	/* ICMP errors and resets, those of our own refusals too. */
	stmt_rule(b, c);
	stmt_has_bit(b, FILTER_CT_STATE, CT_STATE_RELATED);
	stmt_by_a_program(b);
	stmt_add(b, FILTER_DROP);
	ruleset_related(b, c);
	stmt_rule(b, c);
	stmt_add(b, FILTER_COUNTER);
	ruleset_answer(b, c);
}

static void build_output(const struct filter_parents *p, struct builder *b,
			 struct filter_chain *c, const struct filter_chain *stranger)
{
	c->accept = true;
	for (size_t level = 1; level + 1 < LEVELS; level++) {
		const struct filter_set *guarded, *known;

		if (!has_level(&p->guarded, level))
			continue;
		guarded = named_set(b, "guarded", level);
		known = named_set(b, "known", level + 1);
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

	b.rs = arena_alloc(arena, sizeof(*b.rs));
	if (!b.rs)
		return -ENOMEM;
	b.rs->naming = FILTER_NAMES_HOST;
	b.sets_end = &b.rs->sets;
	b.large_end = &b.rs->sets;
	b.chains_end = &b.rs->chains;
	stranger = ruleset_plain_chain(&b, "stranger");
	output = ruleset_base_chain(&b, "output", FILTER_CHAIN_FILTER, NF_INET_LOCAL_OUT);
	if (!stranger || !output)
		return -ENOMEM;
	build_stranger(&b, stranger);
	build_output(p, &b, output, stranger);
	*ret = b.rs;
	return b.failed ? -ENOMEM : 0;
}

/* ---- the batch ---- */

static void put_element(struct nl_writer *w, bool add, const char *stem,
			const struct cgroup_at *c)
{
	char name[FILTER_NAME_MAX];
	size_t list, element, key;

	snprintf(name, sizeof(name), "%s_%u", stem, c->level);
	nl_message(w, add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
		   add ? NLM_F_CREATE : 0, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, TABLE);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	element = nl_nest(w, NFTA_LIST_ELEM);
	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, &c->id, sizeof(c->id));
	nl_nest_end(w, key);
	nl_nest_end(w, element);
	nl_nest_end(w, list);
	nl_end(w);
}

/* It is in a set: what is above it is guarded somewhere. */
static bool is_in_kernel(const struct filter_parents *p, const struct cgroup_at *c)
{
	return p->loaded && c->level > 0 && has_level(&p->guarded, c->level - 1u);
}

static void put_table(struct nl_writer *w, const struct filter_parents *p,
		      const struct ruleset *rs, uint32_t flags)
{
	netlink_table(w, TABLE, flags);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		netlink_set(w, TABLE, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, TABLE, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		for (const struct filter_rule *r = c->rules; r; r = r->next)
			netlink_rule(w, TABLE, c, r);
	for (size_t i = 0; i < p->guarded.count; i++)
		put_element(w, true, "guarded", &p->guarded.at[i]);
	for (size_t i = 0; i < p->known.count; i++)
		if (has_level(&p->guarded, p->known.at[i].level - 1u))
			put_element(w, true, "known", &p->known.at[i]);
}

struct standing {
	bool found, owned;
	const struct filter_parents *parents;
};

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	struct standing *s = data;
	uint32_t owner;

	if (type != NFT_MSG_NEWTABLE || family != NFPROTO_INET ||
	    strcmp(nl_get_text(attrs->at[NFTA_TABLE_NAME]), TABLE) != 0)
		return 0;
	s->found = true;
	s->owned = nl_get_u32(attrs->at[NFTA_TABLE_OWNER], &owner) &&
		   owner == s->parents->conn.port_id;
	return 0;
}

static int find_standing(struct filter_parents *p, struct standing *ret)
{
	*ret = (struct standing){ .parents = p };
	return nl_ask(&p->conn, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
		      on_table, ret);
}

static int send_table(struct filter_parents *p, const struct ruleset *rs, bool replaces,
		      uint32_t flags, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, p->conn.seq);
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (replaces)
		netlink_table_delete(&w, TABLE);
	if (p->guarded.count > 0)
		put_table(&w, p, rs, flags);
	nl_batch_end(&w);
	r = nl_transact(&p->conn, &w, &seq);
	return r < 0 ? netlink_report(&w, seq, r, err) : 0;
}

int filter_parents_load(struct filter_parents *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	struct standing old;
	int r = find_standing(p, &old);

	if (r == 0)
		r = build(p, &arena, &rs);
	if (r < 0)
		return err_sys(err, r, "cannot guard what is above the cgroups");
	if (!old.found && p->guarded.count == 0) {
		p->loaded = false;
		return 0;
	}
	p->conn.owner = true;
	r = send_table(p, rs, old.found, NETLINK_TABLE_OWNER | NETLINK_TABLE_PERSIST,
		       err);
	if (r == -EOPNOTSUPP || r == -EINVAL) {
		p->conn.owner = false; /* an older kernel */
		r = send_table(p, rs, old.found, 0, err);
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

static int tell(struct filter_parents *p, bool add, const char *stem,
		const struct cgroup_at *c)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, p->conn.seq);

	nl_batch(&w);
	put_element(&w, add, stem, c);
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
	if (find(&p->guarded, cgroup))
		return 1;
	r = add(&p->guarded, cgroup, level);
	if (r < 0)
		return r;
	return has_rule ? tell(p, true, "guarded", &c) : 1;
}

int filter_parents_unguard(struct filter_parents *p, uint64_t cgroup)
{
	struct cgroup_at *found = find(&p->guarded, cgroup), c;

	if (!found)
		return 0;
	c = *found;
	take_out(&p->guarded, found);
	if (!p->loaded || !has_level(&p->guarded, c.level))
		return 1;
	return tell(p, false, "guarded", &c);
}

int filter_parents_know(struct filter_parents *p, uint64_t cgroup, uint8_t level)
{
	const struct cgroup_at c = { cgroup, level };
	int r = find(&p->known, cgroup) ? 0 : add(&p->known, cgroup, level);

	return r < 0 || !is_in_kernel(p, &c) ? r : tell(p, true, "known", &c);
}

int filter_parents_forget(struct filter_parents *p, uint64_t cgroup)
{
	struct cgroup_at *found = find(&p->known, cgroup), c;

	if (!found)
		return 0;
	c = *found;
	take_out(&p->known, found);
	return is_in_kernel(p, &c) ? tell(p, false, "known", &c) : 0;
}

/* ---- the whole ---- */

bool filter_parents_stands(struct filter_parents *p)
{
	struct standing s;

	if (!p->loaded)
		return true;
	/* When it can't be told, that is no reason to do anything. */
	return find_standing(p, &s) < 0 || (s.found && (s.owned || !p->conn.owner));
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
