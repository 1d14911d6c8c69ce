// SPDX-License-Identifier: Apache-2.0
/* ipc/places - what weir-control is started with: one descriptor in each place. */
#pragma once

#include "base/macros.h"

enum place {
	PLACE_KEEPER = 0, /* SOCK_SEQPACKET */
	PLACE_HTTP,	  /* a listening TCP socket */
	PLACE_TEXT,	  /* sealed memfd: the policy in force, as JSON */
	PLACE_COUNT
};
enum { PLACE_FIRST = 3 }; /* descriptor i stands at PLACE_FIRST + i */

/* Put @fds there, open across execve(), and close everything else from 3 up. */
int places_take(const int fds[PLACE_COUNT]) MUST_CHECK;
