// SPDX-License-Identifier: Apache-2.0
#include "filter/netlink.h"

#include <assert.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "base/text.h"
#include "filter/elements.h"
#include "filter/statement.h"

/* As nft writes its comments: type, length, text with its NUL. */
enum { FIND_TRIES = 16 }; /* then the caller hears -EAGAIN */
enum { USERDATA_COMMENT = 0, COMMENT_SIZE = sizeof("generation 65535") };

static void put_generation(struct nl_writer *w, uint16_t generation)
{
	uint8_t comment[2 + COMMENT_SIZE] = { USERDATA_COMMENT };

	comment[1] = (uint8_t)(snprintf((char *)comment + 2, COMMENT_SIZE,
					"generation %u", generation) +
			       1);
	nl_put(w, NFTA_CHAIN_USERDATA, comment, 2u + comment[1]);
}

void netlink_table(struct nl_writer *w, const char *table, uint32_t table_flags)
{
	nl_message(w, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, NFPROTO_INET);
	nl_put_text(w, NFTA_TABLE_NAME, table);
	nl_put_be32(w, NFTA_TABLE_FLAGS, table_flags);
	nl_end(w);
}

uint16_t netlink_generation(const struct nlattr *userdata)
{
	uint16_t size = userdata ? mnl_attr_get_payload_len(userdata) : 0;
	const char *at = userdata ? mnl_attr_get_payload(userdata) : NULL;
	struct text left, word;
	uint32_t generation;

	if (size < 3 || at[0] != USERDATA_COMMENT || (uint8_t)at[1] != size - 2 ||
	    at[size - 1] != '\0')
		return 0;
	left = (struct text){ at + 2, size - 3u };
	if (!text_split(&left, ' ', &word) || !text_equal(word, "generation") ||
	    !text_to_u32(left, UINT16_MAX, &generation))
		return 0;
	return (uint16_t)generation;
}

