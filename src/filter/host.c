// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * What is asked for is written into a batch first, beside a copy of what it changes here;
 * only when the kernel has taken the batch does the copy take the old one's place. Plans
 * and ways (user ids; each level of cgroups) are counted: with its first user a batch
 * makes its chains and sets, with its last one it takes them away. */
#include "filter/host_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/netlink.h"
#include "filter/set.h"

enum { TIDY_MAX = 128 /* elements that filter_host_tidy() takes away at a time */ };

static const char *table(void)
{
	return filter_table(FILTER_NAMES_HOST);
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
static void put_element(struct nl_writer *w, bool add, const char *set, const void *key,
			size_t size, const struct value *v)
{
	size_t list, element, nest;

	nl_message(w, add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
		   add ? NLM_F_CREATE : 0, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, table());
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
static void put_member(struct nl_writer *w, bool add, const struct host_member *m,
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
		put_element(w, add, all[i].set, all[i].key, all[i].size,
			    all[i].maps ? &v : NULL);
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
	put_element(w, add, "plans", &number, sizeof(number), &to_output);
	put_element(w, add, "plans_nat", &number, sizeof(number), &to_nat);
}

/* ---- objects ---- */

static void put_set(struct nl_writer *w, const struct filter_set *s)
{
	netlink_set(w, table(), s);
	netlink_elements(w, table(), s, 0, s->range_count);
}

static void put_chain_rules(struct nl_writer *w, const struct filter_chain *c)
{
	for (const struct filter_rule *r = c->rules; r; r = r->next)
		netlink_rule(w, table(), c, r);
}

static void put_objects(struct nl_writer *w, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(w, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, table(), c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain_rules(w, c);
}

/* A plan comes, with its chains, or goes. */
static int put_plan(struct nl_writer *w, const struct filter_host *h, bool add,
		    const struct host_plan *p, struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_plan(h, p, &arena, &rs, err);

	if (r < 0)
		return r;
	if (add) {
		put_objects(w, rs);
		put_plan_verdicts(w, true, p);
		return 0;
	}
	put_plan_verdicts(w, false, p);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain_flush(w, table(), c->name);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain_delete(w, table(), c->name);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		netlink_set_delete(w, table(), s->name);
	return 0;
}

/* The rules that ask for each way, as @h has the ways now. */
static int put_way_rules(struct nl_writer *w, const struct filter_host *h)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_base(h, &arena, &rs);

	if (r < 0)
		return r;
	for (const struct filter_chain *c = rs->chains; c; c = c->next) {
		if (!host_chain_has_ways(c))
			continue;
		netlink_chain_flush(w, table(), c->name);
		put_chain_rules(w, c);
	}
	return 0;
}

/* The sets of a way that came or is about to go; @h has it. */
static int put_way_sets(struct nl_writer *w, const struct filter_host *h, bool add,
			size_t way)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_base(h, &arena, &rs);

	for (const struct filter_set *s = r < 0 ? NULL : rs->sets; s; s = s->next) {
		if (!host_set_is_of(s, way))
			continue;
		if (add)
			put_set(w, s);
		else
			netlink_set_delete(w, table(), s->name);
	}
	return r;
}

/* ---- plans ---- */

static bool plan_is(const struct host_plan *p, const struct plan *plan, bool relay)
{
	return p->relay == relay && p->plan.size == plan->size &&
	       memcmp(p->plan.bytes, plan->bytes, plan->size) == 0;
}

static void plan_free(struct host_plan *p)
{
	if (!p)
		return;
	free((void *)(uintptr_t)p->plan.bytes);
	free(p);
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

/* The one that is there already, or NULL. */
static struct host_plan *plan_find(const struct filter_host *h, const struct plan *plan,
				   bool relay)
{
	for (struct host_plan *p = h->plans; p; p = p->next)
		if (plan_is(p, plan, relay))
			return p;
	return NULL;
}

static void plan_link(struct filter_host *h, struct host_plan *p)
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
	plan_free(gone);
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
			r = put_way_sets(k->w, h, true, i);
		else
			h->ways[i].made = 0;
	}
	if (changed && r == 0)
		r = put_way_rules(k->w, h);
	for (size_t i = 0; i < HOST_WAYS; i++)
		h->ways[i].made = made[i];
	for (size_t i = 0; i < HOST_WAYS && r == 0 && !add; i++)
		if (goes(k, i))
			r = put_way_sets(k->w, h, false, i);
	return r;
}

static void put_state(struct nl_writer *w, const struct host_member *m,
		      const struct filter_state *state)
{
	const struct set_owner o = { FILTER_NAMES_HOST, host_mark(m) };

	set_put_items(w, &o, FILTER_ROLE_LEARNED, state->learned, state->learned_count,
		      true);
	set_put_items(w, &o, FILTER_ROLE_KEPT, state->kept, state->kept_count, false);
}

