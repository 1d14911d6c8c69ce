// SPDX-License-Identifier: Apache-2.0
#include "run/host_target.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sys/tasks.h"

enum {
	CLEAR_MS = 5000, /* killed processes may be slow to go */
	LOOK_MS = 5,
	/* A process that forks and ends while /proc is read is found by the next look:
	 * its number only grows, but for when all have been used once more. */
	LOOKS = 3,
};

int run_place_open(const struct run_spec *spec, uint32_t uid, struct run_place *ret,
		   struct err *err)
{
	char path[CGROUP_PATH_MAX];

	*ret = (struct run_place){ .uid = uid, .dir = -1 };
	if (uid == 0)
		return err_set(err, -EPERM,
			       "the command would be root, whom nothing holds on a host: "
			       "name a user with --uid");
	if (!spec->cgroup)
		return 0;
	/* As `weir attach` has it: from the root of the hierarchy. */
	snprintf(path, sizeof(path), "%s%s", spec->cgroup[0] == '/' ? "" : "/",
		 spec->cgroup);
	if (cgroup_make(path, &ret->cgroup, &ret->made, err) < 0)
		return err->code;
	ret->dir = open(ret->cgroup.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ret->dir < 0 ? err_sys(err, -errno, "cannot open the cgroup") : 0;
}

/* ---- a cgroup ---- */

static int open_in_cgroup(const struct run_place *p, const char *name, int flags)
{
	return openat(p->dir, name, flags | O_CLOEXEC);
}

/* With those below it. What can't be read counts as populated, what is gone does not. */
static bool is_populated(const struct run_place *p)
{
	CLEAN(fd) int fd = open_in_cgroup(p, "cgroup.events", O_RDONLY);
	char text[256];
	ssize_t n;

	if (fd < 0)
		return errno != ENOENT;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return errno != ENODEV;
	text[n] = '\0';
	return !strstr(text, "populated 0");
}

/* One by one, where the kernel has no cgroup.kill. */
static void kill_each(const struct run_place *p)
{
	CLEAN(fd) int fd = open_in_cgroup(p, "cgroup.threads", O_RDONLY);
	FILE *f = fd < 0 ? NULL : fdopen(TAKE_FD(fd), "r");
	char line[32];
	uint32_t pid;

	while (f && fgets(line, sizeof(line), f))
		if (text_to_u32(text_trim(text_of(line)), INT32_MAX, &pid) && pid > 1)
			kill((pid_t)pid, SIGKILL);
	if (f)
		fclose(f);
}

/* ---- a user ---- */

/* One of its four ids is @data's. A dead thread sends nothing. */
static int is_of(void *data, const struct task *t)
{
	const uint32_t *uid = data;
	CLEAN(fd) int fd = openat(t->dir, "status", O_RDONLY | O_CLOEXEC);
	char text[1024];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *state, *ids;
	struct text left, word;
	uint32_t number;

	if (n < 0)
		return -errno;
	text[n] = '\0';
	state = strstr(text, "\nState:\t");
	ids = strstr(text, "\nUid:\t");
	if (!state || !ids)
		return -EBADMSG;
	if (state[8] == 'Z' || state[8] == 'X')
		return 0;
	ids += 6;
	left = (struct text){ ids, strcspn(ids, "\n") };
	while (text_split(&left, '\t', &word))
		if (text_to_u32(word, UINT32_MAX, &number) && number == *uid)
			return 1;
	return 0;
}

static int is_process_of(void *data, int proc, pid_t pid)
{
	int r = tasks_each(proc, pid, is_of, data);

	return r == -ESRCH ? 0 : r;
}

static bool is_user_gone(uint32_t uid)
{
	for (int i = 0; i < LOOKS; i++)
		/* What can't be seen is a process. */
		if (tasks_each_process(is_process_of, &uid) != 0)
			return false;
	return true;
}

/* ---- the end ---- */

static bool is_clear(const struct run_place *p)
{
	return p->cgroup.path[0] ? !is_populated(p) : is_user_gone(p->uid);
}

bool run_place_clear(const struct run_place *p)
{
	const struct timespec wait = { .tv_nsec = LOOK_MS * 1000000 };
	int64_t end_ms = clock_now_ms() + CLEAR_MS;

	/* What is not ours to end is looked at once. */
	if (!p->made)
		return is_clear(p);
	while (!is_clear(p)) {
		if (clock_now_ms() > end_ms)
			return false;
		if (cgroup_kill(p->cgroup.path, NULL) < 0)
			kill_each(p);
		nanosleep(&wait, NULL);
	}
	return true;
}

void run_place_close(const struct run_place *p)
{
	if (p->made && rmdir(p->cgroup.path) < 0 && errno != ENOENT)
		log_warning("cannot remove the cgroup '%s': %s", p->cgroup.path,
			    strerror(errno));
	if (p->cgroup.path[0])
		close(p->dir);
}
