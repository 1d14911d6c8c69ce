// SPDX-License-Identifier: Apache-2.0
#include "sys/guest_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

enum { NAMES = 3 };

/* How the programs' names begin. A kernel's "comm" has 15 letters of one. */
static const char *const beginnings[] = {
	"runsc",      "kata-",	     "containerd-shim-kata", "qemu-system",
	"qemu-kvm",   "firecracker", "cloud-hyperviso",	     "crosvm",
	"dragonball", "stratovirt",
};

static const char *guest_name(const char *program)
{
	const char *slash = strrchr(program, '/');

	return slash ? slash + 1 : program;
}

static bool is_one(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

/* Of "123" and "/proc/123/ns/net"; 0: of no process. */
static uint32_t process_of(const char *where)
{
	static const char proc[] = "/proc/";
	const char *number = where;
	uint32_t pid;

	if (strncmp(where, proc, strlen(proc)) == 0)
		number += strlen(proc);
	else if (strchr(where, '/'))
		return 0;
	return text_to_u32((struct text){ number, strcspn(number, "/") }, INT32_MAX, &pid)
		       ? pid
		       : 0;
}

/* What the program is called, its first argument, and what the kernel calls it. */
static void read_names(uint32_t pid, char ret[NAMES][PATH_MAX])
{
	static const char *const files[] = { "exe", "cmdline", "comm" };

	for (size_t i = 0; i < NAMES; i++) {
		CLEAN(fd) int fd = -1;
		char path[64];
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%u/%s", pid, files[i]);
		if (i > 0)
			fd = open(path, O_RDONLY | O_CLOEXEC);
		n = i == 0 ? readlink(path, ret[i], PATH_MAX - 1)
			   : read(fd, ret[i], PATH_MAX - 1);
		ret[i][n > 0 ? n : 0] = '\0';
		ret[i][strcspn(ret[i], "\n")] = '\0';
	}
}

int guest_kernel_refuse(const char *where, struct err *err)
{
	const uint32_t pid = process_of(where);
	char names[NAMES][PATH_MAX];

	if (pid == 0)
		return 0;
	read_names(pid, names);
	for (size_t i = 0; i < NAMES; i++)
		if (is_one(guest_name(names[i])))
			return err_set(
				err, -EOPNOTSUPP,
				"process %u is '%.60s': packets of gVisor and of virtual "
				"machines don't pass the filter of the namespace that "
				"they sit in; use the runtime runc or crun, or run Weir "
				"inside",
				pid, SHOWN(guest_name(names[i])));
	return 0;
}
