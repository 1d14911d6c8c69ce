// SPDX-License-Identifier: Apache-2.0
#include "filter/elements.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <stdio.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

/* ---- writing ---- */

static void put_data(struct nl_writer *w, const struct element *e)
{
	size_t data = nl_nest(w, NFTA_SET_ELEM_DATA), verdict;

	if (!e->chain) {
		nl_put(w, NFTA_DATA_VALUE, &e->value, sizeof(e->value));
	} else {
		verdict = nl_nest(w, NFTA_DATA_VERDICT);
		nl_put_be32(w, NFTA_VERDICT_CODE, (uint32_t)NFT_JUMP);
		nl_put_text(w, NFTA_VERDICT_CHAIN, e->chain);
		nl_nest_end(w, verdict);
	}
	nl_nest_end(w, data);
}

static void put_element(struct nl_writer *w, const struct element *e, bool add)
{
	size_t element = nl_nest(w, NFTA_LIST_ELEM);
	size_t key = nl_nest(w, NFTA_SET_ELEM_KEY);

	nl_put(w, NFTA_DATA_VALUE, e->key, e->size);
	nl_nest_end(w, key);
	if (e->end)
		nl_put_be32(w, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
	if (add && e->lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, e->lifetime_ms);
	if (add && e->maps)
		put_data(w, e);
	nl_nest_end(w, element);
}

static void put_name(struct nl_writer *w, const char *table, const char *set)
{
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, table);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, set);
}

void elements_end(struct elements *k)
{
	if (k->count == 0)
		return;
	nl_nest_end(k->w, k->list);
	nl_end(k->w);
	k->count = 0;
}

void elements_put(struct elements *k, bool add, const char *set, const struct element *e)
{
	/* Both ends of an interval stay together. */
	bool full = k->count >= ELEMENTS_MAX && !e->end;

	if (full || k->add != add || strcmp(k->set, set) != 0)
		elements_end(k);
	if (k->count == 0) {
		k->add = add;
		snprintf(k->set, sizeof(k->set), "%s", set);
		nl_message(k->w, add ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
			   add ? NLM_F_CREATE : 0, NFPROTO_INET);
		put_name(k->w, k->table, set);
		k->list = nl_nest(k->w, NFTA_SET_ELEM_LIST_ELEMENTS);
	}
	put_element(k->w, e, add);
	k->count++;
}

void elements_clear(struct nl_writer *w, const char *table, const char *set)
{
	nl_message(w, NFT_MSG_DELSETELEM, 0, NFPROTO_INET);
	put_name(w, table, set);
	nl_end(w);
}

/* ---- reading ---- */

static bool read_data(const struct nlattr *a, struct element *e)
{
	struct nl_attrs data, verdict;
	const struct nlattr *value;

	if (!a)
		return true;
	if (!nl_attrs_nested(a, &data))
		return false;
	value = data.at[NFTA_DATA_VALUE];
	e->maps = true;
	if (!value) {
		if (!nl_attrs_nested(data.at[NFTA_DATA_VERDICT], &verdict))
			return false;
		e->chain = nl_get_text(verdict.at[NFTA_VERDICT_CHAIN]);
		return true;
	}
	if (mnl_attr_get_payload_len(value) != sizeof(e->value))
		return false;
	memcpy(&e->value, mnl_attr_get_payload(value), sizeof(e->value));
	return true;
}

bool elements_read_counter(const struct nlattr *expr, uint64_t *packets, uint64_t *bytes)
{
	struct nl_attrs a, terms;

	return nl_attrs_nested(expr, &a) &&
	       strcmp(nl_get_text(a.at[NFTA_EXPR_NAME]), "counter") == 0 &&
	       nl_attrs_nested(a.at[NFTA_EXPR_DATA], &terms) &&
	       nl_get_u64(terms.at[NFTA_COUNTER_PACKETS], packets) &&
	       nl_get_u64(terms.at[NFTA_COUNTER_BYTES], bytes);
}

static bool read_element(const struct nlattr *a, uint8_t bytes[FILTER_KEY_MAX],
			 struct element *ret)
{
	struct nl_attrs element, key;
	const struct nlattr *value, *flags;
	uint32_t bits = 0;

	*ret = (struct element){ 0 };
	if (!nl_attrs_nested(a, &element) ||
	    !nl_attrs_nested(element.at[NFTA_SET_ELEM_KEY], &key))
		return false;
	value = key.at[NFTA_DATA_VALUE];
	flags = element.at[NFTA_SET_ELEM_FLAGS];
	if (!value || mnl_attr_get_payload_len(value) > FILTER_KEY_MAX ||
	    (flags && !nl_get_u32(flags, &bits)))
		return false;
	memset(bytes, 0, FILTER_KEY_MAX);
	memcpy(bytes, mnl_attr_get_payload(value), mnl_attr_get_payload_len(value));
	ret->key = bytes;
	ret->size = mnl_attr_get_payload_len(value);
	ret->end = bits & NFT_SET_ELEM_INTERVAL_END;
	(void)nl_get_u64(element.at[NFTA_SET_ELEM_EXPIRATION], &ret->lifetime_ms);
	ret->counts = elements_read_counter(element.at[NFTA_SET_ELEM_EXPR], &ret->packets,
					    &ret->bytes);
	return read_data(element.at[NFTA_SET_ELEM_DATA], ret);
}

static int on_elements(void *data, uint16_t type, uint8_t family,
		       const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_SET_ELEM_LIST_ELEMENTS];
	const struct elements_query *q = data;
	struct nlattr *a; /* as libmnl's loop wants it; only read */
	int r = 0;

	if (!list)
		return 0;
	mnl_attr_for_each_nested(a, list)
	{
		uint8_t key[FILTER_KEY_MAX];
		struct element e;

		if (r == 0)
			r = read_element(a, key, &e) ? q->fn(q->data, &e) : -EBADMSG;
	}
	return r;
}

static void put_query(struct nl_writer *w, const void *what)
{
	const struct elements_query *q = what;
	const struct element e = { .key = q->key, .size = q->key_size };
	size_t list;

	put_name(w, q->table, q->set);
	if (!q->key)
		return;
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	put_element(w, &e, false);
	nl_nest_end(w, list);
}

int elements_read(struct filter_conn *c, const struct elements_query *q)
{
	struct elements_query copy = *q;

	return nl_ask(c, q->reset ? NL_GETSETELEM_RESET : NFT_MSG_GETSETELEM,
		      q->key ? NLM_F_ACK : NLM_F_DUMP, NFPROTO_INET, put_query, q,
		      on_elements, &copy);
}
