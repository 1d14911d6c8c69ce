// SPDX-License-Identifier: Apache-2.0
/* Rules that end: what the text says, what the plan decides at each time, what becomes of
 * documents. */
#include <stdlib.h>
#include <time.h>

#include "event/json.h"
#include "opensandbox/document.h"
#include "policy/explain.h"
#include "policy/policy.h"
#include "policy/random_policy.h"
#include "policy/read_world.h"

enum { NOW_MS = 1000 * 1000 };

/* -- the text ----------------------------------------------------------------------- */

struct row {
	const char *what, *keys, *fault; /* fault "": none */
	int64_t until_ms;
};

TEST(keys_are_read_and_what_is_no_end_is_a_fault)
{
	static const struct row rows[] = {
		{ "a time", "until: 1970-01-01T00:30:00Z", "", 1800 * 1000 },
		{ "with an offset", "until: '1970-01-01T02:30:00+02:00'", "",
		  1800 * 1000 },
		{ "a length", "for: 10m", "", NOW_MS + 600 * 1000 },
		{ "the first moment is no «never»", "until: 1970-01-01T00:00:00Z", "",
		  1 },
		{ "half a time", "until: 1970-01-01", "is not a time" },
		{ "a word", "until: tomorrow", "is not a time" },
		{ "nothing", "until: null", "not a time" },
		{ "a number", "until: 1800", "is not a time" },
		{ "a day that isn't", "until: 2026-02-30T00:00:00Z", "is not a time" },
		{ "no length", "for: 0s", "is not a time from 1s to 366d" },
		{ "too long", "for: 367d", "is not a time from 1s to 366d" },
		{ "a bare number", "for: 10", "is not a time from 1s to 366d" },
		{ "both", "for: 10m, until: 1970-01-01T00:30:00Z", "write one of them" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { 0 };
		struct policy_reader r = reader(&w);
		char text[256];

		r.now_ms = NOW_MS;
		snprintf(text, sizeof(text),
			 "egress:\n- {action: allow, target: a.test, %s}\n",
			 rows[i].keys);
		w.result = policy_read(&r, "p.yaml", text_of(text), POLICY_FORMAT_YAML,
				       &w.policy);
		if (rows[i].fault[0]) {
			if (w.result == 0 || !strstr(faults_text(&w), rows[i].fault))
				fail_msg("%s: %s", rows[i].what, faults_text(&w));
		} else {
			expect_good(&w);
			if (w.policy.rules[0].until_ms != rows[i].until_ms)
				fail_msg("%s: %lld", rows[i].what,
					 (long long)w.policy.rules[0].until_ms);
		}
		world_done(&w);
	}
}

TEST(a_text_that_is_read_again_has_no_lengths)
{
	struct world w = { 0 };

	world_read(&w, "p.yaml",
		   "egress:\n- {action: allow, target: a.test, for: 10m}\n");
	assert_int_not_equal(w.result, 0);
	assert_non_null(strstr(faults_text(&w), "write `until`"));
	world_done(&w);
}

TEST(what_would_open_by_itself_can_not_end)
{
	static const char *const texts[] = {
		"egress: [{action: deny, target: a.test, until: 2026-01-01T00:00:00Z}]",
		"egress: [{action: deny, target: 10.0.0.0/8, until: "
		"2026-01-01T00:00:00Z}]",
		"egress: [{action: allow, target: 169.254.169.254, until: "
		"2026-01-01T00:00:00Z}]",
		"defaultAction: allow\negress: [{action: allow, target: 10.0.0.1, until: "
		"2026-01-01T00:00:00Z}]",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct world w = { 0 };
		struct policy_reader r = reader(&w);

		world_read(&w, "p.yaml", texts[i]);
		if (w.result == 0)
			w.result = policy_build(&r, &w.policy, NULL, NULL);
		if (w.result == 0)
			fail_msg("%s", texts[i]);
		world_done(&w);
	}
}

TEST(more_ends_than_a_plan_holds_are_a_fault)
{
	struct rule rules[PLAN_ENDS_MAX + 1];
	struct policy p = { .rules = rules, .count = ARRAY_SIZE(rules) };
	uint8_t *bytes = NULL;
	struct err err = { 0 };
	size_t size;

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++)
		rules[i] =
			(struct rule){ .action = POLICY_ALLOW,
				       .kind = TARGET_PREFIX,
				       .prefix = { { ADDR_V4, { 11, (uint8_t)i } }, 16 },
				       .target = "t",
				       .file = "f",
				       .comment = "",
				       .until_ms = (int64_t)(100 - i) };
	p.count--;
	assert_int_equal(policy_compile(&p, &bytes, &size, &err), 0);
	free(bytes);
	p.count++;
	assert_int_equal(policy_compile(&p, &bytes, &size, &err), -E2BIG);
	assert_non_null(strstr(err.text, "64 different ends"));
}

