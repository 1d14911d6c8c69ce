// SPDX-License-Identifier: Apache-2.0
#include "run/writable.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "run/mounts.h"

/* Writable, these would undo the sandbox: they hold the kernel's own files, or the
 * sockets of every daemon. A directory that contains one of them is as bad. */
static const char *const never[] = {
	"/proc", "/sys", "/dev/pts", "/dev/mqueue", "/run", "/var/run", "/etc",
};

/* What is run outside without anybody's doing: not these, nothing in them, and no
 * directory that contains one. */
static const char *const system_places[] = {
	"/etc",		  "/boot",	    "/usr/bin",
	"/usr/sbin",	  "/usr/lib",	    "/usr/lib64",
	"/usr/libexec",	  "/usr/local/bin", "/usr/local/sbin",
	"/usr/local/lib", "/opt/bin",	    "/var/spool",
	"/bin",		  "/sbin",	    "/lib",
	"/lib64",
};
static const char *const home_places[] = {
	".ssh", ".gnupg", ".config/autostart", ".config/systemd", ".local/bin", "bin",
};

static bool touch(const char *path, const char *place)
{
	return path_is_within(path, place) || path_is_within(place, path);
}

bool writable_when_named(const char *path)
{
	if (path_is_within(path, "/dev") && !path_is_within(path, "/dev/shm"))
		return false;
	if (path_is_within(path, "/proc") || path_is_within(path, "/sys"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
		if (path_is_within(never[i], path))
			return false;
	}
	return true;
}

/* Is @path the home directory @home, does it hold it, or is it one of its places? */
static bool belongs_to_home(const char *path, const char *home)
{
	char real[PATH_MAX], place[2 * PATH_MAX];

	if (!home || home[0] != '/' || !realpath(home, real))
		return false;
	if (path_is_within(real, path))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(home_places); i++) {
		snprintf(place, sizeof(place), "%s/%s", real, home_places[i]);
		if (touch(path, place))
			return true;
	}
	return false;
}

static bool belongs_to_home_of(const char *path, uid_t uid)
{
	const struct passwd *user = getpwuid(uid);

	return user && belongs_to_home(path, user->pw_dir);
}

bool writable_unasked(const char *path)
{
	struct stat st;

	if (!writable_when_named(path) || stat(path, &st) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(system_places); i++) {
		if (touch(path, system_places[i]))
			return false;
	}
	return !path_is_within("/home", path) && !belongs_to_home(path, getenv("HOME")) &&
	       !belongs_to_home_of(path, geteuid()) &&
	       !belongs_to_home_of(path, st.st_uid);
}
