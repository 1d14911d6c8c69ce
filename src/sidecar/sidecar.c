// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     supervisor ──fork──> engine       serves DNS and relay, changes the rules
 *        └──exec──> weir-control    HTTP, files, log
 *
 * Both have a channel to the supervisor, and one to each other, which the supervisor
 * makes anew (IPC_PEER) whenever one of them has been replaced. What is in force (plan
 * and text) is the supervisor's to hold: control sends it after the engine has it in the
 * kernel, and answers its caller after that. So whoever dies, and whenever: the next
 * engine gets that plan, the next control that text, and a change that nobody was told of
 * is undone.
 *
 * A child that ends is started again at once; one that ends within a second of its start
 * waits, twice as long each time, up to RESTART_MAX_MS. The rules stand meanwhile. */
#include "sidecar/sidecar.h"
#include "supervisor/supervisor.h"

#include <errno.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/log.h"
#include "filter/filter.h"
#include "sidecar/healthy.h"
#include "sidecar/host_network.h"
#include "supervisor/program.h"
#include "sys/capabilities.h"

enum {
	STAND_MS = 10 * 1000, /* for the first ruleset */
	STOP_MS = 3000,	      /* control writes what it still has */
};

enum supervisor_status {
	SUPERVISOR_OK = 0,
	SUPERVISOR_FAILED = 1,
	SUPERVISOR_BAD_INPUT = 2,
};

/* -- signals ------------------------------------------------------------------------ */

static const int handled[] = { SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP };

/* Every rule stays. Control gets the time to write what it has. */
static void stop(struct supervisor *k)
{
	if (k->stopping)
		return;
	k->stopping = true;
	if (k->control.pid == 0 || kill(k->control.pid, SIGTERM) < 0 ||
	    loop_timer_start(k->loop, &k->stop, loop_now_ms(k->loop) + STOP_MS) < 0)
		loop_stop(k->loop);
}

static void on_stop_late(struct loop_timer *t)
{
	loop_stop(CONTAINER_OF(t, struct supervisor, stop)->loop);
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	struct supervisor *k = CONTAINER_OF(source, struct supervisor, signals);
	struct signalfd_siginfo info;

	while (read(source->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD)
			supervisor_reap(k);
		else if (info.ssi_signo != SIGHUP)
			stop(k);
		else if (k->control.pid > 0) /* its files were moved away */
			(void)!kill(k->control.pid, SIGHUP);
	}
}

