// SPDX-License-Identifier: Apache-2.0
/* sys/id_map - which ids of this process's user namespace stand for which outside, and
 * where the user who that is has the configuration. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct id_range {
	uint32_t inside, outside, count;
};

/* The line of @path, /proc/self/uid_map or gid_map, that has the id @inside.
 * Return: 0, -ENOENT when no line has it, or another -errno. */
int id_map_find(const char *path, uint32_t inside, struct id_range *ret,
		struct err *err) MUST_CHECK;

/* The effective user is uid 0, and the machine's: in a user namespace uid 0 may be an
 * ordinary user of the kernel. */
bool id_map_is_root(void);

/* @text into the file @path: "/proc/1/uid_map", or "1/uid_map" below @proc, an open
 * /proc. Return: 0 or -errno with @err. */
int id_map_write(int proc, const char *path, const char *text,
		 struct err *err) MUST_CHECK;
/* Map this one user and group of a user namespace that this process has just made to
 * themselves. @proc is an open /proc. Return: 0 or -errno with @err. */
int id_map_self(int proc, uint32_t uid, uint32_t gid, struct err *err) MUST_CHECK;

/* The home directory: $HOME. For the machine's root it is that of the passwd entry,
 * because sudo and its like may leave HOME as another user's, and what lies there would
 * decide what root's sandboxes may do; and so it is where the user may not enter $HOME,
 * which su and containers may leave as root's. Return: an absolute path, which lives as
 * long as the environment; NULL: there is none. */
const char *home_directory(void);

/* @name in ~/.config/weir, or in $XDG_CONFIG_HOME/weir, which counts for the machine's
 * root as little as HOME. NULL: there is no home, or no memory. */
char *home_config(struct arena *arena, const char *name);