static void put_litter(struct nl_writer *w, uint32_t mark,
		       const struct host_learned_entry *e);

/* The mark was the sandbox's before: what it had learned then is in the way. */
static void put_without(struct nl_writer *w, uint32_t mark, const struct host_learned *l)
{
	for (size_t i = 0; i < l->capacity; i++)
		if (l->at[i].taken)
			put_litter(w, mark, &l->at[i]);
}

static void put_new(const struct change *k, const struct filter_state *state)
{
	uint32_t mark = host_mark(k->new);

	for (const struct host_litter *l = k->host->litter; l; l = l->next)
		if (l->mark == mark)
			put_without(k->w, mark, &l->learned);
	if (k->old && host_mark(k->old) == mark)
		put_without(k->w, mark, &k->old->learned);
	put_member(k->w, true, k->new, k->old);
	put_state(k->w, k->new, state);
}

static bool plan_goes(const struct change *k)
{
	return k->old && k->old->plan->users == 1 && k->old->plan != k->plan;
}

static int write_change(const struct change *k, const struct filter_state *state)
{
	int r = put_ways(k, true);

	if (r == 0 && k->new && k->plan->users == 0)
		r = put_plan(k->w, k->host, true, k->plan, k->err);
	if (r < 0)
		return r;
	if (k->old)
		put_member(k->w, false, k->old, k->new);
	if (k->new)
		put_new(k, state);
	if (plan_goes(k))
		r = put_plan(k->w, k->host, false, k->old->plan, k->err);
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

static void litter_free(struct host_litter *l)
{
	host_learned_done(&l->learned);
	free(l);
}

/* What was left under @mark is gone. */
static void clear_litter(struct filter_host *h, uint32_t mark)
{
	for (struct host_litter **at = &h->litter; *at;) {
		struct host_litter *l = *at;

		if (l->mark != mark) {
			at = &l->next;
			continue;
		}
		*at = l->next;
		litter_free(l);
	}
}

static void leave_litter(struct filter_host *h, struct host_member *m, uint32_t mark)
{
	struct host_litter *l;

	if (m->learned.used == 0)
		return;
	l = calloc(1, sizeof(*l)); /* without it they end by their lifetime */
	if (!l)
		return;
	l->mark = mark;
	l->learned = m->learned;
	m->learned = (struct host_learned){ 0 };
	l->next = h->litter;
	h->litter = l;
}

static void member_free(struct host_member *m)
{
	if (!m)
		return;
	host_learned_done(&m->learned);
	free(m);
}

static void settle_new(const struct change *k)
{
	struct filter_host *h = k->host;
	size_t way = host_way_of(&k->new->who);

	clear_litter(h, host_mark(k->new));
	if (h->ways[way].users++ == 0)
		h->ways[way].made = ++h->made;
	if (k->plan->users++ == 0)
		plan_link(h, k->plan);
	h->members[k->new->id] = k->new;
	h->count++;
}

static void settle_old(const struct change *k)
{
	struct filter_host *h = k->host;
	size_t way = host_way_of(&k->old->who);
	uint32_t mark = host_mark(k->old);

	if (!k->new)
		h->members[k->old->id] = NULL;
	if (!k->new || host_mark(k->new) != mark)
		leave_litter(h, k->old, mark);
	h->count--;
	if (--h->ways[way].users == 0)
		h->ways[way].made = 0;
	if (--k->old->plan->users == 0)
		plan_unlink(h, k->old->plan);
	member_free(k->old);
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
	if (s->id == 0 || !member_is_valid(&s->member))
		return err_set(err, -EINVAL,
			       "cannot attach: not a sandbox's number, "
			       "cgroup or user id");
	if (s->relay && h->params.relay_port == 0)
		return err_set(err, -EINVAL, "cannot attach: there is no relay");
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

int filter_host_set(struct filter_host *h, const struct filter_host_sandbox *s,
		    int64_t now_ms, struct err *err)
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
	k.plan = plan_find(h, s->plan, s->relay);
	if (!k.plan)
		k.plan = plan_copy(s->plan, s->relay, plan_number(h));
	r = k.new &&k.plan ? note_state(h, k.new, state, now_ms) : -ENOMEM;
	if (r < 0) {
		err_sys(err, r, "cannot attach");
	} else {
		k.new->plan = k.plan;
		r = commit_change(&k, state);
	}
	if (r < 0) {
		member_free(k.new);
		if (k.plan && k.plan->users == 0)
			plan_free(k.plan);
		return r;
	}
	settle(&k);
	return 0;
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

static struct filter_learn item_of(const struct host_learned_entry *e, int64_t now_ms)
{
	return (struct filter_learn){
		.addr = e->addr,
		.port_list = e->port_list,
		.lifetime_ms = e->kept ? 0 : (uint32_t)(e->until_ms - now_ms),
	};
}

/* Add before delete: it may have ended meanwhile. */
static void put_litter(struct nl_writer *w, uint32_t mark,
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
	put_element(w, true, name, key, sizeof(mark) + size, NULL);
	put_element(w, false, name, key, sizeof(mark) + size, NULL);
}

bool filter_host_tidy(struct filter_host *h, int64_t now_ms)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct host_litter *l = h->litter;
	size_t count = 0;

	if (!l || !h->loaded)
		return false;
	nl_batch(&w);
	for (; l->at < l->learned.capacity && count < TIDY_MAX; l->at++) {
		const struct host_learned_entry *e = &l->learned.at[l->at];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		put_litter(&w, l->mark, e);
		count++;
	}
	nl_batch_end(&w);
	if (count > 0)
		(void)!nl_transact(&h->conn, &w, NULL); /* they end by themselves */
	if (l->at == l->learned.capacity) {
		h->litter = l->next;
		litter_free(l);
	}
	return h->litter;
}

/* ---- all of it ---- */

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	bool *exists = data;

	if (type == NFT_MSG_NEWTABLE && family == NFPROTO_INET &&
	    strcmp(nl_get_text(attrs->at[NFTA_TABLE_NAME]), table()) == 0)
		*exists = true;
	return 0;
}

