// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 *     first daemon ──fork──> engine 0
 *        ├──exec──> weir-control
 *        ├──fork──> daemon 1 ──fork──> engine 1
 *        └──fork──> daemon 2 ──fork──> engine 2
 *
 * An engine and its daemon both hold the descriptors of every network namespace, of which
 * a process may have so many. So more engines have more daemons: each is what the first
 * one is, with sandboxes, a spawner and a folder of its own, but for what there is once:
 * control, what it listens to, the host's own sandboxes. It ends with the first one. That
 * has a channel to each, and gives control one, too: which sandbox goes where is
 * control's to say. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/internal.h"

enum { CHANNEL_FD = 3 };

/* Another daemon, as the first one knows it. */
struct further {
	struct daemon *daemon; /* the first */
	uint32_t number;
	struct child child;
	char name[32];
	bool stood; /* once */
	bool alive; /* it has answered since it was asked last */
};

/* -- in the other daemon's process -------------------------------------------------- */

static void on_first(struct loop_source *source, uint32_t events)
{
	struct daemon *w = CONTAINER_OF(source, struct daemon, parent);
	const struct ipc_message alive = { .type = IPC_ALIVE };
	struct ipc_message m;
	size_t count = 0;
	int fd = -1, r = ipc_receive(source->fd, &m, &fd, 1, &count);

	if (r == -EAGAIN)
		return;
	if (r == 0 && m.type == IPC_PEER && count == 1) {
		supervisor_take_control(&w->supervisor, fd);
		return;
	}
	if (r == 0 && count == 1)
		close(fd);
	if (r == 0 && m.type == IPC_ALIVE && w->supervisor.stands &&
	    supervisor_engine_is_alive(&w->supervisor))
		r = ipc_send(source->fd, &alive, NULL, 0);
	if (r < 0 && r != -EAGAIN)
		loop_stop(w->supervisor.loop);
}

