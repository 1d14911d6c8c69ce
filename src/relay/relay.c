// SPDX-License-Identifier: Apache-2.0
#include "relay/relay.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "base/rate.h"
#include "relay/relay_internal.h"
#include "sys/sock.h"

enum {
	ACCEPT_BATCH = 64,	 /* connections taken from a listener per event */
	NEW_FLOW_WAIT_MS = 1000, /* for LIMIT_NEW_FLOWS_PER_SECOND */
	FDS_SPARE_PART = 16,	 /* of all descriptors, that connections leave free */
};

void relay_schedule(struct relay *r)
{
	loop_defer(r->loop, &r->work);
}

static void reap(struct relay *r)
{
	struct relay_flow *f;
	struct relay_sandbox *g;

	while ((f = TAILQ_FIRST(&r->dead))) {
		TAILQ_REMOVE(&r->dead, f, in_queue);
		if (r->spare_count >= RELAY_SPARE_FLOWS) {
			free(f);
			continue;
		}
		LIST_INSERT_HEAD(&r->spares, f, in_sandbox);
		r->spare_count++;
	}
	while ((g = LIST_FIRST(&r->dead_sandboxes))) {
		LIST_REMOVE(g, link);
		free(g->slow);
		free(g->ports);
		free(g);
	}
}

static void forget_change(struct relay_sandbox *g)
{
	if (g->has_changed)
		TAILQ_REMOVE(&g->relay->changed, g, in_changed);
	g->has_changed = false;
	g->unchecked = NULL;
}

struct relay_flow *relay_next(struct relay *r)
{
	struct relay_sandbox *g = TAILQ_FIRST(&r->ready);
	struct relay_flow *f;

	if (!g)
		return NULL;
	f = TAILQ_FIRST(&g->ready);
	TAILQ_REMOVE(&g->ready, f, in_queue);
	f->queued = false;
	TAILQ_REMOVE(&r->ready, g, in_ready);
	if (!TAILQ_EMPTY(&g->ready))
		TAILQ_INSERT_TAIL(&r->ready, g, in_ready);
	return f;
}

static void relay_work(struct loop_deferred *d)
{
	struct relay *r = CONTAINER_OF(d, struct relay, work);
	struct relay_sandbox *g;
	struct relay_flow *f;
	size_t spent = 0;

	/* Flows of sandboxes whose plan has changed come before others. */
	while (spent < RELAY_RECHECK_BUDGET && (g = TAILQ_FIRST(&r->changed))) {
		f = g->unchecked;
		if (f) {
			g->unchecked = LIST_NEXT(f, in_sandbox);
			spent += relay_flow_recheck(f);
		} else {
			forget_change(g);
		}
	}
	while (spent < RELAY_TURN_BUDGET && (f = relay_next(r)))
		spent += relay_flow_run(f);
	reap(r);
	/* What a flow of this turn has scheduled is done, too. */
	if (TAILQ_EMPTY(&r->ready) && TAILQ_EMPTY(&r->changed))
		loop_defer_cancel(r->loop, &r->work);
	else
		relay_schedule(r);
}

const char *relay_shortage(struct relay_sandbox *g, int fd, const struct relay_need *need,
			   enum plan_limit *ret, int64_t *ret_wait_ms)
{
	const uint32_t rate = plan_limit(&g->sandbox->plan, LIMIT_NEW_FLOWS_PER_SECOND);
	const struct relay *r = g->relay;
	const struct relay_sandbox *other;
	size_t mine = 0;

	*ret = LIMIT_FLOWS;
	if (fd >= r->fds_max)
		return "no descriptor is free";
	if (g->flow_count + g->extra_attempts + need->more >
	    plan_limit(&g->sandbox->plan, LIMIT_FLOWS))
		return "too many connections";
	/* Beside other sandboxes @g has its share. Listeners that sandboxes share have an
	 * entry of their own, which is no sandbox. */
	LIST_FOREACH(other, &r->sandboxes, link)
	{
		if (other != g && other->sandbox) {
			mine = g->flow_count + g->extra_attempts;
			break;
		}
	}
	if (need->more &&
	    !share_has_room(mine, r->flow_count + r->extra_attempts, r->flows_max))
		return "the engine has too many connections";
	*ret = LIMIT_NEW_FLOWS_PER_SECOND;
	/* In bursts of at most a second's worth. */
	*ret_wait_ms = rate_take_later(&g->new_flows, rate, 1000, rate, need->wait_ms,
				       loop_now_ms(r->loop));
	return *ret_wait_ms >= 0 ? NULL : "too many new connections";
}

