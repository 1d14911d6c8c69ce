// SPDX-License-Identifier: Apache-2.0
/* policy/embedded - the files of profiles/ as part of the program. embed.py writes the
 * tables when Weir is built. */
#pragma once

#include "base/text.h"

struct policy_embedded {
	const char *name; /* "default" */
	struct text text;
};

/* A shipped profile, or NULL. */
const struct policy_embedded *policy_embedded_profile(struct text name);
/* The shipped profiles by number; NULL behind the last. */
const struct policy_embedded *policy_embedded_at(size_t i);
/* profiles/doh.txt: a name or an address a line. */
struct text policy_embedded_doh(void);
/* profiles/telemetry.txt: a name a line, and behind it whose it is. */
struct text policy_embedded_telemetry(void);
