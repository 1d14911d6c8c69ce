// SPDX-License-Identifier: Apache-2.0
/* api/browser - requests that a browser sends because some page told it to.
 *
 * Where no token is asked for, whoever reaches the API may use it, and a browser reaches
 * what the pages that it shows can't: theirs are cross-site requests, and names that
 * were pointed at this API's address after their page was loaded (DNS rebinding). Both
 * are refused. Programs that aren't browsers are not judged: they can say anything. Where
 * a token is asked for, no page knows it, and none of this is needed. */
#pragma once

#include "base/text.h"

/* What the operator and the host call this API; borrowed. */
struct browser_names {
	const char *const *name;
	size_t count;
};

/* What matters of a request's head; .ptr NULL: there is no such line. */
struct browser_head {
	struct text host, origin, site; /* Host, Origin, Sec-Fetch-Site */
	bool is_browser;		/* by these or other lines of it */
	struct browser_names names;
};

/* Return: NULL, or why it is refused. */
const char *browser_fault(const struct browser_head *head);

/* A Host that no stranger can own: an address, "localhost" or one of @names; with or
 * without a port. Another name without dots may be somebody's in the local network. */
bool browser_host_is_near(struct text host, const struct browser_names *names);
