// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "api/request.h"
#include "base/clock.h"
#include "base/log.h"
#include "dns/name.h"
#include "supervisor/program.h"
#include "sys/settings.h"
#include "sys/term.h"
#include "tools/events_show.h"

#define DAY_MS INT64_C(86400000)

static int is_not(struct err *err, const char *option, const char *value,
		  const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	return err_set(err, -EINVAL, "--%s: '%s' is not %s", option,
		       show_text(value, shown), what);
}

/* ---- what the options mean ---- */

static int read_times(struct show *s, struct err *err)
{
	const char *what = "a time: write 90s, 2h, 3d or 2026-11-20T10:06:43Z";
	const int64_t now_ms = clock_wall_ms();

	s->query.since_ms = now_ms - DAY_MS;
	if (s->spec.since &&
	    !request_time(text_of(s->spec.since), now_ms, &s->query.since_ms))
		return is_not(err, "since", s->spec.since, what);
	if (s->spec.until &&
	    !request_time(text_of(s->spec.until), now_ms, &s->query.until_ms))
		return is_not(err, "until", s->spec.until, what);
	if (s->spec.until && s->spec.follow)
		return err_set(err, -EINVAL, "--follow has no end, and --until is one");
	return 0;
}

static int read_name(struct show *s, struct err *err)
{
	static char name[DNS_NAME_TEXT_SIZE];
	struct dns_name n;
	size_t len;

	if (dns_name_parse(text_of(s->spec.name), &n) < 0)
		return is_not(err, "name", s->spec.name, "a name");
	dns_name_format(&n, name);
	len = strlen(name);
	if (len > 1 && name[len - 1] == '.')
		name[len - 1] = '\0'; /* as events have it */
	s->query.name = name;
	return 0;
}

static int read_action(struct show *s, struct err *err)
{
	for (int a = EVENT_ALLOW; a < EVENT_ACTION_COUNT; a++) {
		if (strcmp(s->spec.action, event_action_name((enum event_action)a)) != 0)
			continue;
		s->query.action = (enum event_action)a;
		return 0;
	}
	return is_not(err, "action", s->spec.action,
		      "one of allow, deny, panic, change, limit");
}

/* The kernel's log knows no names and no past. */
static int check_collect(const struct events_spec *spec, struct err *err)
{
	const struct {
		const char *option;
		bool given;
	} all[] = { { "state-dir", spec->state_dir }, { "since", spec->since },
		    { "until", spec->until },	      { "name", spec->name },
		    { "action", spec->action },	      { "follow", spec->follow } };

	for (size_t i = 0; i < ARRAY_SIZE(all) && spec->collect; i++)
		if (all[i].given)
			return err_set(err, -EINVAL, "--%s: not with --collect",
				       all[i].option);
	return 0;
}

static int read_options(struct show *s, struct err *err)
{
	const struct events_spec *spec = &s->spec;
	int r = check_collect(spec, err);

	if (r == 0)
		r = read_times(s, err);

	s->query.sandbox = spec->sandbox;
	s->by = SQLITE_BY_DESTINATION;
	if (r == 0 && spec->name)
		r = read_name(s, err);
	if (r == 0 && spec->action)
		r = read_action(s, err);
	if (r == 0 && spec->address &&
	    !addr_parse(spec->address, strlen(spec->address), &s->query.remote))
		r = is_not(err, "address", spec->address, "an address");
	if (r == 0 && spec->by && !sqlite_by_parse(spec->by, &s->by))
		r = is_not(err, "by", spec->by,
			   "one of destination, address, name, sandbox, rule, process");
	if (r < 0 || spec->collect)
		return r;
	s->directory = cli_state_dir(spec->state_dir, &s->arena, err);
	return s->directory ? 0 : -EINVAL;
}

/* ---- what both verbs use ---- */

int show_open(const struct show *s, struct sqlite_reader **ret)
{
	struct err err = { 0 };
	char shown[TEXT_ESCAPED_SIZE];
	int r = sqlite_reader_open(s->directory, SHOW_TIMEOUT_MS, ret, &err);

	if (r < 0) {
		err_context(&err, "%s", show_text(s->directory, shown));
		log_error("%s", err.text);
	}
	return r;
}

int show_failed(const struct err *err)
{
	log_error("%s", err->text);
	return SHOW_FAILED;
}

const char *show_text(const char *text, char *buf)
{
	return text_escape(text_of(text), buf, TEXT_ESCAPED_SIZE);
}

static const struct {
	const char *name;
	int (*main)(struct show *s);
} verbs[] = { { "events", show_events },
	      { "denies", show_denies },
	      { "review", show_review } };

static int run(struct show *s, int argc, char **argv)
{
	struct err err = { 0 };
	size_t i = 0;
	int status;

	while (i < ARRAY_SIZE(verbs) && (argc < 1 || strcmp(argv[0], verbs[i].name) != 0))
		i++;
	if (i == ARRAY_SIZE(verbs)) {
		log_error("`weir events`, `denies` and `review` start this program");
		return SHOW_BAD_INPUT;
	}
	if (cli_events_parse(argc, argv, &s->spec, &err) < 0 ||
	    read_options(s, &err) < 0) {
		log_error("%s", err.text);
		return SHOW_BAD_INPUT;
	}
	status = verbs[i].main(s);
	if (fflush(stdout) != 0 && status == SHOW_OK) {
		log_error("cannot write the output");
		status = SHOW_FAILED;
	}
	return status;
}

/* What other processes of Weir's start this program for: it alone has the store's library
 * and may write to it. */
static const struct {
	const char *name;
	int (*main)(int argc, char **argv);
} services[] = { { "store", events_store }, { "review-command", review_command } };

int main(int argc, char **argv)
{
	struct show s = { .colour = term_has_colour(stdout),
			  .wrap = isatty(STDOUT_FILENO) == 1,
			  .width = term_width(stdout) };
	int status;

	if (settings_take(&argc, &argv) < 0)
		return SHOW_FAILED;
	for (size_t i = 0; i < ARRAY_SIZE(services); i++)
		if (argc > 1 && strcmp(argv[1], services[i].name) == 0)
			return services[i].main(argc - 1, argv + 1);
	prctl(PR_SET_NAME, PROGRAM_EVENTS);
	status = run(&s, argc - 1, argv + 1);
	arena_done(&s.arena);
	return status;
}
