// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * An engine may die at any moment: whatever it does to the kernel is one transaction that
 * leaves a whole ruleset behind, and all that a successor needs is in the supervisor's
 * hands (descriptors, plan) or in the snapshot (what was learned).
 *
 *   first start  the ruleset of the plan, of any generation, or of the one after that of
 *                the ruleset that was there
 *   restart      the snapshot's entries that the kernel still has; what the kernel has
 *                counted meanwhile for budgets; then the ruleset anew, with the entries,
 *                under the next generation: the ports that the dead engine had bound are
 *                not exempt any more
 *   restart in   nothing of ours is exempt there: what is there stays, if it was made of
 *   a namespace  what the plan makes today and has learned what the snapshot has; it is
 *                read back when all that were guarded before are served
 *   change       sandbox_change(): plan, learned addresses and flows in one step
 *   every audit  the kernel's generation id is compared with our own count of
 *                transactions; when others have changed something, our ruleset is read
 *                back, and put back if it is not as it was */
#include "engine/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "engine/core.h"
#include "engine/host.h"
#include "filter/nflog.h"
#include "policy/policy.h"
#include "sandbox/accounting.h"
#include "sandbox/asks.h"
#include "sandbox/budgets.h"
#include "sandbox/learned.h"
#include "sandbox/plan_file.h"
#include "sys/link.h"

/* -- what is learned outlives the engine --------------------------------------------- */

/* What a sandbox learns outlives its engine in a snapshot: a sparse file of the run
 * directory, mapped. When the kernel has no page for the file it says so by SIGBUS alone,
 * which would end the engine, for all sandboxes, again and again. So every page is asked
 * for by a call that can fail, before its first byte is read or written. A sandbox
 * without a snapshot goes on: what it learns then is lost with the engine, and its status
 * says so.
 *
 * What all snapshots take is bounded: each sandbox has a little of its own, and what they
 * share is given so that no sandbox gets more than a part of what is left.
 *
 * A successor takes over what the snapshot has and the kernel's sets still hold. */

enum {
	ELEMENTS_MAX = 16384, /* that the kernel still has, when adopting */
	READ_TRIES = 8,
	OWN_BYTES = 64 * 1024, /* of each sandbox: about 200 learned addresses */
	SHARED_BYTES = 64 * 1024 * 1024,
	SHARE = 4, /* one sandbox gets a fourth of what is left at most */
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

bool engine_sandbox_snapshot_may_be_sparse(void)
{
	return madvise(NULL, 0, MADV_POPULATE_WRITE) == 0;
}

static size_t shared_part(size_t bytes)
{
	return bytes > OWN_BYTES ? bytes - OWN_BYTES : 0;
}

/* For a kernel that doesn't know the call the supervisor has reserved the file. */
static bool populate(uint8_t *bytes, size_t from, size_t to)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	from = from / page * page;
	to = MIN((to + page - 1) / page * page, (size_t)LEARNED_SNAPSHOT_SIZE);
	return madvise(bytes + from, to - from, MADV_POPULATE_WRITE) == 0 ||
	       errno == EINVAL;
}

void *engine_sandbox_kept_budgets(struct engine_sandbox *g)
{
	uint8_t *bytes = g->snapshot.bytes;

	/* The first page is to note in that something was forgotten. */
	if (!bytes || !populate(bytes, 0, LEARNED_SNAPSHOT_STEP) ||
	    !populate(bytes, BUDGETS_KEPT_AT, LEARNED_SNAPSHOT_SIZE))
		return NULL;
	return bytes + BUDGETS_KEPT_AT;
}

static bool reserve(struct learned_snapshot *s, size_t from, size_t to)
{
	struct engine_sandbox *g = CONTAINER_OF(s, struct engine_sandbox, snapshot);
	size_t more = to - from;
	size_t now = shared_part(g->snapshot_bytes);
	size_t then = shared_part(g->snapshot_bytes + more);

	/* What the sandbox has itself counts as left. */
	if ((then != now &&
	     then > (SHARED_BYTES - g->core->snapshot_bytes + now) / SHARE) ||
	    !populate(s->bytes, from, to))
		return false;
	g->core->snapshot_bytes += then - now;
	g->snapshot_bytes += more;
	return true;
}

