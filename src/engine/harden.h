// SPDX-License-Identifier: Apache-2.0
/* engine/harden - the engine's confinement, before it reads the first hostile byte.
 *
 * After harden_engine() the process can open no file, execute nothing, gain nothing,
 * and make no socket but TCP and UDP. What stays allowed, and why,
 * is in sys/confine_table.c. */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* As many descriptors as the hard limit has, and no core dumps. First of all: what is
 * made afterwards is sized by it. Return: 0 or -errno. */
int harden_limits(struct err *err) MUST_CHECK;

/* @keep: bit of a capability that stays permitted and effective, 0 for none; the
 * bounding set is emptied in any case.
 * @ret_missing, ERR_TEXT_SIZE bytes, says what this kernel could not do and what is
 * therefore weaker ("" when nothing is). Return: 0, or -errno: do not go on. */
int harden_engine(uint64_t keep, char *ret_missing, struct err *err) MUST_CHECK;
