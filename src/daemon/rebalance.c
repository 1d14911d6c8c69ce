// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Each engine has a folder with what its sandboxes need after a restart, and its daemon
 * looks nowhere else. So before there is any daemon but the first, folders are moved: all
 * those of engines that there won't be, to the engines that have the fewest; and network
 * namespaces that an engine has no room for, if another one has. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "daemon/internal.h"

enum { DIR_MODE = 0700 };

struct deal {
	int root;
	size_t engines;
	bool may_grow;
	size_t least, most; /* namespaces that an engine has room for */
	size_t counts[IPC_ENGINES_MAX];
	size_t seen; /* namespaces of the engine that has too many */
};

static void count_one(struct deal *d, uint32_t engine, const char *name)
{
	d->counts[engine]++;
}

/* The engine that has the fewest. */
static uint32_t find_least(struct deal *d)
{
	uint32_t least = 0;

	for (uint32_t i = 1; i < d->engines; i++)
		if (d->counts[i] < d->counts[least])
			least = i;
	if (d->counts[least] >= d->least && d->may_grow && d->engines < IPC_ENGINES_MAX)
		least = (uint32_t)d->engines++;
	return least;
}

static void move_one(struct deal *d, uint32_t engine, const char *name)
{
	char from[STATE_FOLDER_SIZE + NAME_MAX + 2], to[STATE_FOLDER_SIZE + NAME_MAX + 2];
	char folder[STATE_FOLDER_SIZE];
	uint32_t least = find_least(d);

	state_folder_name(engine, folder);
	snprintf(from, sizeof(from), "%s/%s", folder, name);
	state_folder_name(least, folder);
	if (least > 0)
		(void)!mkdirat(d->root, folder, DIR_MODE);
	snprintf(to, sizeof(to), "%s/%s", folder, name);
	if (renameat(d->root, from, d->root, to) < 0)
		log_warning("cannot give '%s' to another engine: %s; its rules stay as "
			    "they are",
			    name, strerror(errno));
	else
		d->counts[least]++;
}

static bool is_namespace(const struct deal *d, const char *path, const char *name)
{
	CLEAN(fd) int folder = state_folder_open(d->root, path);
	struct daemon_sandbox w = { 0 };

	return folder >= 0 && state_read(folder, name, &w) == 0 &&
	       w.spec.kind == ATTACH_NETNS;
}

/* What it has no room for, as long as there is some elsewhere. */
static void spread_one(struct deal *d, uint32_t engine, const char *name)
{
	char path[STATE_FOLDER_SIZE + NAME_MAX + 2], folder[STATE_FOLDER_SIZE];

	state_folder_name(engine, folder);
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (!is_namespace(d, path, name) || ++d->seen <= d->least ||
	    d->counts[find_least(d)] >= d->least)
		return;
	d->counts[engine]--;
	move_one(d, engine, name);
}

static void each_of(struct deal *d, uint32_t engine,
		    void (*fn)(struct deal *d, uint32_t engine, const char *name))
{
	char folder[STATE_FOLDER_SIZE];
	const struct dirent *e;
	DIR *dir;
	int fd;

	state_folder_name(engine, folder);
	fd = state_folder_open(d->root, folder);
	dir = fd < 0 ? NULL : fdopendir(fd);
	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			fn(d, engine, e->d_name);
	if (dir)
		closedir(dir);
}

/* Those that are not wanted any more. */
static void close_others(struct deal *d)
{
	char folder[STATE_FOLDER_SIZE];

	for (uint32_t i = (uint32_t)d->engines; i < IPC_ENGINES_MAX; i++) {
		if (d->counts[i] > 0)
			each_of(d, i, move_one);
		state_folder_name(i, folder);
		(void)!unlinkat(d->root, folder, AT_REMOVEDIR);
	}
}

size_t deal_out(struct daemon *w, size_t wanted)
{
	struct deal d = { .root = w->state_root, .engines = MAX(wanted, (size_t)1) };

	room_namespaces(&d.least, &d.most);
	for (uint32_t i = 0; i < IPC_ENGINES_MAX; i++) {
		each_of(&d, i, count_one);
		if (wanted == 0 && d.counts[i] > 0)
			d.engines = i + 1;
	}
	close_others(&d);
	d.may_grow = wanted == 0;
	for (uint32_t i = 0; i < d.engines; i++) {
		d.seen = 0;
		if (d.counts[i] > d.most)
			each_of(&d, i, spread_one);
	}
	return d.engines;
}