/* -- the plan ----------------------------------------------------------------------- */

struct compiled {
	uint8_t *bytes;
	struct plan plan;
};

static struct compiled compile(const struct policy *p)
{
	struct compiled c = { 0 };
	struct err err = { 0 };
	size_t size;

	if (policy_compile(p, &c.bytes, &size, &err) < 0 ||
	    plan_open(c.bytes, size, &c.plan, &err) < 0)
		fail_msg("%s", err.text);
	return c;
}

static const char *ports_of(const struct plan *p, uint8_t list, char *buf)
{
	return policy_explain_ports(p, list, buf, 256);
}

static void same_verdict(const struct plan *a, struct plan_verdict x,
			 const struct plan *b, struct plan_verdict y)
{
	char one[256], other[256];

	assert_int_equal(x.action, y.action);
	assert_int_equal(x.flags, y.flags);
	assert_int_equal(x.rule == PLAN_NO_RULE, y.rule == PLAN_NO_RULE);
	assert_string_equal(plan_rule(a, x.rule).comment, plan_rule(b, y.rule).comment);
	assert_string_equal(ports_of(a, x.port_list, one),
			    ports_of(b, y.port_list, other));
}

/* The prefixes of one set don't overlap, and cover what those of @b cover. */
static void same_ranges(const struct plan *a, const struct plan *b,
			const struct addr *addr)
{
	uint32_t covered[2][PLAN_CLOSED + 1] = { { 0 } };

	for (int side = 0; side < 2; side++) {
		const struct plan *p = side ? b : a;

		for (size_t i = 0; i < plan_prefix_count(p); i++) {
			struct plan_prefix x = plan_prefix(p, i);

			if (x.rule == PLAN_NO_RULE || !prefix_contains(&x.prefix, addr))
				continue;
			covered[side][x.action]++;
			for (size_t j = 0; j < i; j++) {
				struct plan_prefix y = plan_prefix(p, j);

				assert_false(y.rule != PLAN_NO_RULE &&
					     x.action == y.action &&
					     x.port_list == y.port_list &&
					     prefix_contains(&y.prefix, addr));
			}
		}
	}
	assert_memory_equal(covered[0], covered[1], sizeof(covered[0]));
}

enum { RULES = 14 };

static void compare_at(const struct policy *policy, struct plan *plan, int64_t now_ms,
		       uint32_t *seed)
{
	static const uint16_t ports[] = { 0, 22, 53, 85, 443, 8080 };
	struct rule left[RULES];
	struct policy rest = *policy;
	struct compiled c;

	rest.rules = left;
	rest.count = 0;
	for (size_t i = 0; i < policy->count; i++) {
		left[rest.count] = policy->rules[i];
		left[rest.count].until_ms = 0;
		rest.count += policy->rules[i].until_ms == 0 ||
			      policy->rules[i].until_ms > now_ms;
	}
	c = compile(&rest);
	plan_set_time(plan, now_ms);
	for (int i = 0; i < 40; i++) {
		struct dns_name n = random_name(seed);
		struct addr a = random_addr(seed);
		uint16_t port = ports[random_next(seed) % ARRAY_SIZE(ports)];

		same_verdict(plan, plan_match_name(plan, &n), &c.plan,
			     plan_match_name(&c.plan, &n));
		same_verdict(plan, plan_match_addr(plan, &a, IPPROTO_TCP, port), &c.plan,
			     plan_match_addr(&c.plan, &a, IPPROTO_TCP, port));
		assert_int_equal(plan_names_addr(plan, &a), plan_names_addr(&c.plan, &a));
		same_ranges(plan, &c.plan, &a);
	}
	free(c.bytes);
}

