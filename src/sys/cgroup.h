// SPDX-License-Identifier: Apache-2.0
/* sys/cgroup - what has to be known of a cgroup before its processes are guarded by it:
 * its id, where it is, who lives in it, and whether they could leave it.
 *
 * Files below /proc and /sys are read; nothing is changed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { CGROUP_PATH_MAX = 4096 };

struct cgroup {
	uint64_t id;   /* as the kernel compares it; another one when it is made again */
	uint8_t level; /* directories below the root: 1 is just below it */
	char path[CGROUP_PATH_MAX]; /* of the directory, no symbolic link in it */
};

/* @where is a directory below where cgroup v2 is mounted, or a path as in
 * /proc/PID/cgroup
 * ("/system.slice/job"), which counts from the root of the hierarchy. -ENOENT: there is
 * none; -EINVAL: no cgroup of version 2, or the root itself. */
int cgroup_open(const char *where, struct cgroup *ret, struct err *err) MUST_CHECK;
/* Where the directory of one would be whose name is @name, as cgroup_name() says it. */
int cgroup_directory(const char *name, char ret[CGROUP_PATH_MAX],
		     struct err *err) MUST_CHECK;

/* The hierarchy itself. Whoever holds it finds a cgroup by its name wherever the
 * hierarchy is mounted by then, or nowhere. Return: a descriptor of its root; -ENODEV: it
 * is not mounted here; -errno. */
int cgroup_hierarchy_open(struct err *err) MUST_CHECK;
/* The id of the one whose name is @name. Return: 0; -ENOENT: there is none any more;
 * every other error: that can't be known. */
int cgroup_find_id(int hierarchy, const char *name, uint64_t *ret) MUST_CHECK;
/* As cgroup_open(), by name, with a path that leads through @hierarchy. */
int cgroup_find(int hierarchy, const char *name, struct cgroup *ret,
		struct err *err) MUST_CHECK;
/* How many cgroups below the one of @name and @id (0: whichever it is) were removed,
 * while the kernel keeps what is left of them: for a socket that was made there, or for
 * memory.
 * @name "/" is the root. Return: 0; -ENOENT: there is no such cgroup; every other error:
 * that can't be known. */
int cgroup_dying(int hierarchy, const char *name, uint64_t id, size_t *ret) MUST_CHECK;
/* Is this process in it, or below it? In the root it is in nobody's. */
bool cgroup_has_self(const struct cgroup *c);
/* Its path from the root of the hierarchy on: "/system.slice/job". */
const char *cgroup_name(const struct cgroup *c);
/* A process can be moved into the one of directory @dir, and runs there: it is not
 * frozen, and not one for threads alone. */
int cgroup_can_be_joined(const char *dir, struct err *err) MUST_CHECK;

/* SIGKILL to everything in and below the one of directory @dir. */
int cgroup_kill(const char *dir, struct err *err) MUST_CHECK;

/* The same, of one that is made if there is none; its parent has to be there. @ret_made
 * says whether it was. */
int cgroup_make(const char *where, struct cgroup *ret, bool *ret_made,
		struct err *err) MUST_CHECK;

/* Refuse what the filter by cgroup wouldn't hold:
 *   -EXDEV  a process lives in another network namespace than @net (a descriptor), so its
 *           packets never come to the host's rules
 *   -EPERM  a process that is not root's could move into a cgroup that is not below this
 *           one: it may write the cgroup.procs there, and those of the parent that both
 *           share
 * A cgroup with nobody in it passes the first of the two; whoever comes later has come
 * from outside. */
int cgroup_check(const struct cgroup *c, int net, struct err *err) MUST_CHECK;

/* All zero: empty. */
struct cgroup_ids {
	uint64_t *at; /* owned */
	size_t count, capacity;
};
int cgroup_ids_add(struct cgroup_ids *n, uint64_t number) MUST_CHECK;
/* Before one is looked for. */
void cgroup_ids_sort(struct cgroup_ids *n);
bool cgroup_ids_have(const struct cgroup_ids *n, uint64_t number);
void cgroup_ids_done(struct cgroup_ids *n);

/* What is to be done with each process, once, and each cgroup of a tree, once or more;
 * not 0 ends it. -ESRCH of on_process(): the process has ended; the walk goes on. */
struct cgroup_walk {
	int (*on_process)(struct cgroup_walk *w, pid_t pid);
	int (*on_cgroup)(struct cgroup_walk *w, uint64_t id); /* may be NULL */
	void *data;
	struct err *err;
	struct cgroup_ids threads, visited; /* the walk's own */
};
/* Return: 0; what a function returned; -EAGAIN: processes come and go faster than they
 * can be looked at; -errno. */
int cgroup_walk(struct cgroup_walk *w, const struct cgroup *c) MUST_CHECK;

/* Internet sockets that processes of @c have open, and that were made in another cgroup:
 * the filter takes them for somebody else's. The kernel lists a socket when it is bound
 * or connected: one that is neither is found when it is used, so look again later. */
struct cgroup_strays {
	bool known; /* it could be seen, of all processes */
	uint32_t sockets, processes;
	pid_t first; /* one of these processes */
	/* Packet and raw sockets that processes of @c have, wherever they were made. */
	uint32_t packet, raw;
};
struct cgroup_strays cgroup_strays(const struct cgroup *c);
/* Packet and raw sockets that user @uid has made; nothing else is counted. */
struct cgroup_strays user_raw_sockets(uint32_t uid);

/* TCP connections that a cgroup or a user had before they were guarded.
 * Those whose beginning the kernel's conntrack has seen are judged by the filter like any
 * other. Of one that it has not seen, the side that sends first counts as who began it:
 * should that be the peer, everything that the sandbox sends counts as its replies. So
 * such connections are ended, once the filter stands. */
struct before_who {
	const struct cgroup *cgroup; /* and those below it; NULL: a user. Borrowed */
	uint32_t uid;
	pid_t except; /* of the cgroup's processes, is one of ours and has none; or 0 */
};

/* To be called once the filter stands: end all that nobody knows who began. -EOPNOTSUPP:
 * this kernel can't end connections. @ret: how many were ended. */
int before_end(const struct before_who *who, size_t *ret, struct err *err) MUST_CHECK;
