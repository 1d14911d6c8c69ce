// SPDX-License-Identifier: Apache-2.0
/* `allow-list`: files with a target a line. */
#include "read_world.h"

TEST(every_line_is_a_rule_at_its_place)
{
	static const struct file files[] = {
		{ "hosts.txt", "# what the build needs\n"
			       "\n"
			       "pkg.test\r\n"
			       "  *.cdn.test   # mirrors\n"
			       "\t10.0.0.0/8\n"
			       "#bad..name\n"
			       "last.test" },
	};
	static const struct {
		const char *target;
		enum rule_target kind;
		uint32_t line, column;
	} want[] = {
		{ "own.test", TARGET_NAME, 2, 10 },
		{ "pkg.test", TARGET_NAME, 3, 1 },
		{ "*.cdn.test", TARGET_BELOW, 4, 3 },
		{ "10.0.0.0/8", TARGET_PREFIX, 5, 2 },
		{ "last.test", TARGET_NAME, 7, 1 },
	};
	struct world w = { .files = files, .file_count = ARRAY_SIZE(files) };

	world_read(&w, "p.yaml",
		   "allow-list: hosts.txt\n"
		   "egress: [{action: deny, target: own.test}]\n");
	expect_good(&w);
	assert_int_equal(w.policy.count, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		const struct rule *r = &w.policy.rules[i];

		assert_string_equal(r->target, want[i].target);
		assert_int_equal(r->kind, want[i].kind);
		assert_int_equal(r->line, want[i].line);
		assert_int_equal(r->column, want[i].column);
		assert_int_equal(r->action, i == 0 ? POLICY_DENY : POLICY_ALLOW);
		assert_string_equal(r->file, i == 0 ? "p.yaml" : "hosts.txt");
	}
	assert_int_equal(w.policy.source_count, 2);
	world_done(&w);
}