TEST(a_rule_that_has_ended_is_as_if_it_were_not_there)
{
	static const char *const names[RULES] = { "0", "1", "2", "3",  "4",  "5",  "6",
						  "7", "8", "9", "10", "11", "12", "13" };

	for (uint32_t round = 1; round <= 400; round++) {
		struct rule rules[RULES];
		struct policy policy;
		struct compiled c;
		uint32_t seed = round;

		random_policy(&seed, rules, ARRAY_SIZE(rules), &policy);
		policy.default_action = POLICY_DENY;
		for (size_t i = 0; i < policy.count; i++) {
			rules[i].comment = names[i];
			if (rules[i].action == POLICY_ALLOW && random_next(&seed) % 3)
				rules[i].until_ms = 100 * (1 + random_next(&seed) % 3);
		}
		c = compile(&policy);
		for (int64_t now_ms = 0; now_ms <= 300; now_ms += 50)
			compare_at(&policy, &c.plan, now_ms, &seed);
		free(c.bytes);
	}
}

/* As if it were a deny of its target. */
TEST(a_rule_whose_budget_is_used_up_denies)
{
	static const uint16_t ports[] = { 0, 22, 85, 443, 8080 };

	for (uint32_t round = 1; round <= 400; round++) {
		struct rule rules[RULES], turned[RULES];
		struct policy policy, other;
		struct compiled c, d;
		uint32_t seed = round;
		uint64_t spent = 0;
		size_t budgets = 0;

		random_policy(&seed, rules, ARRAY_SIZE(rules), &policy);
		for (size_t i = 0; i < policy.count; i++) {
			turned[i] = rules[i];
			if (rules[i].action != POLICY_ALLOW ||
			    random_next(&seed) % 3 == 0)
				continue;
			rules[i].budget.sent = 1;
			if (random_next(&seed) % 2) {
				spent |= UINT64_C(1) << budgets;
				turned[i].action = POLICY_DENY;
				turned[i].ports.count = 0;
			}
			budgets++;
		}
		other = policy;
		other.rules = turned;
		c = compile(&policy);
		d = compile(&other);
		c.plan.spent = spent;
		for (int i = 0; i < 60; i++) {
			struct dns_name n = random_name(&seed);
			struct addr a = random_addr(&seed);
			uint16_t port = ports[random_next(&seed) % ARRAY_SIZE(ports)];
			struct plan_verdict x = plan_match_name(&c.plan, &n);
			struct plan_verdict y = plan_match_name(&d.plan, &n);

			assert_int_equal(x.action, y.action);
			assert_int_equal(x.rule, y.rule);
			assert_int_equal(
				plan_match_addr(&c.plan, &a, IPPROTO_TCP, port).action,
				plan_match_addr(&d.plan, &a, IPPROTO_TCP, port).action);
			same_ranges(&c.plan, &d.plan, &a);
		}
		free(c.bytes);
		free(d.bytes);
	}
}

TEST(a_plan_that_nobody_told_the_time_has_no_grants)
{
	struct rule rule = { .action = POLICY_ALLOW,
			     .kind = TARGET_NAME,
			     .target = "a.test",
			     .file = "f",
			     .comment = "",
			     .until_ms = INT64_MAX };
	struct policy p = { .rules = &rule, .count = 1 };
	struct compiled c;

	assert_int_equal(dns_name_parse(text_of("a.test"), &rule.name), 0);
	c = compile(&p);
	assert_int_equal(plan_match_name(&c.plan, &rule.name).action, POLICY_DENY);
	plan_set_time(&c.plan, 1);
	assert_int_equal(plan_match_name(&c.plan, &rule.name).action, POLICY_ALLOW);
	free(c.bytes);
}

/* -- documents ---------------------------------------------------------------------- */

static struct document *document_of(const char *text)
{
	struct document *d = NULL;
	struct err err = { 0 };

	if (document_parse(text_of(text), NULL, NULL, &d, &err) < 0)
		fail_msg("%s", err.text);
	return d;
}

static void expect_rules(struct document *d, const char *rules)
{
	char *text = document_rules_json(d);

	assert_string_equal(text, rules);
	free(text);
	document_free(d);
}

TEST(a_length_becomes_a_time_and_what_has_ended_goes)
{
	struct document *d = document_of(
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\",\"for\":"
		"\"10m\","
		"\"ports\":[443]},{\"action\":\"allow\",\"target\":\"b.test\",\"until\":"
		"\"1970-01-01T00:16:40Z\"},{\"action\":\"allow\",\"target\":\"c.test\","
		"\"until\":\"1970-01-01T00:16:41Z\"},{\"action\":\"allow\",\"target\":"
		"\"d.test\",\"for\":\"never\"}]}");

	assert_int_equal(document_settle_ends(d, NOW_MS), 0);
	expect_rules(d, "[{\"action\":\"allow\",\"target\":\"a.test\",\"ports\":[443],"
			"\"until\":\"1970-01-01T00:26:40.000Z\"},{\"action\":\"allow\","
			"\"target\":\"c.test\",\"until\":\"1970-01-01T00:16:41Z\"},{"
			"\"action\":\"allow\",\"target\":\"d.test\",\"for\":\"never\"}]");
}

