// SPDX-License-Identifier: Apache-2.0
/* Documents and always-rules as the plan that is in force: cases P1 to P8 of the
 * contract, and what the reference takes for names. */
#include "policy/read_world.h"

#include "opensandbox/policy.h"

struct made {
	struct world w;
	struct document *d; /* the policy's rules borrow their targets */
	struct plan plan;
	uint8_t *bytes;
};

static struct static_rules_file static_rules(const char *path, const char *text)
{
	return (struct static_rules_file){ path, text_of(text ? text : "") };
}

static int make(struct made *m, const char *body, const char *deny, const char *allow)
{
	const struct static_rules_file denied = static_rules("deny.always", deny),
				       allowed = static_rules("allow.always", allow);
	struct policy_reader r = reader(&m->w);
	struct err err = { 0 };
	size_t size;

	if (document_parse(text_of(body), NULL, NULL, &m->d, &err) < 0)
		fail_msg("%s: %s", body, err.text);
	m->w.result =
		document_policy(m->d, &denied, &allowed, "policy.json", &r, &m->w.policy);
	if (m->w.result < 0)
		return m->w.result;
	if (policy_build(&r, &m->w.policy, &m->bytes, &size) < 0 ||
	    plan_open(m->bytes, size, &m->plan, NULL) < 0)
		fail_msg("%s: %s", body, faults_text(&m->w));
	return 0;
}

static void made_done(struct made *m)
{
	free(m->bytes);
	world_done(&m->w);
	document_free(m->d);
}

static bool name_is_open(const struct made *m, const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return plan_match_name(&m->plan, &n).action == POLICY_ALLOW;
}

static bool addr_is_open(const struct made *m, const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return plan_match_addr(&m->plan, &a, IPPROTO_TCP, 443).action == POLICY_ALLOW;
}

/* "+a.b" is open, "-a.b" isn't; the same of addresses. */
static void expect_open(const struct made *m, const char *what)
{
	struct text rest = text_of(what), part;

	while (text_split(&rest, ' ', &part)) {
		char one[128];
		struct addr a;
		bool open;

		snprintf(one, sizeof(one), "%.*s", (int)part.len, part.ptr);
		open = addr_parse(one + 1, strlen(one + 1), &a)
			       ? addr_is_open(m, one + 1)
			       : name_is_open(m, one + 1);
		if (open != (one[0] == '+'))
			fail_msg("%s: %s is %s", what, one + 1, open ? "open" : "closed");
	}
}

#define A(target) "{\"action\":\"allow\",\"target\":\"" target "\"}"
#define D(target) "{\"action\":\"deny\",\"target\":\"" target "\"}"

