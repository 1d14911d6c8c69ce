// SPDX-License-Identifier: Apache-2.0
/* sidecar/sidecar - the parent of a sidecar's processes, PID 1 in its container: it opens
 * every descriptor, starts the engine and control, starts them again when they end, and
 * holds what their successors need. It reads nothing that the sandbox could have written
 * and never removes a rule. */
#pragma once

#include "settings/settings.h"

/* Return: the exit status. */
int sidecar_run(struct sidecar_spec *spec);
