// SPDX-License-Identifier: Apache-2.0
/* filter/nft - nf_tables objects as messages and as text. nft_expr.c has what stands in
 * a rule and what the key of a set is made of; nft_object.c tables, chains, sets and
 * their elements; install.c puts a ruleset into the kernel and compares what the kernel
 * gives back; sets.c has the elements that change. */
#pragma once

#include <stdio.h>

#include "filter/filter.h"
#include "filter/message.h"
#include "filter/ruleset.h"

/* ---- rules and keys: nft_expr.c ---- */

/* A rule's expressions as one attribute. A statement that says nothing makes @w fail. */
void nft_rule_write(struct nl_writer *w, const struct filter_rule *rule);
/* One line for nft. false: there is no text for one of its statements. */
bool nft_rule_print(FILE *out, const struct filter_rule *rule);

/* nft's number for the type of a key; 0: it has none. */
uint32_t nft_key_type(enum filter_key key);
/* Its name. false: there is no text for it. */
bool nft_key_type_print(FILE *out, enum filter_key key);
/* nft's number for the type of what a map gives; 0 for a set. */
uint32_t nft_value_type(enum filter_value value);

/* ---- elements: the one writer and the one reader ---- */

enum {
	ELEMENTS_MAX = 1000, /* in one message: below 64 KiB in any set */
};

struct element {
	const uint8_t *key; /* borrowed */
	size_t size;
	bool end; /* of an interval: the first key behind it */
	/* 0: it has none; of one that was read: none is left. UINT64_MAX, reading only:
	 * it never ends. */
	uint64_t lifetime_ms;
	/* What a map gives for the key: a value, or where to jump to. */
	bool maps;
	uint32_t value;
	const char *chain; /* NULL: a value */
	/* Reading only. */
	bool counts;
	uint64_t packets, bytes;
};

/* Elements on their way into a batch. Those that follow each other in one set share a
 * message: the kernel looks for table and set once per message. */
struct elements {
	struct nl_writer *w;
	const char *table;
	char set[FILTER_NAME_MAX];
	bool add;
	size_t list, count; /* of the open message; count 0: none is open */
};
/* Add an element to @set or delete it; for a deletion only its key counts. */
void elements_put(struct elements *k, bool add, const char *set, const struct element *e);
/* Close the open message, if there is one. Nothing else may be written before. */
void elements_end(struct elements *k);

/* Called for each element; a negative value ends the calls. What @e points to is gone
 * afterwards. */
typedef int element_fn(void *data, const struct element *e);
struct elements_query {
	const char *table, *set;
	const uint8_t *key; /* one element; NULL: all */
	size_t key_size;
	bool reset; /* counters are 0 afterwards */
	element_fn *fn;
	void *data;
};
/* -ENOENT: no such set, or no such element; -EBADMSG: an answer that can't be read;
 * -EAGAIN: the set changed meanwhile. */
int elements_read(struct filter_conn *c, const struct elements_query *q) MUST_CHECK;
/* What the expression @expr has counted. false: it is no counter. */
bool elements_read_counter(const struct nlattr *expr, uint64_t *packets, uint64_t *bytes);

/* ---- tables, chains, sets ---- */

enum {
	NFT_TABLE_OWNER = 0x2,
	NFT_TABLE_PERSIST = 0x4, /* since 6.9; not in Debian 12's headers */
};

/* A new one with NLM_F_CREATE in @flags. Without it, one that exists: with
 * NFT_TABLE_OWNER in @table_flags its owner is whoever sends this. */
void nft_table(struct nl_writer *w, const char *table, uint16_t flags,
	       uint32_t table_flags);
/* Delete what is called @name in the table: by @type, NFT_MSG_DELTABLE (@name NULL),
 * _DELSET, _DELCHAIN, _DELRULE (all rules of the chain; NULL: of the table) or
 * _DELSETELEM (all elements of the set). */
void nft_delete(struct nl_writer *w, uint16_t type, const char *table, const char *name);
void nft_chain(struct nl_writer *w, const char *table, const struct filter_chain *chain);
void nft_set(struct nl_writer *w, const char *table, const struct filter_set *set);
/* Ranges @from to @until of a set; as many messages as it takes, none for none. */
void nft_elements(struct nl_writer *w, const char *table, const struct filter_set *set,
		  size_t from, size_t until);
void nft_rule(struct nl_writer *w, const char *table, const struct filter_chain *chain,
	      const struct filter_rule *rule);

/* Why a batch of ours failed, by the message with number @seq. Return: @code. */
int nft_report(const struct nl_writer *w, uint32_t seq, int code, struct err *err);

