// SPDX-License-Identifier: Apache-2.0
/* sys/confine - what a program of Weir's gives up before it reads its first byte from
 * outside: capabilities, files, system calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/text.h"

enum confine_program {
	CONFINE_ENGINE = 0,
	CONFINE_SOCKET_OWNER,
	CONFINE_CONTROL,
	CONFINE_WEBHOOK,
	CONFINE_POSTGRES,
	CONFINE_PROGRAM_COUNT
};

/* No new privileges, no core dump, not to be traced or read by others.
 * Return: 0, or -errno with @err. */
int confine_self(struct err *err) MUST_CHECK;
/* The same, and of the capabilities those of @keep alone (a bit each). */
int confine_rights(uint64_t keep, struct err *err) MUST_CHECK;

/* From now on this thread, and each that it starts, has the system calls of @program
 * alone (confine_table.c). confine_rights() comes before. Return: 0, or -errno with @err.
 */
int confine_calls(enum confine_program program, struct err *err) MUST_CHECK;
/* False: confine_calls() does nothing. A sanitizer's own calls are in no list, and
 * nothing that is built with one is installed. */
bool confine_has_calls(void);

/* -- capabilities ------------------------------------------------------------------- */

/* Keep the capabilities whose bits @keep has, permitted and effective; drop all others,
 * and empty the bounding and the ambient set. */
int capabilities_keep(uint64_t keep, struct err *err) MUST_CHECK;
/* Take the capabilities whose bits @lower has out of effect; they stay permitted. */
int capabilities_lower(uint64_t lower) MUST_CHECK;
/* Put a capability that is permitted into effect: a program file may bring it without
 * that, so that it can be started where there is none. Return: it is in effect. */
bool capabilities_raise(int capability);

/* -- files: Landlock ---------------------------------------------------------------- */

/* For the calling thread and what it starts from then on: no file, or the few that are
 * named. */
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

/* -- capabilities by name, as containers' descriptions have them ----------------------
 */

/* "NET_RAW", "net_raw" and "CAP_NET_RAW" are all @name "NET_RAW". */
bool capability_is(struct text given, const char *name);
/* With it a container changes its own network, takes others', or becomes the host's
 * master. True for ALL, and for what is not known. */
bool capability_undoes_filter(struct text given);
