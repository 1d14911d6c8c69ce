// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A table that stands is replaced by another one in one transaction, but a packet that is
 * on its way through the old one just then may miss what it looks up there, and who is no
 * member is free. So a second table, behind both, drops what members send meanwhile and
 * neither of the two has accepted: that flow has no mark of theirs. What they accept
 * passes, so that nobody has to send again.
 *
 * One that somebody has taken away is put back the same way: that second table is a tenth
 * of the work, and from then on nothing is open. */
#include "filter/host_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/netlink.h"
#include "filter/set.h"
#include "policy/policy.h"

enum {
	TIDY_MAX = 128, /* elements that filter_host_tidy() takes away at a time */
	NUMBERS_AHEAD = 1 << 15,
	CAPACITY_MIN = 16, /* of host_learned */
};

/* ---- what each member has learned ---- */

static size_t slot_of(const struct hash_key *key, const struct addr *a, uint8_t port_list,
		      bool kept, size_t capacity)
{
	uint8_t bytes[sizeof(a->bytes) + 3] = { a->family, port_list, kept };

	memcpy(bytes + 3, a->bytes, sizeof(a->bytes));
	return (size_t)hash_bytes(key, bytes, sizeof(bytes)) & (capacity - 1);
}

/* Where it is, or the free place where it would be. */
static struct host_learned_entry *entry_of(const struct host_learned *l,
					   const struct hash_key *key,
					   const struct addr *a, uint8_t port_list,
					   bool kept)
{
	size_t i = slot_of(key, a, port_list, kept, l->capacity);

	while (l->at[i].taken &&
	       (l->at[i].port_list != port_list || l->at[i].kept != kept ||
		!addr_equal(&l->at[i].addr, a)))
		i = (i + 1) & (l->capacity - 1);
	return &l->at[i];
}

void host_learned_done(struct host_learned *l)
{
	free(l->at);
	*l = (struct host_learned){ 0 };
}

/* What the kernel has no longer is left behind. */
static int move(struct host_learned *l, const struct hash_key *key, size_t capacity,
		int64_t now_ms)
{
	struct host_learned bigger = {
		.at = calloc(capacity, sizeof(*bigger.at)),
		.capacity = capacity,
	};

	if (!bigger.at)
		return -ENOMEM;
	for (size_t i = 0; i < l->capacity; i++) {
		const struct host_learned_entry *e = &l->at[i];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		*entry_of(&bigger, key, &e->addr, e->port_list, e->kept) = *e;
		bigger.used++;
	}
	free(l->at);
	*l = bigger;
	return 0;
}

static size_t count_live(const struct host_learned *l, int64_t now_ms)
{
	size_t n = 0;

	for (size_t i = 0; i < l->capacity; i++)
		n += l->at[i].taken && l->at[i].until_ms > now_ms;
	return n;
}

/* At most three quarters are taken, and after a move half. */
int host_learned_reserve(struct host_learned *l, const struct hash_key *key, size_t count,
			 int64_t now_ms)
{
	size_t capacity = CAPACITY_MIN, wanted;

	if (l->used + count <= l->capacity / 4 * 3)
		return 0;
	wanted = count_live(l, now_ms) + count;
	while (capacity / 2 < wanted)
		capacity *= 2;
	return move(l, key, capacity, now_ms);
}

/* One that is removed keeps its place until the next move. */
void host_learned_note(struct host_learned *l, const struct hash_key *key,
		       const struct filter_learn *item, bool kept, int64_t now_ms)
{
	struct host_learned_entry *e;

	if (l->capacity == 0)
		return;
	e = entry_of(l, key, &item->addr, item->port_list, kept);
	if (!e->taken) {
		if (!kept && item->lifetime_ms == 0)
			return;
		*e = (struct host_learned_entry){
			.addr = item->addr,
			.port_list = item->port_list,
			.taken = true,
			.kept = kept,
		};
		l->used++;
	}
	if (kept)
		e->until_ms = INT64_MAX;
	else if (item->lifetime_ms == 0)
		e->until_ms = 0;
	else if (item->refresh || e->until_ms <= now_ms)
		e->until_ms = now_ms + item->lifetime_ms;
}

/* ---- owners ---- */

void host_plan_free(struct host_plan *p)
{
	if (!p)
		return;
	free((void *)(uintptr_t)p->plan.bytes);
	free(p);
}

void host_member_free(struct host_member *m)
{
	if (!m)
		return;
	host_learned_done(&m->learned);
	free(m);
}

