// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_names.h"

#include <ctype.h>
#include <stdio.h>

#include "base/macros.h"
#include "unit.h"

/* The first @len characters of @name below /project, an asterisk of it something. */
static struct text make_path(char *buf, size_t size, const char *name, size_t len)
{
	size_t n = (size_t)snprintf(buf, size, "/project/");

	for (size_t i = 0; i < len; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s",
				      name[i] == '*' ? "some.Thing"
						     : (char[]){ name[i], '\0' });
	return (struct text){ buf, n };
}

/* Cut @path into its directory and its name. */
static struct text directory_of(struct text path, const char **name)
{
	const char *slash = strrchr(path.ptr, '/');

	*name = slash + 1;
	return (struct text){ path.ptr, (size_t)(slash - path.ptr) };
}

static void test_each_name_of_the_table_is_found_in_any_case(void **state)
{
	for (const struct startup_row *row = startup_project; row->why; row++)
		for (const char *const *n = row->names; *n; n++) {
			char buf[256];
			struct text path = make_path(buf, sizeof(buf), *n, strlen(*n));
			const char *name;
			struct text directory = directory_of(path, &name);

			assert_string_equal(startup_why(startup_project, directory, name),
					    row->why);
			for (char *c = buf; *c; c++)
				*c = (char)toupper((unsigned char)*c);
			assert_string_equal(startup_why(startup_project, directory, name),
					    row->why);
		}
}

static void test_a_directory_on_the_way_leads_to_the_name(void **state)
{
	for (const struct startup_row *row = startup_project; row->why; row++)
		for (const char *const *n = row->names; *n; n++)
			for (const char *at = strchr(*n, '/'); at;
			     at = strchr(at + 1, '/')) {
				const size_t len = (size_t)(at - *n);
				bool is_outermost = !memchr(*n, '/', len);
				char buf[256];
				struct text path = make_path(buf, sizeof(buf), *n, len);
				const char *name;
				struct text directory = directory_of(path, &name);

				assert_non_null(
					startup_why_leading(directory, name, true));
				assert_int_equal(
					!startup_why_leading(directory, name, false),
					is_outermost);
				assert_string_equal(
					startup_rest_below(*n, directory, name), at + 1);
			}
}

static void test_what_is_near_a_name_is_none(void **state)
{
	static const char *const near[] = {
		".gi",	  ".git2", "git",    "bashrc",
		".ideas", "mise",  "config", "x.code-workspaces",
		"*",	  "hooks", "m.c",    ""
	};

	for (size_t i = 0; i < ARRAY_SIZE(near); i++)
		assert_null(startup_why(startup_project, text_of("/project"), near[i]));
	/* The directory is another one, or its name only ends so. */
	assert_null(
		startup_why(startup_project, text_of("/project/repo"), "config.toml"));
	assert_null(startup_why(startup_project, text_of("/project/x.jj/repo"),
				"config.toml"));
	assert_null(startup_why(startup_project, text_of("repo"), "config.toml"));
	assert_null(startup_why_leading(text_of("/project"), "repo", true));
	assert_null(startup_rest_below(".bashrc", text_of("/project"), ".bashrc"));
}

static void test_a_name_may_begin_where_the_path_does(void **state)
{
	assert_non_null(startup_why(startup_project, text_of(".jj/repo"), "config.toml"));
	assert_non_null(startup_why_leading(text_of(".jj"), "repo", false));
}

static void test_the_other_tables(void **state)
{
	assert_non_null(startup_why(startup_git, text_of(""), "HOOKS"));
	assert_null(startup_why(startup_git, text_of(""), "hook"));
	assert_non_null(startup_why(startup_weir, text_of("/bin"), "weir-control"));
	assert_null(startup_why(startup_weir, text_of("/bin"), "weir-contro"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_name_of_the_table_is_found_in_any_case),
		cmocka_unit_test(test_a_directory_on_the_way_leads_to_the_name),
		cmocka_unit_test(test_what_is_near_a_name_is_none),
		cmocka_unit_test(test_a_name_may_begin_where_the_path_does),
		cmocka_unit_test(test_the_other_tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
