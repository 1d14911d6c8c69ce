// SPDX-License-Identifier: Apache-2.0
/* api/failures - who shows wrong tokens is not listened to for a while: guessing takes
 * longer than anybody lives. By network, as places are given (conns.h). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/addr.h"

enum {
	FAILURES_NETWORKS = 256, /* over it the one that failed first is forgotten */
	FAILURES_MAX = 10,	 /* of one network, within FAILURES_SEC */
	FAILURES_SEC = 60,
};

struct failures {
	struct {
		struct prefix network;
		uint32_t count; /* 0: a free place */
		int64_t since_ms;
	} places[FAILURES_NETWORKS];
};

void failures_add(struct failures *f, const struct prefix *network, int64_t now_ms);
/* Seconds until it is listened to again; 0: it is. */
uint32_t failures_wait(const struct failures *f, const struct prefix *network,
		       int64_t now_ms);
