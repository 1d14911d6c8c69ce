// SPDX-License-Identifier: Apache-2.0
/* policy/faults - gathering what is wrong with a policy. */
#pragma once

#include "policy/policy.h"

/* Add one. @file is borrowed and must live as long as @f; @path is copied. Texts from
 * outside must be escaped by the caller. When the memory is out, or the list full,
 * the fault is only counted. */
void faults_add(struct faults *f, enum fault_level level, const char *file, uint32_t line,
		uint32_t column, const char *path, const char *fmt, ...)
	PRINTF_LIKE(7, 8);

/* One line for each on stderr, hints only when @hints. */
void faults_print(const struct faults *f, bool hints);

/* Of two results the one that is reported: -ENOMEM before another error, and that before
 * 0. */
int faults_worse(int a, int b) MUST_CHECK;
