// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The kernel lets packets meet the rules of a batch a moment before the ranges of its
 * sets (seen on Linux 6.18, some 50 microseconds): to a packet in between a set is empty
 * that denies. So the sets with ranges are loaded first, in batches of their own, beside
 * what stands and under other names. The last batch deletes everything but them, and
 * makes the rest anew, with what its changing sets start with; so there is no moment
 * without a ruleset. That is why the generation stands in the comment of a chain, which
 * is made anew each time; a table's can't be changed. The learned and the draining sets
 * may stay as well, and only what changes in them is sent. Base chains with their drop
 * policy come before the rules only for the reader: nothing of a batch is in force before
 * all of it.
 *
 * Where nothing leaves but by the relay, which judges for itself, and where the table
 * that stands can't be built on, all of it is one batch: the table is removed and made
 * anew. */
#include "filter/filter.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/nft.h"

enum {
	SEND_BUFFER = 64 << 20, /* a limit, not an allocation: the largest batch */
	/* Of each list and two families those that are learned, that drain and that are
	 * allowed, and the ports of two protocols; then those that no list has. */
	STAYING_MAX = 8 * PLAN_PORT_LISTS_MAX + 16,
};

int filter_conn_init(struct filter_conn *c, int fd, struct err *err)
{
	int one = 1, send_buffer = SEND_BUFFER;
	uint32_t port_id;
	int r = nl_port_id(fd, "netlink", &port_id, err);

	if (r < 0)
		return r;
	/* Errors come without a copy of the message that caused them. */
	if (setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one)) < 0)
		return err_sys(err, -errno, "cannot configure the netlink socket");
	/* Needs CAP_NET_ADMIN over the machine. Without it there is what anybody may
	 * have (net.core.wmem_max, twice): a larger ruleset fails with its reason. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer,
		       sizeof(send_buffer)) < 0 &&
	    (errno != EPERM || setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer,
					  sizeof(send_buffer)) < 0))
		return err_sys(err, -errno, "cannot configure the netlink socket");
	nl_drain(fd);
	*c = (struct filter_conn){ .fd = fd, .port_id = port_id, .seq = 1 };
	return 0;
}

void filter_conn_done(struct filter_conn *c)
{
	fd_close(&c->fd);
}

/* ---- installing ---- */

/* What the chain that says a generation says. */
struct asked {
	const char *table;
	struct filter_said said;
};

static int on_said_by_chain(void *data, uint16_t type, uint8_t family,
			    const struct nl_attrs *attrs)
{
	struct asked *a = data;
	struct filter_said said = nft_said(attrs->at[NFTA_CHAIN_USERDATA]);

	if (said.generation > 0 &&
	    strcmp(nl_get_text(attrs->at[NFTA_CHAIN_TABLE]), a->table) == 0)
		a->said = said;
	return 0;
}

/* Sets of a standing table that stay. */
struct staying {
	const struct filter_set *sets[STAYING_MAX];
	size_t count;
};

static bool stays(const struct staying *k, const struct filter_set *s)
{
	for (size_t i = 0; i < k->count; i++)
		if (k->sets[i] == s)
			return true;
	return false;
}

static void write_changes(struct nl_writer *w, const struct ruleset *rs,
			  enum filter_role role, const struct filter_learn *items,
			  size_t count, const struct staying *k)
{
	const struct set_owner o = { .naming = rs->naming };
	const uint32_t present = set_indexes(items, count);
	char name[FILTER_NAME_MAX];

	for (size_t i = 0; present >> i; i++) {
		const struct filter_set *s = rs->sets;

		if (!(present >> i & 1))
			continue;
		filter_set_name(rs->naming, role, i % 2 ? ADDR_V6 : ADDR_V4, i / 2, name);
		while (s && strcmp(s->name, name) != 0)
			s = s->next;
		/* What was in a set that isn't there any more went with it. */
		if (s)
			set_put_changes(w, &o, role, i, items, count, !stays(k, s));
	}
}

