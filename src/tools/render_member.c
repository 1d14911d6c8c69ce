// SPDX-License-Identifier: Apache-2.0
#include "tools/render_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "base/hash.h"
#include "policy/faults.h"

/* nft looks there, whatever is mounted where. */
#define CGROUPS "/sys/fs/cgroup"

enum {
	MARK_BASE = 0x77000000, /* with a hash of the id behind it */
	MARK_BITS = 0x00ffffff,
};

void render_fault(struct faults *f, const char *option, const char *fmt, ...)
{
	char text[FAULT_TEXT_SIZE / 2];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	faults_add(f, FAULT_ERROR, option, 0, 0, "", "%s", text);
}

/* It becomes a part of a table's and a file's name. */
bool render_id_is_valid(const char *id)
{
	static const char all[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				  "0123456789_-";
	size_t len = strlen(id);

	return len > 0 && len <= RENDER_ID_MAX && id[0] != '-' && strspn(id, all) == len;
}

void render_table_name(const char *id, char ret[RENDER_TABLE_SIZE])
{
	snprintf(ret, RENDER_TABLE_SIZE, "weir_%s", id);
}

/* ---- the cgroup ---- */

/* Where version 2 is mounted: there, or, beside version 1, below it. */
static const char *mount_point(void)
{
	static const char *const places[] = { CGROUPS, CGROUPS "/unified" };
	struct statfs st;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (statfs(places[i], &st) == 0 && st.f_type == CGROUP2_SUPER_MAGIC)
			return places[i];
	return NULL;
}

/* It stands between quotes in nft's words. */
static bool is_plain(const char *path)
{
	for (; *path; path++)
		if (*path <= ' ' || *path > '~' || *path == '"')
			return false;
	return true;
}

static uint8_t count_levels(const char *below)
{
	size_t levels = 0;

	for (; *below; below++)
		levels += *below == '/';
	return levels <= UINT8_MAX ? (uint8_t)levels : 0;
}

/* @given as it stands, or as /proc/self/cgroup has it: below the mount point. */
static void find_cgroup(const char *given, struct arena *arena, struct faults *f,
			struct filter_cgroup *ret)
{
	const char *mount = mount_point(), *path = given;
	char shown[TEXT_ESCAPED_SIZE], real[PATH_MAX];
	struct stat st;
	size_t len;

	text_escape(text_of(given), shown, sizeof(shown));
	if (!mount) {
		render_fault(f, "--cgroup", "no control groups of version 2 in " CGROUPS);
		return;
	}
	len = strlen(mount);
	if (strncmp(given, CGROUPS "/", sizeof(CGROUPS)) != 0)
		path = arena_printf(arena, "%s/%s", mount, given);
	if (!path || !realpath(path, real) || stat(real, &st) < 0 ||
	    !S_ISDIR(st.st_mode)) {
		render_fault(f, "--cgroup", "'%s' is no control group", shown);
		return;
	}
	if (strncmp(real, mount, len) != 0 || real[len] != '/' || !is_plain(real)) {
		render_fault(f, "--cgroup", "'%s' is not a control group below %s", shown,
			     mount);
		return;
	}
	ret->level = count_levels(real + len);
	ret->id = st.st_ino;
	ret->path = arena_text(arena, text_of(real + sizeof(CGROUPS)));
	if (ret->level == 0 || !ret->path)
		render_fault(f, "--cgroup", "'%s' is too deep", shown);
}

/* ---- the user ---- */

static void find_uid(const char *given, struct faults *f, uint32_t *ret)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (text_to_u32(text_of(given), UINT32_MAX - 1, ret) && *ret > 0)
		return;
	render_fault(f, "--uid", "'%s' is not a user id from 1 to %u",
		     text_escape(text_of(given), shown, sizeof(shown)), UINT32_MAX - 1);
}

/* ---- all of it ---- */

static const char *default_id(const struct render_spec *spec, struct arena *arena)
{
	const char *slash = spec->cgroup ? strrchr(spec->cgroup, '/') : NULL;

	if (spec->uid)
		return arena_printf(arena, "uid-%s", spec->uid);
	return slash ? slash + 1 : spec->cgroup;
}

static void find_id(const struct render_spec *spec, struct arena *arena, struct faults *f,
		    struct render_member *ret)
{
	const char *id = spec->id ? spec->id : default_id(spec, arena);
	char shown[TEXT_ESCAPED_SIZE];

	if (!id || !render_id_is_valid(id)) {
		text_escape(text_of(id ? id : ""), shown, sizeof(shown));
		/* What else it would be made from may be wrong by itself. */
		if (spec->id || spec->cgroup)
			render_fault(f, "--id",
				     "'%s' is not a name of letters, digits, - and _, "
				     "%d at most",
				     shown, RENDER_ID_MAX);
		return;
	}
	snprintf(ret->id, sizeof(ret->id), "%s", id);
	render_table_name(id, ret->table);
	snprintf(ret->prefix, sizeof(ret->prefix), FILTER_PREFIX_REFUSED " %s", id);
	ret->mark = MARK_BASE |
		    ((uint32_t)hash_bytes(&(struct hash_key){ 0 }, id, strlen(id)) &
		     MARK_BITS);
}

void render_member_find(const struct render_spec *spec, struct arena *arena,
			struct faults *f, struct render_member *ret)
{
	if (!spec->cgroup == !spec->uid)
		render_fault(f, "render", "give either --cgroup or --uid");
	if (spec->cgroup)
		find_cgroup(spec->cgroup, arena, f, &ret->cgroup);
	if (spec->uid)
		find_uid(spec->uid, f, &ret->uid);
	ret->by_cgroup = spec->cgroup;
	find_id(spec, arena, f, ret);
}
