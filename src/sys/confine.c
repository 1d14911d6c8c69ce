// SPDX-License-Identifier: Apache-2.0
#include "sys/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "sys/process.h"

/* confine.S */
extern const uint8_t confine_engine_start[], confine_engine_end[];
extern const uint8_t confine_socket_owner_start[], confine_socket_owner_end[];
extern const uint8_t confine_control_start[], confine_control_end[];
extern const uint8_t confine_webhook_start[], confine_webhook_end[];
extern const uint8_t confine_postgres_start[], confine_postgres_end[];

/* ---- capabilities ---- */

int capabilities_keep(uint64_t keep, struct err *err)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const uint32_t low = (uint32_t)keep, high = (uint32_t)(keep >> 32);
	struct __user_cap_data_struct kept[2] = {
		{ .permitted = low, .effective = low },
		{ .permitted = high, .effective = high },
	};

	/* EINVAL: past the last one that this kernel knows. EPERM: an ordinary user
	 * has nothing to drop; no_new_privs keeps it so. */
	for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (errno != EINVAL && errno != EPERM)
		return err_sys(err, -errno, "cannot empty the bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot clear the ambient capabilities");
	if (syscall(SYS_capset, &header, kept) < 0)
		return err_sys(err, -errno, "cannot drop the capabilities");
	return 0;
}

bool capabilities_raise(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const size_t word = CAP_TO_INDEX(capability);
	const uint32_t bit = CAP_TO_MASK(capability);
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	if (data[word].effective & bit)
		return true;
	data[word].effective |= bit;
	return (data[word].permitted & bit) && syscall(SYS_capset, &header, data) == 0;
}

int capabilities_lower(uint64_t lower)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].effective &= ~(uint32_t)lower;
	data[1].effective &= ~(uint32_t)(lower >> 32);
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* ---- files ---- */

/* ABI 6: processes outside the domain can't be signalled, nor abstract unix sockets
 * reached. Not in the headers of Debian 12. */
enum {
	SCOPE_ABSTRACT_UNIX_SOCKET = 1 << 0,
	SCOPE_SIGNAL = 1 << 1,
};

/* Rights that came later than Debian 12's headers. */
enum {
	RIGHT_REFER = 1 << 13,	   /* ABI 2 */
	RIGHT_TRUNCATE = 1 << 14,  /* 3 */
	RIGHT_IOCTL_DEV = 1 << 15, /* 5 */
};

struct landlock_attr {
	uint64_t handled_access_fs;
	uint64_t handled_access_net;
	uint64_t scoped;
};

static int add_path(int ruleset, const struct landlock_path *p, uint64_t handled)
{
	struct landlock_path_beneath_attr attr = { 0 };
	CLEAN(fd) int fd = open(p->path, O_PATH | O_CLOEXEC);
	bool is_directory;
	struct stat st;

	/* What isn't there, or can't be reached, is not granted. */
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR || errno == EACCES ? 0
									      : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	attr.parent_fd = fd;
	is_directory = S_ISDIR(st.st_mode);
	attr.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
	if (is_directory)
		attr.allowed_access |= LANDLOCK_ACCESS_FS_READ_DIR;
	if (p->write)
		attr.allowed_access |= LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE;
	if (p->write && is_directory)
		attr.allowed_access |= LANDLOCK_ACCESS_FS_MAKE_REG |
				       LANDLOCK_ACCESS_FS_MAKE_DIR |
				       LANDLOCK_ACCESS_FS_REMOVE_FILE | RIGHT_REFER;
	attr.allowed_access &= handled;
	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr,
		       0) < 0
		       ? -errno
		       : 0;
}

/* A ruleset that handles @rights (0: all that this kernel can refuse), and cuts signals
 * and abstract sockets of others off where it can. Return: a descriptor; -EOPNOTSUPP:
 * this kernel's Landlock is older than version @least; -errno. */
