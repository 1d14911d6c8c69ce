// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The table in memory (filter/host.h) is what should stand, and the kernel's follows it:
 *
 *   start     whoever was guarded before is set, one after the other, while the table of
 *             the engine before goes on guarding them; what it has learned is read once,
 *             for all. Then one load puts ours in its place. Queries that come before
 *             that wait in the sockets
 *   later     each attach, change and detach is a transaction of its own
 *   looks     one generation id tells whether others have changed anything. The kernel
 *             lets nobody else change a table that has an owner, so as long as it is
 *             there and ours, Docker's and firewalld's commits cost one question; only an
 *             older kernel's table is read back as a whole
 *   repairs   all of it at once, with what was learned, from memory */
#include "engine/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "filter/nflog.h"
#include "policy/policy.h"
#include "sandbox/learned.h"
#include "sandbox/refused.h"
#include "sys/link.h"

enum {
	MARK_SHIFT = 16, /* of a mark: the sandbox's id is above */
	NFLOG_READS_MAX = 64,
	SLOW_EVERY = 20, /* looks: at routes, and whether the table is there whatever the
			  * count of transactions says */
	RETRY_MS = 1000,
	VERIFY_PAUSE = 4, /* times as long as reading the table back took */
	READ_TRIES = 8,
	LEFT_MAX = 1 << 20, /* learned addresses; over it the rest is not taken over */
	TELL_MAX = 50,	    /* sandboxes that hear of a repair, in one look */
};

/* -- who it is about ---------------------------------------------------------------- */

/* NULL: nobody, and he is counted. */
static struct engine_sandbox *find(struct engine_host *h, uint32_t mark)
{
	struct engine_sandbox *g = engine_core_find(h->core, mark >> MARK_SHIFT);

	if (g && g->kind == ATTACH_HOST)
		return g;
	h->unattributed++;
	return NULL;
}

/* Of whom the filter has sent here; NULL: of somebody else. */
static struct sandbox *by_mark(void *data, uint32_t mark)
{
	struct engine_host *h = data;
	struct engine_sandbox *g = find(h, mark);

	if (g)
		return &g->sandbox;
	return mark >> MARK_SHIFT ? &h->nobody : NULL;
}

static struct sandbox *by_socket(void *data, int fd)
{
	struct engine_host *h = data;
	uint32_t mark = 0; /* nobody's */

	if (ctmark_of_socket(&h->connections, fd, &mark) < 0)
		mark = 0;
	return by_mark(h, mark);
}

/* -- what the filter refused -------------------------------------------------------- */

static void on_host_packet(void *data, const struct nflog_packet *p)
{
	struct engine_host *h = data;
	struct engine_sandbox *g = find(h, p->mark);

	if (g)
		refused_packet(&g->sandbox, p, loop_now_ms(h->core->loop));
}

void engine_host_drain_refused(struct engine_host *h)
{
	for (int i = 0; i < NFLOG_READS_MAX && h->sees_refused; i++) {
		int r = nflog_read(h->nflog.fd, on_host_packet, h);

		if (r == -ENOBUFS)
			h->lost++;
		else if (r <= 0)
			return;
	}
}

static void on_host_nflog(struct loop_source *source, uint32_t events)
{
	engine_host_drain_refused(CONTAINER_OF(source, struct engine_host, nflog));
}

/* Without it refusals are not seen, but refused all the same. */
static bool watch_refused(struct engine_host *h)
{
	int fd = h->fds.fd[SANDBOX_FD_NFLOG];
	struct err ignored = { 0 };

	h->nflog = (struct loop_source){ .fd = fd, .on_ready = on_host_nflog };
	return fd >= 0 && nflog_bind(fd, FILTER_NFLOG_GROUP, &ignored) == 0 &&
	       loop_add(h->core->loop, &h->nflog, EPOLLIN) == 0;
}

/* -- start and end ------------------------------------------------------------------ */

