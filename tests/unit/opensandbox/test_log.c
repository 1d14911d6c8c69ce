// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "unit.h"
#include <jansson.h>

#include <fcntl.h>
#include <unistd.h>

#include "opensandbox/log.h"

#define T0 INT64_C(1763633203424) /* 2025-11-20T10:06:43.424Z */

enum {
	PATIENCE_MS = 60000,
	SEEN_KEPT = 100, /* a text that is looked for may come in two reads */
};

static char path[64];

static int make_path(void **state)
{
	int fd;

	snprintf(path, sizeof(path), "/tmp/weir-loglines-XXXXXX");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	return fd >= 0 ? 0 : -1;
}

static int remove_path(void **state)
{
	return unlink(path);
}

static struct loglines *opened(struct loglines_config config)
{
	const char *outputs[] = { path };
	struct loglines *l = NULL;

	config.outputs = outputs;
	config.output_count = 1;
	assert_int_equal(loglines_new(&config, &l, NULL), 0);
	return l;
}

/* End @l. Return: its lines as a JSON array. */
static json_t *lines_of(struct loglines *l)
{
	json_t *list = json_array();
	char *line = NULL;
	size_t size = 0;
	FILE *f;

	loglines_free(l, PATIENCE_MS);
	f = fopen(path, "re");
	assert_non_null(f);
	while (getline(&line, &size, f) > 0) {
		json_t *j;

		for (const char *p = line; p[1]; p++)
			assert_in_range((unsigned char)*p, 0x20, 0x7e);
		j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		assert_non_null(j);
		json_array_append_new(list, j);
	}
	free(line);
	fclose(f);
	return list;
}

static const char *text_at(json_t *lines, size_t i, const char *key)
{
	return json_string_value(json_object_get(json_array_get(lines, i), key));
}

TEST_WITH(a_line_has_the_fields_that_are_looked_for, make_path, remove_path)
{
	const struct loglines_attr attrs[] = { { text_of("team"), text_of("blue") } };
	struct loglines *l = opened((struct loglines_config){
		.attrs = attrs,
		.attr_count = 1,
		.sandbox_id = "sb-1",
		.opensandbox = true,
	});
	const struct addr ips[] = { addr_v4(198, 51, 100, 7), addr_v4(198, 51, 100, 8) };
	char got[1024] = "";
	FILE *f;

	loglines_outbound(l, T0, "", "PyPI.org.", ips, 2, NULL);
	loglines_free(l, PATIENCE_MS);
	f = fopen(path, "re");
	assert_non_null(f);
	assert_non_null(fgets(got, sizeof(got), f));
	fclose(f);
	assert_string_equal(
		got,
		"{\"level\":\"info\",\"ts\":\"2025-11-20T10:06:43.424Z\","
		"\"logger\":\"opensandbox.egress\",\"msg\":\"egress outbound\","
		"\"opensandbox.event\":\"egress.outbound\",\"target.host\":\"pypi.org\","
		"\"target.ips\":[\"198.51.100.7\",\"198.51.100.8\"],"
		"\"sandbox_id\":\"sb-1\",\"team\":\"blue\"}\n");
}

TEST_WITH(each_event_has_its_name_and_its_level, make_path, remove_path)
{
	static const char *const events[][3] = {
		{ "egress.loaded", "info", "egress policy loaded" },
		{ "egress.updated", "info", "egress policy updated" },
		{ "egress.update_failed", "warn", "egress policy update failed" },
		{ "egress.update_failed", "error", "egress policy update failed" },
		{ "egress.outbound", "info", "egress outbound" },
	};
	struct loglines *l = opened((struct loglines_config){ .opensandbox = true });
	json_t *lines, *rule;

	loglines_policy(l, T0, LOGLINES_LOADED, "", "deny",
			"[{\"action\":\"allow\",\"target\":\"a\"}]");
	loglines_policy(l, T0, LOGLINES_UPDATED, "", "allow", "[]");
	loglines_policy_failed(l, T0, "", "invalid policy: x", true);
	loglines_policy_failed(l, T0, "", "failed to persist policy: y", false);
	loglines_outbound(l, T0, "", "a.test", NULL, 0, "timed out");
	lines = lines_of(l);
	assert_int_equal(json_array_size(lines), ARRAY_SIZE(events));
	for (size_t i = 0; i < ARRAY_SIZE(events); i++) {
		assert_string_equal(text_at(lines, i, "opensandbox.event"), events[i][0]);
		assert_string_equal(text_at(lines, i, "level"), events[i][1]);
		assert_string_equal(text_at(lines, i, "msg"), events[i][2]);
	}
	rule = json_array_get(json_object_get(json_array_get(lines, 0), "rules"), 0);
	assert_string_equal(json_string_value(json_object_get(rule, "target")), "a");
	assert_string_equal(text_at(lines, 1, "egress.default"), "allow");
	assert_string_equal(text_at(lines, 2, "error"), "invalid policy: x");
	assert_string_equal(text_at(lines, 4, "error"), "timed out");
	json_decref(lines);
}

