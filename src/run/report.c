// SPDX-License-Identifier: Apache-2.0
#include "run/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "event/json.h"
#include "events/report_event.h"
#include "policy/explain.h"
#include "sandbox/sandbox.h"
#include "sys/path.h"
#include "sys/print.h"

enum {
	REPORT_VERSION = 1, /* of the JSON */
	WHAT_COLUMNS_MAX = 48,
	TIMES_SIZE = 32,
	SUGGESTIONS_MAX = 10, /* more than that is no list for a person */
};

typedef bool event_kind_fn(const struct event *e);

static size_t count_events(const struct event_ring *ring, event_kind_fn *is_kind)
{
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++)
		n += is_kind(event_ring_at(ring, i));
	return n;
}

static uint64_t count_missed(const struct report *r)
{
	uint64_t all = sandbox_denied(r->counters), told = 0;

	for (size_t i = 0; i < event_ring_count(r->ring); i++)
		if (event_ring_at(r->ring, i)->action == EVENT_DENY)
			told += event_ring_at(r->ring, i)->packets;
	return all > told ? all - told : 0;
}

/* As wide as the longest, up to a limit that leaves room for the reasons. */
static int what_columns(const struct event_ring *ring, event_kind_fn *is_kind)
{
	char what[REPORT_WHAT_SIZE];
	size_t widest = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (is_kind(e))
			widest = MAX(widest, strlen(report_what(e, what)));
	}
	return (int)MIN(widest, WHAT_COLUMNS_MAX);
}

static void print_event(FILE *out, const struct plan *plan, const struct event *e,
			int columns)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], times[TIMES_SIZE];

	snprintf(times, sizeof(times), "%" PRIu64 " time%s", e->packets,
		 e->packets == 1 ? "" : "s");
	fprintf(out, "weir:   %-*s  %-7s  %s\n", columns, report_what(e, what), times,
		report_why(plan, e, why));
}

/* An earlier event suggests the same. */
static bool is_suggested_before(const struct event_ring *ring, size_t i, const char *rule)
{
	char other[REPORT_WHAT_SIZE];

	for (size_t j = 0; j < i; j++) {
		const struct event *e = event_ring_at(ring, j);

		if (report_is_refusal(e) && report_allow(e, other) &&
		    strcmp(other, rule) == 0)
			return true;
	}
	return false;
}

static void print_suggestions(FILE *out, const struct event_ring *ring)
{
	char rule[REPORT_WHAT_SIZE];
	size_t n = 0;

	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);

		if (!report_is_refusal(e) || !report_allow(e, rule) ||
		    is_suggested_before(ring, i, rule))
			continue;
		if (n == 0)
			fputs("weir: what of it is wanted, allow with\n", out);
		if (++n > SUGGESTIONS_MAX)
			continue;
		/* A shell takes brackets for a pattern. */
		fprintf(out,
			rule[0] == '[' ? "weir:   --allow '%s'\n"
				       : "weir:   --allow %s\n",
			rule);
	}
	if (n > SUGGESTIONS_MAX)
		fprintf(out, "weir:   and %zu more like these; see --report\n",
			n - SUGGESTIONS_MAX);
}

static void print_events(FILE *out, const struct plan *plan,
			 const struct event_ring *ring, event_kind_fn *is_kind)
{
	int columns = what_columns(ring, is_kind);

	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (is_kind(event_ring_at(ring, i)))
			print_event(out, plan, event_ring_at(ring, i), columns);
}

static void print_people(FILE *out, const struct report *r)
{
	uint64_t missed = count_missed(r);

	if (count_events(r->failures, report_is_failure) > 0) {
		fputs("weir: allowed, but failed:\n", out);
		print_events(out, r->plan, r->failures, report_is_failure);
	}
	if (count_events(r->ring, report_is_refusal) == 0 && missed == 0)
		return;
	fputs("weir: refused:\n", out);
	print_events(out, r->plan, r->ring, report_is_refusal);
	print_suggestions(out, r->ring);
	if (r->stopped)
		fputs("weir: the command was ended: the policy's on_denies says stop\n",
		      out);
	if (missed > 0)
		fprintf(out, "weir: %" PRIu64 " more were counted only\n", missed);
}

/* --- while the command runs --- */

