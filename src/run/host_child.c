// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The child tells what failed through a pipe that the exec closes: when its end is read
 * without a word before it, the command runs. There is one thread, so the child may do
 * what any process may. What is closed first is closed for good: a socket of before the
 * cgroup would not be matched by it. */
#include "run/host_child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/enter.h"
#include "run/options.h"
#include "supervisor/init.h"
#include "sys/cgroup.h"
#include "sys/confine.h"
#include "sys/process.h"
#include "sys/tasks.h"

/* ---- where the command lives ---- */

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

enum {
	GROUPS_MAX = 256,
	NOBODY = 65534,
	TELL_FD = 3, /* the pipe, in the child */
};

/* ---- who it is ---- */

static bool has_group(const struct run_member *m, gid_t gid)
{
	bool has = m->gid == gid;

	for (size_t i = 0; i < m->group_count; i++)
		has = has || m->groups[i] == gid;
	return has;
}

static int take_own(struct run_member *m, struct err *err)
{
	int n = getgroups(GROUPS_MAX, m->groups);

	if (n < 0)
		return err_sys(err, -errno, "cannot read the groups");
	m->group_count = (size_t)n;
	m->gid = getegid();
	return 0;
}

/* Who has no entry has no group that anybody else has. */
static void take_users(struct run_member *m, const struct passwd *user, gid_t closed_gid)
{
	gid_t found[GROUPS_MAX];
	int n = GROUPS_MAX;

	m->becomes = true;
	m->gid = user ? user->pw_gid : NOBODY;
	if (!user || getgrouplist(user->pw_name, user->pw_gid, found, &n) < 0)
		return;
	for (int i = 0; i < n; i++)
		if (found[i] != closed_gid || closed_gid == 0)
			m->groups[m->group_count++] = found[i];
	m->name = strdup(user->pw_name);
	m->home = strdup(user->pw_dir);
	m->shell = strdup(user->pw_shell);
}

int run_member_find(const struct run_spec *spec, const struct run_place *place,
		    gid_t closed_gid, struct run_member *ret, struct err *err)
{
	*ret = (struct run_member){ .place = place, .argv = spec->argv };
	ret->groups = calloc(GROUPS_MAX, sizeof(*ret->groups));
	if (!ret->groups)
		return err_set(err, -ENOMEM, "out of memory");
	if (!spec->uid || place->uid == geteuid()) {
		if (take_own(ret, err) < 0)
			return err->code;
	} else {
		take_users(ret, getpwuid(place->uid), closed_gid);
	}
	if (closed_gid != 0 && has_group(ret, closed_gid))
		return err_set(err, -EPERM,
			       "the command could ask the daemon to guard it no more: it "
			       "would be of the group that may");
	return 0;
}

void run_member_done(struct run_member *m)
{
	free(m->groups);
	free((void *)(uintptr_t)m->name);
	free((void *)(uintptr_t)m->home);
	free((void *)(uintptr_t)m->shell);
	*m = (struct run_member){ 0 };
}

/* ---- the child ---- */

_Noreturn static void fail(const char *what, int error)
{
	char text[ERR_TEXT_SIZE];
	int n = snprintf(text, sizeof(text), "cannot %s: %s", what, strerror(error));

	(void)!write(TELL_FD, text, MIN((size_t)n, sizeof(text) - 1));
	_exit(RUN_STATUS_FAILED);
}

static void join_cgroup(const struct run_place *p)
{
	char path[CGROUP_PATH_MAX + 32];
	int fd;

	if (!p->cgroup.path[0])
		return;
	snprintf(path, sizeof(path), "%s/cgroup.procs", p->cgroup.path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		fail("join the cgroup", errno);
	close(fd);
}

static void become_user(const struct run_member *m)
{
	const uint64_t change = 1ULL << CAP_SETUID | 1ULL << CAP_SETGID;
	const uint32_t uid = m->place->uid;
	struct err err = { 0 };

	/* Nothing but this: the bounding set can be emptied with rights alone. */
	if (m->becomes && capabilities_keep(change, &err) < 0)
		fail("drop capabilities", -err.code);
	if (m->becomes &&
	    (setgroups(m->group_count, m->groups) < 0 ||
	     setresgid(m->gid, m->gid, m->gid) < 0 || setresuid(uid, uid, uid) < 0))
		fail("become the user", errno);
	if (geteuid() != uid || getuid() != uid)
		fail("become the user", EPERM);
	environ = (char **)(uintptr_t)m->environment;
	if (m->name) {
		setenv("USER", m->name, 1);
		setenv("LOGNAME", m->name, 1);
		setenv("HOME", m->home, 1);
		setenv("SHELL", m->shell, 1);
	}
}

static void give_up_rights(const struct run_member *m)
{
	struct err err = { 0 };
	int r;

	if (capabilities_keep(0, &err) < 0)
		fail("drop capabilities", -err.code);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("give up new privileges", errno);
	r = landlock_scope();
	/* By its user it is guarded whatever process it acts through. */
	if (r < 0 && (r != -EOPNOTSUPP || m->place->cgroup.path[0]))
		fail("keep it from acting through processes outside of the cgroup", -r);
	if (enter_filter(&err) < 0)
		fail("refuse the calls that no sandbox needs", -err.code);
}

_Noreturn static void child(const struct run_member *m, const sigset_t *mask, int tell,
			    pid_t parent)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };

	if (dup3(tell, TELL_FD, O_CLOEXEC) < 0 && tell != TELL_FD)
		_exit(RUN_STATUS_FAILED);
	if (syscall(SYS_close_range, TELL_FD + 1, ~0u, 0) < 0)
		fail("close what is inherited", errno);
	if (process_forbid_cores() < 0)
		fail("forbid cores", errno);
	join_cgroup(m->place);
	become_user(m);
	give_up_rights(m);
	/* Changing ids forgets it, so it is the last. */
	if (!process_end_with(parent))
		fail("end along with weir", errno);
	sigaction(SIGXFSZ, &by_default, NULL);
	sigprocmask(SIG_SETMASK, mask, NULL);
	command_become(m->argv);
}

/* ---- the parent ---- */

pid_t run_member_start(const struct run_member *m, const sigset_t *mask, struct err *err)
{
	char text[ERR_TEXT_SIZE];
	pid_t parent = getpid(), pid;
	int ends[2];
	ssize_t n;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	pid = process_fork(NULL);
	if (pid == 0)
		child(m, mask, ends[1], parent);
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return err_sys(err, pid, "cannot start a process");
	}
	while ((n = read(ends[0], text, sizeof(text) - 1)) < 0 && errno == EINTR)
		;
	close(ends[0]);
	if (n == 0)
		return pid;
	text[MAX(n, (ssize_t)0)] = '\0';
	process_reap(pid, true);
	return err_set(err, -EPERM, "%s", n > 0 ? text : "the child says nothing");
}
