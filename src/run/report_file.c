// SPDX-License-Identifier: Apache-2.0
/* The report of a run as a file, in one of five forms.
 *
 * HOW IT WORKS
 * Names and reasons may be a sandbox's making. print_sanitized() makes printable ASCII of
 * a text, and then each form writes each character so that it stands for itself there: as
 * a character reference in Markdown and XML, as %XX in a workflow command. JSON and SARIF
 * are written by jansson. SARIF's messages have a syntax of their own, links and
 * placeholders, whose brackets become \xNN.
 *
 * GitHub's annotations and SARIF's results have a place in a file: the rule that
 * refused, where somebody wrote one, else the first document of the policy, where a rule
 * that allows it would stand. Without any document an annotation has none; a result needs
 * one, and has .weir.yaml. */
#include "run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/text.h"
#include "event/json.h"
#include "events/jsonl.h"
#include "policy/explain.h"
#include "policy/policy.h"
#include "run/options.h"
#include "sandbox/sandbox.h"
#include "sys/files.h"
#include "sys/print.h"

enum { REPORT_VERSION = 1 /* of the JSON */ };

/* --- text from outside --- */

/* The printable characters that don't stand for themselves in a form, and how one of them
 * is written so that it does. In Markdown that is whatever could be markup. */
struct escapes {
	const char *special;
	const char *format;
};
static const struct escapes markdown = { "!\"#$%&'()*+.:;<=>?@[\\]^_`{|}~", "&#%d;" };
static const struct escapes xml = { "&<>\"'", "&#%d;" };
static const struct escapes sarif = { "[]{}", "\\x%02x" };
static const struct escapes command_text = { "%", "%%%02X" };
static const struct escapes command_property = { "%:,", "%%%02X" };

static void print_sanitized(FILE *out, const char *text, const struct escapes *how)
{
	for (; *text; text++) {
		char shown[8];
		const struct text one = { text, 1 };
		const char *c = *text == '\\' ? "\\"
					      : text_escape(one, shown, sizeof(shown));

		for (; *c; c++)
			if (strchr(how->special, *c))
				fprintf(out, how->format, *c);
			else
				fputc(*c, out);
	}
}

/* --- where a refusal belongs --- */

struct place {
	const char *file;
	uint32_t line, column;
	bool is_made_up; /* there is no document */
};

static struct place place_of(const struct report *r, const struct event *e)
{
	const size_t built_in = strlen(POLICY_BUILT_IN);
	const struct plan *plan = e ? report_plan(r->policy, e) : NULL;

	if (plan && e->rule != EVENT_NO_RULE && e->rule < plan_rule_count(plan)) {
		const struct plan_rule rule = plan_rule(plan, e->rule);

		/* "--deny" is no file. */
		if (!(rule.flags & PLAN_IMPLICIT) && rule.file[0] != '-' &&
		    strncmp(rule.file, POLICY_BUILT_IN, built_in) != 0)
			return (struct place){ rule.file, MAX(rule.line, 1U),
					       MAX(rule.column, 1U), false };
	}
	for (size_t i = 0; i < r->policy->policy.source_count; i++)
		if (strncmp(r->policy->policy.sources[i], POLICY_BUILT_IN, built_in) != 0)
			return (struct place){ r->policy->policy.sources[i], 1, 1,
					       false };
	return (struct place){ CONFIG_NARROW, 1, 1, true };
}

enum { SENTENCE_SIZE = REPORT_WHAT_SIZE * 2 + REPORT_WHY_SIZE + 128 };

/* "refused evil.test 2 times: no rule allows it; --allow evil.test would allow it" */
static const char *sentence(const struct report *r, const struct event *e, char *buf)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE];
	const bool has_advice = e->advice[0] != '\0';

	report_why(report_plan(r->policy, e), e, why);
	snprintf(buf, SENTENCE_SIZE, "%s %s %" PRIu64 " time%s%s%s%s%s%s",
		 report_is_failure(e) ? "failed:"
		 : report_is_would(e) ? "the policy would have refused"
				      : "refused",
		 report_what(e, what), e->packets, e->packets == 1 ? "" : "s",
		 why[0] ? ": " : "", why, has_advice ? "; --allow " : "", e->advice,
		 has_advice ? " would allow it" : "");
	return buf;
}

