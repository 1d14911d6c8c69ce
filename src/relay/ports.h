// SPDX-License-Identifier: Apache-2.0
/* relay/ports - the machine's ports that connections to a server take.
 *
 * A connection takes one of the machine's ports, some 28,000, away from all others to
 * the same address and port: while it is open, and, where the machine closed it first,
 * for a minute more (TIME_WAIT). A sandbox that begins connections and ends them at once
 * would have all of them within seconds, and nobody else on the machine would reach that
 * server. So a sandbox takes no more than it leaves free (base/share.h).
 *
 * Servers are told apart by a hash: two may count as one, which then has the ports of
 * one. What rests is counted by turns, so that a port counts for one turn longer than it
 * rests. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/addr.h"

enum {
	PORTS_SERVERS = 64,
	PORTS_TURN_MS = 20 * 1000,
	PORTS_TURNS = 4, /* the one that has begun, and the minute before it */
	PORTS_USUAL = 60999 - 32768 + 1, /* ip_local_port_range where nobody changed it */
};

/* Of one sandbox, or of all. { 0 } has none. */
struct ports_used {
	struct {
		uint32_t open;
		uint32_t resting[PORTS_TURNS];
	} servers[PORTS_SERVERS];
	int64_t turn; /* the newest of them */
};

/* The place of @to. */
size_t ports_server(const struct endpoint *to);
/* Count one more connection to @server, in @mine and in @all, of which the machine has
 * @max. Return: false: a sandbox with @mine may have no other one. */
bool ports_take(struct ports_used *mine, struct ports_used *all, size_t server,
		size_t max, int64_t now_ms);
/* That one is closed; @rests: its port is taken for a minute more. */
void ports_give(struct ports_used *p, size_t server, bool rests, int64_t now_ms);
