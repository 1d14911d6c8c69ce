// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     supervisor ──fork──> engine       serves DNS and relay, changes the rules
 *        ├──exec──> weir-control        HTTP, files, log
 *        ├──exec──> weir-webhook, weir-postgres, the review command
 *        └──fork──> a daemon's: the supervisor of another engine
 *
 * Engine and control have a channel to the supervisor, and one to each other, which the
 * supervisor makes anew (IPC_PEER) whenever one of them has been replaced. What is in
 * force (plan and text) is the supervisor's to hold: control sends it after the engine
 * has it in the kernel, and answers its caller after that. So whoever dies, and whenever:
 * the next engine gets that plan, the next control that text, and a change that nobody
 * was told of is undone.
 *
 * All children are in one table. A child that ends is started again at once; one that
 * ends within a second of its start waits, twice as long each time, up to RESTART_MAX_MS.
 * The engine is asked every ASK_EVERY_MS whether it serves, and killed when it doesn't
 * answer. A child that has closed its channel counts as one that doesn't, and so does one
 * that has not read from it for so long that it is full. The rules stand meanwhile. */
#include "supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "sandbox/learned.h"
#include "supervisor/program.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/process.h"

enum {
	SETTLED_MS = 1000, /* a child that lives this long has started well */
	RESTART_MIN_MS = 20,
	RESTART_MAX_MS = 2000,
	/* An engine that doesn't answer is killed: after four times of asking one that is
	 * stopped or waits for something, after twenty one that is still at work. */
	ASK_EVERY_MS = 500,
	HUNG_ASKED = 4,
	BUSY_ASKED = 20,
	STOP_MS = 3000, /* control writes what it still has */
	/* Of messages that a child has not read: a daemon has one about each of ten
	 * thousand sandboxes at once when they all go. */
	ROOM_BYTES = 16 << 20,
};

/* -- any child: its channel --------------------------------------------------------- */

static void close_channel(struct child *c)
{
	if (c->source.fd < 0)
		return;
	if (c->source.added)
		loop_remove(c->supervisor->loop, &c->source);
	fd_close(&c->source.fd);
}