TEST(own_rules_come_first_then_lists_then_extends)
{
	static const struct file files[] = {
		{ "a.txt", "a.test\n" },
		{ "b.txt", "b.test\n" },
		{ "base", "allow-list: [b.txt]\n"
			  "egress: [{action: allow, target: base.test}]\n" },
	};
	static const char *const want[] = { "own.test", "b.test", "a.test", "base.test",
					    "b.test" };
	struct world w = { .files = files, .file_count = ARRAY_SIZE(files) };

	world_read(&w, "p.yaml",
		   "extends: [base]\nallow-list: [b.txt, ./a.txt]\n"
		   "egress: [{action: allow, target: own.test}]\n");
	assert_int_equal(w.result, -EINVAL); /* ./a.txt is not in the table */
	world_done(&w);
	w = (struct world){ .files = files, .file_count = ARRAY_SIZE(files) };
	world_read(&w, "p.yaml",
		   "extends: [base]\nallow-list: [b.txt, a.txt]\n"
		   "egress: [{action: allow, target: own.test}]\n");
	expect_good(&w);
	assert_int_equal(w.policy.count, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		assert_string_equal(w.policy.rules[i].target, want[i]);
	world_done(&w);
}

/* A document, the text of list.txt, and a part of what is said. */
static const struct {
	const char *what, *document, *list, *want;
} faulty[] = {
	{ "a bad name", "allow-list: list.txt\n", "good.test\n a..b # x\n",
	  "list.txt:2:2: 'a..b' is not a domain name" },
	{ "every fault of a list", "allow-list: list.txt\n",
	  "a..b\nok.test\n10.0.0.1/8\n", "list.txt:3:1: '10.0.0.1/8' is not a prefix" },
	{ "ports don't stand in a list", "allow-list: list.txt\n", "a.test:443\n",
	  "list.txt:1:1: 'a.test:443' is not" },
	{ "two targets a line", "allow-list: list.txt\n", "a.test b.test\n",
	  "it holds a blank" },
	{ "an escape byte", "allow-list: list.txt\n", "a.test\n\x1b[1m\n",
	  "list.txt:2:1: byte 0x1b is a control character" },
	{ "bad UTF-8 in a comment", "allow-list: list.txt\n", "# \xff\n",
	  "list.txt:1:3: byte 0xff is not UTF-8" },
	{ "a whole suffix", "allow-list: list.txt\n", "*.com\n", "'*.com' is not" },
	{ "a list that isn't there", "allow-list: [list.txt, other.txt]\n", "a.test\n",
	  "p.yaml:1:24: allow-list[1]: 'other.txt' can't be read: there is no such "
	  "file" },
	{ "a word that names no file", "allow-list: default\n", "",
	  "p.yaml:1:13: allow-list: 'default' is not the name of a file" },
	{ "a number", "allow-list: [5]\n", "", "allow-list[0]: '5' is not the name" },
	{ "a list in a list", "allow-list: [[list.txt]]\n", "",
	  "allow-list[0]: a list stands here" },
	{ "nothing", "allow-list:\n", "", "allow-list: nothing stands here" },
	{ "a fault of the document and one of its list",
	  "verify: maybe\nallow-list: list.txt\n", "a..b\n", "list.txt:1:1: 'a..b'" },
	{ "a fault of a list below extends", "extends: [base]\n", "a..b\n",
	  "list.txt:1:1: 'a..b'" },
};

TEST(a_fault_in_a_list_refuses_the_policy)
{
	for (size_t i = 0; i < ARRAY_SIZE(faulty); i++) {
		const struct file files[] = {
			{ "list.txt", faulty[i].list },
			{ "base", "allow-list: list.txt\n" },
		};
		struct world w = { .files = files, .file_count = ARRAY_SIZE(files) };

		world_read(&w, "p.yaml", faulty[i].document);
		if (w.result != -EINVAL || w.faults.errors == 0)
			fail_msg("%s: taken", faulty[i].what);
		if (!strstr(faults_text(&w), faulty[i].want))
			fail_msg("%s: %s", faulty[i].what, faults_text(&w));
		world_done(&w);
	}
}

TEST(a_list_without_targets_allows_nothing)
{
	static const char *const texts[] = { "", "\n\n", "# nothing\n", " \t\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const struct file files[] = { { "list.txt", texts[i] } };
		struct world w = { .files = files, .file_count = 1 };

		world_read(&w, "p.yaml", "allow-list: list.txt\n");
		expect_good(&w);
		assert_int_equal(w.policy.count, 0);
		world_done(&w);
	}
}

/* What comes over a network names no file of this machine. */
TEST(without_files_both_ways_to_name_one_are_refused)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{ "allow-list: list.txt\n",
		  "p.yaml:1:13: allow-list[0]: 'list.txt' can't be read: not here" },
		{ "extends: [default]\n",
		  "p.yaml:1:11: extends[0]: 'default' can't be extended here" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { 0 };
		const struct policy_reader r = { .arena = &w.arena, .faults = &w.faults };

		assert_int_equal(policy_read(&r, "p.yaml", text_of(rows[i].text),
					     POLICY_FORMAT_GUESS, &w.policy),
				 -EINVAL);
		if (!strstr(faults_text(&w), rows[i].want))
			fail_msg("%s", faults_text(&w));
		world_done(&w);
	}
}

static int load_no_memory(void *data, const char *name, const char *from,
			  struct text *ret_text, const char **ret_path, struct err *err)
{
	return -ENOMEM;
}

TEST(memory_that_is_out_is_no_fault_of_the_policy)
{
	static const char *const texts[] = { "allow-list: list.txt\n",
					     "extends: [default]\n" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct world w = { 0 };
		const struct policy_reader r = { &w.arena, &w.faults, load_no_memory,
						 NULL };

		assert_int_equal(policy_read(&r, "p.yaml", text_of(texts[i]),
					     POLICY_FORMAT_GUESS, &w.policy),
				 -ENOMEM);
		assert_int_equal(w.faults.count, 0);
		world_done(&w);
	}
}

TEST(a_file_over_the_maximum_is_refused_unread)
{
	struct world w = { 0 };
	struct policy_reader r = reader(&w);
	const struct text text = { "", (size_t)POLICY_TEXT_MAX + 1 };

	assert_int_equal(policy_read(&r, "p.yaml", text, POLICY_FORMAT_GUESS, &w.policy),
			 -EINVAL);
	assert_string_equal(faults_text(&w),
			    "p.yaml: the file is too large: 16777216 bytes at most\n");
	world_done(&w);
}