void host_stale_free(struct host_stale *l)
{
	host_learned_done(&l->learned);
	free(l);
}

/* ---- learning ---- */

int filter_host_learn(struct filter_host *h, uint16_t id,
		      const struct filter_learn *items, size_t count, int64_t now_ms)
{
	struct host_member *m = h->members[id];
	struct set_owner o = { .naming = FILTER_NAMES_HOST };
	int r;

	if (!m)
		return -ENOENT;
	if (!h->loaded)
		return -EAGAIN;
	o.mark = host_mark(m);
	r = host_learned_reserve(&m->learned, &h->key, count, now_ms);
	if (r == 0)
		r = set_learn(&h->conn, &o, items, count);
	for (size_t i = 0; i < count && r == 0; i++)
		host_learned_note(&m->learned, &h->key, &items[i], false, now_ms);
	return r;
}

bool filter_host_tidy(struct filter_host *h, int64_t now_ms)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, h->conn.seq);
	struct host_stale *l = h->stale;
	size_t count = 0;

	if (!l || !h->loaded)
		return false;
	nl_batch(&w);
	for (; l->at < l->learned.capacity && count < TIDY_MAX; l->at++) {
		const struct host_learned_entry *e = &l->learned.at[l->at];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		host_put_stale(&w, l->mark, e);
		count++;
	}
	nl_batch_end(&w);
	if (count > 0)
		(void)!nl_transact(&h->conn, &w, NULL); /* they end by themselves */
	if (l->at == l->learned.capacity) {
		h->stale = l->next;
		host_stale_free(l);
	}
	return h->stale;
}

/* ---- all of it ---- */

/* What the writers of a whole table get. */
struct host_now {
	const struct filter_host *host;
	int64_t now_ms;
};

/* In the order in which things were made. */
static int put_all(struct nl_writer *w, const void *data, struct err *err)
{
	const struct host_now *k = data;
	const struct filter_host *h = k->host;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *base;
	int r = host_build_base(h, &arena, &base);

	if (r < 0)
		return err_sys(err, r, "cannot build the filter");
	host_put_objects(w, HOST_TABLE, base);
	for (const struct host_plan *p = h->plans; p && r == 0; p = p->next)
		r = host_put_plan(w, h, true, p, err);
	if (r < 0)
		return r;
	host_put_members(w, h);
	for (size_t i = 0; i < HOST_IDS && r == 0; i++)
		if (h->members[i])
			r = host_put_learned(w, h->members[i], k->now_ms);
	return r < 0 ? err_sys(err, r, "cannot build the filter") : 0;
}

/* They were made anew: ways first, then plans. */
static void renumber(struct filter_host *h)
{
	uint64_t ways[HOST_WAYS];
	uint64_t made = 0;

	for (size_t i = 0; i < HOST_WAYS; i++) {
		ways[i] = 0;
		for (size_t k = 0; k < HOST_WAYS && h->ways[i].made > 0; k++)
			ways[i] += h->ways[k].made > 0 &&
				   h->ways[k].made <= h->ways[i].made;
		made += h->ways[i].made > 0;
	}
	for (size_t i = 0; i < HOST_WAYS; i++)
		h->ways[i].made = ways[i];
	for (struct host_plan *p = h->plans; p; p = p->next)
		p->made = ++made;
	h->made = made;
}

/* The guard's table: what members send is dropped. */
static int put_closed(struct nl_writer *w, const void *data, struct err *err)
{
	const struct host_now *k = data;
	CLEAN(arena) struct arena arena = { 0 };
	const struct ruleset *rs;
	int r = host_build_guard(k->host, &arena, &rs);

	if (r < 0)
		return err_sys(err, r, "cannot build the filter");
	host_put_objects(w, HOST_GUARD_TABLE, rs);
	host_put_guarded(w, k->host);
	return 0;
}

/* The same, but that what a table of members has accepted passes. */
static int put_guard(struct nl_writer *w, const void *data, struct err *err)
{
	const struct host_now *k = data;
	int r = put_closed(w, data, err);

	if (r == 0)
		host_put_passed(w, k->host);
	return r;
}

static void clear_all_stale(struct filter_host *h)
{
	while (h->stale) {
		struct host_stale *l = h->stale;

		h->stale = l->next;
		host_stale_free(l);
	}
}

static int keep_closed(struct filter_host *h, const struct filter_member *who,
		       struct err *err)
{
	CLEAN(mem) uint8_t *bytes = NULL;
	struct filter_host_sandbox s = { .member = *who };
	const struct policy nothing = { 0 };
	struct plan plan;
	size_t size;
	int r;

