// SPDX-License-Identifier: Apache-2.0
#include "settings/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "opensandbox/policy_file.h"
#include "sys/files.h"

/* Something of ours, or of root's, is mounted at its end. */
static bool is_own_volume(const char *name)
{
	CLEAN(path) struct path p = { .fd = -1 };
	CLEAN(path) struct path above = { .fd = -1 };
	struct err ignored = { 0 };
	char way[PATH_MAX];

	if (path_open_as(PATH_WAY, name, &p, &ignored) != 0 ||
	    (p.st.st_uid != 0 && p.st.st_uid != geteuid()) || p.mount_id == 0 ||
	    snprintf(way, sizeof(way), "%s/..", p.name) >= (int)sizeof(way))
		return false;
	return path_open(way, &above, &ignored) == 0 && above.mount_id != 0 &&
	       above.mount_id != p.mount_id;
}

int state_dir_take(struct sidecar_spec *spec, bool *ret_shared, struct err *err)
{
	const char *name = spec->state_dir;
	CLEAN(path) struct path made = { .fd = -1 };
	CLEAN(path) struct path owned = { .fd = -1 };
	struct err why = { 0 };
	bool shared = false;
	int r = 0;

	if (name && path_open_made(name, &made, &why) < 0) {
		if (why.code == -ELOOP)
			r = err_set(err, why.code, "%s", why.text);
	} else if (name && path_open_as(PATH_OWNED, name, &owned, &why) == -EPERM) {
		shared = is_own_volume(name);
		if (!shared)
			r = err_set(err, -EPERM, "%s", why.text);
	}
	if (r < 0)
		spec->state_dir = NULL;
	if (ret_shared)
		*ret_shared = shared;
	return r;
}

/* -- what a sidecar keeps there of its policy -------------------------------------- */

/* A name that is too long stays so, for the kernel to refuse it: cut, it would be another
 * file's. */
enum { STATE_PATH_SIZE = PATH_MAX + NAME_MAX };

static void path_of(const char *state_dir, const char *file, char *buf)
{
	snprintf(buf, STATE_PATH_SIZE, "%s/%s", state_dir, file);
}

int closed_file_note_policy(const char *state_dir, struct err *err)
{
	const struct file_how how = { .flags = O_WRONLY | O_CREAT,
				      .mode = 0600,
				      .anybodys = true };
	char path[STATE_PATH_SIZE];
	CLEAN(fd) int fd = -1;

	path_of(state_dir, "policy.set", path);
	fd = file_open(AT_FDCWD, path, &how, err);
	return MIN(fd, 0);
}

bool closed_file_had_policy(const char *state_dir)
{
	char path[STATE_PATH_SIZE];

	path_of(state_dir, "policy.set", path);
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	       (errno != ENOENT && errno != ENOTDIR);
}

int closed_file_write(const char *state_dir, const struct document *d, struct err *err)
{
	char path[STATE_PATH_SIZE];
	struct policy_file file = { .path = path };
	CLEAN(mem) char *text = NULL;
	int r;

	path_of(state_dir, "closed.json", path);
	if (!document_closed(d))
		return unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR
			       ? 0
			       : err_sys(err, -errno, "cannot remove %s", path);
	text = document_json(d, true);
	if (!text)
		return err_set(err, -ENOMEM, "out of memory");
	r = policy_file_prepare(&file, text_of(text), err);
	return r < 0 ? r : policy_file_commit(&file, err);
}

int closed_file_read(const char *state_dir, struct document **ret, struct err *err)
{
	char path[STATE_PATH_SIZE];
	const struct policy_file file = { .path = path };
	CLEAN(arena) struct arena arena = { 0 };
	struct document *d = NULL;
	struct text text;
	int r;

	path_of(state_dir, "closed.json", path);
	r = policy_file_read(&file, &arena, &text, err);
	if (r == -ENOENT || r == -ENOTDIR) {
		*err = (struct err){ 0 };
		return 0;
	}
	if (r == 0)
		r = document_parse(text, NULL, NULL, &d, err);
	if (r == 0 && !document_closed(d))
		r = err_set(err, -EINVAL, "it isn't closed");
	if (r < 0) {
		document_free(d);
		return err_context(err, "%s", path);
	}
	*ret = d;
	return 1;
}
