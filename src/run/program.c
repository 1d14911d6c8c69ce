// SPDX-License-Identifier: Apache-2.0
#include "run/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/text.h"

static int search(const struct program *p, char *ret, struct err *err)
{
	struct err why = { 0 };
	int r = program_path(p->name, ret, &why);

	return r < 0 ? err_set(err, r, "%s; install it (%s)", why.text, p->package) : 0;
}

/* Asking a program for its version would cost a process; the option that was last to
 * come is in its text or isn't. */
static int check_age(const struct program *p, const char *path, struct err *err)
{
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const void *found;
	void *map;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot read '%s'", path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, -errno, "cannot read '%s'", path);
	found = memmem(map, (size_t)st.st_size, p->option, strlen(p->option));
	munmap(map, (size_t)st.st_size);
	if (!found)
		return err_set(err, -ENOSYS, "'%s' is too old; %s or later is needed",
			       path, p->version);
	return 0;
}

int program_find(const struct program *p, char *ret, struct err *err)
{
	int r = search(p, ret, err);

	return r < 0 ? r : check_age(p, ret, err);
}