/* Call @fn for what was refused or would have been, then for what failed. */
static void each_event(const struct report *r,
		       void (*fn)(void *data, const struct report *r,
				  const struct event *e),
		       void *data)
{
	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (report_is_refusal(event_ring_at(r->ring, i)))
			fn(data, r, event_ring_at(r->ring, i));
	for (size_t i = 0; r->would && i < event_ring_count(r->would); i++)
		fn(data, r, event_ring_at(r->would, i));
	for (size_t i = 0; i < event_ring_count(r->failures); i++)
		if (report_is_failure(event_ring_at(r->failures, i)))
			fn(data, r, event_ring_at(r->failures, i));
}

/* --- JSON; docs/report-schema.json describes it --- */

/* Text from outside; what isn't UTF-8 is escaped. */
static json_t *text_json(const char *text)
{
	char shown[4096];
	json_t *j = json_string(text);

	return j ? j : json_string(text_escape(text_of(text), shown, sizeof(shown)));
}

/* "2026-11-20T13:31:08.250Z" */
static json_t *time_json(int64_t ms)
{
	char text[JTEXT_TIME_SIZE];

	return json_string(jtext_time(ms, true, text));
}

/* Up to @end each, so that of "NAME=value" the name alone is told. */
static json_t *list_json(const char *const *items, size_t count, const char *end)
{
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++) {
		char text[4096];

		snprintf(text, sizeof(text), "%.*s", (int)strcspn(items[i], end),
			 items[i]);
		json_array_append_new(list, text_json(text));
	}
	return list;
}

static json_t *number_or_null(bool known, json_int_t value)
{
	return known ? json_integer(value) : json_null();
}

static json_t *event_tree(const struct report *r, const struct event *e)
{
	const char *limit = report_limit(e);
	const bool has_addr = e->remote.family != ADDR_NONE;
	const struct plan *plan = report_plan(r->policy, e);
	json_t *j = json_object(), *rule = json_null();
	struct plan_rule by;

	if (e->rule != EVENT_NO_RULE && e->rule < plan_rule_count(plan)) {
		by = plan_rule(plan, e->rule);
		rule = json_pack("{s:s, s:o, s:o, s:i, s:i, s:o}", "action",
				 policy_action_name(by.action), "target",
				 text_json(by.target), "file", text_json(by.file), "line",
				 (int)by.line, "column", (int)by.column, "comment",
				 text_json(by.comment));
	}
	json_object_set_new(j, "time", time_json(e->ts_ms));
	json_object_set_new(j, "action", json_string(event_action_name(e->action)));
	json_object_set_new(j, "layer", json_string(event_layer_name(e->layer)));
	json_object_set_new(j, "name", e->name[0] ? text_json(e->name) : json_null());
	json_object_set_new(j, "address",
			    has_addr ? json_string(ADDR_SHOWN(&e->remote)) : json_null());
	json_object_set_new(j, "protocol",
			    has_addr ? json_string(report_protocol(e->protocol))
				     : json_null());
	json_object_set_new(j, "port", number_or_null(e->port > 0, e->port));
	json_object_set_new(j, "query_type",
			    number_or_null(e->query_type > 0, e->query_type));
	json_object_set_new(j, "uid", number_or_null(e->uid != UINT32_MAX, e->uid));
	json_object_set_new(j, "times", json_integer((json_int_t)e->packets));
	json_object_set_new(j, "bytes", json_integer((json_int_t)e->bytes));
	json_object_set_new(j, "reason", text_json(e->reason));
	json_object_set_new(j, "rule", rule);
	json_object_set_new(j, "limit", limit[0] ? json_string(limit) : json_null());
	json_object_set_new(j, "allow",
			    e->advice[0] ? text_json(e->advice) : json_null());
	return j;
}

