// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/node.h"
#include "unit.h"

/* {key:value,...}, [value,...], "text", and numbers as they are. */
static void dump(FILE *out, const struct node *n)
{
	if (n->kind == NODE_TEXT) {
		fprintf(out, "\"%.*s\"", (int)n->text.len, n->text.ptr);
		return;
	}
	if (n->kind != NODE_MAP && n->kind != NODE_LIST) {
		fprintf(out, "%.*s", (int)n->text.len, n->text.ptr);
		return;
	}
	fputc(n->kind == NODE_MAP ? '{' : '[', out);
	for (const struct node *c = n->first; c; c = c->next) {
		if (n->kind == NODE_MAP)
			fprintf(out, "%.*s:", (int)c->key.len, c->key.ptr);
		dump(out, c);
		fputs(c->next ? "," : "", out);
	}
	fputc(n->kind == NODE_MAP ? '}' : ']', out);
}

/* @want: the tree, or for a fault its "line:column: text" as far as it is given. */
static void read_as(const char *what, const char *text, const char *want, bool good)
{
	struct arena arena = { 0 };
	struct faults faults = { 0 };
	const struct node_source source = { .arena = &arena,
					    .faults = &faults,
					    .file = "f",
					    .text = text_of(text),
					    .foreign = true };
	struct node *root = NULL;
	char got[512] = "";
	FILE *out = fmemopen(got, sizeof(got), "w");
	const int r = node_read_toml(&source, &root);

	assert_non_null(out);
	if (r == 0 && root)
		dump(out, root);
	else if (r < 0 && faults.count > 0)
		fprintf(out, "%u:%u: %s", faults.items[0].line, faults.items[0].column,
			faults.items[0].text);
	fclose(out);
	if ((r == 0) != good ||
	    strncmp(got, want, good ? sizeof(got) : strlen(want)) != 0)
		fail_msg("%s: %s", what, got);
	faults_done(&faults);
	arena_done(&arena);
}

TEST(what_toml_says_is_the_tree)
{
	static const struct {
		const char *what, *text, *want;
	} cases[] = {
		{ "nothing", "# a comment\n\n", "" },
		{ "pairs", "a = 1\nb=\"x\" # y\n", "{a:1,b:\"x\"}" },
		{ "line ends of Windows", "a = 1\r\nb = 2\r\n", "{a:1,b:2}" },
		{ "quoted keys", "\"a b\" = 1\n'c.d' = 2", "{a b:1,c.d:2}" },
		{ "dotted keys", "a.b . \"c\" = 1\na.d = 2", "{a:{b:{c:1},d:2}}" },
		{ "tables", "x = 0\n[a.b]\nc = 1\n[ a . d ]\ne = 2\n",
		  "{x:0,a:{b:{c:1},d:{e:2}}}" },
		{ "a table above one that was named", "[a.b]\nc = 1\n[a]\nd = 2",
		  "{a:{b:{c:1},d:2}}" },
		{ "arrays of tables", "[[a]]\nb = 1\n[[a]]\nb = 2\n[a.c]\nd = 3",
		  "{a:[{b:1},{b:2,c:{d:3}}]}" },
		{ "arrays", "a = [ 1, # one\n [2, 3],\n 'x', ]", "{a:[1,[2,3],\"x\"]}" },
		{ "empty ones", "a = []\nb = {}", "{a:[],b:{}}" },
		{ "inline tables", "a = { b = 1, c.d = \"e\" }",
		  "{a:{b:1,c:{d:\"e\"}}}" },
		{ "escapes", "a = \"\\\"\\\\ \\u0041\\u00e9\\U0001F600\"",
		  "{a:\"\"\\ A\xc3\xa9\xf0\x9f\x98\x80\"}" },
		{ "literals", "a = 'C:\\x\\u0041'", "{a:\"C:\\x\\u0041\"}" },
		{ "a block", "a = \"\"\"\none\n \\\n  \"\" two\"\"\"",
		  "{a:\"one\n \"\" two\"}" },
		{ "a literal block", "a = '''\n\\n'b'\n'''", "{a:\"\\n'b'\n\"}" },
		{ "other values",
		  "a = true\nb = -1.5e3\nc = 1979-05-27T07:32:00Z\nd = inf",
		  "{a:true,b:-1.5e3,c:1979-05-27T07:32:00Z,d:inf}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		read_as(cases[i].what, cases[i].text, cases[i].want, true);
}

TEST(what_is_no_toml_is_a_fault_at_its_place)
{
	static const struct {
		const char *what, *text, *want;
	} cases[] = {
		{ "no value", "a = 1\nb =\n", "2:4: this is not TOML: a value" },
		{ "no '='", "a 1", "1:3: this is not TOML: a key needs '='" },
		{ "no key", "= 1", "1:1: this is not TOML: a key is missing" },
		{ "a word", "a = yes", "1:8: this is not TOML: a value" },
		{ "an open string", "a = \"b\nc = 1", "1:7: this is not TOML: a string" },
		{ "an open block", "a = '''b\n", "2:1: this is not TOML: a string" },
		{ "an open array", "a = [1, 2", "1:10: this is not TOML: an array" },
		{ "an open table", "a = {b = 1", "1:11: this is not TOML: a table" },
		{ "an open header", "[a\nb = 1", "1:3: this is not TOML: a table's" },
		{ "two pairs on a line", "a = 1 b = 2", "1:7: this is not TOML: a line" },
		{ "a key twice", "a = 1\na = 2", "2:1: 'a' is not the first" },
		{ "a key twice, dotted", "a.b = 1\n[a]\nb = 2", "3:1: 'b' is not" },
		{ "below a number", "a = 1\n[a.b]",
		  "2:4: this is not TOML: a key below" },
		{ "a table as an array", "[a]\n[[a]]", "2:4: this is not TOML: this" },
		{ "an escape of none", "a = \"\\q\"",
		  "1:7: this is not TOML: this escape" },
		{ "half of a character", "a = \"\\ud800\"",
		  "1:12: this is not TOML: an" },
		{ "too few digits", "a = \"\\u12\"",
		  "1:10: this is not TOML: an escape" },
		{ "too deep", "a = [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]",
		  "1:20: this is not TOML: it is nested" },
		{ "too deep, dotted", "a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = 1",
		  "1:33: this is not TOML: it is nested" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		read_as(cases[i].what, cases[i].text, cases[i].want, false);
}
