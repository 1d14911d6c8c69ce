// SPDX-License-Identifier: Apache-2.0
/* event/upstream_trouble - what became of an upstream server, for the log: reported when
 * it happens, at most once a second for each server and kind. */
#pragma once

#include <stdint.h>

#include "base/addr.h"

enum upstream_trouble_kind {
	UPSTREAM_NONE = 0,
	UPSTREAM_ERROR,	  /* timeout, refused, reset, an answer of no use: `error` says */
	UPSTREAM_RCODE,	  /* it failed by its own word: `rcode` says */
	UPSTREAM_PROBE,	  /* it did not answer a probe: `error` says */
	UPSTREAM_HEALTHY, /* it answers probes again */
	UPSTREAM_BEHIND,  /* a server that was found behind Docker's resolver: `at` */
	UPSTREAM_INNER,	  /* Docker's resolver sends questions back, and nobody was found
			   * behind it */
	UPSTREAM_KIND_COUNT
};
struct upstream_trouble {
	uint8_t kind;	/* enum upstream_trouble_kind */
	uint8_t server; /* of the group */
	uint8_t rcode;
	int32_t error; /* -errno */
	struct endpoint at;
};
