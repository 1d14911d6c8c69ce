// SPDX-License-Identifier: Apache-2.0
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/exit_status.h"
#include "base/text.h"
#include "sys/files.h"

pid_t process_fork(const char *name)
{
	pid_t parent = getpid(), pid = fork();

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	if (name)
		prctl(PR_SET_NAME, name);
	if (!process_end_with(parent))
		_exit(RUN_STATUS_FAILED);
	return 0;
}

void process_forget_environment(void)
{
	for (char **e = environ; e && *e; e++)
		explicit_bzero(*e, strlen(*e));
}

int process_wait(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return status;
}

void process_reap(pid_t pid, bool kill_it)
{
	if (pid <= 0)
		return;
	if (kill_it)
		kill(pid, SIGKILL);
	(void)process_wait(pid);
}

char *process_end_text(int wait_status, char buf[PROCESS_END_SIZE])
{
	if (WIFSIGNALED(wait_status))
		snprintf(buf, PROCESS_END_SIZE, "was killed by signal %d",
			 WTERMSIG(wait_status));
	else
		snprintf(buf, PROCESS_END_SIZE, "ended with status %d",
			 WEXITSTATUS(wait_status));
	return buf;
}

int process_watch_parent(pid_t parent, int *ret_fd, struct err *err)
{
	CLEAN(fd) int fd = -1;

	*ret_fd = -1;
	if (parent == 0)
		return 0;
	fd = (int)syscall(SYS_pidfd_open, parent, 0);
	if (fd < 0 && errno != ESRCH)
		return err_sys(err, -errno, "cannot watch process %d", (int)parent);
	/* Asked after the descriptor was made, so that it is that process's. */
	if (fd < 0 || getppid() != parent)
		return err_set(err, -ESRCH, "process %d is not the parent", (int)parent);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

bool process_end_with(pid_t parent)
{
	return prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent;
}

void process_unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

int process_place_fds(const int *fds, size_t count, int first, int flags)
{
	const int end = first + (int)count;
	int high[PROCESS_FDS_MAX];

	if (count > PROCESS_FDS_MAX)
		return -E2BIG;
	/* First above all of them, so that none is overwritten. */
	for (size_t i = 0; i < count; i++) {
		high[i] = fds[i] < 0 ? -1 : fcntl(fds[i], F_DUPFD_CLOEXEC, end);
		if (fds[i] >= 0 && high[i] < 0)
			return -errno;
	}
	for (size_t i = 0; i < count; i++)
		if (high[i] < 0)
			close(first + (int)i);
		else if (dup3(high[i], first + (int)i, flags) < 0)
			return -errno;
	return syscall(SYS_close_range, end, ~0u, 0) < 0 ? -errno : 0;
}

int process_forbid_cores(void)
{
	const struct rlimit one = { 1, 1 }, none = { 0, 0 };

	if (setrlimit(RLIMIT_CORE, &one) == 0 || setrlimit(RLIMIT_CORE, &none) == 0)
		return 0;
	return -errno;
}

int process_raise_files(struct rlimit *ret)
{
	struct rlimit raised;

	if (getrlimit(RLIMIT_NOFILE, ret) < 0)
		return -errno;
	raised = (struct rlimit){ ret->rlim_max, ret->rlim_max };
	return setrlimit(RLIMIT_NOFILE, &raised) < 0 ? -errno : 0;
}

void process_die_by(int sig)
{
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	sigset_t set;

	(void)!process_forbid_cores();
	sigaction(sig, &by_default, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	kill(getpid(), sig);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
				 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };

int process_take_signals(const int *signals, size_t count, struct err *err)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (size_t i = 0; i < count; i++)
		sigaddset(&set, signals[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return err_sys(err, -errno, "cannot block signals");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? err_sys(err, -errno, "cannot open a signalfd") : fd;
}

int process_open_signals(struct err *err)
{
	int taken[ARRAY_SIZE(forwarded) + 1] = { SIGCONT };
	size_t count = 1;
	struct sigaction old;

	/* What our caller ignores (nohup) stays ignored, here and by the command. */
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			taken[count++] = forwarded[i];
	return process_take_signals(taken, count, err);
}

int process_pair(int *ret_ours, int *ret_theirs, struct err *err)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return err_sys(err, -errno, "cannot make a socket pair");
	*ret_ours = fds[0];
	*ret_theirs = fds[1];
	return 0;
}

int process_dont_wait(int fd)
{
	return fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

/* ---- what another program of Weir's is started with ---- */

/* ---- descriptors ---- */

int inherited_fds_take(const int *fds, size_t count, int last)
{
	int all[INHERITED_MAX + 1];

	if (count > INHERITED_MAX)
		return -E2BIG;
	for (size_t i = 0; i < INHERITED_MAX; i++) {
		if (i < count && fds[i] < 0)
			return -EBADF;
		all[i] = i < count ? fds[i] : -1;
	}
	all[INHERITED_MAX] = last;
	return process_place_fds(all, ARRAY_SIZE(all), INHERITED_FIRST, 0);
}

/* ---- arguments and environment ---- */

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* In front of the strings, each of which ends with a zero byte. */
struct head {
	uint32_t args, variables;
};

static int put(int fd, const void *bytes, size_t size)
{
	ssize_t n = write(fd, bytes, size);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -EIO;
}

int settings_make(char *const *args, char *const *environment)
{
	char *const *const lists[] = { args, environment };
	CLEAN(fd) int fd = memfd_create("weir-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct head head = { 0 };
	int r;

	while (args[head.args])
		head.args++;
	while (environment[head.variables])
		head.variables++;
	r = fd < 0 ? -errno : put(fd, &head, sizeof(head));
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (char *const *string = lists[i]; *string && r == 0; string++)
			r = put(fd, *string, strlen(*string) + 1);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	return r < 0 ? r : TAKE_FD(fd);
}

/* @count strings from *@at on, before @end; NULL: there are fewer. */
static char **take_strings(char **at, const char *end, uint32_t count)
{
	CLEAN(mem)
	char **strings =
		count > (size_t)(end - *at) ? NULL : calloc(count + 1, sizeof(*strings));

	for (uint32_t i = 0; strings && i < count; i++) {
		char *zero = memchr(*at, '\0', (size_t)(end - *at));

		if (!zero)
			return NULL;
		strings[i] = *at;
		*at = zero + 1;
	}
	return TAKE_PTR(strings);
}

int settings_take(int *argc, char ***argv)
{
	CLEAN(mem) char *bytes = NULL;
	CLEAN(mem) char **args = NULL;
	CLEAN(fd) int fd = -1;
	char *at, **variables;
	struct head head;
	struct stat st;
	size_t size;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if ((fcntl(SETTINGS_FD, F_GET_SEALS) & SEALS) != SEALS ||
	    fcntl(SETTINGS_FD, F_GET_SEALS) < 0)
		return 0;
	if (fstat(SETTINGS_FD, &st) < 0 || st.st_size > SETTINGS_MAX ||
	    st.st_size < (off_t)sizeof(head))
		return -EBADMSG;
	fd = SETTINGS_FD;
	size = (size_t)st.st_size;
	bytes = malloc(size);
	if (!bytes || pread(fd, bytes, size, 0) != (ssize_t)size)
		return bytes ? -EIO : -ENOMEM;
	memcpy(&head, bytes, sizeof(head));
	at = bytes + sizeof(head);
	args = take_strings(&at, bytes + size, head.args);
	variables = args ? take_strings(&at, bytes + size, head.variables) : NULL;
	if (!variables)
		return -EBADMSG;
	/* What is read stays for as long as the program lives. */
	*argc = (int)head.args;
	*argv = TAKE_PTR(args);
	environ = variables;
	(void)TAKE_PTR(bytes);
	return 0;
}

/* ---- where a program that Weir starts lies ---- */

/* @ret is written whether the program is there or not. */
static bool is_in_folder(struct text dir, const char *name, char *ret)
{
	int n = snprintf(ret, PROGRAM_PATH_SIZE, "%.*s/%s", (int)dir.len, dir.ptr, name);
	struct stat st;

	return n < PROGRAM_PATH_SIZE && stat(ret, &st) == 0 && S_ISREG(st.st_mode) &&
	       access(ret, X_OK) == 0;
}

int program_path(const char *name, char *ret, struct err *err)
{
	static const char *const places[] = { "/usr/bin",  "/bin",  "/usr/local/bin",
					      "/usr/sbin", "/sbin", "/usr/local/sbin" };
	struct text rest = text_of(getenv("PATH") ?: ""), dir;
	struct err refused = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (is_in_folder(text_of(places[i]), name, ret))
			return 0;
	while (text_split(&rest, ':', &dir)) {
		CLEAN(path) struct path found = { .fd = -1 };

		if (dir.len > 0 && dir.ptr[0] == '/' && is_in_folder(dir, name, ret) &&
		    path_open_as(PATH_ROOTS, ret, &found,
				 refused.code < 0 ? NULL : &refused) == 0)
			return 0;
	}
	if (refused.code < 0)
		return err_set(err, -EPERM, "%s", refused.text);
	return err_set(err, -ENOENT, "cannot find %s", name);
}

int program_find(const struct program *p, char *ret, struct err *err)
{
	struct err why = { 0 };
	int r = program_path(p->name, ret, &why);
	CLEAN(fd) int fd = -1;
	const void *found;
	struct stat st;
	void *map;

	if (r < 0)
		return err_set(err, r, "%s; install it (%s)", why.text, p->package);
	/* Is it too old? Asking a program for its version would cost a process; the
	 * option that was last to come is in its text or isn't. */
	fd = open(ret, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot read '%s'", ret);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, -errno, "cannot read '%s'", ret);
	found = memmem(map, (size_t)st.st_size, p->option, strlen(p->option));
	munmap(map, (size_t)st.st_size);
	if (!found)
		return err_set(err, -ENOSYS, "'%s' is too old; %s or later is needed",
			       ret, p->version);
	return 0;
}
