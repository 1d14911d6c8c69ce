// SPDX-License-Identifier: Apache-2.0
#include "proto/run_socket.h"

#include "sys/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { MAKE_TRIES = 10 };

static const char suffix[] = ".sock";

/* "/run/user/1000", and what the directory in it is called. Return: false where that
 * place is none. */
static bool name_place(size_t i, const char **ret_above, const char **ret_name,
		       char room[64])
{
	const char *given = getenv("XDG_RUNTIME_DIR");
	const unsigned int uid = geteuid();

	*ret_above = i == 0 ? given : i == 2 && uid > 0 ? "/tmp" : "/run";
	*ret_name = "weir";
	if (i == 0)
		return given && strncmp(given, "/run/", strlen("/run/")) == 0;
	if (i == 1)
		snprintf(room, 64, "/run/user/%u", uid);
	else
		snprintf(room, 64, "weir-%u", uid);
	*(i == 1 ? ret_above : ret_name) = room;
	return true;
}

int run_socket_place(size_t i, bool make, char ret[RUN_SOCKET_PATH_SIZE])
{
	const int how = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	const char *above_path, *name;
	CLEAN(fd) int above = -1;
	CLEAN(fd) int fd = -1;
	struct stat st;
	char room[64];

	if (!name_place(i, &above_path, &name, room))
		return -ENOENT;
	if (snprintf(ret, RUN_SOCKET_PATH_SIZE, "%s/%s", above_path, name) >=
	    RUN_SOCKET_PATH_SIZE)
		return -ENAMETOOLONG;
	above = open(above_path, how);
	if (above < 0)
		return -errno;
	/* Where others may write, too, they must not be able to take away what isn't
	 * theirs; and in another user's own directory nothing is left behind. */
	if (fstat(above, &st) < 0 ||
	    (st.st_uid != geteuid() &&
	     (st.st_uid != 0 || (st.st_mode & 022) == 0 || (st.st_mode & S_ISVTX) == 0)))
		return -EPERM;
	/* The last run that ends takes the directory away. */
	for (int tries = 0; fd < 0 && tries < MAKE_TRIES; tries++) {
		if (make && mkdirat(above, name, 0700) < 0 && errno != EEXIST)
			return -errno;
		fd = openat(above, name, how | O_NOFOLLOW);
		if (fd < 0 && (!make || errno != ENOENT))
			return -errno;
	}
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return -EPERM;
	return TAKE_FD(fd);
}

bool run_socket_answers(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(sa.sun_path, path, MIN(strlen(path), sizeof(sa.sun_path) - 1));
	/* Whose backlog is full answers later. */
	return fd >= 0 && (connect(fd, (const struct sockaddr *)&sa, sizeof(sa)) == 0 ||
			   errno == EAGAIN);
}

bool run_socket_path(const char *directory, const char *id,
		     char ret[RUN_SOCKET_PATH_SIZE])
{
	char path[2 * RUN_SOCKET_PATH_SIZE];
	int n = snprintf(path, sizeof(path), "%s/%s%s", directory, id, suffix);

	if (n >= RUN_SOCKET_PATH_SIZE)
		return false;
	memcpy(ret, path, (size_t)n + 1);
	return true;
}

bool run_socket_find(const char *id, char ret[RUN_SOCKET_PATH_SIZE])
{
	char directory[RUN_SOCKET_PATH_SIZE];

	for (size_t i = 0; i < RUN_SOCKET_PLACES; i++) {
		CLEAN(fd) int fd = run_socket_place(i, false, directory);

		if (fd >= 0 && run_socket_path(directory, id, ret) &&
		    run_socket_answers(ret))
			return true;
	}
	return false;
}

void run_socket_leave(const char *directory)
{
	CLEAN(fd)
	int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		rmdir(directory);
}

static void each_in(int fd, const char *directory,
		    void (*on_run)(void *data, const char *id, const char *path),
		    void *data)
{
	char id[RUN_SOCKET_PATH_SIZE], path[RUN_SOCKET_PATH_SIZE];
	CLEAN(directory) DIR *d = directory_open(fd);
	const struct dirent *entry;

	while (d && (entry = directory_next(d))) {
		const char *file = entry->d_name;
		const size_t len = strlen(file), end = strlen(suffix);

		/* "build.sock" is the run "build". */
		if (len <= end || len - end >= sizeof(id) || file[0] == '.' ||
		    strcmp(file + len - end, suffix) != 0)
			continue;
		snprintf(id, sizeof(id), "%.*s", (int)(len - end), file);
		if (!run_socket_path(directory, id, path))
			continue;
		if (run_socket_answers(path)) {
			on_run(data, id, path);
			continue;
		}
		/* A run makes its socket under this lock only. */
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
			if (!run_socket_answers(path))
				unlinkat(fd, entry->d_name, 0);
			flock(fd, LOCK_UN);
		}
	}
	run_socket_leave(directory);
}

void run_socket_each(void (*on_run)(void *data, const char *id, const char *path),
		     void *data)
{
	char all[RUN_SOCKET_PLACES][RUN_SOCKET_PATH_SIZE];

	for (size_t i = 0; i < RUN_SOCKET_PLACES; i++) {
		int fd = run_socket_place(i, false, all[i]);
		bool is_known = fd < 0;

		/* $XDG_RUNTIME_DIR mostly is /run/user/UID. */
		for (size_t j = 0; j < i; j++)
			is_known = is_known || strcmp(all[j], all[i]) == 0;
		if (!is_known)
			each_in(fd, all[i], on_run, data);
		else if (fd >= 0)
			close(fd);
		if (fd < 0)
			all[i][0] = '\0';
	}
}
