// SPDX-License-Identifier: Apache-2.0
#include "run/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sys/id_map.h"
#include "unit.h"

#define FILE_NAME "test-config.yaml"

static int read_text(struct run_spec *spec, const char *text, enum config_kind kind,
		     struct faults *faults)
{
	FILE *f = fopen(FILE_NAME, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
	return config_read_file(spec, FILE_NAME, kind, faults);
}

static void done(struct run_spec *spec, struct faults *faults)
{
	arena_done(&spec->arena);
	faults_done(faults);
	remove(FILE_NAME);
}

static uint64_t bit_of(const char *option)
{
	const struct cli_option *o = cli_option_find(&cli_run_options, text_of(option));

	return 1ULL << (o - cli_run_options.items);
}

TEST(defaults_fill_what_is_not_given)
{
	struct run_spec spec = { .given = bit_of("uplink") };
	struct faults faults = { 0 };

	assert_int_equal(
		read_text(&spec,
			  "profile: [default, notebook]\nuplink: none\n"
			  "rw: /srv/cache\nself_test: full\nfail_on_deny: true\n",
			  CONFIG_DEFAULTS, &faults),
		0);
	assert_int_equal(spec.policy.profiles.count, 2);
	assert_string_equal(spec.policy.profiles.items[1], "notebook");
	assert_int_equal(spec.uplink, RUN_UPLINK_RELAY);
	assert_string_equal(spec.rw.items[0], "/srv/cache");
	assert_int_equal(spec.self_test, RUN_SELF_TEST_FULL);
	assert_true(spec.fail_on_deny);
	done(&spec, &faults);
}

TEST(the_first_file_that_has_a_list_has_all_of_it)
{
	struct run_spec spec = { 0 };
	struct faults faults = { 0 };

	assert_int_equal(read_text(&spec, "profile: [a, b]\n", CONFIG_DEFAULTS, &faults),
			 0);
	assert_int_equal(read_text(&spec, "profile: [c]\n", CONFIG_DEFAULTS, &faults), 0);
	assert_int_equal(spec.policy.profiles.count, 2);
	done(&spec, &faults);
}

TEST(a_default_for_verify_leaves_policies_their_own)
{
	struct run_spec spec = { .policy.verify = POLICY_VERIFY_TLS };
	struct faults faults = { 0 };

	assert_int_equal(read_text(&spec, "verify: dns\n", CONFIG_DEFAULTS, &faults), 0);
	assert_int_equal(spec.policy.verify, POLICY_VERIFY_DNS);
	assert_false(spec.policy.has_verify);
	done(&spec, &faults);
}

TEST(paths_stand_beside_the_file_or_below_home)
{
	struct run_spec spec = { 0 };
	struct faults faults = { 0 };

	char wanted[256];

	setenv("HOME", "/home/somebody", 1);
	snprintf(wanted, sizeof(wanted), "%s/cache", home_directory());
	if (geteuid() != 0)
		assert_string_equal(wanted, "/home/somebody/cache");
	assert_int_equal(read_text(&spec, "policy: p.yaml\nrw: [~/cache, /x]\n",
				   CONFIG_DEFAULTS, &faults),
			 0);
	assert_string_equal(spec.policy.file, "./p.yaml");
	assert_string_equal(spec.rw.items[0], wanted);
	assert_string_equal(spec.rw.items[1], "/x");
	done(&spec, &faults);
}

TEST(a_narrowing_file_adds_denials)
{
	struct run_spec spec = { .given = UINT64_MAX };
	struct faults faults = { 0 };

	assert_int_equal(read_text(&spec, "deny: [a.test, '*.b.test']\nverify: tls\n",
				   CONFIG_NARROWING, &faults),
			 0);
	assert_int_equal(spec.policy.narrow.count, 2);
	assert_string_equal(spec.policy.narrow.items[1], "*.b.test");
	assert_true(spec.policy.verify_tls);
	done(&spec, &faults);
}

TEST(faults_have_their_place)
{
	static const struct {
		const char *what, *text;
		enum config_kind kind;
		uint32_t line, column;
		const char *says;
	} rows[] = {
		{ "unknown key", "uplink: none\nuplnk: none\n", CONFIG_DEFAULTS, 2, 1,
		  "'uplnk' is not one of" },
		{ "bad word", "uplink: tor\n", CONFIG_DEFAULTS, 1, 9,
		  "'tor' is not one of relay, none" },
		{ "bad item", "profile:\n  - a\n  - {b: c}\n", CONFIG_DEFAULTS, 3, 5,
		  "is not a text" },
		{ "list of a single", "uplink: [none]\n", CONFIG_DEFAULTS, 1, 9,
		  "is not a text" },
		{ "no flag", "fail_on_deny: maybe\n", CONFIG_DEFAULTS, 1, 15,
		  "is not true or false" },
		{ "no mapping", "- a\n", CONFIG_DEFAULTS, 1, 1, "not a mapping" },
		{ "allow is no default", "allow: [a.test]\n", CONFIG_DEFAULTS, 1, 1,
		  "'allow' is not one of" },
		{ "allow", "allow: [a.test]\n", CONFIG_NARROWING, 1, 1,
		  "this file can't widen" },
		{ "profile", "profile: default\n", CONFIG_NARROWING, 1, 1,
		  "this file can't widen" },
		{ "weaker verify", "verify: dns\n", CONFIG_NARROWING, 1, 9,
		  "this file can't widen" },
		{ "bad target", "deny:\n  - a..test\n", CONFIG_NARROWING, 2, 5,
		  "a..test" },
		{ "no list", "deny: a.test\n", CONFIG_NARROWING, 1, 7, "is not a list" },
		{ "a key twice", "verify: tls\nverify: tls\n", CONFIG_NARROWING, 2, 1,
		  "" },
		{ "no YAML", "deny: [", CONFIG_NARROWING, 0, 0, "" },
		{ "control character", "deny: [a\x1b]", CONFIG_NARROWING, 1, 9, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct run_spec spec = { 0 };
		struct faults faults = { 0 };

		assert_int_equal(read_text(&spec, rows[i].text, rows[i].kind, &faults),
				 -EINVAL);
		assert_true(faults.count > 0);
		if ((rows[i].line > 0 && (faults.items[0].line != rows[i].line ||
					  faults.items[0].column != rows[i].column)) ||
		    !strstr(faults.items[0].text, rows[i].says))
			fail_msg("%s: %u:%u: %s", rows[i].what, faults.items[0].line,
				 faults.items[0].column, faults.items[0].text);
		done(&spec, &faults);
	}
}

TEST(a_missing_file_is_empty_and_a_folder_is_a_fault)
{
	struct run_spec spec = { 0 };
	struct faults faults = { 0 };

	assert_int_equal(config_read_file(&spec, "no/such", CONFIG_DEFAULTS, &faults), 0);
	assert_int_equal(spec.kept_count, 0);
	assert_int_equal(config_read_file(&spec, "/", CONFIG_DEFAULTS, &faults), -EINVAL);
	assert_int_equal(faults.count, 1);
	done(&spec, &faults);
}

TEST(a_narrowing_file_is_never_a_link)
{
	struct run_spec spec = { 0 };
	struct faults faults = { 0 };

	assert_int_equal(symlink("/etc/passwd", FILE_NAME), 0);
	assert_int_equal(config_read_file(&spec, FILE_NAME, CONFIG_NARROWING, &faults),
			 -EINVAL);
	assert_non_null(strstr(faults.items[0].text, "link"));
	done(&spec, &faults);
}
