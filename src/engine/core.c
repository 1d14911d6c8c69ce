// SPDX-License-Identifier: Apache-2.0
#include "engine/core.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "engine/host.h"
#include "sandbox/learned.h"
#include "sys/link.h"
#include "sys/process.h"
#include "sys/sock.h"

enum {
	EXPIRY_EVERY_MS = 1000,
	EXPIRIES_MAX = 1024, /* sandboxes a turn; the rest has the next one */
	VERIFY_EVERY_MS = 5, /* a namespace, of which each takes one or two */
	SLOTS_FIRST = 16,
	KEPT_FIRST = 3, /* descriptors that an engine keeps begin there */
};

/* ---- the sandboxes ---- */

int engine_core_add(struct engine_core *c, struct engine_sandbox *g)
{
	size_t slots = MAX(c->slots, c->count > 0 ? (size_t)SLOTS_FIRST : 1);
	uint32_t id = g->sandbox.id;
	struct engine_sandbox **grown;

	if (id >= ENGINE_SANDBOXES_MAX)
		return -ENOSPC;
	while (slots <= id)
		slots *= 2;
	if (slots > c->slots) {
		grown = reallocarray(c->sandboxes, slots, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		memset(grown + c->slots, 0, (slots - c->slots) * sizeof(*grown));
		c->sandboxes = grown;
		c->slots = slots;
	}
	if (c->sandboxes[id])
		return -EEXIST;
	c->sandboxes[id] = g;
	c->count++;
	c->host_count += g->kind == ATTACH_HOST;
	g->core = c;
	/* What it does adds up from now on. */
	if (!g->sandbox.accounting)
		g->sandbox.accounting = accounting_new(&c->events);
	return 0;
}

void engine_core_take_out(struct engine_core *c, struct engine_sandbox *g)
{
	if (engine_core_find(c, g->sandbox.id) != g)
		return;
	c->sandboxes[g->sandbox.id] = NULL;
	c->count--;
	c->host_count -= g->kind == ATTACH_HOST;
	g->core = NULL;
}

struct engine_sandbox *engine_core_find(const struct engine_core *c, uint32_t id)
{
	return id < c->slots ? c->sandboxes[id] : NULL;
}

/* ---- what was learned ends ---- */

/* Look at some of the sandboxes, and set the time to go on. */
static void on_expiry(struct loop_timer *t)
{
	struct engine_core *c = CONTAINER_OF(t, struct engine_core, expiry);
	const int64_t now_ms = loop_now_ms(c->loop);
	size_t last = MIN(c->slots, c->expiry_at + EXPIRIES_MAX);
	int64_t at_ms = now_ms, next_ms;

	for (; c->expiry_at < last; c->expiry_at++) {
		struct engine_sandbox *g = c->sandboxes[c->expiry_at];

		if (g && g->sandbox.learned)
			c->expiry_next_ms =
				MIN(c->expiry_next_ms,
				    learned_expire(g->sandbox.learned, now_ms));
	}
	if (c->expiry_at >= c->slots) {
		next_ms = c->expiry_next_ms;
		c->expiry_at = 0;
		c->expiry_next_ms = INT64_MAX;
		/* At most once a second: the kernel's own timeouts do the refusing. With
		 * many, going through all of them to see whether one has learned
		 * something costs too much. */
		at_ms = now_ms + EXPIRY_EVERY_MS;
		if (c->slots == 1)
			at_ms = MAX(next_ms, at_ms);
	}
	/* INT64_MAX: nothing is learned. */
	if (at_ms < INT64_MAX && loop_timer_start(c->loop, t, at_ms) < 0)
		loop_stop(c->loop);
}

/* What the kernel has open ends by timers that stand still in a suspend, while our time
 * goes on. The half of the slack: timers of the kernel that start late take the rest. */
void engine_core_look_for_suspend(struct engine_core *c, int64_t slept_ms)
{
	if (slept_ms - c->slept_ms <= LEARNED_SLACK_MS / 2)
		return;
	c->slept_ms = slept_ms;
	for (size_t i = 0; i < c->slots; i++) {
		struct engine_sandbox *g = c->sandboxes[i];

		if (g)
			g->is_late = g->kind != ATTACH_HOST &&
				     g->enforce != ENFORCED_NOTHING;
	}
	if (c->host)
		engine_host_renew(c->host);
	loop_timer_need(c->loop, &c->verify, 0);
}

static void on_turn_end(void *data)
{
	struct engine_core *c = data;

	dns_service_flush(c->dns);
	if (c->count > 0 && c->expiry.slot == 0)
		on_expiry(&c->expiry);
	engine_core_look_for_suspend(c, clock_slept_ms());
}

/* ---- others who change the rules ---- */

static void on_watch(struct loop_timer *t)
{
	struct engine_core *c = CONTAINER_OF(t, struct engine_core, watch);
	/* Sandboxes of the host's own namespace are audited all at once (host.c). */
	size_t wanted = c->count - c->host_count;
	size_t audits = 0, others = 0;

	for (size_t i = 0; i < c->slots && audits < wanted; i++) {
		struct engine_sandbox *g;

		if (audits >= ENGINE_AUDITS_MAX ||
		    (audits >= ENGINE_AUDITS_OWNED_MAX && others == 0))
			break;
		if (c->watch_at >= c->slots)
			c->watch_at = 0;
		g = c->sandboxes[c->watch_at++];
		if (!g || !engine_sandbox_audit(g))
			continue;
		audits++;
		others += !g->sandbox.filter.owner;
	}
	if (c->host)
		engine_host_audit(c->host);
	loop_timer_need(c->loop, t, ENGINE_WATCH_EVERY_MS);
}

/* ---- what was taken over, and what is late ---- */

static bool is_due(const struct engine_sandbox *g)
{
	return g && (g->is_unverified || g->is_late);
}

static void on_verify(struct loop_timer *t)
{
	struct engine_core *c = CONTAINER_OF(t, struct engine_core, verify);
	struct engine_sandbox *g = NULL;

	for (size_t i = 0; i < c->slots && !is_due(g); i++) {
		if (c->verify_at >= c->slots)
			c->verify_at = 0;
		g = c->sandboxes[c->verify_at++];
	}
	if (!is_due(g))
		return; /* none is left */
	/* What is staged is in no ruleset yet. */
	if (!g->change.is_under_way)
		engine_sandbox_verify(g);
	loop_timer_need(c->loop, t, is_due(g) ? ENGINE_VERIFY_AFTER_MS : VERIFY_EVERY_MS);
}

/* ---- the parts ---- */

int engine_core_init(struct engine_core *c, const struct dns_service_config *given,
		     struct err *err)
{
	struct dns_service_config dns = *given;
	struct relay_config relay = { 0 };

	if (getrandom(&c->key, sizeof(c->key), 0) != sizeof(c->key))
		return err_sys(err, -errno, "cannot get random bytes");
	c->slept_ms = clock_slept_ms();
	c->loop = loop_new();
	c->route_fd = link_route_open();
	if (!c->loop || c->route_fd < 0)
		return err_set(err, -ENOMEM, "cannot make the event loop");
	dns.loop = c->loop;
	dns.key = c->key;
	c->dns = dns_service_new(&dns, err);
	if (!c->dns)
		return err->code;
	relay.loop = c->loop;
	relay.route_fd = c->route_fd;
	relay.ports = sock_port_count();
	c->relay = relay_new(&relay, err);
	if (!c->relay)
		return err->code;
	if (engine_account_init(c) < 0)
		return err_set(err, -ENOMEM, "cannot start a timer");
	c->watch.on_fire = on_watch;
	c->verify.on_fire = on_verify;
	c->expiry.on_fire = on_expiry;
	c->expiry_next_ms = INT64_MAX;
	loop_on_turn_end(c->loop, on_turn_end, c);
	return 0;
}

static void look_up(struct sandbox *s, const struct dns_name *name, uint16_t type)
{
	struct engine_sandbox *g = CONTAINER_OF(s, struct engine_sandbox, sandbox);

	resolver_look_up(dns_service_resolver(g->core->dns), s, name, type,
			 loop_now_ms(g->core->loop));
}

int engine_core_serve(struct engine_core *c, struct sandbox *s, struct err *err)
{
	int r = dns_service_attach(c->dns, s);

	s->look_up = look_up;
	s->on_looked_up = relay_looked_up;
	if (r == 0 && s->relay) {
		r = relay_attach(c->relay, s);
		if (r < 0)
			dns_service_detach(c->dns, s);
	}
	return r < 0 ? err_sys(err, r, "cannot serve the sandbox's sockets") : 0;
}

/* ---- the process ---- */

void engine_reset_signals(void)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	sigset_t none;

	sigemptyset(&none);
	sigaction(SIGPIPE, &ignore, NULL);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

pid_t engine_fork(void (*run)(const void *config), const void *config, struct err *err)
{
	pid_t pid = process_fork("weir-engine");

	if (pid == -EAGAIN)
		return err_set(err, -EAGAIN,
			       "cannot start the engine: this user's limit of processes "
			       "is reached (ulimit -u)");
	if (pid < 0)
		return err_sys(err, pid, "cannot start the engine");
	if (pid > 0)
		return pid;
	/* Whoever takes the engine over is not to have the caller's keys, nor the API's
	 * token. */
	process_forget_environment();
	engine_reset_signals();
	run(config);
	/* No cleanup: the kernel takes everything back, but the rules. */
	_exit(0);
}

int engine_keep_only(int *const keep[], size_t count)
{
	int fds[PROCESS_FDS_MAX], null = open("/dev/null", O_RDWR | O_CLOEXEC), r;

	assert(count < ARRAY_SIZE(fds));
	if (null < 0 || setsid() < 0)
		return -errno;
	for (size_t i = 0; i < count; i++)
		fds[i] = *keep[i];
	fds[count] = null;
	r = process_place_fds(fds, count + 1, KEPT_FIRST, O_CLOEXEC);
	if (r < 0)
		return r;
	null = KEPT_FIRST + (int)count;
	for (int fd = 0; fd < KEPT_FIRST; fd++)
		if (dup3(null, fd, O_CLOEXEC) < 0)
			return -errno;
	close(null);
	for (size_t i = 0; i < count; i++)
		if (*keep[i] >= 0)
			*keep[i] = KEPT_FIRST + (int)i;
	return 0;
}