/* What is to be there afterwards, but for the sets that are there already. */
static void write_objects(struct nl_writer *w, const struct ruleset *rs,
			  const struct filter_state *state, const struct staying *k)
{
	const char *table = filter_table(rs->naming);
	const struct filter_difference *d = state->difference;
	const struct set_owner o = { .naming = rs->naming };

	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		if (stays(k, s))
			continue;
		nft_set(w, table, s);
		nft_elements(w, table, s, 0, s->range_count);
	}
	if (d) {
		write_changes(w, rs, FILTER_ROLE_LEARNED, d->learned, d->learned_count,
			      k);
		write_changes(w, rs, FILTER_ROLE_DRAINING, d->draining, d->draining_count,
			      k);
	} else {
		set_put_items(w, &o, FILTER_ROLE_LEARNED, state->learned,
			      state->learned_count);
		set_put_items(w, &o, FILTER_ROLE_DRAINING, state->draining,
			      state->draining_count);
	}
	set_put_self_ports(w, rs->naming, true, state->self_ports,
			   state->self_port_count);
	nft_chains(w, table, rs);
}

/* What nft_table_replace() is to install. */
struct wanted {
	const struct ruleset *rs;
	const struct filter_state *state;
};

static int put_wanted(struct nl_writer *w, const void *data, struct err *err)
{
	const struct wanted *k = data;
	const struct staying none = { .count = 0 };

	write_objects(w, k->rs, k->state, &none);
	return 0;
}

/* ---- switching to what was staged ---- */

/* Deletions, written while sets and chains of the standing table are listed. */
struct clearing {
	const struct nft_switch *how;
	struct nl_writer *w;
};

static int delete_set(void *data, uint16_t type, uint8_t family,
		      const struct nl_attrs *attrs)
{
	struct clearing *k = data;
	const char *name = nl_get_text(attrs->at[NFTA_SET_NAME]);

	if (!k->how->stays(k->how->data, name))
		nft_delete(k->w, NFT_MSG_DELSET, k->how->table, name);
	return 0;
}

static int delete_chain(void *data, uint16_t type, uint8_t family,
			const struct nl_attrs *attrs)
{
	struct clearing *k = data;

	if (strcmp(nl_get_text(attrs->at[NFTA_CHAIN_TABLE]), k->how->table) == 0)
		nft_delete(k->w, NFT_MSG_DELCHAIN, k->how->table,
			   nl_get_text(attrs->at[NFTA_CHAIN_NAME]));
	return 0;
}

int nft_table_switch(struct filter_conn *c, const struct nft_switch *how, struct err *err)
{
	/* The two requests come first. */
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq + 2);
	struct clearing k = { how, &w };
	uint32_t seq;
	int r;

	nl_batch(&w);
	nft_delete(&w, NFT_MSG_DELRULE, how->table, NULL);
	/* Maps lead to chains. */
	r = nl_ask(c, NFT_MSG_GETSET, NLM_F_DUMP, NFPROTO_INET, nft_name_table,
		   how->table, delete_set, &k);
	if (r == 0)
		r = nl_ask(c, NFT_MSG_GETCHAIN, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
			   delete_chain, &k);
	if (r < 0)
		return err_sys(err, r, "cannot list what the filter has");
	r = how->put(&w, how->data, err);
	if (r < 0)
		return r;
	nl_batch_end(&w);
	r = nl_transact(c, &w, &seq);
	return r < 0 ? nft_report(&w, seq, r, err) : 0;
}

/* A ruleset in the place of another one, with the sets that stay. */
struct switching {
	const struct ruleset *rs;
	const struct filter_state *state;
	struct staying staying;
};

