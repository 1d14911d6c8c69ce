// SPDX-License-Identifier: Apache-2.0
#include "run/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "run/program.h"

enum {
	RANGE_SIZE = 65536,
	RANGE_FIRST =
		0x60000000, /* above what useradd, systemd and container engines use */
	RANGE_TRIES = 64,
	ACCOUNTS_MAX = 1024 * 1024, /* bytes of /etc/passwd and the like; a longer one
				     * is taken to hold every id */
};

static const struct program bwrap = {
	.name = "bwrap",
	.package = "Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install "
		   "bubblewrap",
	.option = "--disable-userns",
	.version = "bubblewrap 0.8",
};

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
	int r = program_find(&bwrap, m.bwrap, err);

	if (r == 0)
		r = is_kernel_root(&m.root, err);
	if (r == 0 && m.root)
		r = choose_range(&m.base_uid, err);
	if (r < 0)
		return r;
	*ret = m;
	return 0;
}