int engine_sandbox_snapshot_map(struct engine_sandbox *g, int fd)
{
	void *bytes = MAP_FAILED;

	g->snapshot = (struct learned_snapshot){ .reserve = reserve, .is_full = true };
	/* A page behind its end is SIGBUS as well. */
	if (lseek(fd, 0, SEEK_END) != LEARNED_SNAPSHOT_SIZE)
		return -ENOSPC;
	bytes = mmap(NULL, LEARNED_SNAPSHOT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		     0);
	if (bytes == MAP_FAILED)
		return -errno;
	g->snapshot.bytes = bytes;
	g->snapshot.is_full = false;
	/* Of a file that has no page the kernel need make none, nor read ahead. */
	g->snapshot.is_fresh = lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
	(void)!madvise(bytes, LEARNED_SNAPSHOT_SIZE, MADV_RANDOM);
	return 0;
}

void engine_sandbox_snapshot_done(struct engine_sandbox *g)
{
	if (g->snapshot.bytes)
		munmap(g->snapshot.bytes, LEARNED_SNAPSHOT_SIZE);
	g->snapshot = (struct learned_snapshot){ 0 };
}

void engine_sandbox_snapshot_leave(struct engine_sandbox *g)
{
	g->core->snapshot_bytes -= shared_part(g->snapshot_bytes);
	g->snapshot_bytes = 0;
}

/* -- taking over what an engine before us has learned ------------------------------- */

struct engine_element {
	uint32_t id;
	struct addr addr;
	uint8_t port_list;
	uint32_t left_ms; /* not compared */
};

static int compare_elements(const void *a, const void *b)
{
	const struct engine_element *x = a, *y = b;
	int r;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	r = memcmp(&x->addr, &y->addr, sizeof(x->addr));
	return r ? r : x->port_list - y->port_list;
}

/* A filter_learned_fn; the data is a struct engine_elements. */
static void on_element(void *data, uint16_t id, const struct filter_learn *item)
{
	struct engine_elements *e = data;

	if (e->count == e->capacity) {
		size_t capacity = MIN(MAX(e->capacity * 2, (size_t)256), e->max);
		struct engine_element *grown =
			capacity > e->count
				? reallocarray(e->items, capacity, sizeof(*grown))
				: NULL;

		e->is_cut = !grown;
		if (!grown)
			return;
		e->items = grown;
		e->capacity = capacity;
	}
	e->items[e->count++] = (struct engine_element){ id, item->addr, item->port_list,
							item->lifetime_ms };
}

int engine_elements_read(struct engine_elements *e, struct filter_conn *c, size_t lists)
{
	int r = -EAGAIN;

	/* Others may change tables of their own meanwhile. */
	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
		e->count = 0;
		e->is_cut = false;
		r = filter_learned_read(c, lists, on_element, e);
	}
	if (r < 0)
		e->count = 0;
	if (e->count > 0)
		qsort(e->items, e->count, sizeof(*e->items), compare_elements);
	return r;
}

struct elements_of {
	const struct engine_elements *all; /* NULL: the kernel has nothing */
	uint32_t id;
};

static uint32_t left_in_kernel(void *data, const struct addr *a, uint8_t port_list)
{
	const struct elements_of *of = data;
	const struct engine_element key = { of->id, *a, port_list, 0 };
	const struct engine_element *found = NULL;

	if (of->all && of->all->count > 0)
		found = bsearch(&key, of->all->items, of->all->count, sizeof(key),
				compare_elements);
	return found ? found->left_ms : 0;
}

void engine_sandbox_adopt(struct engine_sandbox *g, const struct engine_elements *e)
{
	struct sandbox *s = &g->sandbox;
	struct elements_of of = { e, s->host ? s->id : 0 };

	g->adopted = (uint32_t)learned_snapshot_adopt(s->learned, &g->snapshot,
						      loop_now_ms(g->core->loop),
						      left_in_kernel, &of);
	s->counters[COUNT_ADOPTED] += g->adopted;
}

/* The same with what the kernel has in the namespace of @g. Return: whether the kernel
 * has nothing besides, and nothing for longer than an engine asks for: else the engine
 * before was somebody else's, and what stands is made anew. */
