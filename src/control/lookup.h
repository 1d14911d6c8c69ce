// SPDX-License-Identifier: Apache-2.0
/* control/lookup - the addresses of a name of the operator's own, such as a webhook's
 * host. It is asked for past the policy, which is the app's, from a socket that the
 * filter exempts. */
#pragma once

#include "control/control.h"
#include "dns/answer.h"

enum {
	LOOKUP_ADDRS_MAX = 8,
	LOOKUP_TTL_MIN_SEC = 30, /* so that a busy hook doesn't ask for each event */
	LOOKUP_TTL_MAX_SEC = 3600,
};

struct lookup {
	/* The caller's */
	struct control *side;
	struct dns_name name;
	void (*on_done)(struct lookup *l); /* count may be 0: nothing was found */

	/* Found; valid until expires_ms of the loop's clock. */
	struct addr addrs[LOOKUP_ADDRS_MAX];
	size_t count;
	int64_t expires_ms;

	/* Under way */
	bool busy;
	size_t server;
	uint16_t type;
	uint32_t ttl_sec;
	struct ipc_socket socket;
	struct loop_source source; /* fd -1: none */
	struct loop_timer timer;
	struct dns_asked asked;
};

/* Before anything else; name and on_done are the caller's to set. */
void lookup_init(struct lookup *l, struct control *s);
/* Ask, A first, then AAAA. on_done follows in a later turn, or at once when nothing can
 * be asked. Nothing while it is busy. */
void lookup_start(struct lookup *l);