static bool set_stays(void *data, const char *name)
{
	struct switching *k = data;
	const struct filter_state *state = k->state;

	for (const struct filter_set *s = k->rs->sets; s; s = s->next) {
		const bool learned = s->timeout && !s->dynamic;
		const bool draining = s->changes && s->key != FILTER_KEY_LOCAL_PORT;
		const bool may_stay = (state->staged && s->ahead) ||
				      (state->difference && (learned || draining));

		if (may_stay && strcmp(s->name, name) == 0 &&
		    k->staying.count < STAYING_MAX) {
			k->staying.sets[k->staying.count++] = s;
			return true;
		}
	}
	return false;
}

static int put_rest(struct nl_writer *w, const void *data, struct err *err)
{
	const struct switching *k = data;

	write_objects(w, k->rs, k->state, &k->staying);
	return 0;
}

/* The table stays, with some sets; all else is deleted and made anew. */
static int switch_standing(struct filter_conn *c, const struct ruleset *rs,
			   const struct filter_state *state, const struct nft_found *old,
			   struct err *err)
{
	struct switching k = { .rs = rs, .state = state };
	const struct nft_switch how = { filter_table(rs->naming), set_stays, put_rest,
					&k };
	int r;

	if (!old->exists)
		return err_set(err, -ENOENT, "cannot switch the filter: none stands");
	r = nft_table_switch(c, &how, err);
	if (r < 0)
		return r;
	c->naming = rs->naming;
	c->unsure = c->unsure && state->difference;
	return 0;
}

bool ruleset_has_ahead(const struct ruleset *rs)
{
	return rs->sets && rs->sets->ahead;
}

int filter_stage(struct filter_conn *c, const struct ruleset *rs,
		 struct filter_staging *progress)
{
	int r;

	if (!progress->begun) {
		*progress = (struct filter_staging){ .next = rs->sets,
						     .end = rs->sets,
						     .begun = true };
		while (progress->end && progress->end->ahead)
			progress->end = progress->end->next;
	}
	if (progress->next == progress->end)
		return 0;
	r = nft_stage(c, filter_table(rs->naming), progress);
	return r < 0 ? r : progress->next != progress->end;
}

void filter_unstage(struct filter_conn *c, const struct ruleset *rs,
		    const struct filter_staging *progress)
{
	if (progress->begun && (progress->next != rs->sets || progress->range > 0))
		nft_unstage(c, filter_table(rs->naming), rs->sets, progress);
}

static bool state_is_valid(const struct filter_state *s)
{
	const struct filter_difference *d = s->difference;

	if (!set_items_are_valid(s->learned, s->learned_count) ||
	    !set_items_are_valid(s->draining, s->draining_count))
		return false;
	if (d && (!set_items_are_valid(d->learned, d->learned_count) ||
		  !set_items_are_valid(d->draining, d->draining_count)))
		return false;
	for (size_t i = 0; i < s->self_port_count; i++)
		if (!set_self_port_is_valid(&s->self_ports[i]))
			return false;
	return true;
}

static int put_ahead(struct nl_writer *w, const void *data, struct err *err)
{
	const struct ruleset *rs = data;

	for (const struct filter_set *s = rs->sets; s && s->ahead; s = s->next) {
		nft_set(w, filter_table(rs->naming), s);
		nft_elements(w, filter_table(rs->naming), s, 0, s->range_count);
	}
	return 0;
}

/* Load the sets with ranges of @rs, into a table of their own where none stands. On
 * failure what stands is as it was. */
static int stage_all(struct filter_conn *c, const struct ruleset *rs,
		     struct nft_found *table)
{
	struct filter_staging progress = { 0 };
	struct err ignored = { 0 };
	int r;

	if (!table->exists) {
		r = nft_table_replace(c, table, put_ahead, rs, &ignored);
		table->exists = r == 0;
		return r;
	}
	r = table->owned ? 0 : filter_take_over(c);
	if (r == -EOPNOTSUPP)
		r = 0;
	while (r == 0 && (r = filter_stage(c, rs, &progress)) > 0)
		r = 0;
	if (r < 0)
		filter_unstage(c, rs, &progress);
	return r;
}

