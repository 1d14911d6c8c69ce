// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Whoever may write the cgroup.procs of two cgroups and of the one above both may move
 * processes between them. To leave a cgroup one needs that of a directory above it: if
 * none of those is anybody's but root's, nobody else leaves. */
#include "sys/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/text.h"
#include "sys/files.h"
#include "sys/tasks.h"

enum {
	DEPTH_MAX = 32,	 /* directories below a cgroup; deeper ones: refused */
	STAT_MAX = 4096, /* bytes of cgroup.stat */
	PASSES_MAX = 16, /* over the list of a cgroup's threads */
};

/* ---- where it is ---- */

/* Where version 2 is mounted; the first place. */
static int find_root(char ret[CGROUP_PATH_MAX], struct err *err)
{
	FILE *f = fopen("/proc/self/mounts", "re");
	char line[2 * CGROUP_PATH_MAX];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		struct text left = text_of(line), from, path, kind;

		found = text_split(&left, ' ', &from) && text_split(&left, ' ', &path) &&
			text_split(&left, ' ', &kind) && text_equal(kind, "cgroup2") &&
			path.len < CGROUP_PATH_MAX;
		if (found)
			snprintf(ret, CGROUP_PATH_MAX, "%.*s", (int)path.len, path.ptr);
	}
	if (f)
		fclose(f);
	return found ? 0
		     : err_set(err, -ENOENT, "cgroups of version 2 are not mounted here");
}

static bool is_below(const char *path, const char *root)
{
	size_t len = strlen(root);

	return strncmp(path, root, len) == 0 && path[len] == '/' && path[len + 1] != '\0';
}

static size_t level_of(const char *path, const char *root)
{
	size_t level = 0;

	for (path += strlen(root); *path; path++)
		level += *path == '/';
	return level;
}

