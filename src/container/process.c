// SPDX-License-Identifier: Apache-2.0
#include "container/process.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/text.h"
#include "sys/files.h"

enum { PROC_FILE_MAX = 65536 };

static int read_proc(const char *pid, const char *file, struct file_bytes *ret)
{
	const struct file_how how = { .max_bytes = PROC_FILE_MAX, .anybodys = true };
	struct err ignored = { 0 };
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, file);
	return file_read(AT_FDCWD, path, &how, ret, &ignored);
}

bool container_process_is_of(const char *pid, const char *container)
{
	CLEAN(file_bytes) struct file_bytes groups = { 0 };

	return read_proc(pid, "cgroup", &groups) == 0 && strstr(groups.bytes, container);
}

/* 0: it can't be told. */
static pid_t parent_of(const char *pid)
{
	static const char key[] = "\nPPid:\t";
	CLEAN(file_bytes) struct file_bytes status = { 0 };
	const char *at;
	uint32_t parent;

	if (read_proc(pid, "status", &status) < 0)
		return 0;
	at = strstr(status.bytes, key);
	if (!at)
		return 0;
	at += strlen(key);
	return text_to_u32((struct text){ at, strspn(at, "0123456789") }, INT32_MAX,
			   &parent)
		       ? (pid_t)parent
		       : 0;
}

static int open_pidfd(pid_t pid)
{
	return pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

void container_process_open(const struct docker *e, const char *container,
			    struct container_process *ret)
{
	struct err ignored = { 0 };
	json_t *found = NULL;
	char pid[12];
	pid_t number;

	*ret = (struct container_process){ -1, -1 };
	if (docker_inspect(e, container, &found, &ignored) < 0)
		return;
	number = (pid_t)json_integer_value(
		json_object_get(json_object_get(found, "State"), "Pid"));
	json_decref(found);
	snprintf(pid, sizeof(pid), "%d", (int)number);
	ret->first = open_pidfd(number);
	if (ret->first >= 0 && container_process_is_of(pid, container))
		ret->monitor = open_pidfd(parent_of(pid));
	else
		fd_close(&ret->first);
}

static bool has_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return pidfd >= 0 && poll(&p, 1, 0) > 0;
}

bool container_process_is_gone(const struct container_process *p)
{
	return has_ended(p->first) && has_ended(p->monitor);
}

void container_process_done(struct container_process *p)
{
	fd_close(&p->first);
	fd_close(&p->monitor);
}
