// SPDX-License-Identifier: Apache-2.0
#include "engine/pin_names.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/core.h"
#include "engine/harden.h"
#include "resolver/resolver.h"
#include "resolver/upstream.h"
#include "sandbox/learned.h"
#include "sys/process.h"

enum {
	REPIN_MS = 24 * 3600 * 1000, /* never: it is over in RESOLVER_PIN_MS */
	PATIENCE_MS = RESOLVER_PIN_MS + 5000,
	RECORDS_MAX = 1 << 20,
};

/* What the child says, one by one. */
enum record_kind {
	RECORD_NONE = 0,
	RECORD_ADDR,
	RECORD_FAULT,
	RECORD_END,
	RECORD_FAILED
};

struct record {
	uint32_t kind;
	uint8_t has_some; /* 0 or not: the child may write any byte */
	struct dns_name name;
	struct addr addr;
	char why[160];
};

/* ---- the child ---- */

struct pinner {
	const struct render_names *names;
	int out;
	struct loop *loop;
	struct upstreams *upstreams;
	struct resolver *resolver;
	struct sandbox sandbox;
	struct loop_timer tick;
};

static void say(int out, const struct record *r)
{
	const char *at = (const char *)r;
	size_t left = sizeof(*r);

	while (left > 0) {
		ssize_t n = write(out, at, left);

		if (n <= 0 && errno != EINTR)
			_exit(1);
		at += n > 0 ? n : 0;
		left -= n > 0 ? (size_t)n : 0;
	}
}

static int op_send(void *data, uint32_t token, size_t server,
		   const struct sandbox *tcp_for, const void *message, size_t size)
{
	return upstreams_send(((struct pinner *)data)->upstreams, token, server, tcp_for,
			      message, size);
}

static void op_cancel(void *data, uint32_t token)
{
	upstreams_cancel(((struct pinner *)data)->upstreams, token);
}

/* There is no kernel behind it: the rules are yet to be written. */
static int op_commit(void *data, struct sandbox *s, const struct filter_learn *items,
		     size_t count)
{
	return 0;
}

static void op_reply(void *data, const struct resolver_client *client,
		     const void *message, size_t size)
{
}

static void op_random(void *data, void *bytes, size_t size)
{
	if (getrandom(bytes, size, 0) != (ssize_t)size)
		_exit(1);
}

static void on_message(void *data, uint32_t token, const void *message, size_t size)
{
	struct pinner *p = data;

	resolver_response(p->resolver, token, message, size, loop_now_ms(p->loop));
}

static void on_failed(void *data, uint32_t token, int error)
{
	struct pinner *p = data;

	resolver_send_failed(p->resolver, token, error, loop_now_ms(p->loop));
}

static void on_names_turn_end(void *data)
{
	struct pinner *p = data;
	int64_t at_ms;

	upstreams_flush(p->upstreams);
	resolver_flush(p->resolver, loop_now_ms(p->loop));
	at_ms = resolver_next_ms(p->resolver);
	if (at_ms < INT64_MAX && loop_timer_start(p->loop, &p->tick, at_ms) < 0)
		loop_stop(p->loop);
}

static void on_names_tick(struct loop_timer *t)
{
	struct pinner *p = CONTAINER_OF(t, struct pinner, tick);

	resolver_tick(p->resolver, loop_now_ms(p->loop));
}

static void say_addrs(struct pinner *p)
{
	struct record r = { .kind = RECORD_ADDR };
	struct addr list[LEARNED_ADDRS_MAX];

	for (uint32_t at = 0; plan_name_next(&p->sandbox.plan, &at, &r.name);) {
		size_t count = learned_addrs(p->sandbox.learned, &r.name, ADDR_NONE,
					     loop_now_ms(p->loop), list,
					     ARRAY_SIZE(list));

		for (size_t i = 0; i < count; i++) {
			r.addr = list[i];
			say(p->out, &r);
		}
	}
}

static void on_name_pinned(void *data, const struct resolver_unpinned *fault)
{
	struct pinner *p = data;
	struct record r = { .kind = fault ? RECORD_FAULT : RECORD_END };

	if (fault) {
		r.name = *fault->name;
		r.has_some = fault->stays;
		snprintf(r.why, sizeof(r.why), "%s", fault->why);
	} else {
		say_addrs(p);
	}
	say(p->out, &r);
	if (!fault)
		_exit(0);
}

static bool on_names_event(void *data, const struct event *e)
{
	return true;
}

