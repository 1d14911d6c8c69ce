// SPDX-License-Identifier: Apache-2.0
#include "filter/counts.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/elements.h"

enum { KEY_WORD = 4 }; /* each part of a key begins in a register */

/* One set being read. */
struct counted {
	enum addr_family family;
	filter_counts_fn *fn;
	void *data;
};

/* As read_key() reads it, of the host's table. */
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
static bool read_key(const struct element *e, enum addr_family family,
		     struct filter_count *ret)
{
	const uint8_t *at = e->key;
	size_t size;

	ret->addr = (struct addr){ .family = family };
	size = addr_size(&ret->addr);
	if (e->size == size + 3 * KEY_WORD) {
		memcpy(&ret->member, at, sizeof(ret->member));
		ret->member >>= FILTER_MEMBER_SHIFT;
		at += KEY_WORD;
	} else if (e->size != size + 2 * KEY_WORD) {
		return false;
	}
	memcpy(ret->addr.bytes, at, size);
	ret->protocol = at[size];
	ret->port = (uint16_t)(at[size + KEY_WORD] << 8 | at[size + KEY_WORD + 1]);
	return true;
}

static int on_count(void *data, const struct element *e)
{
	const struct counted *s = data;
	struct filter_count c = { .packets = e->packets, .bytes = e->bytes };

	if (e->counts && read_key(e, s->family, &c))
		s->fn(s->data, &c);
	return 0;
}

/* All elements go. */
static int clear(struct filter_conn *c, const char *set)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);

	nl_batch(&w);
	elements_clear(&w, filter_table(c->naming), set);
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

static int read_counts(struct filter_conn *c, struct elements_query *q)
{
	int r = -EINVAL;

	q->reset = !c->counts_stay;
	if (q->reset)
		r = elements_read(c, q);
	if (r != -EINVAL && r != -EOPNOTSUPP)
		return r;
	c->counts_stay = true;
	q->reset = false;
	r = elements_read(c, q);
	return r < 0 ? r : clear(c, q->set);
}

int filter_counts_read(struct filter_conn *c, bool refused, filter_counts_fn *fn,
		       void *data)
{
	for (int i = 0; i < 2; i++) {
		struct counted s = { i == 0 ? ADDR_V4 : ADDR_V6, fn, data };
		char name[FILTER_NAME_MAX];
		struct elements_query q = { .table = filter_table(c->naming),
					    .set = name,
					    .fn = on_count,
					    .data = &s };
		int r;

		filter_set_name(c->naming, refused ? FILTER_ROLE_SEEN : FILTER_ROLE_USED,
				s.family, 0, name);
		r = read_counts(c, &q);
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

/* ---- all that was refused ---- */

struct total {
	bool found;
	uint64_t packets;
};

/* The first counter of the first rule. */
static int on_refuse_rule(void *data, uint16_t type, uint8_t family,
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
			t->found = elements_read_counter(a, &t->packets, &bytes);
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
		       on_refuse_rule, &t);

	if (r < 0)
		return r;
	if (!t.found)
		return -ENOENT;
	*ret = t.packets;
	return 0;
}