TEST(documents_decide_as_the_reference_does)
{
	static const struct {
		const char *what, *body, *deny, *allow, *open;
	} rows[] = {
		{ "P1: what isn't named is denied", "{\"egress\":[" A("example.com") "]}",
		  NULL, NULL, "+example.com -www.example.com -other.com -1.1.1.1" },
		{ "P1: an empty default denies", "{\"defaultAction\":\"\"}", NULL, NULL,
		  "-anything.com" },
		{ "P2: addresses and prefixes",
		  "{\"egress\":[" A("1.1.1.1") "," A("2.2.0.0/16") "," D(
			  "2001:db8::/32") "," D("2001:db8::1") "]}",
		  NULL, NULL,
		  "+1.1.1.1 -1.1.1.2 +2.2.255.1 -2.3.0.0 -2001:db8::1 "
		  "-2001:db8:ffff::2" },
		{ "P2: host bits are cleared", "{\"egress\":[" A("11.0.0.1/8") "]}", NULL,
		  NULL, "+11.9.9.9 -12.0.0.1" },
		{ "P4: the first that matches",
		  "{\"egress\":[" A("*.example.com") "," D("api.example.com") "," A(
			  "*.internal.example.com") "]}",
		  NULL, NULL,
		  "+api.example.com +www.example.com +a.internal.example.com "
		  "+internal.example.com -unknown.test -example.com" },
		{ "P6: deny.always before the user's allow",
		  "{\"egress\":[" A("evil.com") "," A("9.9.9.9") "]}",
		  "evil.com\n9.9.9.9\n", NULL, "-evil.com -9.9.9.9" },
		{ "P6: allow.always before the user's deny",
		  "{\"egress\":[" D("good.com") "]}", NULL, "good.com\n", "+good.com" },
		{ "P6: deny.always before allow.always", "{}", "x.com\n1.2.3.4\n",
		  "x.com\n1.2.3.4\n", "-x.com -1.2.3.4" },
		{ "P6: an address that the user denies stays denied",
		  "{\"egress\":[" D("1.2.3.4") "]}", NULL, "1.2.3.4\n", "-1.2.3.4" },
		{ "P6: deny.always under an open default",
		  "{\"defaultAction\":\"allow\"}", "*.evil.com\n", NULL,
		  "-a.evil.com +evil.com +good.com" },
		{ "P7: exact, no name below", "{\"egress\":[" A("cluster.local") "]}",
		  NULL, NULL, "+cluster.local +CLUSTER.Local. -svc.cluster.local" },
		{ "P7: below at any depth, not itself",
		  "{\"egress\":[" A("*.Cluster.local") "]}", NULL, NULL,
		  "+svc.cluster.local +a.b.cluster.local -cluster.local "
		  "-notcluster.local" },
		{ "P7: both", "{\"egress\":[" A("*.a.b") "," A("a.b") "]}", NULL, NULL,
		  "+a.b +x.a.b" },
		{ "P7: an empty document matches nothing", "", NULL, NULL, "-a.b -." },
		{ "a trailing dot is the same name", "{\"egress\":[" A("x.com.") "]}",
		  NULL, NULL, "+x.com" },
		{ "an IPv4 address inside IPv6 opens nothing",
		  "{\"egress\":[" A("::ffff:1.2.3.4") "," A("::ffff:5.6.7.0/120") "]}",
		  NULL, NULL, "-1.2.3.4 -5.6.7.8 -::ffff:1.2.3.4" },
		{ "denied, it denies the IPv4 address",
		  "{\"defaultAction\":\"allow\",\"egress\":[" D("::ffff:1.2.3.4") "," D(
			  "::ffff:5.6.7.0/120") "]}",
		  NULL, NULL, "-1.2.3.4 +1.2.3.5 -5.6.7.8" },
		{ "an address with a zone opens nothing",
		  "{\"egress\":[" A("fe80::1%eth0") "," A("2001:db9::1%x") "]}", NULL,
		  NULL, "-fe80::1 -2001:db9::1" },
		{ "denied, it denies the address",
		  "{\"defaultAction\":\"allow\",\"egress\":[" D("2600::1%eth0") "]}",
		  NULL, NULL, "-2600::1 +2600::2" },
		{ "a deny over a public suffix closes",
		  "{\"defaultAction\":\"allow\",\"egress\":[" D("*.com") "," D(
			  "**.co.uk") "]}",
		  NULL, NULL, "-a.com +com -co.uk -b.co.uk +a.org" },
		{ "the whole of IPv4", "{\"egress\":[" A("0.0.0.0/0") "," D("::/0") "]}",
		  NULL, NULL, "+1.1.1.1 -2600::1" },
		{ "comments, blanks, line ends and no line end", "{}", NULL,
		  "# c\r\n\n  192.0.2.1  \r\n2001:db8::/32 # why\n\t*.foo.test",
		  "+192.0.2.1 +2001:db8::9 +x.foo.test -foo.test" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct made m = { 0 };

		if (make(&m, rows[i].body, rows[i].deny, rows[i].allow) < 0)
			fail_msg("%s: %s", rows[i].what, faults_text(&m.w));
		expect_open(&m, rows[i].open);
		made_done(&m);
	}
}

TEST(what_is_no_target_is_refused)
{
	static const char *const targets[] = {
		"*",	       "*.*.com",     "foo.*",	   "a b c",	"http://x/y",
		"<>&\xc3\xa9", "10.0.0.0/33", "010.0.0.1", "1.2.3",	"0x7f.1",
		"*.com",       "*.co.uk",     "**.io",	   "a..b",	".",
		"fe80::1%",    "1.2.3.4%x",   "[::1]",	   "x.com:443", "10.0.0.0/08",
		"*.1.2.3.4",
	};
	static const char *const actions[] = { "allow", "deny" };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(targets); i++) {
		const char *target = targets[i / 2], *action = actions[i % 2];
		bool suffix = strcmp(target, "*.com") == 0 ||
			      strcmp(target, "*.co.uk") == 0 ||
			      strcmp(target, "**.io") == 0;
		struct made m = { 0 };
		char body[256];

		snprintf(body, sizeof(body),
			 "{\"egress\":[{\"action\":\"%s\",\"target\":\"%s\"}]}", action,
			 target);
		if (suffix && i % 2 == 1)
			continue;
		if (make(&m, body, NULL, NULL) != -EINVAL)
			fail_msg("%s was taken", body);
		assert_int_equal(m.w.faults.errors, 1);
		assert_string_equal(m.w.faults.items[0].path, "egress[0].target");
		made_done(&m);
	}
}

