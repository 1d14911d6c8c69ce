// SPDX-License-Identifier: Apache-2.0
#include "engine/harden.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "sys/capabilities.h"
#include "sys/landlock.h"

/* The engine's filter: BPF that the build made of engine_calls.c (engine_calls.S). */
extern const uint8_t engine_calls_start[], engine_calls_end[];

/* The three confinements. All stand; only programs of tests/confined are built with a
 * HARDEN_BY that leaves some out, to prove what each holds by itself. */
enum confinement {
	BY_CAPABILITIES = 1 << 0,
	BY_LANDLOCK = 1 << 1,
	BY_SECCOMP = 1 << 2,
	BY_ALL = BY_CAPABILITIES | BY_LANDLOCK | BY_SECCOMP,
};

#ifndef HARDEN_BY
#define HARDEN_BY BY_ALL
#endif

/* No file at all. */
static int enter_landlock(char *ret_missing)
{
	int r = landlock_enter(NULL, 0);

	if (r != -EOPNOTSUPP)
		return r;
	snprintf(ret_missing, ERR_TEXT_SIZE,
		 "this kernel has no Landlock: the engine's file access is cut by "
		 "seccomp alone");
	return 0;
}

/* engine_calls.c says what is in the filter, and why. */
static int enter_seccomp(char *ret_missing, struct err *err)
{
	struct sock_fprog program = {
		.len = (unsigned short)((engine_calls_end - engine_calls_start) /
					sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)engine_calls_start,
	};

#ifdef __SANITIZE_ADDRESS__
	/* The sanitizers' own calls (reading /proc/self/maps, executing a symbolizer)
	 * are not the engine's; their builds are for tests only. */
	snprintf(ret_missing, ERR_TEXT_SIZE, "built with a sanitizer: no seccomp");
	return 0;
#endif
	if (program.len == 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0)
		return err_sys(err, program.len == 0 ? -EBADMSG : -errno,
			       "cannot confine the engine by seccomp");
	return 0;
}

int harden_limits(struct err *err)
{
	const struct rlimit none = { 0, 0 };
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot read the descriptor limit");
	files.rlim_cur = files.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot raise the descriptor limit");
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_sys(err, -errno, "cannot forbid core dumps");
	return 0;
}

int harden_engine(uint64_t keep, char *ret_missing, struct err *err)
{
	int r;

	ret_missing[0] = '\0';
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot confine the engine");
	r = HARDEN_BY & BY_CAPABILITIES ? capabilities_keep(keep, err) : 0;
	if (r < 0)
		return r;
	r = HARDEN_BY & BY_LANDLOCK ? enter_landlock(ret_missing) : 0;
	if (r < 0)
		return err_sys(err, r, "cannot confine the engine by Landlock");
	r = HARDEN_BY & BY_SECCOMP ? enter_seccomp(ret_missing, err) : 0;
	if (r == 0 && HARDEN_BY != BY_ALL)
		snprintf(ret_missing, ERR_TEXT_SIZE,
			 "a build for tests: the engine is only partly confined");
	return r;
}