static json_t *events_json(const struct report *r, const struct event_ring *ring,
			   event_kind_fn *is_kind)
{
	json_t *list = json_array();

	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (is_kind(event_ring_at(ring, i)))
			json_array_append_new(list,
					      event_tree(r, event_ring_at(ring, i)));
	return list;
}

static json_t *argv_json(char *const *argv)
{
	json_t *list = json_array();

	for (size_t i = 0; argv[i]; i++)
		json_array_append_new(list, text_json(argv[i]));
	return list;
}

static int write_json(const struct report *r, FILE *out)
{
	const struct policy *policy = &r->policy->policy;
	uint64_t missed = report_missed(r);
	json_t *j = json_object(), *counters = json_object();

	json_object_set_new(j, "version", json_integer(REPORT_VERSION));
	json_object_set_new(j, "weir", json_string(WEIR_VERSION));
	json_object_set_new(j, "command", argv_json(r->spec->argv));
	json_object_set_new(j, "exit_status", json_integer(r->exit_status));
	json_object_set_new(j, "signal", number_or_null(r->signal > 0, r->signal));
	json_object_set_new(j, "audit", json_boolean(r->would != NULL));
	json_object_set_new(j, "stopped", json_boolean(r->stopped));
	json_object_set_new(j, "weir_failed", json_boolean(r->failed));
	json_object_set_new(j, "started", time_json(r->started_ms));
	json_object_set_new(j, "ended", time_json(r->ended_ms));
	json_object_set_new(j, "duration_ms", json_integer(r->ended_ms - r->started_ms));
	json_object_set_new(j, "policy_updates", json_integer(r->policy->number));
	json_object_set_new(
		j, "policy",
		json_pack("{s:o, s:i, s:s, s:s}", "sources",
			  list_json(policy->sources, policy->source_count, ""), "rules",
			  (int)policy->count, "default_action",
			  policy_action_name(policy->default_action), "verify",
			  policy->verify == POLICY_VERIFY_TLS ? "tls" : "dns"));
	json_object_set_new(j, "refusals", events_json(r, r->ring, report_is_refusal));
	json_object_set_new(j, "failures",
			    events_json(r, r->failures, report_is_failure));
	if (r->would)
		json_object_set_new(j, "would_be_refused",
				    events_json(r, r->would, report_is_would));
	if (r->would) {
		json_object_set_new(j, "would_be_refused_not_recorded",
				    json_integer((json_int_t)r->would_lost));
		json_object_set_new(j, "passed_not_judged",
				    json_integer((json_int_t)report_unchecked(r)));
	}
	json_object_set_new(j, "refusals_not_recorded", json_integer((json_int_t)missed));
	json_object_set_new(j, "hidden", list_json(r->hidden, r->hidden_count, ""));
	json_object_set_new(j, "environment_kept_back",
			    list_json(r->held, r->held_count, "="));
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		json_object_set_new(counters,
				    sandbox_counter_name((enum sandbox_counter)i),
				    json_integer((json_int_t)r->counters[i]));
	json_object_set_new(j, "counters", counters);
	return print_json(j, 0, out);
}

/* --- Markdown --- */

static void print_code(FILE *out, const char *text)
{
	fputs("<code>", out);
	print_sanitized(out, text, &markdown);
	fputs("</code>", out);
}

