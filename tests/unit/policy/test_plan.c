// SPDX-License-Identifier: Apache-2.0
#include "policy/plan.h"

#include <errno.h>
#include <string.h>

#include "policy/limits.h"
#include "policy/policy.h"
#include "random_policy.h"
#include "unit.h"

/* A compiled policy and its bytes. */
struct world {
	uint8_t *bytes;
	size_t size;
	struct plan plan;
};

static void world_done(struct world *w)
{
	free(w->bytes);
}

static struct world compile(const struct policy *policy)
{
	struct world w = { 0 };
	struct err err = { 0 };

	if (policy_compile(policy, &w.bytes, &w.size, &err) < 0)
		fail_msg("compile: %s", err.text);
	if (plan_open(w.bytes, w.size, &w.plan, &err) < 0)
		fail_msg("open: %s", err.text);
	return w;
}

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static struct addr addr_of(const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return a;
}

static struct rule name_rule(enum policy_action action, enum rule_target kind,
			     const char *name)
{
	return (struct rule){ .action = action,
			      .kind = kind,
			      .name = name_of(name),
			      .target = name,
			      .file = "policy.yaml",
			      .comment = "" };
}

static struct rule addr_rule(enum policy_action action, const char *prefix)
{
	struct rule r = { .action = action,
			  .kind = TARGET_PREFIX,
			  .target = prefix,
			  .file = "policy.yaml",
			  .comment = "" };

	assert_true(prefix_parse(prefix, strlen(prefix), false, &r.prefix));
	return r;
}

TEST(an_empty_policy_denies_everything)
{
	struct policy policy = { 0 };
	struct world w = compile(&policy);
	struct dns_name n = name_of("api.ok.test");
	struct addr a = addr_of("198.51.100.7");

	assert_int_equal(plan_match_name(&w.plan, &n).action, POLICY_DENY);
	assert_int_equal(plan_match_name(&w.plan, &n).rule, PLAN_NO_RULE);
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
			 POLICY_DENY);
	assert_int_equal(plan_rule_count(&w.plan), 0);
	assert_int_equal(plan_prefix_count(&w.plan), 0);
	assert_int_equal(plan_port_list_count(&w.plan), 1);
	world_done(&w);
}

TEST(names_match_as_their_kind_says)
{
	struct rule rules[] = {
		name_rule(POLICY_ALLOW, TARGET_NAME, "api.ok.test"),
		name_rule(POLICY_ALLOW, TARGET_BELOW, "pkg.test"),
		name_rule(POLICY_ALLOW, TARGET_WITHIN, "both.test"),
		name_rule(POLICY_DENY, TARGET_NAME, "internal.pkg.test"),
	};
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	static const struct {
		const char *what, *name;
		uint32_t rule;
	} rows[] = {
		{ "the name itself", "api.ok.test", 0 },
		{ "case does not count", "aPi.OK.tEsT", 0 },
		{ "a trailing dot does not count", "api.ok.test.", 0 },
		{ "below an exact name", "x.api.ok.test", PLAN_NO_RULE },
		{ "above an exact name", "ok.test", PLAN_NO_RULE },
		{ "a look-alike suffix", "evilpkg.test", PLAN_NO_RULE },
		{ "the suffix in the middle", "x.pkg.test.evil.test", PLAN_NO_RULE },
		{ "the apex of *.x", "pkg.test", PLAN_NO_RULE },
		{ "the apex of **.x", "both.test", 2 },
		{ "any depth", "a.b.c.pkg.test", 1 },
		{ "an underscore", "_acme.pkg.test", 1 },
		{ "the first match decides", "internal.pkg.test", 1 },
		{ "the top-level domain alone", "test", PLAN_NO_RULE },
		{ "the root", ".", PLAN_NO_RULE },
	};
	struct world w = compile(&policy);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct dns_name n = name_of(rows[i].name);

		if (plan_match_name(&w.plan, &n).rule != rows[i].rule)
			fail_msg("%s: rule %u", rows[i].what,
				 plan_match_name(&w.plan, &n).rule);
	}
	world_done(&w);
}

