// SPDX-License-Identifier: Apache-2.0
/* sys/landlock - the files that a process of Weir's may still touch: none, or the few
 * that it is told. For the calling thread and what it starts from then on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

struct landlock_path {
	const char *path; /* a file or a directory; one that isn't there is left out */
	bool write;	  /* and make, rename and remove below it */
};

/* Needs no_new_privs. Where the kernel can (6.12 and later) signals and abstract unix
 * sockets of others are out of reach as well. Return: 0; -EOPNOTSUPP: this kernel has no
 * Landlock, and nothing was done; or -errno. */
int landlock_enter(const struct landlock_path *paths, size_t count) MUST_CHECK;

/* Cut no file, but everything by which a process acts in another's place: neither this
 * process nor its children can trace, read or write the memory of, take descriptors from
 * or, where the kernel has that, signal those outside, nor reach abstract unix sockets of
 * theirs. Return: 0, -EOPNOTSUPP without Landlock (or one that refuses to move files), or
 * -errno. */
int landlock_scope(void) MUST_CHECK;