static void print_summary(FILE *out, const struct report *r)
{
	const uint64_t *c = r->counters;

	fputs("| | |\n|---|---|\n", out);
	fputs("| ended with | ", out);
	if (r->failed)
		fputs("Weir failed, ", out);
	if (r->stopped)
		fputs("stopped by on_denies, ", out);
	if (r->signal > 0)
		fprintf(out, "signal %d |\n", r->signal);
	else
		fprintf(out, "status %d |\n", r->exit_status);
	fprintf(out, "| took | %" PRId64 ".%" PRId64 " s |\n",
		(r->ended_ms - r->started_ms) / 1000,
		(r->ended_ms - r->started_ms) % 1000 / 100);
	fputs("| policy | ", out);
	for (size_t i = 0; i < r->policy->policy.source_count; i++) {
		fputs(i > 0 ? ", " : "", out);
		print_code(out, r->policy->policy.sources[i]);
	}
	fprintf(out, "%s%zu rules |\n", r->policy->policy.source_count > 0 ? ", " : "",
		r->policy->policy.count);
	fprintf(out, "| lookups | %" PRIu64 ", %" PRIu64 " refused |\n", c[COUNT_QUERIES],
		c[COUNT_QUERIES_DENIED]);
	fprintf(out, "| connections | %" PRIu64 ", %" PRIu64 " refused |\n\n",
		c[COUNT_FLOWS], c[COUNT_FLOWS_DENIED]);
}

static void print_refusal_row(FILE *out, const struct report *r, const struct event *e)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE];

	fputs("| ", out);
	print_code(out, report_what(e, what));
	fprintf(out, " | %" PRIu64 " | ", e->packets);
	print_sanitized(out, report_why(report_plan(r->policy, e), e, why), &markdown);
	fputs(" | ", out);
	if (e->advice[0]) {
		fputs("<code>--allow ", out);
		print_sanitized(out, e->advice, &markdown);
		fputs("</code>", out);
	}
	fputs(" |\n", out);
}

static int write_markdown(const struct report *r, FILE *out)
{
	uint64_t missed = report_missed(r);
	char lost[REPORT_LOST_SIZE];

	fputs("### Weir: <code>", out);
	for (size_t i = 0; r->spec->argv[i]; i++) {
		fputs(i > 0 ? " " : "", out);
		print_sanitized(out, r->spec->argv[i], &markdown);
	}
	fputs("</code>\n\n", out);
	print_summary(out, r);
	if (report_count(r->ring, report_is_refusal) == 0 && missed == 0) {
		fputs("Nothing was refused.\n\n", out);
	} else {
		fputs("| refused | times | why | what would allow it |\n"
		      "|---|--:|---|---|\n",
		      out);
		for (size_t i = 0; i < event_ring_count(r->ring); i++)
			if (report_is_refusal(event_ring_at(r->ring, i)))
				print_refusal_row(out, r, event_ring_at(r->ring, i));
		fputc('\n', out);
		if (missed > 0)
			fprintf(out, "And %" PRIu64 " more that were counted only.\n\n",
				missed);
	}
	if (r->would && event_ring_count(r->would) > 0)
		fputs("| audit: the policy would have refused | times | why | what would "
		      "allow it |\n|---|--:|---|---|\n",
		      out);
	for (size_t i = 0; r->would && i < event_ring_count(r->would); i++)
		print_refusal_row(out, r, event_ring_at(r->would, i));
	if (r->would && event_ring_count(r->would) > 0)
		fputc('\n', out);
	if (report_audit_lost(r, lost)[0])
		fprintf(out, "Audit: %s.\n\n", lost);
	if (report_count(r->failures, report_is_failure) > 0)
		fputs("| allowed, but failed | times | why | |\n|---|--:|---|---|\n",
		      out);
	for (size_t i = 0; i < event_ring_count(r->failures); i++)
		if (report_is_failure(event_ring_at(r->failures, i)))
			print_refusal_row(out, r, event_ring_at(r->failures, i));
	return ferror(out) ? -EIO : 0;
}

/* --- GitHub's workflow commands --- */

static void print_annotation(void *data, const struct report *r, const struct event *e)
{
	const struct place place = place_of(r, e);
	char buf[SENTENCE_SIZE], what[REPORT_WHAT_SIZE];
	FILE *out = data;

	fprintf(out, "::%s ",
		report_is_failure(e) || report_is_would(e) ? "warning" : "error");
	if (!place.is_made_up) {
		fputs("file=", out);
		print_sanitized(out, place.file, &command_property);
		fprintf(out, ",line=%u,col=%u,", place.line, place.column);
	}
	fputs("title=Weir%3A ", out);
	print_sanitized(out, report_what(e, what), &command_property);
	fputs("::", out);
	print_sanitized(out, sentence(r, e, buf), &command_text);
	fputc('\n', out);
}

