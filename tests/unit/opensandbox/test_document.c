// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "opensandbox/document.h"
#include "unit.h"

/* What a caller of POST sees: the document, or what is wrong with it. */
static char *shown(struct text body)
{
	struct document *d = NULL;
	struct err err = { 0 };
	char *text;

	if (document_parse(body, NULL, NULL, &d, &err) < 0)
		return strdup(err.text);
	text = document_json(d, false);
	document_free(d);
	return text;
}

static void expect(const char *body, const char *want)
{
	char *got = shown(text_of(body));

	assert_non_null(got);
	if (strcmp(got, want) != 0)
		fail_msg("%s\n  gives %s\n  not   %s", body, got, want);
	free(got);
}

#define NOTHING "{\"egress\":[],\"defaultAction\":\"deny\"}"

TEST(every_way_to_say_nothing_denies_all)
{
	static const char *const bodies[] = {
		"",
		"   \n\t ",
		"{}",
		" {} \n",
		"null",
		"{ }",
		"{\"egress\":null}",
		"{\"egress\":[]}",
		"{\"defaultAction\":null}",
		"{\"defaultAction\":\"\"}",
		"{\"defaultAction\":\" DENY\\n\"}",
		"{\"default_action\":\"allow\"}",
		"{\"network_policy\":{\"defaultAction\":\"allow\"}}",
		"{\"x\":[[[{\"egress\":[1]}]]],\"egress\":null}",
		"\xc2\xa0{}\xe2\x80\x83",
		"{\"egress\":[{\"target\":\"x\"}],\"egress\":null}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
		expect(bodies[i], NOTHING);
}

TEST(documents_are_read_as_go_reads_them)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "{\"defaultAction\":\"ALLOW \"}",
		  "{\"egress\":[],\"defaultAction\":\"allow\"}" },
		{ "{\"defaultAction\":\"deny\",\"defaultAction\":\"allow\"}",
		  "{\"egress\":[],\"defaultAction\":\"allow\"}" },
		{ "{\"DEFAULTACTION\":\"allow\",\"EGRESS\":[{\"ACTION\":\"Deny\","
		  "\"Target\":\" Foo.COM \"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"Foo.COM\"}],"
		  "\"defaultAction\":\"allow\"}" },
		{ "{\"e\\u0067re\xc5\xbfs\":[{\"target\":\"x\"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"x\"}],"
		  "\"defaultAction\":\"deny\"}" },
		{ "{\"egress\":[{\"target\":\"x.com\"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"x.com\"}],"
		  "\"defaultAction\":\"deny\"}" },
		{ "{\"egress\":[{\"action\":\"deny\",\"target\":\"a\",\"action\":null,"
		  "\"target\":\"b\"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"b\"}],"
		  "\"defaultAction\":\"deny\"}" },
		/* A second list replaces the first; no rule of it inherits an action. */
		{ "{\"egress\":[{\"action\":\"allow\",\"target\":\"a\"}],"
		  "\"egress\":[{\"target\":\"b\"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"b\"}],"
		  "\"defaultAction\":\"deny\"}" },
		{ "{\"egress\":[{\"target\":\"<>&\xc3\xa9\xff\\ud800\\ud83d\\ude00"
		  "\\\"\\\\\\/\\b\\u0001\xe2\x80\xa8.\"}]}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":"
		  "\"\\u003c\\u003e\\u0026\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
		  "\xf0\x9f\x98\x80\\\"\\\\/\\b\\u0001\\u2028.\"}],"
		  "\"defaultAction\":\"deny\"}" },
		/* Weir's own keys: kept in one order, unknown ones dropped. */
		{ "{\"Limits\":{ \"flows\" : 10 },\"extra\":true,\"egress\":[{\"foo\":1,"
		  "\"Comment\":\"a<b\",\"ports\":[ 443, \"tcp/22\" ],\"target\":\"x\","
		  "\"raw\":null}],\"verify\":\"tls\"}",
		  "{\"egress\":[{\"action\":\"deny\",\"target\":\"x\","
		  "\"ports\":[443,\"tcp/22\"],\"comment\":\"a\\u003cb\"}],"
		  "\"defaultAction\":\"deny\",\"verify\":\"tls\","
		  "\"limits\":{\"flows\":10}}" },
		{ "{\"extends\":null}", NOTHING },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect(rows[i].body, rows[i].want);
}

