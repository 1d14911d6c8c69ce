// SPDX-License-Identifier: Apache-2.0
/* The rules of the command line: --allow and --deny. */
#include "read_world.h"

TEST(options_take_a_target_and_ports)
{
	static const struct {
		enum policy_action action;
		const char *text, *target; /* target NULL: refused */
		size_t ranges;
	} rows[] = {
		{ POLICY_ALLOW, "api.github.com", "api.github.com", 0 },
		{ POLICY_ALLOW, "api.github.com:443", "api.github.com", 2 },
		{ POLICY_ALLOW, "*.pkg.test:tcp/443,udp/80-90", "*.pkg.test", 2 },
		{ POLICY_ALLOW, "10.0.0.0/8:5432", "10.0.0.0/8", 2 },
		{ POLICY_ALLOW, "10.0.0.1:53", "10.0.0.1", 2 },
		{ POLICY_ALLOW, "2001:db8::1", "2001:db8::1", 0 },
		{ POLICY_ALLOW, "2001:db8::/32", "2001:db8::/32", 0 },
		{ POLICY_ALLOW, "[2001:db8::1]:443", "2001:db8::1", 2 },
		{ POLICY_ALLOW, "[2001:db8::/32]:443", "2001:db8::/32", 2 },
		{ POLICY_DENY, "a.test", "a.test", 0 },
		{ POLICY_DENY, "a.test:443", NULL, 0 },
		{ POLICY_ALLOW, "a.test:", NULL, 0 },
		{ POLICY_ALLOW, "a.test:53", NULL, 0 },
		{ POLICY_ALLOW, "a.test:0", NULL, 0 },
		{ POLICY_ALLOW, "", NULL, 0 },
		{ POLICY_ALLOW, ":443", NULL, 0 },
		{ POLICY_ALLOW, "[::1]", NULL, 0 },
		{ POLICY_ALLOW, "[a.test]:443", NULL, 0 },
		{ POLICY_ALLOW, "[10.0.0.1]:443", NULL, 0 },
		{ POLICY_ALLOW, "[::1]:", NULL, 0 },
		{ POLICY_ALLOW, "[::1", NULL, 0 },
		{ POLICY_ALLOW, "https://a.test", NULL, 0 },
		{ POLICY_ALLOW, "*", NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world w = { 0 };
		struct policy_reader r = reader(&w);
		const char *option = rows[i].action == POLICY_ALLOW ? "--allow"
								    : "--deny";
		int e = policy_read_option(&r, option, rows[i].action,
					   text_of(rows[i].text), &w.policy);

		if ((e == 0) != (rows[i].target != NULL))
			fail_msg("'%s': %s", rows[i].text, faults_text(&w));
		if (e == 0) {
			assert_string_equal(w.policy.rules[0].target, rows[i].target);
			assert_int_equal(w.policy.rules[0].ports.count, rows[i].ranges);
			assert_int_equal(w.policy.rules[0].line, 0);
		} else {
			assert_int_equal(w.faults.errors, 1);
		}
		world_done(&w);
	}
}

/* What a refused option says. */
static const struct {
	const char *what;
	enum policy_action action;
	const char *text, *want;
} refused[] = {
	{ "a port of a deny", POLICY_DENY, "a.test:443",
	  "--deny: a deny refuses every port: write the target alone" },
	{ "port 53 of a name", POLICY_ALLOW, "a.test:53",
	  "port 53 of a name can't be opened" },
	{ "port 53 inside a range", POLICY_ALLOW, "**.a.test:udp/50-60",
	  "port 53 of a name can't be opened" },
	{ "a bracket without ports", POLICY_ALLOW, "[::1]",
	  "'[::1]' is not a target: write [2001:db8::1]:443 or 2001:db8::1" },
	{ "a prefix in brackets that is none", POLICY_ALLOW, "[2001:db8::/129]:443",
	  "'2001:db8::/129' is not a prefix" },
	{ "a URL", POLICY_ALLOW, "https://a.test", "write the host alone" },
	{ "no port", POLICY_ALLOW, "a.test:", "is not a port" },
	{ "another protocol", POLICY_ALLOW, "a.test:sctp/5",
	  "only tcp/ and udp/ can stand in front" },
	{ "a range without an end", POLICY_ALLOW, "a.test:80-", "the range has no end" },
	{ "a range that runs backwards", POLICY_ALLOW, "a.test:90-80",
	  "the range runs backwards" },
	{ "control bytes", POLICY_ALLOW, "[\x1b]", "'[\\x1b]' is not a target" },
};

TEST(a_refused_option_says_why_and_adds_nothing)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct world w = { 0 };
		struct policy_reader r = reader(&w);
		const char *option = refused[i].action == POLICY_ALLOW ? "--allow"
								       : "--deny";

		if (policy_read_option(&r, option, refused[i].action,
				       text_of(refused[i].text), &w.policy) != -EINVAL ||
		    w.policy.count != 0)
			fail_msg("%s: taken", refused[i].what);
		if (!strstr(faults_text(&w), refused[i].want))
			fail_msg("%s: %s", refused[i].what, faults_text(&w));
		world_done(&w);
	}
}