static void on_dialled(struct listeners *l, int fd)
{
	static const struct relay_verdict itself = {
		.rule = PLAN_NO_RULE, .reason = "it dialled the relay itself"
	};
	const struct relay_need need = { .more = 1, .wait_ms = NEW_FLOW_WAIT_MS };
	struct relay_sandbox *g = CONTAINER_OF(l, struct relay_sandbox, listeners);
	const struct relay *r = g->relay;
	struct endpoint to = { 0 }, local;
	const struct sandbox *s = g->sandbox;
	const char *shortage;
	enum plan_limit limit;
	int64_t wait_ms;
	bool known;

	if (fd < 0) {
		if (s)
			relay_limit(g, LIMIT_FLOWS, "no descriptor is free");
		return;
	}
	if (!s) { /* many share the listener: whose connection is it? */
		s = r->shared.by_socket(r->shared.data, fd);
		g = s ? s->relayed : NULL;
	}
	if (!g) {
		relay_reset_fd(fd);
		return;
	}
	/* Else it can't be told, or the listener itself was dialled. */
	known = sock_original(fd, &local, &to) > 0 && to.addr.family != ADDR_NONE &&
		to.port != 0 && !endpoint_equal(&to, &local);
	/* The self-test: its connection has come through the redirect, and that is all
	 * it wants to know. */
	if (s->state == SANDBOX_TESTING && known && s->probe_name.size > 0 &&
	    to.port == s->probe_port && addr_equal(&to.addr, &s->probe_addr)) {
		if (send(fd, "W", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1)
			close(fd);
		else
			relay_reset_fd(fd);
		return;
	}
	/* While the self-test runs a flow ends where its dial does: see relay_flow.c. */
	if (s->state != SANDBOX_RUNNING && s->state != SANDBOX_TESTING) {
		relay_reset_fd(fd);
		return;
	}
	shortage = relay_shortage(g, fd, &need, &limit, &wait_ms);
	if (!shortage && known) {
		relay_flow_start(g, fd, &to, wait_ms);
		return;
	}
	if (shortage)
		relay_limit(g, limit, shortage);
	else
		relay_refuse(g, &(struct endpoint){ 0 }, &itself);
	relay_reset_fd(fd);
}

struct relay *relay_new(const struct relay_config *config, struct err *err)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct relay *r = calloc(1, sizeof(*r));
	struct rlimit files;

	if (!r)
		goto undo;
	r->loop = config->loop;
	r->route_fd = config->route_fd;
	r->ports_max = config->ports ? config->ports : (uint32_t)PORTS_USUAL;
	r->work.run = relay_work;
	r->copy_buffer = malloc(RELAY_COPY_BYTES);
	LIST_INIT(&r->sandboxes);
	LIST_INIT(&r->dead_sandboxes);
	SLIST_INIT(&r->pipes);
	TAILQ_INIT(&r->ready);
	TAILQ_INIT(&r->changed);
	TAILQ_INIT(&r->dead);
	LIST_INIT(&r->spares);
	/* Half of the descriptors for flows, at two each, and an eighth for pipes: the
	 * rest is for DNS, so that no number of connections can take names away. */
	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		files.rlim_cur = 1024;
	files.rlim_cur = MIN(files.rlim_cur, (rlim_t)1 << 20);
	r->flows_max = (uint32_t)files.rlim_cur / 4;
	r->fds_max = (int)(files.rlim_cur - files.rlim_cur / FDS_SPARE_PART);
	r->pipes_max = MIN((uint32_t)files.rlim_cur / 16, (uint32_t)RELAY_PIPES_MAX);
	r->spare_fd = listeners_spare();
	/* splice() has no MSG_NOSIGNAL. */
	if (r->copy_buffer && r->spare_fd >= 0 && sigaction(SIGPIPE, &ignore, NULL) == 0)
		return r;
undo:
	err_sys(err, r && r->copy_buffer ? -errno : -ENOMEM, "start the relay");
	relay_free(r);
	return NULL;
}

/* Its flows are reset. */
static void served_end(struct relay_sandbox *g)
{
	struct relay *r = g->relay;

	listeners_close(&g->listeners);
	forget_change(g);
	while (!LIST_EMPTY(&g->flows))
		relay_flow_abort(LIST_FIRST(&g->flows));
	if (g->sandbox)
		g->sandbox->relayed = NULL;
	g->sandbox = NULL;
	LIST_REMOVE(g, link);
	LIST_INSERT_HEAD(&r->dead_sandboxes, g, link);
	relay_schedule(r);
}

