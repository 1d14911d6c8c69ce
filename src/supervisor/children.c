// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/internal.h"
#include "sandbox/learned.h"
#include "supervisor/program.h"
#include "supervisor/socket_owner.h"
#include "supervisor/supervisor.h"
#include "sys/inherited_fds.h"

enum {
	SETTLED_MS = 1000, /* a child that lives this long has started well */
	RESTART_MIN_MS = 20,
	RESTART_MAX_MS = 2000,
	/* An engine that doesn't answer is killed: after four looks one that is stopped
	 * or waits for something, after twenty one that is still at work. */
	ASK_EVERY_MS = 500,
	HUNG_LOOKS = 4,
	BUSY_LOOKS = 20,
};

/* -- channels ----------------------------------------------------------------------- */

void supervisor_close_channel(struct supervisor *k, struct child *c)
{
	if (c->source.fd < 0)
		return;
	if (c->source.added)
		loop_remove(k->loop, &c->source);
	close(c->source.fd);
	c->source.fd = -1;
}

int supervisor_open_channel(struct child *c)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	c->source.fd = fds[0];
	return fds[1];
}

static void tell(struct child *c, const struct ipc_message *m, const int *fd)
{
	/* Whoever doesn't read is about to be replaced. */
	if (c->source.fd >= 0)
		(void)!ipc_send(c->source.fd, m, fd, fd ? 1 : 0);
}

void supervisor_tell_standing(struct supervisor *k)
{
	struct ipc_message m = { .type = IPC_STANDS, .standing = k->standing };

	m.standing.restarts = k->engine.restarts;
	snprintf(m.standing.weaker, sizeof(m.standing.weaker), "%s", k->reason);
	if (k->stands)
		tell(&k->control, &m, NULL);
}

/* A fresh channel between the two, when both are there. */
void supervisor_introduce(struct supervisor *k)
{
	struct ipc_message m;
	int fds[2];

	k->introduced = !k->stands || k->control.source.fd < 0;
	if (k->introduced)
		return;
	supervisor_tell_standing(k);
	/* Without descriptors: it is tried again. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	k->introduced = true;
	m = (struct ipc_message){ .type = IPC_PEER };
	tell(&k->control, &m, &fds[0]);
	tell(&k->engine, &m, &fds[1]);
	close(fds[0]);
	close(fds[1]);
}

/* -- the engine --------------------------------------------------------------------- */

/* It runs, or the kernel works for it. */
static bool is_at_work(pid_t pid)
{
	char path[32], text[256] = "";
	const char *state;
	CLEAN(fd) int fd = -1;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
		return false;
	state = strrchr(text, ')');
	return state && (strncmp(state, ") R", 3) == 0 || strncmp(state, ") D", 3) == 0);
}

bool supervisor_engine_is_alive(const struct supervisor *k)
{
	return !k->engine.is_asked || k->engine.missed < HUNG_LOOKS / 2;
}

/* Looks are counted, not time: who was stopped together with its engine finds its answer
 * before it has looked often enough. */
static void ask_engine(struct supervisor *k)
{
	const struct ipc_message alive = { .type = IPC_ALIVE };
	struct child *c = &k->engine;

	if (c->pid == 0 || c->source.fd < 0)
		return;
	if (!c->is_asked) {
		c->is_asked = true;
		c->missed = 0;
		tell(c, &alive, NULL);
		return;
	}
	c->missed++;
	if (c->missed < HUNG_LOOKS || (c->missed < BUSY_LOOKS && is_at_work(c->pid)))
		return;
	log_error("%s does not answer", c->name);
	(void)!kill(c->pid, SIGKILL);
}

static void on_ask(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, ask);

	ask_engine(k);
	if (!k->introduced)
		supervisor_introduce(k);
	if (loop_timer_start(k->loop, t, loop_now_ms(k->loop) + ASK_EVERY_MS) < 0)
		loop_stop(k->loop);
}

static struct shared_config shared_config_of(const struct supervisor *k, int channel)
{
	const struct sidecar_spec *s = k->spec;
	bool filters = s->mode != SIDECAR_MODE_DNS;