static int write_github(const struct report *r, FILE *out)
{
	const uint64_t missed = report_missed(r);
	char lost[REPORT_LOST_SIZE];

	each_event(r, print_annotation, out);
	if (report_audit_lost(r, lost)[0])
		fprintf(out, "::warning title=Weir::audit: %s\n", lost);
	if (missed > 0)
		fprintf(out,
			"::error title=Weir::%" PRIu64 " more were refused that "
			"were counted only\n",
			missed);
	return ferror(out) ? -EIO : 0;
}

/* --- SARIF 2.1.0 --- */

/* What the results are of. */
static const struct sarif_rule {
	const char *id, *name, *text, *level;
} sarif_rules[] = {
	{ "weir/lookup", "RefusedLookup", "A name was looked up that the policy denies.",
	  "error" },
	{ "weir/address", "RefusedAddress",
	  "A packet or connection went to an address that the policy denies.", "error" },
	{ "weir/name", "RefusedName",
	  "A connection showed a name that the policy denies, or none.", "error" },
	{ "weir/limit", "LimitReached", "A limit of the policy was reached.", "error" },
	{ "weir/failed", "FailedDestination",
	  "A server, or a name server, that the policy allows did not work.", "warning" },
	{ "weir/audit", "WouldRefuse",
	  "This has passed under --audit, and the policy would have refused it.",
	  "warning" },
};

static size_t sarif_rule_of(const struct event *e)
{
	if (report_is_failure(e))
		return 4;
	if (report_is_would(e))
		return 5;
	if (e->action == EVENT_LIMIT)
		return 3;
	return e->layer == EVENT_DNS ? 0 : e->layer == EVENT_NAME ? 2 : 1;
}

/* A path as a URI; an absolute one gets the scheme in front. */
static json_t *uri_json(const char *path)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-._~/";
	char *uri = NULL;
	size_t size;
	FILE *out = open_memstream(&uri, &size);
	json_t *j = NULL;

	if (!out)
		return NULL;
	fputs(path[0] == '/' ? "file://" : "", out);
	for (; *path; path++)
		fprintf(out, strchr(plain, *path) ? "%c" : "%%%02X",
			(unsigned char)*path);
	if (fclose(out) == 0)
		j = json_string(uri);
	free(uri);
	return j;
}

static json_t *message_json(const char *text)
{
	char *shown = NULL;
	size_t size;
	FILE *out = open_memstream(&shown, &size);
	json_t *j;

	if (out)
		print_sanitized(out, text, &sarif);
	j = json_pack("{s:s}", "text", out && fclose(out) == 0 ? shown : "");
	free(shown);
	return j;
}

static void add_result(void *data, const struct report *r, const struct event *e)
{
	const struct place place = place_of(r, e);
	const struct sarif_rule *rule = &sarif_rules[sarif_rule_of(e)];
	const struct hash_key key = { 0 };
	char buf[SENTENCE_SIZE], what[REPORT_WHAT_SIZE], same[REPORT_WHAT_SIZE + 64];
	char fingerprint[20];
	json_t *location = json_pack("{s:{s:{s:o}, s:{s:i, s:i}}}", "physicalLocation",
				     "artifactLocation", "uri", uri_json(place.file),
				     "region", "startLine", (int)place.line,
				     "startColumn", (int)place.column);

	/* A fingerprint is the same in every run for the same destination. */
	snprintf(same, sizeof(same), "%s %s", rule->id, report_what(e, what));
	snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
		 hash_bytes(&key, same, strlen(same)));
	json_array_append_new(
		data, json_pack("{s:s, s:i, s:s, s:o, s:[o], s:{s:s}, s:I}", "ruleId",
				rule->id, "ruleIndex", (int)(rule - sarif_rules), "level",
				rule->level, "message", message_json(sentence(r, e, buf)),
				"locations", location, "partialFingerprints",
				"weirDestination/v1", fingerprint, "occurrenceCount",
				(json_int_t)MIN(e->packets, INT32_MAX)));
}

