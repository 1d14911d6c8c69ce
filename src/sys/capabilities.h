// SPDX-License-Identifier: Apache-2.0
/* sys/capabilities - what a process of Weir's may still do that others may not. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Keep the capabilities whose bits @keep has, permitted and effective; drop all others,
 * and empty the bounding and the ambient set. */
int capabilities_keep(uint64_t keep, struct err *err) MUST_CHECK;
/* Take the capabilities whose bits @lower has out of effect; they stay permitted. */
int capabilities_lower(uint64_t lower) MUST_CHECK;
/* Put a capability that is permitted into effect: a program file may bring it without
 * that, so that it can be started where there is none. Return: it is in effect. */
bool capabilities_raise(int capability);