TEST(a_name_that_is_a_number_is_denied_under_allow_too)
{
	static const char *const names[] = { "127.1",	   "2130706433", "0x7f.1",
					     "1.2.3.4",	   "a.0x",	 "017700000001",
					     "0x7f000001", "a.0xFf" };
	static const char *const hosts[] = { "a.1a", "a.0xg", "a.x0", "0x7f.a" };
	struct policy policy = { .default_action = POLICY_ALLOW };
	struct world w = compile(&policy);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct dns_name n = name_of(names[i]);

		assert_int_equal(plan_match_name(&w.plan, &n).action, POLICY_DENY);
	}
	for (size_t i = 0; i < ARRAY_SIZE(hosts); i++) {
		struct dns_name n = name_of(hosts[i]);

		assert_int_equal(plan_match_name(&w.plan, &n).action, POLICY_ALLOW);
	}
	world_done(&w);
}

TEST(a_deny_of_an_address_is_absolute)
{
	static const struct plan_port_range db = { IPPROTO_TCP, 0, 5432, 5432 };
	struct rule rules[] = {
		addr_rule(POLICY_ALLOW, "10.0.0.0/8"),
		addr_rule(POLICY_DENY, "10.1.0.0/16"),
		addr_rule(POLICY_ALLOW, "10.1.2.0/24"),
		addr_rule(POLICY_ALLOW, "192.0.2.0/24"),
	};
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	static const struct {
		const char *what, *addr;
		uint16_t port;
		uint8_t action;
		uint32_t rule;
	} rows[] = {
		{ "inside the allow", "10.2.0.1", 443, POLICY_ALLOW, 0 },
		{ "inside the deny", "10.1.0.1", 443, POLICY_DENY, 1 },
		{ "an allow inside a deny", "10.1.2.3", 443, POLICY_DENY, 1 },
		{ "DNS is not in the default list", "10.2.0.1", 53, POLICY_DENY,
		  PLAN_NO_RULE },
		{ "DoT is not in the default list", "10.2.0.1", 853, POLICY_DENY,
		  PLAN_NO_RULE },
		{ "port 0 asks for the address alone", "10.2.0.1", 0, POLICY_ALLOW, 0 },
		{ "a listed port", "192.0.2.1", 5432, POLICY_ALLOW, 3 },
		{ "another port", "192.0.2.1", 443, POLICY_DENY, PLAN_NO_RULE },
		{ "no rule", "203.0.113.1", 443, POLICY_DENY, PLAN_NO_RULE },
		{ "the mapped form goes out as IPv4", "::ffff:10.1.0.1", 443, POLICY_DENY,
		  1 },
		{ "the mapped form, allowed", "::ffff:10.2.0.1", 443, POLICY_ALLOW, 0 },
	};
	struct world w;

	rules[3].ports = (struct rule_ports){ &db, 1 };
	w = compile(&policy);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = addr_of(rows[i].addr);
		struct plan_verdict v =
			plan_match_addr(&w.plan, &a, IPPROTO_TCP, rows[i].port);

		if (v.action != rows[i].action || v.rule != rows[i].rule)
			fail_msg("%s: action %u, rule %u", rows[i].what, v.action,
				 v.rule);
	}
	world_done(&w);
}

TEST(what_is_denied_is_so_behind_a_translator)
{
	static const struct {
		const char *addr;
		enum policy_action action;
	} rows[] = {
		{ "64:ff9b::a02:304", POLICY_DENY },
		{ "64:ff9b::a03:304", POLICY_ALLOW },
		{ "64:ff9b::9090:1", POLICY_DENY },
		{ "64:ff9b::9090:2", POLICY_ALLOW },
		{ "64:ff9b::a9fe:a9fe", POLICY_DENY },
		{ "64:ff9b:1::a02:304", POLICY_ALLOW },
	};
	struct rule rules[] = { addr_rule(POLICY_DENY, "10.2.0.0/16"),
				addr_rule(POLICY_DENY, "144.144.0.1"),
				addr_rule(POLICY_ALLOW, "64:ff9b::/32") };
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct world w = compile(&policy);

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = addr_of(rows[i].addr);

		assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 80).action,
				 rows[i].action);
	}
	world_done(&w);
}

TEST(the_default_list_leaves_out_dns_and_quic_under_tls)
{
	for (int verify = POLICY_VERIFY_DNS; verify <= POLICY_VERIFY_TLS; verify++) {
		struct policy policy = { .verify = verify };
		struct world w = compile(&policy);

		for (uint32_t port = 0; port <= 65535; port++) {
			bool open = port != 0 && port != 53 && port != 853;
			bool quic = verify == POLICY_VERIFY_TLS && port == 443;

			assert_int_equal(
				plan_port_list_has(&w.plan, 0, IPPROTO_TCP, port), open);
			assert_int_equal(
				plan_port_list_has(&w.plan, 0, IPPROTO_UDP, port),
				open && !quic);
		}
		assert_false(plan_port_list_has(&w.plan, 0, IPPROTO_ICMP, 80));
		assert_false(plan_port_list_has(&w.plan, 1, IPPROTO_TCP, 80));
		world_done(&w);
	}
}