	return (struct shared_config){
		.supervisor_fd = channel,
		.plan_fd = k->held.plan_fd,
		.snapshot_fd = k->held.snapshot_fd,
		.fds = k->held.fds,
		.enforce = k->enforce,
		.filter = {
			.relay = s->mode == SIDECAR_MODE_DNS_NFT_TLS &&
				 k->enforce == ENFORCED_FILTER,
			.mark = SUPERVISOR_MARK,
			.uid = geteuid(),
			.dns_port = SUPERVISOR_DNS_PORT,
			.relay_port = SUPERVISOR_RELAY_PORT,
			.exempt = s->exempt,
			.exempt_count = s->exempt_count,
			.doh = s->doh,
			.doh_count = s->block_doh_443 ? s->doh_count : 0,
			.refuse_443 = filters && s->block_doh_443 && s->doh_count == 0,
		},
		.upstreams = s->upstreams,
		.upstream_count = s->upstream_count,
		.try_ms = (int64_t)s->upstream_timeout_sec * 1000,
		.probe_every_ms = (int64_t)s->probe_every_sec * 1000,
		.probe_name = s->probe_name,
		.restarted = k->engine.started_ms > 0 || k->held.snapshot_found,
	};
}

/* Return: 0 with the engine's process started, or -errno. */
int supervisor_fork_engine(struct supervisor *k, struct err *err)
{
	int end = supervisor_open_channel(&k->engine);
	struct shared_config config;
	pid_t pid;

	if (end < 0)
		return err_sys(err, end, "cannot make a socket pair");
	/* A file that somebody has cut short would kill every engine that maps it. */
	if (k->held.snapshot_fd >= 0)
		(void)!ftruncate(k->held.snapshot_fd, LEARNED_SNAPSHOT_SIZE);
	config = k->daemon ? daemon_engine_config(k->daemon, end)
			   : shared_config_of(k, end);
	pid = shared_start(&config, err);
	close(end);
	if (pid < 0) {
		supervisor_close_channel(k, &k->engine);
		return (int)pid;
	}
	k->engine.pid = pid;
	k->engine.started_ms = clock_now_ms();
	k->engine.is_asked = false;
	return 0;
}

static void on_engine_message(struct supervisor *k, struct ipc_message *m)
{
	if (m->type == IPC_STANDS) {
		k->standing = m->standing;
		k->stands = true;
		supervisor_introduce(k);
	} else if (m->type == IPC_FAILED) {
		ipc_tame(m->text, sizeof(m->text));
		log_error("the engine cannot go on: %s", m->text);
	}
}

static void on_engine(struct loop_source *source, uint32_t events)
{
	struct supervisor *k = CONTAINER_OF(source, struct supervisor, engine.source);
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(source->fd, &m, NULL, 0, &count);

	if (r == 0 && m.type == IPC_ALIVE)
		k->engine.is_asked = false;
	else if (r == 0 && k->daemon)
		daemon_on_engine(k->daemon, &m);
	else if (r == 0)
		on_engine_message(k, &m);
	else if (r != -EAGAIN)
		supervisor_close_channel(k, &k->engine);
}

/* -- control ------------------------------------------------------------------------ */

/* This is in force now. */
static void keep(struct supervisor *k, const int *fds)
{
	close(k->held.plan_fd);
	close(k->held.text_fd);
	k->held.plan_fd = fds[0];
	k->held.text_fd = fds[1];
}