/* All sets with their elements; all chains, then their rules. */
void nft_sets(struct nl_writer *w, const char *table, const struct ruleset *rs);
void nft_chains(struct nl_writer *w, const char *table, const struct ruleset *rs);

/* What the kernel has under the name of a table. */
struct nft_found {
	const char *table; /* borrowed */
	uint32_t port_id;
	bool exists;
	bool owned; /* by this very socket, and it stays when the socket is closed */
};
int nft_table_find(struct filter_conn *c, const char *table,
		   struct nft_found *ret) MUST_CHECK;
/* Is a table there that @c has made, and that nobody else has made anew? True when that
 * can't be known: it is no reason to do anything. */
bool nft_table_stands(struct filter_conn *c, const char *table);
/* For nl_ask(): only what is in @table, a name. */
void nft_name_table(struct nl_writer *w, const void *table);
/* Writes what a table has into a batch. */
typedef int nft_put_fn(struct nl_writer *w, const void *data, struct err *err);
/* The one installer: the table of @old, if it exists, goes, and the one that @put writes
 * takes its place, in one transaction: all of it or nothing. It is owned where the kernel
 * knows that; c->owner says. */
int nft_table_replace(struct filter_conn *c, const struct nft_found *old, nft_put_fn *put,
		      const void *data, struct err *err) MUST_CHECK;
int nft_table_remove(struct filter_conn *c, const char *table) MUST_CHECK;
/* How a table that stands becomes another one. */
struct nft_switch {
	const char *table;
	bool (*stays)(void *data, const char *set);
	nft_put_fn *put; /* writes all but the sets that stay */
	void *data;	 /* for both */
};
/* The table stays, with some sets; all else goes, and what put() writes comes, in one
 * transaction. */
int nft_table_switch(struct filter_conn *c, const struct nft_switch *how,
		     struct err *err) MUST_CHECK;

/* Load some ranges of @progress's sets, about a millisecond's worth, in a transaction of
 * their own. */
int nft_stage(struct filter_conn *c, const char *table,
	      struct filter_staging *progress) MUST_CHECK;
/* Take away what was loaded, from set @first on. */
void nft_unstage(struct filter_conn *c, const char *table, const struct filter_set *first,
		 const struct filter_staging *progress);

/* What a chain's userdata says; all zero: nothing that we would have written. */
struct filter_said nft_said(const struct nlattr *userdata);
/* Of all that @rs makes: the same for the same ruleset, whichever process asks. 0: out of
 * memory. */
uint64_t nft_digest(const struct ruleset *rs);

/* NFTA_SET_FLAGS */
uint32_t nft_set_flags(const struct filter_set *set);

/* ---- reading back: install.c ---- */

/* The end of a verification: @why, where it has a text, else @r. Return: @r. */
int nft_verified(int r, const struct err *why, struct err *err);

/* ---- elements of the sets that change, for those who write a batch: sets.c ---- */

/* Whose sets: those of a table of one sandbox, or with its mark those that many share. */
struct set_owner {
	enum filter_naming naming;
	uint32_t mark; /* 0: the table is the sandbox's own */
};

/* Each item names a set: a family, and a port list that can be. */
bool set_items_are_valid(const struct filter_learn *items, size_t count);
/* Add @items, any number in any order, to the sets of @role. Learned ones whose lifetime
 * is over are left out; others have none. */
void set_put_items(struct nl_writer *w, const struct set_owner *o, enum filter_role role,
		   const struct filter_learn *items, size_t count);
/* Which sets of a role @items are about: bit 2 * port list, or for IPv6 the next one. */
uint32_t set_indexes(const struct filter_learn *items, size_t count);
enum { SET_ANY = SIZE_MAX };
/* What changes in a set that outlives its ruleset: those of @items, each (address, list)
 * once, that are about the set at @index, or with SET_ANY all of them. One that is to go
 * may have ended meanwhile. @is_new: the set is made in this very batch, and has nothing
 * that could go. */
void set_put_changes(struct nl_writer *w, const struct set_owner *o,
		     enum filter_role role, size_t index,
		     const struct filter_learn *items, size_t count, bool is_new);
/* filter_learn() */
int set_learn(struct filter_conn *c, const struct set_owner *o,
	      const struct filter_learn *items, size_t count) MUST_CHECK;
bool set_self_port_is_valid(const struct filter_self_port *h);
/* Add or delete ports of our own. */
void set_put_self_ports(struct nl_writer *w, enum filter_naming naming, bool add,
			const struct filter_self_port *items, size_t count);