bool report_live_note(struct report_live *l, const struct event_ring *ring,
		      const struct event *e)
{
	char what[REPORT_WHAT_SIZE], other[REPORT_WHAT_SIZE];

	if (!report_is_refusal(e) && !report_is_failure(e))
		return false;
	report_what(e, what);
	for (size_t i = 0; i < event_ring_count(ring) && !l->more; i++)
		if (event_ring_at(ring, i)->action == e->action &&
		    strcmp(report_what(event_ring_at(ring, i), other), what) == 0)
			return false;
	if (l->count < REPORT_LIVE_MAX)
		l->events[l->count++] = *e;
	else
		l->more = true;
	return l->said < l->count || !l->more_said;
}

static bool may_say_now(void)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct termios t;

	if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT))
		return false;
	return tcgetattr(STDERR_FILENO, &t) < 0 ||
	       (t.c_lflag & ICANON && !(t.c_lflag & TOSTOP));
}

/* One write(), which a pipe takes whole. */
static void say_line(const char *how, const char *what, const char *why)
{
	char line[1024];
	size_t size =
		(size_t)snprintf(line, sizeof(line), "weir: %s%s: %s\n", how, what, why);

	if (size >= sizeof(line)) {
		size = sizeof(line) - 1;
		line[size - 1] = '\n';
	}
	(void)!write(STDERR_FILENO, line, size);
}

void report_live_say(struct report_live *l, const struct plan *plan)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE];

	while (l->said < l->count && may_say_now()) {
		const struct event *e = &l->events[l->said++];

		say_line(report_is_failure(e) ? "failed " : "refused ",
			 report_what(e, what), report_why(plan, e, why));
	}
	if (l->more && !l->more_said && l->said == l->count && may_say_now()) {
		say_line("", "more is refused or fails", "the end of the run says all");
		l->more_said = true;
	}
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

static json_t *rule_json(const struct plan *plan, uint32_t index)
{
	struct plan_rule rule;

	if (index == EVENT_NO_RULE || index >= plan_rule_count(plan))
		return json_null();
	rule = plan_rule(plan, index);
	return json_pack("{s:s, s:o, s:o, s:i, s:i, s:o}", "action",
			 policy_action_name(rule.action), "target",
			 text_json(rule.target), "file", text_json(rule.file), "line",
			 (int)rule.line, "column", (int)rule.column, "comment",
			 text_json(rule.comment));
}

static json_t *number_or_null(bool known, json_int_t value)
{
	return known ? json_integer(value) : json_null();
}

static json_t *event_json(const struct report *r, const struct event *e)
{
	char addr[ADDR_TEXT_SIZE], allow[REPORT_WHAT_SIZE];
	const char *limit = report_limit(e);
	const bool has_addr = e->remote.family != ADDR_NONE;
	json_t *j = json_object();

	json_object_set_new(j, "time", time_json(e->ts_ms));
	json_object_set_new(j, "action", json_string(event_action_name(e->action)));
	json_object_set_new(j, "layer", json_string(event_layer_name(e->layer)));
	json_object_set_new(j, "name", e->name[0] ? text_json(e->name) : json_null());
	json_object_set_new(j, "address",
			    has_addr ? json_string(addr_format(&e->remote, addr))
				     : json_null());
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
	json_object_set_new(j, "rule", rule_json(r->plan, e->rule));
	json_object_set_new(j, "limit", limit[0] ? json_string(limit) : json_null());
	json_object_set_new(j, "allow",
			    report_allow(e, allow) ? text_json(allow) : json_null());
	return j;
}

static json_t *events_json(const struct report *r, const struct event_ring *ring,
			   event_kind_fn *is_kind)
{
	json_t *list = json_array();

	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (is_kind(event_ring_at(ring, i)))
			json_array_append_new(list,
					      event_json(r, event_ring_at(ring, i)));
	return list;
}

static json_t *command_json(char *const *argv)
{
	json_t *list = json_array();

	for (size_t i = 0; argv[i]; i++)
		json_array_append_new(list, text_json(argv[i]));
	return list;
}

static json_t *policy_json(const struct policy *policy)
{
	json_t *sources = json_array();

	for (size_t i = 0; i < policy->source_count; i++)
		json_array_append_new(sources, text_json(policy->sources[i]));
	return json_pack("{s:o, s:i, s:s, s:s}", "sources", sources, "rules",
			 (int)policy->count, "default_action",
			 policy_action_name(policy->default_action), "verify",
			 policy->verify == POLICY_VERIFY_TLS ? "tls" : "dns");
}

