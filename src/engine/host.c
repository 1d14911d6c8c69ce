// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The table in memory (filter/host.h) is what should be in force; the kernel's follows
 * it:
 *
 *   start     each sandbox that was attached before is set, while the table of
 *             the engine before goes on guarding them; what it has learned is read once,
 *             for all. Then one load puts ours in its place. Queries that come before
 *             that wait in the sockets
 *   later     each attach, change and detach is a transaction of its own
 *   audits    one generation id says whether others have changed anything. The kernel
 *             lets no other process change a table that has an owner, so as long as it is
 *             there and ours, Docker's and firewalld's commits cost one question; only an
 *             older kernel's table is read back as a whole
 *   repairs   all of it at once, with what was learned, from memory */
#include "engine/host.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "filter/nflog.h"
#include "policy/policy.h"
#include "sandbox/accounting.h"
#include "sandbox/learned.h"
#include "sys/link.h"

enum {
	MARK_SHIFT = 16, /* of a mark: the sandbox's id is above */
	NFLOG_READS_MAX = 64,
	SLOW_EVERY = 20, /* audits: of routes, and of the table, whatever the
			  * count of transactions says */
	RETRY_MS = 1000,
	VERIFY_PAUSE = 4, /* times as long as reading the table back took */
	READ_TRIES = 8,
	INHERITED_MAX =
		1 << 20,  /* learned addresses; over it the rest is not taken over */
	REPORTS_MAX = 50, /* sandboxes whose repair is reported in one audit */
};

/* -- who it is about ---------------------------------------------------------------- */

/* NULL: no sandbox has @mark, which is counted. */
static struct engine_sandbox *find(struct engine_host *h, uint32_t mark)
{
	struct engine_sandbox *g = engine_core_find(h->core, mark >> MARK_SHIFT);

	if (g && g->kind == ATTACH_HOST)
		return g;
	h->unattributed++;
	return NULL;
}

/* The sandbox whose packet the filter has redirected; NULL: none of ours. */
static struct sandbox *by_mark(void *data, uint32_t mark)
{
	struct engine_host *h = data;
	struct engine_sandbox *g = find(h, mark);

	if (g)
		return &g->sandbox;
	return mark >> MARK_SHIFT ? &h->denied : NULL;
}