int engines_hear_first(struct daemon *w, int channel, struct err *err)
{
	int r = fcntl(channel, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;

	w->parent = (struct loop_source){ .fd = channel, .on_ready = on_first };
	if (r == 0)
		r = loop_add(w->supervisor.loop, &w->parent, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the first engine's supervisor") : 0;
}

void engines_tell_first(struct daemon *w)
{
	const struct ipc_message m = { .type = IPC_STANDS };

	(void)!ipc_send(w->parent.fd, &m, NULL, 0);
}

/* What is open here is the first one's. */
static int begin(const struct further *f, int channel, pid_t parent)
{
	char name[16];

	snprintf(name, sizeof(name), "weir-daemon-%u", f->number % IPC_ENGINES_MAX);
	prctl(PR_SET_NAME, name);
	if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		return -errno;
	if (getppid() != parent)
		return -ESRCH;
	if (channel != CHANNEL_FD && dup3(channel, CHANNEL_FD, O_CLOEXEC) < 0)
		return -errno;
	return syscall(SYS_close_range, CHANNEL_FD + 1, ~0u, 0) < 0 ? -errno : 0;
}

static int run(const struct further *f, int channel, pid_t parent)
{
	struct sidecar_spec *spec = f->daemon->supervisor.spec;

	return begin(f, channel, parent) < 0
		       ? EXIT_FAILURE
		       : daemon_run_further(spec, f->number, CHANNEL_FD);
}

/* -- in the first daemon's ---------------------------------------------------------- */

static void introduce(struct further *f)
{
	struct ipc_message m = {
		.type = IPC_ENGINE,
		.sandbox = f->number,
		.standing.restarts = f->child.restarts,
	};
	const struct ipc_message peer = { .type = IPC_PEER };
	struct daemon *w = f->daemon;
	int fds[2];

	if (f->child.source.fd < 0 || w->supervisor.control.source.fd < 0 ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return;
	/* Whoever doesn't read is about to be replaced. */
	daemon_tell_control(w, &m, &fds[0]);
	(void)!ipc_send(f->child.source.fd, &peer, &fds[1], 1);
	close(fds[0]);
	close(fds[1]);
}

void engines_introduce(struct daemon *w)
{
	for (size_t i = 1; i < w->engine_count; i++)
		introduce(w->engines[i]);
}

static int fork_further(struct further *f)
{
	int end = supervisor_open_channel(&f->child);
	pid_t parent = getpid(), pid;

	if (end < 0)
		return end;
	pid = fork();
	if (pid == 0)
		_exit(run(f, end, parent));
	close(end);
	if (pid < 0) {
		supervisor_close_channel(&f->daemon->supervisor, &f->child);
		return -errno;
	}
	f->child.pid = pid;
	f->child.started_ms = clock_now_ms();
	/* That it ends is noticed, and another one is started. */
	if (supervisor_watch_channel(&f->daemon->supervisor, &f->child) < 0)
		(void)!kill(pid, SIGKILL);
	return 0;
}

static void start_again(struct loop_timer *t)
{
	struct further *f = CONTAINER_OF(t, struct further, child.again);

	if (f->daemon->supervisor.stopping)
		return;
	if (fork_further(f) < 0)
		supervisor_start_again(&f->daemon->supervisor, &f->child);
	else
		introduce(f);
}

static void on_further(struct loop_source *source, uint32_t events)
{
	struct further *f = CONTAINER_OF(source, struct further, child.source);
	struct ipc_message m;
	size_t count = 0;
	int r = ipc_receive(source->fd, &m, NULL, 0, &count);

	if (r == -EAGAIN)
		return;
	if (r < 0) {
		supervisor_close_channel(&f->daemon->supervisor, &f->child);
		return;
	}
	if (m.type == IPC_STANDS) {
		f->stood = true;
		daemon_tell_ready(f->daemon);
	}
	f->alive = m.type == IPC_STANDS || m.type == IPC_ALIVE;
}

void engines_on_end(struct daemon *w, pid_t pid, int wait_status)
{
	for (size_t i = 1; i < w->engine_count; i++) {
		struct further *f = w->engines[i];

		if (f->child.pid != pid)
			continue;
		f->child.pid = 0;
		f->alive = false;
		supervisor_close_channel(&w->supervisor, &f->child);
		if (w->supervisor.stopping)
			return;
		supervisor_count_end(&f->child, wait_status);
		supervisor_start_again(&w->supervisor, &f->child);
	}
}

static int add(struct daemon *w, struct err *err)
{
	uint32_t number = (uint32_t)w->engine_count;
	struct further *f = number < IPC_ENGINES_MAX ? calloc(1, sizeof(*f)) : NULL;
	int r;

	if (!f)
		return number < IPC_ENGINES_MAX
			       ? err_set(err, -ENOMEM, "out of memory")
			       : err_set(err, -EMFILE, "there are %d engines already",
					 IPC_ENGINES_MAX);
	f->daemon = w;
	f->number = number;
	snprintf(f->name, sizeof(f->name), "the supervisor of engine %u", number);
	f->child.name = f->name;
	f->child.source = (struct loop_source){ .fd = -1, .on_ready = on_further };
	f->child.again.on_fire = start_again;
	r = fork_further(f);
	if (r < 0) {
		free(f);
		return err_sys(err, r, "cannot start another engine");
	}
	w->engines[number] = f;
	w->engine_count++;
	return 0;
}

int engines_start(struct daemon *w, size_t count, struct err *err)
{
	int r = 0;

	while (r == 0 && w->engine_count < count)
		r = add(w, err);
	return r;
}

int engines_more(struct daemon *w, struct err *err)
{
	int r = w->engine == 0 ? add(w, err)
			       : err_set(err, -EPERM,
					 "this is not the first engine's supervisor");

	if (r == 0)
		introduce(w->engines[w->engine_count - 1]);
	return r;
}

void engines_kill(struct daemon *w, uint32_t number)
{
	if (number < w->engine_count && w->engines[number] &&
	    w->engines[number]->child.pid > 0)
		(void)!kill(w->engines[number]->child.pid, SIGKILL);
}

bool engines_stand(const struct daemon *w)
{
	for (size_t i = 1; i < w->engine_count; i++)
		if (!w->engines[i]->stood)
			return false;
	return true;
}

bool engines_alive(struct daemon *w)
{
	const struct ipc_message ask = { .type = IPC_ALIVE };
	bool all = true;

	for (size_t i = 1; i < w->engine_count; i++) {
		struct further *f = w->engines[i];

		all = all && f->alive;
		f->alive = false;
		if (f->child.source.fd >= 0)
			(void)!ipc_send(f->child.source.fd, &ask, NULL, 0);
	}
	return all;
}