static json_t *counters_json(const uint64_t *counters)
{
	json_t *j = json_object();

	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		json_object_set_new(j, sandbox_counter_name((enum sandbox_counter)i),
				    json_integer((json_int_t)counters[i]));
	return j;
}

static int write_json(const struct report *r, FILE *out)
{
	uint64_t missed = count_missed(r);
	json_t *j = json_object();

	json_object_set_new(j, "version", json_integer(REPORT_VERSION));
	json_object_set_new(j, "weir", json_string(WEIR_VERSION));
	json_object_set_new(j, "command", command_json(r->spec->argv));
	json_object_set_new(j, "exit_status", json_integer(r->exit_status));
	json_object_set_new(j, "signal", number_or_null(r->signal > 0, r->signal));
	json_object_set_new(j, "stopped", json_boolean(r->stopped));
	json_object_set_new(j, "weir_failed", json_boolean(r->failed));
	json_object_set_new(j, "started", time_json(r->started_ms));
	json_object_set_new(j, "ended", time_json(r->ended_ms));
	json_object_set_new(j, "duration_ms", json_integer(r->ended_ms - r->started_ms));
	json_object_set_new(j, "policy", policy_json(r->policy));
	json_object_set_new(j, "refusals", events_json(r, r->ring, report_is_refusal));
	json_object_set_new(j, "failures",
			    events_json(r, r->failures, report_is_failure));
	json_object_set_new(j, "refusals_not_recorded", json_integer((json_int_t)missed));
	json_object_set_new(j, "counters", counters_json(r->counters));
	return print_json(j, 0, out);
}

/* --- Markdown --- */

/* As text that is shown as it is: whatever could be markup becomes a character
 * reference, what isn't printable \xNN. */
static void print_plain(FILE *out, const char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9') || strchr(" -/,", c))
			fputc(c, out);
		else if (c < ' ' || c > '~')
			fprintf(out, "&#92;x%02x", c);
		else
			fprintf(out, "&#%u;", c);
	}
}

static void print_code(FILE *out, const char *text)
{
	fputs("<code>", out);
	print_plain(out, text);
	fputs("</code>", out);
}

static void print_command(FILE *out, char *const *argv)
{
	fputs("<code>", out);
	for (size_t i = 0; argv[i]; i++) {
		fputs(i > 0 ? " " : "", out);
		print_plain(out, argv[i]);
	}
	fputs("</code>", out);
}

static void print_end(FILE *out, const struct report *r)
{
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
}

static void print_summary(FILE *out, const struct report *r)
{
	const uint64_t *c = r->counters;

	fputs("| | |\n|---|---|\n", out);
	print_end(out, r);
	fputs("| policy | ", out);
	for (size_t i = 0; i < r->policy->source_count; i++) {
		fputs(i > 0 ? ", " : "", out);
		print_code(out, r->policy->sources[i]);
	}
	fprintf(out, "%s%zu rules |\n", r->policy->source_count > 0 ? ", " : "",
		r->policy->count);
	fprintf(out, "| lookups | %" PRIu64 ", %" PRIu64 " refused |\n", c[COUNT_QUERIES],
		c[COUNT_QUERIES_DENIED]);
	fprintf(out, "| connections | %" PRIu64 ", %" PRIu64 " refused |\n\n",
		c[COUNT_FLOWS], c[COUNT_FLOWS_DENIED]);
}

static void print_row(FILE *out, const struct report *r, const struct event *e)
{
	char what[REPORT_WHAT_SIZE], why[REPORT_WHY_SIZE], allow[REPORT_WHAT_SIZE];

	fputs("| ", out);
	print_code(out, report_what(e, what));
	fprintf(out, " | %" PRIu64 " | ", e->packets);
	print_plain(out, report_why(r->plan, e, why));
	fputs(" | ", out);
	if (report_allow(e, allow)) {
		fputs("<code>--allow ", out);
		print_plain(out, allow);
		fputs("</code>", out);
	}
	fputs(" |\n", out);
}