static int open_signals(struct err *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
		sigaddset(&set, handled[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(err, -errno, "cannot block signals");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(err, -errno, "cannot open a signalfd") : fd;
}

/* -- starting ----------------------------------------------------------------------- */

/* The first engine: nothing goes on before its rules stand. */
static int first_engine(struct supervisor *k, struct err *err)
{
	struct pollfd wait = { .events = POLLIN };
	struct ipc_message m;
	size_t count = 0;
	int r = supervisor_fork_engine(k, err);

	if (r < 0)
		return r;
	wait.fd = k->engine.source.fd;
	if (poll(&wait, 1, STAND_MS) <= 0)
		r = err_set(err, -ETIMEDOUT, "the engine does not answer");
	else
		r = ipc_receive(k->engine.source.fd, &m, NULL, 0, &count);
	if (r < 0)
		return err->code < 0 ? r : err_sys(err, r, "the engine has ended");
	if (m.type == IPC_STANDS) {
		k->standing = m.standing;
		k->stands = true;
		return 0;
	}
	ipc_tame(m.text, sizeof(m.text));
	return err_set(err, -EPERM, "%s",
		       m.type == IPC_FAILED ? m.text
					    : "the engine said what is no answer");
}

int supervisor_check_right(struct err *err)
{
	if (capabilities_raise(CAP_NET_ADMIN))
		return 0;
	return err_set(
		err, -EPERM,
		"CAP_NET_ADMIN is missing: give it to the container, and let Weir "
		"run as uid 0 or without no_new_privs from a file that carries it");
}

/* Weaker than what was asked for only as far as the operator has spelled. */
static int enforce(struct supervisor *k, struct err *err)
{
	enum sidecar_unenforceable may =
		k->held.needs_full_isolation ? SIDECAR_FAIL : k->spec->on_unenforceable;
	struct err second = { 0 };
	int r;

	k->enforce = k->spec->mode == SIDECAR_MODE_DNS ? ENFORCED_REDIRECT
						       : ENFORCED_FILTER;
	r = supervisor_check_right(err);
	if (r == 0)
		r = first_engine(k, err);
	if (r == 0 || may == SIDECAR_FAIL)
		return r;
	snprintf(k->reason, sizeof(k->reason), "%s", err->text);
	supervisor_end_engine(k);
	if (k->enforce == ENFORCED_FILTER && may == SIDECAR_DNS) {
		k->enforce = ENFORCED_REDIRECT;
		r = first_engine(k, &second);
	}
	if (r < 0 && may == SIDECAR_OPEN) {
		supervisor_end_engine(k);
		k->enforce = ENFORCED_NOTHING;
		r = supervisor_deny_all(&k->held, &second);
		if (r == 0)
			r = first_engine(k, &second);
	}
	if (r == 0)
		log_warning("%s; going on with less, as --on-unenforceable says",
			    k->reason);
	return r;
}

int supervisor_prepare(struct supervisor *k, struct err *err)
{
	int fd, r;

	/* The token stands in the environment: not for whoever shares the process ids. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_sys(err, -errno, "cannot close /proc to others");
	supervisor_children_init(k);
	k->stop.on_fire = on_stop_late;
	k->loop = loop_new();
	if (!k->loop)
		return err_set(err, -ENOMEM, "out of memory");
	fd = open_signals(err);
	if (fd < 0)
		return fd;
	k->signals = (struct loop_source){ .fd = fd, .on_ready = on_signal };
	r = loop_add(k->loop, &k->signals, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot watch signals") : 0;
}

static int remove_rules(struct err *err)
{
	struct sandbox_fds fds;
	struct filter_conn conn = { .fd = -1 };
	int r;

	sandbox_fds_init(&fds);
	r = supervisor_check_right(err);
	if (r == 0)
		r = sandbox_netlink_open(&fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = filter_conn_init(&conn, fds.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0) {
		conn.naming = FILTER_NAMES_SHARED;
		r = filter_remove(&conn, err);
		if (r == -EPERM)
			err_context(err, "a sidecar still runs here; stop it first");
	}
	sandbox_fds_done(&fds);
	return r;
}

static int start(struct supervisor *k, struct err *err)
{
	int r = supervisor_prepare(k, err);

	if (r == 0 && k->spec->host_network_check) {
		r = host_network_check(err);
		if (r < 0)
			return err_context(
				err, "this looks like the host's own network namespace "
				     "(--host-network-check=off goes on)");
	}
	if (r == 0)
		r = helper_check(k->control.name, err);
	if (r == 0 && k->spec->webhook_count + k->spec->review_webhook_count > 0)
		r = helper_check(k->webhook.name, err);
	if (r == 0 && k->spec->postgres)
		r = helper_check(k->postgres.name, err);
	if (r == 0 && k->spec->review_command)
		r = helper_check(PROGRAM_EVENTS, err);
	if (r == 0)
		r = supervisor_open(k->spec, &k->held, err);
	if (r < 0)
		return r;
	/* It loads its libraries while the engine installs the rules. */
	supervisor_start_control(k);
	r = enforce(k, err);
	if (r == 0)
		r = supervisor_listen(&k->held, err);
	if (r == 0)
		r = supervisor_watch_engine(k);
	return r;
}

int supervisor_run(struct sidecar_spec *spec)
{
	struct supervisor k = {
		.spec = spec,
		.engine.name = "the engine",
		.control.name = "weir-control",
		.webhook.name = "weir-webhook",
		.postgres.name = "weir-postgres",
		.review.name = "weir-review",
	};
	struct err err = { 0 };
	int r;

	supervisor_held_init(&k.held);
	if (spec->remove)
		r = remove_rules(&err);
	else if (spec->healthy)
		r = healthy_ask(spec, &err);
	else
		r = start(&k, &err);
	if (r < 0) {
		if (err.text[0])
			log_error("%s", err.text);
		return r == -EINVAL ? SUPERVISOR_BAD_INPUT : SUPERVISOR_FAILED;
	}
	if (spec->remove || spec->healthy)
		return SUPERVISOR_OK;
	supervisor_introduce(&k);
	r = loop_run(k.loop);
	/* Whoever waits for our end may start another one, or remove the rules. */
	supervisor_end_engine(&k);
	loop_free(k.loop);
	return r < 0 ? SUPERVISOR_FAILED : k.status;
}
