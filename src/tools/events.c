// SPDX-License-Identifier: Apache-2.0
#include "tools/events.h"

#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "policy/load.h"

enum { LIMIT_MAX = 1000000 };

#define IN(KIND, field) OPTION_IN(KIND, struct events_spec, field)

/* clang-format off */
#define STORE_ROWS \
	{ "state-dir", "DIR", "where the store is (WEIR_STATE_DIR)", IN(TEXT, state_dir) }, \
	{ "sandbox", "ID", "of this sandbox alone", IN(TEXT, sandbox) }
#define TIME_ROWS \
	{ "since", "TIME", "from then on: 90s, 2h, 3d ago, or RFC 3339 (24h)", IN(TEXT, since) }, \
	{ "until", "TIME", "only before then, in the same forms", IN(TEXT, until) }
/* clang-format on */

static const struct cli_option events_options[] = {
	STORE_ROWS,
	TIME_ROWS,
	{ "name", "NAME", "of this name alone", IN(TEXT, name) },
	{ "address", "ADDR", "of this remote address alone", IN(TEXT, address) },
	{ "action", "allow|deny|panic|change|limit|fail|ask", "of this action alone",
	  IN(TEXT, action) },
	{ "limit", "N", "the newest N alone", IN(NUMBER, limit), .least = 1,
	  .most = LIMIT_MAX },
	{ "follow", NULL, "go on with what comes, until interrupted", IN(FLAG, follow) },
	{ "collect", NULL,
	  "instead, what rules of `weir render` refuse from now on, without a daemon",
	  IN(FLAG, collect) },
	{ "format", "text|json|ocsf",
	  "for people, as JSON, or as OCSF 1.3 (classes 4001 and 4003), an event a line",
	  IN(WORD_TEXT, format) },
	{ "json", NULL, "the same as --format json", IN(FLAG, json) },
};
const struct cli_options cli_events_options = {
	OPTION_ROWS(events_options),
	.usage =
		"usage: weir events [OPTION]...\n\n"
		"Print what a run, a sidecar or a daemon has stored, the oldest first.\n",
	.notes = "Exit status: 0; 2 bad input; 125 the store can't be read.\n",
};

static const struct cli_option denies_options[] = {
	STORE_ROWS,
	TIME_ROWS,
	{ "by", "destination|address|name|sandbox|rule|process",
	  "what is counted (destination: the name, or the address)", IN(TEXT, by) },
	{ "limit", "N", "the N most denied alone (50)", IN(NUMBER, limit), .least = 1,
	  .most = LIMIT_MAX },
	{ "json", NULL, "print JSON", IN(FLAG, json) },
};
const struct cli_options cli_denies_options = {
	OPTION_ROWS(denies_options),
	.usage = "usage: weir denies [OPTION]...\n\n"
		 "Count what was denied, the most packets first.\n",
	.notes = "Exit status: 0; 2 bad input; 125 the store can't be read.\n",
};

/* --- weir learn --from --- */

/* Its help is that of `weir learn` (run/options.c). */
static const struct cli_option learn_from_options[] = {
	{ "from", "STORE", "", IN(TEXT_ONCE, from) },
	{ "sandbox", "ID", "", IN(TEXT, sandbox) },
	{ "since", "TIME", "", IN(TEXT, since) },
	{ "diff", "FILE", "", IN(TEXT_ONCE, diff) },
};
static const struct cli_options learn_from = { OPTION_ROWS(learn_from_options) };

bool cli_learn_is_from(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--from") == 0 ||
		    strncmp(argv[i], "--from=", strlen("--from=")) == 0)
			return true;
	return false;
}

/* --- weir review --- */

