// SPDX-License-Identifier: Apache-2.0
/* Rules that are added to a policy's text: many at once are as one after the other. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/edit.h"
#include "unit.h"

enum { RULES_MAX = 8 };

#define RULE(target)                                                                     \
	"{\"action\":\"allow\",\"target\":\"" target "\",\"ports\":[\"tcp/443\"]}"
#define LINE(target) "  - {action: allow, target: \"" target "\", ports: [tcp/443]}\n"

static const struct {
	const char *what, *path, *text, *rules[RULES_MAX], *want;
	size_t added;
	int r;
} cases[] = {
	{ "among those that are there, with their comments",
	  "p.yaml",
	  "egress:\n  # the middle\n" LINE("m.test") "  # the last\n" LINE("x.test"),
	  { RULE("z.test"), RULE("a.test"), RULE("n.test"), RULE("b.test") },
	  "egress:\n" LINE("a.test") LINE("b.test") "  # the middle\n" LINE("m.test")
		  LINE("n.test") "  # the last\n" LINE("x.test") LINE("z.test"),
	  4,
	  0 },
	{ "what is there isn't added again",
	  "p.yaml",
	  "egress:\n" LINE("m.test"),
	  { RULE("m.test"), RULE("a.test") },
	  "egress:\n" LINE("a.test") LINE("m.test"),
	  1,
	  0 },
	{ "all are there",
	  "p.yaml",
	  "egress:\n" LINE("m.test"),
	  { RULE("m.test") },
	  "egress:\n" LINE("m.test"),
	  0,
	  0 },
	{ "before the wildcard that would decide",
	  "p.yaml",
	  "egress:\n  - {action: allow, target: \"*.x.test\", ports: [80]}\n",
	  { RULE("a.x.test"), RULE("b.test") },
	  "egress:\n" LINE("a.x.test") "  - {action: allow, target: \"*.x.test\", ports: "
				       "[80]}\n" LINE("b.test"),
	  2,
	  0 },
	{ "into brackets",
	  "p.yaml",
	  "egress: []\n",
	  { RULE("b.test"), RULE("a.test") },
	  "egress: [{action: allow, target: \"a.test\", ports: [tcp/443]}, {action: "
	  "allow, target: \"b.test\", ports: [tcp/443]}]\n",
	  2,
	  0 },
	{ "JSON, in the order of the call",
	  "p.json",
	  "{\"defaultAction\":\"deny\"}",
	  { RULE("b.test"), RULE("a.test") },
	  "{\"egress\": [" RULE("b.test") ", " RULE(
		  "a.test") "], "
			    "\"defaultAction\":\"deny\"}",
	  2,
	  0 },
	{ "a policy without rules",
	  "p.yaml",
	  "# mine\nverify: tls",
	  { RULE("b.test"), RULE("a.test") },
	  "# mine\nverify: tls\negress:\n" LINE("a.test") LINE("b.test"),
	  2,
	  0 },
	{ "a comment with a letter over U+FFFF",
	  "p.yaml",
	  "egress: []\n",
	  { "{\"action\":\"allow\",\"target\":\"a.test\",\"comment\":\"\\\"\\\\ "
	    "\xf0\x9f\x98\x80\"}" },
	  "egress: [{action: allow, target: \"a.test\", comment: \"\\\"\\\\ "
	  "\xf0\x9f\x98\x80\"}]\n",
	  1,
	  0 },
	{ "a deny counts all the same",
	  "p.yaml",
	  "egress:\n  - {action: deny, target: 10.0.0.0/8}\n",
	  { RULE("b.test"), RULE("10.1.2.3") },
	  NULL,
	  0,
	  -EINVAL },
	{ "a budget that would not count",
	  "p.yaml",
	  "egress:\n  - {action: allow, target: b.test, ports: [80], budget: {sent: "
	  "1M}}\n",
	  { RULE("a.test"), RULE("b.test") },
	  NULL,
	  0,
	  -EINVAL },
	{ "what is open for a time would be closed",
	  "p.yaml",
	  "egress:\n  - {action: allow, target: b.test, ports: [80], until: "
	  "\"2199-01-01T00:00:00Z\"}\n",
	  { RULE("b.test") },
	  NULL,
	  0,
	  -EINVAL },
	{ "what was open for a time",
	  "p.yaml",
	  "egress:\n  - {action: allow, target: b.test, ports: [80], until: "
	  "\"2000-01-01T00:00:00Z\"}\n",
	  { RULE("b.test") },
	  "egress:\n" LINE("b.test") "  - {action: allow, target: b.test, ports: [80], "
				     "until: \"2000-01-01T00:00:00Z\"}\n",
	  1,
	  0 },
	{ "no place",
	  "p.yaml",
	  "egress: &a\n" LINE("m.test"),
	  { RULE("a.test") },
	  NULL,
	  0,
	  -EINVAL },
	{ "no policy", "p.yaml", "egress: 7\n", { RULE("a.test") }, NULL, 0, -EINVAL },
};

TEST(rules_stand_where_they_belong)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct arena arena = { 0 };
		struct policy_edited e;
		struct err err = { 0 };
		size_t count = 0;
		int r;

		while (count < RULES_MAX && cases[i].rules[count])
			count++;
		r = policy_edit(cases[i].path, text_of(cases[i].text), cases[i].rules,
				count, true, &arena, &e, &err);
		if (r != cases[i].r)
			fail_msg("%s: %d, %s", cases[i].what, r, err.text);
		if (r == 0 &&
		    (e.count != cases[i].added || !text_equal(e.text, cases[i].want)))
			fail_msg("%s: %zu, %.*s", cases[i].what, e.count, (int)e.text.len,
				 e.text.ptr);
		arena_done(&arena);
	}
}

/* However long the edit takes, `for` in the file is the same end before and after. */
TEST(a_rule_for_a_time_stays_as_it_is)
{
	static const char text[] =
		"egress:\n  - {action: allow, target: m.test, ports: [80], for: 10m}\n";
	const char *rule = RULE("a.test");

	for (size_t i = 0; i < 500; i++) {
		struct arena arena = { 0 };
		struct policy_edited e;
		struct err err = { 0 };

		if (policy_edit("p.yaml", text_of(text), &rule, 1, true, &arena, &e,
				&err) < 0)
			fail_msg("edit %zu: %s", i, err.text);
		arena_done(&arena);
	}
}

/* As many as a run remembers, in any order, one half of them there already. */
TEST(thousands_at_once_are_as_one_by_one)
{
	enum { FEW = 40, MANY = 8192 };
	const char *rules[MANY];
	struct arena arena = { 0 };
	struct policy_edited once, by_one, all;
	struct err err = { 0 };
	struct text text = text_of("egress:\n" LINE("n4000.test"));

	for (size_t i = 0; i < MANY; i++) {
		rules[i] = arena_printf(&arena, RULE("n%04zu.test"), i * 4999 % MANY);
		assert_non_null(rules[i]);
	}
	assert_int_equal(
		policy_edit("p.yaml", text, rules, FEW, true, &arena, &once, &err), 0);
	for (size_t i = 0; i < FEW; i++) {
		assert_int_equal(policy_edit("p.yaml", text, &rules[i], 1, true, &arena,
					     &by_one, &err),
				 0);
		text = by_one.text;
	}
	assert_int_equal(once.text.len, text.len);
	assert_memory_equal(once.text.ptr, text.ptr, text.len);
	assert_int_equal(
		policy_edit("p.yaml", once.text, rules, MANY, true, &arena, &all, &err),
		0);
	assert_int_equal(all.count, MANY - once.count - 1);
	arena_done(&arena);
}
