// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The whole ruleset is one batch, with what its changing sets start with. A table that
 * stands already is removed and made anew in the same batch, so that there is no moment
 * without it; one whose owner is gone belongs to nobody, and can be removed as well.
 *
 * Thousands of ranges make such a batch long, and nobody else can change the namespace's
 * tables meanwhile, nor can we. So large sets can be staged: loaded beside what stands,
 * under other names, in batches of their own. The last one then deletes everything but
 * them, and makes the rest anew. That is why the generation stands in the comment of a
 * chain, which is made anew each time; a table's can't be changed. The learned and the
 * draining sets may stay as well, and only what changes in them is sent. Base
 * chains with their drop policy come before the rules only for the reader: nothing of a
 * batch is in force before all of it. */
#include "filter/filter.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/nft.h"
#include "filter/sets.h"

enum {
	SEND_BUFFER = 64 << 20, /* a limit, not an allocation: the largest batch */
	/* Learned and draining ones of two families, and large ones; more are made anew.
	 */
	STAYING_MAX = 6 * PLAN_PORT_LISTS_MAX + 8,
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

/* Deletions, written while chains and sets of the standing table are listed. */
struct clearing {
	const struct ruleset *rs;
	const struct filter_state *state;
	struct nl_writer *w;
	struct staying staying;
};

static int delete_chain(void *data, uint16_t type, uint8_t family,
			const struct nl_attrs *attrs)
{
	const struct clearing *k = data;
	const char *table = filter_table(k->rs->naming);

	if (strcmp(nl_get_text(attrs->at[NFTA_CHAIN_TABLE]), table) == 0)
		nft_chain_delete(k->w, table, nl_get_text(attrs->at[NFTA_CHAIN_NAME]));
	return 0;
}

static bool may_stay(const struct filter_state *state, const struct filter_set *s)
{
	bool learned = s->timeout && !s->dynamic;
	bool draining = s->changes && s->key != FILTER_KEY_LOCAL_PORT;

	return (state->staged && s->large) ||
	       (state->difference && (learned || draining));
}

static int delete_set(void *data, uint16_t type, uint8_t family,
		      const struct nl_attrs *attrs)
{
	struct clearing *k = data;
	const char *name = nl_get_text(attrs->at[NFTA_SET_NAME]);

	for (const struct filter_set *s = k->rs->sets; s; s = s->next)
		if (may_stay(k->state, s) && strcmp(s->name, name) == 0 &&
		    k->staying.count < STAYING_MAX) {
			k->staying.sets[k->staying.count++] = s;
			return 0;
		}
	nft_set_delete(k->w, filter_table(k->rs->naming), name);
	return 0;
}

/* The table stays, with some sets; all else is deleted and made anew. */
static int switch_standing(struct filter_conn *c, const struct ruleset *rs,
			   const struct filter_state *state, const struct nft_found *old,
			   struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = { 0 };
	struct clearing k = { .rs = rs, .state = state, .w = &w };
	uint32_t seq;
	int r;

	if (!old->exists)
		return err_set(err, -ENOENT, "cannot switch the filter: none stands");
	w = nl_writer(NULL, 0, c->seq + 2); /* the two requests come first */
	nl_batch(&w);
	nft_rules_delete(&w, filter_table(rs->naming));
	r = nl_ask(c, NFT_MSG_GETCHAIN, NLM_F_DUMP, NFPROTO_INET, NULL, NULL,
		   delete_chain, &k);
	if (r == 0)
		r = nl_ask(c, NFT_MSG_GETSET, NLM_F_DUMP, NFPROTO_INET, nft_name_table,
			   filter_table(rs->naming), delete_set, &k);
	if (r < 0)
		return err_sys(err, r, "cannot list what the filter has");
	write_objects(&w, rs, state, &k.staying);
	nl_batch_end(&w);
	r = nl_transact(c, &w, &seq);
	if (r < 0)
		return nft_report(&w, seq, r, err);
	c->naming = rs->naming;
	c->unsure = c->unsure && state->difference;
	return 0;
}

bool ruleset_is_large(const struct ruleset *rs)
{
	return rs->sets && rs->sets->large;
}

int filter_stage(struct filter_conn *c, const struct ruleset *rs,
		 struct filter_staging *progress)
{
	int r;

	if (!progress->begun) {
		*progress = (struct filter_staging){ .next = rs->sets,
						     .end = rs->sets,
						     .begun = true };
		while (progress->end && progress->end->large)
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

static bool items_are_valid(const struct filter_learn *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!set_item_is_valid(&items[i]))
			return false;
	return true;
}

static bool state_is_valid(const struct filter_state *s)
{
	const struct filter_difference *d = s->difference;

	if (!items_are_valid(s->learned, s->learned_count) ||
	    !items_are_valid(s->draining, s->draining_count))
		return false;
	if (d && (!items_are_valid(d->learned, d->learned_count) ||
		  !items_are_valid(d->draining, d->draining_count)))
		return false;
	for (size_t i = 0; i < s->self_port_count; i++)
		if (!set_self_port_is_valid(&s->self_ports[i]))
			return false;
	return true;
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
	if (anew.staged || anew.difference)
		return switch_standing(c, rs, &anew, &old, err);
	r = nft_table_replace(c, &old, put_wanted, &(struct wanted){ rs, &anew }, err);
	if (r == 0) {
		c->naming = rs->naming;
		c->unsure = false;
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
	nft_table_own(&w, filter_table(c->naming));
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