static const struct cli_option review_options[] = {
	STORE_ROWS,
	{ "state", "open|accepted|dismissed|all", "which are listed (open)",
	  IN(WORD_TEXT, state) },
	{ "policy", "FILE", "the policy that an accepted rule is added to",
	  IN(TEXT, policy) },
	{ "live", NULL, "have it decided in the run or the daemon's sandbox itself",
	  IN(FLAG, live) },
	POLICY_FOR_ROW(struct events_spec, for_ms,
		       "accept: the rule ends that long from now: 10m, 1h"),
	{ "socket", "PATH", "where the daemon is asked (/run/weir/weir.sock)",
	  IN(TEXT, socket) },
	{ "who", "NAME", "who decides (the user)", IN(TEXT, who) },
	{ "yes", NULL, "don't ask before the policy is changed", IN(FLAG, yes) },
	{ "json", NULL, "print JSON", IN(FLAG, json) },
};
const struct cli_options cli_review_options = {
	OPTION_ROWS(review_options),
	.usage = "usage: weir review [" CLI_REVIEW_WORDS "] [OPTION]... [ID]\n\n"
		 "Decide what was denied and a rule could allow.\n",
	.notes = "Exit status: 0; 1 the change wasn't wanted; 2 bad input; 125 it "
		 "failed.\n",
};

/* "list", which no word is as well, or another word and a task's number. */
static int read_words(struct events_spec *spec, int count, char **given, struct err *err)
{
	spec->word = count > 0 ? given[0] : "list";
	if (cli_option_word(CLI_REVIEW_WORDS, spec->word, err) < 0)
		return err_context(err, "review");
	if (strcmp(spec->word, "list") == 0)
		return count <= 1 ? 0
				  : err_set(err, -EINVAL, "review list takes no task");
	if (count != 2)
		return err_set(err, -EINVAL, "review %s takes the number of one task",
			       spec->word);
	if (text_to_u32(text_of(given[1]), INT32_MAX, &spec->id) && spec->id > 0)
		return 0;
	return err_set(err, -EINVAL, "'%s' is not the number of a task", SHOWN(given[1]));
}

/* Words and options may stand in any order. */
static int review_parse(int argc, char **argv, struct events_spec *ret, struct err *err)
{
	char *words[2];
	int count = 0;
	bool accepts;

	while (argc > 1) {
		int first = cli_options_parse(&cli_review_options, ret, argc, argv, NULL,
					      err);

		if (first < 0)
			return first;
		argv += first;
		argc -= first;
		if (argc <= 0)
			break;
		if (count == ARRAY_SIZE(words))
			return err_set(err, -EINVAL, "review takes a word and a task");
		words[count++] = argv[0];
	}
	if (ret->live && ret->policy)
		return err_set(err, -EINVAL,
			       "--live and --policy are two ways: use one of them");
	if (read_words(ret, count, words, err) < 0)
		return -EINVAL;
	/* What would be passed over in silence is a mistake. */
	accepts = strcmp(ret->word, "accept") == 0;
	if (ret->policy && !accepts)
		return err_set(err, -EINVAL, "--policy goes with accept alone");
	if (ret->live && !accepts && strcmp(ret->word, "dismiss") != 0)
		return err_set(err, -EINVAL, "--live goes with accept and dismiss");
	if (ret->for_ms > 0 && !accepts)
		return err_set(err, -EINVAL, "--for goes with accept alone");
	if (ret->state && strcmp(ret->word, "list") != 0)
		return err_set(err, -EINVAL, "--state goes with list alone");
	return 0;
}

int cli_events_parse(int argc, char **argv, struct events_spec *ret, struct err *err)
{
	const bool denies = strcmp(argv[0], "denies") == 0;

	*ret = (struct events_spec){ 0 };
	if (strcmp(argv[0], "review") == 0)
		return review_parse(argc, argv, ret, err);
	if (strcmp(argv[0], "learn") == 0)
		return cli_options_only(&learn_from, ret, argc, argv, NULL, err);
	return cli_options_only(denies ? &cli_denies_options : &cli_events_options, ret,
				argc, argv, NULL, err);
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