/* What a policy may not say is refused, whenever it is said. */
TEST(only_an_allow_is_left_out)
{
	struct document *d = document_of(
		"{\"egress\":[{\"action\":\"deny\",\"target\":\"a.test\","
		"\"until\":\"1970-01-01T00:00:01Z\"},{\"action\":\"allow\",\"target\":"
		"\"b.test\",\"until\":\"1970-01-01T00:00:01Z\"}]}");

	assert_int_equal(document_settle_ends(d, NOW_MS), 0);
	expect_rules(d, "[{\"action\":\"deny\",\"target\":\"a.test\","
			"\"until\":\"1970-01-01T00:00:01Z\"}]");
}

#define EARLY	   "2026-01-01T00:00:00Z"
#define LATE	   "2027-01-01T00:00:00Z"
#define A(more)	   "{\"action\":\"allow\",\"target\":\"a.test\"" more "}"
#define W(t, more) "{\"action\":\"allow\",\"target\":\"" t "\"" more "}"
#define ON(p)	   ",\"ports\":[" p "]"
#define DENY(t)	   "{\"action\":\"deny\",\"target\":\"" t "\"}"
#define TO(t)	   ",\"until\":\"" t "\""

TEST(grants_of_one_name_stand_side_by_side)
{
	static const struct {
		const char *what, *old, *grant, *want;
	} rows[] = {
		{ "the first", "", A(ON("\"tcp/443\"") TO(EARLY)),
		  A(ON("\"tcp/443\"") TO(EARLY)) },
		{ "one that ends later", A(ON("\"tcp/443\"") TO(EARLY)),
		  A(ON("\"tcp/22\"") TO(LATE)),
		  A(ON("\"tcp/22\",\"tcp/443\"") TO(EARLY)) "," A(ON("\"tcp/22\"")
									  TO(LATE)) },
		{ "one that ends sooner", A(ON("443") TO(LATE)), A(ON("22") TO(EARLY)),
		  A(ON("\"22\",\"443\"") TO(EARLY)) "," A(ON("443") TO(LATE)) },
		{ "one that doesn't end", A(ON("443") TO(LATE)), A(ON("22")),
		  A(ON("\"22\",\"443\"") TO(LATE)) "," A(ON("22")) },
		{ "before one that doesn't end", A(ON("80")), A(ON("22") TO(LATE)),
		  A(ON("\"22\",\"80\"") TO(LATE)) "," A(ON("80")) },
		{ "both for good", A(ON("80")), A(ON("22")), A(ON("\"22\",\"80\"")) },
		{ "between two", A(ON("1") TO(EARLY)) "," A(ON("3")), A(ON("2") TO(LATE)),
		  A(ON("\"1-2\"") TO(EARLY)) "," A(ON("\"2-3\"")
							   TO(LATE)) "," A(ON("3")) },
		{ "what is open already", A(ON("22,443")), A(ON("22") TO(LATE)),
		  A(ON("22,443")) },
		{ "the same for longer", A(ON("22") TO(EARLY)), A(ON("22") TO(LATE)),
		  A(ON("\"22\"") TO(EARLY)) "," A(ON("22") TO(LATE)) },
		{ "one that has ended", A(ON("22") TO("2000-01-01T00:00:00Z")),
		  A(ON("80") TO(LATE)), A(ON("80") TO(LATE)) },
		{ "what else the rule says",
		  A(ON("443") ",\"types\":[\"TXT\"],\"raw\":true"),
		  A(ON("22") ",\"types\":[\"MX\"]" TO(LATE)),
		  A(ON("\"22\",\"443\"") ",\"types\":[\"TXT\",\"MX\"],\"raw\":true" TO(
			  LATE)) "," A(ON("443") ",\"types\":[\"TXT\"],\"raw\":true") },
		{ "the default ports", A(""), A(ON("853") TO(LATE)),
		  A(ON("\"default\",\"853\"") TO(LATE)) "," A("") },
		{ "what asks, for a time", "{\"action\":\"ask\",\"target\":\"a.test\"}",
		  A(ON("22") TO(LATE)),
		  A(ON("22") TO(LATE)) ",{\"action\":\"ask\",\"target\":\"a.test\"}" },
		{ "what asks, for good", "{\"action\":\"ask\",\"target\":\"a.test\"}",
		  A(ON("22")), A(ON("22")) },
		{ "behind a pattern that decides",
		  "{\"action\":\"ask\",\"target\":\"**.a.test\"}," A(ON("80")),
		  A(ON("22") TO(LATE)),
		  A(ON("22") TO(LATE)) ",{\"action\":\"ask\",\"target\":\"**.a.test\"}"
				       "," A(ON("80")) },
		{ "what a pattern opens", W("**.a.test", ON("443")), A(ON("22") TO(LATE)),
		  A(ON("\"22\",\"443\"") TO(LATE)) "," W("**.a.test", ON("443")) },
		{ "what a pattern opens that ends sooner",
		  W("**.a.test", ON("443") TO(EARLY)), A(ON("22")),
		  A(ON("\"22\",\"443\"") TO(EARLY)) "," A(ON("22")) "," W(
			  "**.a.test", ON("443") TO(EARLY)) },
		{ "behind the deny of a suffix", DENY("*.test") "," A(ON("443")),
		  A(ON("22") TO(LATE)),
		  A(ON("22") TO(LATE)) "," DENY("*.test") "," A(ON("443")) },
		{ "a pattern with a budget",
		  W("**.a.test", ",\"budget\":{\"sent\":\"1M\"}"), A(ON("22")), NULL },
		{ "a rule that denies, for good", DENY("a.test"), A(ON("22")),
		  A(ON("22")) },
		{ "a rule that denies, for a time", DENY("a.test"), A(ON("22") TO(LATE)),
		  A(ON("22") TO(LATE)) "," DENY("a.test") },
		{ "a rule with a budget", A(ON("443") ",\"budget\":{\"sent\":\"1M\"}"),
		  A(ON("22") TO(LATE)), NULL },
		{ "a pattern", "", "{\"action\":\"allow\",\"target\":\"*.a.test\"}",
		  NULL },
		{ "a time that is none", A(ON("80")), A(ON("22") ",\"for\":\"soon\""),
		  NULL },
		{ "an end that is none", A(ON("80")), A(ON("22") TO("soon")), NULL },
		{ "a deny", "", "{\"action\":\"deny\",\"target\":\"a.test\"}", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char text[1024], want[1024];
		struct document *old, *next = NULL;
		struct err err = { 0 };
		int r;

		snprintf(text, sizeof(text), "{\"egress\":[%s]}", rows[i].old);
		old = document_of(text);
		snprintf(text, sizeof(text), "[%s]", rows[i].grant);
		r = document_grant(old, text_of(text), NOW_MS + INT64_C(1700000000000),
				   &next, &err);
		if ((r < 0) != !rows[i].want)
			fail_msg("%s: %d %s", rows[i].what, r, err.text);
		document_free(old);
		if (r < 0)
			continue;
		snprintf(want, sizeof(want), "[%s]", rows[i].want);
		expect_rules(next, want);
	}
}

/* As many as a document can hold: each was compared with all before it. */
TEST(a_grant_beside_many_ports_is_made_soon)
{
	enum { MANY = 60000, SECONDS = 3 };
	CLEAN(jtext) struct jtext text = { .grows = true };
	struct document *old, *next = NULL;
	struct err err = { 0 };
	clock_t begin;
	char port[16];

	jtext_put(&text, text_of("{\"egress\":[{\"action\":\"allow\",\"target\":"
				 "\"a.test\",\"ports\":["));
	for (int i = 1; i <= MANY; i++) {
		snprintf(port, sizeof(port), "%s\"tcp/%d\"", i > 1 ? "," : "", 1000 + i);
		jtext_put(&text, text_of(port));
	}
	jtext_put(&text, text_of("]}]}"));
	jtext_put(&text, (struct text){ "", 1 });
	old = document_of(text.buf);
	begin = clock();
	assert_int_equal(document_grant(old,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"a.test\",\"ports\":[\"tcp/22\"]}]"),
					NOW_MS, &next, &err),
			 0);
	assert_true(clock() - begin < SECONDS * CLOCKS_PER_SEC);
	expect_rules(next, "[{\"action\":\"allow\",\"target\":\"a.test\",\"ports\":["
			   "\"tcp/22\",\"tcp/1001-61000\"]}]");
	document_free(old);
}

