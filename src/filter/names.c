// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_internal.h"

#include <string.h>

#include "base/macros.h"

/* What a name starts with; the family's digit follows, then the port list's number. */
static const char *const stems[][FILTER_ROLE_COUNT] = {
	[FILTER_NAMES_OWNED] = { "allow", "learned", "kept", "deny", "seen", "used",
				 "held", "doh", "exempt", "met" },
	[FILTER_NAMES_SHARED] = { "allow_v", "dyn_allow_v", "kept_v", "deny_v", "seen_v",
				  "used_v", "held_v", "doh_block_v", "exempt_v",
				  "met_v" },
	[FILTER_NAMES_HOST] = { "allow", "learned", "kept", "deny", "seen", "used",
				"held", "doh", "exempt", "met" },
};

static const char *const tables[] = {
	[FILTER_NAMES_OWNED] = "weir",
	[FILTER_NAMES_SHARED] = "opensandbox",
	[FILTER_NAMES_HOST] = "weir_host",
};

const char *filter_table(enum filter_naming naming)
{
	return tables[naming];
}

/* There is one such set for each port list. */
static bool is_per_list(enum filter_role role)
{
	return role == FILTER_ROLE_ALLOW || role == FILTER_ROLE_LEARNED ||
	       role == FILTER_ROLE_KEPT;
}

/* By hand: this is done for each address that is learned. */
void filter_set_name(enum filter_naming naming, enum filter_role role,
		     enum addr_family family, size_t list, char ret[FILTER_NAME_MAX])
{
	const char *stem = stems[naming][role];
	size_t n = strlen(stem);

	memcpy(ret, stem, n);
	ret[n++] = family == ADDR_V4 ? '4' : '6';
	if (is_per_list(role) && (list > 0 || naming != FILTER_NAMES_SHARED)) {
		ret[n++] = '_';
		if (list >= 10)
			ret[n++] = (char)('0' + list / 10);
		ret[n++] = (char)('0' + list % 10);
	}
	ret[n] = '\0';
}
