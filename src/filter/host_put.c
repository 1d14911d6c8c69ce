// SPDX-License-Identifier: Apache-2.0
#include "filter/host_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/elements.h"
#include "filter/netlink.h"
#include "filter/set.h"

/* ---- a member's elements ---- */

void host_way_name(size_t way, bool pairs, char ret[FILTER_NAME_MAX])
{
	char *end = stpcpy(ret, way == 0 ? "uids" : pairs ? "pairs_" : "cgroups_");

	static_assert(HOST_WAYS <= 100, "two digits");
	if (way >= 10)
		*end++ = (char)('0' + way / 10);
	if (way > 0)
		*end++ = (char)('0' + way % 10);
	*end = '\0';
}

static void append(struct host_element *e, const void *key, size_t size)
{
	memcpy(e->key + e->size, key, size);
	e->size += size;
}

static void map_to(struct host_element *e, uint32_t value)
{
	e->maps = true;
	e->value = value;
}

void host_element(const struct host_member *m, enum host_place place,
		  struct host_element *ret)
{
	static const char *const names[HOST_PLACES] = { "live", "owns", "current",
							"ids" };
	uint32_t mark = host_mark(m), id = host_id_mark(m);
	size_t way = host_way_of(&m->who);
	bool is_user = way == 0;

	*ret = (struct host_element){ .set = names[place] };
	if (place == HOST_LIVE || place == HOST_OWNS)
		append(ret, &mark, sizeof(mark));
	if (place == HOST_LIVE)
		append(ret, &mark, sizeof(mark));
	if (place == HOST_OWNS || place == HOST_CURRENT || place == HOST_KNOWN)
		append(ret, &id, sizeof(id));
	if (place == HOST_CURRENT)
		map_to(ret, mark);
	if (place < HOST_WHO)
		return;
	host_way_name(way, place == HOST_FLOWS, ret->name);
	ret->set = place == HOST_FLOWS && is_user ? "orphans" : ret->name;
	if (!is_user)
		append(ret, &m->who.cgroup, sizeof(m->who.cgroup));
	else if (place == HOST_WHO)
		append(ret, &m->who.uid, sizeof(m->who.uid));
	if (place == HOST_FLOWS)
		append(ret, &id, sizeof(id));
	if (place == HOST_WHO || is_user)
		map_to(ret, id);
}

/* ---- elements ---- */

static void put(struct elements *k, bool add, const struct host_element *h)
{
	const struct element e = {
		.key = h->key, .size = h->size, .maps = h->maps, .value = h->value
	};

	elements_put(k, add, h->set, &e);
}

static bool is_same(const struct host_element *a, const struct host_element *b)
{
	return strcmp(a->set, b->set) == 0 && a->size == b->size &&
	       memcmp(a->key, b->key, a->size) == 0 && a->maps == b->maps &&
	       a->value == b->value;
}

/* Add or delete the elements of @m but those that @other (may be NULL) has as well: what
 * stays isn't touched. */
void host_put_member(struct nl_writer *w, bool add, const struct host_member *m,
		     const struct host_member *other)
{
	struct elements k = { .w = w, .table = HOST_TABLE };

	for (int place = 0; place < HOST_PLACES; place++) {
		struct host_element e, same;

		host_element(m, (enum host_place)place, &e);
		if (other) {
			host_element(other, (enum host_place)place, &same);
			if (is_same(&e, &same))
				continue;
		}
		put(&k, add, &e);
	}
	elements_end(&k);
}

/* The element at @place of each member; of one way at a time where the set is a way's. */
static void put_place(struct nl_writer *w, const struct filter_host *h, const char *table,
		      enum host_place place, size_t way)
{
	struct elements k = { .w = w, .table = table };

	for (size_t i = 0; i < HOST_IDS; i++) {
		const struct host_member *m = h->members[i];
		struct host_element e;

		if (!m || (place >= HOST_WHO && host_way_of(&m->who) != way))
			continue;
		host_element(m, place, &e);
		put(&k, true, &e);
	}
	elements_end(&k);
}

static void put_ways(struct nl_writer *w, const struct filter_host *h, const char *table,
		     enum host_place place)
{
	for (size_t way = 0; way < HOST_WAYS; way++)
		if (h->ways[way].users > 0)
			put_place(w, h, table, place, way);
}

void host_put_members(struct nl_writer *w, const struct filter_host *h)
{
	for (int place = 0; place < HOST_WHO; place++)
		put_place(w, h, HOST_TABLE, (enum host_place)place, 0);
	put_ways(w, h, HOST_TABLE, HOST_WHO);
	put_ways(w, h, HOST_TABLE, HOST_FLOWS);
}

void host_put_guarded(struct nl_writer *w, const struct filter_host *h)
{
	put_ways(w, h, HOST_GUARD_TABLE, HOST_WHO);
}

static void put_passed(struct elements *k, uint32_t mark)
{
	struct host_element e = { .set = "passed" };

	append(&e, &mark, sizeof(mark));
	put(k, true, &e);
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

static void put_sets(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(w, table, s);
}

static void put_chains(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, table, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain_rules(w, table, c);
}

void host_put_objects(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	put_sets(w, table, rs);
	put_chains(w, table, rs);
}

void host_put_plan_chains(struct nl_writer *w, const struct host_plan *p,
			  const struct ruleset *rs)
{
	put_chains(w, HOST_TABLE, rs);
	put_plan_verdicts(w, true, p);
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
		put_sets(w, HOST_TABLE, rs);
		host_put_plan_chains(w, p, rs);
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

	set_put_items(w, &o, FILTER_ROLE_LEARNED, state->learned, state->learned_count);
	set_put_items(w, &o, FILTER_ROLE_KEPT, state->kept, state->kept_count);
}

void host_put_stale(struct nl_writer *w, uint32_t mark,
		    const struct host_learned_entry *e)
{
	const struct set_owner o = { FILTER_NAMES_HOST, mark };

	set_put_removal(w, &o, e->kept ? FILTER_ROLE_KEPT : FILTER_ROLE_LEARNED, &e->addr,
			e->port_list);
}

/* What is @kept, or isn't, and lives. Return: how many. */
static size_t list_learned(const struct host_learned *l, bool kept, int64_t now_ms,
			   struct filter_learn *ret)
{
	size_t count = 0;

	for (size_t i = 0; i < l->capacity; i++) {
		const struct host_learned_entry *e = &l->at[i];

		if (e->taken && e->kept == kept && e->until_ms > now_ms)
			ret[count++] = (struct filter_learn){
				.addr = e->addr,
				.port_list = e->port_list,
				.lifetime_ms = kept ? 0
						    : (uint32_t)(e->until_ms - now_ms),
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
	set_put_items(w, &o, FILTER_ROLE_KEPT, items, count);
	return 0;
}