int filter_replace(struct filter_conn *c, const struct ruleset *rs,
		   const struct filter_state *state, struct err *err)
{
	struct filter_state anew = *state;
	struct nft_found old;
	int r;

	if (!state_is_valid(state))
		return err_set(err, -EINVAL,
			       "cannot install the filter: what it is to "
			       "start with is no address or no port");
	r = nft_table_find(c, filter_table(rs->naming), &old);
	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the namespace");
	if (c->unsure)
		anew.difference = NULL;
	/* A difference is to what the table has that stands. */
	if (!anew.staged && ruleset_has_ahead(rs) && (old.exists || !anew.difference))
		anew.staged = stage_all(c, rs, &old) == 0;
	if (anew.staged || anew.difference) {
		r = switch_standing(c, rs, &anew, &old, err);
		/* Whoever stages, or knows a difference, has another way. */
		if (r == 0 || state->staged || state->difference)
			return r;
		*err = (struct err){ 0 };
		anew.staged = false;
		r = nft_table_find(c, filter_table(rs->naming), &old);
		if (r < 0)
			return err_sys(err, r, "cannot list the tables of the namespace");
	}
	r = nft_table_replace(c, &old, put_wanted, &(struct wanted){ rs, &anew }, err);
	if (r == 0) {
		c->naming = rs->naming;
		c->unsure = false;
		c->uncounted = 0;
	}
	return r;
}

int filter_install(struct filter_conn *c, const struct ruleset *rs, struct err *err)
{
	return filter_replace(c, rs, &(struct filter_state){ 0 }, err);
}

int filter_standing(struct filter_conn *c, struct filter_said *ret)
{
	struct asked asked = { .table = filter_table(c->naming) };
	struct nft_found s;
	int r = nft_table_find(c, asked.table, &s);

	if (r == 0 && s.exists)
		r = nl_ask(c, NFT_MSG_GETCHAIN, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
			   on_said_by_chain, &asked);
	if (r < 0)
		return r;
	c->owner = s.owned;
	*ret = asked.said;
	return 0;
}

int filter_take_over(struct filter_conn *c)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	int r;

	nl_batch(&w);
	nft_table(&w, filter_table(c->naming), 0, NFT_TABLE_OWNER | NFT_TABLE_PERSIST);
	nl_batch_end(&w);
	r = nl_transact(c, &w, NULL);
	if (r == 0)
		c->owner = true;
	return r == -EINVAL ? -EOPNOTSUPP : r;
}

int filter_remove(struct filter_conn *c, struct err *err)
{
	struct nft_found s;
	int r = nft_table_find(c, filter_table(c->naming), &s);

	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the namespace");
	if (!s.exists)
		return 0;
	r = nft_table_remove(c, s.table);
	if (r < 0)
		return err_sys(err, r, "cannot remove the filter");
	c->owner = false;
	return 0;
}

static int on_generation(void *data, uint16_t type, uint8_t family,
			 const struct nl_attrs *attrs)
{
	return nl_get_u32(attrs->at[NFTA_GEN_ID], data) ? 0 : -EBADMSG;
}

int filter_generation_id(struct filter_conn *c, uint32_t *ret)
{
	uint32_t id = 0;
	int r = nl_ask(c, NFT_MSG_GETGEN, NLM_F_ACK, AF_UNSPEC, NULL, NULL, on_generation,
		       &id);

	if (r < 0)
		return r;
	*ret = id;
	return 0;
}

/* ---- reading back ---- */

/* HOW IT WORKS
 *
 * The kernel gives objects back in the order in which they were created, so each dump
 * is walked beside our own list; but sets may have outlived a ruleset before this one,
 * and are found by their names. A rule's expressions are encoded once more, and each
 * attribute must be there with the same bytes and no other beside it; only the values
 * of counters may differ. Sets that change while the filter stands are compared without
 * their elements.
 *
 * A fresh namespace has one table. Another one could set the marks that ours trusts,
 * so it is a difference as well. In a shared namespace there may be others: Docker's. */

