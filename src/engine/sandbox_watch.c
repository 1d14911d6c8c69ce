// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>

#include "engine/change.h"
#include "engine/core.h"
#include "engine/host.h"
#include "filter/nflog.h"
#include "sandbox/refused.h"
#include "sys/link.h"

enum {
	NFLOG_READS_MAX = 32, /* datagrams a turn; the rest waits for the next */
	ROUTES_MS = 1000,     /* between looks at them */
};

/* ---- what the filter refused ---- */

static void on_packet(void *data, const struct nflog_packet *p)
{
	struct engine_sandbox *g = data;

	refused_packet(&g->sandbox, p, loop_now_ms(g->core->loop));
}

/* What the kernel could not report it has counted: the next look brings it. */
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

static void on_nflog(struct loop_source *source, uint32_t events)
{
	(void)engine_sandbox_drain_refused(
		CONTAINER_OF(source, struct engine_sandbox, nflog));
}

int engine_sandbox_watch_refused(struct engine_sandbox *g, struct err *err)
{
	int fd = g->sandbox.fds.fd[SANDBOX_FD_NFLOG];
	int r = nflog_bind(fd, FILTER_NFLOG_GROUP, err);

	if (r < 0)
		return r;
	g->nflog = (struct loop_source){ .fd = fd, .on_ready = on_nflog };
	r = loop_add(g->core->loop, &g->nflog, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch the refused packets") : 0;
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

/* What our own transactions since then have made of it; the kernel never uses 0. */
static bool is_expected(const struct engine_sandbox_seen *seen,
			const struct filter_conn *c, uint32_t id)
{
	uint32_t ours = c->commits - seen->commits;
	uint32_t expected = seen->generation_id + ours;

	return id == expected || (expected < seen->generation_id && id == expected + 1);
}

int engine_sandbox_seen_look(struct engine_sandbox_seen *seen, struct filter_conn *c)
{
	uint32_t id;
	int r = filter_generation_id(c, &id);

	if (r < 0)
		return r;
	if (!is_expected(seen, c, id))
		return 1;
	remember(seen, c, id);
	return 0;
}

void engine_sandbox_tell_repair(struct engine_sandbox *g, int r)
{
	struct event event = {
		.action = EVENT_PANIC,
		.layer = EVENT_ADDRESS,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
	};

	snprintf(event.reason, sizeof(event.reason), "%s",
		 r < 0 ? "others have changed the filter; it can't be put back"
		       : "others had changed the filter; it was put back");
	sandbox_event(&g->sandbox, &event, loop_now_ms(g->core->loop));
}

static void look_after(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	struct err err = { 0 };
	int r;

	if (engine_sandbox_seen_look(&g->seen, &s->filter) <= 0)
		return;
	s->filter.unsure = true;
	r = sandbox_verify(s, &err);
	if (r < 0) {
		r = sandbox_repair(s, g->core->relay, loop_now_ms(g->core->loop), &err);
		engine_sandbox_tell_repair(g, r);
		g->told->on_standing(g);
	}
	/* Should it not stand, the next look sees that. */
	if (r == 0)
		engine_sandbox_seen_now(&g->seen, &s->filter);
}

/* ---- the way out ---- */

/* An address may come or go at any time: AAAA is served while there is a way out. What
 * the relay carries out of another namespace than ours needs two. */
void engine_sandbox_look_for_ipv6(struct engine_sandbox *g)
{
	bool out;

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

bool engine_sandbox_look(struct engine_sandbox *g)
{
	bool in_namespace = g->kind == ATTACH_SHARED || g->kind == ATTACH_NETNS;

	if (!in_namespace)
		return false;
	/* What is staged is in no ruleset yet. */
	if (g->enforce != ENFORCED_NOTHING && !g->change.is_under_way)
		look_after(g);
	if (g->routes_ms <= loop_now_ms(g->core->loop)) {
		g->routes_ms = loop_now_ms(g->core->loop) + ROUTES_MS;
		engine_sandbox_look_for_ipv6(g);
	}
	return true;
}