/* Hear @c from now on. */
static int hear_channel(struct child *c)
{
	const int room = ROOM_BYTES;
	int r = process_dont_wait(c->source.fd);

	/* Where that is refused there is one sandbox. */
	(void)!setsockopt(c->source.fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	return r < 0 ? r : loop_add(c->supervisor->loop, &c->source, EPOLLIN);
}

void child_notify(struct child *c, const struct ipc_message *m, const int *fd)
{
	if (c->source.fd >= 0 && ipc_send(c->source.fd, m, fd, fd ? 1 : 0) == -EAGAIN)
		close_channel(c);
}

int child_connect(struct child *a, const struct ipc_message *to_a, struct child *b,
		  const struct ipc_message *to_b)
{
	CLEAN(fd) int for_a = -1, for_b = -1;
	struct err ignored = { 0 };

	if (a->source.fd < 0 || b->source.fd < 0)
		return -ENOTCONN;
	if (process_pair(&for_a, &for_b, &ignored) < 0)
		return ignored.code;
	child_notify(a, to_a, &for_a);
	child_notify(b, to_b, &for_b);
	return 0;
}

static void on_alive(struct child *c)
{
	c->unanswered = 0;
	/* Another supervisor answers only while its own children serve or advance. */
	c->advances |= !c->kind->is_killed;
}

static void on_channel(struct loop_source *source, uint32_t events)
{
	struct child *c = CONTAINER_OF(source, struct child, source);
	struct ipc_message m;
	int fds[CHILD_FDS_MAX];
	size_t count = 0;
	int r = ipc_receive(source->fd, &m, fds, c->kind->fds_max, &count);

	if (r == -EAGAIN)
		return;
	if (r < 0)
		close_channel(c);
	else if (m.type == IPC_ALIVE && c->kind->is_asked)
		on_alive(c);
	else
		c->kind->on_message(c, &m, fds, count);
}

void child_hear(struct child *c)
{
	if (c->kind->has_channel && hear_channel(c) < 0)
		(void)!kill(c->pid, SIGKILL);
}

/* -- any child: start and end ------------------------------------------------------- */

int child_fork(struct child *c, struct err *err)
{
	const struct ipc_message m = { .type = c->kind->controls_channel };
	CLEAN(fd) int ours = -1, theirs = -1;
	pid_t pid;

	if ((c->kind->has_channel || m.type != IPC_NONE) &&
	    process_pair(&ours, &theirs, err) < 0)
		return err->code;
	pid = c->kind->start(c, theirs, err);
	if (pid > 0 && m.type != IPC_NONE)
		child_notify(&c->supervisor->control, &m, &ours);
	else if (pid > 0)
		c->source.fd = TAKE_FD(ours);
	if (pid < 0)
		return err->code < 0 ? (int)pid
				     : err_sys(err, (int)pid, "cannot start %s", c->name);
	if (pid == 0)
		return 0;
	c->pid = pid;
	c->started_ms = clock_now_ms();
	c->unanswered = 0;
	return 0;
}

int child_start(struct child *c, struct err *err)
{
	int r = child_fork(c, err);

	if (r < 0 || c->pid == 0)
		return r;
	child_hear(c);
	if (c->kind->on_start)
		c->kind->on_start(c);
	return 0;
}

/* Now, or after a pause. */
static void retry(struct child *c)
{
	struct loop *loop = c->supervisor->loop;
	int64_t now_ms = loop_now_ms(loop);
	bool settled = now_ms - c->started_ms >= SETTLED_MS;

	c->delay_ms = settled ? 0
			      : MIN(MAX(c->delay_ms * 2, (int64_t)RESTART_MIN_MS),
				    (int64_t)RESTART_MAX_MS);
	/* Without the memory for a timer: at once. */
	if (c->delay_ms == 0 ||
	    loop_timer_start(loop, &c->again, now_ms + c->delay_ms) < 0)
		c->again.on_fire(&c->again);
}

void child_start_if_needed(struct child *c)
{
	struct err err = { 0 };

	if (c->supervisor->stopping || c->pid != 0 || child_start(c, &err) == 0)
		return;
	log_error("%s", err.text);
	/* The next try is after a pause, however long ago the last start was. */
	c->started_ms = clock_now_ms();
	retry(c);
}

static void on_again(struct loop_timer *t)
{
	child_start_if_needed(CONTAINER_OF(t, struct child, again));
}

void child_add(struct supervisor *k, struct child *c, const char *name,
	       const struct child_kind *kind)
{
	*c = (struct child){
		.name = name,
		.kind = kind,
		.supervisor = k,
		.source = { .fd = -1, .on_ready = on_channel },
		.again.on_fire = on_again,
	};
	SLIST_INSERT_HEAD(&k->children, c, next);
}

static void on_end(struct child *c, int wait_status)
{
	char how[PROCESS_END_SIZE];

	c->pid = 0;
	c->serves = false;
	close_channel(c);
	if ((c->kind->on_end && !c->kind->on_end(c, wait_status)) ||
	    c->supervisor->stopping)
		return;
	c->restarts++;
	log_warning("%s %s; the rules stand, starting it again", c->name,
		    process_end_text(wait_status, how));
	retry(c);
}

/* Ours, and in a container everybody's orphans. */
static void reap(struct supervisor *k)
{
	struct child *c;
	int wait_status;
	pid_t pid;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		c = SLIST_FIRST(&k->children);
		while (c && c->pid != pid)
			c = SLIST_NEXT(c, next);
		if (c)
			on_end(c, wait_status);
	}
}

/* -- any child: does it serve? ------------------------------------------------------ */

/* It runs, or the kernel works for it. */
static bool is_at_work(pid_t pid)
{
	char path[32], text[256];
	const char *state;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	(void)file_read_kernel(AT_FDCWD, path, text, sizeof(text));
	state = strrchr(text, ')');
	return state && (strncmp(state, ") R", 3) == 0 || strncmp(state, ") D", 3) == 0);
}

static void ask(struct child *c)
{
	const struct ipc_message alive = { .type = IPC_ALIVE };

	c->unanswered++;
	child_notify(c, &alive, NULL);
}

/* Times of asking are counted, not time: a supervisor that was stopped together with its
 * engine finds the engine's answer before it has asked often enough. A child that has
 * closed its channel ends by itself; one that lives on was taken over, say, and would
 * have no successor. */