TEST(every_fault_is_told_with_its_place)
{
	struct made m = { 0 };

	assert_int_equal(
		make(&m,
		     "\n{\"limits\":{\"flows\":0},\"egress\":[\n"
		     "  {\"action\":\"allow\",\"target\":\"a b\"},\n"
		     "  {\"action\":\"allow\",\"target\":\"a.b\",\"ports\":[0]},\n"
		     "  {\"action\":\"deny\",\"target\":\"1.2.3.4\",\"ports\":[1]}]}",
		     "ok.test\n\nx y\n", "# c\n http://z\n"),
		-EINVAL);
	assert_string_equal(
		faults_text(&m.w),
		"deny.always:3:1: 'x y' is not a target: it holds a blank or a control "
		"character\n"
		"allow.always:2:2: 'http://z' is not a target: write the host alone, "
		"without scheme and path\n"
		"policy.json: limits.flows: '0' is not a value for this limit: 1 to "
		"65536 connections\n"
		"policy.json:3:3: egress[0].target: 'a b' is not a target: it holds a "
		"blank or a control character\n"
		"policy.json:4:3: egress[1].ports[0]: '0' is not a port: ports are 1 to "
		"65535\n"
		"policy.json:5:3: egress[2].ports: a deny refuses every port; to refuse "
		"some, allow the others before it\n");
	made_done(&m);
}

TEST(own_keys_reach_the_plan)
{
	struct made m = { 0 };
	struct plan_verdict v;
	struct dns_name n;
	struct addr a = addr_v4(11, 1, 2, 3);

	if (make(&m,
		 "{\"verify\":\"tls\",\"limits\":{\"flows\":10},"
		 "\"require_full_isolation\":true,\"egress\":["
		 "{\"action\":\"allow\",\"target\":\"*.A.test\",\"ports\":[443],"
		 "\"private\":true,\"types\":[\"SRV\"],\"comment\":\"why\"},"
		 "{\"action\":\"allow\",\"target\":\"11.0.0.1/8\",\"ports\":[\"tcp/"
		 "22\"]},"
		 "{\"action\":\"deny\",\"target\":\"*.com\",\"comment\":\"none\"}]}",
		 NULL, NULL) < 0)
		fail_msg("%s", faults_text(&m.w));
	assert_int_equal(dns_name_parse(text_of("x.a.test"), &n), 0);
	v = plan_match_name(&m.plan, &n);
	assert_int_equal(v.action, POLICY_ALLOW);
	assert_int_equal(v.flags, PLAN_PRIVATE | PLAN_PORTS_LISTED);
	assert_int_equal(v.types, PLAN_TYPE_SRV);
	assert_true(plan_port_list_has(&m.plan, v.port_list, IPPROTO_TCP, 443));
	assert_false(plan_port_list_has(&m.plan, v.port_list, IPPROTO_TCP, 80));
	assert_int_equal(plan_match_addr(&m.plan, &a, IPPROTO_TCP, 22).action,
			 POLICY_ALLOW);
	assert_int_equal(plan_match_addr(&m.plan, &a, IPPROTO_TCP, 23).action,
			 POLICY_DENY);
	assert_int_equal(plan_verify(&m.plan), POLICY_VERIFY_TLS);
	assert_int_equal(plan_limit(&m.plan, LIMIT_FLOWS), 10);
	assert_true(plan_requires_full_isolation(&m.plan));
	assert_string_equal(plan_rule(&m.plan, 0).target, "*.A.test");
	assert_string_equal(plan_rule(&m.plan, 0).comment, "why");
	assert_string_equal(plan_rule(&m.plan, 1).target, "11.0.0.1/8");
	assert_string_equal(plan_rule(&m.plan, 2).target, "*.com");
	assert_string_equal(plan_rule(&m.plan, 2).file, "policy.json");
	made_done(&m);
}

