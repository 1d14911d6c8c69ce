// SPDX-License-Identifier: Apache-2.0
/* sys/capability - capabilities by name, as containers' descriptions have them. */
#pragma once

#include <stdbool.h>

#include "base/text.h"

/* "NET_RAW", "net_raw" and "CAP_NET_RAW" are all @name "NET_RAW". */
bool capability_is(struct text given, const char *name);
/* With it a container changes its own network, takes others', or becomes the host's
 * master. True for ALL, and for what is not known. */
bool capability_undoes_filter(struct text given);