static bool adopt_all(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	struct engine_elements have = { .max = ELEMENTS_MAX };
	uint32_t longest_ms = 0;
	bool is_all = engine_elements_read(&have, &s->filter,
					   plan_port_list_count(&s->plan)) == 0;

	engine_sandbox_adopt(g, &have);
	is_all = is_all && !have.is_cut &&
		 learned_counts(s->learned).elements == have.count;
	for (size_t i = 0; is_all && i < have.count; i++)
		longest_ms = MAX(longest_ms, have.items[i].left_ms);
	is_all = is_all &&
		 learned_bound_doubt(s->learned, loop_now_ms(g->core->loop) + longest_ms);
	free(have.items);
	return is_all;
}

/* -- in a network namespace that somebody else made --------------------------------- */

static int shared_enforce(struct engine_sandbox *g, struct err *err)
{
	struct sandbox *s = &g->sandbox;
	struct filter_said standing = { 0 };
	int r = filter_standing(&s->filter, &standing);
	bool may_stay = false;

	if (r < 0)
		return err_sys(err, r, "cannot ask for the rules that stand");
	if (g->restarted && standing.generation != 0) {
		may_stay = adopt_all(g) && g->kind == ATTACH_NETNS;
		engine_account_passed_before(g);
	}
	if (may_stay && sandbox_take_over(s, &g->plan, &standing) == 0) {
		g->is_unverified = true;
		return loop_timer_in(g->core->loop, &g->core->verify,
				     ENGINE_VERIFY_AFTER_MS);
	}
	/* Flows have the marks of a filter that guarded the namespace before, long after
	 * its rules went: marks of another policy must not pass for this one's. */
	if (standing.generation == 0 &&
	    getrandom(&standing.generation, sizeof(standing.generation), 0) !=
		    sizeof(standing.generation))
		return err_sys(err, -errno, "cannot number the rules");
	s->shared_params.generation = standing.generation;
	engine_sandbox_seen_now(&g->seen, &s->filter);
	return sandbox_install(s, &g->plan, err);
}

static int shared_change(struct engine_sandbox *g, const struct plan *next,
			 struct err *err)
{
	return sandbox_change(&g->sandbox, next, loop_now_ms(g->core->loop), err);
}

static int shared_remove(struct engine_sandbox *g, struct err *err)
{
	return filter_remove(&g->sandbox.filter, err);
}

/* -- in a network namespace of `weir run` -------------------------------------------- */

/* The launch child has installed the ruleset. It is made once more from the plan and held
 * against what the kernel has: it is this plan's, or the command doesn't start. */
static int owned_enforce(struct engine_sandbox *g, struct err *err)
{
	int r = sandbox_verify(&g->sandbox, err);

	return r < 0 ? err_context(err, "the filter does not stand as it was asked for")
		     : 0;
}

static int owned_remove(struct engine_sandbox *g, struct err *err)
{
	return err_set(err, -EPERM, "the rules stay as long as the namespace");
}

/* -- in the host's own namespace ---------------------------------------------------- */

static int host_enforce(struct engine_sandbox *g, struct err *err)
{
	struct engine_host *h = g->core->host;
	int r;

	if (g->restarted)
		engine_host_adopt(h, g);
	r = sandbox_install(&g->sandbox, &g->plan, err);
	if (r < 0 && engine_host_mend(h))
		r = sandbox_install(&g->sandbox, &g->plan, err);
	if (r < 0)
		return r;
	/* Restored sandboxes wait for each other, and so does a sandbox that is not
	 * tested at once. */
	if (!h->is_active)
		r = g->restarted || g->sandbox.probe_name.size == 0
			    ? 0
			    : engine_host_load(h, err);
	else
		r = sandbox_verify(&g->sandbox, err);
	return r;
}

/* Where the table of an engine before stands, because ours can't be loaded, a change
 * would be written down and no more, while that table's rules go on. */
static int host_change(struct engine_sandbox *g, const struct plan *next, struct err *err)
{
	struct engine_host *h = g->core->host;
	int r = h->is_wanted && !filter_host_is_loaded(h->table)
			? err_set(err, -EAGAIN,
				  "the filter of the host's sandboxes is not installed; "
				  "what stood before stays")
			: shared_change(g, next, err);

	if (r < 0 && engine_host_mend(h)) {
		*err = (struct err){ 0 };
		r = shared_change(g, next, err);
	}
	return r;
}

static int host_remove(struct engine_sandbox *g, struct err *err)
{
	struct sandbox *s = &g->sandbox;

	return filter_host_remove(s->host, (uint16_t)s->id, err);
}