static void on_ask(struct loop_timer *t)
{
	struct supervisor *k = CONTAINER_OF(t, struct supervisor, ask);

	for (struct child *c = SLIST_FIRST(&k->children); c; c = SLIST_NEXT(c, next)) {
		const bool has_let_go = c->kind->has_channel && c->source.fd < 0;

		if (c->pid == 0 || (!c->kind->is_killed && !has_let_go))
			continue;
		if (c->unanswered >= HUNG_ASKED &&
		    (c->unanswered >= BUSY_ASKED || !is_at_work(c->pid))) {
			log_error("%s does not answer", c->name);
			(void)!kill(c->pid, SIGKILL);
		}
		ask(c);
	}
	if (!k->introduced)
		supervisor_introduce(k);
	loop_timer_need(k->loop, t, ASK_EVERY_MS);
}

bool supervisor_is_alive(struct supervisor *k)
{
	bool all = true;

	for (struct child *c = SLIST_FIRST(&k->children); c; c = SLIST_NEXT(c, next)) {
		if (!c->kind->is_asked)
			continue;
		all = all && (c->serves || c->advances) &&
		      c->unanswered <= (c->kind->is_killed ? HUNG_ASKED / 2 : 0);
		c->advances = false;
		if (!c->kind->is_killed)
			ask(c);
	}
	return all;
}

/* -- engine and control know each other --------------------------------------------- */

void supervisor_notify_status(struct supervisor *k)
{
	struct ipc_message m = { .type = IPC_ACTIVE, .status = k->status };

	m.status.restarts = k->engine.restarts;
	snprintf(m.status.weaker, sizeof(m.status.weaker), "%s", k->reason);
	if (k->engine.serves)
		child_notify(&k->control, &m, NULL);
}

void supervisor_introduce(struct supervisor *k)
{
	const struct ipc_message m = { .type = IPC_PEER };

	k->introduced = !k->engine.serves || k->control.source.fd < 0;
	if (k->introduced)
		return;
	supervisor_notify_status(k);
	/* Without descriptors or memory: it is tried again. */
	k->introduced = child_connect(&k->control, &m, &k->engine, &m) == 0;
	k->introduced_ms = clock_now_ms();
}

/* -- the engine --------------------------------------------------------------------- */

static pid_t engine_fork(struct child *c, int channel, struct err *err)
{
	struct supervisor *k = c->supervisor;
	struct engine_config config = {
		.supervisor_fd = channel,
		.attach_fd = -1,
		.filter = { .dns_port = SUPERVISOR_DNS_PORT,
			    .relay_port = SUPERVISOR_RELAY_PORT },
		.upstreams = k->spec->upstreams,
		.upstream_count = k->spec->upstream_count,
		.try_ms = (int64_t)k->spec->upstream_timeout_sec * 1000,
		.probe_every_ms = (int64_t)k->spec->probe_every_sec * 1000,
		.probe_name = k->spec->probe_name,
		.repin_ms = k->spec->repin_ms,
	};

	/* A file that somebody has cut short would kill every engine that maps it. */
	if (k->fds.snapshot_fd >= 0)
		(void)!ftruncate(k->fds.snapshot_fd, LEARNED_SNAPSHOT_SIZE);
	ipc_fds_init(&config.fds, NULL);
	k->ops->configure_engine(k, &config);
	return engine_start(&config, err);
}

static void on_engine(struct child *c, struct ipc_message *m, int *fds, size_t count)
{
	if (m->type != IPC_FAILED) {
		c->supervisor->ops->on_engine(c->supervisor, m);
		return;
	}
	ipc_sanitize(m->text, sizeof(m->text));
	log_error("the engine cannot go on: %s", m->text);
	/* One that says so leaves. One that was taken over might say so without end. */
	close_channel(c);
	(void)!kill(c->pid, SIGKILL);
}

static bool on_engine_end(struct child *c, int wait_status)
{
	if (c->supervisor->ops->on_engine_end)
		c->supervisor->ops->on_engine_end(c->supervisor);
	return true;
}

void supervisor_end_engine(struct supervisor *k)
{
	struct child *c = &k->engine;

	close_channel(c);
	process_reap(c->pid, true);
	c->pid = 0;
	c->serves = false;
	c->started_ms = 0;
}

/* -- control ------------------------------------------------------------------------ */

