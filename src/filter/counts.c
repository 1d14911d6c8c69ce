// SPDX-License-Identifier: Apache-2.0
#include "filter/counts.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/message.h"
#include "filter/ruleset_internal.h"

enum { KEY_WORD = 4 }; /* each part of a key begins in a register */

/* One set being read. */
struct reading {
	enum filter_naming naming;
	enum filter_role role;
	enum addr_family family;
	const struct filter_count *key; /* one element; NULL: all */
	filter_counts_fn *fn;
	void *data;
};

/* As read_key() reads it, of the host's table. */
static void put_key(struct nl_writer *w, const struct filter_count *c)
{
	const uint32_t member = c->member << FILTER_MEMBER_SHIFT;
	uint8_t bytes[KEY_WORD * 3 + sizeof(c->addr.bytes)] = { 0 };
	size_t size = addr_size(&c->addr), list, element, key;

	memcpy(bytes, &member, sizeof(member));
	memcpy(bytes + KEY_WORD, c->addr.bytes, size);
	bytes[KEY_WORD + size] = c->protocol;
	bytes[2 * KEY_WORD + size] = (uint8_t)(c->port >> 8);
	bytes[2 * KEY_WORD + size + 1] = (uint8_t)c->port;
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	element = nl_nest(w, NFTA_LIST_ELEM);
	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, bytes, 3 * KEY_WORD + size);
	nl_nest_end(w, key);
	nl_nest_end(w, element);
	nl_nest_end(w, list);
}

static void name_set(struct nl_writer *w, const void *what)
{
	const struct reading *s = what;
	char name[FILTER_NAME_MAX];

	filter_set_name(s->naming, s->role, s->family, 0, name);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, filter_table(s->naming));
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	if (s->key)
		put_key(w, s->key);
}

/* @expr is a counter, or nothing that counts. */
static bool read_counter(const struct nlattr *expr, uint64_t *packets, uint64_t *bytes)
{
	struct nl_attrs a, terms;

	return nl_attrs_nested(expr, &a) &&
	       strcmp(nl_get_text(a.at[NFTA_EXPR_NAME]), "counter") == 0 &&
	       nl_attrs_nested(a.at[NFTA_EXPR_DATA], &terms) &&
	       nl_get_u64(terms.at[NFTA_COUNTER_PACKETS], packets) &&
	       nl_get_u64(terms.at[NFTA_COUNTER_BYTES], bytes);
}

/* address . protocol . port, of the host's table behind the member */
static bool read_key(const struct nlattr *a, enum addr_family family,
		     struct filter_count *ret)
{
	struct nl_attrs key;
	const struct nlattr *value;
	const uint8_t *at;
	size_t size;

	ret->addr = (struct addr){ .family = family };
	size = addr_size(&ret->addr);
	if (!nl_attrs_nested(a, &key))
		return false;
	value = key.at[NFTA_DATA_VALUE];
	if (!value)
		return false;
	at = mnl_attr_get_payload(value);
	if (mnl_attr_get_payload_len(value) == size + 3 * KEY_WORD) {
		memcpy(&ret->member, at, sizeof(ret->member));
		ret->member >>= FILTER_MEMBER_SHIFT;
		at += KEY_WORD;
	} else if (mnl_attr_get_payload_len(value) != size + 2 * KEY_WORD) {
		return false;
	}
	memcpy(ret->addr.bytes, at, size);
	ret->protocol = at[size];
	ret->port = (uint16_t)(at[size + KEY_WORD] << 8 | at[size + KEY_WORD + 1]);
	return true;
}

static int on_elements(void *data, uint16_t type, uint8_t family,
		       const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_SET_ELEM_LIST_ELEMENTS];
	const struct reading *s = data;
	struct nlattr *a; /* as libmnl's loop wants it; only read */

	if (!list)
		return 0;
	mnl_attr_for_each_nested(a, list)
	{
		struct filter_count c = { 0 };
		struct nl_attrs element;

		if (nl_attrs_nested(a, &element) &&
		    read_key(element.at[NFTA_SET_ELEM_KEY], s->family, &c) &&
		    read_counter(element.at[NFTA_SET_ELEM_EXPR], &c.packets, &c.bytes))
			s->fn(s->data, &c);
	}
	return 0;
}

