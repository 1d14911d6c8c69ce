// SPDX-License-Identifier: Apache-2.0
#include "run/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/files.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

enum { BACKLOG = 16, STATUS_MAX = 1 << 20, OPEN_TRIES = 10 };

/* --- who --- */

static bool is_same_namespace(pid_t pid)
{
	char path[64];
	struct stat ours, theirs;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	return stat("/proc/self/ns/user", &ours) == 0 && stat(path, &theirs) == 0 &&
	       ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* How many seccomp filters hold the process @name; before Linux 5.9 nobody can say. */
static int count_filters(const char *name, uint32_t *ret)
{
	static const char key[] = "\nSeccomp_filters:\t";
	CLEAN(file_bytes) struct file_bytes status = { 0 };
	CLEAN(fd) int fd = -1;
	char path[64];
	const char *at;
	int r;

	snprintf(path, sizeof(path), "/proc/%s/status", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	r = fd < 0 ? -errno : file_read_fd(fd, STATUS_MAX, &status);
	if (r < 0)
		return r;
	*ret = 0;
	at = strstr(status.bytes, key);
	if (!at)
		return 0;
	at += strlen(key);
	return text_to_u32((struct text){ at, strcspn(at, "\n") }, UINT32_MAX, ret)
		       ? 0
		       : -EBADMSG;
}

/* The command of a `weir run` on the host has a filter that its caller has not. */
static bool is_confined_more(const struct control_socket *s, pid_t pid)
{
	char name[16];
	uint32_t filters;

	snprintf(name, sizeof(name), "%d", (int)pid);
	return count_filters(name, &filters) < 0 || filters > s->filters;
}

static bool is_alive(int pid_fd)
{
	struct pollfd p = { .fd = pid_fd, .events = POLLIN };

	return poll(&p, 1, 0) == 0;
}

/* The process is held by a descriptor while it is looked at: a number may be another
 * process' by then. Before Linux 6.5 the socket has no such descriptor, and one that is
 * made from the number may already be the other process'. */
bool control_socket_admits(const struct control_socket *s, int fd)
{
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);
	CLEAN(fd) int pid_fd = -1;
	int held = -1;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.pid <= 0 ||
	    peer.uid != geteuid())
		return false;
	size = sizeof(held);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &held, &size) < 0)
		held = (int)syscall(SYS_pidfd_open, peer.pid, 0);
	pid_fd = held;
	return pid_fd >= 0 && is_same_namespace(peer.pid) &&
	       !is_confined_more(s, peer.pid) && is_alive(pid_fd);
}

/* --- where --- */

static int listen_at(const char path[RUN_SOCKET_PATH_SIZE])
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path, path, strlen(path));
	if (fd < 0 || bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    listen(fd, BACKLOG) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* In the directory @directory, open at @fd, under its lock: between the look at who
 * answers there and the new socket nobody else does the same. */
static int open_in(struct control_socket *s, int fd, const char *directory)
{
	char path[RUN_SOCKET_PATH_SIZE];
	struct stat st;
	int r;

	if (!run_socket_path(directory, s->id, path))
		return -ENAMETOOLONG;
	if (flock(fd, LOCK_EX) < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -ENOENT;
	if (run_socket_answers(path))
		return -EADDRINUSE;
	if (unlink(path) < 0 && errno != ENOENT)
		return -errno;
	r = listen_at(path);
	if (r < 0)
		return r;
	s->fd = r;
	memcpy(s->path, path, sizeof(s->path));
	return 0;
}

/* Another run that ends may take the directory away while it is empty. */
static int open_at(struct control_socket *s, size_t place)
{
	char directory[RUN_SOCKET_PATH_SIZE];
	int r = -ENOENT;

	for (int tries = 0; r == -ENOENT && tries < OPEN_TRIES; tries++) {
		CLEAN(fd) int fd = run_socket_place(place, true, directory);

		if (fd < 0)
			return fd;
		r = open_in(s, fd, directory);
	}
	return r;
}

int control_socket_open(struct control_socket *s, const char *id, struct err *err)
{
	int r;

	*s = (struct control_socket){ .fd = -1 };
	if (id)
		snprintf(s->id, sizeof(s->id), "%s", id);
	else
		snprintf(s->id, sizeof(s->id), "run-%d", (int)getpid());
	r = count_filters("self", &s->filters);
	if (r < 0)
		return err_sys(err, r, "cannot tell who may ask");
	r = -ENOENT;
	for (size_t i = 0; i < RUN_SOCKET_PLACES && !s->path[0]; i++) {
		r = open_at(s, i);
		if (r == -EADDRINUSE)
			return err_set(err, r, "--id: '%s' is a run that is under way",
				       s->id);
	}
	return s->path[0] ? 0 : err_sys(err, r, "there is no safe place for its socket");
}

void control_socket_close(struct control_socket *s)
{
	if (s->path[0]) {
		unlink(s->path);
		*strrchr(s->path, '/') = '\0';
		run_socket_leave(s->path);
	}
	s->path[0] = '\0';
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}