static const struct engine_sandbox_ops {
	int (*enforce)(struct engine_sandbox *g, struct err *err);
	int (*change)(struct engine_sandbox *g, const struct plan *next, struct err *err);
	int (*remove)(struct engine_sandbox *g, struct err *err);
} kinds[ATTACH_KIND_COUNT] = {
	[ATTACH_OWNED] = { owned_enforce, shared_change, owned_remove },
	[ATTACH_SHARED] = { shared_enforce, shared_change, shared_remove },
	[ATTACH_NETNS] = { shared_enforce, shared_change, shared_remove },
	[ATTACH_HOST] = { host_enforce, host_change, host_remove },
};

/* NULL: this engine can't hold that kind. */
static const struct engine_sandbox_ops *ops_of(const struct engine_sandbox *g)
{
	const struct engine_sandbox_ops *o =
		(unsigned int)g->kind < ATTACH_KIND_COUNT ? &kinds[g->kind] : NULL;

	return o && o->enforce ? o : NULL;
}

/* -- life --------------------------------------------------------------------------- */

void engine_sandbox_init(struct engine_sandbox *g, enum attach_kind kind, uint32_t id)
{
	*g = (struct engine_sandbox){ .kind = kind, .route_fd = -1, .nflog.fd = -1 };
	g->sandbox.id = id;
	g->sandbox.filter.fd = -1;
	sandbox_fds_init(&g->sandbox.fds);
}

void engine_sandbox_done(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;

	accounting_free(s->accounting);
	asks_free(s);
	learned_free(s->learned);
	sandbox_self_ports_done(&s->self_ports);
	filter_conn_done(&s->filter);
	sandbox_fds_done(&s->fds);
	if (g->route_fd >= 0)
		close(g->route_fd);
	engine_sandbox_snapshot_done(g);
	plan_file_unmap(&g->plan);
	grants_free(g->grants);
	budgets_free(s->budgets);
	engine_sandbox_init(g, ATTACH_NONE, s->id);
}

/* What happens from now on is reported. */
static void observe(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;

	s->on_event = g->observer->on_event;
	s->on_answered = g->observer->on_answered;
	s->on_event_data = s->on_answered_data = g;
}

static int prepare(struct engine_sandbox *g, struct err *err)
{
	struct sandbox *s = &g->sandbox;
	const bool owned = g->kind == ATTACH_OWNED;
	const struct engine_host *h = g->core->host;
	int r = 0;

	if (g->kind == ATTACH_HOST && !h)
		return err_set(err, -ENOTCONN,
			       "this engine does not guard the host's own network");
	/* What a sandbox of the host's has in the place of a filter of its own. */
	if (g->kind == ATTACH_HOST) {
		s->host = h->table;
		s->shared_params = (struct filter_shared_params){
			.dns_port = h->ports.dns_port,
			.relay_port = h->ports.relay_port,
			.relay = h->ports.relay_port != 0,
		};
	}
	g->grants = engine_grants_new(g, &g->plan);
	/* What has ended since then goes with the first look, as at any other time. */
	if (owned && g->grants)
		plan_set_time(&g->plan, g->evaluated_ms);
	engine_grants_count(g, &g->plan, true);
	s->on_spent = engine_grants_on_spent;
	s->plan = g->plan;
	s->shared = g->kind == ATTACH_SHARED || g->kind == ATTACH_NETNS;
	s->shared_params.redirect_only = g->enforce == ENFORCED_REDIRECT;
	s->owned_params.ipv6 = s->fds.fd[SANDBOX_FD_DNS_UDP6] >= 0;
	s->relay = owned ? s->owned_params.relay : s->shared_params.relay;
	s->direct_udp = !owned || s->owned_params.direct_udp;
	if (s->probe_name.size == 0)
		observe(g);
	g->plan_id = plan_file_id(&g->plan);
	if (s->fds.fd[SANDBOX_FD_NETLINK] >= 0)
		r = filter_conn_init(&s->filter, TAKE_FD(s->fds.fd[SANDBOX_FD_NETLINK]),
				     err);
	if (r < 0)
		return r;
	s->filter.owner = g->owner;
	s->filter.naming = owned ? FILTER_NAMES_OWNED : FILTER_NAMES_SHARED;
	s->learned = learned_new(&s->plan, &g->core->key);
	if (!s->learned)
		return err_set(err, -ENOMEM, "out of memory");
	if (owned && s->direct_udp)
		learned_keep_past(s->learned);
	return 0;
}