TEST(what_is_read_strictly_has_no_unknown_key)
{
	static const struct {
		const char *body, *fault; /* NULL: it has none */
	} rows[] = {
		{ "", NULL },
		{ "{\"Egress\":[{\"target\":\"x\",\"ports\":[443]}]}", NULL },
		{ "{\"limits\":{},\"closed\":null,\"deniedNames\":\"refuse\"}", NULL },
		{ "{\"egress\":[{\"action\":\"allow\",\"target\":\"x\",\"untill\":1}]}",
		  "unknown key 'egress[].untill'" },
		{ "{\"network_policy\":{\"egress\":[]}}",
		  "unknown key 'network_policy'" },
		{ "{\"run\":{},\"a\":1}", "unknown key 'run'" },
		{ "{\"x\\u001b\":1}", "unknown key 'x\\x1b'" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		CLEAN(document) struct document *d = NULL;
		struct err err = { 0 };
		int r = document_parse_strict(text_of(rows[i].body), &d, &err);

		assert_int_equal(r, rows[i].fault ? -EINVAL : 0);
		assert_int_equal(d != NULL, r == 0);
		if (rows[i].fault)
			assert_string_equal(err.text, rows[i].fault);
	}
}

static void count_key(void *data, const char *key)
{
	assert_string_equal(key, "egress[].untill");
	++*(size_t *)data;
}

TEST(a_patch_tells_of_unknown_keys_too)
{
	CLEAN(document) struct document *old = document_deny_all(), *next = NULL;
	struct err err = { 0 };
	size_t count = 0;

	assert_int_equal(document_merge(old,
					text_of("[{\"target\":\"a\",\"untill\":1},"
						"{\"target\":\"b\",\"untill\":2}]"),
					count_key, &count, &next, &err),
			 0);
	assert_int_equal(count, 1);
}

TEST(what_is_wrong_is_said_in_gos_words)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "[]", "json: cannot unmarshal array into Go value of type "
			"policy.NetworkPolicy" },
		{ "\"x\"", "json: cannot unmarshal string into Go value of type "
			   "policy.NetworkPolicy" },
		{ "1", "json: cannot unmarshal number into Go value of type "
		       "policy.NetworkPolicy" },
		{ "true", "json: cannot unmarshal bool into Go value of type "
			  "policy.NetworkPolicy" },
		{ "{\"defaultAction\":1}",
		  "json: cannot unmarshal number into Go struct field "
		  "NetworkPolicy.defaultAction of type string" },
		{ "{\"egress\":[{\"action\":\"allow\",\"target\":5}]}",
		  "json: cannot unmarshal number into Go struct field "
		  "EgressRule.egress.target of type string" },
		{ "{\"egress\":[{\"action\":[],\"target\":5}]}",
		  "json: cannot unmarshal array into Go struct field "
		  "EgressRule.egress.action of type string" },
		{ "{\"egress\":{\"action\":\"allow\"}}",
		  "json: cannot unmarshal object into Go struct field "
		  "NetworkPolicy.egress of type []policy.EgressRule" },
		{ "{\"egress\":[\"x.com\"]}",
		  "json: cannot unmarshal string into Go struct field "
		  "NetworkPolicy.egress of type policy.EgressRule" },
		/* The wrong type is told before the value that means nothing. */
		{ "{\"egress\":[{\"target\":\"\"},{\"target\":5}]}",
		  "json: cannot unmarshal number into Go struct field "
		  "EgressRule.egress.target of type string" },
		{ "{\"egress\":[null]}", "egress target cannot be empty" },
		{ "{\"egress\":[{\"action\":\"allow\"}]}",
		  "egress target cannot be empty" },
		{ "{\"egress\":[{\"action\":\"allow\",\"target\":\" \\u00a0\"}]}",
		  "egress target cannot be empty" },
		{ "{\"egress\":[{\"action\":\"foo\",\"target\":\"\"}]}",
		  "unsupported action \"foo\"" },
		{ "{\"egress\":[{\"action\":\"f\\u0000\\\"\\n\xc3\xa9\xe2\x80\xae\","
		  "\"target\":\"x\"}]}",
		  "unsupported action \"f\\x00\\\"\\n\xc3\xa9\\u202e\"" },
		{ "{\"defaultAction\":\"block\"}",
		  "unsupported defaultAction \"block\"" },
		{ "{\"extends\":[\"default\"]}",
		  "'extends' can't be used here: write the rules themselves" },
		{ "{", "unexpected end of JSON input" },
		{ "{\"egress\":[", "unexpected end of JSON input" },
		{ "\"abc", "unexpected end of JSON input" },
		{ "not-json", "invalid character 'o' in literal null (expecting 'u')" },
		{ "tru", "invalid character ' ' in literal true (expecting 'e')" },
		{ "fals3", "invalid character '3' in literal false (expecting 'e')" },
		{ "{} {}", "invalid character '{' after top-level value" },
		{ "01", "invalid character '1' after top-level value" },
		{ "-", "invalid character ' ' in numeric literal" },
		{ "-x", "invalid character 'x' in numeric literal" },
		{ "1.x", "invalid character 'x' after decimal point in numeric "
			 "literal" },
		{ "1.5ex", "invalid character 'x' in exponent of numeric literal" },
		{ "1e+", "invalid character ' ' in exponent of numeric literal" },
		{ "1.2.3", "invalid character '.' after top-level value" },
		{ "{x", "invalid character 'x' looking for beginning of object key "
			"string" },
		{ "{\"a\":1,}",
		  "invalid character '}' looking for beginning of object key string" },
		{ "{\"a\" 1}", "invalid character '1' after object key" },
		{ "{\"a\":1 2}", "invalid character '2' after object key:value pair" },
		{ "[1 2]", "invalid character '2' after array element" },
		{ "[1}", "invalid character '}' after array element" },
		{ "[1,]", "invalid character ']' looking for beginning of value" },
		{ "x", "invalid character 'x' looking for beginning of value" },
		{ "'", "invalid character '\\'' looking for beginning of value" },
		{ "\"\n\"", "invalid character '\\n' in string literal" },
		{ "\"\x01\"", "invalid character '\\x01' in string literal" },
		{ "\"\\x\"", "invalid character 'x' in string escape code" },
		{ "\"\\u12g4\"",
		  "invalid character 'g' in \\u hexadecimal character escape" },
		{ "\xef\xbb\xbf{}",
		  "invalid character '\xc3\xaf' looking for beginning of value" },
		{ "\xc2\x80",
		  "invalid character '\xc3\x82' looking for beginning of value" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect(rows[i].body, rows[i].want);
}