/* One dump, walked beside our list. */
struct walk {
	const struct filter_conn *conn;
	const struct ruleset *rs;
	const char *table;
	const struct filter_set *set;	  /* whose elements are read */
	bool *seen;			  /* by their places in our list; owned */
	size_t sets_left;		  /* not seen yet */
	const struct filter_set *next;	  /* behind the set that came last */
	size_t next_at;			  /* its place */
	const struct filter_chain *chain; /* the next one, or the one whose rules come */
	const struct filter_rule *rule;	  /* the next one */
	size_t index;			  /* of that rule in its chain, from 1 */
	struct nl_writer again;		  /* that rule, encoded once more; owned */
	bool found;			  /* the table */
	struct interval_end *elements;	  /* of one set; malloc'ed, owned */
	size_t count, capacity;
	struct err *err;
};

static int differs(struct walk *k, const char *fmt, ...) PRINTF_LIKE(2, 3);

static int differs(struct walk *k, const char *fmt, ...)
{
	char what[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(what, sizeof(what), fmt, args);
	va_end(args);
	return err_set(k->err, -EBADMSG, "the filter in the kernel is not ours: %s",
		       what);
}

static bool text_is(const struct nlattr *a, const char *text)
{
	return a && strcmp(nl_get_text(a), text) == 0;
}

static bool u32_is(const struct nlattr *a, uint32_t value)
{
	uint32_t got;

	return nl_get_u32(a, &got) && got == value;
}

/* An attribute that the kernel leaves out when it is zero. */
static bool optional_u32_is(const struct nlattr *a, uint32_t value)
{
	return a ? u32_is(a, value) : value == 0;
}

/* ---- the table ---- */

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	const uint32_t owned = NFT_TABLE_OWNER | NFT_TABLE_PERSIST;
	struct walk *k = data;
	const char *name = nl_get_text(attrs->at[NFTA_TABLE_NAME]);

	if (type != NFT_MSG_NEWTABLE || family != NFPROTO_INET ||
	    strcmp(name, k->table) != 0)
		return k->rs->naming == FILTER_NAMES_OWNED
			       ? differs(k, "there is another table")
			       : 0;
	if (!optional_u32_is(attrs->at[NFTA_TABLE_FLAGS], k->conn->owner ? owned : 0))
		return differs(k, "the table's flags");
	if (k->conn->owner && !u32_is(attrs->at[NFTA_TABLE_OWNER], k->conn->port_id))
		return differs(k, "the table's owner");
	k->found = true;
	return 0;
}

/* ---- chains ---- */

static bool chain_is(const struct nl_attrs *a, const struct filter_chain *c)
{
	struct nl_attrs hook;

	if (c->type == FILTER_CHAIN_PLAIN)
		return !a->at[NFTA_CHAIN_HOOK] &&
		       optional_u32_is(a->at[NFTA_CHAIN_FLAGS], 0);
	return optional_u32_is(a->at[NFTA_CHAIN_FLAGS], NFT_CHAIN_BASE) &&
	       nl_attrs_nested(a->at[NFTA_CHAIN_HOOK], &hook) &&
	       u32_is(hook.at[NFTA_HOOK_HOOKNUM], c->hook) &&
	       u32_is(hook.at[NFTA_HOOK_PRIORITY], (uint32_t)c->priority) &&
	       u32_is(a->at[NFTA_CHAIN_POLICY], c->accept ? NF_ACCEPT : NF_DROP) &&
	       text_is(a->at[NFTA_CHAIN_TYPE],
		       c->type == FILTER_CHAIN_NAT ? "nat" : "filter");
}

