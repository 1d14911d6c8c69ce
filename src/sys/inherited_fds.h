// SPDX-License-Identifier: Apache-2.0
/* sys/inherited_fds - what another program of Weir's is started with: one descriptor in
 * each place. */
#pragma once

#include "base/macros.h"

/* weir-control's. */
enum place {
	PLACE_SUPERVISOR = 0, /* SOCK_SEQPACKET */
	PLACE_HTTP,	      /* a listening TCP socket */
	PLACE_TEXT,	      /* sealed memfd: the policy in force, as JSON */
	PLACE_TLS, /* of the daemon, where it serves TCP; else there is nothing */
	PLACE_COUNT
};
enum { PLACE_FIRST = 3 }; /* descriptor i stands at PLACE_FIRST + i */

enum { PLACES_MAX = 8 };
/* Put @fds at PLACE_FIRST and on, and @last at PLACE_FIRST + PLACES_MAX, open across
 * execve(), and close everything else from PLACE_FIRST up. */
int places_take(const int *fds, size_t count, int last) MUST_CHECK;
