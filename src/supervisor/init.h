// SPDX-License-Identifier: Apache-2.0
/* supervisor/init - the parts of weir-init, PID 1 of the sandbox.
 *
 * HOW IT WORKS
 *   The launch child becomes it with everything in place: namespaces, view, seccomp, no
 *   capabilities. It makes the command's process, which waits for control's go, tests the
 *   filter from where the command will be, reports, and stays as the command's parent. It
 *   handles two things: children that change state, and what control sends, once the
 *   command's process has heard its go and become the command. It leaves when the
 *   command does, or as soon as its channel is closed, and the kernel then kills
 *   all that is left in the PID namespace.
 *
 * Linked statically with libc alone, for the sandbox may have another libc or none. After
 * its start it allocates nothing and opens no file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/launch.h"

/* What the launch child tells weir-init, in a sealed memfd: the
 * command's environment can't change what is tested. Behind the orders the memfd has that
 * environment: what is for the command alone (LD_PRELOAD) isn't for weir-init. */
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

/* What the engine answers by itself, and what nobody may reach. Return: true when all is
 * as it should be; else @why (of ERR_TEXT_SIZE) says what is not. */
bool self_test_deny(const struct launch_probe *probe, char *why, size_t size);
/* The first host that the policy allows, where it names one, can be reached. */
bool self_test_first(const struct launch_probe *probe, char *why, size_t size);

/* Is there a file of this name in a directory of PATH that this process may enter? */
bool command_is_in_path(const char *name);
/* The last step of it, as this process is: exec, or say why not, as a shell does, and end
 * with 126 or 127. */
_Noreturn void command_become(char *const *argv);