/* It ends with control's end of the channel, and control asks for the next one. */
static void start_socket_owner(struct supervisor *k)
{
	const struct ipc_message m = { .type = IPC_SOCKET_OWNER };
	int fds[2];

	/* Whoever is first in a container sees nobody else's processes. */
	if (getpid() == 1 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	if (socket_owner_start(fds[1]) > 0)
		tell(&k->control, &m, &fds[0]);
	close(fds[0]);
	close(fds[1]);
}

static void on_control(struct loop_source *source, uint32_t events)
{
	struct supervisor *k = CONTAINER_OF(source, struct supervisor, control.source);
	const struct ipc_message kept = { .type = IPC_KEPT };
	struct ipc_message m;
	size_t count = 0;
	int fds[2];
	int r = ipc_receive(source->fd, &m, fds, ARRAY_SIZE(fds), &count);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		supervisor_close_channel(k, &k->control);
		return;
	}
	if (k->daemon && (m.type != IPC_STUCK || m.sandbox != 0)) {
		daemon_on_control(k->daemon, &m, fds, count);
		return;
	}
	if (m.type == IPC_KEEP && count == 2) {
		keep(k, fds);
		tell(&k->control, &kept, NULL);
		return;
	}
	if (m.type == IPC_SOCKET_OWNER)
		start_socket_owner(k);
	/* Its successor starts with what is in force. */
	if (m.type == IPC_STUCK && k->engine.pid > 0)
		(void)!kill(k->engine.pid, SIGKILL);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

static int fork_control(struct supervisor *k)
{
	int end = supervisor_open_channel(&k->control);
	const int fds[PLACE_COUNT] = {
		[PLACE_SUPERVISOR] = end,
		[PLACE_HTTP] = k->held.http_fd,
		[PLACE_TEXT] = k->held.text_fd,
		[PLACE_TLS] = k->held.tls_fd,
	};
	const struct helper helper = {
		.program = k->control.name,
		/* The daemon's begin with "daemon". */
		.args = k->daemon ? k->spec->argv : k->spec->argv + 1,
		.fds = fds,
		.fd_count = k->held.tls_fd < 0 ? PLACE_TLS : PLACE_COUNT,
	};
	pid_t pid;

	if (end < 0)
		return end;
	pid = helper_start(&helper);
	close(end);
	if (pid < 0) {
		supervisor_close_channel(k, &k->control);
		return (int)pid;
	}
	k->control.pid = pid;
	k->control.started_ms = clock_now_ms();
	return 0;
}

/* -- the webhook's program ---------------------------------------------------------- */

/* Its channel is control's: when one of the two goes, it ends by itself. */
static int fork_webhook(struct supervisor *k)
{
	const struct ipc_message m = { .type = IPC_WEBHOOK };
	struct helper helper = { .program = k->webhook.name, .fd_count = 1 };
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	helper.fds = &fds[1];
	pid = helper_start(&helper);
	close(fds[1]);
	if (pid > 0) {
		k->webhook.pid = pid;
		k->webhook.started_ms = clock_now_ms();
		tell(&k->control, &m, &fds[0]);
	}
	close(fds[0]);
	return pid < 0 ? (int)pid : 0;
}

/* -- the copies in PostgreSQL ---------------------------------------------------------
 */

/* It reads the store by itself and speaks to nobody here. */
static void start_postgres(struct supervisor *k)
{
	const struct helper helper = { .program = k->postgres.name,
				       .args = k->daemon ? k->spec->argv
							 : k->spec->argv + 1 };
	pid_t pid;

	if (!k->spec->postgres || k->postgres.pid != 0)
		return;
	pid = helper_start(&helper);
	if (pid < 0) {
		supervisor_start_again(k, &k->postgres);
		return;
	}
	k->postgres.pid = pid;
	k->postgres.started_ms = clock_now_ms();
}

/* -- the command for review tasks ---------------------------------------------------
 */

static void start_review(struct supervisor *k)
{
	const struct helper helper = { .program = PROGRAM_EVENTS,
				       .service = "review-command",
				       .args = k->daemon ? k->spec->argv
							 : k->spec->argv + 1 };
	pid_t pid;

	if (!k->spec->review_command || k->review.pid != 0)
		return;
	pid = helper_start(&helper);
	if (pid < 0) {
		supervisor_start_again(k, &k->review);
		return;
	}
	k->review.pid = pid;
	k->review.started_ms = clock_now_ms();
}

/* -- children come and go ----------------------------------------------------------- */

int supervisor_watch_channel(struct supervisor *k, struct child *c)
{
	if (fcntl(c->source.fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	return loop_add(k->loop, &c->source, EPOLLIN);
}

void supervisor_start_again(struct supervisor *k, struct child *c)
{
	int64_t now_ms = loop_now_ms(k->loop);
	bool settled = now_ms - c->started_ms >= SETTLED_MS;

	c->delay_ms = settled ? 0
			      : MIN(MAX(c->delay_ms * 2, (int64_t)RESTART_MIN_MS),
				    (int64_t)RESTART_MAX_MS);
	/* Without the memory for a timer: at once. */
	if (c->delay_ms == 0 ||
	    loop_timer_start(k->loop, &c->again, now_ms + c->delay_ms) < 0)
		c->again.on_fire(&c->again);
}

static void start_engine(struct supervisor *k)
{
	struct err err = { 0 };
	int r = supervisor_fork_engine(k, &err);

	if (r == 0)
		r = supervisor_watch_channel(k, &k->engine);
	if (r < 0) {
		log_error("%s", err.code < 0 ? err.text : "cannot start the engine");
		supervisor_start_again(k, &k->engine);
	}
}

/* Only with a control that it could speak to. */
static void start_webhook(struct supervisor *k)
{
	if (k->spec->webhook_count + k->spec->review_webhook_count == 0 ||
	    k->webhook.pid != 0 || k->control.pid == 0)
		return;
	if (fork_webhook(k) < 0)
		supervisor_start_again(k, &k->webhook);
}

void supervisor_start_control(struct supervisor *k)
{
	int r = fork_control(k);

	if (r == 0)
		r = supervisor_watch_channel(k, &k->control);
	if (r < 0) {
		supervisor_start_again(k, &k->control);
		return;
	}
	/* Before that: it is not to take the first engine for all there are. */
	if (k->daemon)
		engines_introduce(k->daemon);
	supervisor_introduce(k);
	start_webhook(k);
	start_postgres(k);
	start_review(k);
}

static void on_review_again(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, review.again);

	if (!k->stopping)
		start_review(k);
}

static void on_postgres_again(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, postgres.again);

	if (!k->stopping)
		start_postgres(k);
}

static void on_webhook_again(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, webhook.again);

	if (!k->stopping)
		start_webhook(k);
}