/* A NUL byte ends nothing. */
TEST(a_nul_byte_is_a_byte)
{
	static const char inside[] = "{\"egress\":[]}\0{}", quoted[] = "\"a\0b\"";
	char *a = shown((struct text){ inside, sizeof(inside) - 1 });
	char *b = shown((struct text){ quoted, sizeof(quoted) - 1 });

	assert_string_equal(a, "invalid character '\\x00' after top-level value");
	assert_string_equal(b, "invalid character '\\x00' in string literal");
	free(a);
	free(b);
}

static char *nested(size_t depth, const char *before, const char *behind)
{
	size_t a = strlen(before), b = strlen(behind);
	char *text = malloc(a + 2 * depth + b + 1);

	memcpy(text, before, a);
	memset(text + a, '[', depth);
	memset(text + a + depth, ']', depth);
	memcpy(text + a + 2 * depth, behind, b + 1);
	return text;
}

TEST(depth_is_bounded_as_in_go)
{
	char *deep = nested(10001, "", ""), *unknown = nested(9999, "{\"x\":", "}");

	expect(deep, "exceeded max depth");
	expect(unknown, NOTHING);
	free(deep);
	free(unknown);
}

static void on_unknown(void *data, const char *key)
{
	char *all = data;

	snprintf(all + strlen(all), 512 - strlen(all), "%s;", key);
}

