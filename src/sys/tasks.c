// SPDX-License-Identifier: Apache-2.0
#include "sys/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/files.h"

enum {
	STAT_SIZE = 2048,
	FLAGS_FIELD = 9 - 3, /* of /proc/PID/stat, behind the one after the name */
	FLAG_EXITING = 0x4,  /* PF_EXITING */
	PASSES_MAX = 16,     /* over the list of a process's threads */
};

static int open_directory(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static bool is_gone(int r)
{
	return r == -ENOENT || r == -ESRCH;
}

/* A thread that ends gives up its descriptors, then its namespaces, and then is dead. The
 * name in /proc/PID/stat, in front of the state and the flags, may hold any byte but its
 * last bracket. */
static bool has_ended(int dir, int error)
{
	char text[STAT_SIZE];
	const ssize_t n = file_read_kernel(dir, "stat", text, sizeof(text));
	const char *at = strrchr(text, ')');
	uint32_t flags = 0;
	char state;

	if (is_gone((int)n))
		return true;
	if (!at || at[1] != ' ')
		return false;
	state = at[2];
	for (int i = 0; at && i <= FLAGS_FIELD; i++)
		at = strchr(at + 1, ' ');
	if (!at || !text_to_u32((struct text){ at + 1, strcspn(at + 1, " ") }, UINT32_MAX,
				&flags))
		return false;
	return state == 'Z' || state == 'X' ||
	       (error == -ENOENT && (flags & FLAG_EXITING));
}

/* The number in @name; 0: there is none. */
static pid_t number_of(const char *name)
{
	uint32_t number;

	return text_to_u32(text_of(name), INT_MAX, &number) ? (pid_t)number : 0;
}

/* The next entry that is a number. Return: NULL at the end, *@ret_r is -errno if that is
 * not where the list ends. */
static const struct dirent *next_number(DIR *all, pid_t *ret, int *ret_r)
{
	const struct dirent *e;

	do {
		errno = 0;
		e = readdir(all);
		*ret = e ? number_of(e->d_name) : 0;
	} while (e && *ret == 0);
	if (!e && errno != 0 && !is_gone(-errno))
		*ret_r = -errno;
	return e;
}

/* /proc may hide what it has. */
static int why_not(pid_t pid, int error)
{
	if (!is_gone(error))
		return error;
	return kill(pid, 0) < 0 && errno == ESRCH ? -ESRCH : -EACCES;
}

pid_t tasks_process_of(int proc, pid_t tid)
{
	static const char key[] = "\nTgid:\t";
	char path[32], text[STAT_SIZE];
	uint32_t pid;
	const char *at;
	ssize_t n;

	snprintf(path, sizeof(path), "%d/status", (int)tid);
	n = file_read_kernel(proc, path, text, sizeof(text));
	if (n < 0)
		return why_not(tid, (int)n);
	at = strstr(text, key);
	at = at ? at + sizeof(key) - 1 : "";
	return text_to_u32((struct text){ at, strcspn(at, "\n") }, INT_MAX, &pid)
		       ? (pid_t)pid
		       : -EBADMSG;
}

/* The threads of one process that were looked at, in the order of the kernel's list,
 * which a new one stands at the end of. */
struct looked_at {
	pid_t *at; /* owned */
	size_t count, capacity;
};

/* Was @tid looked at? *@next: where it is to be expected; moves behind it. */
static bool was_looked_at(const struct looked_at *seen, size_t *next, pid_t tid)
{
	size_t i = *next;

	while (i < seen->count && seen->at[i] != tid)
		i++;
	if (i == seen->count)
		return false;
	*next = i + 1;
	return true;
}

/* Return: what @fn has found, 0: nothing, also where the thread is gone; -errno. */
static int look_at(struct looked_at *seen, const char *name, DIR *all, struct task *t,
		   task_fn *fn, void *data)
{
	CLEAN(fd) int task = open_directory(dirfd(all), name);
	int r;

	if (task < 0)
		return is_gone(task) ? 0 : task;
	t->dir = task;
	r = fn(data, t);
	if (r > 0 || (r < 0 && !has_ended(task, r)))
		return r;
	if (!ARRAY_GROW(seen->at, seen->count, seen->capacity))
		return -ENOMEM;
	seen->at[seen->count++] = t->tid;
	return 0;
}

/* A thread may end between the list and the look, when it has made another: so the list
 * is gone over until every thread of it was looked at. */
int tasks_each(int proc, pid_t pid, task_fn *fn, void *data)
{
	struct looked_at seen = { 0 };
	struct task t = { .pid = pid };
	CLEAN(directory) DIR *all = NULL;
	const struct dirent *e;
	char path[32];
	bool is_done = false;
	int fd, r = 0;

	snprintf(path, sizeof(path), "%d/task", (int)pid);
	fd = open_directory(proc, path);
	if (fd < 0)
		return why_not(pid, fd);
	all = directory_open(fd);
	if (!all)
		return -ENOMEM;
	for (int pass = 0; r == 0 && !is_done && pass < PASSES_MAX; pass++) {
		size_t next = 0;

		rewinddir(all);
		is_done = true;
		while (r == 0 && (e = next_number(all, &t.tid, &r))) {
			if (was_looked_at(&seen, &next, t.tid))
				continue;
			is_done = false;
			r = look_at(&seen, e->d_name, all, &t, fn, data);
			/* Those behind a new one are new, too: a search among all
			 * threads for each would take seconds. */
			next = seen.count;
		}
	}
	free(seen.at);
	return r == 0 && !is_done ? -EAGAIN : r;
}

/* What is mounted there is /proc, and knows this process by its own number. */
static bool is_own_proc(int proc)
{
	struct statfs fs;
	char self[16];
	ssize_t n = readlinkat(proc, "self", self, sizeof(self) - 1);

	if (n <= 0 || fstatfs(proc, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return false;
	self[n] = '\0';
	return number_of(self) == getpid();
}

int tasks_each_process(process_fn *fn, void *data)
{
	const pid_t self = getpid();
	CLEAN(directory) DIR *all = opendir("/proc");
	bool has_self = false;
	pid_t pid;
	int r = all ? 0 : -errno;

	if (all && !is_own_proc(dirfd(all)))
		r = -EXDEV;
	while (r == 0 && next_number(all, &pid, &r)) {
		has_self |= pid == self;
		r = fn(data, dirfd(all), pid);
	}
	return r == 0 && !has_self ? -EXDEV : r;
}

int tasks_network_of(const struct task *t, struct tasks_network *ret)
{
	struct stat st;
	int r;

	if (fstatat(t->dir, "ns/net", &st, 0) == 0) {
		*ret = (struct tasks_network){ .dev = st.st_dev, .ino = st.st_ino };
		return 0;
	}
	r = -errno;
	if (fstatat(t->dir, "net/dev", &st, 0) < 0)
		return r;
	*ret = (struct tasks_network){ .proc_ino = st.st_ino };
	return 0;
}

ino_t tasks_own_network(void)
{
	struct stat st;

	return stat("/proc/self/net/dev", &st) < 0 ? 0 : st.st_ino;
}

static int open_network(void *data, const struct task *t)
{
	int *ret = data;

	*ret = openat(t->dir, "ns/net", O_RDONLY | O_CLOEXEC);
	return *ret < 0 ? -errno : 1;
}

int tasks_open_named_network(const char *where)
{
	CLEAN(fd) int found = -1;
	struct statfs fs;
	char link[32];
	uint32_t pid;
	int again;

	if (text_to_u32(text_of(where), INT32_MAX, &pid) && pid > 0) {
		CLEAN(fd) int proc = open_directory(AT_FDCWD, "/proc");
		int fd = -1, r = proc;

		if (proc >= 0)
			r = tasks_each(proc, (pid_t)pid, open_network, &fd);
		return r == 0 ? -ESRCH : r < 0 ? r : fd;
	}
	found = open(where, O_PATH | O_CLOEXEC);
	if (found < 0 || fstatfs(found, &fs) < 0)
		return -errno;
	if (fs.f_type != NSFS_MAGIC)
		return -EINVAL;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	again = open(link, O_RDONLY | O_CLOEXEC);
	return again < 0 ? -errno : again;
}

bool tasks_share_fds(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, KCMP_FILES, 0, 0) == 0;
}

/* ---- processes whose packets don't come from this machine's kernel ---- */

static bool is_guest_kernel(const char *name)
{
	/* How the programs' names begin. A kernel's "comm" has 15 letters of one. */
	static const char *const beginnings[] = {
		"runsc",      "kata-",	     "containerd-shim-kata", "qemu-system",
		"qemu-kvm",   "firecracker", "cloud-hyperviso",	     "crosvm",
		"dragonball", "stratovirt",
	};

	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

/* Of "123" and "/proc/123/ns/net"; 0: of no process. */
static uint32_t process_of(const char *where)
{
	static const char proc[] = "/proc/";
	const char *number = where;
	uint32_t pid;

	if (strncmp(where, proc, strlen(proc)) == 0)
		number += strlen(proc);
	else if (strchr(where, '/'))
		return 0;
	return text_to_u32((struct text){ number, strcspn(number, "/") }, INT32_MAX, &pid)
		       ? pid
		       : 0;
}

int guest_kernel_refuse(const char *where, struct err *err)
{
	/* What the program is called, its first argument, and what the kernel calls it.
	 */
	static const char *const files[] = { "exe", "cmdline", "comm" };
	const uint32_t pid = process_of(where);
	char path[64], text[PATH_MAX];

	for (size_t i = 0; pid != 0 && i < ARRAY_SIZE(files); i++) {
		const char *slash, *name;
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%u/%s", pid, files[i]);
		n = i == 0 ? readlink(path, text, sizeof(text) - 1)
			   : file_read_kernel(AT_FDCWD, path, text, sizeof(text));
		text[MAX(n, (ssize_t)0)] = '\0';
		text[strcspn(text, "\n")] = '\0';
		slash = strrchr(text, '/');
		name = slash ? slash + 1 : text;
		if (is_guest_kernel(name))
			return err_set(
				err, -EOPNOTSUPP,
				"process %u is '%.60s': packets of gVisor and of virtual "
				"machines don't pass the filter of the namespace that "
				"they sit in; use the runtime runc or crun, or run Weir "
				"inside",
				pid, SHOWN(name));
	}
	return 0;
}
