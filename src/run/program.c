// SPDX-License-Identifier: Apache-2.0
#include "run/program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/text.h"

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* @ret is written whether it is there or not. */
static bool is_in(const char *dir, size_t dir_len, const char *name, char *ret)
{
	int n = snprintf(ret, PROGRAM_PATH_SIZE, "%.*s/%s", (int)dir_len, dir, name);

	return n < PROGRAM_PATH_SIZE && is_program(ret);
}

static int search(const struct program *p, char *ret, struct err *err)
{
	static const char usual[] = "/usr/bin";
	const char *env = getenv("PATH");
	struct text rest = text_of(env ? env : ""), dir;

	while (text_split(&rest, ':', &dir)) {
		if (dir.len > 0 && dir.ptr[0] == '/' &&
		    is_in(dir.ptr, dir.len, p->name, ret))
			return 0;
	}
	if (is_in(usual, sizeof(usual) - 1, p->name, ret))
		return 0;
	return err_set(err, -ENOENT, "cannot find %s; install it (%s)", p->name,
		       p->package);
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
