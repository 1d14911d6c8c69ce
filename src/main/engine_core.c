// SPDX-License-Identifier: Apache-2.0
#include "main/engine_core.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>

#include "filter/nflog.h"
#include "net/link.h"
#include "sandbox/learned.h"
#include "sandbox/refused.h"

enum {
	NFLOG_READS_MAX = 32, /* datagrams a turn; the rest waits for the next */
	EXPIRY_EVERY_MS = 1000,
};

/* ---- what the filter refused ---- */

static void on_packet(void *data, const struct nflog_packet *p)
{
	struct engine_core *c = data;

	refused_packet(&c->sandbox, p, loop_now_ms(c->loop));
}

void engine_core_drain_refused(struct engine_core *c)
{
	struct sandbox *s = &c->sandbox;

	for (int i = 0; i < NFLOG_READS_MAX; i++) {
		int r = nflog_read(s->fds.fd[SANDBOX_FD_NFLOG], on_packet, c);

		if (r == -ENOBUFS)
			s->counters[COUNT_PACKETS_LOST]++;
		else if (r <= 0)
			return;
	}
}

static void on_nflog(struct loop_source *source, uint32_t events)
{
	engine_core_drain_refused(CONTAINER_OF(source, struct engine_core, nflog));
}

int engine_core_watch_refused(struct engine_core *c, struct err *err)
{
	int fd = c->sandbox.fds.fd[SANDBOX_FD_NFLOG];
	int r = nflog_bind(fd, FILTER_NFLOG_GROUP, err);

	if (r < 0)
		return r;
	c->nflog = (struct loop_source){ .fd = fd, .on_ready = on_nflog };
	r = loop_add(c->loop, &c->nflog, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch the refused packets") : 0;
}

/* ---- the loop ---- */

static void start_expiry(struct engine_core *c)
{
	int64_t now_ms = loop_now_ms(c->loop);
	int64_t next_ms = learned_expire(c->sandbox.learned, now_ms);

	/* At most once a second: the kernel's own timeouts do the refusing. */
	if (next_ms < INT64_MAX &&
	    loop_timer_start(c->loop, &c->expiry,
			     MAX(next_ms, now_ms + EXPIRY_EVERY_MS)) < 0)
		loop_stop(c->loop);
}

static void on_expiry(struct loop_timer *t)
{
	start_expiry(CONTAINER_OF(t, struct engine_core, expiry));
}

static void on_turn_end(void *data)
{
	struct engine_core *c = data;

	dns_service_flush(c->dns);
	if (c->sandbox.learned && c->expiry.slot == 0)
		start_expiry(c);
}

int engine_core_init(struct engine_core *c, const struct dns_service_config *given,
		     struct err *err)
{
	struct dns_service_config dns = *given;
	struct relay_config relay = { 0 };

	if (getrandom(&c->key, sizeof(c->key), 0) != sizeof(c->key))
		return err_sys(err, -errno, "cannot get random bytes");
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
	c->relay = relay_new(&relay, err);
	if (!c->relay)
		return err->code;
	c->expiry.on_fire = on_expiry;
	loop_on_turn_end(c->loop, on_turn_end, c);
	return 0;
}

int engine_core_serve(struct engine_core *c, struct err *err)
{
	struct sandbox *s = &c->sandbox;
	int r = dns_service_attach(c->dns, s);

	if (r == 0 && s->relay)
		r = relay_attach(c->relay, s);
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

/* First above all the places that are wanted, then down to them: no two get in each
 * other's way. */
int engine_keep_only(int *const keep[], size_t count)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || setsid() < 0)
		return -errno;
	for (size_t i = 0; i < count; i++) {
		int high = *keep[i] < 0
				   ? -1
				   : fcntl(*keep[i], F_DUPFD_CLOEXEC, 3 + (int)count);

		if (*keep[i] >= 0 && high < 0)
			return -errno;
		*keep[i] = high;
	}
	for (int fd = 0; fd < 3; fd++)
		if (dup3(null, fd, O_CLOEXEC) < 0 && null != fd)
			return -errno;
	for (size_t i = 0; i < count; i++) {
		int place = 3 + (int)i;

		if (*keep[i] < 0) {
			close(place);
			continue;
		}
		if (dup3(*keep[i], place, O_CLOEXEC) < 0)
			return -errno;
		*keep[i] = place;
	}
	if (syscall(SYS_close_range, 3 + count, ~0u, 0) < 0)
		return -errno;
	return 0;
}
