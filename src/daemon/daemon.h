// SPDX-License-Identifier: Apache-2.0
/* daemon/daemon - `weir daemon`: the parent of the processes that guard any number of
 * sandboxes of this host. It is the sidecar's supervisor, and besides does what needs
 * rights over the sandboxes: it opens descriptors in their namespaces, sees whether those
 * are still there, and keeps what it takes to guard them again after a restart. */
#pragma once

#include "settings/settings.h"

/* Return: the exit status. */
int daemon_run(struct sidecar_spec *spec);