int cgroup_open(const char *where, struct cgroup *ret, struct err *err)
{
	char root[CGROUP_PATH_MAX], path[2 * CGROUP_PATH_MAX];
	CLEAN(mem) char *real = NULL;
	struct statfs fs;
	struct stat st;
	size_t level;
	int r = find_root(root, err);

	if (r < 0)
		return r;
	snprintf(path, sizeof(path), "%s%.*s",
		 is_below(where, root) || strcmp(where, root) == 0 || where[0] != '/'
			 ? ""
			 : root,
		 CGROUP_PATH_MAX - 1, where);
	real = realpath(path, NULL);
	if (!real)
		return err_sys(err, -errno,
			       "cannot find the cgroup '%.100s' below '%.60s'", where,
			       root);
	if (!is_below(real, root) || strlen(real) >= CGROUP_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup below '%.100s'",
			       where, root);
	if (stat(real, &st) < 0 || statfs(real, &fs) < 0)
		return err_sys(err, -errno, "cannot look at the cgroup '%.200s'", where);
	level = level_of(real, root);
	if (!S_ISDIR(st.st_mode) || fs.f_type != CGROUP2_SUPER_MAGIC || level > UINT8_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup of version 2", where);
	ret->id = st.st_ino;
	ret->level = (uint8_t)level;
	snprintf(ret->path, sizeof(ret->path), "%s", real);
	return 0;
}

int cgroup_directory(const char *name, char ret[CGROUP_PATH_MAX], struct err *err)
{
	char root[CGROUP_PATH_MAX];
	int r = find_root(root, err);

	if (r < 0)
		return r;
	if (name[0] != '/' || strlen(root) + strlen(name) >= CGROUP_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup", name);
	memcpy(ret, root, strlen(root));
	memcpy(ret + strlen(root), name, strlen(name) + 1);
	return 0;
}

int cgroup_hierarchy_open(struct err *err)
{
	char root[CGROUP_PATH_MAX];
	CLEAN(fd) int fd = -1;
	struct statfs fs;

	if (find_root(root, err) < 0)
		return err->code = -ENODEV;
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatfs(fd, &fs) < 0)
		return err_sys(err, -errno, "cannot open '%.200s'", root);
	if (fs.f_type != CGROUP2_SUPER_MAGIC)
		return err_set(err, -ENODEV, "'%.200s' is hidden by another mount", root);
	return TAKE_FD(fd);
}

/* Renaming is not done there, so that what isn't found by its name is nowhere. One by
 * one, because a service manager may have forbidden openat2(). */
int cgroup_find_id(int hierarchy, const char *name, uint64_t *ret)
{
	const unsigned int wanted = STATX_INO | STATX_MNT_ID;
	struct text left = text_of(name), word;
	CLEAN(fd) int at = fcntl(hierarchy, F_DUPFD_CLOEXEC, 0);
	struct statx root, st;
	char part[NAME_MAX + 1];

	if (at < 0 || statx(at, "", AT_EMPTY_PATH, wanted, &root) < 0)
		return -errno;
	if (!text_split(&left, '/', &word) || word.len > 0 || left.len == 0)
		return -EINVAL;
	while (text_split(&left, '/', &word)) {
		int next;

		if (word.len == 0 || word.len >= sizeof(part))
			return -EINVAL;
		snprintf(part, sizeof(part), "%.*s", (int)word.len, word.ptr);
		next = openat(at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (next < 0)
			return -errno;
		close(at);
		at = next;
		if (statx(at, "", AT_EMPTY_PATH, wanted, &st) < 0)
			return -errno;
		/* What is mounted over a cgroup hides it. */
		if (st.stx_dev_major != root.stx_dev_major ||
		    st.stx_dev_minor != root.stx_dev_minor ||
		    st.stx_mnt_id != root.stx_mnt_id)
			return -EXDEV;
	}
	*ret = st.stx_ino;
	return 0;
}

int cgroup_dying(int hierarchy, const char *name, uint64_t id, size_t *ret)
{
	static const char key[] = "nr_dying_descendants ";
	const struct file_how how = { .max_bytes = STAT_MAX, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	CLEAN(fd)
	int dir = openat(hierarchy, name[1] ? name + 1 : ".",
			 O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	uint32_t dying;
	const char *at;
	int r;

	if (dir < 0 || fstat(dir, &st) < 0)
		return -errno;
	if (id != 0 && st.st_ino != id)
		return -ENOENT;
	r = file_read(dir, "cgroup.stat", &how, &file, NULL);
	if (r < 0)
		return r;
	at = strstr(file.bytes, key);
	if (!at || !text_to_u32((struct text){ at + strlen(key),
					       strcspn(at + strlen(key), "\n") },
				UINT32_MAX, &dying))
		return -EBADMSG;
	*ret = dying;
	return 0;
}

int cgroup_find(int hierarchy, const char *name, struct cgroup *ret, struct err *err)
{
	uint64_t id;
	int len, r = cgroup_find_id(hierarchy, name, &id);
	size_t level = level_of(name, "");

	if (r < 0)
		return err_sys(err, r, "cannot look at the cgroup '%.200s'", name);
	len = snprintf(ret->path, sizeof(ret->path), "/proc/self/fd/%d%s", hierarchy,
		       name);
	if (len >= CGROUP_PATH_MAX || level > UINT8_MAX)
		return err_set(err, -EINVAL, "'%.200s' is too deep", name);
	ret->id = id;
	ret->level = (uint8_t)level;
	return 0;
}

bool cgroup_has_self(const struct cgroup *c)
{
	static const char begin[] = "0::";
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[CGROUP_PATH_MAX + 32];
	const char *own = line + strlen(begin), *name = cgroup_name(c);
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, begin, strlen(begin)) == 0;
	if (f)
		fclose(f);
	if (!found)
		return false;
	line[strcspn(line, "\n")] = '\0';
	return strcmp(own, name) == 0 || is_below(own, name);
}

const char *cgroup_name(const struct cgroup *c)
{
	const char *at = c->path + strlen(c->path);

	for (size_t i = 0; i < c->level; i++)
		while (*--at != '/')
			;
	return at;
}

/* ---- who lives in it ---- */

/* What is below may go while it is looked at: nobody lives there then. */
static int cannot_see(struct cgroup_walk *w, int depth, int error)
{
	if (depth > 0 && (error == ENOENT || error == ENODEV))
		return 0;
	return err_sys(w->err, -error, "cannot see who is in the cgroup");
}

/* cgroup.procs lists a process by its main thread, so that one whose main thread had
 * ended when it was moved is in no list. */
static int list_threads(struct cgroup_walk *w, int dir, int depth)
{
	CLEAN(fd) int fd = openat(dir, "cgroup.threads", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[32];
	uint32_t tid;
	int r = 0;

	if (!f)
		return cannot_see(w, depth, errno);
	(void)TAKE_FD(fd);
	while (r == 0 && fgets(line, sizeof(line), f)) {
		size_t len = strcspn(line, "\n");

		/* 0: of a pid namespace that isn't below ours. */
		if (!text_to_u32((struct text){ line, len }, INT_MAX, &tid) || tid == 0)
			r = err_set(w->err, -EXDEV,
				    "a process of the cgroup can't be seen from here");
		else if (cgroup_ids_add(&w->threads, tid) < 0)
			r = err_set(w->err, -ENOMEM, "out of memory");
	}
	if (r == 0 && ferror(f))
		r = cannot_see(w, depth, errno);
	fclose(f);
	return r;
}

/* Takes @dir. */
static int walk_tree(struct cgroup_walk *w, int dir, int depth)
{
	CLEAN(directory) DIR *all = directory_open(dir);
	const struct dirent *e;
	struct stat st;
	int r = 0;

	if (!all || depth == DEPTH_MAX || fstat(dir, &st) < 0)
		return err_set(w->err, -ELOOP, "the cgroup has too many below it");
	if (w->on_cgroup)
		r = w->on_cgroup(w, st.st_ino);
	if (r == 0)
		r = list_threads(w, dir, depth);
	while (r == 0 && (e = directory_next(all))) {
		int below;

		if (e->d_type != DT_DIR)
			continue;
		below = openat(dir, e->d_name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = below < 0 ? cannot_see(w, depth + 1, errno)
			      : walk_tree(w, below, depth + 1);
	}
	return r == 0 && errno != 0 ? cannot_see(w, depth, errno) : r;
}

/* The processes of the threads that were listed, sorted. *@ret_ended: a thread is gone.
 */
static int list_processes(struct cgroup_walk *w, int proc, struct cgroup_ids *ret,
			  bool *ret_ended)
{
	int r = 0;

	for (size_t i = 0; i < w->threads.count && r == 0; i++) {
		pid_t pid = tasks_process_of(proc, (pid_t)w->threads.at[i]);

		if (pid == -ESRCH)
			*ret_ended = true;
		else
			r = pid < 0 ? pid : cgroup_ids_add(ret, (uint64_t)pid);
	}
	cgroup_ids_sort(ret);
	return r < 0 ? err_sys(w->err, r, "cannot see who is in the cgroup") : 0;
}

/* Go to each process where the walk has not been. Return: 0, or what on_process() said;
 * -ESRCH: a thread or a process has ended before that. */
static int visit_processes(struct cgroup_walk *w, int proc)
{
	struct cgroup_ids pids = { 0 }, *been = &w->visited;
	bool has_ended = false;
	uint64_t last = 0;
	size_t count = 0; /* of @pids, those that were gone to */
	int r = list_processes(w, proc, &pids, &has_ended);

	for (size_t i = 0; i < pids.count && r == 0; i++) {
		const uint64_t pid = pids.at[i];

		if (pid == last || cgroup_ids_have(been, pid))
			continue;
		last = pid;
		r = w->on_process(w, (pid_t)pid);
		has_ended |= r == -ESRCH;
		if (r == 0)
			pids.at[count++] = pid;
		else if (r == -ESRCH)
			r = 0;
	}
	for (size_t i = 0; i < count && r == 0; i++)
		if (cgroup_ids_add(been, pids.at[i]) < 0)
			r = err_set(w->err, -ENOMEM, "out of memory");
	cgroup_ids_sort(been);
	cgroup_ids_done(&pids);
	return r == 0 && has_ended ? -ESRCH : r;
}

/* Who ends before it is looked at may have left another in its place: the lists are read
 * until all that is in them was there still. */
int cgroup_walk(struct cgroup_walk *w, const struct cgroup *c)
{
	CLEAN(fd) int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = -ESRCH;

	for (int pass = 0; r == -ESRCH && pass < PASSES_MAX; pass++) {
		int dir = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		w->threads.count = 0;
		r = dir < 0 ? err_sys(w->err, -errno, "cannot open the cgroup")
			    : walk_tree(w, dir, 0);
		if (r == 0)
			r = visit_processes(w, proc);
	}
	cgroup_ids_done(&w->threads);
	cgroup_ids_done(&w->visited);
	return r == -ESRCH
		       ? err_set(w->err, -EAGAIN,
				 "the processes of the cgroup come and go faster than "
				 "they can be looked at")
		       : r;
}

/* ---- may it be guarded? ---- */

struct here {
	int proc; /* a descriptor of /proc */
	struct stat net;
};

/* One thread is enough. */
static int is_elsewhere(void *data, const struct task *t)
{
	const struct here *here = data;
	struct stat st;

	if (fstatat(t->dir, "ns/net", &st, 0) < 0)
		return -errno;
	return st.st_dev != here->net.st_dev || st.st_ino != here->net.st_ino;
}

static int check_namespace(struct cgroup_walk *w, pid_t pid)
{
	const struct here *here = w->data;
	int r = tasks_each(here->proc, pid, is_elsewhere, w->data);

	if (r == 0 || r == -ESRCH)
		return r;
	if (r < 0)
		return err_sys(w->err, r, "cannot see in which network process %d is",
			       (int)pid);
	return err_set(w->err, -EXDEV,
		       "process %d of the cgroup is in another network namespace, where "
		       "no rule of this one counts: attach it with --netns %d",
		       (int)pid, (int)pid);
}

int cgroup_check(const struct cgroup *c, int net, struct err *err)
{
	CLEAN(fd) int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct here here = { .proc = proc };
	struct cgroup_walk w = { .on_process = check_namespace,
				 .data = &here,
				 .err = err };
	char path[CGROUP_PATH_MAX], file[CGROUP_PATH_MAX + 32];
	const size_t root = (size_t)(cgroup_name(c) - c->path);
	struct stat st;

	/* All directories above it, from its parent to the root of the hierarchy. */
	memcpy(path, c->path, sizeof(path));
	for (size_t i = 0; i < c->level; i++) {
		*strrchr(path, '/') = '\0';
		snprintf(file, sizeof(file), "%s/cgroup.procs", path);
		if (stat(file, &st) < 0)
			return err_sys(err, -errno, "cannot look at '%.200s'",
				       file + root);
		if ((st.st_uid != 0 && (st.st_mode & S_IWUSR)) ||
		    (st.st_gid != 0 && (st.st_mode & S_IWGRP)) || (st.st_mode & S_IWOTH))
			return err_set(
				err, -EPERM,
				"its processes could leave the cgroup: '%.200s' is "
				"not root's alone",
				file + root);
	}
	if (proc < 0 || fstat(net, &here.net) < 0)
		return err_sys(err, -errno, "cannot look at the network namespace");
	return cgroup_walk(&w, c);
}

/* ---- make ---- */

int cgroup_make(const char *where, struct cgroup *ret, bool *ret_made, struct err *err)
{
	char path[CGROUP_PATH_MAX];
	int r = cgroup_directory("/", path, err);
	size_t root = r == 0 ? strlen(path) : 0;

	*ret_made = false;
	if (r < 0)
		return r;
	if (where[0] != '/' || root + strlen(where) >= CGROUP_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup", where);
	/* @where is the directory that is to be, or counts from the root. */
	if (strncmp(where, path, root) == 0)
		root = 0;
	snprintf(path + root, CGROUP_PATH_MAX - root, "%s", where);
	if (cgroup_open(where, ret, NULL) == 0)
		return 0;
	if (mkdir(path, 0755) < 0)
		return err_sys(err, -errno, "cannot make the cgroup '%.200s'", where);
	r = cgroup_open(where, ret, err);
	if (r < 0)
		rmdir(path);
	*ret_made = r == 0;
	return r;
}

/* ---- join, kill ---- */

int cgroup_kill(const char *dir, struct err *err)
{
	CLEAN(fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	CLEAN(fd)
	int fd = at < 0 ? -1
			: openat(at, "cgroup.kill", O_WRONLY | O_CLOEXEC | O_NOFOLLOW);

	return fd >= 0 && write(fd, "1", 1) == 1
		       ? 0
		       : err_sys(err, -errno, "cannot kill what is in '%.200s'", dir);
}

int cgroup_can_be_joined(const char *dir, struct err *err)
{
	CLEAN(fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char text[256];

	(void)file_read_kernel(at, "cgroup.type", text, sizeof(text));
	if (strcmp(text, "threaded\n") == 0 || strcmp(text, "domain invalid\n") == 0)
		return err_set(err, -EOPNOTSUPP,
			       "no process can be in the cgroup: its type is '%.*s'",
			       (int)strcspn(text, "\n"), text);
	(void)file_read_kernel(at, "cgroup.events", text, sizeof(text));
	if (strstr(text, "frozen 1"))
		return err_set(err, -EBUSY,
			       "the cgroup is frozen: nothing can be "
			       "tested in it");
	return 0;
}
