// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <jansson.h>

#include "event/json.h"
#include "events/jsonl.h"

static struct event denied(void)
{
	struct event e = { .ts_ms = 1763633203424,
			   .packets = 3,
			   .bytes = 180,
			   .rule = EVENT_NO_RULE,
			   .uid = UINT32_MAX,
			   .port = 443,
			   .protocol = IPPROTO_TCP,
			   .action = EVENT_DENY,
			   .layer = EVENT_ADDRESS,
			   .remote = addr_v4(198, 51, 100, 7) };

	snprintf(e.reason, sizeof(e.reason), "no rule allows it");
	return e;
}

static json_t *parsed(const struct event_row *row)
{
	char buf[EVENT_JSON_SIZE];
	size_t n = event_json(row, buf);
	json_t *j;

	assert_int_equal(n, strlen(buf));
	for (size_t i = 0; i < n; i++)
		assert_in_range((unsigned char)buf[i], 0x20, 0x7e);
	j = json_loadb(buf, n, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	return j;
}

TEST(whatever_another_process_wrote_a_row_can_be_read)
{
	static const uint8_t filled[] = { 0, 1, 2, 0xff };
	struct event_row row;

	for (size_t i = 0; i < ARRAY_SIZE(filled); i++) {
		const struct event *e = &row.event;
		uint8_t flag;

		memset(&row, filled[i], sizeof(row));
		event_row_check(&row);
		memcpy(&flag, &e->allowable, sizeof(flag));
		assert_int_equal(flag, filled[i] != 0);
		assert_true(strnlen(e->name, sizeof(e->name)) < sizeof(e->name));
		assert_true(strnlen(e->reason, sizeof(e->reason)) < sizeof(e->reason));
		assert_true(strnlen(e->advice, sizeof(e->advice)) < sizeof(e->advice));
		assert_true(strnlen(e->command, sizeof(e->command)) < sizeof(e->command));
		assert_true(strnlen(row.sandbox, sizeof(row.sandbox)) <
			    sizeof(row.sandbox));
		assert_true(strnlen(row.rule, sizeof(row.rule)) < sizeof(row.rule));
		assert_true(strnlen(row.rule_file, sizeof(row.rule_file)) <
			    sizeof(row.rule_file));
		assert_true(strnlen(row.looks_like, sizeof(row.looks_like)) <
			    sizeof(row.looks_like));
	}
}

TEST(a_row_says_all_there_is)
{
	struct event e = denied();
	struct event_row row;
	char buf[EVENT_JSON_SIZE];

	event_row_fill(&row, &e, "sb-1", NULL);
	snprintf(row.rule, sizeof(row.rule), "deny 198.51.100.0/24");
	snprintf(row.rule_file, sizeof(row.rule_file), "policy.yaml");
	snprintf(row.event.command, sizeof(row.event.command), "curl");
	snprintf(row.event.advice, sizeof(row.event.advice), "198.51.100.7:tcp/443");
	row.rule_line = 4;
	row.event.pid = 77;
	event_json(&row, buf);
	assert_string_equal(
		buf,
		"{\"ts\":\"2025-11-20T10:06:43.424Z\",\"sandbox\":\"sb-1\","
		"\"action\":\"deny\",\"layer\":\"address\",\"remote_ip\":\"198.51.100."
		"7\","
		"\"remote_port\":443,\"protocol\":\"tcp\",\"name\":null,"
		"\"rule\":\"deny 198.51.100.0/24\",\"rule_file\":\"policy.yaml\","
		"\"rule_line\":4,\"packets\":3,\"bytes\":180,"
		"\"reason\":\"no rule allows it\",\"query_type\":null,\"limit\":null,"
		"\"uid\":null,\"pid\":77,\"command\":\"curl\",\"allow\":"
		"\"198.51.100.7:tcp/443\"}");
}

TEST(what_is_not_known_is_null_and_every_key_is_there)
{
	static const char *const keys[] = { "sandbox",	 "remote_ip", "remote_port",
					    "protocol",	 "name",      "rule",
					    "rule_file", "rule_line", "query_type",
					    "limit",	 "pid",	      "command",
					    "allow" };
	struct event e = { .action = EVENT_ALLOW };
	struct event_row row;
	json_t *j;

	event_row_fill(&row, &e, NULL, NULL);
	j = parsed(&row);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		assert_true(json_is_null(json_object_get(j, keys[i])));
	assert_string_equal(json_string_value(json_object_get(j, "action")), "allow");
	json_decref(j);
}

TEST(a_hostile_name_stays_text)
{
	static const struct {
		const char *what, *name, *read_back;
	} rows[] = {
		{ "terminal", "\x1b[2J\x1b]0;x\x07.test", "\x1b[2J\x1b]0;x\x07.test" },
		{ "html", "<script>alert(1)</script>&\"'",
		  "<script>alert(1)</script>&\"'" },
		{ "sql", "'); DROP TABLE event; --", "'); DROP TABLE event; --" },
		{ "line end", "a\r\nb\\n", "a\r\nb\\n" },
		{ "C1",
		  "a\xc2\x9b"
		  "2Jb",
		  "a\xc2\x9b"
		  "2Jb" },
		{ "right to left",
		  "\xe2\x80\xae"
		  "gnp.exe",
		  "\xe2\x80\xae"
		  "gnp.exe" },
		{ "four bytes", "\xf0\x9f\x92\xa9.test", "\xf0\x9f\x92\xa9.test" },
		{ "no UTF-8", "\xff\xfe.test", "\xef\xbf\xbd\xef\xbf\xbd.test" },
		{ "cut UTF-8", "a\xe2\x80", "a\xef\xbf\xbd\xef\xbf\xbd" },
		{ "too long a form", "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },
		{ "surrogate", "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct event e = denied();
		struct event_row row;
		char buf[EVENT_JSON_SIZE];
		json_t *j;

		snprintf(e.name, sizeof(e.name), "%s", rows[i].name);
		event_row_fill(&row, &e, "s", NULL);
		j = parsed(&row);
		assert_string_equal(json_string_value(json_object_get(j, "name")),
				    rows[i].read_back);
		json_decref(j);
		event_json(&row, buf);
		assert_null(strpbrk(buf, "<>&\x1b"));
	}
}

TEST(the_longest_of_everything_fits)
{
	struct event e = denied();
	struct event_row row;
	json_t *j;

	memset(e.name, 0x01, sizeof(e.name));
	memset(e.reason, 0x02, sizeof(e.reason));
	e.packets = e.bytes = INT64_MAX;
	event_row_fill(&row, &e, "s", NULL);
	memset(row.sandbox, 0x80, sizeof(row.sandbox));
	memset(row.rule, 0x80, sizeof(row.rule));
	memset(row.rule_file, '\t', sizeof(row.rule_file));
	memset(row.event.command, '"', sizeof(row.event.command));
	row.rule_line = row.event.pid = UINT32_MAX;
	row.event.ts_ms = INT64_MAX / 2;
	j = parsed(&row);
	assert_int_equal(json_string_length(json_object_get(j, "name")),
			 EVENT_NAME_SIZE - 1);
	json_decref(j);
}
