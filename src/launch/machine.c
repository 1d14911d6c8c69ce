// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/text.h"

enum {
	RANGE_SIZE = 65536,
	RANGE_FIRST =
		0x60000000, /* above what useradd, systemd and container engines use */
	RANGE_TRIES = 64,
	ACCOUNTS_MAX = 1024 * 1024, /* bytes of /etc/passwd and the like; a longer one
				     * is taken to hold every id */
};

/* --- bwrap --- */

static bool is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int find_bwrap(char *ret, size_t size, struct err *err)
{
	const char *env = getenv("PATH");
	struct text rest = text_of(env ? env : ""), dir;
	int n;

	while (text_split(&rest, ':', &dir)) {
		if (dir.len == 0 || dir.ptr[0] != '/')
			continue;
		n = snprintf(ret, size, "%.*s/bwrap", (int)dir.len, dir.ptr);
		if (n < (int)size && is_program(ret))
			return 0;
	}
	n = snprintf(ret, size, "/usr/bin/bwrap");
	if (n < (int)size && is_program(ret))
		return 0;
	return err_set(
		err, -ENOENT,
		"cannot find bwrap; install it (Debian, Ubuntu: apt install bubblewrap; "
		"Fedora: dnf install bubblewrap)");
}

/* Asking it for its version would cost a process; the option that was last to come is
 * in its text or isn't. */
static int check_bwrap(const char *path, struct err *err)
{
	static const char wanted[] = "--disable-userns";
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const void *found;
	void *map;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot read '%s'", path);
	map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		return err_sys(err, -errno, "cannot read '%s'", path);
	found = memmem(map, (size_t)st.st_size, wanted, sizeof(wanted));
	munmap(map, (size_t)st.st_size);
	if (!found)
		return err_set(err, -ENOSYS,
			       "'%s' is too old; bubblewrap 0.8 or later is needed",
			       path);
	return 0;
}

/* --- root's id range --- */

struct id_range {
	uint32_t inside, outside, count;
};

/* The line of this process's own id map that holds id 0. */
static int read_own_map(const char *path, struct id_range *ret, struct err *err)
{
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	char buf[4096];
	ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));
	struct text rest, line;

	if (n < 0)
		return err_sys(err, -errno, "cannot read %s", path);
	rest = (struct text){ buf, (size_t)n };
	while (text_split(&rest, '\n', &line)) {
		struct id_range range;
		const char *p = line.ptr, *end = line.ptr + line.len;
		uint32_t *const fields[] = { &range.inside, &range.outside,
					     &range.count };
		size_t i = 0;

		for (; i < ARRAY_SIZE(fields); i++) {
			while (p < end && *p == ' ')
				p++;
			if (!parse_u32(&p, end, UINT32_MAX, fields[i]))
				break;
		}
		if (i == ARRAY_SIZE(fields) && range.inside == 0) {
			*ret = range;
			return 0;
		}
	}
	return err_set(err, -EBADMSG, "cannot understand %s", path);
}

/* Read a whole file of up to ACCOUNTS_MAX bytes; one that doesn't exist is empty. */
static int read_small(const char *path, char **ret_buf, struct text *ret)
{
	CLEAN(fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEAN(mem) char *buf = malloc(ACCOUNTS_MAX);
	ssize_t n;

	if (!buf)
		return -ENOMEM;
	n = fd < 0 ? 0 : read(fd, buf, ACCOUNTS_MAX);
	if (n < 0 || n == ACCOUNTS_MAX)
		return -E2BIG;
	*ret_buf = TAKE_PTR(buf);
	*ret = (struct text){ *ret_buf, (size_t)n };
	return 0;
}

/* /etc/subuid and /etc/subgid: "user:first:count". */
static bool is_delegated(const char *path, uint32_t base)
{
	CLEAN(mem) char *buf = NULL;
	struct text rest, line, user, first;

	if (read_small(path, &buf, &rest) < 0)
		return true;
	while (text_split(&rest, '\n', &line)) {
		uint32_t from, count;

		if (!text_split(&line, ':', &user) || !text_split(&line, ':', &first) ||
		    !text_to_u32(first, UINT32_MAX, &from) ||
		    !text_to_u32(line, UINT32_MAX, &count))
			continue;
		if (from < base + RANGE_SIZE && (uint64_t)from + count > base)
			return true;
	}
	return false;
}

/* /etc/passwd and /etc/group: "name:x:id:...". A directory service can't be searched, and
 * asking it for one id would load its libraries for every launch. */
static bool has_account(const char *path, uint32_t base)
{
	CLEAN(mem) char *buf = NULL;
	struct text rest, line, field = { 0 };
	uint32_t id;

	if (read_small(path, &buf, &rest) < 0)
		return true;
	while (text_split(&rest, '\n', &line)) {
		for (unsigned int i = 0; i < 3; i++) {
			if (!text_split(&line, ':', &field))
				break;
		}
		if (text_to_u32(field, UINT32_MAX, &id) && id >= base &&
		    id - base < RANGE_SIZE)
			return true;
	}
	return false;
}

static bool is_unused(uint32_t base)
{
	return !is_delegated("/etc/subuid", base) && !is_delegated("/etc/subgid", base) &&
	       !has_account("/etc/passwd", base) && !has_account("/etc/group", base);
}

static int choose_range(uint32_t *ret, struct err *err)
{
	struct id_range uids, gids;
	uint32_t end, base = RANGE_FIRST;
	int r = read_own_map("/proc/self/uid_map", &uids, err);

	if (r == 0)
		r = read_own_map("/proc/self/gid_map", &gids, err);
	if (r < 0)
		return r;
	end = MIN(uids.count, gids.count);
	if (end < base + RANGE_SIZE * RANGE_TRIES)
		base = end / 2 / RANGE_SIZE * RANGE_SIZE;
	for (size_t i = 0;
	     i < RANGE_TRIES && base >= RANGE_SIZE && base + RANGE_SIZE <= end; i++) {
		if (is_unused(base)) {
			*ret = base;
			return 0;
		}
		base += RANGE_SIZE;
	}
	return err_set(
		err, -ENOSPC,
		"cannot find %d unused user ids for the sandbox: this container maps too "
		"few, or /etc/subuid holds them all; start weir as an ordinary user",
		RANGE_SIZE);
}

/* In a user namespace uid 0 is an ordinary user of the kernel. */
static int is_kernel_root(bool *ret, struct err *err)
{
	struct id_range uids;
	int r;

	*ret = false;
	if (geteuid() != 0)
		return 0;
	r = read_own_map("/proc/self/uid_map", &uids, err);
	*ret = r == 0 && uids.outside == 0;
	return r;
}

int launch_machine_probe(struct launch_machine *ret, struct err *err)
{
	struct launch_machine m = { 0 };
	int r = find_bwrap(m.bwrap, sizeof(m.bwrap), err);

	if (r == 0)
		r = check_bwrap(m.bwrap, err);
	if (r == 0)
		r = is_kernel_root(&m.root, err);
	if (r == 0 && m.root)
		r = choose_range(&m.base_uid, err);
	if (r < 0)
		return r;
	*ret = m;
	return 0;
}