TEST(unknown_keys_are_told_once)
{
	char told[512] = "";
	struct document *d;

	assert_int_equal(
		document_parse(text_of("{\"extra\":true,\"egress\":[{\"target\":\"x\","
				       "\"foo\":1},"
				       "{\"target\":\"y\",\"foo\":2,\"extra\":3}],"
				       "\"a\\nb\":{\"egress\":1},\"extra\":false}"),
			       on_unknown, told, &d, NULL),
		0);
	assert_string_equal(told, "extra;egress[].foo;egress[].extra;a\\x0ab;");
	document_free(d);
}

static struct document *document(const char *body)
{
	struct document *d = NULL;

	assert_int_equal(document_parse(text_of(body), NULL, NULL, &d, NULL), 0);
	return d;
}

/* "+a -b": the rules in order, then the default. */
static const char *rules_of(const struct document *d)
{
	static char all[512];
	char *json = document_json(d, false);
	const char *p = json;

	all[0] = '\0';
	while ((p = strstr(p, "\"action\":\""))) {
		bool allow = strncmp(p + 10, "allow", 5) == 0;
		const char *target = strstr(p, "\"target\":\"") + 10;

		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%c%.*s ",
			 allow ? '+' : '-', (int)strcspn(target, "\""), target);
		p = target;
	}
	p = strstr(json, "\"defaultAction\":\"") + 17;
	snprintf(all + strlen(all), sizeof(all) - strlen(all), "%.*s",
		 (int)strcspn(p, "\""), p);
	free(json);
	return all;
}

#define RULE(action, target) "{\"action\":\"" action "\",\"target\":\"" target "\"}"

