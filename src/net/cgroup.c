// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Whoever may write the cgroup.procs of two cgroups and of the one above both may move
 * processes between them. To leave a cgroup one needs that of a directory above it: if
 * none of those is anybody's but root's, nobody else leaves.
 *
 * A socket keeps the cgroup in which it was made. The kernel lists sockets with their
 * inode and cgroup (sock_diag); a process's descriptors say which inodes it has. */
#include "net/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/inet_diag.h>
#include <linux/magic.h>
#include <linux/sock_diag.h>

#include "base/text.h"

enum {
	DEPTH_MAX = 32, /* directories below a cgroup; deeper ones: refused */
	DUMP_SIZE = 32 * 1024,
	ALL_STATES = -1,
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

/* Without symbolic links, and below @root. */
static int resolve(const char *where, const char *root, char ret[CGROUP_PATH_MAX],
		   struct err *err)
{
	char path[2 * CGROUP_PATH_MAX];
	CLEAN(mem) char *real = NULL;

	snprintf(path, sizeof(path), "%s%.*s",
		 is_below(where, root) || where[0] != '/' ? "" : root,
		 CGROUP_PATH_MAX - 1, where);
	real = realpath(path, NULL);
	if (!real)
		return err_sys(err, -errno,
			       "cannot find the cgroup '%.100s' below '%.60s'", where,
			       root);
	if (!is_below(real, root) || strlen(real) >= CGROUP_PATH_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup below '%.100s'",
			       where, root);
	snprintf(ret, CGROUP_PATH_MAX, "%s", real);
	return 0;
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
	char root[CGROUP_PATH_MAX], path[CGROUP_PATH_MAX];
	struct statfs fs;
	struct stat st;
	size_t level;
	int r = find_root(root, err);

	if (r == 0)
		r = resolve(where, root, path, err);
	if (r < 0)
		return r;
	if (stat(path, &st) < 0 || statfs(path, &fs) < 0)
		return err_sys(err, -errno, "cannot look at the cgroup '%.200s'", where);
	level = level_of(path, root);
	if (!S_ISDIR(st.st_mode) || fs.f_type != CGROUP2_SUPER_MAGIC || level > UINT8_MAX)
		return err_set(err, -EINVAL, "'%.200s' is no cgroup of version 2", where);
	ret->id = st.st_ino;
	ret->level = (uint8_t)level;
	memcpy(ret->path, path, sizeof(path));
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

int cgroup_of_self(struct cgroup *ret, struct err *err)
{
	static const char begin[] = "0::";
	FILE *f = fopen("/proc/self/cgroup", "re");
	char line[CGROUP_PATH_MAX + 32];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f))
		found = strncmp(line, begin, strlen(begin)) == 0;
	if (f)
		fclose(f);
	if (!found)
		return err_set(err, -ENOENT, "cannot see which cgroup this is");
	line[strcspn(line, "\n")] = '\0';
	return cgroup_open(line + strlen(begin), ret, err);
}

const char *cgroup_name(const struct cgroup *c)
{
	const char *at = c->path + strlen(c->path);

	for (size_t i = 0; i < c->level; i++)
		while (*--at != '/')
			;
	return at;
}

bool cgroup_is_in(const struct cgroup *c, const struct cgroup *above)
{
	return strcmp(c->path, above->path) == 0 || is_below(c->path, above->path);
}

/* What @file of @dir says, or "". */
static void read_file(const char *dir, const char *file, char *ret, size_t size)
{
	char path[CGROUP_PATH_MAX + 32];
	CLEAN(fd) int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", dir, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, ret, size - 1);
	ret[n > 0 ? n : 0] = '\0';
}

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
	char text[256];

	read_file(dir, "cgroup.type", text, sizeof(text));
	if (strcmp(text, "threaded\n") == 0 || strcmp(text, "domain invalid\n") == 0)
		return err_set(err, -EOPNOTSUPP,
			       "no process can be in the cgroup: its type is '%.*s'",
			       (int)strcspn(text, "\n"), text);
	read_file(dir, "cgroup.events", text, sizeof(text));
	if (strstr(text, "frozen 1"))
		return err_set(err, -EBUSY,
			       "the cgroup is frozen: nothing can be "
			       "tested in it");
	return 0;
}