TEST(metadata_has_to_be_named)
{
	struct rule wide = addr_rule(POLICY_ALLOW, "169.254.0.0/16");
	struct rule both[] = { wide, addr_rule(POLICY_ALLOW, "169.254.169.254") };
	struct policy policy = { .rules = &wide, .count = 1 };
	struct addr a = addr_of("169.254.169.254"), other = addr_of("169.254.1.1");
	struct world w = compile(&policy);
	struct plan_verdict v = plan_match_addr(&w.plan, &a, IPPROTO_TCP, 80);

	assert_int_equal(v.action, POLICY_DENY);
	assert_true(v.flags & PLAN_IMPLICIT);
	assert_int_equal(plan_match_addr(&w.plan, &other, IPPROTO_TCP, 80).action,
			 POLICY_ALLOW);
	world_done(&w);
	policy = (struct policy){ .rules = both, .count = 2 };
	w = compile(&policy);
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 80).action,
			 POLICY_ALLOW);
	world_done(&w);
}

TEST(a_rule_for_one_port_of_metadata_opens_no_other_to_a_wider_rule)
{
	static const struct plan_port_range port = { IPPROTO_TCP, 0, 53, 53 };
	struct rule rules[] = { addr_rule(POLICY_ALLOW, "0.0.0.0/0"),
				addr_rule(POLICY_ALLOW, "168.63.129.16"),
				addr_rule(POLICY_ALLOW, "::/0") };
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct addr a = addr_of("168.63.129.16"), next = addr_of("168.63.129.17"),
		    translated = addr_of("64:ff9b::a83f:8110");
	struct world w;

	rules[1].ports = (struct rule_ports){ &port, 1 };
	for (int action = POLICY_DENY; action <= POLICY_ASK; action++) {
		policy.default_action = (enum policy_action)action;
		w = compile(&policy);
		assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 53).rule, 1);
		assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 80).action,
				 POLICY_DENY);
		assert_int_equal(
			plan_match_addr(&w.plan, &translated, IPPROTO_TCP, 80).action,
			POLICY_DENY);
		assert_int_equal(plan_match_addr(&w.plan, &next, IPPROTO_TCP, 80).rule,
				 0);
		world_done(&w);
	}
}

TEST(allow_by_default_still_refuses_metadata_and_doh)
{
	static const char *const names[] = { "dns.google", "x.dns.google",
					     "cloudflare-dns.com",
					     "metadata.google.internal" };
	static const char *const addrs[] = { "8.8.8.8",
					     "1.1.1.1",
					     "169.254.169.254",
					     "168.63.129.16",
					     "100.100.100.200",
					     "169.254.42.42",
					     "169.254.99.1",
					     "192.80.8.124",
					     "fd00:ec2::254",
					     "fd00:c1::a9fe:a9fe",
					     "fd00:a9fe:a9fe::1",
					     "fe80::a9fe:a9fe",
					     "fe80::1",
					     "febf::1",
					     "2001:4860:4860::8888" };
	struct rule rules[] = { name_rule(POLICY_ALLOW, TARGET_NAME, "dns.google"),
				addr_rule(POLICY_ALLOW, "8.8.8.8") };
	struct policy policy = { .default_action = POLICY_ALLOW };
	struct dns_name n = name_of("example.test");
	struct addr a = addr_of("198.51.100.1");
	struct world w = compile(&policy);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct dns_name doh = name_of(names[i]);

		assert_int_equal(plan_match_name(&w.plan, &doh).action, POLICY_DENY);
	}
	for (size_t i = 0; i < ARRAY_SIZE(addrs); i++) {
		struct addr doh = addr_of(addrs[i]);

		assert_int_equal(plan_match_addr(&w.plan, &doh, IPPROTO_TCP, 443).action,
				 POLICY_DENY);
	}
	assert_int_equal(plan_match_name(&w.plan, &n).action, POLICY_ALLOW);
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
			 POLICY_ALLOW);
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 853).action,
			 POLICY_DENY);
	world_done(&w);

	policy.rules = rules;
	policy.count = ARRAY_SIZE(rules);
	w = compile(&policy);
	n = name_of("dns.google");
	a = addr_of("8.8.8.8");
	assert_int_equal(plan_match_name(&w.plan, &n).action, POLICY_ALLOW);
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
			 POLICY_ALLOW);
	a = addr_of("8.8.4.4");
	assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
			 POLICY_DENY);
	world_done(&w);
}