TEST_WITH(upstream_trouble_reads_as_tests_look_for_it, make_path, remove_path)
{
	static const char *const wanted[][2] = {
		{ "warn", "[dns] upstream 192.0.2.1:53: SERVFAIL; trying next" },
		{ "warn", "[dns] upstream 192.0.2.1:53 exchange error: timed out" },
		{ "error", "[dns] upstream probe [2001:db8::1]:5353 failed: refused" },
	};
	const struct endpoint v4 = { addr_v4(192, 0, 2, 1), 53 };
	struct loglines *l = opened((struct loglines_config){ 0 });
	struct endpoint v6 = { .port = 5353 };
	json_t *lines;

	assert_true(addr_parse("2001:db8::1", 11, &v6.addr));
	loglines_upstream(l, T0, LOGLINES_NEXT, &v4, "SERVFAIL");
	loglines_upstream(l, T0, LOGLINES_EXCHANGE, &v4, "timed out");
	loglines_upstream(l, T0, LOGLINES_PROBE, &v6, "refused");
	lines = lines_of(l);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
		assert_string_equal(text_at(lines, i, "level"), wanted[i][0]);
		assert_string_equal(text_at(lines, i, "msg"), wanted[i][1]);
	}
	json_decref(lines);
}

TEST_WITH(denials_say_what_and_why, make_path, remove_path)
{
	struct event e = { .action = EVENT_DENY,
			   .layer = EVENT_ADDRESS,
			   .rule = EVENT_NO_RULE,
			   .packets = 2,
			   .port = 443,
			   .protocol = IPPROTO_TCP,
			   .remote = addr_v4(192, 0, 2, 9) };
	struct loglines *l = opened((struct loglines_config){ 0 });
	struct event_row row;
	json_t *lines, *first;

	snprintf(e.reason, sizeof(e.reason), "no rule allows it");
	event_row_fill(&row, &e, "s", NULL);
	loglines_denied(l, T0, &row);
	snprintf(row.event.name, sizeof(row.event.name), "EVIL\x1b[2J<b>.test");
	row.event.remote = (struct addr){ 0 };
	loglines_denied(l, T0, &row);
	lines = lines_of(l);
	first = json_array_get(lines, 0);
	assert_string_equal(text_at(lines, 0, "logger"), "weir");
	assert_string_equal(text_at(lines, 0, "event"), "egress.denied");
	assert_string_equal(text_at(lines, 0, "sandbox_id"), "s");
	assert_string_equal(text_at(lines, 0, "target.ip"), "192.0.2.9");
	assert_int_equal(json_integer_value(json_object_get(first, "target.port")), 443);
	assert_string_equal(text_at(lines, 0, "reason"), "no rule allows it");
	assert_null(text_at(lines, 0, "target.host"));
	assert_string_equal(text_at(lines, 1, "target.host"), "evil\x1b[2j<b>.test");
	assert_null(text_at(lines, 1, "target.ip"));
	json_decref(lines);
}

