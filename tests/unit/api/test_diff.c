// SPDX-License-Identifier: Apache-2.0
/* What a change of a policy shows: rules that come, go and move, and all other keys. */
#include "unit.h"

#include <string.h>

#include "api/diff.h"
#include "base/macros.h"

#define R(name)	   "{\"action\":\"allow\",\"target\":\"" name "\"}"
#define RULES(...) "{\"defaultAction\":\"deny\",\"egress\":[" __VA_ARGS__ "]}"

static struct document *parse(const char *text)
{
	struct document *d = NULL;

	assert_int_equal(document_parse(text_of(text), NULL, NULL, &d, NULL), 0);
	return d;
}

static void shows(const char *what, const char *old, const char *next,
		  const char *const lines[8])
{
	struct document *a = parse(old), *b = parse(next);
	json_t *diff = document_diff(a, b);
	size_t i = 0;

	for (; lines[i]; i++) {
		const char *line = json_string_value(json_array_get(diff, i));

		if (!line || strcmp(line, lines[i]) != 0)
			fail_msg("%s: line %zu: %s", what, i, line ?: "(none)");
	}
	if (json_array_size(diff) != i)
		fail_msg("%s: %zu lines", what, json_array_size(diff));
	json_decref(diff);
	document_free(a);
	document_free(b);
}

TEST(a_change_shows_its_rules_their_order_and_all_other_keys)
{
	static const struct {
		const char *what, *old, *next, *lines[8];
	} rows[] = {
		{ "nothing", RULES(R("a")), RULES(R("a")), { NULL } },
		{ "one more", RULES(R("a")), RULES(R("b") "," R("a")), { "+ " R("b") } },
		{ "one less", RULES(R("a") "," R("b")), RULES(R("b")), { "- " R("a") } },
		{ "none left", RULES(R("a")), RULES(""), { "- " R("a") } },
		{ "the order of two",
		  RULES(R("a") "," R("b")),
		  RULES(R("b") "," R("a")),
		  { "- " R("b"), "+ " R("b") } },
		{ "one moves behind the others",
		  RULES(R("a") "," R("b") "," R("c")),
		  RULES(R("b") "," R("c") "," R("a")),
		  { "- " R("a"), "+ " R("a") } },
		{ "one of two alike goes",
		  RULES(R("a") "," R("b") "," R("a")),
		  RULES(R("b") "," R("a")),
		  { "- " R("a") } },
		{ "the default",
		  "{\"defaultAction\":\"deny\",\"egress\":[]}",
		  "{\"defaultAction\":\"allow\",\"egress\":[]}",
		  { "- {\"defaultAction\":\"deny\"}",
		    "+ {\"defaultAction\":\"allow\"}" } },
		{ "a key that comes",
		  RULES(R("a")),
		  "{\"defaultAction\":\"deny\",\"verify\":\"dns\",\"egress\":[" R(
			  "a") "]}",
		  { "+ {\"verify\":\"dns\"}" } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		shows(rows[i].what, rows[i].old, rows[i].next, rows[i].lines);
}