TEST(link_local_addresses_are_open_to_rules_alone)
{
	static const struct {
		const char *addr;
		enum policy_action action;
	} cases[] = {
		{ "169.254.1.1", POLICY_ALLOW },
		{ "169.254.1.0", POLICY_DENY },
		{ "169.254.1.2", POLICY_DENY },
		{ "169.254.0.0", POLICY_DENY },
		{ "169.254.255.255", POLICY_DENY },
		{ "169.253.255.255", POLICY_ALLOW },
		{ "169.255.0.0", POLICY_ALLOW },
		{ "fe80:1::1", POLICY_ALLOW },
		{ "fe80:1:ffff:ffff:ffff:ffff:ffff:ffff", POLICY_ALLOW },
		{ "fe80:2::", POLICY_DENY },
		{ "fe80::1", POLICY_DENY },
		{ "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", POLICY_DENY },
		{ "2001:4860::1", POLICY_ALLOW },
	};
	struct rule rules[] = { addr_rule(POLICY_ALLOW, "169.254.1.1"),
				addr_rule(POLICY_ALLOW, "fe80:1::/32") };
	struct policy policy = { .default_action = POLICY_ALLOW,
				 .rules = rules,
				 .count = ARRAY_SIZE(rules) };
	struct world w = compile(&policy);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct addr a = addr_of(cases[i].addr);

		assert_int_equal(plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
				 cases[i].action);
	}
	world_done(&w);
}

TEST(rules_inside_a_link_local_network_bring_no_others_along)
{
	enum { RULES = 4096 };
	static struct rule rules[RULES];
	struct policy policy = { .default_action = POLICY_ALLOW };
	struct world w = compile(&policy);
	const size_t built_in = plan_rule_count(&w.plan);

	world_done(&w);
	for (size_t i = 0; i < RULES; i++) {
		rules[i] = addr_rule(POLICY_ALLOW, "fe80::");
		for (size_t byte = 0; byte < 12; byte++)
			rules[i].prefix.addr.bytes[4 + byte] = (uint8_t)(i >> byte);
	}
	policy.rules = rules;
	policy.count = RULES;
	w = compile(&policy);
	assert_int_equal(plan_rule_count(&w.plan), RULES + built_in);
	world_done(&w);
}

TEST(seventeen_port_lists_are_too_many)
{
	struct plan_port_range ports[PLAN_PORT_LISTS_MAX];
	struct rule rules[PLAN_PORT_LISTS_MAX];
	struct policy policy = { .rules = rules, .count = PLAN_PORT_LISTS_MAX - 1 };
	struct err err = { 0 };
	uint8_t *bytes = NULL;
	struct world w;
	size_t size;

	for (uint16_t i = 0; i < PLAN_PORT_LISTS_MAX; i++) {
		ports[i] = (struct plan_port_range){ IPPROTO_TCP, 0, 1 + i, 1 + i };
		rules[i] = name_rule(POLICY_ALLOW, TARGET_NAME, "a.test");
		rules[i].ports = (struct rule_ports){ &ports[i], 1 };
	}
	w = compile(&policy);
	assert_int_equal(plan_port_list_count(&w.plan), PLAN_PORT_LISTS_MAX);
	world_done(&w);
	policy.count++;
	assert_int_equal(policy_compile(&policy, &bytes, &size, &err), -E2BIG);
	assert_null(bytes);
}

TEST(what_the_kernel_gets_is_disjoint_and_says_the_same)
{
	struct rule rules[] = {
		addr_rule(POLICY_ALLOW, "10.1.0.0/16"),
		addr_rule(POLICY_ALLOW, "10.0.0.0/8"),
		addr_rule(POLICY_ALLOW, "10.0.0.0/8"),
		addr_rule(POLICY_DENY, "10.2.0.0/16"),
		addr_rule(POLICY_DENY, "10.2.3.0/24"),
		addr_rule(POLICY_ALLOW, "2001:db8::/32"),
	};
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	static const char *const want[] = { "10.2.0.0/16", "64:ff9b::a02:0/112",
					    "10.0.0.0/8", "2001:db8::/32" };
	struct world w = compile(&policy);

	assert_int_equal(plan_prefix_count(&w.plan), ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct plan_prefix x = plan_prefix(&w.plan, i);
		char text[PREFIX_TEXT_SIZE];

		assert_string_equal(prefix_format(&x.prefix, text), want[i]);
	}
	world_done(&w);
}

