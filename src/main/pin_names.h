// SPDX-License-Identifier: Apache-2.0
/* main/pin_names - a policy's names resolved once, in a child that is as confined as the
 * engine: answers are hostile bytes. */
#pragma once

#include "cli/render.h"

/* A render_resolve_fn. Return: 0, or -errno with @err. */
int pin_names(const struct render_names *names, struct err *err) MUST_CHECK;