void relay_free(struct relay *r)
{
	struct relay_sandbox *g;
	struct relay_flow *f;
	struct relay_pipe *p;

	if (!r)
		return;
	while ((g = LIST_FIRST(&r->sandboxes)))
		served_end(g);
	reap(r);
	while ((f = LIST_FIRST(&r->spares))) {
		LIST_REMOVE(f, in_sandbox);
		free(f);
	}
	while ((p = SLIST_FIRST(&r->pipes))) {
		SLIST_REMOVE_HEAD(&r->pipes, link);
		close(p->fd[0]);
		close(p->fd[1]);
		free(p);
	}
	if (r->spare_fd >= 0)
		close(r->spare_fd);
	free(r->copy_buffer);
	free(r);
}

/* @s NULL: many share the listeners. */
static int served_start(struct relay *r, struct sandbox *s, int listen4, int listen6)
{
	const int listen[] = { listen4, listen6 };
	struct relay_sandbox *g = calloc(1, sizeof(*g));
	int e;

	if (!g)
		return -ENOMEM;
	g->relay = r;
	g->sandbox = s;
	g->listeners = (struct listeners){ .loop = r->loop,
					   .on_connection = on_dialled,
					   .spare_fd = &r->spare_fd,
					   .batch = ACCEPT_BATCH };
	LIST_INIT(&g->flows);
	TAILQ_INIT(&g->ready);
	for (size_t i = 0; i < ARRAY_SIZE(listen); i++)
		if (listen[i] >= 0)
			relay_set_options(listen[i]);
	e = listeners_open(&g->listeners, listen);
	if (e < 0) {
		free(g);
		return e;
	}
	LIST_INSERT_HEAD(&r->sandboxes, g, link);
	if (s)
		s->relayed = g;
	return 0;
}

int relay_attach(struct relay *r, struct sandbox *s)
{
	const int *fds = s->fds.fd;

	return served_start(r, s, fds[SANDBOX_FD_RELAY4], fds[SANDBOX_FD_RELAY6]);
}

int relay_share(struct relay *r, const struct relay_shared *shared)
{
	r->shared = *shared;
	return served_start(r, NULL, shared->listen[0], shared->listen[1]);
}

void relay_detach(struct sandbox *s)
{
	if (s->relayed)
		served_end(s->relayed);
}

void relay_recheck(struct sandbox *s)
{
	struct relay_sandbox *g = s->relayed;
	struct relay_flow *f;

	if (!g || LIST_EMPTY(&g->flows))
		return;
	LIST_FOREACH(f, &g->flows, in_sandbox)
	{
		f->recheck = true;
	}
	g->unchecked = LIST_FIRST(&g->flows);
	if (!g->has_changed)
		TAILQ_INSERT_TAIL(&g->relay->changed, g, in_changed);
	g->has_changed = true;
	relay_schedule(g->relay);
}

bool relay_is_rechecking(const struct sandbox *s)
{
	return s->relayed && s->relayed->unchecked;
}

void relay_account(const struct sandbox *s)
{
	struct relay_sandbox *g = s->relayed;
	struct relay_flow *f;

	if (!g)
		return;
	LIST_FOREACH(f, &g->flows, in_sandbox)
	{
		relay_flow_account(f);
	}
}

/* ---- the machine's ports that connections to a server take ---- */

uint32_t relay_endpoint_hash(const struct endpoint *to)
{
	uint32_t h = to->port;

	for (size_t i = 0; i < addr_size(&to->addr); i++)
		h = h * 31 + to->addr.bytes[i];
	return h;
}

size_t ports_server(const struct endpoint *to)
{
	return relay_endpoint_hash(to) % PORTS_SERVERS;
}

/* Forget what has rested long enough. */
static void turn_to(struct ports_used *p, int64_t now_ms)
{
	const int64_t turn = now_ms / PORTS_TURN_MS;

	for (size_t i = 0; i < PORTS_SERVERS && p->turn < turn; i++) {
		int64_t from = MAX(p->turn, turn - PORTS_TURNS);

		while (from++ < turn)
			p->servers[i].resting[from % PORTS_TURNS] = 0;
	}
	p->turn = MAX(p->turn, turn);
}

static size_t taken(struct ports_used *p, size_t server, int64_t now_ms)
{
	size_t n = p->servers[server].open;

	turn_to(p, now_ms);
	for (size_t i = 0; i < PORTS_TURNS; i++)
		n += p->servers[server].resting[i];
	return n;
}

bool ports_take(struct ports_used *mine, struct ports_used *all, size_t server,
		size_t max, int64_t now_ms)
{
	if (!share_has_room(taken(mine, server, now_ms), taken(all, server, now_ms), max))
		return false;
	mine->servers[server].open++;
	all->servers[server].open++;
	return true;
}

void ports_give(struct ports_used *p, size_t server, bool rests, int64_t now_ms)
{
	turn_to(p, now_ms);
	p->servers[server].open--;
	p->servers[server].resting[p->turn % PORTS_TURNS] += rests;
}
