// SPDX-License-Identifier: Apache-2.0
#include "sys/guest_kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* How the programs' names begin. A kernel's "comm" has 15 letters of one. */
static const char *const beginnings[] = {
	"runsc",      "kata-",	     "containerd-shim-kata", "qemu-system",
	"qemu-kvm",   "firecracker", "cloud-hyperviso",	     "crosvm",
	"dragonball", "stratovirt",
};

static bool is_one(const char *program)
{
	const char *slash = strrchr(program, '/');
	const char *name = slash ? slash + 1 : program;

	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
			return true;
	return false;
}

static void read_name(pid_t pid, const char *file, char ret[PATH_MAX])
{
	char path[64];
	CLEAN(fd) int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, ret, PATH_MAX - 1);
	ret[n > 0 ? n : 0] = '\0';
	ret[strcspn(ret, "\n")] = '\0';
}

static void read_program(pid_t pid, char ret[PATH_MAX])
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
	n = readlink(path, ret, PATH_MAX - 1);
	ret[n > 0 ? n : 0] = '\0';
}

int guest_kernel_refuse(pid_t pid, struct err *err)
{
	char names[3][PATH_MAX];

	read_program(pid, names[0]);
	read_name(pid, "cmdline", names[1]);
	read_name(pid, "comm", names[2]);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (is_one(names[i]))
			return err_set(
				err, -EOPNOTSUPP,
				"process %d is '%.60s': packets of gVisor and of virtual "
				"machines don't pass the filter of the namespace that "
				"they sit in; use the runtime runc or crun, or run Weir "
				"inside",
				(int)pid, names[i]);
	return 0;
}