/* What only the schema refuses is refused here too. */
TEST(own_keys_are_strict)
{
	static const char *const bodies[] = {
		"{\"verify\":\"full\"}",
		"{\"limits\":{\"flows\":1,\"flows\":2}}",
		"{\"limits\":{\"nothing\":1}}",
		"{\"limits\":[]}",
		"{\"require_full_isolation\":\"true\"}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\",\"ports\":[]}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\",\"ports\":443}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\",\"ports\":[53]}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"1.2.3.4\","
		"\"private\":true}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\","
		"\"comment\":\"x\\ny\"}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\","
		"\"comment\":\"\\u202e\"}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\",\"types\":"
		"[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]}]}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct made m = { 0 };

		if (make(&m, bodies[i], NULL, NULL) != -EINVAL)
			fail_msg("%s was taken", bodies[i]);
		assert_true(m.w.faults.errors > 0);
		made_done(&m);
	}
}

/* Rules that have the same keys are judged once for each sort of rule. */
TEST(rules_alike_are_told_apart)
{
	static const char own[] = "\"private\":true";
	static const struct {
		const char *action, *target, *own;
		const char *path; /* of the fault, NULL: none */
	} second[] = {
		{ "allow", "*.c.test", own, NULL },
		{ "allow", "d.test", own, NULL },
		{ "allow", "1.2.3.4", own, "egress[1].private" },
		{ "deny", "c.test", own, "egress[1].private" },
		{ "allow", "c.test", "\"unmetered\":true", "egress[1].unmetered" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(second); i++) {
		struct made m = { 0 };
		char body[512];

		snprintf(body, sizeof(body),
			 "{\"egress\":[{\"action\":\"allow\",\"target\":\"**.a.test\",%s}"
			 ",\n"
			 "{\"action\":\"%s\",\"target\":\"%s\",%s},\n"
			 "{\"action\":\"allow\",\"target\":\"z.test\"}]}",
			 own, second[i].action, second[i].target, second[i].own);
		if (second[i].path) {
			assert_int_equal(make(&m, body, NULL, NULL), -EINVAL);
			assert_int_equal(m.w.faults.count, 1);
			assert_string_equal(m.w.faults.items[0].path, second[i].path);
			assert_int_equal(m.w.faults.items[0].line, 2);
		} else {
			assert_int_equal(make(&m, body, NULL, NULL), 0);
			assert_int_equal(m.w.policy.rules[1].flags, PLAN_PRIVATE);
			assert_int_equal(m.w.policy.rules[1].line, 2);
			assert_int_equal(m.w.policy.rules[2].flags, 0);
			expect_open(&m, i == 0 ? "+a.test +x.c.test -c.test +z.test"
					       : "+a.test +d.test -x.d.test +z.test");
		}
		made_done(&m);
	}
}

TEST(what_opens_nothing_is_warned_of)
{
	struct made m = { 0 };

	assert_int_equal(make(&m, "{\"egress\":[" A("fe80::1%eth0") "]}", NULL,
			      "::ffff:1.2.3.4\n"),
			 0);
	assert_int_equal(m.w.policy.count, 0);
	assert_string_equal(
		faults_text(&m.w),
		"allow.always:1:1: warning: '::ffff:1.2.3.4' opens nothing: no packet "
		"carries such an address\n"
		"policy.json:1:12: warning: egress[0].target: 'fe80::1%eth0' opens "
		"nothing: no packet carries such an address\n");
	made_done(&m);
}

/* P8: a document replaces another, and nothing of the first stays. */
TEST(a_swap_is_complete)
{
	static const char *const bodies[] = { "", "{\"egress\":[" A("example.com") "]}",
					      "" };

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct made m = { 0 };

		assert_int_equal(make(&m, bodies[i], NULL, NULL), 0);
		assert_int_equal(name_is_open(&m, "example.com"), i == 1);
		made_done(&m);
	}
}
