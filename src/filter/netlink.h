// SPDX-License-Identifier: Apache-2.0
/* filter/netlink - a ruleset's objects as nf_tables messages: the back end that loads
 * them. statement.c has what stands in a rule, elements.c what stands in a set. */
#pragma once

#include "filter/message.h"
#include "filter/ruleset_internal.h"

enum {
	NETLINK_TABLE_OWNER = 0x2,
	NETLINK_TABLE_PERSIST = 0x4, /* since 6.9; not in Debian 12's headers */
};

void netlink_table(struct nl_writer *w, const char *table, uint32_t table_flags);
void netlink_table_delete(struct nl_writer *w, const char *table);
void netlink_chain(struct nl_writer *w, const char *table,
		   const struct filter_chain *chain);
void netlink_set(struct nl_writer *w, const char *table, const struct filter_set *set);
/* Ranges @from to @until of a set; as many messages as it takes, none for none. */
void netlink_elements(struct nl_writer *w, const char *table,
		      const struct filter_set *set, size_t from, size_t until);
/* Delete all rules of the table. */
void netlink_rules_delete(struct nl_writer *w, const char *table);
void netlink_chain_delete(struct nl_writer *w, const char *table, const char *chain);
/* Delete all rules of one chain. */
void netlink_chain_flush(struct nl_writer *w, const char *table, const char *chain);
void netlink_set_delete(struct nl_writer *w, const char *table, const char *set);
void netlink_rule(struct nl_writer *w, const char *table,
		  const struct filter_chain *chain, const struct filter_rule *rule);

/* Why a batch of ours failed, by the message with number @seq. Return: @code. */
int netlink_report(const struct nl_writer *w, uint32_t seq, int code, struct err *err);

/* All sets with their elements; all chains, then their rules. */
void netlink_sets(struct nl_writer *w, const char *table, const struct ruleset *rs);
void netlink_chains(struct nl_writer *w, const char *table, const struct ruleset *rs);

/* What the kernel has under the name of a table. */
struct netlink_found {
	const char *table; /* borrowed */
	uint32_t port_id;
	bool exists;
	bool owned; /* by this very socket, and it stays when the socket is closed */
};
int netlink_table_find(struct filter_conn *c, const char *table,
		       struct netlink_found *ret) MUST_CHECK;
/* For nl_ask(): only what is in @table, a name. */
void netlink_name_table(struct nl_writer *w, const void *table);
/* Writes what a table has into a batch. */
typedef int netlink_put_fn(struct nl_writer *w, const void *data, struct err *err);
/* The one installer: the table of @old, if it exists, goes, and the one that @put writes
 * takes its place, in one transaction: all of it or nothing. It is owned where the kernel
 * knows that; c->owner says. */
int netlink_table_replace(struct filter_conn *c, const struct netlink_found *old,
			  netlink_put_fn *put, const void *data,
			  struct err *err) MUST_CHECK;
int netlink_table_remove(struct filter_conn *c, const char *table) MUST_CHECK;

/* What the comment in a chain's userdata says; 0: nothing that we would have written. */
uint16_t netlink_generation(const struct nlattr *userdata);

/* NFTA_SET_FLAGS */
uint32_t netlink_set_flags(const struct filter_set *set);