/* With a plan that allows nothing. */
static int make_nobody(struct engine_host *h, struct err *err)
{
	const struct policy nothing = { 0 };
	struct sandbox *s = &h->nobody;
	size_t size;
	int r = policy_compile(&nothing, &h->nothing, &size, err);

	if (r == 0)
		r = plan_open(h->nothing, size, &s->plan, err);
	if (r < 0)
		return r;
	s->state = SANDBOX_RUNNING;
	s->learned = learned_new(&s->plan, &h->core->key);
	return s->learned ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void nobody_done(struct engine_host *h)
{
	dns_service_detach(h->core->dns, &h->nobody);
	learned_free(h->nobody.learned);
	free(h->nothing);
}

static void look_for_ipv6(struct engine_host *h)
{
	h->ipv6 = link_has_default_route(h->core->route_fd, 6) == 1;
}

static bool has_all_fds(const struct ipc_host *ports, const struct sandbox_fds *fds)
{
	const int *fd = fds->fd;

	return fd[SANDBOX_FD_NETLINK] >= 0 && fd[SANDBOX_FD_DNS_UDP4] >= 0 &&
	       fd[SANDBOX_FD_DNS_TCP4] >= 0 &&
	       (ports->relay_port == 0) == (fd[SANDBOX_FD_RELAY4] < 0);
}

static int open_host(struct engine_host *h, int conntrack_fd, struct err *err)
{
	const struct filter_host_params params = { h->ports.dns_port,
						   h->ports.relay_port };
	int r;

	if (!has_all_fds(&h->ports, &h->fds) || conntrack_fd < 0)
		return err_set(err, -EBADMSG, "a descriptor of the host is missing");
	r = ctmark_init(&h->connections, conntrack_fd, err);
	if (r == 0)
		r = filter_host_new(h->fds.fd[SANDBOX_FD_NETLINK], &params, &h->table,
				    err);
	if (r < 0)
		return r;
	h->fds.fd[SANDBOX_FD_NETLINK] = -1;
	return make_nobody(h, err);
}

int engine_host_open(struct engine_core *c, const struct ipc_host *ports,
		     struct sandbox_fds *fds, int conntrack_fd, struct err *err)
{
	struct engine_host *h = calloc(1, sizeof(*h));
	int r;

	if (!h || c->host) {
		sandbox_fds_done(fds);
		close(conntrack_fd);
		free(h);
		return c->host ? err_set(err, -EEXIST, "the host is guarded already")
			       : err_set(err, -ENOMEM, "out of memory");
	}
	h->core = c;
	h->nobody.filter.fd = -1;
	sandbox_fds_init(&h->nobody.fds);
	h->ports = *ports;
	h->fds = *fds;
	h->connections.fd = conntrack_fd;
	sandbox_fds_init(fds);
	r = open_host(h, conntrack_fd, err);
	if (r < 0) {
		h->connections.fd = conntrack_fd;
		engine_host_free(h);
		return r;
	}
	h->sees_refused = watch_refused(h);
	look_for_ipv6(h);
	c->host = h;
	return 0;
}

static void left_free(struct engine_host *h);

void engine_host_free(struct engine_host *h)
{
	if (!h)
		return;
	loop_remove(h->core->loop, &h->nflog);
	nobody_done(h);
	filter_host_free(h->table);
	ctmark_done(&h->connections);
	sandbox_fds_done(&h->fds);
	left_free(h);
	if (h->core->host == h)
		h->core->host = NULL;
	free(h);
}

static int share(struct engine_host *h)
{
	const int *fd = h->fds.fd;
	const struct dns_shared dns = {
		.udp = { fd[SANDBOX_FD_DNS_UDP4], fd[SANDBOX_FD_DNS_UDP6] },
		.tcp = { fd[SANDBOX_FD_DNS_TCP4], fd[SANDBOX_FD_DNS_TCP6] },
		.by_mark = by_mark,
		.by_socket = by_socket,
		.data = h,
	};
	const struct relay_shared relay = {
		.listen = { fd[SANDBOX_FD_RELAY4], fd[SANDBOX_FD_RELAY6] },
		.by_socket = by_socket,
		.data = h,
	};
	int r = dns_service_attach(h->core->dns, &h->nobody);

	if (r == 0)
		r = dns_service_share(h->core->dns, &dns);
	return r < 0 || h->ports.relay_port == 0 ? r
						 : relay_share(h->core->relay, &relay);
}

/* Also when the table could not be loaded: who asks then is told that it fails. */
static int serve_host(struct engine_host *h, struct err *err)
{
	int r = h->is_served ? 0 : share(h);

	if (r < 0)
		return err_sys(err, r, "cannot serve the host's sockets");
	h->is_served = true;
	return 0;
}

/* -- what an engine before us has learned ------------------------------------------- */

struct left_element {
	uint32_t id;
	struct addr addr;
	uint8_t port_list;
	uint32_t left_ms; /* not compared */
};

struct engine_host_left {
	struct left_element *items; /* owned, sorted */
	size_t count, capacity;
	int error;
};

static void left_free(struct engine_host *h)
{
	if (h->left)
		free(h->left->items);
	free(h->left);
	h->left = NULL;
}

static int compare_left(const void *a, const void *b)
{
	const struct left_element *x = a, *y = b;
	int r;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	r = memcmp(&x->addr, &y->addr, sizeof(x->addr));
	return r ? r : x->port_list - y->port_list;
}

static bool make_left_room(struct engine_host_left *l)
{
	size_t capacity = l->capacity > 0 ? l->capacity * 2 : 256;
	struct left_element *grown;

	if (l->count < l->capacity)
		return true;
	grown = l->count < LEFT_MAX ? reallocarray(l->items, capacity, sizeof(*grown))
				    : NULL;
	if (!grown)
		return false;
	l->items = grown;
	l->capacity = capacity;
	return true;
}

static void on_left(void *data, uint16_t id, const struct filter_learn *item)
{
	struct engine_host_left *l = data;

	if (make_left_room(l))
		l->items[l->count++] =
			(struct left_element){ .id = id,
					       .addr = item->addr,
					       .port_list = item->port_list,
					       .left_ms = item->lifetime_ms };
}

/* Once, for all that come before the table is replaced. */
static const struct engine_host_left *read_left(struct engine_host *h)
{
	struct engine_host_left *l = h->left;

	if (l)
		return l;
	l = h->left = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->error = -EAGAIN;
	/* Others may change tables of their own meanwhile. */
	for (int i = 0; i < READ_TRIES && l->error == -EAGAIN; i++) {
		l->count = 0;
		l->error = filter_learned_read(filter_host_conn(h->table),
					       PLAN_PORT_LISTS_MAX, on_left, l);
	}
	if (l->count > 0)
		qsort(l->items, l->count, sizeof(*l->items), compare_left);
	return l;
}

/* The elements of one sandbox. */
struct left_of {
	const struct engine_host_left *left; /* NULL: the kernel has nothing */
	uint32_t id;
};

static uint32_t left_element_ms(void *data, const struct addr *a, uint8_t port_list)
{
	const struct left_of *of = data;
	const struct left_element key = { .id = of->id,
					  .addr = *a,
					  .port_list = port_list };
	const struct left_element *found = NULL;

	if (of->left && of->left->count > 0)
		found = bsearch(&key, of->left->items, of->left->count, sizeof(key),
				compare_left);
	return found ? found->left_ms : 0;
}

size_t engine_host_adopt(struct engine_host *h, struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	/* A table of ours has nothing of one that comes only now. */
	struct left_of of = { h->is_wanted ? NULL : read_left(h), s->id };
	size_t count;

	if (of.left && of.left->error < 0)
		of.left = NULL;
	count = learned_snapshot_adopt(s->learned, &g->snapshot,
				       loop_now_ms(h->core->loop), left_element_ms, &of);
	s->counters[COUNT_ADOPTED] += count;
	return count;
}

/* -- for one sandbox ---------------------------------------------------------------- */

int engine_host_prepare(struct engine_core *c, struct sandbox *s, struct err *err)
{
	const struct engine_host *h = c->host;

	if (!h)
		return err_set(err, -ENOTCONN,
			       "this engine does not guard the host's own network");
	s->host = h->table;
	s->shared_params = (struct filter_shared_params){
		.dns_port = h->ports.dns_port,
		.relay_port = h->ports.relay_port,
		.relay = h->ports.relay_port != 0,
	};
	return 0;
}

/* -- the table ---------------------------------------------------------------------- */

/* Others who change tables of their own meanwhile are in the way of reading. */
static int install(struct engine_host *h, struct err *err)
{
	int r = -EAGAIN;

	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++)
		r = filter_host_load(h->table, clock_now_ms(), err);
	if (r < 0)
		return r;
	r = -EAGAIN;
	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++)
		r = filter_host_verify(h->table, err);
	return r;
}