static void on_nflog(struct loop_source *source, uint32_t events)
{
	(void)engine_sandbox_drain_refused(
		CONTAINER_OF(source, struct engine_sandbox, nflog));
}

/* Take refused packets as events from now on. */
static int engine_sandbox_watch_refused(struct engine_sandbox *g, struct err *err)
{
	int fd = g->sandbox.fds.fd[SANDBOX_FD_NFLOG];
	int r = nflog_bind(fd, FILTER_NFLOG_GROUP, err);

	if (r < 0)
		return r;
	g->nflog = (struct loop_source){ .fd = fd, .on_ready = on_nflog };
	r = loop_add(g->core->loop, &g->nflog, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch the refused packets") : 0;
}

/* Serve what asks and dials in the sandbox, and see what the filter refuses. */
static int serve(struct engine_sandbox *g, struct err *err)
{
	const bool is_host = g->kind == ATTACH_HOST;
	struct err nflog = { 0 };
	int r;

	if (is_host)
		g->sees_refused = g->core->host->sees_refused;
	r = engine_core_serve(g->core, &g->sandbox, err);
	if (r < 0 || is_host)
		return r;
	/* Where the kernel's log can't be had, refusals are not seen, but refused all the
	 * same; `weir run` fails instead. */
	if (g->kind == ATTACH_OWNED)
		return engine_sandbox_watch_refused(g, err);
	g->sees_refused = g->enforce != ENFORCED_NOTHING &&
			  engine_sandbox_watch_refused(g, &nflog) == 0;
	return 0;
}

/* -- dns: pinned -------------------------------------------------------------------- */

static void on_pinned(void *data, const struct resolver_unpinned *fault)
{
	struct engine_sandbox *g = data;
	char name[DNS_NAME_TEXT_SIZE];

	/* engine_sandbox_begin() has it reported again; the self-test of an OWNED begins
	 * after the first round. */
	if (g->kind != ATTACH_OWNED && g->sandbox.probe_name.size > 0)
		return;
	if (fault) {
		dns_name_format(fault->name, name);
		if (fault->required && !fault->stays && g->unpinned.code == 0)
			err_set(&g->unpinned, -ENOENT,
				"dns: pinned: cannot resolve %.253s: %s (the rule says "
				"required)",
				name, fault->why);
		g->observer->on_unpinned(g, name, fault);
		return;
	}
	g->observer->on_pinned(g, g->unpinned.text);
	g->is_pinned = true;
	g->unpinned = (struct err){ 0 };
}

int engine_sandbox_pin(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	const struct engine_host *h = g->core->host;
	int64_t repin_ms = plan_repin_sec(&s->plan) * INT64_C(1000);
	int r = 0;

	/* Those of the host with all others, when their table is there. */
	if (plan_dns(&s->plan) == POLICY_DNS_PINNED &&
	    (g->kind != ATTACH_HOST || h->is_wanted))
		r = resolver_pin(dns_service_resolver(g->core->dns), s,
				 repin_ms > 0 ? repin_ms : g->core->repin_ms, on_pinned,
				 g, loop_now_ms(g->core->loop));
	g->is_pin_lost = r < 0;
	return r;
}

/* An address may come or go at any time: AAAA is served while there is a way out. What
 * the relay carries out of another namespace than ours needs two. */
static void engine_sandbox_check_ipv6(struct engine_sandbox *g)
{
	bool out;

	if (g->kind == ATTACH_OWNED) /* the attach has said so */
		return;
	if (g->kind == ATTACH_HOST) {
		g->sandbox.ipv6 = g->core->host && g->core->host->ipv6;
		return;
	}
	out = link_has_default_route(g->core->route_fd, 6) == 1;

	if (g->kind == ATTACH_NETNS)
		out = (out || !g->sandbox.shared_params.relay) &&
		      link_has_default_route(g->route_fd, 6) == 1;
	g->sandbox.ipv6 = out;
}

static int activate(struct engine_sandbox *g, const struct engine_sandbox_ops *ops,
		    struct err *err)
{
	int r = prepare(g, err);

	if (r == 0 && g->enforce != ENFORCED_NOTHING)
		r = ops->enforce(g, err);
	if (r < 0)
		return r;
	engine_sandbox_check_ipv6(g);
	learned_snapshot_keep(g->sandbox.learned, &g->snapshot);
	r = serve(g, err);
	if (r < 0)
		return r;
	g->sandbox.state = g->kind == ATTACH_OWNED ? SANDBOX_TESTING : SANDBOX_RUNNING;
	engine_grants_watch(g);
	r = engine_sandbox_pin(g);
	return r < 0 ? err_sys(err, r, "cannot pin the policy's names") : 0;
}

int engine_sandbox_activate(struct engine_sandbox *g, struct engine_core *c,
			    struct err *err)
{
	const struct engine_sandbox_ops *ops = ops_of(g);
	int r;

	if (!ops)
		return err_set(err, -EOPNOTSUPP, "this kind of sandbox is not known");
	r = engine_core_add(c, g);
	if (r < 0)
		return err_sys(err, r, "cannot take another sandbox");
	r = activate(g, ops, err);
	if (r < 0) {
		engine_sandbox_leave(g);
		engine_sandbox_forget_rules(g);
	}
	return r;
}

void engine_sandbox_begin(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	uint64_t tests = s->counters[COUNT_SELF_TESTS];

	if (s->probe_name.size == 0)
		return;
	engine_sandbox_drain_refused(g);
	engine_account_begin(g);
	/* What the self-test provoked is not the sandbox's. */
	memset(s->counters, 0, sizeof(s->counters));
	s->counters[COUNT_SELF_TESTS] = tests;
	s->probe_name.size = 0;
	s->state = SANDBOX_RUNNING;
	observe(g);
	engine_grants_on_unkept(g);
	if (plan_dns(&s->plan) == POLICY_DNS_PINNED && !g->is_pinned)
		resolver_pin_notify(dns_service_resolver(g->core->dns), s);
}

void engine_sandbox_leave(struct engine_sandbox *g)
{
	struct engine_core *c = g->core;

	if (!c)
		return;
	g->sandbox.state = SANDBOX_CLOSED;
	engine_sandbox_change_cancel(g);
	loop_remove(c->loop, &g->nflog);
	dns_service_detach(c->dns, &g->sandbox);
	relay_detach(&g->sandbox);
	engine_account_all(g);
	engine_sandbox_snapshot_leave(g);
	engine_core_take_out(c, g);
}

int engine_sandbox_remove_rules(struct engine_sandbox *g, struct err *err)
{
	const struct engine_sandbox_ops *ops = ops_of(g);

	return !ops || g->enforce == ENFORCED_NOTHING ? 0 : ops->remove(g, err);
}

void engine_sandbox_forget_rules(struct engine_sandbox *g)
{
	if (g->sandbox.host)
		filter_host_forget(g->sandbox.host, (uint16_t)g->sandbox.id);
}

int engine_sandbox_change_at_once(struct engine_sandbox *g, const struct plan *next,
				  struct err *err)
{
	const struct engine_sandbox_ops *ops = ops_of(g);

	if (!ops || g->enforce == ENFORCED_NOTHING)
		return err_set(err, -EPERM, "nothing can be enforced here");
	return ops->change(g, next, err);
}

void engine_sandbox_status(const struct engine_sandbox *g, struct ipc_status *ret)
{
	*ret = (struct ipc_status){
		.adopted = g->adopted,
		.plan_id = g->plan_id,
		.enforced = (uint8_t)g->enforce,
		.nflog = g->sees_refused,
	};
	if (g->enforce != ENFORCED_NOTHING)
		ret->generation = g->sandbox.shared_params.generation;
	if (g->core)
		snprintf(ret->lacking, sizeof(ret->lacking), "%s", g->core->missing);
}

static_assert((int)SANDBOX_COUNTER_COUNT <= (int)IPC_COUNTERS_MAX,
	      "a message has room for all counters");

void engine_sandbox_stats(const struct engine_sandbox *g, struct ipc_stats *ret)
{
	const struct sandbox *s = &g->sandbox;
	struct learned_counts counts = learned_counts(s->learned);

	*ret = (struct ipc_stats){
		.names = counts.names,
		.addresses = counts.addresses,
		.generation = s->shared_params.generation,
		.adopted = g->adopted,
		.plan_id = g->plan_id,
		.ipv6 = s->ipv6,
		.nflog = g->sees_refused,
		.snapshot_full = g->snapshot.is_full,
	};
	memcpy(ret->counters, s->counters, sizeof(s->counters));
}

/* -- refused packets, and others who change the ruleset ----------------------------- */

enum {
	NFLOG_READS_MAX = 32, /* datagrams a turn; the rest waits for the next */
	ROUTES_MS = 1000,     /* between audits of them */
};

/* ---- what the filter refused ---- */

static void on_packet(void *data, const struct nflog_packet *p)
{
	struct engine_sandbox *g = data;

	refused_packet(&g->sandbox, p, loop_now_ms(g->core->loop));
}

/* Packets that the kernel could not report are in its counters, which are read later. */
bool engine_sandbox_drain_refused(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;

	if (g->kind == ATTACH_HOST) {
		engine_host_drain_refused(g->core->host);
		return false;
	}
	for (int i = 0; i < NFLOG_READS_MAX; i++) {
		int r = nflog_read(s->fds.fd[SANDBOX_FD_NFLOG], on_packet, g);

		if (r <= 0 && r != -ENOBUFS)
			return false;
	}
	return true;
}

/* ---- others who change the ruleset ---- */

static void remember(struct engine_sandbox_seen *seen, const struct filter_conn *c,
		     uint32_t id)
{
	seen->generation_id = id;
	seen->commits = c->commits;
}

void engine_sandbox_seen_now(struct engine_sandbox_seen *seen, struct filter_conn *c)
{
	uint32_t id;

	if (filter_generation_id(c, &id) == 0)
		remember(seen, c, id);
}

int engine_sandbox_seen_check(struct engine_sandbox_seen *seen, struct filter_conn *c)
{
	uint32_t id, expected;
	int r = filter_generation_id(c, &id);

	if (r < 0)
		return r;
	/* What our own transactions since then have made of it; the kernel never uses
	 * 0. */
	expected = seen->generation_id + (c->commits - seen->commits);
	if (id != expected && !(expected < seen->generation_id && id == expected + 1))
		return 1;
	remember(seen, c, id);
	return 0;
}

void engine_sandbox_report_repair(struct engine_sandbox *g, int r)
{
	struct event event = event_make(EVENT_PANIC, EVENT_ADDRESS);

	event_set_reason(&event,
			 r < 0 ? "others have changed the filter; it can't be put back"
			       : "others had changed the filter; it was put back");
	sandbox_notice(&g->sandbox, &event, loop_now_ms(g->core->loop));
}

void engine_sandbox_verify(struct engine_sandbox *g)
{
	struct engine_sandbox_seen seen = g->seen;
	struct sandbox *s = &g->sandbox;
	struct err err = { 0 };
	int r;

	engine_sandbox_seen_now(&seen, &s->filter);
	r = sandbox_verify(s, &err);
	if (r < 0) {
		s->filter.unsure = true;
		r = sandbox_repair(s, loop_now_ms(g->core->loop), &err);
		engine_sandbox_report_repair(g, r);
		g->observer->on_status(g);
	} else if (g->is_late) {
		/* The kernel's counters go with the rules. */
		engine_account_all(g);
		r = sandbox_renew(s, loop_now_ms(g->core->loop), &err);
	}
	/* Should it not be in force, the next audit sees that. */
	if (r == 0)
		g->seen = seen;
	g->is_unverified = false;
	g->is_late &= r < 0;
}

bool engine_sandbox_audit(struct engine_sandbox *g)
{
	bool in_namespace = g->kind == ATTACH_SHARED || g->kind == ATTACH_NETNS;

	if (!in_namespace)
		return false;
	/* What is staged is in no ruleset yet. */
	if (g->enforce != ENFORCED_NOTHING && !g->change.is_under_way &&
	    !g->is_unverified &&
	    engine_sandbox_seen_check(&g->seen, &g->sandbox.filter) > 0) {
		g->sandbox.filter.unsure = true;
		engine_sandbox_verify(g);
	}
	if (g->routes_ms <= loop_now_ms(g->core->loop)) {
		g->routes_ms = loop_now_ms(g->core->loop) + ROUTES_MS;
		engine_sandbox_check_ipv6(g);
	}
	return true;
}
