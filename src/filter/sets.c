// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * An element whose lifetime should start anew is added, deleted and added in one
 * transaction: adding one that is there changes nothing on most kernels, and deleting
 * one that isn't would fail the whole batch. To remove one is the same without the last
 * step, or the deletion alone where the caller knows. This needs nothing of newer
 * kernels, and packets only see the outcome.
 *
 * Elements of one set that follow each other share a message: the kernel looks for table
 * and set once per message. Not those to be refreshed: the same one may stand there
 * twice, and deleting it twice would fail. */
#include "filter/nft.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/filter.h"
#include "filter/message.h"

enum {
	/* One element in a message of its own, with room to spare. */
	ELEMENT_MESSAGE = 116,
	BATCH_SIZE = (FILTER_LEARN_MAX * 3 + 2) * ELEMENT_MESSAGE,
};

/* The set at @index of set_indexes(). */
static void name_of(const struct set_owner *o, enum filter_role role, size_t index,
		    char ret[FILTER_NAME_MAX])
{
	filter_set_name(o->naming, role, index % 2 ? ADDR_V6 : ADDR_V4, index / 2, ret);
}

static size_t index_of(const struct filter_learn *item)
{
	return item->port_list * 2u + (item->addr.family != ADDR_V4);
}

/* ---- learning ---- */

/* What becomes of an item, in this order; PASS_ALL alone when the set is new and the
 * lifetimes don't count. */
enum pass { PASS_PRESENT = 0, PASS_DELETE, PASS_ADD, PASS_COUNT, PASS_ALL = PASS_COUNT };

static bool is_in(const struct filter_learn *item, enum pass pass)
{
	const bool ends = item->lifetime_ms == 0;

	switch (pass) {
	case PASS_PRESENT:
		return item->refresh || (ends && !item->present);
	case PASS_DELETE:
		return ends || item->refresh;
	case PASS_ADD:
		return !ends;
	case PASS_ALL:
		break;
	}
	return true;
}

/* Those of @items that are about the set at @index, or about any. */
static void put_pass(struct elements *k, const struct set_owner *o, enum filter_role role,
		     size_t index, enum pass pass, const struct filter_learn *items,
		     size_t count)
{
	const size_t before = o->mark ? sizeof(o->mark) : 0;

	for (size_t i = 0; i < count; i++) {
		const struct filter_learn *item = &items[i];
		uint8_t key[FILTER_KEY_MAX];
		char name[FILTER_NAME_MAX];
		struct element e = { .key = key };
		size_t size;

		if ((index != SET_ANY && index_of(item) != index) || !is_in(item, pass))
			continue;
		size = addr_size(&item->addr);
		e.size = before + size;
		if (role == FILTER_ROLE_LEARNED)
			e.lifetime_ms = item->lifetime_ms;
		memcpy(key, &o->mark, before);
		memcpy(key + before, item->addr.bytes, size);
		name_of(o, role, index_of(item), name);
		elements_put(k, pass != PASS_DELETE, name, &e);
	}
}

static void put_passes(struct elements *k, const struct set_owner *o,
		       enum filter_role role, size_t index, enum pass first,
		       const struct filter_learn *items, size_t count)
{
	for (size_t pass = first; pass < PASS_COUNT; pass++)
		put_pass(k, o, role, index, (enum pass)pass, items, count);
}

bool set_items_are_valid(const struct filter_learn *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (addr_size(&items[i].addr) == 0 ||
		    items[i].port_list >= PLAN_PORT_LISTS_MAX)
			return false;
	return true;
}