/* By default only the ports that a rule lists are open where all would be closed. */
TEST(a_rule_for_some_ports_opens_no_other_ones_of_what_is_denied_by_default)
{
	static const struct plan_port_range port = { IPPROTO_UDP, 0, 123, 123 };
	struct rule listed[] = {
		addr_rule(POLICY_ALLOW, "169.254.169.254"),
		addr_rule(POLICY_ALLOW, "8.8.8.8"),
		addr_rule(POLICY_ALLOW, "169.254.16.0/20"),
		addr_rule(POLICY_ALLOW, "fe80::/64"),
		addr_rule(POLICY_ALLOW, "203.0.113.1"),
		addr_rule(POLICY_ALLOW, "169.254.17.1"), /* the whole */
		addr_rule(POLICY_ALLOW, "1.1.1.1"),	 /* what is open, and these */
		addr_rule(POLICY_ALLOW, "8.8.4.4"),	 /* one rule lists ports */
		addr_rule(POLICY_ALLOW, "8.8.4.4"),	 /* another one doesn't */
		addr_rule(POLICY_ALLOW, "9.9.9.9"),	 /* denied by another rule */
		addr_rule(POLICY_DENY, "9.9.9.9"),
	};
	static const struct {
		const char *addr;
		bool listed, others;
	} rows[] = {
		{ "169.254.169.254", true, false },
		{ "64:ff9b::a9fe:a9fe", false, false },
		{ "8.8.8.8", true, false },
		{ "169.254.16.1", true, false },
		{ "169.254.31.255", true, false },
		{ "169.254.32.1", false, false },
		{ "fe80::1", true, false },
		{ "fe80:0:0:1::1", false, false },
		{ "203.0.113.1", true, true },
		{ "169.254.17.1", true, true },
		{ "1.1.1.1", true, true },
		{ "8.8.4.4", true, true },
		{ "9.9.9.9", false, false },
	};
	struct policy policy = { .rules = listed,
				 .count = ARRAY_SIZE(listed),
				 .default_action = POLICY_ALLOW };
	struct world w;

	for (size_t i = 0; i < ARRAY_SIZE(listed); i++)
		if (i != 5 && i != 8 && i != 10)
			listed[i].ports = (struct rule_ports){ &port, 1, i == 6 };
	w = compile(&policy);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct addr a = addr_of(rows[i].addr);
		const struct plan_verdict one =
			plan_match_addr(&w.plan, &a, IPPROTO_UDP, 123);
		const struct plan_verdict other =
			plan_match_addr(&w.plan, &a, IPPROTO_TCP, 80);

		if ((one.action == POLICY_ALLOW) != rows[i].listed ||
		    (other.action == POLICY_ALLOW) != rows[i].others)
			fail_msg("%s: %d %d", rows[i].addr, one.action, other.action);
		assert_true(rows[i].others || other.rule != PLAN_NO_RULE);
	}
	world_done(&w);
	/* Under another default nothing else is open anyway. */
	policy.default_action = POLICY_DENY;
	w = compile(&policy);
	for (size_t i = 0; i < plan_prefix_count(&w.plan); i++)
		assert_int_not_equal(plan_prefix(&w.plan, i).action, PLAN_CLOSED);
	world_done(&w);
}

TEST(limits_have_defaults_and_can_be_set)
{
	struct policy policy = { 0 };
	struct world w;

	policy.limits[LIMIT_QUERIES_PER_SECOND] = LIMIT_UNLIMITED;
	policy.limits[LIMIT_FLOWS] = 17;
	w = compile(&policy);
	assert_int_equal(plan_limit(&w.plan, LIMIT_QUERIES_PER_SECOND), LIMIT_UNLIMITED);
	assert_int_equal(plan_limit(&w.plan, LIMIT_FLOWS), 17);
	assert_int_equal(plan_limit(&w.plan, LIMIT_LEARNED_NAMES), 2048);
	assert_int_equal(plan_limit(&w.plan, LIMIT_MAX_LIFETIME_SEC), 86400);
	world_done(&w);
}

