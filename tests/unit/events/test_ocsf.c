// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <jansson.h>

#include "events/ocsf.h"

static json_t *parsed(const struct event *e)
{
	char buf[EVENT_OCSF_SIZE];
	struct event_row row;
	json_t *j;
	size_t n;

	event_row_fill(&row, e, "sb-1", NULL);
	snprintf(row.rule, sizeof(row.rule), "deny evil.test");
	snprintf(row.rule_file, sizeof(row.rule_file), "policy.yaml");
	row.rule_line = 4;
	n = event_ocsf(&row, buf);
	for (size_t i = 0; i < n; i++)
		assert_in_range((unsigned char)buf[i], 0x20, 0x7e);
	j = json_loadb(buf, n, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(j);
	return j;
}

static json_int_t number(const json_t *j, const char *key)
{
	return json_integer_value(json_object_get(j, key));
}

static const char *text(const json_t *j, const char *object, const char *key)
{
	return json_string_value(json_object_get(json_object_get(j, object), key));
}

/* The numbers of the schema's version 1.3.0. */
TEST(every_action_is_of_the_class_that_the_schema_has_for_it)
{
	static const struct {
		const char *what;
		enum event_action action;
		enum event_layer layer;
		int category, class, activity, status, denied; /* denied: action_id */
	} cases[] = {
		{ "a refused packet", EVENT_DENY, EVENT_ADDRESS, 4, 4001, 5, 2, 2 },
		{ "a refused name", EVENT_DENY, EVENT_NAME, 4, 4001, 5, 2, 2 },
		{ "a refused lookup", EVENT_DENY, EVENT_DNS, 4, 4003, 1, 2, 2 },
		{ "what was allowed", EVENT_ALLOW, EVENT_NAME, 4, 4001, 6, 1, 1 },
		{ "a dead server", EVENT_FAIL, EVENT_NAME, 4, 4001, 4, 2, 1 },
		{ "a dead name server", EVENT_FAIL, EVENT_DNS, 4, 4003, 1, 2, 1 },
		{ "a limit", EVENT_LIMIT, EVENT_ADDRESS, 4, 4001, 5, 2, 2 },
		{ "a change", EVENT_CHANGE, EVENT_LAYER_NONE, 0, 0, 99, 1, 0 },
		{ "an end", EVENT_PANIC, EVENT_LAUNCH, 0, 0, 99, 2, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct event e = { .action = (uint8_t)cases[i].action,
				   .layer = (uint8_t)cases[i].layer,
				   .ts_ms = 1763633203424,
				   .packets = 3,
				   .uid = UINT32_MAX,
				   .name = "evil.test" };
		json_t *j = parsed(&e);

		if (number(j, "class_uid") != cases[i].class ||
		    number(j, "category_uid") != cases[i].category ||
		    number(j, "activity_id") != cases[i].activity ||
		    number(j, "type_uid") != cases[i].class * 100 + cases[i].activity ||
		    number(j, "status_id") != cases[i].status ||
		    number(j, "action_id") != cases[i].denied ||
		    number(j, "disposition_id") != cases[i].denied ||
		    number(j, "time") != 1763633203424 || number(j, "count") != 3)
			fail_msg("%s: wrong", cases[i].what);
		assert_in_range(number(j, "severity_id"), 1, 4);
		assert_string_equal(text(j, "metadata", "version"), "1.3.0");
		if (cases[i].class != 0) {
			assert_string_equal(text(j, "src_endpoint", "uid"), "sb-1");
			assert_string_equal(text(j, "firewall_rule", "uid"),
					    "policy.yaml:4");
		}
		json_decref(j);
	}
}

TEST(a_connection_has_its_far_end_and_protocol)
{
	struct event e = { .action = EVENT_DENY,
			   .layer = EVENT_ADDRESS,
			   .uid = 1000,
			   .pid = 77,
			   .command = "curl",
			   .bytes = 60,
			   .port = 443,
			   .protocol = 6,
			   .remote = addr_v4(198, 51, 100, 7) };
	json_t *j = parsed(&e), *info = json_object_get(j, "connection_info");
	json_t *actor = json_object_get(j, "actor");

	assert_string_equal(text(j, "dst_endpoint", "ip"), "198.51.100.7");
	assert_int_equal(number(json_object_get(j, "dst_endpoint"), "port"), 443);
	assert_null(text(j, "dst_endpoint", "hostname"));
	assert_int_equal(number(info, "direction_id"), 2);
	assert_int_equal(number(info, "protocol_num"), 6);
	assert_int_equal(number(info, "protocol_ver_id"), 4);
	assert_int_equal(number(json_object_get(j, "traffic"), "bytes_out"), 60);
	assert_string_equal(text(actor, "process", "name"), "curl");
	assert_string_equal(text(actor, "user", "uid"), "1000");
	json_decref(j);
}

TEST(a_lookup_has_its_name_and_type)
{
	static const struct {
		uint16_t type;
		const char *name;
	} cases[] = {
		{ 1, "A" }, { 28, "AAAA" }, { 65, "HTTPS" }, { 64999, "TYPE64999" }
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct event e = { .action = EVENT_DENY,
				   .layer = EVENT_DNS,
				   .uid = UINT32_MAX,
				   .query_type = cases[i].type,
				   .name = "a\xff\"\\<b>\x1b.test" };
		json_t *j = parsed(&e);

		assert_string_equal(text(j, "query", "type"), cases[i].name);
		assert_string_equal(text(j, "query", "hostname"),
				    "a\xef\xbf\xbd\"\\<b>\x1b.test");
		assert_null(json_object_get(j, "connection_info"));
		e.name[0] = '\0';
		json_decref(j);
		j = parsed(&e);
		assert_null(json_object_get(j, "query"));
		assert_null(json_object_get(j, "actor"));
		json_decref(j);
	}
}

/* As long as it can be, of bytes that take the most room. */
TEST(any_row_fits)
{
	struct event e = { .action = EVENT_LIMIT, .layer = EVENT_DNS, .limit = 1 };
	struct event_row row;
	char buf[EVENT_OCSF_SIZE];

	for (uint8_t layer = 0; layer < EVENT_LAYER_COUNT; layer++) {
		e.layer = layer;
		memset(e.name, 1, sizeof(e.name) - 1);
		memset(e.reason, 1, sizeof(e.reason) - 1);
		event_row_fill(&row, &e, NULL, NULL);
		memset(row.sandbox, 1, sizeof(row.sandbox) - 1);
		memset(row.rule, 1, sizeof(row.rule) - 1);
		memset(row.rule_file, 1, sizeof(row.rule_file) - 1);
		memset(row.event.command, 1, sizeof(row.event.command) - 1);
		assert_in_range(event_ocsf(&row, buf), 1000, sizeof(buf) - 1);
	}
}
