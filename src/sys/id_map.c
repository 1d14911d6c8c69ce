// SPDX-License-Identifier: Apache-2.0
#include "sys/id_map.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/files.h"

enum { MAP_MAX = 64 * 1024 }; /* 340 lines at most, says user_namespaces(7) */

int id_map_find(const char *path, uint32_t inside, struct id_range *ret, struct err *err)
{
	const struct file_how how = { .max_bytes = MAP_MAX, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct text rest, line;
	int r = file_read(AT_FDCWD, path, &how, &file, err);

	if (r < 0)
		return r;
	rest = (struct text){ file.bytes, file.size };
	while (text_split(&rest, '\n', &line)) {
		struct id_range range;
		uint32_t *const fields[] = { &range.inside, &range.outside,
					     &range.count };
		const char *p = line.ptr, *end = line.ptr + line.len;
		bool good = true;

		if (line.len == 0)
			continue;
		for (size_t i = 0; i < ARRAY_SIZE(fields) && good; i++) {
			p += strspn(p, " ");
			good = parse_u32(&p, end, UINT32_MAX, fields[i]);
		}
		if (!good)
			return err_set(err, -EBADMSG, "cannot understand %s", path);
		if (inside >= range.inside && inside - range.inside < range.count) {
			*ret = range;
			return 0;
		}
	}
	return err_set(err, -ENOENT, "%s doesn't have the id %u", path, inside);
}

/* What can't be read counts as root: root's own files are all that it then gets. */
bool id_map_is_root(void)
{
	struct id_range range;

	return geteuid() == 0 &&
	       (id_map_find("/proc/self/uid_map", 0, &range, NULL) < 0 ||
		range.outside == 0);
}

int id_map_write(int proc, const char *path, const char *text, struct err *err)
{
	CLEAN(fd) int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return err_sys(err, -errno, "cannot write %s%s",
			       path[0] == '/' ? "" : "/proc/", path);
	return 0;
}

/* An ordinary user may map itself only, and has to give up setgroups() first. */
int id_map_self(int proc, uint32_t uid, uint32_t gid, struct err *err)
{
	char map[64];
	int r = id_map_write(proc, "self/setgroups", "deny", err);

	snprintf(map, sizeof(map), "%u %u 1", uid, uid);
	if (r == 0)
		r = id_map_write(proc, "self/uid_map", map, err);
	snprintf(map, sizeof(map), "%u %u 1", gid, gid);
	if (r == 0)
		r = id_map_write(proc, "self/gid_map", map, err);
	return r;
}

/* ---- the user's home ---- */

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] == '/' ? value : NULL;
}

/* A directory that the user may not enter was another user's, root's mostly. */
static bool is_anothers(const char *home)
{
	return home && access(home, X_OK) < 0 && errno == EACCES;
}

const char *home_directory(void)
{
	const bool is_root = id_map_is_root();
	const char *given = variable("HOME");
	const struct passwd *user;

	if (!is_root && !is_anothers(given))
		return given;
	user = getpwuid(is_root ? 0 : geteuid());
	if (user && user->pw_dir[0] == '/')
		return user->pw_dir;
	return is_root ? "/root" : NULL;
}

char *home_config(struct arena *arena, const char *name)
{
	const char *config = id_map_is_root() ? NULL : variable("XDG_CONFIG_HOME");
	const char *home;

	if (is_anothers(config))
		config = NULL;
	home = config ? NULL : home_directory();
	if (config)
		return arena_printf(arena, "%s/weir/%s", config, name);
	return home ? arena_printf(arena, "%s/.config/weir/%s", home, name) : NULL;
}