TEST_WITH(whom_it_is_about_is_said_once, make_path, remove_path)
{
	static const struct {
		const char *what, *config, *given, *wanted;
	} cases[] = {
		{ "one of many", NULL, "a", "a" },
		{ "nobody", NULL, "", NULL },
		{ "the only one", "b", "b", "b" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct loglines *l = opened((struct loglines_config){
			.sandbox_id = cases[i].config, .opensandbox = i % 2 });
		const char *got;
		json_t *lines;

		assert_int_equal(truncate(path, 0), 0);
		loglines_outbound(l, T0, cases[i].given, "a.test", NULL, 0, NULL);
		loglines_policy(l, T0, LOGLINES_UPDATED, cases[i].given, "deny", "[]");
		loglines_policy_failed(l, T0, cases[i].given, "no", true);
		lines = lines_of(l);
		assert_int_equal(json_array_size(lines), 3);
		for (size_t k = 0; k < 3; k++) {
			got = text_at(lines, k, "sandbox_id");
			assert_int_equal(!got, !cases[i].wanted);
			if (got)
				assert_string_equal(got, cases[i].wanted);
		}
		json_decref(lines);
	}
}

TEST_WITH(lines_below_the_level_are_not_made, make_path, remove_path)
{
	struct loglines *l = opened((struct loglines_config){ .level = LOGLINES_WARN });
	json_t *lines;

	assert_false(loglines_has_level(l, LOGLINES_INFO));
	assert_true(loglines_has_level(l, LOGLINES_WARN));
	loglines_say(l, T0, LOGLINES_DEBUG, "no");
	loglines_say(l, T0, LOGLINES_INFO, "no");
	loglines_say(l, T0, LOGLINES_WARN, "yes %d", 1);
	loglines_say(l, T0, LOGLINES_FATAL, "yes %d", 2);
	lines = lines_of(l);
	assert_int_equal(json_array_size(lines), 2);
	assert_string_equal(text_at(lines, 0, "msg"), "yes 1");
	assert_string_equal(text_at(lines, 1, "level"), "fatal");
	json_decref(lines);
}

TEST_WITH(equal_lines_are_sampled_but_never_a_change_of_policy, make_path, remove_path)
{
	struct loglines *l = opened((struct loglines_config){ 0 });
	json_t *lines;
	size_t outbound = 0, updated = 0, other = 0;

	for (int i = 0; i < 1000; i++) {
		loglines_outbound(l, T0, "", "a.test", NULL, 0, NULL);
		loglines_policy(l, T0, LOGLINES_UPDATED, "", "deny", "[]");
	}
	loglines_say(l, T0, LOGLINES_INFO, "another");
	for (int i = 0; i < 5; i++)
		loglines_outbound(l, T0 + 1000, "", "a.test", NULL, 0, NULL);
	lines = lines_of(l);
	for (size_t i = 0; i < json_array_size(lines); i++) {
		const char *msg = text_at(lines, i, "msg");

		outbound += strcmp(msg, "egress outbound") == 0;
		updated += strcmp(msg, "egress policy updated") == 0;
		other += strcmp(msg, "another") == 0;
	}
	assert_int_equal(outbound, 100 + 9 + 5);
	assert_int_equal(updated, 1000);
	assert_int_equal(other, 1);
	json_decref(lines);
}

TEST_WITH(attributes_break_no_line, make_path, remove_path)
{
	char big[LOGLINES_ATTRS_SIZE];
	const struct loglines_attr attrs[] = {
		{ text_of("level"), text_of("forged") },
		{ text_of("sandbox_id"), text_of("forged") },
		{ text_of("a\"b\n"), text_of("\xff<\x1b") },
		{ text_of("twice"), text_of("first") },
		{ text_of("twice"), text_of("second") },
		{ { NULL, 0 }, text_of("nobody") },
		{ text_of("big1"), { big, sizeof(big) } },
		{ text_of("big2"), { big, sizeof(big) } },
		{ text_of("after"), text_of("it fits") },
	};
	struct loglines *l;
	json_t *lines;

	memset(big, 1, sizeof(big));
	l = opened((struct loglines_config){
		.attrs = attrs, .attr_count = ARRAY_SIZE(attrs), .sandbox_id = "own" });
	loglines_say(l, T0, LOGLINES_INFO, "x");
	lines = lines_of(l);
	assert_string_equal(text_at(lines, 0, "level"), "info");
	assert_string_equal(text_at(lines, 0, "sandbox_id"), "own");
	assert_string_equal(text_at(lines, 0, "a\"b\n"), "\xef\xbf\xbd<\x1b");
	assert_string_equal(text_at(lines, 0, "twice"), "first");
	assert_non_null(text_at(lines, 0, "big1"));
	assert_null(text_at(lines, 0, "big2"));
	assert_string_equal(text_at(lines, 0, "after"), "it fits");
	json_decref(lines);
}

TEST_WITH(a_list_of_rules_of_any_size_stays_json, make_path, remove_path)
{
	enum { SIZE = 1 << 20 };
	char *rules = malloc(SIZE + 1);
	struct loglines *l = opened((struct loglines_config){ 0 });
	json_t *lines, *list;

	assert_non_null(rules);
	memset(rules, '\xe9', SIZE); /* no UTF-8: each becomes six bytes */
	memcpy(rules, "[\"", 2);
	memcpy(rules + SIZE - 2, "\"]", 3);
	loglines_policy(l, T0, LOGLINES_UPDATED, "", "deny", rules);
	loglines_policy(l, T0, LOGLINES_UPDATED, "", "deny", "[\"<\xc3\xa9>\\n\",\n1]");
	lines = lines_of(l);
	free(rules);
	list = json_object_get(json_array_get(lines, 0), "rules");
	assert_int_equal(json_string_length(json_array_get(list, 0)), (SIZE - 4) * 3);
	list = json_object_get(json_array_get(lines, 1), "rules");
	assert_string_equal(json_string_value(json_array_get(list, 0)), "<\xc3\xa9>\n");
	json_decref(lines);
}

/* Standard output becomes a pipe that nobody reads. */
TEST_WITH(a_blocked_output_delays_nobody_and_counts, make_path, remove_path)
{
	const char *outputs[] = { "stdout", path };
	const struct loglines_config config = { .outputs = outputs, .output_count = 2 };
	const int before = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	struct loglines *l = NULL;
	uint64_t dropped;
	char buf[4096];
	int fds[2];
	ssize_t n;
	size_t got = 0;
	bool has_next = false, has_gap = false;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	dup2(fds[1], STDOUT_FILENO);
	close(fds[1]);
	assert_int_equal(loglines_new(&config, &l, NULL), 0);
	for (int i = 0; i < 20000; i++)
		loglines_say(l, T0, LOGLINES_INFO, "line %d, %0200d", i, 0);
	dropped = loglines_dropped(l);
	/* Of both outputs: the file may have been too slow as well. */
	assert_in_range(dropped, 10000, 2 * (20000 - 500));
	/* Somebody reads: the rest comes, and a line says what is missing. A line that
	 * finds no room yet is lost as well. */
	assert_int_equal(fcntl(fds[0], F_SETFL, O_NONBLOCK), 0);
	for (int i = 1; i < PATIENCE_MS && !(has_next && has_gap); i++) {
		loglines_say(l, T0 + 1000 * i, LOGLINES_INFO, "after");
		usleep(1000);
		while ((n = read(fds[0], buf + got, sizeof(buf) - 1 - got)) > 0) {
			const size_t all = got + (size_t)n;

			buf[all] = '\0';
			has_next = has_next || strstr(buf, "\"msg\":\"after\"");
			has_gap =
				has_gap ||
				strstr(buf,
				       "\"msg\":\"log lines were dropped\",\"dropped\":");
			got = MIN(all, (size_t)SEEN_KEPT);
			memmove(buf, buf + all - got, got);
		}
	}
	dup2(before, STDOUT_FILENO);
	close(before);
	close(fds[0]);
	assert_true(has_next);
	assert_true(has_gap);
	loglines_free(l, PATIENCE_MS);
}

TEST_WITH(an_output_that_cannot_be_had_is_tried_again, make_path, remove_path)
{
	char place[] = "/tmp/weir-loglines-XXXXXX";
	const char *outputs[] = { place };
	const struct loglines_config config = { .outputs = outputs, .output_count = 1 };
	struct loglines *l = NULL;
	struct stat st;

	assert_non_null(mkdtemp(place));
	assert_int_equal(loglines_new(&config, &l, NULL), 0);
	loglines_policy(l, T0, LOGLINES_UPDATED, "", "deny", "[]");
	for (int ms = 0;
	     ms < PATIENCE_MS && !(loglines_lacks(l) && loglines_dropped(l) > 0); ms++)
		usleep(1000);
	assert_string_equal(loglines_lacks(l), place);
	/* And the line about it, where the first was lost before the call was over. */
	assert_in_range(loglines_dropped(l), 1, 2);
	assert_int_equal(rmdir(place), 0);
	for (int ms = 0; ms < PATIENCE_MS && loglines_lacks(l); ms += 10) {
		loglines_policy(l, T0 + 2000, LOGLINES_UPDATED, "", "deny", "[]");
		usleep(10000);
	}
	assert_null(loglines_lacks(l));
	/* And where somebody takes it away. */
	assert_int_equal(unlink(place), 0);
	for (int ms = 0; ms < PATIENCE_MS && stat(place, &st) < 0; ms += 10) {
		loglines_policy(l, T0 + 2000, LOGLINES_UPDATED, "", "deny", "[]");
		usleep(10000);
	}
	assert_null(loglines_lacks(l));
	loglines_free(l, PATIENCE_MS);
	assert_int_equal(stat(place, &st), 0);
	assert_true(st.st_size > 0);
	unlink(place);
}

TEST_WITH(a_full_disk_is_counted, make_path, remove_path)
{
	const char *outputs[] = { "/dev/full" };
	const struct loglines_config config = { .outputs = outputs, .output_count = 1 };
	struct loglines *l = NULL;

	assert_int_equal(loglines_new(&config, &l, NULL), 0);
	for (int i = 0; i < 10; i++)
		loglines_policy(l, T0, LOGLINES_UPDATED, "", "deny", "[]");
	for (int ms = 0; ms < PATIENCE_MS && loglines_dropped(l) < 10; ms++)
		usleep(1000);
	assert_in_range(loglines_dropped(l), 10, 11);
	loglines_free(l, PATIENCE_MS);
}