static int on_chain(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	struct walk *k = data;
	const struct filter_chain *c = k->chain;

	if (!text_is(attrs->at[NFTA_CHAIN_TABLE], k->table))
		return 0; /* of another table */
	if (!c)
		return differs(k, "there is another chain");
	if (!text_is(attrs->at[NFTA_CHAIN_NAME], c->name))
		return differs(k, "chain '%s' is not in its place", c->name);
	/* What it says beside that is the rules' own, which are compared. */
	if (nft_said(attrs->at[NFTA_CHAIN_USERDATA]).generation != c->generation)
		return differs(k, "the generation of chain '%s'", c->name);
	if (type != NFT_MSG_NEWCHAIN || !chain_is(attrs, c))
		return differs(k, "hook or policy of chain '%s'", c->name);
	k->chain = c->next;
	return 0;
}

/* ---- sets ---- */

static int on_set(void *data, uint16_t type, uint8_t family, const struct nl_attrs *attrs)
{
	struct walk *k = data;
	const struct nlattr *name = attrs->at[NFTA_SET_NAME];
	const struct filter_set *s = k->next;
	size_t i = k->next_at;
	struct nl_attrs desc;
	uint32_t size = 0;

	/* Mostly it is the next one. */
	if (!s || !text_is(name, s->name)) {
		i = 0;
		for (s = k->rs->sets; s && !text_is(name, s->name); s = s->next)
			i++;
	}
	if (k->sets_left == 0)
		return differs(k, "there is another set");
	if (!s || k->seen[i] || !text_is(attrs->at[NFTA_SET_TABLE], k->table))
		return differs(k, "set '%s' is not in its place", nl_get_text(name));
	if (nl_attrs_nested(attrs->at[NFTA_SET_DESC], &desc))
		(void)nl_get_u32(desc.at[NFTA_SET_DESC_SIZE], &size);
	if (type != NFT_MSG_NEWSET ||
	    !optional_u32_is(attrs->at[NFTA_SET_FLAGS], nft_set_flags(s)) ||
	    !u32_is(attrs->at[NFTA_SET_KEY_TYPE], nft_key_type(s->key)) ||
	    !u32_is(attrs->at[NFTA_SET_KEY_LEN], (uint32_t)filter_key_size(s->key)) ||
	    !optional_u32_is(attrs->at[NFTA_SET_DATA_TYPE], nft_value_type(s->value)) ||
	    size != s->size || attrs->at[NFTA_SET_TIMEOUT])
		return differs(k, "flags or type of set '%s'", s->name);
	k->seen[i] = true;
	k->sets_left--;
	k->next = s->next;
	k->next_at = i + 1;
	return 0;
}

/* ---- elements ---- */

/* One end of an interval. */
struct interval_end {
	uint8_t key[16]; /* the rest zero */
	bool end;	 /* the first key behind it */
};

static int append_element(void *data, const struct element *e)
{
	struct walk *k = data;

	if (e->size != filter_key_size(k->set->key) || e->size > sizeof(k->elements->key))
		return -EBADMSG;
	if (!ARRAY_GROW(k->elements, k->count, k->capacity))
		return -ENOMEM;
	k->elements[k->count] = (struct interval_end){ .end = e->end };
	memcpy(k->elements[k->count++].key, e->key, e->size);
	return 0;
}

static int compare_elements(const void *a, const void *b)
{
	const struct interval_end *x = a, *y = b;
	int order = memcmp(x->key, y->key, sizeof(x->key));

	return order ? order : (int)y->end - (int)x->end;
}

/* The sorted elements are exactly the ends of the ranges. */
static bool elements_are(const struct walk *k, const struct filter_set *s)
{
	size_t size = filter_key_size(s->key), n = 0;

	for (size_t i = 0; i < s->range_count; i++) {
		uint8_t behind[16];

		if (n >= k->count || k->elements[n].end ||
		    memcmp(k->elements[n++].key, s->ranges[i].from, size) != 0)
			return false;
		if (filter_key_next(s->ranges[i].to, size, behind) &&
		    (n >= k->count || !k->elements[n].end ||
		     memcmp(k->elements[n++].key, behind, size) != 0))
			return false;
	}
	return n == k->count;
}

