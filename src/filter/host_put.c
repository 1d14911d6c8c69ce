// SPDX-License-Identifier: Apache-2.0
#include "filter/host_internal.h"

#include <stdio.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/netlink.h"
#include "filter/set.h"

/* ---- a member's elements ---- */

void host_way_name(size_t way, bool pairs, char ret[FILTER_NAME_MAX])
{
	if (way == 0)
		snprintf(ret, FILTER_NAME_MAX, "uids");
	else
		snprintf(ret, FILTER_NAME_MAX, "%s_%zu", pairs ? "pairs" : "cgroups",
			 way);
}

static struct host_element *add(struct host_element *e, const char *set, const void *key,
				size_t size)
{
	*e = (struct host_element){ .set = set };
	memcpy(e->key, key, size);
	e->size = size;
	return e;
}

static void append(struct host_element *e, uint32_t value)
{
	memcpy(e->key + e->size, &value, sizeof(value));
	e->size += sizeof(value);
}

static void map_to(struct host_element *e, uint32_t value)
{
	e->maps = true;
	e->value = value;
}

size_t host_elements(const struct host_member *m, char names[2][FILTER_NAME_MAX],
		     struct host_element ret[HOST_ELEMENTS_MAX])
{
	uint32_t mark = host_mark(m), id = host_id_mark(m);
	size_t way = host_way_of(&m->who);
	struct host_element *e = ret;

	host_way_name(way, false, names[0]);
	host_way_name(way, true, names[1]);
	append(add(e++, "live", &mark, sizeof(mark)), mark);
	append(add(e++, "owns", &mark, sizeof(mark)), id);
	map_to(add(e++, "current", &id, sizeof(id)), mark);
	add(e++, "ids", &id, sizeof(id));
	if (way == 0) {
		map_to(add(e++, names[0], &m->who.uid, sizeof(m->who.uid)), id);
		map_to(add(e++, "orphans", &id, sizeof(id)), id);
	} else {
		map_to(add(e++, names[0], &m->who.cgroup, sizeof(m->who.cgroup)), id);
		append(add(e++, names[1], &m->who.cgroup, sizeof(m->who.cgroup)), id);
	}
	return (size_t)(e - ret);
}

/* ---- elements ---- */

/* What a map gives: four bytes, or the verdict @code to @chain. */
struct value {
	const uint32_t *mark;
	int code;
	const char *chain;
};

static void put_value(struct nl_writer *w, const struct value *v)
{
	size_t data = nl_nest(w, NFTA_SET_ELEM_DATA), verdict;

	if (v->mark) {
		nl_put(w, NFTA_DATA_VALUE, v->mark, sizeof(*v->mark));
	} else {
		verdict = nl_nest(w, NFTA_DATA_VERDICT);
		nl_put_be32(w, NFTA_VERDICT_CODE, (uint32_t)v->code);
		nl_put_text(w, NFTA_VERDICT_CHAIN, v->chain);
		nl_nest_end(w, verdict);
	}
	nl_nest_end(w, data);
}

/* Add an element, with @v one of a map; or delete it. */
static void put_element(struct nl_writer *w, const char *table, bool add, const char *set,
			const void *key, size_t size, const struct value *v)
{
	size_t list, element, nest;

	nl_message(w, add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
		   add ? NLM_F_CREATE : 0, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, table);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, set);
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	element = nl_nest(w, NFTA_LIST_ELEM);
	nest = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, key, size);
	nl_nest_end(w, nest);
	if (add && v)
		put_value(w, v);
	nl_nest_end(w, element);
	nl_nest_end(w, list);
	nl_end(w);
}

static bool has_element(const struct host_element *all, size_t count,
			const struct host_element *e)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(all[i].set, e->set) == 0 && all[i].size == e->size &&
		    memcmp(all[i].key, e->key, e->size) == 0 && all[i].maps == e->maps &&
		    all[i].value == e->value)
			return true;
	return false;
}

/* Add or delete the elements of @m but those that @other (may be NULL) has as well: what
 * stays isn't touched. */
void host_put_member(struct nl_writer *w, bool add, const struct host_member *m,
		     const struct host_member *other)
{
	struct host_element all[HOST_ELEMENTS_MAX], others[HOST_ELEMENTS_MAX];
	char names[2][FILTER_NAME_MAX], other_names[2][FILTER_NAME_MAX];
	size_t count = host_elements(m, names, all);
	size_t stay = other ? host_elements(other, other_names, others) : 0;

	for (size_t i = 0; i < count; i++) {
		const struct value v = { .mark = &all[i].value };

		if (has_element(others, stay, &all[i]))
			continue;
		put_element(w, HOST_TABLE, add, all[i].set, all[i].key, all[i].size,
			    all[i].maps ? &v : NULL);
	}
}

void host_put_guarded(struct nl_writer *w, const struct host_member *m)
{
	struct host_element all[HOST_ELEMENTS_MAX];
	char names[2][FILTER_NAME_MAX];
	size_t count = host_elements(m, names, all);

	for (size_t i = 0; i < count; i++) {
		const struct value v = { .mark = &all[i].value };

		if (strcmp(all[i].set, names[0]) == 0)
			put_element(w, HOST_GUARD_TABLE, true, names[0], all[i].key,
				    all[i].size, &v);
	}
}

