// SPDX-License-Identifier: Apache-2.0
#include "run/options.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

enum { ARGS_MAX = 12 };

static int parse(const char *const *words, struct run_spec *ret, struct err *err)
{
	static char copies[ARGS_MAX][64];
	static char *argv[ARGS_MAX + 1];
	int argc = 0;

	for (; words[argc]; argc++) {
		assert_true(argc < ARGS_MAX && strlen(words[argc]) < sizeof(copies[0]));
		memcpy(copies[argc], words[argc], strlen(words[argc]) + 1);
		argv[argc] = copies[argc];
	}
	argv[argc] = NULL;
	return cli_run_parse(&cli_run_options, argc, argv, ret, err);
}

TEST(options_end_where_the_command_begins)
{
	static const struct {
		const char *what;
		const char *words[ARGS_MAX];
		const char *command;
	} rows[] = {
		{ "two dashes", { "run", "--", "ls" }, "ls" },
		{ "a word", { "run", "ls", "--quiet" }, "ls" },
		{ "behind a value", { "run", "--allow", "a.test", "ls" }, "ls" },
		{ "a command of dashes", { "run", "--", "--quiet" }, "--quiet" },
		{ "the first two dashes only", { "run", "--", "--", "x" }, "--" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { 0 };
		struct run_spec spec;

		assert_int_equal(parse(rows[i].words, &spec, &err), 0);
		assert_string_equal(spec.argv[0], rows[i].command);
		assert_false(spec.quiet);
	}
}

TEST(values_are_kept_in_order)
{
	static const char *const words[] = { "run",	"--allow=a.test",
					     "--allow", "b.test:443",
					     "--deny",	"c.test",
					     "--",	"ls",
					     NULL };
	struct err err = { 0 };
	struct run_spec spec;

	assert_int_equal(parse(words, &spec, &err), 0);
	assert_int_equal(spec.policy.allow.count, 2);
	assert_string_equal(spec.policy.allow.items[0], "a.test");
	assert_string_equal(spec.policy.allow.items[1], "b.test:443");
	assert_string_equal(spec.policy.deny.items[0], "c.test");
	assert_int_equal(spec.uplink, RUN_UPLINK_RELAY);
	assert_int_equal(spec.self_test, RUN_SELF_TEST_DENY);
}

TEST(bad_words_are_named)
{
	static const struct {
		const char *what;
		const char *words[ARGS_MAX];
		const char *text;
	} rows[] = {
		{ "no command", { "run" }, "no command" },
		{ "no command behind the dashes", { "run", "--" }, "no command" },
		{ "unknown", { "run", "--alow", "x", "--", "ls" }, "'--alow'" },
		{ "no abbreviation", { "run", "--all", "x", "ls" }, "'--all'" },
		{ "single dash", { "run", "-q", "ls" }, "'-q'" },
		{ "value missing", { "run", "--allow" }, "--allow needs a value" },
		{ "value not wanted", { "run", "--quiet=1", "ls" }, "takes no value" },
		{ "uplink", { "run", "--uplink", "tor", "ls" }, "'tor' is not one of" },
		{ "self-test",
		  { "run", "--self-test=none", "ls" },
		  "'none' is not one of" },
		{ "upstream name",
		  { "run", "--upstream", "dns.google", "ls" },
		  "'dns.google'" },
		{ "upstream zero",
		  { "run", "--upstream", "0.0.0.0", "ls" },
		  "'0.0.0.0'" },
		{ "upstream port",
		  { "run", "--upstream", "1.1.1.1:0", "ls" },
		  "'1.1.1.1:0'" },
		{ "two policies",
		  { "run", "--policy", "a", "--policy", "b", "ls" },
		  "twice" },
		{ "escaped", { "run", "--\x1b[1m", "ls" }, "\\x1b" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { 0 };
		struct run_spec spec;

		assert_int_equal(parse(rows[i].words, &spec, &err), -EINVAL);
		if (!strstr(err.text, rows[i].text))
			fail_msg("%s: '%s' is not in '%s'", rows[i].what, rows[i].text,
				 err.text);
	}
}
