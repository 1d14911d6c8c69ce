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
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "daemon/internal.h"
#include "sys/files.h"
#include "sys/process.h"

enum { CHANNEL_FD = 3, NEW_MS = 1000 };

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

int engines_listen_to_first(struct daemon *w, int channel, struct err *err)
{
	int r = process_dont_wait(channel);

	w->parent = (struct loop_source){ .fd = channel, .on_ready = on_first };
	if (r == 0)
		r = loop_add(w->supervisor.loop, &w->parent, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the first engine's supervisor") : 0;
}

/* -- in the first daemon's ---------------------------------------------------------- */

static void introduce(struct child *c)
{
	const struct further *f = CONTAINER_OF(c, struct further, child);
	const struct ipc_message m = {
		.type = IPC_ENGINE,
		.sandbox = f->number,
		.status.restarts = c->restarts,
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
	const struct further *f = CONTAINER_OF(c, struct further, child);
	char name[16];
	pid_t pid;

	snprintf(name, sizeof(name), "weir-daemon-%u", f->number % IPC_ENGINES_MAX);
	pid = process_fork(name);
	if (pid != 0)
		return pid;
	/* Close what the first daemon has open, but for the channel. */
	if (setsid() < 0 ||
	    (channel != CHANNEL_FD && dup3(channel, CHANNEL_FD, O_CLOEXEC) < 0) ||
	    syscall(SYS_close_range, CHANNEL_FD + 1, ~0u, 0) < 0)
		_exit(RUN_STATUS_FAILED);
	_exit(daemon_run_further(f->daemon->supervisor.spec, f->number, CHANNEL_FD));
}

static void on_further(struct child *c, struct ipc_message *m, int *fds, size_t count)
{
	if (m->type != IPC_ACTIVE)
		return;
	c->serves = true;
	c->unanswered = 0;
	daemon_notify_ready(CONTAINER_OF(c, struct further, child)->daemon);
}

/* A further daemon answers only while its engine serves or gets sandboxes, and kills its
 * engine itself. */
static const struct child_kind further_kind = { .has_channel = true,
						.is_asked = true,
						.start = further_fork,
						.on_start = introduce,
						.on_message = on_further };

int engines_add(struct daemon *w, struct err *err)
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
		SLIST_REMOVE(&w->supervisor.children, &f->child, child, next);
		free(f);
		return err_context(err, "cannot start another engine");
	}
	w->engines[number] = f;
	w->engine_count++;
	return 0;
}

void engines_kill(struct daemon *w, uint32_t number)
{
	const struct child *c = number < w->engine_count && w->engines[number]
					? &w->engines[number]->child
					: NULL;

	/* One that control may not have heard of yet is not the one that is meant. */
	if (c && c->pid > 0 && clock_now_ms() - c->started_ms >= NEW_MS)
		(void)!kill(c->pid, SIGKILL);
}

bool engines_are_active(const struct daemon *w)
{
	for (size_t i = 1; i < w->engine_count; i++)
		if (!w->engines[i]->child.serves)
			return false;
	return true;
}

/* -- descriptors for another sandbox ------------------------------------------------ */

/* Each network namespace takes descriptors of the daemon's and of its engine's. What both
 * may have (RLIMIT_NOFILE) is never used up by them: a quarter is for connections. So a
 * namespace is told that there is no room before anything of it is opened, and may go to
 * another engine; sandboxes of the host's own, which have none, may use what is left. */

enum {
	FDS_NAMESPACE = SANDBOX_FD_COUNT + 1, /* its own */
	/* For another namespace at most: its own, a plan, the process that names it. */
	FDS_NEXT = FDS_NAMESPACE + 2,
	/* That stay free: for one more sandbox while it is attached, and for answers. */
	FDS_SPARE = 64,
};

static int refuse_for_fds(size_t used, const struct rlimit *files, struct err *err)
{
	return err_set(err, -EMFILE,
		       "the daemon has too few descriptors for another sandbox: %zu of "
		       "%llu are in use (RLIMIT_NOFILE)",
		       used, (unsigned long long)files->rlim_cur);
}

/* A sandbox from before has had its descriptors, but maybe in another engine: it may
 * use more. */
static rlim_t fd_budget(bool restarted, const struct rlimit *files)
{
	return restarted ? files->rlim_cur / 5 * 4 : files->rlim_cur / 4 * 3;
}

int fd_budget_check(const struct daemon_sandbox *d, struct err *err)
{
	const struct daemon *w = d->daemon;
	size_t used = w->fd_count + w->plan_count;
	struct rlimit files;

	if (d->spec.kind != ATTACH_NETNS || getrlimit(RLIMIT_NOFILE, &files) < 0 ||
	    used + FDS_NEXT <= fd_budget(d->life.origin != LIFECYCLE_NEW, &files))
		return 0;
	return refuse_for_fds(used, &files, err);
}

size_t fd_count_of(const struct daemon_sandbox *d)
{
	size_t count = (size_t)(d->route_fd >= 0) + (size_t)(d->process.fd >= 0);

	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		count += d->fds.fd[i] >= 0;
	return count;
}