static int load_table(struct engine_host *h, struct err *err)
{
	int r = install(h, err);

	h->stands = r == 0;
	h->is_in_doubt = false;
	h->retry_ms = clock_now_ms() + RETRY_MS;
	if (r == 0)
		engine_sandbox_seen_now(&h->seen, filter_host_conn(h->table));
	return r;
}

/* Nothing can be learned before the table is there. */
static void pin_all(struct engine_host *h)
{
	for (size_t i = 0; i < h->core->slots; i++) {
		struct engine_sandbox *g = h->core->guarded[i];

		/* Without memory for it names are closed. */
		if (g && g->kind == ATTACH_HOST)
			(void)!engine_sandbox_pin(g);
	}
}

int engine_host_load(struct engine_host *h, struct err *err)
{
	struct err why = { 0 };
	bool first = !h->is_wanted;
	int r, s;

	r = load_table(h, err);
	h->is_wanted = true;
	left_free(h);
	s = serve_host(h, &why);
	if (first)
		pin_all(h);
	if (s < 0 && r == 0)
		return err_set(err, s, "%s", why.text);
	return r;
}

/* -- others who change the ruleset -------------------------------------------------- */

static void tell_some(struct engine_host *h)
{
	struct engine_core *c = h->core;
	int told = 0;

	for (; h->tell_at < c->slots && told < TELL_MAX; h->tell_at++) {
		struct engine_sandbox *g = c->guarded[h->tell_at];

		if (!g || g->kind != ATTACH_HOST)
			continue;
		g->sandbox.counters[COUNT_REPAIRS] += h->repaired == 0;
		engine_sandbox_tell_repair(g, h->repaired);
		told++;
	}
	h->is_telling = h->tell_at < c->slots;
}