TEST(a_patch_comes_first_and_replaces)
{
	static const struct {
		const char *old, *patch, *want;
	} rows[] = {
		{ "{\"egress\":[" RULE("allow", "example.com") "," RULE(
			  "deny", "*.example.com") "]}",
		  "[" RULE("deny", "blocked.com") "," RULE("allow", "example.com") "]",
		  "-blocked.com +example.com -*.example.com deny" },
		{ "{\"egress\":[" RULE("deny", "Example.COM") "]}",
		  "[" RULE("allow", "example.com") "]", "+example.com deny" },
		{ "{\"defaultAction\":\"allow\"}",
		  "[" RULE("allow", " a ") "," RULE("deny", "A") "]", "+a allow" },
		{ "{\"egress\":[" RULE("allow", "10.0.0.0/8") "]}",
		  "[" RULE("deny", "10.0.0.1/8") "]", "-10.0.0.1/8 +10.0.0.0/8 deny" },
		{ "{\"egress\":[" RULE("allow", "x.com") "," RULE("deny", "X.com") "]}",
		  "[" RULE("allow", "y.com") "]", "+y.com +x.com deny" },
		/* The deny of an address counts behind its allow, and goes on to. */
		{ "{\"egress\":[" RULE("allow", "1.2.3.4") "," RULE("deny",
								    "1.2.3.4") "]}",
		  "[" RULE("allow", "y.com") "]", "+y.com +1.2.3.4 -1.2.3.4 deny" },
		{ "{\"egress\":[" RULE("allow", "1.2.3.4") "," RULE("deny",
								    "1.2.3.4") "]}",
		  "[" RULE("allow", "1.2.3.4") "]", "+1.2.3.4 deny" },
		{ "{}", "[{\"target\":\"a\"}]", "-a deny" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct document *old = document(rows[i].old), *merged = NULL;
		struct err err = { 0 };

		if (document_merge(old, text_of(rows[i].patch), NULL, NULL, &merged,
				   &err) < 0)
			fail_msg("%s: %s", rows[i].patch, err.text);
		assert_string_equal(rules_of(merged), rows[i].want);
		document_free(old);
		document_free(merged);
	}
}

TEST(a_patch_keeps_what_weir_knows_more)
{
	struct document *old =
		document("{\"verify\":\"dns\",\"egress\":[{\"action\":\"allow\","
			 "\"target\":\"a.b\",\"ports\":[80]},"
			 "{\"action\":\"allow\",\"target\":\"c.d\",\"raw\":true}]}");
	struct document *merged = NULL;
	char *json;

	assert_int_equal(
		document_merge(old,
			       text_of("[{\"action\":\"allow\",\"target\":\"A.b\","
				       "\"ports\":[443]}]"),
			       NULL, NULL, &merged, NULL),
		0);
	json = document_json(merged, false);
	assert_string_equal(
		json, "{\"egress\":[{\"action\":\"allow\",\"target\":\"A.b\",\"ports\":"
		      "[443]},{\"action\":\"allow\",\"target\":\"c.d\",\"raw\":true}],"
		      "\"defaultAction\":\"deny\",\"verify\":\"dns\"}");
	free(json);
	document_free(old);
	document_free(merged);
}

TEST(a_bad_patch_is_told_whole)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "", "empty body" },
		{ " \n", "empty body" },
		{ "[]", "invalid patch rules: empty array" },
		{ "null", "invalid patch rules: empty array" },
		{ "{}", "invalid patch rules: json: cannot unmarshal object into Go "
			"value of type []policy.EgressRule" },
		{ "[1]", "invalid patch rules: json: cannot unmarshal number into Go "
			 "value of type policy.EgressRule" },
		{ "[{\"target\":1}]",
		  "invalid patch rules: json: cannot unmarshal number into Go struct "
		  "field EgressRule.target of type string" },
		{ "[{\"action\":\"bad\",\"target\":\"a.com\"}]",
		  "invalid merged policy: unsupported action \"bad\"" },
		{ "[{\"action\":\"allow\",\"target\":\"\"}]",
		  "invalid merged policy: egress target cannot be empty" },
		{ "[null]", "invalid merged policy: egress target cannot be empty" },
		{ "not", "invalid patch rules: invalid character 'o' in literal null "
			 "(expecting 'u')" },
	};
	struct document *old = document("{\"egress\":[" RULE("allow", "a") "]}");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct document *d = NULL;
		struct err err = { 0 };

		assert_true(document_merge(old, text_of(rows[i].body), NULL, NULL, &d,
					   &err) < 0);
		assert_string_equal(err.text, rows[i].want);
		assert_null(d);
	}
	document_free(old);
}

TEST(targets_are_removed_whatever_their_case)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "[\"example.com\"]", "-Blocked.COM +10.0.0.0/8 +Blocked.com allow" },
		{ "[\" BLOCKED.com \",\"nothing\",null]",
		  "+Example.COM +10.0.0.0/8 allow" },
		{ "[\"10.0.0.0/8\",\"example.com\",\"blocked.com\"]", "allow" },
		{ "[\"10.0.0.0\",\"10.0.0.1/8\"]", NULL },
		{ "[\"\",\" \"]", NULL },
		{ "[null]", NULL },
	};
	struct document *old = document(
		"{\"defaultAction\":\"allow\",\"egress\":[" RULE("allow", "Example.COM") "," RULE(
			"deny",
			"Blocked.COM") "," RULE("allow",
						"10.0.0.0/8") "," RULE("allow",
								       "Blocked.com") "]"
										      "}");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct document *d = old;

		assert_int_equal(document_remove(old, text_of(rows[i].body), &d, NULL),
				 0);
		if (!rows[i].want)
			assert_null(d);
		else
			assert_string_equal(rules_of(d), rows[i].want);
		document_free(d);
	}
	document_free(old);
}