/* Several --allow in order; the rules they make, as "TARGET:PORTS" joined by blanks. */
static const struct {
	const char *what;
	const char *options[3];
	const char *want; /* NULL: the last option is refused */
} joined[] = {
	{ "ports of one name add up", { "a.test:80", "a.test:443" }, "a.test:80,443" },
	{ "in any case of letters", { "a.test:80", "A.test:443" }, "a.test:80,443" },
	{ "three times",
	  { "a.test:80", "a.test:tcp/443", "a.test:81" },
	  "a.test:80-81,tcp/443" },
	{ "the same port twice", { "a.test:80", "a.test:80" }, "a.test:80" },
	{ "a port besides the default ones",
	  { "a.test", "a.test:9418" },
	  "a.test:default,9418" },
	{ "in the other order", { "a.test:853", "a.test" }, "a.test:default,853" },
	{ "as one option", { "a.test:default,tcp/853" }, "a.test:default,tcp/853" },
	{ "the default ones alone", { "a.test:default", "a.test" }, "a.test:" },
	{ "words of a rule",
	  { "a.test:443,private", "a.test:SRV" },
	  "a.test:default,443 private SRV" },
	{ "words alone",
	  { "*.a.test:raw,unmetered,PTR" },
	  "*.a.test: raw unmetered PTR" },
	{ "an address has no words of names", { "10.0.0.1:443,private" }, NULL },
	{ "nor has it types", { "10.0.0.1:PTR" }, NULL },
	{ "one name is not metered", { "a.test:unmetered" }, NULL },
	{ "an unknown word", { "a.test:443,privat" }, NULL },
	{ "a name below an earlier wildcard is asked first, and loses nothing",
	  { "b.test", "**.a.test:22,private", "x.a.test:9418" },
	  "b.test: x.a.test:22,9418 private **.a.test:22 private" },
	{ "the wildcard doesn't cover the name",
	  { "*.a.test:22", "a.test:9418" },
	  "*.a.test:22 a.test:9418" },
	{ "a name and the names below it are two",
	  { "a.test:80", "*.a.test:443" },
	  "a.test:80 *.a.test:443" },
	{ "two names", { "a.test:80", "b.test:443" }, "a.test:80 b.test:443" },
	{ "addresses are two rules, of which both count",
	  { "10.0.0.1:80", "10.0.0.1:443" },
	  "10.0.0.1:80 10.0.0.1:443" },
	{ "a bad port isn't joined", { "a.test:80", "a.test:0" }, NULL },
	{ "port 53 isn't joined", { "a.test:52", "a.test:53" }, NULL },
};

static const char *rules_text(const struct policy *p)
{
	static char all[1024];
	char ports[256];

	all[0] = '\0';
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		rule_ports_text(&r->ports, ports, sizeof(ports));
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s:%s",
			 i > 0 ? " " : "", r->target, ports);
		for (size_t k = 0; k < RULE_FLAG_COUNT; k++)
			if (r->flags & rule_flag_words[k].flag)
				snprintf(all + strlen(all), sizeof(all) - strlen(all),
					 " %s", rule_flag_words[k].key);
		for (size_t k = 0; k < RULE_TYPE_COUNT; k++)
			if (r->types >> k & 1)
				snprintf(all + strlen(all), sizeof(all) - strlen(all),
					 " %s", rule_type_words[k]);
	}
	return all;
}

TEST(ports_of_one_name_are_joined)
{
	for (size_t i = 0; i < ARRAY_SIZE(joined); i++) {
		struct world w = { 0 };
		struct policy_reader r = reader(&w);
		int e = 0;

		for (size_t k = 0;
		     e == 0 && k < ARRAY_SIZE(joined[i].options) && joined[i].options[k];
		     k++)
			e = policy_read_option(&r, "--allow", POLICY_ALLOW,
					       text_of(joined[i].options[k]), &w.policy);
		if ((e == 0) != (joined[i].want != NULL))
			fail_msg("%s: %s", joined[i].what, faults_text(&w));
		if (e == 0 && strcmp(rules_text(&w.policy), joined[i].want) != 0)
			fail_msg("%s: %s", joined[i].what, rules_text(&w.policy));
		world_done(&w);
	}
}

/* A document's rule is not the command line's to change. */
TEST(a_documents_rule_is_left_alone)
{
	struct world w = { 0 };
	struct policy_reader r = reader(&w);

	world_read(&w, "p.yaml",
		   "egress: [{action: allow, target: a.test, ports: [80]}]\n");
	expect_good(&w);
	assert_int_equal(policy_read_option(&r, "--allow", POLICY_ALLOW,
					    text_of("a.test:443"), &w.policy),
			 0);
	assert_string_equal(rules_text(&w.policy), "a.test:80 a.test:443");
	world_done(&w);
}

TEST(too_many_ranges_of_ports_are_refused)
{
	struct world w = { 0 };
	struct policy_reader r = reader(&w);
	char text[1024] = "a.test:1000";

	for (unsigned int i = 1; i <= PLAN_PORT_RANGES_MAX; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), ",tcp/%u",
			 2000 + 2 * i);
	assert_int_equal(
		policy_read_option(&r, "--allow", POLICY_ALLOW, text_of(text), &w.policy),
		-EINVAL);
	assert_non_null(strstr(faults_text(&w), "more than 64 separate ranges of ports"));
	world_done(&w);
}

TEST(a_list_of_ports_that_does_not_fit_is_cut)
{
	const struct plan_port_range ranges[] = {
		{ IPPROTO_TCP, 0, 1000, 2000 },
		{ IPPROTO_TCP, 0, 3000, 4000 },
		{ IPPROTO_UDP, 0, 3000, 4000 },
	};
	static const struct {
		size_t size;
		const char *want;
	} rows[] = {
		{ 64, "tcp/1000-2000,3000-4000" },
		{ 24, "tcp/1000-2000,3000-4000" },
		{ 20, "tcp/1000-2000..." },
		{ 16, "tcp/1000-200..." },
		{ 4, "..." },
		{ 3, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char buf[64];

		rule_ports_format(ranges, ARRAY_SIZE(ranges), buf, rows[i].size);
		assert_string_equal(buf, rows[i].want);
	}
}
