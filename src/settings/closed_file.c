// SPDX-License-Identifier: Apache-2.0
#include "settings/closed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "opensandbox/policy_file.h"
#include "sys/files.h"

static void path_of(const char *state_dir, char *buf)
{
	snprintf(buf, PATH_MAX, "%s/closed.json", state_dir);
}

static void note_of(const char *state_dir, char *buf)
{
	snprintf(buf, PATH_MAX, "%s/policy.set", state_dir);
}

int closed_file_note_policy(const char *state_dir, struct err *err)
{
	const struct file_how how = { .flags = O_WRONLY | O_CREAT,
				      .mode = 0600,
				      .anybodys = true };
	char path[PATH_MAX];
	CLEAN(fd) int fd = -1;

	note_of(state_dir, path);
	fd = file_open(AT_FDCWD, path, &how, err);
	return MIN(fd, 0);
}

bool closed_file_had_policy(const char *state_dir)
{
	char path[PATH_MAX];

	note_of(state_dir, path);
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	       (errno != ENOENT && errno != ENOTDIR);
}

int closed_file_write(const char *state_dir, const struct document *d, struct err *err)
{
	char path[PATH_MAX];
	struct policy_file file = { .path = path };
	CLEAN(mem) char *text = NULL;
	int r;

	path_of(state_dir, path);
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
	char path[PATH_MAX];
	const struct policy_file file = { .path = path };
	CLEAN(arena) struct arena arena = { 0 };
	struct document *d = NULL;
	struct text text;
	int r;

	path_of(state_dir, path);
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
