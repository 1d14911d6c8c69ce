// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <grp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/internal.h"

enum {
	SOCKET_MODE = 0660,
	SERVED_TRIES = 50,
	SERVED_MS = 20,
};

/* Somebody answers there: another daemon. */
static bool is_served(const struct sockaddr_un *sa)
{
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0 && connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) == 0;
}

/* One that was killed may hold it for a moment longer. */
static bool stays_served(const struct sockaddr_un *sa)
{
	for (int i = 0; i < SERVED_TRIES; i++) {
		if (!is_served(sa))
			return false;
		(void)!poll(NULL, 0, SERVED_MS);
	}
	return true;
}

/* Root's, and the group's where there is one. */
static int share_with_group(const char *path)
{
	const struct group *g = getgrnam("weir");

	if (g && chown(path, 0, g->gr_gid) < 0)
		return -errno;
	return chmod(path, SOCKET_MODE) < 0 ? -errno : 0;
}

int daemon_open_socket(const char *path, int *ret, struct err *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	CLEAN(fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	mode_t old;
	int r;

	if (strlen(path) >= sizeof(sa.sun_path))
		return err_set(err, -EINVAL, "'%.100s' is too long for a socket", path);
	memcpy(sa.sun_path, path, strlen(path));
	if (stays_served(&sa))
		return err_set(err, -EADDRINUSE, "another daemon serves '%s'", path);
	(void)!unlink(path);
	old = umask(0177);
	r = fd < 0 || bind(fd, (const struct sockaddr *)&sa, sizeof(sa)) < 0 ? -errno : 0;
	umask(old);
	if (r == 0)
		r = share_with_group(path);
	if (r < 0)
		return err_sys(err, r, "cannot serve the API at '%s'", path);
	*ret = TAKE_FD(fd);
	return 0;
}
