// SPDX-License-Identifier: Apache-2.0
/* clock - the two clocks. Everything below main/ takes the time as an argument. */
#pragma once

#include <stdint.h>

/* CLOCK_BOOTTIME: goes on during suspend, never steps. For every timeout. */
int64_t clock_now_ms(void);
/* CLOCK_REALTIME: for event timestamps only. */
int64_t clock_wall_ms(void);