static void add_note(json_t *notes, const char *text)
{
	json_array_append_new(notes, json_pack("{s:s, s:o}", "level", "warning",
					       "message", message_json(text)));
}

static int write_sarif(const struct report *r, FILE *out)
{
	const uint64_t missed = report_missed(r);
	json_t *results = json_array(), *notes = json_array(), *rules = json_array();
	json_t *invocation;
	char text[REPORT_LOST_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(sarif_rules); i++)
		json_array_append_new(
			rules,
			json_pack("{s:s, s:s, s:{s:s}, s:{s:s}}", "id", sarif_rules[i].id,
				  "name", sarif_rules[i].name, "shortDescription", "text",
				  sarif_rules[i].text, "defaultConfiguration", "level",
				  sarif_rules[i].level));
	each_event(r, add_result, results);
	if (report_audit_lost(r, text)[0])
		add_note(notes, text);
	if (missed > 0) {
		snprintf(text, sizeof(text), "%" PRIu64 " more were counted only",
			 missed);
		add_note(notes, text);
	}
	invocation = json_pack(
		"{s:o, s:b, s:i, s:o, s:o, s:o}", "arguments", argv_json(r->spec->argv),
		"executionSuccessful", !r->failed, "exitCode", r->exit_status,
		"startTimeUtc", time_json(r->started_ms), "endTimeUtc",
		time_json(r->ended_ms), "toolExecutionNotifications", notes);
	return print_json(
		json_pack("{s:s, s:s, s:[{s:{s:{s:s, s:s, s:o}}, s:[o], s:o, s:s}]}",
			  "$schema", "https://json.schemastore.org/sarif-2.1.0.json",
			  "version", "2.1.0", "runs", "tool", "driver", "name", "Weir",
			  "version", WEIR_VERSION, "rules", rules, "invocations",
			  invocation, "results", results, "columnKind", "utf16CodeUnits"),
		0, out);
}

/* --- JUnit's XML --- */

static void print_attribute(FILE *out, const char *name, const char *value)
{
	fprintf(out, " %s=\"", name);
	print_sanitized(out, value, &xml);
	fputc('"', out);
}

/* Events of one destination are one test case: those before @e, or @e alone. */
static bool is_listed(const struct event_ring *ring, const struct event *e)
{
	char what[REPORT_WHAT_SIZE], other[REPORT_WHAT_SIZE];

	report_what(e, what);
	for (size_t i = 0; event_ring_at(ring, i) != e; i++)
		if (event_ring_at(ring, i)->action == e->action &&
		    strcmp(report_what(event_ring_at(ring, i), other), what) == 0)
			return true;
	return false;
}

static const struct event_ring *ring_of(const struct report *r, const struct event *e)
{
	return report_is_failure(e) ? r->failures
	       : report_is_would(e) ? r->would
				    : r->ring;
}

static void count_case(void *data, const struct report *r, const struct event *e)
{
	size_t *counts = data;

	if (!is_listed(ring_of(r, e), e))
		counts[report_is_failure(e)]++;
}

