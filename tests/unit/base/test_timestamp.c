// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "unit.h"

TEST(times_are_read)
{
	static const struct {
		const char *text;
		int64_t ms;
	} rows[] = {
		{ "1970-01-01T00:00:00Z", 0 },
		{ "1970-01-01 00:00:00.5z", 500 },
		{ "1970-01-01T01:00:00+01:00", 0 },
		{ "2000-02-29T12:00:00Z", 951825600000 },
		{ "2026-11-20T13:31:08.123456Z", 1795181468123 },
		{ "2016-12-31T23:59:60Z", 1483228799000 },
		{ "9999-12-31T23:59:59Z", 253402300799000 },
	};
	int64_t ms;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		assert_true(timestamp_parse(text_of(rows[i].text), &ms));
		if (ms != rows[i].ms)
			fail_msg("%s: %lld", rows[i].text, (long long)ms);
	}
}

TEST(what_is_no_time_is_refused)
{
	static const char *const rows[] = {
		"",
		"2026-11-20",
		"2026-11-20T13:31:08",
		"2026-11-20T13:31:08Zx",
		"2026-11-31T13:31:08Z",
		"1900-02-29T00:00:00Z",
		"2100-02-29T00:00:00Z",
		"2026-00-01T00:00:00Z",
		"2026-13-01T00:00:00Z",
		"2026-01-00T00:00:00Z",
		"2026-01-01T24:00:00Z",
		"2026-01-01T00:60:00Z",
		"2026-01-01T00:00:61Z",
		"2026-01-01T00:00:00.Z",
		"2026-01-01T00:00:00+24:00",
		"+2026-01-01T00:00:00Z",
	};
	int64_t ms = 7;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (timestamp_parse(text_of(rows[i]), &ms) || ms != 7)
			fail_msg("%s", rows[i]);
}

TEST(every_day_is_as_the_system_has_it)
{
	for (int64_t day = 0; day < 60000; day++) {
		const time_t seconds = (time_t)(day * 86400);
		struct tm tm;
		char text[32];
		int64_t ms;

		gmtime_r(&seconds, &tm);
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
		assert_true(timestamp_parse(text_of(text), &ms));
		assert_int_equal(ms, seconds * 1000);
	}
}