	if (host_find_member(h, who))
		return 0; /* he has been set */
	r = policy_compile(&nothing, &bytes, &size, err);
	if (r == 0)
		r = plan_open(bytes, size, &plan, err);
	s.plan = &plan;
	return r < 0 ? r : host_write_down(h, &s, true, err);
}

static int adopt(struct filter_host *h, struct err *err)
{
	struct err why = { 0 };
	int r = host_read_members(h, keep_closed, &why);

	if (r < 0 && why.code == 0)
		return err_sys(err, r, "cannot read what stands on the host");
	return r < 0 ? err_set(err, r, "%s", why.text) : 0;
}

static int find_tables(struct filter_host *h, struct netlink_found *table,
		       struct netlink_found *guard)
{
	int r = netlink_table_find(&h->conn, HOST_TABLE, table);

	return r < 0 ? r : netlink_table_find(&h->conn, HOST_GUARD_TABLE, guard);
}

int filter_host_is_owned(struct filter_host *h)
{
	struct netlink_found table, guard;
	int r = find_tables(h, &table, &guard);

	return r < 0 ? r : h->loaded && table.owned && !guard.exists;
}

size_t filter_host_left_over(const struct filter_host *h)
{
	return h->left_over;
}

int filter_host_load(struct filter_host *h, int64_t now_ms, struct err *err)
{
	const struct host_now now = { h, now_ms };
	struct netlink_found table, guard;
	int r = find_tables(h, &table, &guard);
	bool is_lost = h->loaded && !table.exists && h->count > 0;

	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the host");
	if (table.exists && !h->loaded)
		r = adopt(h, err);
	/* What can't be read is dropped meanwhile. */
	if (table.exists && !h->loaded && r == 0)
		(void)!host_read_live(h);
	/* A table that is lost accepts nothing, and there is no time to lose. */
	if ((table.exists || is_lost) && r == 0)
		r = netlink_table_replace(&h->conn, &guard,
					  is_lost ? put_closed : put_guard, &now, err);
	if (r == 0)
		r = netlink_table_replace(&h->conn, &table, put_all, &now, err);
	/* If it stays, because the table failed, members are shut. */
	if (r == 0 && (table.exists || guard.exists || is_lost)) {
		r = netlink_table_remove(&h->conn, HOST_GUARD_TABLE);
		if (r < 0)
			err_sys(err, r, "cannot open the filter again");
	}
	free(h->live);
	h->live = NULL;
	h->live_count = 0;
	if (r < 0)
		return r;
	h->loaded = true;
	h->loads++;
	renumber(h);
	clear_all_stale(h);
	return 0;
}

/* ---- the whole ---- */

int filter_host_new(int fd, const struct filter_host_params *params,
		    struct filter_host **ret, struct err *err)
{
	struct filter_host *h;
	int r;

	if (params->dns_port == 0 || params->dns_port == FILTER_DNS_PORT)
		return err_set(err, -EINVAL, "cannot guard the host: no port for DNS");
	h = calloc(1, sizeof(*h));
	if (!h)
		return err_sys(err, -ENOMEM, "cannot guard the host");
	r = getrandom(&h->key, sizeof(h->key), 0) == sizeof(h->key)
		    ? filter_conn_init(&h->conn, fd, err)
		    : err_sys(err, -errno, "cannot guard the host");
	if (r < 0) {
		free(h);
		return r;
	}
	h->conn.naming = FILTER_NAMES_HOST;
	h->params = *params;
	h->plans_end = &h->plans;
	r = host_read_plan_number(h, &h->plan_number);
	if (r < 0) {
		filter_host_free(h);
		return err_sys(err, r, "cannot read what stands on the host");
	}
	/* Plans that are gone by now, with their table or without it, may have had higher
	 * ones, and flows still have them. */
	h->plan_number += (uint16_t)(h->key.k0 % NUMBERS_AHEAD);
	*ret = h;
	return 0;
}

void filter_host_free(struct filter_host *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < HOST_IDS; i++)
		host_member_free(h->members[i]);
	while (h->plans) {
		struct host_plan *p = h->plans;

		h->plans = p->next;
		host_plan_free(p);
	}
	clear_all_stale(h);
	filter_conn_done(&h->conn);
	free(h);
}

struct filter_conn *filter_host_conn(struct filter_host *h)
{
	return &h->conn;
}