static void print_case(void *data, const struct report *r, const struct event *e)
{
	const char *element = report_is_failure(e) ? "error" : "failure";
	const struct event_ring *ring = ring_of(r, e);
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE];
	char buf[SENTENCE_SIZE], other[REPORT_WHAT_SIZE];
	FILE *out = data;

	if (is_listed(ring, e))
		return;
	fputs("    <testcase", out);
	print_attribute(out, "classname", sarif_rules[sarif_rule_of(e)].id);
	print_attribute(out, "name", report_what(e, what));
	print_attribute(out, "file", place_of(r, e).file);
	fprintf(out, " time=\"0\">\n      <%s", element);
	print_attribute(out, "message", report_why(report_plan(r->policy, e), e, why));
	print_attribute(out, "type", event_action_name((enum event_action)e->action));
	fputc('>', out);
	/* Of all events of this destination. */
	report_what(e, what);
	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *o = event_ring_at(ring, i);

		if (o->action != e->action || strcmp(report_what(o, other), what) != 0)
			continue;
		print_sanitized(out, sentence(r, o, buf), &xml);
		fputc('\n', out);
	}
	fprintf(out, "</%s>\n    </testcase>\n", element);
}

static void print_single_case(FILE *out, const char *name, const char *failure)
{
	fprintf(out, "    <testcase classname=\"weir\" name=\"%s\" time=\"0\">", name);
	if (failure[0])
		fprintf(out, "<failure message=\"%s\" type=\"deny\"/>", failure);
	fputs("</testcase>\n", out);
}

/* A suite has one case at least: readers take an empty one for a broken file. */
static int write_junit(const struct report *r, FILE *out)
{
	const uint64_t missed = report_missed(r);
	size_t counts[2] = { 0, 0 }; /* refused, failed */
	char totals[128], text[64], lost[REPORT_LOST_SIZE], time[JTEXT_TIME_SIZE];

	report_audit_lost(r, lost);
	each_event(r, count_case, counts);
	counts[0] += (missed > 0) + (lost[0] != '\0');
	snprintf(totals, sizeof(totals),
		 " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" time=\"%" PRId64
		 ".%03" PRId64 "\"",
		 MAX(counts[0] + counts[1], (size_t)1), counts[0], counts[1],
		 (r->ended_ms - r->started_ms) / 1000,
		 (r->ended_ms - r->started_ms) % 1000);
	fprintf(out,
		"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites%s>\n"
		"  <testsuite name=\"weir run\"%s skipped=\"0\" timestamp=\"%s\">\n",
		totals, totals, jtext_time(r->started_ms, false, time));
	each_event(r, print_case, out);
	snprintf(text, sizeof(text), "%" PRIu64 " more were counted only", missed);
	if (missed > 0)
		print_single_case(out, "others", text);
	if (lost[0])
		print_single_case(out, "others of the audit", lost);
	if (counts[0] + counts[1] == 0)
		print_single_case(out, "nothing was refused", "");
	fputs("  </testsuite>\n</testsuites>\n", out);
	return ferror(out) ? -EIO : 0;
}

/* --- the file --- */

/* No link is followed that an earlier sandbox may have left there. Not blocking, so
 * that a pipe is refused, not waited for. */
int report_open_directory(const char *name, const char **ret_last, struct err *err)
{
	CLEAN(path) struct path directory = { .fd = -1 };
	int r = path_open_parent(name, &directory, ret_last, err);

	if (r < 0)
		return r;
	if (directory.untrusted)
		return err_set(err, -ELOOP,
			       "'%s' is a link; name the directory that it leads to",
			       directory.untrusted);
	return TAKE_FD(directory.fd);
}

/* One such file, for writing, with O_ flags @mode besides. Return: a descriptor, or
 * -errno with @err. */
