// SPDX-License-Identifier: Apache-2.0
#include "tools/events_internal.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"

enum { LIMIT_MAX = 1000000 };

static struct events_spec *spec_of(void *target)
{
	return target;
}

int events_set_state_dir(void *target, const char *value, struct err *err)
{
	spec_of(target)->state_dir = value;
	return value[0] ? 0 : err_set(err, -EINVAL, "a path is needed");
}

int events_set_sandbox(void *target, const char *value, struct err *err)
{
	spec_of(target)->sandbox = value;
	return 0;
}

static int set_name(void *target, const char *value, struct err *err)
{
	spec_of(target)->name = value;
	return 0;
}

static int set_address(void *target, const char *value, struct err *err)
{
	spec_of(target)->address = value;
	return 0;
}

static int set_action(void *target, const char *value, struct err *err)
{
	spec_of(target)->action = value;
	return 0;
}

static int set_since(void *target, const char *value, struct err *err)
{
	spec_of(target)->since = value;
	return 0;
}

static int set_until(void *target, const char *value, struct err *err)
{
	spec_of(target)->until = value;
	return 0;
}

static int set_by(void *target, const char *value, struct err *err)
{
	spec_of(target)->by = value;
	return 0;
}

static int set_limit(void *target, const char *value, struct err *err)
{
	uint32_t *limit = &spec_of(target)->limit;
	char shown[TEXT_ESCAPED_SIZE];

	if (text_to_u32(text_of(value), LIMIT_MAX, limit) && *limit > 0)
		return 0;
	return err_set(err, -EINVAL, "'%s' is not a number from 1 to %d",
		       text_escape(text_of(value), shown, sizeof(shown)), LIMIT_MAX);
}

static int set_follow(void *target, const char *value, struct err *err)
{
	spec_of(target)->follow = true;
	return 0;
}

static int set_collect(void *target, const char *value, struct err *err)
{
	spec_of(target)->collect = true;
	return 0;
}

int events_set_json(void *target, const char *value, struct err *err)
{
	spec_of(target)->json = true;
	return 0;
}

static const struct cli_option events_options[] = {
	{ "state-dir", "DIR", "where the store is (WEIR_STATE_DIR)",
	  events_set_state_dir },
	{ "sandbox", "ID", "of this sandbox alone", events_set_sandbox },
	{ "since", "TIME", "from then on: 90s, 2h, 3d ago, or RFC 3339 (24h)",
	  set_since },
	{ "until", "TIME", "only before then, in the same forms", set_until },
	{ "name", "NAME", "of this name alone", set_name },
	{ "address", "ADDR", "of this remote address alone", set_address },
	{ "action", "allow|deny|panic|change|limit", "of this action alone", set_action },
	{ "limit", "N", "the newest N alone", set_limit },
	{ "follow", NULL, "go on with what comes, until interrupted", set_follow },
	{ "collect", NULL,
	  "instead, what rules of `weir render` refuse from now on, without a daemon",
	  set_collect },
	{ "json", NULL, "print JSON, one event per line", events_set_json },
};
const struct cli_options cli_events_options = { events_options,
						ARRAY_SIZE(events_options) };

static const struct cli_option denies_options[] = {
	{ "state-dir", "DIR", "where the store is (WEIR_STATE_DIR)",
	  events_set_state_dir },
	{ "sandbox", "ID", "of this sandbox alone", events_set_sandbox },
	{ "since", "TIME", "from then on: 90s, 2h, 3d ago, or RFC 3339 (24h)",
	  set_since },
	{ "until", "TIME", "only before then, in the same forms", set_until },
	{ "by", "destination|address|name|sandbox|rule|process",
	  "what is counted (destination: the name, or the address)", set_by },
	{ "limit", "N", "the N most denied alone (50)", set_limit },
	{ "json", NULL, "print JSON", events_set_json },
};
const struct cli_options cli_denies_options = { denies_options,
						ARRAY_SIZE(denies_options) };

void cli_events_usage(FILE *out)
{
	fputs("usage: weir events [OPTION]...\n\n"
	      "Print what a sidecar or daemon has stored, the oldest first.\n\n",
	      out);
	cli_options_print(out, &cli_events_options);
	fputs("\nExit status: 0, 1 when the store can't be read, 2 for bad usage.\n",
	      out);
}

void cli_denies_usage(FILE *out)
{
	fputs("usage: weir denies [OPTION]...\n\n"
	      "Count what was denied, the most packets first.\n\n",
	      out);
	cli_options_print(out, &cli_denies_options);
	fputs("\nExit status: 0, 1 when the store can't be read, 2 for bad usage.\n",
	      out);
}

int cli_events_parse(int argc, char **argv, struct events_spec *ret, struct err *err)
{
	const bool denies = strcmp(argv[0], "denies") == 0;
	char shown[TEXT_ESCAPED_SIZE];
	int first;

	*ret = (struct events_spec){ 0 };
	if (strcmp(argv[0], "review") == 0)
		return review_parse(argc, argv, ret, err);
	first = cli_options_parse(denies ? &cli_denies_options : &cli_events_options, ret,
				  argc, argv, NULL, err);
	if (first >= 0 && first < argc)
		return err_set(err, -EINVAL, "%s takes no argument: '%s'", argv[0],
			       text_escape(text_of(argv[first]), shown, sizeof(shown)));
	return first < 0 ? first : 0;
}

const char *cli_state_dir(const char *given, struct arena *arena, struct err *err)
{
	const char *set = given ?: getenv("WEIR_STATE_DIR");
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	const char *path = NULL;

	if (set && set[0])
		path = arena_printf(arena, "%s", set);
	else if (geteuid() == 0)
		path = arena_printf(arena, "/var/lib/weir");
	else if (state && state[0] == '/')
		path = arena_printf(arena, "%s/weir", state);
	else if (home && home[0] == '/')
		path = arena_printf(arena, "%s/.local/state/weir", home);
	else
		err_set(err, -EINVAL, "--state-dir is needed: HOME is not set");
	return path;
}
