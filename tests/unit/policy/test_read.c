// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "policy/limits.h"
#include "policy/policy.h"
#include "read_world.h"
#include "unit.h"

static int build(struct world *w)
{
	const struct policy_reader r = reader(w);

	return policy_build(&r, &w->policy, NULL, NULL);
}

/* @text is read without a fault, but no plan can be made of it. */
static void expect_no_plan(struct world *w, const char *text)
{
	world_read(w, "p.yaml", text);
	expect_good(w);
	assert_int_equal(build(w), -EINVAL);
}

TEST(both_forms_say_the_same)
{
	static const struct file docs[] = {
		{ "p.yaml",
		  "defaultAction: deny\n"
		  "egress:\n"
		  "  - {action: allow, target: api.github.com, ports: [443], comment: "
		  "REST}\n"
		  "  - {action: deny, target: gist.github.com}\n"
		  "  - {action: allow, target: \"**.github.com\", ports: [443, \"22\"]}\n"
		  "  - {action: allow, target: 10.96.0.0/12}\n"
		  "  - {action: allow, target: \"*.svc.cluster.local\", private: true,\n"
		  "     types: [SRV, TXT], raw: true}\n"
		  "limits: {queries_per_second: unlimited, min_lifetime: 2m, flows: "
		  "10}\n" },
		{ "p.json", "{\"defaultAction\": \"deny\", \"egress\": [\n"
			    "{\"action\": \"allow\", \"target\": \"api.github.com\", "
			    "\"ports\": [443], "
			    "\"comment\": \"REST\"},\n"
			    "{\"action\": \"deny\", \"target\": \"gist.github.com\"},\n"
			    "{\"action\": \"allow\", \"target\": \"**.github.com\", "
			    "\"ports\": [443, "
			    "\"22\"]},\n"
			    "{\"action\": \"allow\", \"target\": \"10.96.0.0/12\"},\n"
			    "{\"action\": \"allow\", \"target\": "
			    "\"*.svc.cluster.local\", \"private\": true, "
			    "\"types\": [\"SRV\", \"TXT\"], \"raw\": true}],\n"
			    "\"limits\": {\"queries_per_second\": \"unlimited\", "
			    "\"min_lifetime\": \"2m\", "
			    "\"flows\": 10}}" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(docs); i++) {
		struct world w = { 0 };
		const struct rule *r;

		world_read(&w, docs[i].name, docs[i].text);
		expect_good(&w);
		r = w.policy.rules;
		assert_int_equal(w.policy.count, 5);
		assert_int_equal(r[0].action, POLICY_ALLOW);
		assert_int_equal(r[0].ports.count, 2);
		assert_string_equal(r[0].comment, "REST");
		assert_int_equal(r[0].line, i == 0 ? 3 : 2);
		assert_int_equal(r[0].column, i == 0 ? 5 : 1);
		assert_int_equal(r[1].action, POLICY_DENY);
		assert_int_equal(r[2].kind, TARGET_WITHIN);
		assert_int_equal(r[2].ports.count, 4);
		assert_int_equal(r[2].flags, PLAN_PORTS_LISTED);
		assert_int_equal(r[3].kind, TARGET_PREFIX);
		assert_int_equal(r[4].flags, PLAN_PRIVATE | PLAN_RAW);
		assert_int_equal(r[4].types, PLAN_TYPE_SRV | PLAN_TYPE_TXT);
		assert_int_equal(w.policy.limits[LIMIT_QUERIES_PER_SECOND],
				 LIMIT_UNLIMITED);
		assert_int_equal(w.policy.limits[LIMIT_MIN_LIFETIME_SEC], 120);
		assert_int_equal(w.policy.limits[LIMIT_FLOWS], 10);
		world_done(&w);
	}
}

TEST(an_empty_document_denies_everything)
{
	static const char *const texts[] = {
		"",	 "\n",	 "# nothing\n",	      "{}", "egress: []\n",
		"---\n", "null", "network_policy: {}"
	};
	static const char *const json[] = { "", " \n", "{}", "null" };

	for (size_t i = 0; i < ARRAY_SIZE(texts) + ARRAY_SIZE(json); i++) {
		struct world w = { 0 };

		if (i < ARRAY_SIZE(texts))
			world_read(&w, "p.yaml", texts[i]);
		else
			world_read(&w, "p.json", json[i - ARRAY_SIZE(texts)]);
		expect_good(&w);
		assert_int_equal(w.policy.count, 0);
		assert_int_equal(w.policy.default_action, POLICY_DENY);
		world_done(&w);
	}
}

TEST(what_is_set_first_counts)
{
	static const struct file files[] = {
		{ "base", "dns: live\nverify: dns\nrepin: 1h\ndefaultAction: allow\n"
			  "limits: {flows: 20, addresses: 30}\n"
			  "on_denies: {count: 9, window: 1h, action: event}\n"
			  "require_full_isolation: true\n" },
	};
	struct world w = { .files = files, .file_count = 1 };

	world_read(&w, "p.yaml",
		   "extends: [base]\ndns: pinned\nverify: tls\nrepin: 6h\n"
		   "defaultAction: deny\nlimits: {flows: 10}\n"
		   "on_denies: {count: 5, window: 90s, action: stop}\n"
		   "require_full_isolation: false\n");
	expect_good(&w);
	assert_int_equal(w.policy.dns, POLICY_DNS_PINNED);
	assert_int_equal(w.policy.verify, POLICY_VERIFY_TLS);
	assert_int_equal(w.policy.repin_ms, 6 * 3600 * 1000);
	assert_int_equal(w.policy.default_action, POLICY_DENY);
	assert_int_equal(w.policy.limits[LIMIT_FLOWS], 10);
	assert_int_equal(w.policy.limits[LIMIT_ADDRESSES], 30);
	assert_int_equal(w.policy.on_denies.count, 5);
	assert_int_equal(w.policy.on_denies.window_sec, 90);
	assert_int_equal(w.policy.on_denies.action, ON_DENIES_STOP);
	assert_true(w.policy.require_full_isolation); /* nobody takes it away */
	world_done(&w);
}

TEST(a_name_without_an_ending_is_guessed)
{
	static const struct file docs[] = {
		{ "-", " \n{\"verify\": \"tls\", \"egress\": [], \"dns\": \"live\"}\n" },
		{ "-", "verify: tls\n" },
		{ "p.yml", "{verify: tls}\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(docs); i++) {
		struct world w = { 0 };

		world_read(&w, docs[i].name, docs[i].text);
		expect_good(&w);
		assert_int_equal(w.policy.verify, POLICY_VERIFY_TLS);
		world_done(&w);
	}
}

TEST(false_is_what_a_key_says_when_it_is_left_out)
{
	struct world w = { 0 };

	world_read(&w, "p.yaml",
		   "egress:\n"
		   "- {action: deny, target: a.test, private: false, raw: false,\n"
		   "   required: false, unmetered: false}\n"
		   "- {action: allow, target: '*.b.test', unmetered: true}\n"
		   "- {action: allow, target: c.test, required: true}\n");
	expect_good(&w);
	assert_int_equal(w.policy.count, 3);
	assert_int_equal(w.policy.rules[0].flags, 0);
	assert_int_equal(w.policy.rules[1].flags, PLAN_UNMETERED);
	assert_int_equal(w.policy.rules[2].flags, PLAN_REQUIRED);
	world_done(&w);
}

TEST(a_wrapper_may_stand_around_the_whole)
{
	struct world w = { 0 };

	world_read(&w, "p.json",
		   "{\"network_policy\": {\"defaultAction\": \"deny\", \"egress\": "
		   "[{\"action\": \"allow\", \"target\": \"a.test\"}]}}");
	expect_good(&w);
	assert_int_equal(w.policy.count, 1);
	world_done(&w);
}

/* 65 ports of TCP that don't touch. */
#define FIVE_PORTS(n) "tcp/" n "1, tcp/" n "3, tcp/" n "5, tcp/" n "7, tcp/" n "9, "
static const char many_ports[] =
	"egress: [{action: allow, target: a.test, ports: [" FIVE_PORTS("10")
		FIVE_PORTS("11") FIVE_PORTS("12") FIVE_PORTS("13") FIVE_PORTS("14")
			FIVE_PORTS("15") FIVE_PORTS("16") FIVE_PORTS("17")
				FIVE_PORTS("18") FIVE_PORTS("19") FIVE_PORTS("20")
					FIVE_PORTS("21") FIVE_PORTS("22") "80]}]\n";

/* One fault a row: its place, its path and a part of its sentence. */
static const struct {
	const char *what, *file, *text, *want;
} faulty[] = {
	{ "unknown key", "p.yaml", "egres: []\n", "p.yaml:1:1: 'egres' is not a key" },
	{ "unknown key of a rule", "p.yaml",
	  "egress:\n  - {action: allow, target: a.test, port: 1}\n",
	  "p.yaml:2:37: egress[0]: 'port' is not a key" },
	{ "case of a key", "p.yaml", "defaultaction: deny\n",
	  "'defaultaction' is not a key" },
	{ "block as default", "p.yaml", "defaultAction: block\n",
	  "p.yaml:1:16: defaultAction: 'block' is not an action: write allow, ask or "
	  "deny" },
	{ "asks, and says more than ports", "p.yaml",
	  "egress: [{action: ask, target: a.test, private: true}]\n",
	  "egress[0].private: a rule that asks lets nothing pass" },
	{ "asks for a time", "p.yaml",
	  "egress: [{action: ask, target: a.test, until: 2026-11-20T13:31:08Z}]\n",
	  "egress[0].until: a rule that asks" },
	{ "boolean as default", "p.yaml", "defaultAction: true\n",
	  "'true' is not an action" },
	{ "nothing as default", "p.yaml", "defaultAction:\n", "nothing stands here" },
	{ "rules that are no list", "p.yaml", "egress: a.test\n",
	  "egress: 'a.test' is not a list" },
	{ "no rules", "p.yaml", "egress:\n", "egress: nothing stands here, not a list" },
	{ "a rule that is no mapping", "p.yaml", "egress: [a.test]\n",
	  "egress[0]: 'a.test' is not a rule" },
	{ "no action", "p.yaml", "egress: [{target: a.test}]\n",
	  "p.yaml:1:10: egress[0]: the rule has no `action`" },
	{ "no target", "p.yaml", "egress: [{action: allow}]\n",
	  "egress[0]: the rule has no `target`" },
	{ "two dots", "p.yaml", "egress: [{action: allow, target: a..b.test}]\n",
	  "p.yaml:1:34: egress[0].target: 'a..b.test' is not a domain name" },
	{ "several targets", "p.yaml",
	  "egress: [{action: allow, target: 'a.test,b.test'}]",
	  "p.yaml:1:34: egress[0].target: 'a.test,b.test' is not one target" },
	{ "a number as target", "p.yaml",
	  "egress: [{action: allow, target: 2130706433}]\n",
	  "'2130706433' is not a name" },
	{ "an octal number as target", "p.yaml",
	  "egress: [{action: allow, target: 017700000001}]\n",
	  "'017700000001' is not a name" },
	{ "port 0", "p.yaml",
	  "egress: [{action: allow, target: a.test, ports: [80, 0]}]\n",
	  "p.yaml:1:54: egress[0].ports[1]: '0' is not a port" },
	{ "ports without a list", "p.yaml",
	  "egress: [{action: allow, target: a.test, ports: 443}]\n",
	  "egress[0].ports: '443' is not a list" },
	{ "no ports", "p.yaml", "egress: [{action: allow, target: a.test, ports: []}]\n",
	  "egress[0].ports: an empty list" },
	{ "port 53 of a name", "p.yaml",
	  "egress: [{action: allow, target: a.test, ports: [50-60]}]\n",
	  "egress[0].ports: port 53 of a name" },
	{ "ports of a deny", "p.yaml",
	  "egress: [{action: deny, target: a.test, ports: [443]}]\n",
	  "egress[0].ports: a deny refuses every port" },
	{ "private of a deny", "p.yaml",
	  "egress: [{action: deny, target: a.test, private: true}]\n",
	  "egress[0].private: a deny" },
	{ "types of an address", "p.yaml",
	  "egress: [{action: allow, target: 10.0.0.1, types: [SRV]}]\n",
	  "egress[0].types: an address" },
	{ "another type", "p.yaml",
	  "egress: [{action: allow, target: a.test, types: [ANY]}]\n",
	  "egress[0].types[0]: 'ANY' is not a type" },
	{ "yes is no boolean", "p.yaml",
	  "egress: [{action: allow, target: a.test, raw: yes}]\n",
	  "egress[0].raw: 'yes' is not true or false" },
	{ "quoted boolean", "p.yaml", "require_full_isolation: \"true\"\n",
	  "'true' is not true or false" },
	{ "a comment that is no text", "p.yaml",
	  "egress: [{action: allow, target: a.test, comment: 1}]\n",
	  "egress[0].comment: '1' is not text" },
	{ "duplicate key", "p.yaml", "verify: dns\nverify: tls\n",
	  "p.yaml:2:1: 'verify' is not the first" },
	{ "duplicate key in JSON", "p.json", "{\"verify\": \"dns\", \"verify\": \"dns\"}",
	  "p.json:1:19: 'verify' is not the first" },
	{ "duplicate key by escape", "p.json",
	  "{\"verify\": \"dns\", \"\\u0076erify\": \"dns\"}",
	  "p.json:1:19: 'verify' is not the first" },
	{ "garbage behind JSON", "p.json", "{\"egress\":\n \"\xc3\xa9\"} x",
	  "p.json:2:7: this is not JSON: invalid character 'x' after top-level value" },
	{ "half JSON", "p.json", "{\"egress\": [",
	  "p.json:1:13: this is not JSON: unexpected end of JSON input" },
	{ "half a character in JSON", "p.json", "{\"verify\": \"\\ud800\"}",
	  "p.json:1:12: '\\xef\\xbf\\xbd' is not plain text: an escape is no" },
	{ "nested too deeply in JSON", "p.json",
	  "{\"egress\": [[[[[[[[[[[[[[[[[[[\"x\"]]]]]]]]]]]]]]]]]]]}",
	  "p.json:1:27: the document is nested too deeply" },
	{ "comment in JSON", "p.json", "{} // x", "this is not JSON" },
	{ "zero in a JSON text", "p.json",
	  "{\"egress\": [{\"action\": \"allow\", \"target\": \"a\\u0000.test\"}]}",
	  "p.json:1:" },
	{ "escape byte in a JSON text", "p.json",
	  "{\"egress\": [{\"action\": \"allow\", \"target\": \"a\\u001b.test\"}]}",
	  "'a\\x1b.test' is not plain text" },
	{ "place in JSON", "p.json",
	  "{\n  \"egress\": [\n    {\"action\": \"allow\", \"target\": \"*\"}\n  ]\n}",
	  "p.json:3:35: egress[0].target: '*' is not a target" },
	{ "anchor", "p.yaml", "egress: &x []\n", "anchors" },
	{ "alias", "p.yaml", "verify: *x\n", "aliases" },
	{ "unquoted wildcard", "p.yaml",
	  "egress:\n  - action: allow\n    target: *.pkg.test\n", "p.yaml:3:" },
	{ "tag", "p.yaml", "verify: !!str dns\n", "tags" },
	{ "tag on a list", "p.yaml", "egress: !x []\n", "tags" },
	{ "directive", "p.yaml", "%YAML 1.1\n---\negress: []\n", "directives" },
	{ "second document", "p.yaml", "egress: []\n---\negress: []\n",
	  "p.yaml:2:1: a policy is one document" },
	{ "tab indentation", "p.yaml", "egress:\n\t- a\n",
	  "p.yaml:2:1: this is not YAML" },
	{ "zero in a YAML text", "p.yaml", "verify: \"d\\0ns\"\n",
	  "'d\\x00ns' is not plain text" },
	{ "control byte", "p.yaml", "verify: dns # \x1b[1m\n",
	  "p.yaml:1:15: byte 0x1b is a control character" },
	{ "delete byte", "p.yaml", "# \x7f\n", "byte 0x7f is a control character" },
	{ "a rule that a terminal writes over", "p.yaml",
	  "egress:\n- {action: allow, target: a.test}\r# nothing              \n",
	  "p.yaml:2:34: byte 0x0d is a carriage return within a line" },
	{ "the same in JSON", "p.json",
	  "{\"egress\": [\r{\"action\": \"allow\", \"target\": \"a.test\"}]}\n",
	  "p.json:1:13: byte 0x0d is a carriage return" },
	{ "the same in a comment", "p.yaml", "# a\r# b\n",
	  "p.yaml:1:4: byte 0x0d is a carriage return" },
	{ "the same at the end", "p.yaml", "verify: dns\r",
	  "p.yaml:1:12: byte 0x0d is a carriage return" },
	{ "bad UTF-8", "p.yaml", "# \xc0\xaf\n", "p.yaml:1:3: byte 0xc0 is not UTF-8" },
	{ "surrogate", "p.yaml", "# \xed\xa0\x80\n", "is not UTF-8" },
	{ "text turned round", "p.yaml", "# \xe2\x80\xae\n",
	  "is an invisible character" },
	{ "a list at the top", "p.yaml", "- a\n", "a list stands here, not a mapping" },
	{ "a word at the top", "p.yaml", "allow\n", "'allow' is not a mapping" },
	{ "a key that is a list", "p.yaml", "? [a]\n: b\n", "a key is a word" },
	{ "wrapper beside others", "p.yaml", "verify: dns\nnetwork_policy: {}\n",
	  "network_policy stands alone" },
	{ "wrapper in a wrapper", "p.yaml", "network_policy: {network_policy: {}}\n",
	  "inside itself" },
	{ "verify", "p.yaml", "verify: no\n", "verify: 'no' is not a way to verify" },
	{ "dns", "p.yaml", "dns: cached\n", "dns: 'cached' is not a way to resolve" },
	{ "deniedNames", "p.yaml", "deniedNames: reset\n",
	  "deniedNames: 'reset' is not an answer for denied names" },
	{ "repin", "p.yaml", "repin: 6\n", "repin: '6' is not a time" },
	{ "repin too short", "p.yaml", "repin: 9s\n", "repin: '9s' is not a time" },
	{ "repin too long", "p.yaml", "repin: 31d\n", "repin: '31d' is not a time" },
	{ "on_denies of nothing", "p.yaml", "on_denies: {}\n",
	  "on_denies: count is missing: it needs count, window and action" },
	{ "on_denies without a window", "p.yaml", "on_denies: {count: 1, action: stop}\n",
	  "on_denies: window is missing" },
	{ "on_denies without an action", "p.yaml", "on_denies: {count: 1, window: 1m}\n",
	  "on_denies: action is missing" },
	{ "on_denies that is a word", "p.yaml", "on_denies: stop\n",
	  "on_denies: 'stop' is not a mapping" },
	{ "a count of 0", "p.yaml", "on_denies: {count: 0, window: 1m, action: stop}\n",
	  "on_denies.count: '0' is not a number of packets" },
	{ "a count too high", "p.yaml",
	  "on_denies: {count: 1000001, window: 1m, action: stop}\n",
	  "on_denies.count: '1000001' is not" },
	{ "a window too short", "p.yaml",
	  "on_denies: {count: 1, window: 500ms, action: stop}\n",
	  "on_denies.window: '500ms' is not a time" },
	{ "a window too long", "p.yaml",
	  "on_denies: {count: 1, window: 2d, action: stop}\n",
	  "on_denies.window: '2d' is not a time" },
	{ "another action", "p.yaml", "on_denies: {count: 1, window: 1m, action: kill}\n",
	  "on_denies.action: 'kill' is not what to do then" },
	{ "another key", "p.yaml",
	  "on_denies: {count: 1, window: 1m, action: stop, who: me}\n",
	  "on_denies: 'who' is not a key" },
	{ "unknown limit", "p.yaml", "limits: {speed: 1}\n",
	  "limits.speed: 'speed' is not the name of a limit" },
	{ "limit of 0", "p.yaml", "limits: {flows: 0}\n",
	  "limits.flows: '0' is not a value" },
	{ "limit over the ceiling", "p.yaml", "limits: {flows: 99999999}\n",
	  "limits.flows: '99999999' is not" },
	{ "a table can't be unlimited", "p.yaml", "limits: {flows: unlimited}\n",
	  "limits.flows: 'unlimited'" },
	{ "limit of half", "p.yaml", "limits: {flows: 0.5}\n", "limits.flows: '0.5'" },
	{ "extends that is no list", "p.yaml", "extends: default\n",
	  "extends: 'default' is not a list" },
	{ "a profile without a name", "p.yaml", "extends: ['']\n",
	  "p.yaml:1:11: extends[0]: '' is not the name of a profile" },
	{ "a profile that is a list", "p.yaml", "extends: [[a]]\n",
	  "extends[0]: a list stands here" },
	{ "limits that are no mapping", "p.yaml", "limits: 5\n",
	  "limits: '5' is not a mapping of limits" },
	{ "a limit that is a list", "p.yaml", "limits: {flows: [5]}\n",
	  "limits.flows: a list stands here" },
	{ "a port that is a list", "p.yaml",
	  "egress: [{action: allow, target: a.test, ports: [[80]]}]\n",
	  "egress[0].ports[0]: a list stands here, not a port" },
	{ "a target that is a list", "p.yaml",
	  "egress: [{action: allow, target: [a.test]}]\n",
	  "egress[0].target: a list stands here" },
	{ "a required address", "p.yaml",
	  "egress: [{action: allow, target: 10.0.0.1, required: true}]\n",
	  "egress[0].required: only a name can be required" },
	{ "a required deny", "p.yaml",
	  "egress: [{action: deny, target: a.test, required: true}]\n",
	  "egress[0].required: a name can't be denied and required" },
	{ "an unmetered name", "p.yaml",
	  "egress: [{action: allow, target: a.test, unmetered: true}]\n",
	  "egress[0].unmetered: only the names below a wildcard" },
	{ "too many ranges of ports", "p.yaml", many_ports,
	  "egress[0].ports: more than 64" },
	{ "nested too deeply", "p.yaml", "egress: [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]\n",
	  "p.yaml:1:24: the document is nested too deeply" },
	{ "nested too deeply in JSON", "p.json",
	  "{\"egress\": [[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}",
	  "p.json:1:27: the document is nested too deeply" },
	{ "place behind an escape in JSON", "p.json",
	  "{\"limits\": {\"a\\\"]\\u00e9\": 1,\n \"flows\": 1.5}}",
	  "p.json:2:11: limits.flows: '1.5' is not" },
	{ "null and true in JSON", "p.json", "{\"egress\": null, \"verify\": true}",
	  "p.json:1:28: verify: 'true' is not a way to verify" },
	{ "tag on a mapping", "p.yaml", "limits: !x {flows: 5}\n", "tags" },
	{ "anchor on a mapping", "p.yaml", "limits: &x {flows: 5}\n", "anchors" },
	{ "anchor on a word", "p.yaml", "verify: &x dns\n", "anchors" },
	{ "four bytes of UTF-8, and an error behind them", "p.yaml",
	  "# \xf0\x9f\x98\x80 \xf4\x90\x80\x80\n", "p.yaml:1:5: byte 0xf4 is not UTF-8" },
	{ "a line separator", "p.yaml", "# \xe2\x80\xa8\n", "is a line separator" },
	{ "a missing profile", "p.yaml", "extends: [nowhere]\n",
	  "p.yaml:1:11: extends[0]: 'nowhere' can't be extended: there is no such file" },
};

TEST(every_fault_names_its_place)
{
	for (size_t i = 0; i < ARRAY_SIZE(faulty); i++) {
		struct world w = { 0 };

		world_read(&w, faulty[i].file, faulty[i].text);
		if (w.result != -EINVAL || w.faults.errors == 0)
			fail_msg("%s: taken", faulty[i].what);
		if (!strstr(faults_text(&w), faulty[i].want))
			fail_msg("%s: %s", faulty[i].what, faults_text(&w));
		world_done(&w);
	}
}

TEST(all_faults_come_at_once)
{
	struct world w = { 0 };

	world_read(&w, "p.yaml",
		   "defaultAction: open\n"
		   "egress:\n"
		   "  - {action: allow, target: 10.0.0.0/33}\n"
		   "  - {action: permit, target: \"*.com\", ports: [0, 70000]}\n"
		   "verify: maybe\n");
	assert_int_equal(w.result, -EINVAL);
	assert_int_equal(w.faults.errors, 7);
	assert_int_equal(w.policy.count, 0);
	world_done(&w);
}

TEST(over_a_hundred_faults_are_counted)
{
	struct world w = { 0 };
	char text[8192] = "egress:\n";

	for (int i = 0; i < 150; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "  - x\n");
	world_read(&w, "p.yaml", text);
	assert_int_equal(w.faults.count, POLICY_FAULTS_MAX);
	assert_int_equal(w.faults.dropped, 50);
	assert_int_equal(w.faults.errors, 150);
	world_done(&w);
}

TEST(own_rules_come_before_those_of_extends)
{
	static const struct file files[] = {
		{ "a", "defaultAction: allow\nextends: [b]\negress: [{action: allow, "
		       "target: a.test}]\n" },
		{ "b", "verify: tls\negress: [{action: allow, target: b.test}]\n" },
		{ "c", "verify: dns\negress: [{action: allow, target: c.test}]\n" },
	};
	struct world w = { .files = files, .file_count = ARRAY_SIZE(files) };
	static const char *const want[] = { "own.test", "a.test", "b.test", "c.test" };

	world_read(&w, "p.yaml",
		   "extends: [a, c]\ndefaultAction: deny\n"
		   "egress: [{action: allow, target: own.test}]\n");
	expect_good(&w);
	assert_int_equal(w.policy.count, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++)
		assert_string_equal(w.policy.rules[i].target, want[i]);
	assert_string_equal(w.policy.rules[2].file, "b");
	assert_int_equal(w.policy.default_action, POLICY_DENY);
	assert_int_equal(w.policy.verify, POLICY_VERIFY_TLS);
	assert_int_equal(w.policy.source_count, 4);
	world_done(&w);
}

TEST(circles_and_depth_are_faults_at_their_place)
{
	static const struct file files[] = {
		{ "a", "extends: [b]\n" },
		{ "b", "extends: [a]\n" },
		{ "1", "extends: ['2']\n" },
		{ "2", "extends: ['3']\n" },
		{ "3", "extends: ['4']\n" },
		{ "4", "extends: ['5']\n" },
		{ "5", "extends: ['6']\n" },
		{ "6", "extends: ['7']\n" },
		{ "7", "extends: ['8']\n" },
		{ "8", "extends: ['9']\n" },
		{ "9", "\n" },
		{ "bad", "egress: [{action: allow, target: '*'}]\n" },
	};
	static const struct {
		const char *text, *want; /* NULL: good */
	} rows[] = {
		{ "extends: [a]",
		  "b:1:11: extends[0]: 'a' extends in a circle: a extends b extends a" },
		{ "extends: ['1']", "8:1:11: extends[0]: '9' is extended too deeply" },
		{ "extends: ['2']", NULL },
		{ "extends: ['9', '9']", NULL },
		{ "extends: [bad]", "bad:1:34: egress[0].target: '*'" },
		{ "extends: [p.yaml]", "p.yaml:1:11: extends[0]" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { .files = files, .file_count = ARRAY_SIZE(files) };

		world_read(&w, "p.yaml", rows[i].text);
		if (!rows[i].want)
			expect_good(&w);
		else if (!strstr(faults_text(&w), rows[i].want))
			fail_msg("%s: %s", rows[i].text, faults_text(&w));
		world_done(&w);
	}
}

/* What the checks over the whole say; NULL: nothing. */
static const struct {
	const char *what, *text, *want;
} checked[] = {
	{ "the issue's own case",
	  "egress:\n- {action: allow, target: \"*.pkg.test\"}\n"
	  "- {action: deny, target: internal.pkg.test}\n",
	  "p.yaml:3:3: warning: 'internal.pkg.test' is never reached: '*.pkg.test' (line "
	  "2)" },
	{ "the right order",
	  "egress:\n- {action: deny, target: internal.pkg.test}\n"
	  "- {action: allow, target: \"**.pkg.test\"}\n",
	  NULL },
	{ "a wildcard below a wildcard",
	  "egress:\n- {action: allow, target: \"**.pkg.test\"}\n"
	  "- {action: deny, target: \"*.a.pkg.test\"}\n",
	  "p.yaml:3:3: warning: '*.a.pkg.test' is never reached" },
	{ "both kinds once the name is decided",
	  "egress:\n- {action: deny, target: pkg.test}\n"
	  "- {action: allow, target: \"**.pkg.test\"}\n",
	  NULL },
	{ "the same twice",
	  "egress:\n- {action: allow, target: a.test}\n"
	  "- {action: allow, target: a.test}\n",
	  "hint: 'a.test' is never reached" },
	{ "a wildcard without its name",
	  "egress: [{action: allow, target: \"*.pkg.test\"}]\n",
	  "hint: '*.pkg.test' covers the names below" },
	{ "bytes without a name",
	  "egress: [{action: allow, target: a.test, ports: [443], raw: true}]\n",
	  "hint: 'a.test' lets bytes without a name pass on web ports" },
	{ "a wildcard with its name",
	  "egress:\n- {action: allow, target: pkg.test}\n"
	  "- {action: allow, target: \"*.pkg.test\"}\n",
	  NULL },
	{ "an allow inside a deny",
	  "egress:\n- {action: allow, target: 10.1.0.0/16}\n"
	  "- {action: deny, target: 10.0.0.0/8}\n",
	  "p.yaml:2:3: warning: '10.1.0.0/16' is never open: '10.0.0.0/8' (line 3)" },
	{ "a deny inside an allow",
	  "egress:\n- {action: allow, target: 10.0.0.0/8}\n"
	  "- {action: deny, target: 10.1.0.0/16}\n",
	  NULL },
	{ "every address", "egress: [{action: allow, target: 0.0.0.0/0}]\n",
	  "opens every address" },
	{ "shared storage",
	  "egress: [{action: allow, target: \"**.s3.amazonaws.com\"}]\n",
	  "known way out" },
	{ "shared storage from above",
	  "egress: [{action: allow, target: \"**.amazonaws.com\"}]\n", "known way out" },
	{ "one bucket", "egress: [{action: allow, target: mine.s3.amazonaws.com}]\n",
	  NULL },
	{ "blobs", "egress: [{action: allow, target: \"**.blob.core.windows.net\"}]\n",
	  "known way out" },
	{ "path-style storage",
	  "egress: [{action: allow, target: storage.googleapis.com}]\n",
	  "known way out" },
	{ "a fetcher", "egress: [{action: allow, target: r.jina.ai}]\n",
	  "fetches other sites" },
	{ "a forge", "egress: [{action: allow, target: github.com}]\n",
	  "can write there" },
	{ "a host of a tree",
	  "egress: [{action: allow, target: o123.ingest.sentry.io}]\n",
	  "known way out (sentry.io): it takes data with anybody's key" },
	{ "a pattern in a tree",
	  "egress: [{action: allow, target: \"*.ingest.sentry.io\"}]\n",
	  "known way out (sentry.io)" },
	{ "a name that ends alike", "egress: [{action: allow, target: notsentry.io}]\n",
	  NULL },
	{ "a host beside a way out",
	  "egress: [{action: allow, target: docs.github.com}]\n", NULL },
	{ "a registry of images",
	  "egress: [{action: allow, target: registry-1.docker.io}]\n",
	  "can write there" },
	{ "an API of models", "egress: [{action: allow, target: api.anthropic.com}]\n",
	  "file upload" },
	{ "a registry of packages",
	  "egress: [{action: allow, target: registry.npmjs.org}]\n", "can write there" },
	{ "tunnels", "egress: [{action: allow, target: \"*.trycloudflare.com\"}]\n",
	  "known way out" },
	{ "a private suffix", "egress: [{action: allow, target: \"**.github.io\"}]\n",
	  "anybody can have a name" },
	{ "a deny of a way out", "egress: [{action: deny, target: github.com}]\n", NULL },
	{ "localhost", "egress: [{action: allow, target: localhost}]\n", "own loopback" },
	{ "a deny of localhost", "egress: [{action: deny, target: x.localhost}]\n",
	  "own loopback" },
	{ "lifetimes", "limits: {min_lifetime: 1h, max_lifetime: 60s}\n",
	  "min_lifetime (3600) is more" },
};

TEST(the_whole_is_checked)
{
	for (size_t i = 0; i < ARRAY_SIZE(checked); i++) {
		struct world w = { 0 };
		int e;

		world_read(&w, "p.yaml", checked[i].text);
		expect_good(&w);
		e = build(&w);
		if (!checked[i].want && (w.faults.count > 0 || e != 0))
			fail_msg("%s: %s", checked[i].what, faults_text(&w));
		if (checked[i].want && !strstr(faults_text(&w), checked[i].want))
			fail_msg("%s: %s", checked[i].what, faults_text(&w));
		world_done(&w);
	}
}

TEST(each_check_tells_its_own_fault)
{
	static const char *const wanted[] = { "min_lifetime", "'refuse' needs",
					      "needs verify: tls",
					      "metadata, which only" };
	struct world w = { 0 };

	expect_no_plan(&w, "verify: dns\ndeniedNames: refuse\n"
			   "limits: {min_lifetime: 1h, max_lifetime: 60s}\negress:\n"
			   "- {action: allow, target: a.test, budget: {received: 1M}}\n"
			   "- {action: ask, target: metadata.google.internal}\n");
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!strstr(faults_text(&w), wanted[i]))
			fail_msg("no '%s': %s", wanted[i], faults_text(&w));
	world_done(&w);
}

TEST(the_sixteenth_own_port_list_is_an_error_at_its_rule)
{
	struct world w = { 0 };
	char text[4096] = "egress:\n";

	for (int i = 0; i < PLAN_PORT_LISTS_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "- {action: allow, target: a%d.test, ports: [%d]}\n", i,
			 1000 + i);
	expect_no_plan(&w, text);
	assert_non_null(
		strstr(faults_text(&w), "p.yaml:17:3: 'a15.test' brings the 16th"));
	world_done(&w);
}

TEST(what_can_not_be_pinned_is_an_error_at_its_place)
{
	struct world w = { 0 };

	world_read(&w, "p.yaml",
		   "dns: pinned\ndefaultAction: allow\negress:\n"
		   "  - {action: allow, target: \"*.a.test\"}\n"
		   "  - {action: allow, target: \"**.b.test\"}\n"
		   "  - {action: allow, target: c.test, types: [TXT]}\n"
		   "  - {action: allow, target: d.test}\n"
		   "  - {action: deny, target: \"*.e.test\"}\n"
		   "  - {action: allow, target: 45.0.0.0/8}\n");
	expect_good(&w);
	w.policy.limits[LIMIT_LEARNED_NAMES] = 1;
	assert_int_equal(build(&w), -EINVAL);
	assert_string_equal(
		faults_text(&w),
		"p.yaml:1:6: dns: 'pinned' needs defaultAction: deny: the names that are "
		"allowed have to be known\n"
		"p.yaml:4:5: '*.a.test' is a wildcard, but dns: pinned resolves every "
		"name before the start: write the exact names\n"
		"p.yaml:5:5: '**.b.test' is a wildcard, but dns: pinned resolves every "
		"name before the start: write the exact names\n"
		"p.yaml:6:5: 'c.test' has types, but dns: pinned answers with addresses "
		"alone\n"
		"p.yaml:1:6: dns: 'pinned' with 2 names is over the limit learned_names "
		"(1)\n");
	world_done(&w);
	w = (struct world){ 0 };
	world_read(&w, "p.yaml", "verify: dns\nrepin: 6h\n");
	assert_int_equal(build(&w), 0);
	assert_string_equal(faults_text(&w),
			    "p.yaml:2:8: warning: repin: changes nothing "
			    "without dns: pinned\n");
	world_done(&w);
}

TEST(refusing_needs_what_refuses)
{
	static const struct {
		const char *text, *fault;
	} rows[] = {
		{ "verify: tls\ndeniedNames: refuse\n", "" },
		{ "verify: dns\ndeniedNames: nxdomain\n", "" },
		{ "verify: dns\ndeniedNames: refuse\n",
		  "p.yaml:2:14: deniedNames: 'refuse' needs verify: tls: the relay "
		  "refuses the "
		  "connections\n" },
		{ "deniedNames: refuse\nverify: tls\ndns: pinned\n",
		  "p.yaml:1:14: deniedNames: 'refuse' needs dns: live: pinned names are "
		  "all "
		  "that is answered\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { 0 };

		world_read(&w, "p.yaml", rows[i].text);
		assert_int_equal(build(&w), rows[i].fault[0] ? -EINVAL : 0);
		assert_string_equal(faults_text(&w), rows[i].fault);
		world_done(&w);
	}
}

TEST(who_can_not_be_asked_is_an_error)
{
	static const struct {
		const char *text, *fault;
	} rows[] = {
		{ "defaultAction: ask\nverify: tls\n", "" },
		{ "egress: [{action: ask, target: '**.a.test', ports: [443]}]\n", "" },
		{ "egress: [{action: ask, target: 10.0.0.0/8}]\n", "" },
		{ "egress: [{action: ask, target: metadata.google.internal}]\n",
		  "can't be asked for: it is a cloud's metadata" },
		{ "egress: [{action: ask, target: '*.google.internal'}]\n",
		  "can't be asked for: it is a cloud's metadata" },
		{ "egress: [{action: ask, target: 169.254.169.254}]\n",
		  "can't be asked for: it is special" },
		{ "egress: [{action: ask, target: 127.0.0.0/8}]\n",
		  "can't be asked for: it is special" },
		{ "defaultAction: allow\negress: [{action: ask, target: 93.0.0.0/8}]\n",
		  "asks for an address, which defaultAction: allow opens" },
		{ "dns: pinned\negress: [{action: ask, target: a.test}]\n",
		  "asks, but dns: pinned resolves every name before the start" },
		{ "dns: pinned\ndefaultAction: ask\n",
		  "'pinned' needs defaultAction: deny" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { 0 };

		world_read(&w, "p.yaml", rows[i].text);
		assert_int_equal(build(&w), rows[i].fault[0] ? -EINVAL : 0);
		if (!strstr(faults_text(&w), rows[i].fault))
			fail_msg("%s: %s", rows[i].text, faults_text(&w));
		world_done(&w);
	}
}