static int open_sockets(struct pinner *p, struct err *err)
{
	const struct render_names *names = p->names;
	const struct resolver_ops ops = {
		.data = p,
		.send = op_send,
		.cancel = op_cancel,
		.commit = op_commit,
		.reply = op_reply,
		.random = op_random,
	};
	struct resolver_config config = { .upstream_count = names->upstream_count };
	const struct upstreams_ops from = { p, on_message, on_failed };

	op_random(p, &config.key, sizeof(config.key));
	p->loop = loop_new();
	p->resolver = p->loop ? resolver_new(&ops, &config) : NULL;
	p->sandbox = (struct sandbox){ .plan = *names->plan,
				       .state = SANDBOX_RUNNING,
				       .ipv6 = true,
				       .on_event = on_names_event };
	p->sandbox.learned = learned_new(&p->sandbox.plan, &config.key);
	if (p->loop)
		p->upstreams = upstreams_new(
			&(struct upstreams_config){ .loop = p->loop,
						    .servers = names->upstreams,
						    .count = names->upstream_count,
						    .ops = from });
	if (!p->resolver || !p->sandbox.learned || !p->upstreams)
		return err_set(err, -ENOMEM, "out of memory");
	p->tick.on_fire = on_names_tick;
	loop_on_turn_end(p->loop, on_names_turn_end, p);
	return 0;
}

static void child(const struct render_names *names, int out)
{
	struct pinner p = { .names = names, .out = out };
	int *const keep[] = { &p.out };
	struct record said = { .kind = RECORD_FAILED };
	char missing[ERR_TEXT_SIZE];
	struct err err = { 0 };
	int r;

	engine_reset_signals();
	if (engine_keep_only(keep, ARRAY_SIZE(keep)) < 0)
		return;
	r = harden_limits(&err);
	if (r == 0)
		r = open_sockets(&p, &err);
	if (r == 0)
		r = harden_engine(0, missing, &err);
	if (r == 0) {
		r = resolver_pin(p.resolver, &p.sandbox, REPIN_MS, on_name_pinned, &p,
				 loop_now_ms(p.loop));
		if (r < 0)
			err_sys(&err, r, "cannot resolve the names");
	}
	if (r >= 0) {
		on_names_turn_end(&p);
		(void)!loop_run(p.loop);
	}
	snprintf(said.why, sizeof(said.why), "%.150s", err.text);
	say(p.out, &said);
}

/* ---- who asked ---- */

/* Return: 1, a record; 0, the end; or -errno. */
static int next_record(int in, int64_t deadline_ms, struct record *ret)
{
	char *at = (char *)ret;
	size_t left = sizeof(*ret);

	while (left > 0) {
		struct pollfd p = { .fd = in, .events = POLLIN };
		int64_t wait_ms = deadline_ms - clock_now_ms();
		ssize_t n;

		if (wait_ms <= 0 || poll(&p, 1, (int)wait_ms) == 0)
			return -ETIMEDOUT;
		n = read(in, at, left);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return 0;
		at += n > 0 ? n : 0;
		left -= n > 0 ? (size_t)n : 0;
	}
	return 1;
}

static bool is_sound(const struct render_names *names, struct record *r)
{
	struct wire w = wire_reader(r->name.bytes, MIN(r->name.size, DNS_NAME_MAX));
	struct dns_name n;

	if (dns_name_read(&w, &n, NULL) < 0)
		return false;
	r->name = n;
	if (r->kind == RECORD_ADDR && r->addr.family != ADDR_V4 &&
	    r->addr.family != ADDR_V6)
		return false;
	return plan_match_name(names->plan, &r->name).action == POLICY_ALLOW;
}

static int listen_to(const struct render_names *names, int in, struct err *err)
{
	int64_t deadline_ms = clock_now_ms() + PATIENCE_MS;
	struct record r;

	for (size_t i = 0; i < RECORDS_MAX; i++) {
		int got = next_record(in, deadline_ms, &r);

		if (got <= 0)
			break;
		/* The child has read hostile bytes: its text is made printable. */
		ipc_sanitize(r.why, sizeof(r.why));
		if (r.kind == RECORD_END)
			return 0;
		if (r.kind == RECORD_FAILED && r.why[0])
			return err_set(err, -EIO, "%s", r.why);
		if ((r.kind != RECORD_ADDR && r.kind != RECORD_FAULT) ||
		    !is_sound(names, &r))
			break;
		if (r.kind == RECORD_ADDR)
			names->on_addr(names->data, &r.name, &r.addr);
		else
			names->on_fault(names->data, &r.name, r.why, r.has_some != 0);
	}
	return err_set(err, -EIO, "the process that resolves names has failed");
}

int pin_names(const struct render_names *names, struct err *err)
{
	pid_t pid;
	int fds[2], r;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	fflush(NULL);
	pid = process_fork("weir-names");
	if (pid == 0) {
		child(names, fds[1]);
		_exit(1);
	}
	close(fds[1]);
	if (pid < 0)
		r = err_sys(err, pid, "cannot start a process");
	else
		r = listen_to(names, fds[0], err);
	close(fds[0]);
	process_reap(pid, true);
	return r;
}