TEST(settings_are_what_the_policy_says)
{
	struct policy policy = { .verify = POLICY_VERIFY_TLS,
				 .dns = POLICY_DNS_PINNED,
				 .require_full_isolation = true,
				 .repin_ms = 90 * 60 * 1000,
				 .on_denies = { 7, 600, ON_DENIES_STOP } };
	struct world w = compile(&policy);
	struct plan_on_denies denies = plan_on_denies(&w.plan);
	char text[POLICY_ON_DENIES_SIZE];

	assert_int_equal(denies.count, 7);
	assert_int_equal(denies.window_sec, 600);
	assert_string_equal(policy_on_denies_text(&denies, text),
			    "more than 7 packets in 10m: stop");
	assert_int_equal(plan_verify(&w.plan), POLICY_VERIFY_TLS);
	assert_int_equal(plan_dns(&w.plan), POLICY_DNS_PINNED);
	assert_true(plan_requires_full_isolation(&w.plan));
	assert_int_equal(plan_repin_sec(&w.plan), 90 * 60);
	world_done(&w);
}

TEST(no_rule_opens_what_stands_for_denied_names)
{
	static const char *const opened[] = { "198.19.254.0/23", "0.0.0.0/0",
					      "100::/64" };
	struct rule rules[ARRAY_SIZE(opened)] = { 0 };
	struct policy policy = { .rules = rules,
				 .count = ARRAY_SIZE(rules),
				 .verify = POLICY_VERIFY_TLS,
				 .denied_names = POLICY_DENIED_REFUSE };
	struct dns_name name;

	assert_int_equal(dns_name_parse(text_of("a.test"), &name), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		rules[i] = (struct rule){ .action = POLICY_ALLOW,
					  .kind = TARGET_PREFIX,
					  .target = opened[i],
					  .file = "p.yaml",
					  .comment = "" };
		assert_true(prefix_parse(opened[i], strlen(opened[i]), true,
					 &rules[i].prefix));
	}
	for (int refuse = 0; refuse < 2; refuse++) {
		struct world w;

		policy.denied_names = refuse ? POLICY_DENIED_REFUSE
					     : POLICY_DENIED_NXDOMAIN;
		w = compile(&policy);
		assert_int_equal(plan_denied_names(&w.plan), policy.denied_names);
		for (int v6 = 0; v6 < 2; v6++) {
			struct addr a = sinkhole_addr(v6 ? ADDR_V6 : ADDR_V4, &name);

			assert_true(sinkhole_has(&a));
			assert_int_equal(
				plan_match_addr(&w.plan, &a, IPPROTO_TCP, 443).action,
				refuse ? POLICY_DENY : POLICY_ALLOW);
		}
		world_done(&w);
	}
}

static enum policy_action action_of(const struct plan *p, const char *addr, uint16_t port)
{
	struct addr a = addr_of(addr);

	return plan_match_addr(p, &a, IPPROTO_TCP, port).action;
}

TEST(what_asks_comes_behind_what_allows_an_address)
{
	struct rule rules[] = {
		addr_rule(POLICY_ASK, "93.0.0.0/8"),
		addr_rule(POLICY_ALLOW, "93.1.0.0/16"),
		addr_rule(POLICY_DENY, "93.1.2.0/24"),
		name_rule(POLICY_ASK, TARGET_WITHIN, "a.test"),
	};
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct world w = compile(&policy);
	struct dns_name name = name_of("b.a.test");
	struct addr a = addr_of("93.7.7.7");

	assert_int_equal(action_of(&w.plan, "93.7.7.7", 443), POLICY_ASK);
	assert_int_equal(action_of(&w.plan, "93.7.7.7", 53), POLICY_DENY);
	assert_int_equal(action_of(&w.plan, "93.1.7.7", 443), POLICY_ALLOW);
	assert_int_equal(action_of(&w.plan, "93.1.2.7", 443), POLICY_DENY);
	assert_int_equal(action_of(&w.plan, "94.1.2.7", 443), POLICY_DENY);
	/* An allowed name may teach it, and the kernel knows of no such rule. */
	assert_false(plan_denies_addr(&w.plan, &a));
	for (size_t i = 0; i < plan_prefix_count(&w.plan); i++)
		assert_int_not_equal(plan_prefix(&w.plan, i).action, POLICY_ASK);
	assert_int_equal(plan_match_name(&w.plan, &name).action, POLICY_ASK);
	assert_true(plan_asks(&w.plan));
	world_done(&w);
}

