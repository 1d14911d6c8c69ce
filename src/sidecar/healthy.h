// SPDX-License-Identifier: Apache-2.0
/* sidecar/healthy - `weir sidecar --healthy`: ask the sidecar that runs here, for health
 * checks in images that have no other program. */
#pragma once

#include "settings/settings.h"

/* GET /healthz at @spec's HTTP address, on loopback where that is every address, in at
 * most HEALTHY_WAIT_MS. Return: 0 when it says 200, else -errno with @err. */
enum { HEALTHY_WAIT_MS = 2000 };
int healthy_ask(const struct sidecar_spec *spec, struct err *err) MUST_CHECK;
