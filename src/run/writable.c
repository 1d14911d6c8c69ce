// SPDX-License-Identifier: Apache-2.0
#include "run/writable.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run/mounts.h"
#include "run/startup_files.h"

/* Writable, these would undo the sandbox: they hold the kernel's own files, or the
 * sockets of every daemon. A directory that contains one of them is as bad. */
static const char *const never[] = {
	"/proc", "/sys", "/dev/pts", "/dev/mqueue", "/run", "/var/run", "/etc",
};

/* What is run outside without anybody's doing: not these, nothing in them, and no
 * directory that contains one. */
static const char *const system_places[] = {
	"/etc", "/boot", "/usr", "/opt/bin", "/var/spool",
	"/bin", "/sbin", "/lib", "/lib64",
};

/* Not these themselves, though what lies in them may belong to one user alone. */
static const char *const shared_places[] = { "/tmp", "/var/tmp", "/dev/shm" };

/* Where services keep what they start from, and some of them a home. */
static const char services[] = "/var/lib";

/* Besides what begins with a dot. */
static const char *const home_places[] = { "bin", "go/bin" };

static bool touch(const char *path, const char *place)
{
	return path_is_within(path, place) || path_is_within(place, path);
}

bool writable_when_named(const struct path *p)
{
	if (path_is_within(p->name, "/dev") && !path_is_within(p->name, "/dev/shm"))
		return false;
	if (path_is_within(p->name, "/proc") || path_is_within(p->name, "/sys"))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
		if (path_is_within(never[i], p->name))
			return false;
	}
	return true;
}

/* Is @path the home directory @home, does it hold it, or is it one of its places? */
static bool belongs_to_home(const char *path, const char *home)
{
	char real[PATH_MAX], place[2 * PATH_MAX];

	if (!home || home[0] != '/' || !realpath(home, real) || strcmp(real, "/") == 0)
		return false;
	if (path_is_within(real, path))
		return true;
	if (path_is_within(path, real) && path[strlen(real) + 1] == '.')
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

static bool belongs_to_programs(const char *path)
{
	const char *list = getenv("PATH");
	char entry[PATH_MAX], real[PATH_MAX];

	while (list && *list) {
		size_t len = strcspn(list, ":");

		if (list[0] == '/' && len < sizeof(entry)) {
			memcpy(entry, list, len);
			entry[len] = '\0';
			if (touch(path, entry) ||
			    (realpath(entry, real) && touch(path, real)))
				return true;
		}
		list += len + (list[len] == ':');
	}
	return false;
}

static bool belongs_to_system(const char *path)
{
	const char *below;

	for (size_t i = 0; i < ARRAY_SIZE(system_places); i++) {
		if (touch(path, system_places[i]))
			return true;
	}
	for (size_t i = 0; i < ARRAY_SIZE(shared_places); i++) {
		if (path_is_within(shared_places[i], path))
			return true;
	}
	if (!path_is_within(path, services))
		return path_is_within(services, path);
	below = path + strlen(services);
	return below[0] == '\0' || !strchr(below + 1, '/');
}

bool writable_unasked(const struct path *p)
{
	const char *path = p->name;

	return writable_when_named(p) && !belongs_to_system(path) &&
	       !belongs_to_programs(path) && !path_is_within("/home", path) &&
	       !belongs_to_home(path, getenv("HOME")) &&
	       !belongs_to_home_of(path, geteuid()) &&
	       !belongs_to_home_of(path, p->st.st_uid) && !startup_files_has(path);
}
