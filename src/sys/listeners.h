// SPDX-License-Identifier: Apache-2.0
/* sys/listeners - what connections come in by, over IPv4 and IPv6, and what becomes of
 * them when no descriptor is left: one is held that can be given up, so that a connection
 * is taken and reset. When not even that is possible the listeners rest for a moment:
 * they would be ready in every turn of the loop. */
#pragma once

#include <stddef.h>

#include "sys/loop.h"

struct listeners {
	struct loop *loop;
	/* Of a connection, which is then the callee's; -1: one was reset, for want of
	 * descriptors. */
	void (*on_connection)(struct listeners *l, int fd);
	int *spare_fd; /* listeners_spare(), borrowed; listeners may share it */
	size_t batch;  /* connections taken from each of them in a turn */
	/* The rest is listeners_open()'s. */
	struct listener {
		struct loop_source source;
		struct listeners *of;
	} at[2];		 /* IPv4, IPv6 */
	struct loop_timer pause; /* they rest */
};

/* A descriptor that is held only to be given up, or -1. */
int listeners_spare(void);
/* Begin with @fd (borrowed), IPv4 and IPv6; -1: there is none. Return: 0, or -errno and
 * nothing is left in the loop. */
int listeners_open(struct listeners *l, const int fd[2]) MUST_CHECK;
/* Also of listeners that were not opened, or are closed. */
void listeners_close(struct listeners *l);
