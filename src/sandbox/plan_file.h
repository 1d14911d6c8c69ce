// SPDX-License-Identifier: Apache-2.0
/* sandbox/plan_file - a compiled plan in a sealed memfd: made by control, mapped
 * read-only by whoever enforces it. */
#pragma once

#include "policy/plan.h"

/* Return: the descriptor, close-on-exec, or -errno. */
int plan_file_make(const uint8_t *bytes, size_t size, struct err *err) MUST_CHECK;
/* Refuses a descriptor that could still change. The mapping stays until
 * plan_file_unmap(). */
int plan_file_map(int fd, struct plan *ret, struct err *err) MUST_CHECK;
/* None is mapped then. Nothing, when none was. */
void plan_file_unmap(struct plan *p);
/* Tells plans apart: a hash of its bytes, the same in every process. */
uint64_t plan_file_id(const struct plan *p);