/* What of @table is called @name; NULL: all of that type, or of tables itself. */
static void put_deletion(struct nl_writer *w, uint16_t type, const char *table,
			 uint16_t name_type, const char *name)
{
	static_assert((int)NFTA_TABLE_NAME == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_CHAIN_TABLE == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_SET_TABLE == (int)NFTA_RULE_TABLE,
		      "one attribute for all");
	nl_message(w, type, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	if (name)
		nl_put_text(w, name_type, name);
	nl_end(w);
}

void netlink_table_delete(struct nl_writer *w, const char *table)
{
	put_deletion(w, NFT_MSG_DELTABLE, table, 0, NULL);
}

void netlink_rules_delete(struct nl_writer *w, const char *table)
{
	put_deletion(w, NFT_MSG_DELRULE, table, 0, NULL);
}

void netlink_chain_flush(struct nl_writer *w, const char *table, const char *chain)
{
	put_deletion(w, NFT_MSG_DELRULE, table, NFTA_RULE_CHAIN, chain);
}

void netlink_chain_delete(struct nl_writer *w, const char *table, const char *chain)
{
	put_deletion(w, NFT_MSG_DELCHAIN, table, NFTA_CHAIN_NAME, chain);
}

void netlink_set_delete(struct nl_writer *w, const char *table, const char *set)
{
	put_deletion(w, NFT_MSG_DELSET, table, NFTA_SET_NAME, set);
}

void netlink_chain(struct nl_writer *w, const char *table,
		   const struct filter_chain *chain)
{
	size_t nest;

	nl_message(w, NFT_MSG_NEWCHAIN, NLM_F_CREATE | NLM_F_EXCL, NFPROTO_INET);
	nl_put_text(w, NFTA_CHAIN_TABLE, table);
	nl_put_text(w, NFTA_CHAIN_NAME, chain->name);
	if (chain->type != FILTER_CHAIN_PLAIN) {
		nest = nl_nest(w, NFTA_CHAIN_HOOK);
		nl_put_be32(w, NFTA_HOOK_HOOKNUM, chain->hook);
		nl_put_be32(w, NFTA_HOOK_PRIORITY, (uint32_t)chain->priority);
		nl_nest_end(w, nest);
		nl_put_be32(w, NFTA_CHAIN_POLICY, chain->accept ? NF_ACCEPT : NF_DROP);
		nl_put_text(w, NFTA_CHAIN_TYPE,
			    chain->type == FILTER_CHAIN_NAT ? "nat" : "filter");
	}
	if (chain->generation > 0)
		put_generation(w, chain->generation);
	nl_end(w);
}

uint32_t netlink_set_flags(const struct filter_set *set)
{
	uint32_t flags = 0;

	if (set->timeout)
		flags |= NFT_SET_TIMEOUT;
	else if (!set->changes && !set->value)
		flags |= NFT_SET_INTERVAL | NFT_SET_CONSTANT;
	if (set->dynamic)
		flags |= NFT_SET_EVAL;
	if (set->value)
		flags |= NFT_SET_MAP;
	return flags;
}

void netlink_set(struct nl_writer *w, const char *table, const struct filter_set *set)
{
	size_t nest;

	nl_message(w, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_TABLE, table);
	nl_put_text(w, NFTA_SET_NAME, set->name);
	nl_put_be32(w, NFTA_SET_ID, w->seq);
	nl_put_be32(w, NFTA_SET_FLAGS, netlink_set_flags(set));
	nl_put_be32(w, NFTA_SET_KEY_TYPE, statement_key_type(set->key));
	nl_put_be32(w, NFTA_SET_KEY_LEN, (uint32_t)filter_key_size(set->key));
	if (set->value) {
		nl_put_be32(w, NFTA_SET_DATA_TYPE, statement_value_type(set->value));
		nl_put_be32(w, NFTA_SET_DATA_LEN, sizeof(uint32_t));
	}
	if (set->size > 0) {
		nest = nl_nest(w, NFTA_SET_DESC);
		nl_put_be32(w, NFTA_SET_DESC_SIZE, set->size);
		nl_nest_end(w, nest);
	}
	nl_end(w);
}

void netlink_elements(struct nl_writer *w, const char *table,
		      const struct filter_set *set, size_t from, size_t until)
{
	struct elements k = { .w = w, .table = table };
	const size_t size = filter_key_size(set->key);

	/* An interval is its first key and, marked, the first key behind it; one that
	 * reaches the last key has no end. */
	for (size_t i = from; i < until; i++) {
		uint8_t behind[16];
		const struct element first = { .key = set->ranges[i].from, .size = size };
		const struct element end = { .key = behind, .size = size, .end = true };

		elements_put(&k, true, set->name, &first);
		if (filter_key_next(set->ranges[i].to, size, behind))
			elements_put(&k, true, set->name, &end);
	}
	elements_end(&k);
}

void netlink_rule(struct nl_writer *w, const char *table,
		  const struct filter_chain *chain, const struct filter_rule *rule)
{
	nl_message(w, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	nl_put_text(w, NFTA_RULE_CHAIN, chain->name);
	statement_write_rule(w, rule);
	nl_end(w);
}

void netlink_sets(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		netlink_set(w, table, s);
		netlink_elements(w, table, s, 0, s->range_count);
	}
}

void netlink_chains(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, table, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		for (const struct filter_rule *r = c->rules; r; r = r->next)
			netlink_rule(w, table, c, r);
}

/* ---- what a failed message was about ---- */

static const struct {
	uint16_t type, name;
	const char *what;
} subjects[] = {
	{ NFT_MSG_NEWTABLE, NFTA_TABLE_NAME, "table" },
	{ NFT_MSG_DELTABLE, NFTA_TABLE_NAME, "old table" },
	{ NFT_MSG_NEWCHAIN, NFTA_CHAIN_NAME, "chain" },
	{ NFT_MSG_NEWSET, NFTA_SET_NAME, "set" },
	{ NFT_MSG_NEWSETELEM, NFTA_SET_ELEM_LIST_SET, "elements of set" },
	{ NFT_MSG_NEWRULE, NFTA_RULE_CHAIN, "a rule of chain" },
};

static int report_message(const struct nlmsghdr *h, int code, struct err *err)
{
	const uint8_t *attrs =
		(const uint8_t *)h + NLMSG_HDRLEN + sizeof(struct nfgenmsg);
	struct nl_attrs a;

	if (nl_attrs_read(attrs, h->nlmsg_len - NLMSG_HDRLEN - sizeof(struct nfgenmsg),
			  &a))
		for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
			if (NFNL_MSG_TYPE(h->nlmsg_type) == subjects[i].type)
				return err_sys(err, code, "cannot install %s '%s'",
					       subjects[i].what,
					       nl_get_text(a.at[subjects[i].name]));
	return err_sys(err, code, "cannot install the filter");
}

int netlink_report(const struct nl_writer *w, uint32_t seq, int code, struct err *err)
{
	const uint8_t *at = w->bytes;
	size_t left = w->size;
	const struct nlmsghdr *h;

	while (seq != w->first && (h = nl_take(&at, &left)))
		if (h->nlmsg_seq == seq)
			return report_message(h, code, err);
	return err_sys(err, code, "cannot install the filter");
}

/* ---- whole tables ---- */

void netlink_name_table(struct nl_writer *w, const void *table)
{
	nl_put_text(w, NFTA_RULE_TABLE, table);
}

static int find_table(void *data, uint16_t type, uint8_t family,
		      const struct nl_attrs *attrs)
{
	const uint32_t wanted = NETLINK_TABLE_OWNER | NETLINK_TABLE_PERSIST;
	struct netlink_found *f = data;
	uint32_t flags, owner;

	if (type != NFT_MSG_NEWTABLE || family != NFPROTO_INET ||
	    strcmp(nl_get_text(attrs->at[NFTA_TABLE_NAME]), f->table) != 0)
		return 0;
	f->exists = true;
	f->owned = nl_get_u32(attrs->at[NFTA_TABLE_FLAGS], &flags) && flags == wanted &&
		   nl_get_u32(attrs->at[NFTA_TABLE_OWNER], &owner) && owner == f->port_id;
	return 0;
}

int netlink_table_find(struct filter_conn *c, const char *table,
		       struct netlink_found *ret)
{
	int r = -EAGAIN;

	/* Another program that changes a table of its own cuts the list short. */
	for (int i = 0; i < FIND_TRIES && r == -EAGAIN; i++) {
		*ret = (struct netlink_found){ .table = table, .port_id = c->port_id };
		r = nl_ask(c, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
			   find_table, ret);
	}
	return r;
}

static int replace_with(struct filter_conn *c, const struct netlink_found *old,
			uint32_t flags, netlink_put_fn *put, const void *data,
			struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (old->exists)
		netlink_table_delete(&w, old->table);
	netlink_table(&w, old->table, flags);
	r = put(&w, data, err);
	if (r < 0)
		return r;
	nl_batch_end(&w);
	r = nl_transact(c, &w, &seq);
	return r < 0 ? netlink_report(&w, seq, r, err) : 0;
}

int netlink_table_replace(struct filter_conn *c, const struct netlink_found *old,
			  netlink_put_fn *put, const void *data, struct err *err)
{
	int r = replace_with(c, old, NETLINK_TABLE_OWNER | NETLINK_TABLE_PERSIST, put,
			     data, err);

	if (r == 0) {
		c->owner = true;
	} else if (r == -EOPNOTSUPP || r == -EINVAL) {
		/* Older kernels refuse flags that they don't know, and nothing has
		 * changed. */
		r = replace_with(c, old, 0, put, data, err);
		c->owner = c->owner && r < 0;
	}
	return r;
}

int netlink_table_remove(struct filter_conn *c, const char *table)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	nl_batch(&w);
	netlink_table_delete(&w, table);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}
