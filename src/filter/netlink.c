// SPDX-License-Identifier: Apache-2.0
#include "filter/netlink.h"

#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <stdio.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "base/text.h"
#include "filter/elements.h"
#include "filter/statement.h"

/* As nft writes its comments: type, length, text with its NUL. */
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

void netlink_table_delete(struct nl_writer *w, const char *table)
{
	nl_message(w, NFT_MSG_DELTABLE, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_TABLE_NAME, table);
	nl_end(w);
}

void netlink_rules_delete(struct nl_writer *w, const char *table)
{
	nl_message(w, NFT_MSG_DELRULE, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	nl_end(w);
}

void netlink_chain_flush(struct nl_writer *w, const char *table, const char *chain)
{
	nl_message(w, NFT_MSG_DELRULE, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	nl_put_text(w, NFTA_RULE_CHAIN, chain);
	nl_end(w);
}

void netlink_chain_delete(struct nl_writer *w, const char *table, const char *chain)
{
	nl_message(w, NFT_MSG_DELCHAIN, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_CHAIN_TABLE, table);
	nl_put_text(w, NFTA_CHAIN_NAME, chain);
	nl_end(w);
}

void netlink_set_delete(struct nl_writer *w, const char *table, const char *set)
{
	nl_message(w, NFT_MSG_DELSET, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_TABLE, table);
	nl_put_text(w, NFTA_SET_NAME, set);
	nl_end(w);
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