TEST(a_bad_removal_is_told_whole)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "", "empty body" },
		{ "[]", "invalid delete targets: empty array" },
		{ "null", "invalid delete targets: empty array" },
		{ "{}", "invalid delete targets: json: cannot unmarshal object into Go "
			"value of type []string" },
		{ "\"a.com\"", "invalid delete targets: json: cannot unmarshal string "
			       "into Go value of type []string" },
		{ "[1]", "invalid delete targets: json: cannot unmarshal number into Go "
			 "value of type string" },
		{ "[{\"target\":\"a.com\"}]",
		  "invalid delete targets: json: cannot unmarshal object into Go value "
		  "of type string" },
		{ "not-json", "invalid delete targets: invalid character 'o' in literal "
			      "null (expecting 'u')" },
	};
	struct document *old = document("{\"egress\":[" RULE("allow", "a") "]}");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct document *d = NULL;
		struct err err = { 0 };

		assert_true(document_remove(old, text_of(rows[i].body), &d, &err) < 0);
		assert_string_equal(err.text, rows[i].want);
	}
	document_free(old);
}

/* It is shown, and taken for nothing else; null is no reason, and no text is one. */
TEST(what_is_closed_can_only_be_replaced)
{
	static const char shown[] =
		"{\"egress\":[],\"defaultAction\":\"deny\",\"closed\":\"9 denies\"}";
	struct document *d = document_close("9 denies"), *next = NULL;
	CLEAN(mem) char *json = document_json(d, false);
	struct err err = { 0 };

	assert_string_equal(json, shown);
	expect(shown, shown);
	expect("{\"closed\":\"\",\"defaultAction\":\"allow\"}",
	       "{\"egress\":[],\"defaultAction\":\"allow\",\"closed\":\"\"}");
	expect("{\"closed\":null}", "{\"egress\":[],\"defaultAction\":\"deny\"}");
	assert_string_equal(document_mode(d), "deny_all");
	assert_int_equal(document_merge(d, text_of("[{\"target\":\"a\"}]"), NULL, NULL,
					&next, &err),
			 -EPERM);
	assert_string_equal(err.text, "the sandbox is closed (9 denies): only another "
				      "policy opens it");
	assert_int_equal(document_remove(d, text_of("[\"a\"]"), &next, &err), -EPERM);
	assert_null(next);
	document_free(d);
}

TEST(modes_are_named)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{ "", "deny_all" },
		{ "{\"defaultAction\":\"allow\"}", "allow_all" },
		{ "{\"defaultAction\":\"allow\",\"egress\":[{\"target\":\"x\"}]}",
		  "enforcing" },
		{ "{\"egress\":[{\"target\":\"x\"}]}", "enforcing" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct document *d = document(rows[i].body);

		assert_string_equal(document_mode(d), rows[i].want);
		document_free(d);
	}
}

TEST(a_file_reads_well_and_comes_back)
{
	static const char want[] = "{\n"
				   "  \"egress\": [\n"
				   "    {\n"
				   "      \"action\": \"allow\",\n"
				   "      \"target\": \"a[{,:}].b\",\n"
				   "      \"ports\": [\n"
				   "        443\n"
				   "      ],\n"
				   "      \"types\": []\n"
				   "    },\n"
				   "    {\n"
				   "      \"action\": \"deny\",\n"
				   "      \"target\": \"\\u0026\"\n"
				   "    }\n"
				   "  ],\n"
				   "  \"defaultAction\": \"deny\",\n"
				   "  \"limits\": {}\n"
				   "}\n";
	struct document *d = document(
		"{\"limits\":{},\"egress\":[{\"action\":\"allow\",\"target\":"
		"\"a[{,:}].b\",\"types\":[],\"ports\":[443]},{\"target\":\"&\"}]}");
	struct document *again, *none = document("");
	char *json = document_json(d, true), *rules = document_rules_json(d);
	char *empty = document_json(none, true);

	assert_string_equal(json, want);
	again = document(json);
	assert_true(document_equal(d, again));
	assert_false(document_equal(d, none));
	assert_string_equal(
		rules, "[{\"action\":\"allow\",\"target\":\"a[{,:}].b\",\"ports\":[443],"
		       "\"types\":[]},{\"action\":\"deny\",\"target\":\"\\u0026\"}]");
	assert_string_equal(empty,
			    "{\n  \"egress\": [],\n  \"defaultAction\": \"deny\"\n}\n");
	free(json);
	free(rules);
	free(empty);
	document_free(d);
	document_free(again);
	document_free(none);
}
