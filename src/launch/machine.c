// SPDX-License-Identifier: Apache-2.0
#include "launch/launch.h"

#include <errno.h>

#include <linux/capability.h>

#include "base/text.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/id_map.h"

enum {
	RANGE_SIZE = 65536,
	RANGE_FIRST =
		0x60000000, /* above what useradd, systemd and container engines use */
	RANGE_TRIES = 64,
	ACCOUNTS_MAX = 1024 * 1024, /* bytes of /etc/passwd and the like; a longer one
				     * is taken to hold every id */
};

/* --- root's id range --- */

/* One that doesn't exist is empty. */
static int read_accounts(const char *path, struct file_bytes *ret, struct text *ret_text)
{
	const struct file_how how = { .max_bytes = ACCOUNTS_MAX,
				      .anybodys = true,
				      .follow = true };
	int r = file_read(AT_FDCWD, path, &how, ret, NULL);

	*ret_text = (struct text){ ret->bytes ?: "", ret->size };
	return r == -ENOENT ? 0 : r;
}

/* /etc/subuid and /etc/subgid: "user:first:count". */
static bool is_delegated(const char *path, uint32_t base)
{
	CLEAN(file_bytes) struct file_bytes buf = { 0 };
	struct text rest, line, user, first;

	if (read_accounts(path, &buf, &rest) < 0)
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
	CLEAN(file_bytes) struct file_bytes buf = { 0 };
	struct text rest, line, field = { 0 };
	uint32_t id;

	if (read_accounts(path, &buf, &rest) < 0)
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

static int choose_range(uint32_t *ret, struct err *err)
{
	struct id_range uids, gids;
	uint32_t end, base = RANGE_FIRST;
	int r = id_map_find("/proc/self/uid_map", 0, &uids, err);

	if (r == 0)
		r = id_map_find("/proc/self/gid_map", 0, &gids, err);
	if (r < 0)
		return r;
	end = MIN(uids.count, gids.count);
	if (end < base + RANGE_SIZE * RANGE_TRIES)
		base = end / 2 / RANGE_SIZE * RANGE_SIZE;
	for (size_t i = 0;
	     i < RANGE_TRIES && base >= RANGE_SIZE && base + RANGE_SIZE <= end; i++) {
		if (!is_delegated("/etc/subuid", base) &&
		    !is_delegated("/etc/subgid", base) &&
		    !has_account("/etc/passwd", base) &&
		    !has_account("/etc/group", base)) {
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

int launch_machine_probe(struct launch_machine *ret, struct err *err)
{
	struct launch_machine m = { 0 };
	int r = 0;

	/* Root of a container, without this right, can neither copy mounts nor map ids:
	 * it takes the way of an ordinary user, and is one inside. */
	m.root = id_map_is_root() && capabilities_raise(CAP_SYS_ADMIN);
	if (m.root)
		r = choose_range(&m.base_uid, err);
	if (r < 0)
		return r;
	*ret = m;
	return 0;
}