/* A packet that was on its way when a batch came may find the chain still empty: it comes
 * back then, and is dropped. */
static void put_plan_verdicts(struct nl_writer *w, bool add, const struct host_plan *p)
{
	char output[FILTER_NAME_MAX], nat[FILTER_NAME_MAX];
	const struct value to_output = { .code = NFT_JUMP, .chain = output };
	const struct value to_nat = { .code = NFT_JUMP, .chain = nat };
	const uint32_t number = p->number;

	snprintf(output, sizeof(output), "p%u_output", p->number);
	snprintf(nat, sizeof(nat), "p%u_nat", p->number);
	put_element(w, HOST_TABLE, add, "plans", &number, sizeof(number), &to_output);
	put_element(w, HOST_TABLE, add, "plans_nat", &number, sizeof(number), &to_nat);
}

/* ---- objects ---- */

static void put_set(struct nl_writer *w, const char *table, const struct filter_set *s)
{
	netlink_set(w, table, s);
	netlink_elements(w, table, s, 0, s->range_count);
}

static void put_chain_rules(struct nl_writer *w, const char *table,
			    const struct filter_chain *c)
{
	for (const struct filter_rule *r = c->rules; r; r = r->next)
		netlink_rule(w, table, c, r);
}

void host_put_objects(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(w, table, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, table, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain_rules(w, table, c);
}

/* A plan comes, with its chains, or goes. */
int host_put_plan(struct nl_writer *w, const struct filter_host *h, bool add,
		  const struct host_plan *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_plan(h, p, &arena, &rs, err);

	if (r < 0)
		return r;
	if (add) {
		host_put_objects(w, HOST_TABLE, rs);
		put_plan_verdicts(w, true, p);
		return 0;
	}
	put_plan_verdicts(w, false, p);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain_flush(w, HOST_TABLE, c->name);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain_delete(w, HOST_TABLE, c->name);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		netlink_set_delete(w, HOST_TABLE, s->name);
	return 0;
}

/* The rules that ask for each way, as @h has the ways now. */
int host_put_way_rules(struct nl_writer *w, const struct filter_host *h)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_base(h, &arena, &rs);

	if (r < 0)
		return r;
	for (const struct filter_chain *c = rs->chains; c; c = c->next) {
		if (!host_chain_has_ways(c))
			continue;
		netlink_chain_flush(w, HOST_TABLE, c->name);
		put_chain_rules(w, HOST_TABLE, c);
	}
	return 0;
}

/* The sets of a way that came or is about to go; @h has it. */
int host_put_way_sets(struct nl_writer *w, const struct filter_host *h, bool add,
		      size_t way)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_base(h, &arena, &rs);

	for (const struct filter_set *s = r < 0 ? NULL : rs->sets; s; s = s->next) {
		if (!host_set_is_of(s, way))
			continue;
		if (add)
			put_set(w, HOST_TABLE, s);
		else
			netlink_set_delete(w, HOST_TABLE, s->name);
	}
	return r;
}
/* ---- what is learned ---- */

void host_put_state(struct nl_writer *w, const struct host_member *m,
		    const struct filter_state *state)
{
	const struct set_owner o = { FILTER_NAMES_HOST, host_mark(m) };

	set_put_items(w, &o, FILTER_ROLE_LEARNED, state->learned, state->learned_count,
		      true);
	set_put_items(w, &o, FILTER_ROLE_KEPT, state->kept, state->kept_count, false);
}

/* Add before delete: it may have ended meanwhile. */
void host_put_litter(struct nl_writer *w, uint32_t mark,
		     const struct host_learned_entry *e)
{
	uint8_t key[FILTER_KEY_MAX];
	char name[FILTER_NAME_MAX];
	size_t size = addr_size(&e->addr);

	filter_set_name(FILTER_NAMES_HOST,
			e->kept ? FILTER_ROLE_KEPT : FILTER_ROLE_LEARNED, e->addr.family,
			e->port_list, name);
	memcpy(key, &mark, sizeof(mark));
	memcpy(key + sizeof(mark), e->addr.bytes, size);
	put_element(w, HOST_TABLE, true, name, key, sizeof(mark) + size, NULL);
	put_element(w, HOST_TABLE, false, name, key, sizeof(mark) + size, NULL);
}

static struct filter_learn item_of(const struct host_learned_entry *e, int64_t now_ms)
{
	return (struct filter_learn){
		.addr = e->addr,
		.port_list = e->port_list,
		.lifetime_ms = e->kept ? 0 : (uint32_t)(e->until_ms - now_ms),
	};
}

void host_put_learned(struct nl_writer *w, const struct host_member *m, int64_t now_ms)
{
	const struct set_owner o = { FILTER_NAMES_HOST, host_mark(m) };

	for (size_t i = 0; i < m->learned.capacity; i++) {
		const struct host_learned_entry *e = &m->learned.at[i];
		struct filter_learn item = item_of(e, now_ms);

		if (e->taken && e->until_ms > now_ms)
			set_put_items(w, &o,
				      e->kept ? FILTER_ROLE_KEPT : FILTER_ROLE_LEARNED,
				      &item, 1, !e->kept);
	}
}
