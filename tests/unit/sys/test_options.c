// SPDX-License-Identifier: Apache-2.0
#include "sys/options.h"

#include <errno.h>
#include <string.h>

#include "unit.h"

struct target {
	const char *values[8];
	size_t count;
	bool flag;
};

static int set_value(void *data, const char *value, struct err *err)
{
	struct target *t = data;

	if (strcmp(value, "bad") == 0)
		return err_set(err, -EINVAL, "is bad");
	t->values[t->count++] = value;
	return 0;
}

static int set_flag(void *data, const char *value, struct err *err)
{
	((struct target *)data)->flag = true;
	return 0;
}

static const struct cli_option items[] = {
	{ "one", "VALUE", "", set_value },
	{ "many-words", "VALUE", "", set_value, ' ' },
	{ "paths", "PATH", "", set_value, ':' },
	{ "flag", NULL, "", set_flag },
};
static const struct cli_options table = { items, ARRAY_SIZE(items) };

static const char *const variables[] = { "WEIR_ONE", "WEIR_MANY_WORDS", "WEIR_PATHS",
					 "WEIR_FLAG", "WEIR_OTHER" };

static int clear_environment(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(variables); i++)
		unsetenv(variables[i]);
	return 0;
}

TEST_WITH(given_options_are_marked, clear_environment, NULL)
{
	char *argv[] = { (char[]){ "verb" }, (char[]){ "--flag" },
			 (char[]){ "--paths=a:b" }, NULL };
	struct target t = { 0 };
	struct err err = { 0 };
	uint64_t given = 0;

	assert_int_equal(cli_options_parse(&table, &t, 3, argv, &given, &err), 3);
	assert_int_equal(given, 1 << 3 | 1 << 2);
	/* On the command line a value is one value. */
	assert_string_equal(t.values[0], "a:b");
}

TEST_WITH(a_variable_counts_where_the_option_is_not_given, clear_environment, NULL)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct target t = { 0 };
	struct err err = { 0 };
	uint64_t given = 1;

	setenv("WEIR_ONE", "ignored", 1);
	setenv("WEIR_MANY_WORDS", " a  b c:d ", 1);
	setenv("WEIR_PATHS", "/x y:/z", 1);
	setenv("WEIR_FLAG", "true", 1);
	assert_int_equal(cli_options_environment(&table, &t, &arena, &given, &err), 0);
	assert_int_equal(t.count, 5);
	assert_string_equal(t.values[0], "a");
	assert_string_equal(t.values[2], "c:d");
	assert_string_equal(t.values[3], "/x y");
	assert_true(t.flag);
	assert_int_equal(given, 15);
}

TEST_WITH(bad_variables_are_named, clear_environment, NULL)
{
	static const struct {
		const char *name, *value, *says;
	} rows[] = {
		{ "WEIR_ONE", "bad", "WEIR_ONE: is bad" },
		{ "WEIR_MANY_WORDS", "ok bad", "WEIR_MANY_WORDS: is bad" },
		{ "WEIR_FLAG", "yes", "WEIR_FLAG: 'yes' is not one of 1, 0" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEAN(arena) struct arena arena = { 0 };
		struct target t = { 0 };
		struct err err = { 0 };
		uint64_t given = 0;

		clear_environment(NULL);
		setenv(rows[i].name, rows[i].value, 1);
		assert_int_equal(
			cli_options_environment(&table, &t, &arena, &given, &err),
			-EINVAL);
		assert_non_null(strstr(err.text, rows[i].says));
	}
}

TEST_WITH(all_faults_are_told_at_once, clear_environment, NULL)
{
	CLEAN(arena) struct arena arena = { 0 };
	const char *argv[] = { "verb",	   "--one",    "bad", "-x",
			       "--flag=1", "--one=ok", "rest" };
	struct target t = { 0 };
	struct err err = { 0 };
	uint64_t given = 0;

	assert_int_equal(cli_options_parse(&table, &t, 7, (char **)argv, &given, &err),
			 -EINVAL);
	/* The others have been printed. */
	assert_string_equal(err.text, "--flag takes no value");
	setenv("WEIR_FLAG", "yes", 1);
	setenv("WEIR_PATHS", "bad", 1);
	err = (struct err){ 0 };
	given = 0;
	assert_int_equal(cli_options_environment(&table, &t, &arena, &given, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "WEIR_FLAG: 'yes' is not"));
}

TEST_WITH(empty_and_false_variables_set_nothing, clear_environment, NULL)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct target t = { 0 };
	struct err err = { 0 };
	uint64_t given = 0;

	setenv("WEIR_ONE", "", 1);
	setenv("WEIR_FLAG", "0", 1);
	assert_int_equal(cli_options_environment(&table, &t, &arena, &given, &err), 0);
	assert_int_equal(t.count, 0);
	assert_false(t.flag);
}

TEST_WITH(a_variable_of_no_option_is_found, clear_environment, NULL)
{
	assert_null(cli_options_stray_variable(&table));
	setenv("WEIR_OTHER", "1", 1);
	assert_int_equal(strncmp(cli_options_stray_variable(&table), "WEIR_OTHER=", 11),
			 0);
}