static pid_t control_fork(struct child *c, int channel, struct err *err)
{
	const struct supervisor *k = c->supervisor;
	const struct helper helper = {
		.program = c->name,
		.args = k->args,
		.fds =
			(const int[INHERITED_COUNT]){
				[INHERITED_SUPERVISOR] = channel,
				[INHERITED_HTTP] = k->fds.http_fd,
				[INHERITED_TEXT] = k->fds.text_fd,
				[INHERITED_TLS] = k->fds.tls_fd,
			},
		.fd_count = k->fds.tls_fd < 0 ? INHERITED_TLS : INHERITED_COUNT,
	};

	return helper_start(&helper);
}

static void on_control_start(struct child *c)
{
	struct supervisor *k = c->supervisor;

	if (k->ops->on_control_start)
		k->ops->on_control_start(k);
	supervisor_introduce(k);
	child_start_if_needed(&k->webhook);
	child_start_if_needed(&k->postgres);
	child_start_if_needed(&k->review);
}

/* A control that was taken over may keep the channels of all that it asked for: one is
 * killed before there is the next. A child of the spawner's has its number until the next
 * order, so that the pidfd is that child's. */
static void replace_socket_owner(struct supervisor *k)
{
	struct child *c = &k->socket_owner;
	struct err ignored = { 0 };

	if (k->socket_owner_pidfd >= 0)
		(void)!syscall(SYS_pidfd_send_signal, k->socket_owner_pidfd, SIGKILL,
			       NULL, 0);
	fd_close(&k->socket_owner_pidfd);
	if (child_start(c, &ignored) < 0 || c->pid <= 0)
		return;
	k->socket_owner_pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
	if (k->socket_owner_pidfd < 0)
		(void)!kill(c->pid, SIGKILL);
	/* Later that number may be another child's. */
	c->pid = 0;
}

/* The engine's successor starts with what is in force. An engine that control doesn't
 * know yet, or may not have heard of when it said so, is not the one that is meant. Of
 * one that is, control says so again. */
static void restart_stuck(struct supervisor *k)
{
	if (k->engine.pid > 0 && k->engine.serves && k->introduced &&
	    clock_now_ms() - k->introduced_ms >= SETTLED_MS)
		(void)!kill(k->engine.pid, SIGKILL);
}

static void on_control(struct child *c, struct ipc_message *m, int *fds, size_t count)
{
	struct supervisor *k = c->supervisor;
	const bool is_stuck = m->type == IPC_STUCK && m->sandbox == 0;

	if (m->type == IPC_SOCKET_OWNER)
		replace_socket_owner(k);
	else if (is_stuck)
		restart_stuck(k);
	else
		k->ops->on_control(k, m, fds, count);
	for (size_t i = 0; i < count; i++)
		clean_fd(&fds[i]);
}

static bool on_control_end(struct child *c, int wait_status)
{
	struct supervisor *k = c->supervisor;

	/* What keeps it from starting at all won't go away. */
	if (!k->stopping && c->restarts == 0 && WIFEXITED(wait_status) &&
	    loop_now_ms(k->loop) - c->started_ms < SETTLED_MS) {
		log_error("%s can't start; the rules stand", c->name);
		k->exit_status = RUN_STATUS_FAILED;
		k->stopping = true;
	}
	if (k->stopping)
		loop_stop(k->loop);
	return !k->stopping;
}

void supervisor_take_control(struct supervisor *k, int fd)
{
	close_channel(&k->control);
	k->control.source.fd = fd;
	if (hear_channel(&k->control) < 0)
		close_channel(&k->control);
	else
		supervisor_introduce(k);
}

/* -- the programs beside control ---------------------------------------------------- */

static bool needs_webhook(const struct supervisor *k)
{
	return k->spec->webhook_count + k->spec->review_webhook_count > 0;
}

/* When weir-webhook or control goes, so does the channel, and weir-webhook ends. */
static pid_t webhook_fork(struct child *c, int channel, struct err *err)
{
	const struct supervisor *k = c->supervisor;
	const struct helper helper = { .program = c->name,
				       .fds = &channel,
				       .fd_count = 1 };

	return needs_webhook(k) && k->control.pid != 0 ? helper_start(&helper) : 0;
}

static pid_t socket_owner_fork(struct child *c, int channel, struct err *err)
{
	return c->supervisor->ops->start_socket_owner(c->supervisor, channel);
}