static struct sandbox *by_socket(void *data, int fd)
{
	struct engine_host *h = data;
	uint32_t mark = 0; /* no sandbox's */

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

/* -- start and end ------------------------------------------------------------------ */

static void check_ipv6(struct engine_host *h)
{
	h->ipv6 = link_has_default_route(h->core->route_fd, 6) == 1;
}

static int open_host(struct engine_host *h, int conntrack_fd, struct err *err)
{
	const struct filter_host_params params = { h->ports.dns_port,
						   h->ports.relay_port };
	const struct policy nothing = { 0 };
	const int *fd = h->fds.fd;
	struct sandbox *s = &h->denied;
	size_t size;
	int r;

	if (fd[SANDBOX_FD_NETLINK] < 0 || fd[SANDBOX_FD_DNS_UDP4] < 0 ||
	    fd[SANDBOX_FD_DNS_TCP4] < 0 || conntrack_fd < 0 ||
	    (h->ports.relay_port == 0) != (fd[SANDBOX_FD_RELAY4] < 0))
		return err_set(err, -EBADMSG, "a descriptor of the host is missing");
	/* An engine before this one had the same sockets, and may have been anybody's. */
	r = sandbox_fds_dont_wait(&h->fds);
	if (r < 0)
		return err_sys(err, r, "cannot use the host's sockets");
	r = ctmark_init(&h->connections, conntrack_fd, err);
	if (r == 0)
		r = filter_host_new(fd[SANDBOX_FD_NETLINK], &params, &h->table, err);
	if (r < 0)
		return r;
	h->fds.fd[SANDBOX_FD_NETLINK] = -1;
	/* The sandbox of those who have none has a plan that allows nothing. */
	r = policy_compile(&nothing, &h->nothing, &size, err);
	if (r == 0)
		r = plan_open(h->nothing, size, &s->plan, err);
	if (r < 0)
		return r;
	s->state = SANDBOX_RUNNING;
	s->learned = learned_new(&s->plan, &h->core->key);
	return s->learned ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void inherited_free(struct engine_host *h);

/* Its rules stay. No sandbox of it is in the engine. */
static void engine_host_free(struct engine_host *h)
{
	if (!h)
		return;
	loop_remove(h->core->loop, &h->nflog);
	dns_service_detach(h->core->dns, &h->denied);
	learned_free(h->denied.learned);
	free(h->nothing);
	filter_host_free(h->table);
	fd_close(&h->connections.fd);
	sandbox_fds_done(&h->fds);
	inherited_free(h);
	if (h->core->host == h)
		h->core->host = NULL;
	free(h);
}

int engine_host_open(struct engine_core *c, const struct ipc_host *ports,
		     struct sandbox_fds *fds, int conntrack_fd, struct err *err)
{
	struct engine_host *h = calloc(1, sizeof(*h));
	struct err ignored = { 0 };
	int r;

	if (!h || c->host) {
		sandbox_fds_done(fds);
		close(conntrack_fd);
		free(h);
		return c->host ? err_set(err, -EEXIST, "the host is guarded already")
			       : err_set(err, -ENOMEM, "out of memory");
	}
	h->core = c;
	h->denied.filter.fd = -1;
	sandbox_fds_init(&h->denied.fds);
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
	h->nflog = (struct loop_source){ .fd = h->fds.fd[SANDBOX_FD_NFLOG],
					 .on_ready = on_host_nflog };
	/* Without it refusals are not seen, but refused all the same. */
	h->sees_refused = h->nflog.fd >= 0 &&
			  nflog_bind(h->nflog.fd, FILTER_NFLOG_GROUP, &ignored) == 0 &&
			  loop_add(c->loop, &h->nflog, EPOLLIN) == 0;
	check_ipv6(h);
	c->host = h;
	return 0;
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
	int r = dns_service_attach(h->core->dns, &h->denied);

	if (r == 0)
		r = dns_service_share(h->core->dns, &dns);
	return r < 0 || h->ports.relay_port == 0 ? r
						 : relay_share(h->core->relay, &relay);
}

/* -- what an engine before us has learned ------------------------------------------- */

static void inherited_free(struct engine_host *h)
{
	if (h->inherited)
		free(h->inherited->items);
	free(h->inherited);
	h->inherited = NULL;
}

void engine_host_adopt(struct engine_host *h, struct engine_sandbox *g)
{
	/* Once, for all that come before the table is replaced. A table of ours has
	 * nothing of a sandbox that comes only now. */
	if (!h->is_wanted && !h->inherited) {
		h->inherited = calloc(1, sizeof(*h->inherited));
		if (h->inherited) {
			h->inherited->max = INHERITED_MAX;
			(void)!engine_elements_read(h->inherited,
						    filter_host_conn(h->table),
						    PLAN_PORT_LISTS_MAX);
		}
	}
	engine_sandbox_adopt(g, h->is_wanted || g->remade ? NULL : h->inherited);
}

/* -- the table ---------------------------------------------------------------------- */

static int load_table(struct engine_host *h, struct err *err)
{
	int r = -EAGAIN;

	/* Others who change tables of their own meanwhile are in the way of reading. */
	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++)
		r = filter_host_load(h->table, clock_now_ms(), err);
	if (r == 0) {
		r = -EAGAIN;
		for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
			engine_sandbox_seen_now(&h->seen, filter_host_conn(h->table));
			r = filter_host_verify(h->table, err);
		}
	}
	h->is_active = r == 0;
	h->is_in_doubt = false;
	h->retry_ms = clock_now_ms() + RETRY_MS;
	return r;
}

