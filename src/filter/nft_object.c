// SPDX-License-Identifier: Apache-2.0
#include "filter/nft.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "base/hash.h"
#include "base/text.h"
#include "filter/ruleset.h"

/* ---- elements ---- */

/* ---- writing ---- */

static void put_element(struct nl_writer *w, const struct element *e, bool add)
{
	size_t element = nl_nest(w, NFTA_LIST_ELEM);
	size_t nest = nl_nest(w, NFTA_SET_ELEM_KEY), verdict;

	nl_put(w, NFTA_DATA_VALUE, e->key, e->size);
	nl_nest_end(w, nest);
	if (e->end)
		nl_put_be32(w, NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
	if (add && e->lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, e->lifetime_ms);
	if (add && e->maps) {
		nest = nl_nest(w, NFTA_SET_ELEM_DATA);
		if (!e->chain) {
			nl_put(w, NFTA_DATA_VALUE, &e->value, sizeof(e->value));
		} else {
			verdict = nl_nest(w, NFTA_DATA_VERDICT);
			nl_put_be32(w, NFTA_VERDICT_CODE, (uint32_t)NFT_JUMP);
			nl_put_text(w, NFTA_VERDICT_CHAIN, e->chain);
			nl_nest_end(w, verdict);
		}
		nl_nest_end(w, nest);
	}
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

/* ---- reading ---- */

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
	struct nl_attrs element, key, data, verdict;
	const struct nlattr *value, *flags, *mapped;
	uint32_t bits = 0;

	*ret = (struct element){ 0 };
	if (!nl_attrs_nested(a, &element) ||
	    !nl_attrs_nested(element.at[NFTA_SET_ELEM_KEY], &key))
		return false;
	value = key.at[NFTA_DATA_VALUE];
	flags = element.at[NFTA_SET_ELEM_FLAGS];
	if (!value || nl_size(value) > FILTER_KEY_MAX ||
	    (flags && !nl_get_u32(flags, &bits)))
		return false;
	memset(bytes, 0, FILTER_KEY_MAX);
	memcpy(bytes, nl_data(value), nl_size(value));
	ret->key = bytes;
	ret->size = nl_size(value);
	ret->end = bits & NFT_SET_ELEM_INTERVAL_END;
	/* The kernel names the end of every element that has one. */
	if (!nl_get_u64(element.at[NFTA_SET_ELEM_EXPIRATION], &ret->lifetime_ms))
		ret->lifetime_ms = UINT64_MAX;
	ret->counts = elements_read_counter(element.at[NFTA_SET_ELEM_EXPR], &ret->packets,
					    &ret->bytes);
	mapped = element.at[NFTA_SET_ELEM_DATA];
	if (!mapped)
		return true;
	if (!nl_attrs_nested(mapped, &data))
		return false;
	ret->maps = true;
	value = data.at[NFTA_DATA_VALUE];
	if (!value) {
		if (!nl_attrs_nested(data.at[NFTA_DATA_VERDICT], &verdict))
			return false;
		ret->chain = nl_get_text(verdict.at[NFTA_VERDICT_CHAIN]);
		return true;
	}
	if (nl_size(value) != sizeof(ret->value))
		return false;
	memcpy(&ret->value, nl_data(value), sizeof(ret->value));
	return true;
}

static int on_elements(void *data, uint16_t type, uint8_t family,
		       const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_SET_ELEM_LIST_ELEMENTS];
	const struct elements_query *q = data;
	const uint8_t *at = list ? nl_data(list) : NULL;
	size_t left = list ? nl_size(list) : 0;
	const struct nlattr *a;
	int r = 0;

	while (r == 0 && (a = nl_take_attr(&at, &left))) {
		uint8_t key[FILTER_KEY_MAX];
		struct element e;

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

/* ---- objects ---- */

enum {
	FIND_TRIES = 16,    /* then the caller hears -EAGAIN */
	STAGE_RANGES = 300, /* that are loaded at a time */
};

/* What a chain says in its userdata: items of a type, a length and so many bytes. nft
 * shows comments, texts with their NUL, and passes over what it doesn't know. */
enum { USERDATA_COMMENT = 0, USERDATA_DIGEST = 'W' };
enum { COMMENT_SIZE = sizeof("generation 65535"), DIGEST_SIZE = sizeof(uint64_t) };

void nft_table(struct nl_writer *w, const char *table, uint16_t flags,
	       uint32_t table_flags)
{
	nl_message(w, NFT_MSG_NEWTABLE, flags, NFPROTO_INET);
	nl_put_text(w, NFTA_TABLE_NAME, table);
	nl_put_be32(w, NFTA_TABLE_FLAGS, table_flags);
	nl_end(w);
}

struct filter_said nft_said(const struct nlattr *userdata)
{
	size_t left = userdata ? nl_size(userdata) : 0;
	const uint8_t *at = userdata ? nl_data(userdata) : NULL;
	struct filter_said said = { 0 };

	for (; left >= 2; left -= 2u + at[1], at += 2 + at[1]) {
		size_t size = at[1];
		struct text text = { (const char *)at + 2, size - 1 }, word;
		uint32_t generation;

		if (size > left - 2)
			return (struct filter_said){ 0 };
		if (at[0] == USERDATA_COMMENT) {
			const bool is_ours = size > 0 && at[2 + size - 1] == '\0' &&
					     text_split(&text, ' ', &word) &&
					     text_equal(word, "generation") &&
					     text_to_u32(text, UINT16_MAX, &generation);

			said.generation = is_ours ? (uint16_t)generation : 0;
		} else if (at[0] == USERDATA_DIGEST && size == DIGEST_SIZE) {
			memcpy(&said.digest, at + 2, DIGEST_SIZE);
		}
	}
	return left == 0 ? said : (struct filter_said){ 0 };
}

void nft_delete(struct nl_writer *w, uint16_t type, const char *table, const char *name)
{
	static_assert((int)NFTA_TABLE_NAME == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_CHAIN_TABLE == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_SET_TABLE == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_SET_ELEM_LIST_TABLE == (int)NFTA_RULE_TABLE &&
			      (int)NFTA_SET_NAME == (int)NFTA_RULE_CHAIN &&
			      (int)NFTA_SET_ELEM_LIST_SET == (int)NFTA_RULE_CHAIN,
		      "one attribute for all, but for the name of a chain");
	nl_message(w, type, 0, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	if (name)
		nl_put_text(w,
			    type == NFT_MSG_DELCHAIN ? NFTA_CHAIN_NAME : NFTA_RULE_CHAIN,
			    name);
	nl_end(w);
}

void nft_chain(struct nl_writer *w, const char *table, const struct filter_chain *chain)
{
	uint8_t said[2 + COMMENT_SIZE + 2 + DIGEST_SIZE] = { USERDATA_COMMENT };
	size_t nest, size;

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
	if (chain->generation > 0) {
		size = (size_t)snprintf((char *)said + 2, COMMENT_SIZE, "generation %u",
					chain->generation) +
		       1;
		said[1] = (uint8_t)size;
		size += 2;
		if (chain->digest != 0) {
			said[size++] = USERDATA_DIGEST;
			said[size++] = DIGEST_SIZE;
			memcpy(said + size, &chain->digest, DIGEST_SIZE);
			size += DIGEST_SIZE;
		}
		nl_put(w, NFTA_CHAIN_USERDATA, said, size);
	}
	nl_end(w);
}

uint32_t nft_set_flags(const struct filter_set *set)
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

void nft_set(struct nl_writer *w, const char *table, const struct filter_set *set)
{
	size_t nest;

	nl_message(w, NFT_MSG_NEWSET, NLM_F_CREATE | NLM_F_EXCL, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_TABLE, table);
	nl_put_text(w, NFTA_SET_NAME, set->name);
	nl_put_be32(w, NFTA_SET_ID, w->seq);
	nl_put_be32(w, NFTA_SET_FLAGS, nft_set_flags(set));
	nl_put_be32(w, NFTA_SET_KEY_TYPE, nft_key_type(set->key));
	nl_put_be32(w, NFTA_SET_KEY_LEN, (uint32_t)filter_key_size(set->key));
	if (set->value) {
		nl_put_be32(w, NFTA_SET_DATA_TYPE, nft_value_type(set->value));
		nl_put_be32(w, NFTA_SET_DATA_LEN, sizeof(uint32_t));
	}
	if (set->size > 0) {
		nest = nl_nest(w, NFTA_SET_DESC);
		nl_put_be32(w, NFTA_SET_DESC_SIZE, set->size);
		nl_nest_end(w, nest);
	}
	nl_end(w);
}

void nft_elements(struct nl_writer *w, const char *table, const struct filter_set *set,
		  size_t from, size_t until)
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

void nft_rule(struct nl_writer *w, const char *table, const struct filter_chain *chain,
	      const struct filter_rule *rule)
{
	nl_message(w, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	nl_put_text(w, NFTA_RULE_CHAIN, chain->name);
	nft_rule_write(w, rule);
	nl_end(w);
}

void nft_sets(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		nft_set(w, table, s);
		nft_elements(w, table, s, 0, s->range_count);
	}
}

void nft_chains(struct nl_writer *w, const char *table, const struct ruleset *rs)
{
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		nft_chain(w, table, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		for (const struct filter_rule *r = c->rules; r; r = r->next)
			nft_rule(w, table, c, r);
}

/* Messages of one ruleset are the same bytes each time. The ranges of its sets stand for
 * the messages that bring them. Without memory: 0. */
uint64_t nft_digest(const struct ruleset *rs)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, 0);
	struct hash_key key = { 0 };

	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		nft_set(&w, filter_table(rs->naming), s);
		key.k0 = hash_bytes(&key, s->ranges, s->range_count * sizeof(*s->ranges));
	}
	nft_chains(&w, filter_table(rs->naming), rs);
	return w.failed ? 0 : hash_bytes(&key, w.bytes, w.size);
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

int nft_report(const struct nl_writer *w, uint32_t seq, int code, struct err *err)
{
	const uint8_t *at = w->bytes;
	size_t left = w->size;
	const struct nlmsghdr *h = NULL;
	struct nl_attrs a;

	while (seq != w->first && (h = nl_take(&at, &left)))
		if (h->nlmsg_seq == seq)
			break;
	if (h && nl_attrs_of(h, sizeof(struct nfgenmsg), &a))
		for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
			if (NFNL_MSG_TYPE(h->nlmsg_type) == subjects[i].type)
				return err_sys(err, code, "cannot install %s '%s'",
					       subjects[i].what,
					       nl_get_text(a.at[subjects[i].name]));
	return err_sys(err, code, "cannot install the filter");
}

/* ---- whole tables ---- */

void nft_name_table(struct nl_writer *w, const void *table)
{
	nl_put_text(w, NFTA_RULE_TABLE, table);
}

static int find_table(void *data, uint16_t type, uint8_t family,
		      const struct nl_attrs *attrs)
{
	const uint32_t wanted = NFT_TABLE_OWNER | NFT_TABLE_PERSIST;
	struct nft_found *f = data;
	uint32_t flags, owner;

	if (type != NFT_MSG_NEWTABLE || family != NFPROTO_INET ||
	    strcmp(nl_get_text(attrs->at[NFTA_TABLE_NAME]), f->table) != 0)
		return 0;
	f->exists = true;
	f->owned = nl_get_u32(attrs->at[NFTA_TABLE_FLAGS], &flags) && flags == wanted &&
		   nl_get_u32(attrs->at[NFTA_TABLE_OWNER], &owner) && owner == f->port_id;
	return 0;
}

int nft_table_find(struct filter_conn *c, const char *table, struct nft_found *ret)
{
	int r = -EAGAIN;

	/* Another program that changes a table of its own cuts the list short. */
	for (int i = 0; i < FIND_TRIES && r == -EAGAIN; i++) {
		*ret = (struct nft_found){ .table = table, .port_id = c->port_id };
		r = nl_ask(c, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
			   find_table, ret);
	}
	return r;
}

bool nft_table_stands(struct filter_conn *c, const char *table)
{
	struct nft_found found;

	return nft_table_find(c, table, &found) < 0 ||
	       (found.exists && (found.owned || !c->owner));
}

static int replace_with(struct filter_conn *c, const struct nft_found *old,
			uint32_t flags, nft_put_fn *put, const void *data,
			struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	uint32_t seq;
	int r;

	nl_batch(&w);
	if (old->exists)
		nft_delete(&w, NFT_MSG_DELTABLE, old->table, NULL);
	nft_table(&w, old->table, NLM_F_CREATE | NLM_F_EXCL, flags);
	r = put(&w, data, err);
	if (r < 0)
		return r;
	nl_batch_end(&w);
	r = nl_transact(c, &w, &seq);
	return r < 0 ? nft_report(&w, seq, r, err) : 0;
}

int nft_table_replace(struct filter_conn *c, const struct nft_found *old, nft_put_fn *put,
		      const void *data, struct err *err)
{
	int r = replace_with(c, old, NFT_TABLE_OWNER | NFT_TABLE_PERSIST, put, data, err);

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

int nft_table_remove(struct filter_conn *c, const char *table)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	nl_batch(&w);
	nft_delete(&w, NFT_MSG_DELTABLE, table, NULL);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

/* ---- sets that are loaded ahead ---- */

int nft_stage(struct filter_conn *c, const char *table, struct filter_staging *progress)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	struct filter_staging at = *progress;
	size_t left = STAGE_RANGES;
	int r;

	nl_batch(&w);
	while (at.next != at.end && left > 0) {
		size_t until = MIN(at.next->range_count, at.range + left);

		if (at.range == 0)
			nft_set(&w, table, at.next);
		nft_elements(&w, table, at.next, at.range, until);
		left -= MAX(until - at.range, (size_t)1);
		at.range = until;
		if (until == at.next->range_count) {
			at.next = at.next->next;
			at.range = 0;
		}
	}
	nl_batch_end(&w);
	r = nl_transact(c, &w, NULL);
	if (r == 0)
		*progress = at;
	return r;
}

void nft_unstage(struct filter_conn *c, const char *table, const struct filter_set *first,
		 const struct filter_staging *progress)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	nl_batch(&w);
	for (const struct filter_set *s = first; s; s = s->next) {
		if (s == progress->next && progress->range == 0)
			break;
		nft_delete(&w, NFT_MSG_DELSET, table, s->name);
		if (s == progress->next)
			break;
	}
	nl_batch_end(&w);
	(void)!nl_transact(c, &w, NULL); /* or it goes with the next table */
}

/* ---- as text ---- */

struct text_writer {
	FILE *out;
	bool failed; /* there is no text for it */
};

static void put_chain(struct text_writer *w, const struct filter_chain *c)
{
	static const char *const hooks[] = { [NF_INET_LOCAL_IN] = "input",
					     [NF_INET_FORWARD] = "forward",
					     [NF_INET_LOCAL_OUT] = "output",
					     [NF_INET_POST_ROUTING] = "postrouting" };

	fprintf(w->out, "\n\tchain %s {\n", c->name);
	if (c->generation > 0)
		fprintf(w->out, "\t\tcomment \"generation %u\"\n", c->generation);
	if (c->type != FILTER_CHAIN_PLAIN) {
		const char *hook = c->hook < ARRAY_SIZE(hooks) ? hooks[c->hook] : NULL;

		w->failed |= !hook;
		fprintf(w->out, "\t\ttype %s hook %s priority %d; policy %s;\n",
			c->type == FILTER_CHAIN_NAT ? "nat" : "filter",
			hook ? hook : "none", c->priority, c->accept ? "accept" : "drop");
	}
	for (const struct filter_rule *r = c->rules; r; r = r->next)
		w->failed |= !nft_rule_print(w->out, r);
	fputs("\t}\n", w->out);
}

static void put_key(struct text_writer *w, enum filter_key key, const uint8_t *bytes)
{
	char text[INET6_ADDRSTRLEN];

	if (key == FILTER_KEY_PORT)
		fprintf(w->out, "%u", bytes[0] << 8 | bytes[1]);
	else if (key == FILTER_KEY_ADDR4 || key == FILTER_KEY_ADDR6)
		fputs(inet_ntop(key == FILTER_KEY_ADDR4 ? AF_INET : AF_INET6, bytes, text,
				sizeof(text)),
		      w->out);
	else
		w->failed = true;
}

static void put_set(struct text_writer *w, const struct filter_set *s)
{
	const char *flags = NULL;

	fprintf(w->out, "\n\tset %s {\n\t\ttype ", s->name);
	w->failed |= !nft_key_type_print(w->out, s->key) || s->value;
	fputc('\n', w->out);
	if (s->size > 0)
		fprintf(w->out, "\t\tsize %" PRIu32 "\n", s->size);
	if (s->timeout)
		flags = s->dynamic ? "dynamic,timeout" : "timeout";
	else if (!s->changes)
		flags = "constant,interval";
	if (flags)
		fprintf(w->out, "\t\tflags %s\n", flags);
	for (size_t i = 0; i < s->range_count; i++) {
		const struct filter_range *r = &s->ranges[i];

		fputs(i == 0 ? "\t\telements = { " : ",\n\t\t\t     ", w->out);
		put_key(w, s->key, r->from);
		if (memcmp(r->from, r->to, filter_key_size(s->key)) == 0)
			continue;
		fputc('-', w->out);
		put_key(w, s->key, r->to);
	}
	fputs(s->range_count > 0 ? " }\n\t}\n" : "\t}\n", w->out);
}

int filter_text(const struct ruleset *rs, const char *table, FILE *out)
{
	struct text_writer w = { .out = out };

	fprintf(out, "table inet %s\ndelete table inet %s\n\ntable inet %s {", table,
		table, table);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(&w, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain(&w, c);
	fputs("}\n", out);
	if (w.failed)
		return -EOPNOTSUPP;
	return ferror(out) ? -EIO : 0;
}