TEST(a_default_that_asks_keeps_closed_what_nobody_is_asked_for)
{
	static const char *const closed[] = { "metadata.google.internal", "dns.google",
					      "cloudflare-dns.com" };
	struct policy policy = { .default_action = POLICY_ASK };
	struct world w = compile(&policy);
	struct dns_name name = name_of("a.test");

	assert_int_equal(plan_match_name(&w.plan, &name).action, POLICY_ASK);
	assert_int_equal(action_of(&w.plan, "93.7.7.7", 443), POLICY_ASK);
	assert_int_equal(action_of(&w.plan, "169.254.169.254", 80), POLICY_DENY);
	assert_int_equal(action_of(&w.plan, "8.8.8.8", 443), POLICY_DENY);
	for (size_t i = 0; i < ARRAY_SIZE(closed); i++) {
		name = name_of(closed[i]);
		assert_int_equal(plan_match_name(&w.plan, &name).action, POLICY_DENY);
	}
	world_done(&w);
}

TEST(what_stands_for_names_is_of_one_kind)
{
	struct dns_name name = name_of("a.test");
	uint8_t n;

	for (int v6 = 0; v6 < 2; v6++) {
		const enum addr_family family = v6 ? ADDR_V6 : ADDR_V4;
		struct addr denied = sinkhole_addr(family, &name);

		assert_false(sinkhole_is_ask(&denied, &n));
		for (int i = 0; i < SINKHOLE_ADDRESSES; i++) {
			struct addr a = sinkhole_ask_addr(family, (uint8_t)i);

			assert_true(sinkhole_has(&a) && sinkhole_is_ask(&a, &n));
			assert_int_equal(n, i);
			assert_false(addr_equal(&a, &denied));
		}
	}
}

TEST(what_was_given_is_known_in_both_families)
{
	struct sinkholes given = { 0 };
	struct dns_name one, other;
	struct addr a, b;

	assert_int_equal(dns_name_parse(text_of("a.test"), &one), 0);
	assert_int_equal(dns_name_parse(text_of("b.test"), &other), 0);
	a = sinkhole_addr(ADDR_V4, &one);
	b = sinkhole_addr(ADDR_V6, &one);
	assert_false(sinkholes_gave(&given, &a));
	sinkholes_give(&given, &a);
	assert_true(sinkholes_gave(&given, &a));
	assert_true(sinkholes_gave(&given, &b));
	a = sinkhole_addr(ADDR_V4, &other);
	assert_false(sinkholes_gave(&given, &a));
	a = addr_v4(198, 19, 254, b.bytes[15]);
	assert_false(sinkholes_gave(&given, &a));
}

TEST(names_are_walked_in_the_order_of_the_rules)
{
	struct rule rules[] = {
		name_rule(POLICY_ALLOW, TARGET_NAME, "b.test"),
		name_rule(POLICY_DENY, TARGET_BELOW, "a.test"),
		name_rule(POLICY_ALLOW, TARGET_NAME, "a.test"),
		name_rule(POLICY_ALLOW, TARGET_NAME, "c.x.test"),
		name_rule(POLICY_ALLOW, TARGET_NAME, "b.test"),
	};
	static const char *const expected[] = { "b.test", "a.test", "c.x.test" };
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct world w = compile(&policy);
	char text[DNS_NAME_TEXT_SIZE];
	struct dns_name n;
	uint32_t at = 0;

	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		assert_true(plan_name_next(&w.plan, &at, &n));
		assert_string_equal(dns_name_format(&n, text), expected[i]);
		assert_int_equal(n.labels, i == 2 ? 3 : 2);
	}
	assert_false(plan_name_next(&w.plan, &at, &n));
	at = UINT32_MAX;
	assert_false(plan_name_next(&w.plan, &at, &n));
	world_done(&w);
	policy.count = 0;
	w = compile(&policy);
	at = 0;
	assert_false(plan_name_next(&w.plan, &at, &n));
	world_done(&w);
}

/* The table of names is filled to two thirds whatever its size, and searches go round
 * its end. */