int engine_host_load(struct engine_host *h, struct err *err)
{
	bool first = !h->is_wanted;
	int r, s;

	if (first)
		engine_account_host_before(h);
	r = load_table(h, err);
	h->is_wanted = true;
	inherited_free(h);
	/* Also when the table could not be loaded: queries are answered with a failure
	 * then. */
	s = h->is_served ? 0 : share(h);
	h->is_served = s == 0;
	/* Nothing can be learned before the table is there. */
	for (size_t i = 0; first && i < h->core->slots; i++) {
		struct engine_sandbox *g = h->core->sandboxes[i];

		/* Without memory for it names are closed. */
		if (g && g->kind == ATTACH_HOST)
			(void)!engine_sandbox_pin(g);
	}
	if (s < 0 && r == 0)
		return err_sys(err, s, "cannot serve the host's sockets");
	return r;
}

/* -- others who change the ruleset -------------------------------------------------- */

static void report_repairs(struct engine_host *h)
{
	struct engine_core *c = h->core;
	int reported = 0;

	for (; h->report_at < c->slots && reported < REPORTS_MAX; h->report_at++) {
		struct engine_sandbox *g = c->sandboxes[h->report_at];

		if (!g || g->kind != ATTACH_HOST)
			continue;
		g->sandbox.counters[COUNT_REPAIRS] += h->repaired == 0;
		engine_sandbox_report_repair(g, h->repaired);
		reported++;
	}
	h->is_reporting = h->report_at < c->slots;
}

static void repair(struct engine_host *h)
{
	struct err err = { 0 };
	bool was_active = h->is_active;
	int r = load_table(h, &err);

	/* Once, until it is in force again. */
	if (!was_active && r < 0)
		return;
	h->is_reporting = true;
	h->report_at = 0;
	h->repaired = r;
	report_repairs(h);
}

/* Return: 1, the table is in force; 0, it isn't; or -errno: that can't be seen now. */
static int is_table_active(struct engine_host *h)
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
	 * no sandbox is served. */
	h->verify_ms = ended_ms + (ended_ms - began_ms) * VERIFY_PAUSE;
	if (r == -EAGAIN)
		return r;
	return r == 0 ? 1 : 0;
}

/* Return: whether there was nothing to do. */
static bool audit_table(struct engine_host *h)
{
	struct filter_conn *conn = filter_host_conn(h->table);
	int64_t now_ms = loop_now_ms(h->core->loop);
	struct engine_sandbox_seen seen;
	int r;

	if (!h->is_active) {
		if (now_ms >= h->retry_ms)
			repair(h);
		return false;
	}
	r = engine_sandbox_seen_check(&h->seen, conn);
	if (r < 0 || (r == 0 && !h->is_in_doubt))
		return r == 0;
	seen = h->seen;
	engine_sandbox_seen_now(&seen, conn);
	r = is_table_active(h);
	if (r == 0) {
		repair(h);
	} else if (r > 0) {
		h->is_in_doubt = false;
		h->seen = seen;
	}
	return false;
}

bool engine_host_mend(struct engine_host *h)
{
	if (!h->is_wanted || is_table_active(h) != 0)
		return false;
	repair(h);
	return h->is_active;
}

/* A table that isn't in force, or can't be made, is put back by the next audits. */
void engine_host_renew(struct engine_host *h)
{
	struct engine_core *c = h->core;
	struct err err = { 0 };
	bool is_counted = false;

	/* The kernel's counters, of all at once, go with the table. */
	for (size_t i = 0; i < c->slots && h->is_active && !is_counted; i++) {
		struct engine_sandbox *g = c->sandboxes[i];

		is_counted = g && g->kind == ATTACH_HOST;
		if (is_counted)
			engine_account_all(g);
	}
	if (h->is_active)
		(void)!load_table(h, &err);
}

void engine_host_audit(struct engine_host *h)
{
	bool slow = ++h->audits % SLOW_EVERY == 0, before = h->ipv6;

	if (h->is_reporting)
		report_repairs(h);
	if (slow)
		check_ipv6(h);
	for (size_t i = 0; i < h->core->slots && h->ipv6 != before; i++) {
		struct engine_sandbox *g = h->core->sandboxes[i];

		if (g && g->kind == ATTACH_HOST)
			g->sandbox.ipv6 = h->ipv6;
	}
	h->is_in_doubt |= slow && filter_host_conn(h->table)->owner;
	if (h->is_wanted && audit_table(h))
		(void)!filter_host_tidy(h->table, loop_now_ms(h->core->loop));
}
