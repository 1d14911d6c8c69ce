// SPDX-License-Identifier: Apache-2.0
/* sys/confine - what a program of Weir's gives up before it reads its first byte from
 * outside: rights, and system calls. Files are sys/landlock's. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

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