static int make_ruleset(long least, uint64_t rights, uint64_t *ret_handled)
{
	const long abi = syscall(SYS_landlock_create_ruleset, NULL, 0,
				 LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_attr attr = { .handled_access_fs = rights };
	size_t size = offsetof(struct landlock_attr, handled_access_net);
	int fd;

	if (abi < least)
		return -EOPNOTSUPP;
	/* All that this kernel can refuse: execute to make_sym came with ABI 1. */
	if (rights == 0)
		attr.handled_access_fs = ((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1) |
					 (abi >= 2 ? RIGHT_REFER : 0) |
					 (abi >= 3 ? RIGHT_TRUNCATE : 0) |
					 (abi >= 5 ? RIGHT_IOCTL_DEV : 0);
	if (abi >= 6) {
		attr.scoped = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL;
		size = sizeof(attr);
	}
	*ret_handled = attr.handled_access_fs;
	fd = (int)syscall(SYS_landlock_create_ruleset, &attr, size, 0);
	return fd < 0 ? -errno : fd;
}

int landlock_enter(const struct landlock_path *paths, size_t count)
{
	uint64_t handled;
	CLEAN(fd) int fd = make_ruleset(1, 0, &handled);

	if (fd < 0)
		return fd;
	for (size_t i = 0; i < count; i++) {
		int r = add_path(fd, &paths[i], handled);

		if (r < 0)
			return r;
	}
	return syscall(SYS_landlock_restrict_self, fd, 0) < 0 ? -errno : 0;
}

int landlock_scope(void)
{
	/* Something has to be handled; moving files is refused unless it is, and is
	 * allowed. */
	struct landlock_path_beneath_attr all = { .allowed_access = RIGHT_REFER };
	uint64_t handled;
	CLEAN(fd) int fd = make_ruleset(2, RIGHT_REFER, &handled), root = -1;

	if (fd < 0)
		return fd;
	root = open("/", O_PATH | O_CLOEXEC);
	if (root < 0)
		return -errno;
	all.parent_fd = root;
	if (syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &all, 0) < 0 ||
	    syscall(SYS_landlock_restrict_self, fd, 0) < 0)
		return -errno;
	return 0;
}

/* ---- all of it ---- */

int confine_self(struct err *err)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || process_forbid_cores() < 0)
		return err_sys(err, -errno, "cannot give up rights");
	return 0;
}

int confine_rights(uint64_t keep, struct err *err)
{
	int r = confine_self(err);

	return r < 0 ? r : capabilities_keep(keep, err);
}

bool confine_has_calls(void)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return true;
#endif
}

int confine_calls(enum confine_program program, struct err *err)
{
	static const struct {
		const uint8_t *start, *end;
	} lists[CONFINE_PROGRAM_COUNT] = {
		[CONFINE_ENGINE] = { confine_engine_start, confine_engine_end },
		[CONFINE_SOCKET_OWNER] = { confine_socket_owner_start,
					   confine_socket_owner_end },
		[CONFINE_CONTROL] = { confine_control_start, confine_control_end },
		[CONFINE_WEBHOOK] = { confine_webhook_start, confine_webhook_end },
		[CONFINE_POSTGRES] = { confine_postgres_start, confine_postgres_end },
	};
	const uint8_t *start = lists[program].start;
	const struct sock_fprog filter = {
		.len = (unsigned short)((size_t)(lists[program].end - start) /
					sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)start,
	};

	if (!confine_has_calls())
		return 0;
	if (filter.len == 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		return err_sys(err, filter.len == 0 ? -EBADMSG : -errno,
			       "cannot confine by seccomp");
	return 0;
}

/* ---- capabilities by name ---- */

bool capability_is(struct text given, const char *name)
{
	static const char prefix[] = "CAP_";
	const size_t skip = sizeof(prefix) - 1;

	if (given.len > skip &&
	    text_equal_nocase((struct text){ given.ptr, skip }, prefix)) {
		given.ptr += skip;
		given.len -= skip;
	}
	return text_equal_nocase(given, name);
}

bool capability_undoes_filter(struct text given)
{
	/* What isn't here isn't harmless: ALL, another kernel's capability, and a letter
	 * that is one of these only in capitals, as engines compare them. */
	static const char *const harmless[] = {
		"AUDIT_READ",	 "AUDIT_WRITE",
		"BLOCK_SUSPEND", "CHOWN",
		"DAC_OVERRIDE",	 "FOWNER",
		"FSETID",	 "IPC_LOCK",
		"IPC_OWNER",	 "KILL",
		"LEASE",	 "LINUX_IMMUTABLE",
		"MKNOD",	 "NET_BIND_SERVICE",
		"NET_BROADCAST", "NET_RAW",
		"SETFCAP",	 "SETGID",
		"SETPCAP",	 "SETUID",
		"SYSLOG",	 "SYS_CHROOT",
		"SYS_RESOURCE",	 "SYS_NICE",
		"SYS_PACCT",	 "SYS_TTY_CONFIG",
		"WAKE_ALARM",
	};

	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
		if (capability_is(given, harmless[i]))
			return false;
	return true;
}