TEST(every_name_of_a_table_is_found_and_no_other)
{
	enum { NAMES = 300 };
	static struct rule rules[NAMES];
	char text[32];

	for (size_t count = 1; count <= NAMES; count += count < 20 ? 1 : 70) {
		struct policy policy = { .rules = rules, .count = count };
		struct world w;

		for (size_t i = 0; i < count; i++) {
			snprintf(text, sizeof(text), "h%zu.test", i);
			rules[i] = name_rule(POLICY_ALLOW, TARGET_NAME, text);
		}
		w = compile(&policy);
		for (size_t i = 0; i < 2 * count; i++) {
			struct dns_name n;

			snprintf(text, sizeof(text), "h%zu.test", i);
			n = name_of(text);
			assert_int_equal(plan_match_name(&w.plan, &n).rule,
					 i < count ? i : PLAN_NO_RULE);
		}
		world_done(&w);
	}
}

TEST(rules_keep_their_texts_and_places)
{
	struct rule rules[] = { name_rule(POLICY_ALLOW, TARGET_NAME, "a.test"),
				name_rule(POLICY_DENY, TARGET_BELOW, "b.test") };
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct plan_rule r;
	struct world w;

	rules[1].line = 3;
	rules[1].column = 5;
	rules[1].file = "--deny";
	rules[1].comment = "why";
	w = compile(&policy);
	r = plan_rule(&w.plan, 1);
	assert_string_equal(r.target, "b.test");
	assert_string_equal(r.file, "--deny");
	assert_string_equal(r.comment, "why");
	assert_int_equal(r.line, 3);
	assert_int_equal(r.column, 5);
	assert_string_equal(plan_rule(&w.plan, 0).file, "policy.yaml");
	assert_string_equal(plan_rule(&w.plan, 0).comment, "");
	assert_string_equal(plan_rule(&w.plan, 99).target, "");
	world_done(&w);
}

/* The plan agrees with judging rule by rule. */
static void check_against_slow(struct policy *policy, const struct plan *plan,
			       uint32_t *seed)
{
	for (size_t i = 0; i < 200; i++) {
		static const uint16_t ports[] = { 0, 22, 53, 85, 443, 853, 8080 };
		struct dns_name n = random_name(seed);
		struct addr a = random_addr(seed);
		uint16_t port = ports[random_next(seed) % ARRAY_SIZE(ports)];
		uint8_t protocol = random_next(seed) % 2 ? IPPROTO_TCP : IPPROTO_UDP;
		struct plan_verdict v = plan_match_name(plan, &n);
		uint32_t want = slow_match_name(policy, &n);

		assert_int_equal(v.rule, want);
		assert_int_equal(v.action, want == PLAN_NO_RULE
						   ? policy->default_action
						   : policy->rules[want].action);
		want = slow_match_addr(policy, &a, protocol, port);
		v = plan_match_addr(plan, &a, protocol, port);
		if (v.flags & PLAN_IMPLICIT)
			continue;
		assert_int_equal(v.rule, want);
		if (want != PLAN_NO_RULE)
			assert_int_equal(v.action, policy->rules[want].action);
	}
}

TEST(random_policies_match_as_rule_by_rule)
{
	for (uint32_t round = 0; round < 300; round++) {
		struct rule rules[40];
		uint32_t seed = round + 1;
		struct policy policy;
		struct world w;

		random_policy(&seed, rules, random_next(&seed) % (ARRAY_SIZE(rules) + 1),
			      &policy);
		w = compile(&policy);
		check_against_slow(&policy, &w.plan, &seed);
		world_done(&w);
	}
}

TEST(cut_and_damaged_plans_are_refused_or_harmless)
{
	struct rule rules[20];
	uint32_t seed = 7;
	struct policy policy;
	struct world w;
	struct plan plan;

	random_policy(&seed, rules, ARRAY_SIZE(rules), &policy);
	w = compile(&policy);
	for (size_t size = 0; size < w.size; size++)
		assert_int_equal(plan_open(w.bytes, size, &plan, NULL), -EBADMSG);
	for (size_t i = 0; i < w.size; i++) {
		for (int bit = 0; bit < 8; bit++) {
			struct dns_name n = random_name(&seed);
			struct addr a = random_addr(&seed);

			w.bytes[i] ^= (uint8_t)(1 << bit);
			if (plan_open(w.bytes, w.size, &plan, NULL) == 0) {
				(void)plan_match_name(&plan, &n);
				(void)plan_match_addr(&plan, &a, IPPROTO_TCP, 443);
				for (size_t k = 0; k < plan_rule_count(&plan); k++)
					(void)strlen(plan_rule(&plan, k).target);
			}
			w.bytes[i] ^= (uint8_t)(1 << bit);
		}
	}
	world_done(&w);
}
