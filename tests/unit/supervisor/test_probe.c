// SPDX-License-Identifier: Apache-2.0
/* What the self-test tries under which policy. */
#include "supervisor/probe.h"

#include <stdlib.h>

#include "../sandbox/test_plan.h"
#include "unit.h"

#define NOBODYS                                                                          \
	"{action: deny, target: 192.0.2.0/24}, {action: deny, target: "                  \
	"198.51.100.0/24}, "                                                             \
	"{action: deny, target: 203.0.113.0/24}"

/* "192.0.2.77" or, where none is chosen, "". */
static void assert_addr(const char *what, const char *which, const struct endpoint *e,
			const char *wanted)
{
	const char *found = e->addr.family == ADDR_NONE ? "" : ADDR_SHOWN(&e->addr);

	if (strcmp(found, wanted) != 0)
		fail_msg("%s: %s is '%s'", what, which, found);
}

TEST(an_address_that_may_be_somebodys_is_never_opened)
{
	static const struct {
		const char *what, *policy, *allowed, *denied;
		bool is_dialled;
	} cases[] = {
		{ "a policy for names", "egress: [{action: allow, target: a.test}]",
		  "192.0.2.77", "198.51.100.77", true },
		{ "one that denies the first",
		  "egress: [{action: deny, target: 192.0.2.0/24}]", "198.51.100.77",
		  "192.0.2.77", true },
		{ "one that denies all that are nobody's", "egress: [" NOBODYS "]",
		  "203.0.113.77", "192.0.2.77", false },
		{ "one that allows all but those",
		  "defaultAction: allow\negress: [" NOBODYS "]", "203.0.113.77",
		  "192.0.2.77", false },
		{ "one that allows all", "defaultAction: allow", "192.0.2.77",
		  "169.254.169.254", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct policy none = { 0 };
		struct launch_probe probe;
		struct err err = { 0 };
		struct plan plan;
		uint8_t *bytes = plan_from(cases[i].policy, &plan);

		assert_int_equal(probe_choose(&plan, &none, true, &probe, &err), 0);
		assert_addr(cases[i].what, "allowed", &probe.allowed, cases[i].allowed);
		assert_addr(cases[i].what, "denied", &probe.denied, cases[i].denied);
		if (probe.relay != cases[i].is_dialled)
			fail_msg("%s: dialled or not", cases[i].what);
		free(bytes);
	}
}
