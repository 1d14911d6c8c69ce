// SPDX-License-Identifier: Apache-2.0
/* sys/seccomp_arch - for the programs of the build that make lists of system calls.
 *
 * They run where Weir is built, and the lists may be for another architecture: libseccomp
 * takes a call by its number here, or by one that it made up where there is none, and
 * looks its name up in each architecture of the list. */
#pragma once

#include <errno.h>
#include <seccomp.h>

/* Have @ctx, which has no rule yet, be for the architecture @name alone.
 * Return: 0, or -errno; -EINVAL, libseccomp knows no such architecture, or arguments of
 * calls may have other values there: they are equal on x86_64 and aarch64. */
static inline int seccomp_build_for(scmp_filter_ctx ctx, const char *name)
{
	uint32_t arch = seccomp_arch_resolve_name(name);
	int r;

	if (arch == 0)
		return -EINVAL;
	if (arch == seccomp_arch_native())
		return 0;
	if ((arch != SCMP_ARCH_X86_64 && arch != SCMP_ARCH_AARCH64) ||
	    (seccomp_arch_native() != SCMP_ARCH_X86_64 &&
	     seccomp_arch_native() != SCMP_ARCH_AARCH64))
		return -EINVAL;
	r = seccomp_arch_add(ctx, arch);
	return r < 0 ? r : seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE);
}