int fd_budget_check_opened(const struct daemon_sandbox *d, struct err *err)
{
	int highest = MAX(d->plan->fd, d->route_fd);
	struct rlimit files;
	size_t used;

	/* New descriptors get the lowest numbers that are free: as many as the highest of
	 * these says are in use, or nearly. */
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		highest = MAX(highest, d->fds.fd[i]);
	used = (size_t)highest + 1;

	if (d->life.origin != LIFECYCLE_NEW || getrlimit(RLIMIT_NOFILE, &files) < 0 ||
	    used + FDS_SPARE <= files.rlim_cur)
		return 0;
	return refuse_for_fds(used, &files, err);
}

/* -- which engine has which folder, at a start -------------------------------------- */

/* Each engine has a folder with what its sandboxes need after a restart, and its daemon
 * looks nowhere else. So before there is any daemon but the first, folders are moved: all
 * those of engines that there won't be, to the engines that have the fewest; and network
 * namespaces that an engine has no room for, if another one has. */

enum { DIR_MODE = 0700 };

struct rebalance {
	int root;
	size_t engines;
	bool may_grow;
	size_t least, most; /* namespaces that an engine's budget allows */
	size_t counts[IPC_ENGINES_MAX];
	size_t seen; /* namespaces of the engine that has too many */
};

static void count_one(struct rebalance *d, uint32_t engine, const char *name)
{
	d->counts[engine]++;
}

/* The engine that has the fewest. */
static uint32_t find_least(struct rebalance *d)
{
	uint32_t least = 0;

	for (uint32_t i = 1; i < d->engines; i++)
		if (d->counts[i] < d->counts[least])
			least = i;
	if (d->counts[least] >= d->least && d->may_grow && d->engines < IPC_ENGINES_MAX)
		least = (uint32_t)d->engines++;
	return least;
}

static void move_one(struct rebalance *d, uint32_t engine, const char *name)
{
	char from[STATE_FOLDER_SIZE + NAME_MAX + 2], to[STATE_FOLDER_SIZE + NAME_MAX + 2];
	char folder[STATE_FOLDER_SIZE];
	uint32_t least = find_least(d);

	state_folder_name(engine, folder);
	snprintf(from, sizeof(from), "%s/%s", folder, name);
	state_folder_name(least, folder);
	if (least > 0)
		(void)!mkdirat(d->root, folder, DIR_MODE);
	snprintf(to, sizeof(to), "%s/%s", folder, name);
	if (renameat(d->root, from, d->root, to) < 0)
		log_warning("cannot give '%s' to another engine: %s; its rules stay as "
			    "they are",
			    name, strerror(errno));
	else
		d->counts[least]++;
}

/* Move a namespace that is over the engine's budget, as long as another engine has
 * some left. */
static void spread_one(struct rebalance *d, uint32_t engine, const char *name)
{
	char path[STATE_FOLDER_SIZE + NAME_MAX + 2], folder[STATE_FOLDER_SIZE];
	struct daemon_sandbox given = { 0 };
	CLEAN(fd) int state = -1;

	state_folder_name(engine, folder);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	state = state_folder_open(d->root, path);
	if (state < 0 || state_read(state, name, &given) != 0 ||
	    given.spec.kind != ATTACH_NETNS || ++d->seen <= d->least ||
	    d->counts[find_least(d)] >= d->least)
		return;
	d->counts[engine]--;
	move_one(d, engine, name);
}

/* An engine without a folder has nothing. */
static int each_of(struct rebalance *d, uint32_t engine,
		   void (*fn)(struct rebalance *d, uint32_t engine, const char *name),
		   struct err *err)
{
	char folder[STATE_FOLDER_SIZE];
	CLEAN(directory) DIR *dir = NULL;
	const struct dirent *e;

	state_folder_name(engine, folder);
	dir = directory_open(state_folder_open(d->root, folder));
	while (dir && (e = directory_next(dir)))
		if (e->d_name[0] != '.')
			fn(d, engine, e->d_name);
	return errno == 0 || (!dir && errno == ENOENT)
		       ? 0
		       : err_sys(err, -errno, "cannot read which sandboxes engine %u had",
				 engine);
}

int engines_rebalance(struct daemon *w, size_t wanted, size_t *ret, struct err *err)
{
	struct rlimit files;
	char folder[STATE_FOLDER_SIZE];
	size_t fds = SIZE_MAX;
	struct rebalance d = { .root = w->state_root, .engines = MAX(wanted, (size_t)1) };
	int r = 0;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0)
		fds = (size_t)fd_budget(false, &files);
	d.least = MAX(fds / FDS_NEXT, (size_t)1);
	d.most = MAX(fds / FDS_NAMESPACE, (size_t)1);
	for (uint32_t i = 0; r == 0 && i < IPC_ENGINES_MAX; i++) {
		r = each_of(&d, i, count_one, err);
		if (wanted == 0 && d.counts[i] > 0)
			d.engines = i + 1;
	}
	/* Empty and remove the folders of engines that are not wanted any more. */
	for (uint32_t i = (uint32_t)d.engines; r == 0 && i < IPC_ENGINES_MAX; i++) {
		if (d.counts[i] > 0)
			r = each_of(&d, i, move_one, err);
		state_folder_name(i, folder);
		(void)!unlinkat(d.root, folder, AT_REMOVEDIR);
	}
	d.may_grow = wanted == 0;
	for (uint32_t i = 0; r == 0 && i < d.engines; i++) {
		d.seen = 0;
		if (d.counts[i] > d.most)
			r = each_of(&d, i, spread_one, err);
	}
	if (r == 0)
		*ret = d.engines;
	return r;
}