/* All elements go. */
static int flush(struct filter_conn *c, const struct reading *s)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	nl_batch(&w);
	nl_message(&w, NFT_MSG_DELSETELEM, 0, NFPROTO_INET);
	name_set(&w, s);
	nl_end(&w);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

static int read_set(struct filter_conn *c, struct reading *s)
{
	int r = -EINVAL;

	if (!c->counts_stay)
		r = nl_ask(c, NL_GETSETELEM_RESET, NLM_F_DUMP, NFPROTO_INET, name_set, s,
			   on_elements, s);
	if (r != -EINVAL && r != -EOPNOTSUPP)
		return r;
	c->counts_stay = true;
	r = nl_ask(c, NFT_MSG_GETSETELEM, NLM_F_DUMP, NFPROTO_INET, name_set, s,
		   on_elements, s);
	return r < 0 ? r : flush(c, s);
}

int filter_counts_read(struct filter_conn *c, bool refused, filter_counts_fn *fn,
		       void *data)
{
	for (int i = 0; i < 2; i++) {
		struct reading s = {
			.naming = c->naming,
			.role = refused ? FILTER_ROLE_SEEN : FILTER_ROLE_USED,
			.family = i == 0 ? ADDR_V4 : ADDR_V6,
			.fn = fn,
			.data = data,
		};
		int r = read_set(c, &s);

		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

/* ---- one destination ---- */

int filter_counts_read_one(struct filter_conn *c, bool refused,
			   const struct filter_count *key, filter_counts_fn *fn,
			   void *data)
{
	struct reading s = {
		.naming = c->naming,
		.role = refused ? FILTER_ROLE_SEEN : FILTER_ROLE_USED,
		.family = key->addr.family,
		.key = key,
		.fn = fn,
		.data = data,
	};
	int r;

	if (c->counts_stay)
		return -EOPNOTSUPP;
	r = nl_ask(c, NL_GETSETELEM_RESET, NLM_F_ACK, NFPROTO_INET, name_set, &s,
		   on_elements, &s);
	if (r == -EINVAL)
		r = -EOPNOTSUPP;
	return r == -ENOENT ? 0 : r;
}

/* Add before delete: it may have ended meanwhile. */
int filter_counts_forget(struct filter_conn *c, const struct filter_count *key)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	const struct reading s = {
		.naming = c->naming,
		.role = FILTER_ROLE_SEEN,
		.family = key->addr.family,
		.key = key,
	};

	nl_batch(&w);
	nl_message(&w, NFT_MSG_NEWSETELEM, NLM_F_CREATE, NFPROTO_INET);
	name_set(&w, &s);
	nl_end(&w);
	nl_message(&w, NFT_MSG_DELSETELEM, 0, NFPROTO_INET);
	name_set(&w, &s);
	nl_end(&w);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

/* ---- all that was refused ---- */

struct total {
	bool found;
	uint64_t packets;
};

/* The first counter of the first rule. */
static int on_rule(void *data, uint16_t type, uint8_t family,
		   const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_RULE_EXPRESSIONS];
	struct total *t = data;
	struct nlattr *a;
	uint64_t bytes;

	if (!list || t->found)
		return 0;
	mnl_attr_for_each_nested(a, list)
	{
		if (!t->found)
			t->found = read_counter(a, &t->packets, &bytes);
	}
	return 0;
}

static void name_chain(struct nl_writer *w, const void *what)
{
	const struct filter_conn *c = what;

	nl_put_text(w, NFTA_RULE_TABLE, filter_table(c->naming));
	nl_put_text(w, NFTA_RULE_CHAIN, "refuse");
}

int filter_refused_total(struct filter_conn *c, uint64_t *ret)
{
	struct total t = { 0 };
	int r = nl_ask(c, NFT_MSG_GETRULE, NLM_F_DUMP, NFPROTO_INET, name_chain, c,
		       on_rule, &t);

	if (r < 0)
		return r;
	if (!t.found)
		return -ENOENT;
	*ret = t.packets;
	return 0;
}