static void put_learned(struct nl_writer *w, const struct host_member *m, int64_t now_ms)
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

/* In the order in which things were made. */
static int put_all(struct nl_writer *w, const struct filter_host *h, int64_t now_ms,
		   struct err *err)
{
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *base;
	int r = host_build_base(h, &arena, &base);

	if (r < 0)
		return err_sys(err, r, "cannot build the filter");
	put_objects(w, base);
	for (const struct host_plan *p = h->plans; p && r == 0; p = p->next)
		r = put_plan(w, h, true, p, err);
	for (size_t i = 0; i < HOST_IDS && r == 0; i++) {
		if (!h->members[i])
			continue;
		put_member(w, true, h->members[i], NULL);
		put_learned(w, h->members[i], now_ms);
	}
	return r;
}

/* They were made anew: ways first, then plans. */
static void renumber(struct filter_host *h)
{
	uint64_t ways[HOST_WAYS];
	uint64_t made = 0;

	for (size_t i = 0; i < HOST_WAYS; i++) {
		ways[i] = 0;
		for (size_t k = 0; k < HOST_WAYS && h->ways[i].made > 0; k++)
			ways[i] += h->ways[k].made > 0 &&
				   h->ways[k].made <= h->ways[i].made;
		made += h->ways[i].made > 0;
	}
	for (size_t i = 0; i < HOST_WAYS; i++)
		h->ways[i].made = ways[i];
	for (struct host_plan *p = h->plans; p; p = p->next)
		p->made = ++made;
	h->made = made;
}

static int load_with(struct filter_host *h, uint32_t flags, bool replaces, int64_t now_ms,
		     struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (replaces)
		netlink_table_delete(&w, table());
	netlink_table(&w, table(), flags);
	r = put_all(&w, h, now_ms, err);
	if (r < 0)
		return r;
	nl_batch_end(&w);
	r = nl_transact(&h->conn, &w, &seq);
	return r < 0 ? netlink_report(&w, seq, r, err) : 0;
}

int filter_host_load(struct filter_host *h, int64_t now_ms, struct err *err)
{
	bool exists = false;
	int r = nl_ask(&h->conn, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
		       on_table, &exists);

	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the host");
	r = load_with(h, NETLINK_TABLE_OWNER | NETLINK_TABLE_PERSIST, exists, now_ms,
		      err);
	if (r == 0) {
		h->conn.owner = true;
	} else if (r == -EOPNOTSUPP || r == -EINVAL) {
		r = load_with(h, 0, exists, now_ms, err); /* an older kernel */
		h->conn.owner = h->conn.owner && r < 0;
	}
	if (r < 0)
		return r;
	h->loaded = true;
	renumber(h);
	while (h->litter) {
		struct host_litter *l = h->litter;

		h->litter = l->next;
		litter_free(l);
	}
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
	*ret = h;
	return 0;
}

void filter_host_free(struct filter_host *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < HOST_IDS; i++)
		member_free(h->members[i]);
	while (h->plans) {
		struct host_plan *p = h->plans;

		h->plans = p->next;
		plan_free(p);
	}
	while (h->litter) {
		struct host_litter *l = h->litter;

		h->litter = l->next;
		litter_free(l);
	}
	filter_conn_done(&h->conn);
	free(h);
}

struct filter_conn *filter_host_conn(struct filter_host *h)
{
	return &h->conn;
}