static int write_markdown(const struct report *r, FILE *out)
{
	uint64_t missed = count_missed(r);

	fputs("### Weir: ", out);
	print_command(out, r->spec->argv);
	fputs("\n\n", out);
	print_summary(out, r);
	if (count_events(r->ring, report_is_refusal) == 0 && missed == 0) {
		fputs("Nothing was refused.\n\n", out);
	} else {
		fputs("| refused | times | why | what would allow it |\n"
		      "|---|--:|---|---|\n",
		      out);
		for (size_t i = 0; i < event_ring_count(r->ring); i++)
			if (report_is_refusal(event_ring_at(r->ring, i)))
				print_row(out, r, event_ring_at(r->ring, i));
		fputc('\n', out);
		if (missed > 0)
			fprintf(out, "And %" PRIu64 " more that were counted only.\n\n",
				missed);
	}
	if (count_events(r->failures, report_is_failure) > 0)
		fputs("| allowed, but failed | times | why | |\n|---|--:|---|---|\n",
		      out);
	for (size_t i = 0; i < event_ring_count(r->failures); i++)
		if (report_is_failure(event_ring_at(r->failures, i)))
			print_row(out, r, event_ring_at(r->failures, i));
	return ferror(out) ? -EIO : 0;
}

/* --- the file --- */

/* No link is followed that an earlier sandbox may have left there. Not blocking, so
 * that a pipe is refused, not waited for. */
static int open_report(const char *name, int mode, struct err *err)
{
	struct path directory;
	const char *last;
	int fd, r = path_open_parent(name, &directory, &last, err);

	if (r < 0)
		return r;
	if (directory.untrusted) {
		err_set(err, -ELOOP,
			"'%s' is a link; name the directory that it leads to",
			directory.untrusted);
		path_done(&directory);
		return -ELOOP;
	}
	fd = openat(directory.fd, last,
		    O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY |
			    mode,
		    0666);
	r = fd < 0 ? -errno : 0;
	path_done(&directory);
	if (r == -ELOOP)
		return err_set(err, r, "it is a link");
	return r < 0 ? err_set(err, r, "%s", strerror(-r)) : fd;
}

int report_open(struct run_spec *spec, struct err *err)
{
	const int mode = spec->report_format == RUN_REPORT_MARKDOWN ? O_APPEND : 0;
	CLEAN(fd) int fd = -1;
	char shown[TEXT_ESCAPED_SIZE];
	struct stat st;

	if (!spec->report_file)
		return 0;
	text_escape(text_of(spec->report_file), shown, sizeof(shown));
	fd = open_report(spec->report_file, mode, err);
	if (fd < 0)
		return err_context(err, "cannot write the report %s", shown);
	if (fstat(fd, &st) < 0)
		return err_sys(err, -errno, "cannot write the report %s", shown);
	if (!S_ISREG(st.st_mode))
		return err_set(err, -EINVAL,
			       "cannot write the report: %s is not a regular file",
			       shown);
	if (mode == 0 && ftruncate(fd, 0) < 0)
		return err_sys(err, -errno, "cannot write the report %s", shown);
	spec->report_fd = TAKE_FD(fd);
	spec->kept[spec->kept_count++] = spec->report_file;
	return 0;
}

static int write_file(const struct report *r, struct err *err)
{
	FILE *out;
	int result;

	if (!r->spec->report_file)
		return 0;
	out = fdopen(r->spec->report_fd, "w");
	if (!out)
		return err_sys(err, -errno, "cannot write the report");
	if (r->spec->report_format == RUN_REPORT_MARKDOWN)
		result = write_markdown(r, out);
	else
		result = write_json(r, out);
	if (fclose(out) != 0 && result == 0)
		result = -errno;
	if (result < 0)
		return err_sys(err, result, "cannot write the report");
	return 0;
}

/* --- the end --- */

static int exit_status_of(const struct report *r, int failure, int wait_status)
{
	if (failure != 0)
		return failure;
	if (r->stopped)
		return RUN_STATUS_STOPPED;
	if (r->spec->fail_on_deny && count_events(r->ring, report_is_refusal) > 0)
		return RUN_STATUS_DENIED;
	return r->signal > 0 ? 128 + r->signal : WEXITSTATUS(wait_status);
}

int report_end(struct report *r, int failure, int wait_status)
{
	struct err err = { 0 };

	r->ended_ms = clock_wall_ms();
	r->signal = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
	r->failed = failure != 0;
	r->exit_status = exit_status_of(r, failure, wait_status);
	if (failure == 0 && !r->spec->quiet)
		print_people(stderr, r);
	if (r->ring && write_file(r, &err) < 0) {
		log_error("%s", err.text);
		return RUN_STATUS_FAILED;
	}
	return r->exit_status;
}
