// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/confine.h"

#include <errno.h>
#include <seccomp.h>
#include <sys/prctl.h>

#include "sys/capabilities.h"
#include "sys/landlock.h"

/* libpq with its TLS, name services and threads does too much to be listed call by call:
 * what is taken away is what somebody who took it over would want. */
static const int refused_calls[] = {
	SCMP_SYS(execve),
	SCMP_SYS(execveat),
	SCMP_SYS(ptrace),
	SCMP_SYS(process_vm_readv),
	SCMP_SYS(process_vm_writev),
	SCMP_SYS(kill),
	SCMP_SYS(tkill),
	SCMP_SYS(pidfd_open),
	SCMP_SYS(pidfd_getfd),
	SCMP_SYS(pidfd_send_signal),
	SCMP_SYS(unshare),
	SCMP_SYS(setns),
	SCMP_SYS(mount),
	SCMP_SYS(umount2),
	SCMP_SYS(chroot),
	SCMP_SYS(bpf),
	SCMP_SYS(perf_event_open),
	SCMP_SYS(userfaultfd),
	SCMP_SYS(io_uring_setup),
	SCMP_SYS(keyctl),
	SCMP_SYS(add_key),
	SCMP_SYS(request_key),
	SCMP_SYS(setuid),
	SCMP_SYS(setgid),
	SCMP_SYS(listen),
	SCMP_SYS(accept),
	SCMP_SYS(accept4),
};

static int cut_calls(struct err *err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = ctx ? 0 : -ENOMEM;

	for (size_t i = 0; i < ARRAY_SIZE(refused_calls) && r == 0; i++)
		r = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused_calls[i], 0);
#ifndef __SANITIZE_ADDRESS__ /* whose own calls are not ours; for tests only */
	if (r == 0)
		r = seccomp_load(ctx);
#endif
	seccomp_release(ctx);
	return r < 0 ? err_sys(err, r, "cannot confine by seccomp") : 0;
}

int confine(const char *directory, struct err *err)
{
	/* Certificates and password files may be anywhere. */
	const struct landlock_path paths[] = { { .path = "/", .write = false },
					       { .path = directory, .write = true } };
	int r;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot confine");
	if (capabilities_keep(0, err) < 0)
		return err->code;
	r = landlock_enter(paths, ARRAY_SIZE(paths));
	if (r < 0 && r != -EOPNOTSUPP)
		return err_sys(err, r, "cannot cut file access by Landlock");
	return cut_calls(err);
}