/* It counts wherever it stands, and without it wider rules would open more than was
 * granted. */
TEST(a_grant_leaves_the_deny_of_an_address)
{
	static const char *const denies[] = { DENY("93.1.2.3"), DENY("93.1.2.3/32"),
					      DENY("93.0.0.0/8") };
	static const char *const ends[] = { "", ",\"for\":\"1h\"" };

	for (size_t i = 0; i < ARRAY_SIZE(denies) * ARRAY_SIZE(ends); i++) {
		struct document *old, *next = NULL;
		struct err err = { 0 };
		char text[256];

		snprintf(text, sizeof(text), "{\"egress\":[%s]}",
			 denies[i / ARRAY_SIZE(ends)]);
		old = document_of(text);
		snprintf(text, sizeof(text),
			 "[{\"action\":\"allow\",\"target\":\"93.1.2.3\"%s}]",
			 ends[i % ARRAY_SIZE(ends)]);
		assert_int_equal(document_grant(old, text_of(text), NOW_MS, &next, &err),
				 -EPERM);
		document_free(old);
	}
}

TEST(grants_of_one_address_stand_side_by_side)
{
	struct document *old =
		document_of("{\"egress\":[{\"action\":\"allow\",\"target\":\"93.1.2.3\","
			    "\"ports\":[443]}]}");
	struct document *next = NULL, *same = NULL;
	struct err err = { 0 };

	assert_int_equal(document_grant(old,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"93.1.2.3\",\"ports\":[22]}]"),
					NOW_MS, &next, &err),
			 0);
	assert_int_equal(document_grant(old,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"93.1.2.3\",\"ports\":[443],\"for\":"
						"\"1h\"}]"),
					NOW_MS, &same, &err),
			 0);
	assert_true(document_equal(old, same));
	document_free(same);
	document_free(old);
	expect_rules(next, "[{\"action\":\"allow\",\"target\":\"93.1.2.3\",\"ports\":"
			   "[22]},{\"action\":\"allow\",\"target\":\"93.1.2.3\","
			   "\"ports\":[443]}]");
}

