// SPDX-License-Identifier: Apache-2.0
#include "engine/harden.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#include "sys/confine.h"
#include "sys/process.h"

/* The three confinements. All are in force; only programs of tests/confined are built
 * with a HARDEN_BY that leaves some out, to prove what each holds by itself. */
enum confinement {
	BY_CAPABILITIES = 1 << 0,
	BY_LANDLOCK = 1 << 1,
	BY_SECCOMP = 1 << 2,
	BY_ALL = BY_CAPABILITIES | BY_LANDLOCK | BY_SECCOMP,
};

#ifndef HARDEN_BY
#define HARDEN_BY BY_ALL
#endif

int harden_limits(struct err *err)
{
	struct rlimit ignored;
	int r = process_raise_files(&ignored);

	if (r < 0)
		return err_sys(err, r, "cannot raise the descriptor limit");
	if (process_forbid_cores() < 0)
		return err_sys(err, -errno, "cannot forbid core dumps");
	return 0;
}

int harden_engine(uint64_t keep, char *ret_missing, struct err *err)
{
	int r;

	ret_missing[0] = '\0';
	r = HARDEN_BY & BY_CAPABILITIES ? confine_rights(keep, err) : confine_self(err);
	if (r == 0 && (HARDEN_BY & BY_LANDLOCK) != 0) {
		r = landlock_enter(NULL, 0); /* no file at all */
		if (r == -EOPNOTSUPP) {
			r = 0;
			snprintf(ret_missing, ERR_TEXT_SIZE,
				 "this kernel has no Landlock: the engine's file access "
				 "is cut by seccomp alone");
		} else if (r < 0) {
			err_sys(err, r, "cannot confine by Landlock");
		}
	}
	if (r == 0 && (HARDEN_BY & BY_SECCOMP) != 0) {
		r = confine_calls(CONFINE_ENGINE, err);
		if (!confine_has_calls())
			snprintf(ret_missing, ERR_TEXT_SIZE,
				 "built with a sanitizer: no seccomp");
	}
	if (r == 0 && HARDEN_BY != BY_ALL)
		snprintf(ret_missing, ERR_TEXT_SIZE,
			 "a build for tests: the engine is only partly confined");
	return r < 0 ? err_context(err, "the engine") : 0;
}