/* ---- who lives in it ---- */

/* What is to be done with each process and each cgroup of a tree; not 0 ends it. */
struct walk {
	int (*on_process)(struct walk *w, pid_t pid);
	int (*on_cgroup)(struct walk *w, uint64_t id); /* may be NULL */
	void *data;
	struct err *err;
};

static int walk_processes(struct walk *w, int dir)
{
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	char line[32];
	uint32_t pid;
	int r = 0;

	if (!f)
		return err_sys(w->err, -errno, "cannot see who is in the cgroup");
	while (r == 0 && fgets(line, sizeof(line), f)) {
		size_t len = strcspn(line, "\n");

		/* 0: of a pid namespace that isn't below ours. */
		if (!text_to_u32((struct text){ line, len }, INT_MAX, &pid) || pid == 0)
			r = err_set(w->err, -EXDEV,
				    "a process of the cgroup can't be seen from here");
		else
			r = w->on_process(w, (pid_t)pid);
	}
	if (r == 0 && ferror(f))
		r = err_sys(w->err, -errno, "cannot see who is in the cgroup");
	fclose(f);
	return r;
}

static int walk_tree(struct walk *w, int dir, int depth);

/* One that is gone meanwhile is nobody's. */
static int walk_below(struct walk *w, int dir, const char *name, int depth)
{
	int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? 0 : walk_tree(w, fd, depth);
}