static void on_engine_again(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, engine.again);

	if (!k->stopping)
		start_engine(k);
}

static void on_control_again(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, control.again);

	if (!k->stopping)
		supervisor_start_control(k);
}

void supervisor_count_end(struct child *c, int wait_status)
{
	c->restarts++;
	if (WIFSIGNALED(wait_status))
		log_warning(
			"%s was killed by signal %d; the rules stand, starting it again",
			c->name, WTERMSIG(wait_status));
	else
		log_warning("%s ended with status %d; the rules stand, starting it again",
			    c->name, WEXITSTATUS(wait_status));
}

static void on_end(struct supervisor *k, struct child *c, int wait_status)
{
	c->pid = 0;
	supervisor_close_channel(k, c);
	if (c == &k->engine) {
		k->stands = false;
		if (k->daemon)
			daemon_on_engine_end(k->daemon);
	}
	if (k->stopping) {
		if (c == &k->control)
			loop_stop(k->loop);
		return;
	}
	/* What keeps it from starting at all won't go away. */
	if (c == &k->control && c->restarts == 0 && WIFEXITED(wait_status) &&
	    loop_now_ms(k->loop) - c->started_ms < SETTLED_MS) {
		log_error("%s can't start; the rules stand", c->name);
		k->status = EXIT_FAILURE;
		loop_stop(k->loop);
		return;
	}
	supervisor_count_end(c, wait_status);
	supervisor_start_again(k, c);
}

/* Ours, and in a container everybody's orphans. */
void supervisor_reap(struct supervisor *k)
{
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		if (pid == k->engine.pid)
			on_end(k, &k->engine, wait_status);
		else if (pid == k->control.pid)
			on_end(k, &k->control, wait_status);
		else if (pid == k->webhook.pid)
			on_end(k, &k->webhook, wait_status);
		else if (pid == k->postgres.pid)
			on_end(k, &k->postgres, wait_status);
		else if (pid == k->review.pid)
			on_end(k, &k->review, wait_status);
		else if (k->daemon)
			engines_on_end(k->daemon, pid, wait_status);
	}
}

void supervisor_end_engine(struct supervisor *k)
{
	supervisor_close_channel(k, &k->engine);
	if (k->engine.pid > 0) {
		kill(k->engine.pid, SIGKILL);
		while (waitpid(k->engine.pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	k->engine.pid = 0;
	k->engine.started_ms = 0;
}

int supervisor_watch_engine(struct supervisor *k)
{
	int r = supervisor_watch_channel(k, &k->engine);

	k->ask.on_fire = on_ask;
	return r < 0 ? r
		     : loop_timer_start(k->loop, &k->ask,
					loop_now_ms(k->loop) + ASK_EVERY_MS);
}

void supervisor_take_control(struct supervisor *k, int fd)
{
	supervisor_close_channel(k, &k->control);
	k->control.source.fd = fd;
	if (supervisor_watch_channel(k, &k->control) < 0)
		supervisor_close_channel(k, &k->control);
	else
		supervisor_introduce(k);
}

void supervisor_children_init(struct supervisor *k)
{
	k->engine.source = (struct loop_source){ .fd = -1, .on_ready = on_engine };
	k->control.source = (struct loop_source){ .fd = -1, .on_ready = on_control };
	k->webhook.source.fd = k->postgres.source.fd = k->review.source.fd = -1;
	k->engine.again.on_fire = on_engine_again;
	k->control.again.on_fire = on_control_again;
	k->webhook.again.on_fire = on_webhook_again;
	k->postgres.again.on_fire = on_postgres_again;
	k->review.again.on_fire = on_review_again;
}