static int verify_elements(struct filter_conn *c, const struct ruleset *rs,
			   const struct filter_set *s, struct err *err)
{
	struct walk k = {
		.conn = c,
		.rs = rs,
		.table = filter_table(rs->naming),
		.set = s,
		.err = err,
	};
	int r = elements_read(c, &(struct elements_query){ .table = k.table,
							   .set = s->name,
							   .fn = append_element,
							   .data = &k });

	if (r == 0) {
		if (k.count > 0)
			qsort(k.elements, k.count, sizeof(*k.elements), compare_elements);
		if (!elements_are(&k, s))
			r = differs(&k, "elements of set '%s'", s->name);
	} else {
		err_sys(err, r, "cannot read set '%s' back", s->name);
	}
	free(k.elements);
	return r;
}

/* ---- rules ---- */

/* Every attribute of one is in the other, with the same bytes. */
static bool attrs_equal(const struct nlattr *sent, const struct nlattr *got)
{
	struct nl_attrs a, b;

	if (!sent || !got)
		return sent == got;
	if (!(sent->nla_type & NLA_F_NESTED))
		return nl_size(sent) == nl_size(got) &&
		       memcmp(nl_data(sent), nl_data(got), nl_size(sent)) == 0;
	if (!nl_attrs_nested(sent, &a) || !nl_attrs_nested(got, &b))
		return false;
	for (size_t i = 0; i < NL_ATTR_MAX; i++)
		if (!attrs_equal(a.at[i], b.at[i]))
			return false;
	return true;
}

/* As many attributes in both, each of which @equal takes for the same. */
static bool lists_equal(const struct nlattr *sent, const struct nlattr *got,
			bool (*equal)(const struct nlattr *sent,
				      const struct nlattr *got))
{
	const uint8_t *at_sent = nl_data(sent), *at_got = nl_data(got);
	size_t left_sent = nl_size(sent), left_got = nl_size(got);

	for (;;) {
		const struct nlattr *a = nl_take_attr(&at_sent, &left_sent);
		const struct nlattr *b = nl_take_attr(&at_got, &left_got);

		if (!a || !b)
			return !a && !b && left_sent == 0 && left_got == 0;
		if (!equal(a, b))
			return false;
	}
}

/* The same attributes in the same order, with the same bytes and nothing beside them:
 * what the kernel gives back nearly always is. It doesn't say which ones are nested. */
static bool bytes_equal(const struct nlattr *sent, const struct nlattr *got)
{
	if (sent->nla_len != got->nla_len || nl_type(sent) != nl_type(got))
		return false;
	return sent->nla_type & NLA_F_NESTED
		       ? lists_equal(sent, got, bytes_equal)
		       : memcmp(nl_data(sent), nl_data(got), nl_size(sent)) == 0;
}

static bool expression_equal(const struct nlattr *sent, const struct nlattr *got)
{
	struct nl_attrs a, b;
	const char *name;

	if (bytes_equal(sent, got))
		return true;
	if (!nl_attrs_nested(sent, &a) || !nl_attrs_nested(got, &b))
		return false;
	name = nl_get_text(a.at[NFTA_EXPR_NAME]);
	if (!text_is(b.at[NFTA_EXPR_NAME], name))
		return false;
	return strcmp(name, "counter") == 0 ||
	       attrs_equal(a.at[NFTA_EXPR_DATA], b.at[NFTA_EXPR_DATA]);
}

/* Move to the next chain that has rules. */
static void skip_empty_chains(struct walk *k)
{
	while (!k->rule && k->chain && k->chain->next) {
		k->chain = k->chain->next;
		k->rule = k->chain->rules;
		k->index = 1;
	}
}

