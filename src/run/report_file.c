// SPDX-License-Identifier: Apache-2.0
#include "run/report_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "sys/path.h"

/* No link is followed that an earlier sandbox may have left there. Not blocking, so
 * that a pipe is refused, not waited for. */
static int open_file(const char *name, int mode, struct err *err)
{
	struct path directory;
	const char *last;
	int fd, r = path_open_parent(name, &directory, &last, err);

	if (r < 0)
		return r;
	if (directory.untrusted) {
		err_set(err, -ELOOP,
			"'%s' is a link; name the directory that it leads to",
			directory.untrusted);
		path_done(&directory);
		return -ELOOP;
	}
	fd = openat(directory.fd, last,
		    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
			    mode,
		    0666);
	r = fd < 0 ? -errno : 0;
	path_done(&directory);
	if (r == -ELOOP)
		return err_set(err, r, "it is a link");
	return r < 0 ? err_set(err, r, "%s", strerror(-r)) : fd;
}

int report_open(struct run_spec *spec, struct err *err)
{
	const int mode = spec->report_format == RUN_REPORT_MARKDOWN ? O_APPEND : 0;
	CLEAN(fd) int fd = -1;
	char shown[TEXT_ESCAPED_SIZE];
	struct stat st;

	if (!spec->report_file)
		return 0;
	text_escape(text_of(spec->report_file), shown, sizeof(shown));
	fd = open_file(spec->report_file, mode, err);
	if (fd < 0)
		return err_context(err, "cannot write the report %s", shown);
	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot write the report %s", shown);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL,
			       "cannot write the report: %s is not a regular file",
			       shown);
	if (mode == 0 && ftruncate(fd, 0) < 0)
		return err_sys(err, -errno, "cannot write the report %s", shown);
	spec->report_fd = TAKE_FD(fd);
	spec->kept[spec->kept_count++] = spec->report_file;
	return 0;
}

int report_write(const struct report *r, struct err *err)
{
	FILE *out;
	int result;

	if (!r->spec->report_file)
		return 0;
	out = fdopen(r->spec->report_fd, "w");
	if (!out)
		return err_sys(err, -errno, "cannot write the report");
	if (r->spec->report_format == RUN_REPORT_MARKDOWN)
		result = report_markdown(r, out);
	else
		result = report_json(r, out);
	if (fclose(out) != 0 && result == 0)
		result = -errno;
	if (result < 0)
		return err_sys(err, result, "cannot write the report");
	return 0;
}
