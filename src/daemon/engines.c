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

#include "base/log.h"
#include "daemon/internal.h"

enum { CHANNEL_FD = 3 };

/* Another daemon, as the first one knows it. */
struct further {
	struct daemon *daemon; /* the first */
	uint32_t number;
	struct child child;
	char name[32];
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
	if (r == 0 && m.type == IPC_ALIVE && supervisor_is_alive(&w->supervisor))
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

static void introduce(struct child *c)
{
	const struct further *f = CONTAINER_OF(c, struct further, child);
	const struct ipc_message m = {
		.type = IPC_ENGINE,
		.sandbox = f->number,
		.standing.restarts = c->restarts,
	};
	const struct ipc_message peer = { .type = IPC_PEER };

	/* Without descriptors control hears of it when one of the two is started again.
	 */
	(void)!child_connect(&c->supervisor->control, &m, c, &peer);
}

void engines_introduce(struct supervisor *k)
{
	struct daemon *w = CONTAINER_OF(k, struct daemon, supervisor);

	for (size_t i = 1; i < w->engine_count; i++)
		introduce(&w->engines[i]->child);
}

static pid_t further_fork(struct child *c, int channel, struct err *err)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0)
		_exit(run(CONTAINER_OF(c, struct further, child), channel, parent));
	return pid < 0 ? -errno : pid;
}

static void on_further(struct child *c, struct ipc_message *m, int *fds, size_t count)
{
	if (m->type != IPC_STANDS)
		return;
	c->serves = true;
	c->unanswered = 0;
	daemon_tell_ready(CONTAINER_OF(c, struct further, child)->daemon);
}

/* It answers only while its engine serves, and kills that one itself. */
static const struct child_kind further_kind = { .has_channel = true,
						.is_asked = true,
						.start = further_fork,
						.on_start = introduce,
						.on_message = on_further };

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
	child_add(&w->supervisor, &f->child, f->name, &further_kind);
	r = child_start(&f->child, err);
	if (r < 0) {
		child_remove(&f->child);
		free(f);
		return err_context(err, "cannot start another engine");
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
	return w->engine == 0 ? add(w, err)
			      : err_set(err, -EPERM,
					"this is not the first engine's supervisor");
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
		if (!w->engines[i]->child.serves)
			return false;
	return true;
}