int set_learn(struct filter_conn *c, const struct set_owner *o,
	      const struct filter_learn *items, size_t count)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[BATCH_SIZE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);
	struct elements k = { .w = &w, .table = filter_table(o->naming) };

	if (count == 0)
		return 0;
	if (count > FILTER_LEARN_MAX)
		return -E2BIG;
	if (!set_items_are_valid(items, count))
		return -EINVAL;
	nl_batch(&w);
	for (size_t i = 0, run; i < count; i += run) {
		const struct filter_learn *first = items + i;

		/* How many may share the first one's messages. */
		run = 1;
		while (i + run < count && !first->refresh && !first[run].refresh &&
		       index_of(&first[run]) == index_of(first) &&
		       first[run].present == first->present &&
		       (first[run].lifetime_ms == 0) == (first->lifetime_ms == 0))
			run++;
		put_passes(&k, o, FILTER_ROLE_LEARNED, SET_ANY, PASS_PRESENT, first, run);
	}
	elements_end(&k);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	return set_learn(c, &(struct set_owner){ .naming = c->naming }, items, count);
}

/* ---- what a new ruleset starts with, and what changes in sets that outlive one ---- */

uint32_t set_indexes(const struct filter_learn *items, size_t count)
{
	uint32_t present = 0;

	static_assert(2 * PLAN_PORT_LISTS_MAX <= 32, "a bit for each set");
	for (size_t i = 0; i < count; i++)
		present |= UINT32_C(1) << index_of(&items[i]);
	return present;
}

void set_put_items(struct nl_writer *w, const struct set_owner *o, enum filter_role role,
		   const struct filter_learn *items, size_t count)
{
	const enum pass pass = role == FILTER_ROLE_LEARNED ? PASS_ADD : PASS_ALL;
	const uint32_t present = set_indexes(items, count);
	struct elements k = { .w = w, .table = filter_table(o->naming) };

	for (size_t i = 0; present >> i; i++)
		if (present >> i & 1)
			put_pass(&k, o, role, i, pass, items, count);
	elements_end(&k);
}

