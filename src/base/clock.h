// SPDX-License-Identifier: Apache-2.0
/* clock - the clocks, and a point in time as RFC 3339 writes it. Everything below
 * main/ takes the time as an argument. */
#pragma once

#include <stdint.h>

#include "base/text.h"

/* CLOCK_BOOTTIME: goes on during suspend, never steps. For every timeout. */
int64_t clock_now_ms(void);
/* How long the machine has been suspended since it was started. */
int64_t clock_slept_ms(void);
/* CLOCK_REALTIME: for event timestamps only. */
int64_t clock_wall_ms(void);

/* "2026-11-20T13:31:08Z", with fraction or offset; a leap second is the one before.
 * *@ret_ms is that of the wall clock. Return: false when it is none. */
bool timestamp_parse(struct text t, int64_t *ret_ms);