static int on_rule(void *data, uint16_t type, uint8_t family,
		   const struct nl_attrs *attrs)
{
	const struct nlattr *got = attrs->at[NFTA_RULE_EXPRESSIONS];
	struct walk *k = data;
	struct nl_writer *w = &k->again;
	int r;

	skip_empty_chains(k);
	if (!k->rule)
		return differs(k, "there is another rule in chain '%s'",
			       nl_get_text(attrs->at[NFTA_RULE_CHAIN]));
	if (type != NFT_MSG_NEWRULE || !text_is(attrs->at[NFTA_RULE_TABLE], k->table) ||
	    !text_is(attrs->at[NFTA_RULE_CHAIN], k->chain->name))
		return differs(k, "a rule of chain '%s' stands before rule %zu of '%s'",
			       nl_get_text(attrs->at[NFTA_RULE_CHAIN]), k->index,
			       k->chain->name);
	w->size = 0;
	nft_rule_write(w, k->rule);
	r = w->failed;
	if (r == 0 && (!got || !lists_equal((const struct nlattr *)(const void *)w->bytes,
					    got, expression_equal)))
		r = differs(k, "rule %zu of chain '%s'", k->index, k->chain->name);
	k->rule = k->rule->next;
	k->index++;
	return r;
}

static int verify_rules(struct filter_conn *c, const struct ruleset *rs, struct err *err)
{
	struct walk k = {
		.conn = c,
		.rs = rs,
		.table = filter_table(rs->naming),
		.chain = rs->chains,
		.index = 1,
		.again = nl_writer(NULL, 0, 0),
		.err = err,
	};
	int r;

	k.rule = k.chain ? k.chain->rules : NULL;
	r = nl_ask(c, NFT_MSG_GETRULE, NLM_F_DUMP, NFPROTO_INET, nft_name_table, k.table,
		   on_rule, &k);
	nl_writer_done(&k.again);
	if (r < 0)
		return r;
	skip_empty_chains(&k);
	return k.rule ? differs(&k, "rule %zu of chain '%s' is missing", k.index,
				k.chain->name)
		      : 0;
}

/* ---- all of it ---- */

static int verify_objects(struct filter_conn *c, const struct ruleset *rs,
			  struct err *err)
{
	struct walk k = {
		.conn = c,
		.rs = rs,
		.table = filter_table(rs->naming),
		.next = rs->sets,
		.chain = rs->chains,
		.err = err,
	};
	CLEAN(mem) bool *seen = NULL;
	int r;

	for (const struct filter_set *s = rs->sets; s; s = s->next)
		k.sets_left++;
	k.seen = seen = calloc(MAX(k.sets_left, (size_t)1), sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	r = nl_ask(c, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_UNSPEC, NULL, NULL, on_table,
		   &k);
	if (r == 0 && !k.found)
		r = differs(&k, "the table is missing");
	if (r == 0)
		r = nl_ask(c, NFT_MSG_GETCHAIN, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
			   on_chain, &k);
	if (r == 0 && k.chain)
		r = differs(&k, "chain '%s' is missing", k.chain->name);
	if (r == 0)
		r = nl_ask(c, NFT_MSG_GETSET, NLM_F_DUMP, NFPROTO_INET, nft_name_table,
			   k.table, on_set, &k);
	if (r == 0 && k.sets_left > 0) {
		const struct filter_set *s = rs->sets;

		for (size_t i = 0; s->next && k.seen[i]; i++)
			s = s->next;
		r = differs(&k, "set '%s' is missing", s->name);
	}
	return r;
}

int nft_verified(int r, const struct err *why, struct err *err)
{
	if (r < 0 && why->code == 0)
		return err_sys(err, r, "cannot read the filter back");
	return r < 0 ? err_set(err, r, "%s", why->text) : 0;
}

int filter_verify(struct filter_conn *c, const struct ruleset *rs, struct err *err)
{
	struct err why = { 0 };
	int r = verify_objects(c, rs, &why);

	/* No rule asks a set that is to be empty. */
	for (const struct filter_set *s = rs->sets; r == 0 && s; s = s->next)
		if (!s->timeout && !s->changes && !s->value && s->range_count > 0)
			r = verify_elements(c, rs, s, &why);
	if (r == 0)
		r = verify_rules(c, rs, &why);
	return nft_verified(r, &why, err);
}