/* weir-postgres and the review command read the store by themselves and speak to nobody
 * here. */
static pid_t reader_fork(struct child *c, int channel, struct err *err)
{
	const struct supervisor *k = c->supervisor;
	const bool is_review = c == &k->review;
	const bool is_needed = is_review ? k->spec->review_command != NULL
					 : k->spec->postgres != NULL;
	const struct helper helper = {
		.program = is_review ? PROGRAM_EVENTS : c->name,
		.service = is_review ? "review-command" : NULL,
		.args = k->args,
	};

	return is_needed && k->spec->state_dir ? helper_start(&helper) : 0;
}

int supervisor_check_programs(const struct supervisor *k, struct err *err)
{
	const struct {
		const char *program;
		bool is_needed;
	} programs[] = {
		{ k->control.name, true },
		{ k->webhook.name, needs_webhook(k) },
		{ k->postgres.name, k->spec->postgres != NULL },
		{ PROGRAM_EVENTS, k->spec->review_command != NULL },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(programs); i++)
		if (programs[i].is_needed)
			r = helper_check(programs[i].program, err);
	return r;
}

/* -- signals ------------------------------------------------------------------------ */

/* Every rule stays. Control gets the time to write what it has. */
static void stop(struct supervisor *k)
{
	if (k->stopping)
		return;
	k->stopping = true;
	if (k->control.pid == 0 || kill(k->control.pid, SIGTERM) < 0 ||
	    loop_timer_in(k->loop, &k->stop, STOP_MS) < 0)
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
			reap(k);
		else if (info.ssi_signo != SIGHUP)
			stop(k);
		else if (k->control.pid > 0) /* its files were moved away */
			(void)!kill(k->control.pid, SIGHUP);
	}
}

/* -- before the start --------------------------------------------------------------- */

int supervisor_check_right(struct err *err)
{
	if (capabilities_raise(CAP_NET_ADMIN))
		return 0;
	return err_set(
		err, -EPERM,
		"CAP_NET_ADMIN is missing: give it to the container, and let Weir "
		"run as uid 0 or without no_new_privs from a file that carries it");
}

static void add_children(struct supervisor *k)
{
	static const struct child_kind engine = { .has_channel = true,
						  .is_asked = true,
						  .is_killed = true,
						  .start = engine_fork,
						  .on_message = on_engine,
						  .on_end = on_engine_end };
	static const struct child_kind control = { .has_channel = true,
						   .fds_max = CHILD_FDS_MAX,
						   .start = control_fork,
						   .on_start = on_control_start,
						   .on_message = on_control,
						   .on_end = on_control_end };
	static const struct child_kind webhook = { .controls_channel = IPC_WEBHOOK,
						   .start = webhook_fork };
	static const struct child_kind owner = { .controls_channel = IPC_SOCKET_OWNER,
						 .start = socket_owner_fork };
	static const struct child_kind reader = { .start = reader_fork };

	child_add(k, &k->engine, "the engine", &engine);
	child_add(k, &k->control, "weir-control", &control);
	child_add(k, &k->webhook, "weir-webhook", &webhook);
	child_add(k, &k->socket_owner, "weir-sockowner", &owner);
	child_add(k, &k->postgres, "weir-postgres", &reader);
	child_add(k, &k->review, "weir-review", &reader);
	k->socket_owner_pidfd = -1;
}

int supervisor_prepare(struct supervisor *k, struct err *err)
{
	static const int handled[] = { SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP };
	int fd, r;

	/* The token stands in the environment: not for whoever shares the process ids. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0)
		return err_sys(err, -errno, "cannot close /proc to others");
	add_children(k);
	k->stop.on_fire = on_stop_late;
	k->ask.on_fire = on_ask;
	k->loop = loop_new();
	if (!k->loop)
		return err_set(err, -ENOMEM, "out of memory");
	fd = process_take_signals(handled, ARRAY_SIZE(handled), err);
	if (fd < 0)
		return fd;
	k->signals = (struct loop_source){ .fd = fd, .on_ready = on_signal };
	r = loop_add(k->loop, &k->signals, EPOLLIN);
	if (r < 0)
		return err_sys(err, r, "cannot watch signals");
	r = loop_timer_in(k->loop, &k->ask, ASK_EVERY_MS);
	return r < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
}
