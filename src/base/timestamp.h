// SPDX-License-Identifier: Apache-2.0
/* timestamp - a point in time as RFC 3339 writes it. */
#pragma once

#include "base/text.h"

/* "2026-11-20T13:31:08Z", with fraction or offset; a leap second is the one before.
 * *@ret_ms is that of the wall clock. Return: false when it is none. */
bool timestamp_parse(struct text t, int64_t *ret_ms);