/* Takes @dir. */
static int walk_tree(struct walk *w, int dir, int depth)
{
	DIR *all = fdopendir(dir);
	const struct dirent *e;
	struct stat st;
	int r = 0;

	if (!all || depth == DEPTH_MAX || fstat(dir, &st) < 0) {
		r = err_set(w->err, -ELOOP, "the cgroup has too many below it");
		if (all)
			closedir(all);
		else
			close(dir);
		return r;
	}
	if (w->on_cgroup)
		r = w->on_cgroup(w, st.st_ino);
	if (r == 0)
		r = walk_processes(w, dir);
	while (r == 0 && (e = readdir(all)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			r = walk_below(w, dir, e->d_name, depth + 1);
	closedir(all);
	return r;
}

static int walk(struct walk *w, const struct cgroup *c)
{
	int dir = open(c->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dir < 0 ? err_sys(w->err, -errno, "cannot open the cgroup")
		       : walk_tree(w, dir, 0);
}

/* ---- may it be guarded? ---- */

static int check_namespace(struct walk *w, pid_t pid)
{
	const struct stat *here = w->data;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
	if (stat(path, &st) < 0) {
		if (errno == ENOENT || errno == ESRCH)
			return 0; /* it has ended */
		return err_sys(w->err, -errno,
			       "cannot see in which network process %d is", (int)pid);
	}
	if (st.st_dev == here->st_dev && st.st_ino == here->st_ino)
		return 0;
	return err_set(w->err, -EXDEV,
		       "process %d of the cgroup is in another network namespace, where "
		       "no rule of this one counts: attach it with --netns %d",
		       (int)pid, (int)pid);
}

static bool is_roots_alone(const struct stat *st)
{
	return (st->st_uid == 0 || !(st->st_mode & S_IWUSR)) &&
	       (st->st_gid == 0 || !(st->st_mode & S_IWGRP)) && !(st->st_mode & S_IWOTH);
}

/* All directories above it, from its parent to the root of the hierarchy. */
static int check_above(const struct cgroup *c, struct err *err)
{
	char path[CGROUP_PATH_MAX], file[CGROUP_PATH_MAX + 32];
	struct stat st;

	memcpy(path, c->path, sizeof(path));
	for (size_t i = 0; i < c->level; i++) {
		*strrchr(path, '/') = '\0';
		snprintf(file, sizeof(file), "%s/cgroup.procs", path);
		if (stat(file, &st) < 0)
			return err_sys(err, -errno, "cannot look at '%.200s'", file);
		if (!is_roots_alone(&st))
			return err_set(
				err, -EPERM,
				"its processes could leave the cgroup: '%.200s' is "
				"not root's alone",
				file);
	}
	return 0;
}

int cgroup_check(const struct cgroup *c, int net, struct err *err)
{
	struct stat here;
	struct walk w = { .on_process = check_namespace, .data = &here, .err = err };
	int r = check_above(c, err);

	if (r == 0 && fstat(net, &here) < 0)
		r = err_sys(err, -errno, "cannot look at the network namespace");
	return r < 0 ? r : walk(&w, c);
}

/* ---- sockets that were made elsewhere ---- */

struct numbers {
	uint64_t *at; /* owned */
	size_t count, capacity;
};

static int numbers_add(struct numbers *n, uint64_t number)
{
	if (n->count == n->capacity) {
		size_t capacity = 2 * n->capacity + 64;
		uint64_t *at = reallocarray(n->at, capacity, sizeof(*at));

		if (!at)
			return -ENOMEM;
		n->at = at;
		n->capacity = capacity;
	}
	n->at[n->count++] = number;
	return 0;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static bool numbers_have(const struct numbers *n, uint64_t number)
{
	return n->count > 0 &&
	       bsearch(&number, n->at, n->count, sizeof(number), compare_numbers) != NULL;
}

static void numbers_sort(struct numbers *n)
{
	if (n->count > 0)
		qsort(n->at, n->count, sizeof(*n->at), compare_numbers);
}

struct looking {
	struct numbers cgroups, strays; /* ids below it; inodes made outside of them */
	struct numbers packets, raws;	/* inodes of everybody's */
	struct cgroup_strays *ret;
	bool failed;
};

static int keep_cgroup(struct walk *w, uint64_t id)
{
	struct looking *l = w->data;

	return numbers_add(&l->cgroups, id);
}

static int ignore_process(struct walk *w, pid_t pid)
{
	return 0;
}

static int on_attr(const struct nlattr *a, void *data)
{
	const struct nlattr **ret = data;

	if (mnl_attr_get_type(a) == INET_DIAG_CGROUP_ID &&
	    mnl_attr_get_payload_len(a) == sizeof(uint64_t))
		*ret = a;
	return MNL_CB_OK;
}

static int on_socket(const struct nlmsghdr *h, void *data)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(h);
	const struct nlattr *cgroup = NULL;
	struct looking *l = data;
	uint64_t id;

	if (mnl_nlmsg_get_payload_len(h) < sizeof(*m) || m->idiag_inode == 0 ||
	    mnl_attr_parse(h, sizeof(*m), on_attr, &cgroup) < 0)
		return MNL_CB_OK;
	if (!cgroup) {
		l->failed = true; /* an older kernel doesn't say */
		return MNL_CB_OK;
	}
	memcpy(&id, mnl_attr_get_payload(cgroup), sizeof(id));
	if (!numbers_have(&l->cgroups, id) && numbers_add(&l->strays, m->idiag_inode) < 0)
		return MNL_CB_ERROR;
	return MNL_CB_OK;
}

static int dump(int fd, uint8_t family, uint8_t protocol, uint32_t seq, struct looking *l)
{
	_Alignas(struct nlmsghdr) char buf[DUMP_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct inet_diag_req_v2 *q;
	int r = MNL_CB_OK;

	h->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = seq;
	q = mnl_nlmsg_put_extra_header(h, sizeof(*q));
	q->sdiag_family = family;
	q->sdiag_protocol = protocol;
	q->idiag_states = (uint32_t)ALL_STATES;
	if (send(fd, h, h->nlmsg_len, 0) < 0)
		return -errno;
	while (r > MNL_CB_STOP) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0);

		if (n < 0)
			return -errno;
		r = mnl_cb_run(buf, (size_t)n, seq, 0, on_socket, l);
	}
	return r < 0 ? -errno : 0;
}

/* Raw sockets may be a module that isn't there. */
static int list_strays(struct looking *l)
{
	static const uint8_t families[] = { AF_INET, AF_INET6 };
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP, IPPROTO_RAW };
	CLEAN(fd)
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	uint32_t seq = 0;

	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(families) * ARRAY_SIZE(protocols); i++) {
		uint8_t protocol = protocols[i % ARRAY_SIZE(protocols)];
		int r = dump(fd, families[i / ARRAY_SIZE(protocols)], protocol, ++seq, l);

		if (r < 0 && protocol != IPPROTO_RAW)
			return r;
	}
	return 0;
}