int filter_drain(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	const struct set_owner o = { .naming = c->naming };
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	if (!set_items_are_valid(items, count))
		return -EINVAL;
	nl_batch(&w);
	set_put_items(&w, &o, FILTER_ROLE_DRAINING, items, count);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

void set_put_changes(struct nl_writer *w, const struct set_owner *o,
		     enum filter_role role, size_t index,
		     const struct filter_learn *items, size_t count, bool is_new)
{
	struct elements k = { .w = w, .table = filter_table(o->naming) };

	put_passes(&k, o, role, index, is_new ? PASS_ADD : PASS_PRESENT, items, count);
	elements_end(&k);
}

/* ---- what the kernel has learned ---- */

/* One set being read. */
struct learned_read {
	struct filter_learn item; /* what all of its elements share */
	bool shared;		  /* a mark comes before each address */
	filter_learned_fn *fn;
	void *data;
};

/* An element whose time has come meanwhile has none left, and says nothing. */
static int on_learned(void *data, const struct element *e)
{
	const struct learned_read *s = data;
	struct filter_learn item = s->item;
	size_t size = addr_size(&item.addr), before = s->shared ? sizeof(uint32_t) : 0;
	uint32_t mark = 0;

	if (e->size != before + size)
		return -EBADMSG;
	memcpy(&mark, e->key, before);
	memcpy(item.addr.bytes, e->key + before, size);
	item.lifetime_ms = (uint32_t)MIN(e->lifetime_ms, UINT32_MAX);
	if (item.lifetime_ms > 0)
		s->fn(s->data, (uint16_t)(mark >> FILTER_MEMBER_SHIFT), &item);
	return 0;
}

int filter_learned_read(struct filter_conn *c, size_t port_list_count,
			filter_learned_fn *fn, void *data)
{
	const struct set_owner o = { .naming = c->naming };

	for (size_t i = 0; i < 2 * MIN(port_list_count, (size_t)PLAN_PORT_LISTS_MAX);
	     i++) {
		struct learned_read s = {
			.item = { .addr = { .family = i % 2 ? ADDR_V6 : ADDR_V4 },
				  .port_list = (uint8_t)(i / 2) },
			.shared = c->naming == FILTER_NAMES_HOST,
			.fn = fn,
			.data = data,
		};
		char name[FILTER_NAME_MAX];
		int r;

		name_of(&o, FILTER_ROLE_LEARNED, i, name);
		r = elements_read(
			c, &(struct elements_query){ .table = filter_table(c->naming),
						     .set = name,
						     .fn = on_learned,
						     .data = &s });
		/* Not every port list has names, nor every namespace IPv6. */
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

/* ---- ports of our own ---- */

void set_put_self_ports(struct nl_writer *w, enum filter_naming naming, bool add,
			const struct filter_self_port *items, size_t count)
{
	struct elements k = { .w = w, .table = filter_table(naming) };
	char name[FILTER_NAME_MAX];

	for (size_t i = 0; i < count; i++) {
		const uint8_t key[8] = {
			items[i].protocol,
			[4] = (uint8_t)(items[i].port >> 8),
			[5] = (uint8_t)items[i].port,
		};
		const struct element e = { .key = key, .size = sizeof(key) };

		filter_set_name(naming, FILTER_ROLE_SELF_PORTS, items[i].family, 0, name);
		elements_put(&k, add, name, &e);
	}
	elements_end(&k);
}

bool set_self_port_is_valid(const struct filter_self_port *h)
{
	return (h->family == ADDR_V4 || h->family == ADDR_V6) && h->port > 0 &&
	       (h->protocol == IPPROTO_TCP || h->protocol == IPPROTO_UDP);
}

int filter_self_port_set(struct filter_conn *c, const struct filter_self_port *h,
			 bool hold)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[4 * ELEMENT_MESSAGE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);
	int r;

	if (!set_self_port_is_valid(h))
		return -EINVAL;
	nl_batch(&w);
	set_put_self_ports(&w, c->naming, hold, h, 1);
	nl_batch_end(&w);
	r = nl_transact(c, &w, NULL);
	return r == -ENOENT && !hold ? 0 : r;
}

/* ---- what the kernel has counted ---- */

enum { KEY_WORD = 4 }; /* each part of a key begins in a register */

/* One set being read. */
struct counted {
	enum addr_family family;
	filter_counts_fn *fn;
	void *data;
};

/* As on_count() reads it, of the host's table. */
static size_t key_of(const struct filter_count *c, uint8_t ret[FILTER_KEY_MAX])
{
	const uint32_t member = c->member << FILTER_MEMBER_SHIFT;
	size_t size = addr_size(&c->addr);

	memset(ret, 0, FILTER_KEY_MAX);
	memcpy(ret, &member, sizeof(member));
	memcpy(ret + KEY_WORD, c->addr.bytes, size);
	ret[KEY_WORD + size] = c->protocol;
	ret[2 * KEY_WORD + size] = (uint8_t)(c->port >> 8);
	ret[2 * KEY_WORD + size + 1] = (uint8_t)c->port;
	return 3 * KEY_WORD + size;
}

/* address . protocol . port, of the host's table behind the member */
static int on_count(void *data, const struct element *e)
{
	const struct counted *s = data;
	struct filter_count c = { .addr.family = s->family,
				  .packets = e->packets,
				  .bytes = e->bytes };
	const size_t size = addr_size(&c.addr);
	const uint8_t *at = e->key;

	if (!e->counts)
		return 0;
	if (e->size == size + 3 * KEY_WORD) {
		memcpy(&c.member, at, sizeof(c.member));
		c.member >>= FILTER_MEMBER_SHIFT;
		at += KEY_WORD;
	} else if (e->size != size + 2 * KEY_WORD) {
		return 0;
	}
	memcpy(c.addr.bytes, at, size);
	c.protocol = at[size];
	c.port = (uint16_t)(at[size + KEY_WORD] << 8 | at[size + KEY_WORD + 1]);
	s->fn(s->data, &c);
	return 0;
}

int filter_counts_read(struct filter_conn *c, enum addr_family family, bool refused,
		       filter_counts_fn *fn, void *data)
{
	struct counted s = { family, fn, data };
	char name[FILTER_NAME_MAX];
	struct elements_query q = { .table = filter_table(c->naming),
				    .set = name,
				    .reset = !c->counts_stay,
				    .fn = on_count,
				    .data = &s };
	int r = -EINVAL;

	filter_set_name(c->naming, refused ? FILTER_ROLE_SEEN : FILTER_ROLE_USED, family,
			0, name);
	if (q.reset)
		r = elements_read(c, &q);
	if (r == -EINVAL || r == -EOPNOTSUPP) {
		c->counts_stay = true;
		q.reset = false;
		r = elements_read(c, &q);
		if (r >= 0) {
			CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

			nl_batch(&w);
			nft_delete(&w, NFT_MSG_DELSETELEM, q.table, name);
			nl_batch_end(&w);
			r = nl_transact(c, &w, NULL);
		}
	}
	return r == -ENOENT ? 0 : r;
}

/* ---- one destination ---- */

int filter_counts_read_one(struct filter_conn *c, bool refused,
			   const struct filter_count *key, filter_counts_fn *fn,
			   void *data)
{
	struct counted s = { key->addr.family, fn, data };
	char name[FILTER_NAME_MAX];
	uint8_t bytes[FILTER_KEY_MAX];
	const struct elements_query q = {
		.table = filter_table(c->naming),
		.set = name,
		.key = bytes,
		.key_size = key_of(key, bytes),
		.reset = true,
		.fn = on_count,
		.data = &s,
	};
	int r;

	if (c->counts_stay)
		return -EOPNOTSUPP;
	filter_set_name(c->naming, refused ? FILTER_ROLE_SEEN : FILTER_ROLE_USED,
			key->addr.family, 0, name);
	r = elements_read(c, &q);
	if (r == -EINVAL)
		r = -EOPNOTSUPP;
	return r == -ENOENT ? 0 : r;
}

/* Add before delete: it may have ended meanwhile. */
int filter_counts_forget(struct filter_conn *c, const struct filter_count *key)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	struct elements k = { .w = &w, .table = filter_table(c->naming) };
	uint8_t bytes[FILTER_KEY_MAX];
	const struct element e = { .key = bytes, .size = key_of(key, bytes) };
	char name[FILTER_NAME_MAX];

	filter_set_name(c->naming, FILTER_ROLE_SEEN, key->addr.family, 0, name);
	nl_batch(&w);
	elements_put(&k, true, name, &e);
	elements_put(&k, false, name, &e);
	elements_end(&k);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

/* ---- all that was refused, and that passed uncounted ---- */

struct total {
	struct filter_conn *conn;
	const char *chain;
	bool found;
	uint64_t packets;
};

/* The first counter of the chain's rules. */
static int on_total_rule(void *data, uint16_t type, uint8_t family,
			 const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_RULE_EXPRESSIONS];
	struct total *t = data;
	const uint8_t *at = list ? nl_data(list) : NULL;
	size_t left = list ? nl_size(list) : 0;
	const struct nlattr *a;
	uint64_t bytes;

	while (!t->found && (a = nl_take_attr(&at, &left)))
		t->found = elements_read_counter(a, &t->packets, &bytes);
	return 0;
}

static void name_chain(struct nl_writer *w, const void *what)
{
	const struct total *t = what;

	nl_put_text(w, NFTA_RULE_TABLE, filter_table(t->conn->naming));
	nl_put_text(w, NFTA_RULE_CHAIN, t->chain);
}

int filter_total(struct filter_conn *c, bool refused, uint64_t *ret)
{
	struct total t = { .conn = c, .chain = refused ? "refuse" : "passed" };
	const uint64_t before = refused || !c->counts_stay ? 0 : c->uncounted;
	int r = nl_ask(c, refused || c->counts_stay ? NFT_MSG_GETRULE : NL_GETRULE_RESET,
		       NLM_F_DUMP, NFPROTO_INET, name_chain, &t, on_total_rule, &t);

	if (r < 0)
		return r;
	if (!t.found)
		return -ENOENT;
	if (!refused)
		c->uncounted = t.packets;
	/* Another ruleset has begun at 0. */
	*ret = t.packets >= before ? t.packets - before : t.packets;
	return 0;
}