/* A word of a grant stays a word, whatever is in it. */
TEST(what_a_grant_adds_is_escaped)
{
	struct document *old =
		document_of("{\"egress\":[{\"action\":\"allow\","
			    "\"target\":\"a.test\",\"types\":[\"SRV\"]}]}");
	struct document *next = NULL, *again = NULL;
	struct err err = { 0 };
	char *text;

	assert_int_equal(document_grant(old,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"a.test\",\"types\":[\"M\\\"X\"]}]"),
					NOW_MS, &next, &err),
			 0);
	text = document_json(next, false);
	assert_non_null(text);
	if (document_parse(text_of(text), NULL, NULL, &again, &err) < 0)
		fail_msg("%s: %s", text, err.text);
	assert_true(document_equal(next, again));
	free(text);
	document_free(old);
	document_free(next);
	document_free(again);
}

/* What was allowed for good is so again when the grant in front of it ends. */
TEST(a_patch_that_ends_leaves_the_rule_that_does_not)
{
	struct document *first = document_of("{\"egress\":[{\"action\":\"allow\","
					     "\"target\":\"a.test\",\"ports\":[443]}]}");
	struct document *second = NULL, *third = NULL, *fourth = NULL;
	struct err err = { 0 };

	assert_int_equal(document_merge(first,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"a.test\",\"until\":\"2026-01-01T00:00:"
						"00Z\"}]"),
					NULL, NULL, &second, &err),
			 0);
	assert_int_equal(document_rule_count(second), 2);
	assert_int_equal(document_merge(second,
					text_of("[{\"action\":\"allow\",\"target\":"
						"\"a.test\",\"until\":\"2027-01-01T00:00:"
						"00Z\"}]"),
					NULL, NULL, &third, &err),
			 0);
	document_free(first);
	document_free(second);
	assert_int_equal(document_merge(third,
					text_of("[{\"action\":\"deny\",\"target\":"
						"\"a.test\"}]"),
					NULL, NULL, &fourth, &err),
			 0);
	expect_rules(third,
		     "[{\"action\":\"allow\",\"target\":\"a.test\",\"until\":\"2027-"
		     "01-01T00:00:00Z\"},{\"action\":\"allow\",\"target\":\"a.test\","
		     "\"ports\":[443]}]");
	expect_rules(fourth, "[{\"action\":\"deny\",\"target\":\"a.test\"}]");
}