/* Column @column, from 0 on, of each line of @path but the first one; nothing when that
 * isn't there. */
static int list_inodes(const char *path, size_t column, struct numbers *ret)
{
	FILE *f = fopen(path, "re");
	char line[512];
	int r = 0;

	if (f && !fgets(line, sizeof(line), f))
		r = ferror(f) ? -EIO : 0;
	while (f && r == 0 && fgets(line, sizeof(line), f)) {
		const char *at = line;
		size_t len = 0;
		uint32_t inode;

		for (size_t i = 0; i <= column; i++) {
			at += len;
			at += strspn(at, " ");
			len = strcspn(at, " \n");
		}
		if (text_to_u32((struct text){ at, len }, UINT32_MAX, &inode))
			r = numbers_add(ret, inode);
	}
	if (f)
		fclose(f);
	return r;
}

static int list_raw_sockets(struct looking *l)
{
	enum { PACKET_INODE = 8, RAW_INODE = 9 };
	int r = list_inodes("/proc/net/packet", PACKET_INODE, &l->packets);

	if (r == 0)
		r = list_inodes("/proc/net/raw", RAW_INODE, &l->raws);
	if (r == 0)
		r = list_inodes("/proc/net/raw6", RAW_INODE, &l->raws);
	return r;
}

static uint64_t socket_inode(int dir, const char *name)
{
	char target[64];
	ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
	static const char begin[] = "socket:[";
	struct text number;
	uint32_t inode;

	if (n < (ssize_t)sizeof(begin) || strncmp(target, begin, strlen(begin)) != 0)
		return 0;
	number = (struct text){ target + strlen(begin), (size_t)n - sizeof(begin) };
	return text_to_u32(number, UINT32_MAX, &inode) ? inode : 0;
}

static int count_process(struct walk *w, pid_t pid)
{
	struct looking *l = w->data;
	uint32_t found = 0;
	const struct dirent *e;
	char path[64];
	DIR *all;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	all = opendir(path);
	if (!all) {
		l->failed |= errno != ENOENT && errno != ESRCH;
		return 0;
	}
	while ((e = readdir(all))) {
		uint64_t inode = socket_inode(dirfd(all), e->d_name);

		found += numbers_have(&l->strays, inode);
		l->ret->packet += numbers_have(&l->packets, inode);
		l->ret->raw += numbers_have(&l->raws, inode);
	}
	closedir(all);
	if (found > 0 && l->ret->processes++ == 0)
		l->ret->first = pid;
	l->ret->sockets += found;
	return 0;
}

struct cgroup_strays cgroup_strays(const struct cgroup *c)
{
	struct cgroup_strays ret = { 0 };
	struct looking l = { .ret = &ret };
	struct err ignored = { 0 };
	struct walk w = {
		.on_process = ignore_process,
		.on_cgroup = keep_cgroup,
		.data = &l,
		.err = &ignored,
	};
	int r = walk(&w, c);

	numbers_sort(&l.cgroups);
	if (r == 0)
		r = list_strays(&l);
	if (r == 0)
		r = list_raw_sockets(&l);
	numbers_sort(&l.strays);
	numbers_sort(&l.packets);
	numbers_sort(&l.raws);
	w.on_process = count_process;
	w.on_cgroup = NULL;
	if (r == 0)
		r = walk(&w, c);
	ret.known = r == 0 && !l.failed;
	free(l.cgroups.at);
	free(l.strays.at);
	free(l.packets.at);
	free(l.raws.at);
	return ret;
}