static int report_open_file(const char *name, int mode, struct err *err)
{
	static const char descriptor[] = "/dev/fd/";
	const size_t size = strlen(descriptor);
	CLEAN(fd) int directory = -1;
	const char *last;
	uint32_t number;
	int fd, r;

	/* A file that the caller has opened for it. */
	if (strncmp(name, descriptor, size) == 0 &&
	    text_to_u32(text_of(name + size), INT_MAX, &number)) {
		fd = fcntl((int)number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		return fd < 0 ? err_set(err, -errno, "%s", strerror(errno)) : fd;
	}
	directory = report_open_directory(name, &last, err);
	if (directory < 0)
		return directory;
	fd = openat(directory, last,
		    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
			    mode,
		    0666);
	r = fd < 0 ? -errno : 0;
	if (r == -ELOOP)
		return err_set(err, r, "it is a link");
	return r < 0 ? err_set(err, r, "%s", strerror(-r)) : fd;
}

static const struct form {
	const char *suffix; /* of a file's name that says it, or NULL */
	int (*write)(const struct report *r, FILE *out);
	bool is_added; /* to what is in the file */
} forms[RUN_REPORT_FORMAT_COUNT] = {
	[RUN_REPORT_JSON] = { ".json", write_json, false },
	[RUN_REPORT_MARKDOWN] = { ".md", write_markdown, true },
	[RUN_REPORT_GITHUB] = { NULL, write_github, true },
	[RUN_REPORT_SARIF] = { ".sarif", write_sarif, false },
	[RUN_REPORT_JUNIT] = { ".xml", write_junit, false },
};

static enum run_report_format format_of(const struct run_spec *spec,
					const struct run_report *report)
{
	const size_t size = strlen(report->file);

	if (report->has_format)
		return report->format;
	if (spec->has_report_format)
		return spec->report_format;
	for (size_t i = 0; i < RUN_REPORT_FORMAT_COUNT; i++) {
		const size_t end = forms[i].suffix ? strlen(forms[i].suffix) : size;

		if (size > end && strcmp(report->file + size - end, forms[i].suffix) == 0)
			return (enum run_report_format)i;
	}
	return RUN_REPORT_JSON;
}

int report_open(struct run_spec *spec, struct err *err)
{
	for (struct run_report *report = spec->reports;
	     report < spec->reports + spec->report_count; report++) {
		const char *shown = SHOWN(report->file);
		CLEAN(fd) int fd = -1;
		struct stat st, other;
		int mode;

		report->format = format_of(spec, report);
		mode = forms[report->format].is_added ? O_APPEND : 0;
		if (strcmp(report->file, "-") == 0)
			continue;
		fd = report_open_file(report->file, mode, err);
		if (fd < 0)
			return err_context(err, "cannot write the report %s", shown);
		if (fstat(fd, &st) < 0)
			return err_sys(err, -errno, "cannot write the report %s", shown);
		if (!S_ISREG(st.st_mode))
			return err_set(err, -EINVAL,
				       "cannot write the report: %s is not a regular "
				       "file",
				       shown);
		for (const struct run_report *o = spec->reports; o < report; o++)
			if (o->fd >= 0 && fstat(o->fd, &other) == 0 &&
			    stat_is_same(&other, &st))
				return err_set(err, -EINVAL,
					       "--report: %s is named twice", shown);
		if (mode == 0 && (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0))
			return err_sys(err, -errno, "cannot write the report %s", shown);
		report->fd = TAKE_FD(fd);
		if (st.st_nlink > 0) /* else it has no name */
			spec->kept[spec->kept_count++] = report->file;
	}
	return 0;
}

static int write_one(const struct report *r, const struct run_report *report)
{
	const struct form *form = &forms[report->format];
	FILE *out = report->fd < 0 ? stdout : fdopen(report->fd, "w");
	int result;

	if (!out)
		return -errno;
	/* A command begins its line, and what was run may have left one without end. */
	if (out == stdout && form->is_added)
		fputc('\n', out);
	result = form->write(r, out);
	if ((out == stdout ? fflush(out) : fclose(out)) != 0 && result == 0)
		result = -errno;
	return result;
}

int report_write(const struct report *r, struct err *err)
{
	const size_t count = r->spec->report_count;
	int result = 0;

	/* Standard output comes last: its reader may take as long as he likes. */
	for (size_t i = 0; i < 2 * count; i++) {
		const struct run_report *report = &r->spec->reports[i % count];
		const int one = (report->fd < 0) == (i >= count) ? write_one(r, report)
								 : 0;

		if (one < 0)
			result = err_sys(err, one, "cannot write the report %s",
					 SHOWN(report->file));
	}
	return result;
}