static void repair(struct engine_host *h)
{
	struct err err = { 0 };
	bool stood = h->stands;
	int r = load_table(h, &err);

	/* Once, until it stands again. */
	if (!stood && r < 0)
		return;
	h->is_telling = true;
	h->tell_at = 0;
	h->repaired = r;
	tell_some(h);
}

/* Return: 1, it stands; 0, it doesn't; or -errno: that can't be told now. */
static int does_stand(struct engine_host *h)
{
	struct err err = { 0 };
	int64_t began_ms = clock_now_ms(), ended_ms;
	int r = filter_host_is_owned(h->table);

	if (r != 0)
		return r;
	if (began_ms < h->verify_ms)
		return -EAGAIN;
	r = filter_host_verify(h->table, &err);
	ended_ms = clock_now_ms();
	/* On a kernel without owners, and with many sandboxes, it takes time, while
	 * nobody is served. */
	h->verify_ms = ended_ms + (ended_ms - began_ms) * VERIFY_PAUSE;
	if (r == -EAGAIN)
		return r;
	return r == 0 ? 1 : 0;
}

/* Return: whether there was nothing to do. */
static bool look_after_table(struct engine_host *h)
{
	int64_t now_ms = loop_now_ms(h->core->loop);
	int r;

	if (!h->stands) {
		if (now_ms >= h->retry_ms)
			repair(h);
		return false;
	}
	r = engine_sandbox_seen_look(&h->seen, filter_host_conn(h->table));
	if (r < 0 || (r == 0 && !h->is_in_doubt))
		return r == 0;
	r = does_stand(h);
	if (r == 0) {
		repair(h);
	} else if (r > 0) {
		h->is_in_doubt = false;
		engine_sandbox_seen_now(&h->seen, filter_host_conn(h->table));
	}
	return false;
}

bool engine_host_mend(struct engine_host *h)
{
	if (!h->is_wanted || does_stand(h) != 0)
		return false;
	repair(h);
	return h->stands;
}

static void tell_ipv6(struct engine_host *h)
{
	bool before = h->ipv6;

	look_for_ipv6(h);
	for (size_t i = 0; i < h->core->slots && h->ipv6 != before; i++) {
		struct engine_sandbox *g = h->core->guarded[i];

		if (g && g->kind == ATTACH_HOST)
			g->sandbox.ipv6 = h->ipv6;
	}
}

void engine_host_look(struct engine_host *h)
{
	bool slow = ++h->looks % SLOW_EVERY == 0;

	if (h->is_telling)
		tell_some(h);
	if (slow)
		tell_ipv6(h);
	h->is_in_doubt |= slow && filter_host_conn(h->table)->owner;
	if (h->is_wanted && look_after_table(h))
		(void)!filter_host_tidy(h->table, loop_now_ms(h->core->loop));
}
