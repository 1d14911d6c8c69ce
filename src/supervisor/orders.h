// SPDX-License-Identifier: Apache-2.0
/* supervisor/orders - what the launch child tells weir-init, in a sealed memfd: the
 * command's environment can't change what is tested. Behind the orders the memfd has that
 * environment: bwrap, which runs outside of the view, isn't given what is for the command
 * alone (LD_PRELOAD). */
#pragma once

#include "base/err.h"
#include "proto/launch.h"

enum {
	INIT_FD_CHANNEL = 3,
	INIT_FD_ORDERS = 4,
};

struct init_orders {
	enum launch_self_test self_test;
	struct launch_probe probe;
	uint64_t ignored_signals;   /* bit n-1: the caller ignored signal n, so the
				     * command does */
	uint32_t environment_count; /* strings "NAME=value", each ended by NUL */
	uint32_t environment_size;  /* bytes of all of them */
};
