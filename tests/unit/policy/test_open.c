// SPDX-License-Identifier: Apache-2.0
/* Policies that open what is public: what each opens and leaves closed, and what the
 * policy that was asked for would have said. */
#include "read_world.h"

#include <netinet/in.h>
#include <stdlib.h>

#include "base/special.h"
#include "policy/advice.h"

enum which { AUDIT, LEARN, ANY_PORT };

static const char asked[] =
	"egress:\n"
	"  - {action: deny, target: denied.test}\n"
	"  - {action: deny, target: 93.7.0.0/16}\n"
	"  - {action: allow, target: nas.test, private: true, ports: [445]}\n"
	"  - {action: allow, target: narrow.test, ports: [8443]}\n"
	"  - {action: allow, target: typed.test, types: [TXT]}\n"
	"  - {action: allow, target: 10.6.0.0/16, raw: true}\n"
	"  - {action: allow, target: 10.9.0.0/16}\n";

struct built {
	struct world w;
	uint8_t *bytes;
	struct plan plan;
};

static struct policy read_policy(struct world *w, const char *text)
{
	struct policy_reader r = reader(w);
	struct policy policy = { 0 };

	assert_int_equal(
		policy_read(&r, "p.yaml", text_of(text), POLICY_FORMAT_YAML, &policy), 0);
	return policy;
}

static void build(struct built *b, enum which which, const char *text,
		  const char *ceiling_text)
{
	struct policy policy = read_policy(&b->w, text);
	struct policy ceiling = read_policy(&b->w, ceiling_text ?: "egress: []");
	struct err err = { 0 };
	size_t size;
	int r = which == AUDIT
			? policy_open_audit(&policy, &b->w.arena)
			: policy_open_learn(&policy, ceiling_text ? &ceiling : NULL,
					    which == ANY_PORT, &b->w.arena, &err);

	assert_int_equal(r, 0);
	assert_int_equal(policy_compile(&policy, &b->bytes, &size, &err), 0);
	assert_int_equal(plan_open(b->bytes, size, &b->plan, &err), 0);
}

static void done(struct built *b)
{
	free(b->bytes);
	world_done(&b->w);
}

static bool opens_name(const struct plan *p, const char *text, uint16_t port)
{
	struct plan_verdict v;
	struct dns_name name;

	assert_int_equal(dns_name_parse(text_of(text), &name), 0);
	v = plan_match_name(p, &name);
	return v.action == POLICY_ALLOW &&
	       plan_port_list_has(p, v.port_list, IPPROTO_TCP, port);
}

static bool opens_addr(const struct plan *p, const char *text, uint16_t port)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return plan_match_addr(p, &a, IPPROTO_TCP, port).action == POLICY_ALLOW;
}

TEST(names)
{
	static const struct {
		const char *what, *name;
		uint16_t port;
		bool audit, learn, any_port;
	} rows[] = {
		{ "a web port", "a.test", 443, true, true, true },
		{ "another", "a.test", 8080, true, true, true },
		{ "no web port", "a.test", 22, true, false, true },
		{ "DNS", "a.test", 53, false, false, false },
		{ "DNS over TLS", "a.test", 853, false, false, false },
		{ "a single label", "host", 443, true, true, true },
		{ "an address as a name", "a.0x7f", 443, false, false, false },
		{ "what a rule denies", "denied.test", 443, true, false, false },
		{ "another port of a rule", "narrow.test", 443, true, true, true },
		{ "a port of a rule", "nas.test", 445, true, true, true },
		{ "a DoH resolver", "dns.google", 443, true, false, false },
	};

	for (int which = AUDIT; which <= ANY_PORT; which++) {
		struct built b = { 0 };

		build(&b, (enum which)which, asked, NULL);
		assert_true(plan_is_open(&b.plan));
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
			const bool want[] = { rows[i].audit, rows[i].learn,
					      rows[i].any_port };

			if (opens_name(&b.plan, rows[i].name, rows[i].port) !=
			    want[which])
				fail_msg("%d: %s", which, rows[i].what);
		}
		done(&b);
	}
}

TEST(addresses)
{
	static const struct {
		const char *addr;
		bool audit, learn;
	} rows[] = {
		{ "93.1.1.1", true, false },
		{ "93.7.1.1", true, false },
		{ "2a01:93::1", true, false },
		{ "10.9.1.1", true, true },
		{ "10.8.1.1", false, false },
		{ "192.168.1.1", false, false },
		{ "127.0.0.1", false, false },
		{ "169.254.169.254", false, false },
		{ "168.63.129.16", false, false },
		{ "168.63.129.17", true, false },
		{ "100.100.100.200", false, false },
		{ "224.0.0.1", false, false },
		{ "255.255.255.255", false, false },
		{ "0.0.0.0", false, false },
		{ "fe80::1", false, false },
		{ "fd00:ec2::254", false, false },
		{ "::1", false, false },
		{ "64:ff9b::a9fe:a9fe", false, false },
		{ "2002:a9fe:a9fe::1", false, false },
		{ "4000::1", false, false },
	};

	for (int which = AUDIT; which <= LEARN; which++) {
		struct built b = { 0 };

		build(&b, (enum which)which, asked, NULL);
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			if (opens_addr(&b.plan, rows[i].addr, 443) !=
			    (which == AUDIT ? rows[i].audit : rows[i].learn))
				fail_msg("%d: %s", which, rows[i].addr);
		done(&b);
	}
}

/* Whatever the seed, an audit opens an address as far as it is public. */
TEST(every_public_address)
{
	struct built b = { 0 };
	uint64_t seed = 19;

	build(&b, AUDIT, "egress: []", NULL);
	for (size_t i = 0; i < 20000; i++) {
		uint8_t bytes[16];
		struct addr a;

		for (size_t n = 0; n < sizeof(bytes); n++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			bytes[n] = (uint8_t)(seed >> 56);
		}
		bytes[0] = i % 4 == 3 ? 0x20 | (bytes[0] & 7) : bytes[0];
		a = addr_from_bytes(i % 2 ? ADDR_V6 : ADDR_V4, bytes);
		if ((plan_match_addr(&b.plan, &a, IPPROTO_TCP, 443).action ==
		     POLICY_ALLOW) != (addr_special(&a) == SPECIAL_NOT)) {
			char text[ADDR_TEXT_SIZE];

			/* An interface identifier that spells an IPv4 address can't be
			 * said by prefixes; the relay judges it. */
			if (a.family == ADDR_V4 ||
			    !addr_embedded_v4(&a, &(struct addr){ 0 }))
				fail_msg("%s", addr_format(&a, text));
		}
	}
	done(&b);
}

TEST(below_a_ceiling)
{
	static const struct {
		const char *what, *ceiling, *name;
		uint16_t port;
		bool open;
	} rows[] = {
		{ "a deny",
		  "defaultAction: allow\negress:\n  - {action: deny, target: x.test}",
		  "x.test", 443, false },
		{ "no deny",
		  "defaultAction: allow\negress:\n  - {action: deny, target: x.test}",
		  "y.test", 443, true },
		{ "an exception",
		  "defaultAction: allow\negress:\n  - {action: allow, target: "
		  "a.x.test}\n  - {action: deny, target: \"*.x.test\"}",
		  "a.x.test", 443, true },
		{ "beside the exception",
		  "defaultAction: allow\negress:\n  - {action: allow, target: "
		  "a.x.test}\n  - {action: deny, target: \"*.x.test\"}",
		  "b.x.test", 443, false },
		{ "its list", "egress:\n  - {action: allow, target: \"*.corp.test\"}",
		  "a.corp.test", 443, true },
		{ "not on its list",
		  "egress:\n  - {action: allow, target: \"*.corp.test\"}", "y.test", 443,
		  false },
		{ "a rule of the policy's",
		  "egress:\n  - {action: allow, target: \"*.corp.test\"}", "nas.test",
		  445, false },
		{ "its ports",
		  "egress:\n  - {action: allow, target: y.test, ports: [443]}", "y.test",
		  80, false },
		{ "no web port", "egress:\n  - {action: allow, target: y.test}", "y.test",
		  22, false },
		{ "what the policy denies",
		  "egress:\n  - {action: allow, target: denied.test}", "denied.test", 443,
		  false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct built b = { 0 };

		build(&b, LEARN, asked, rows[i].ceiling);
		if (opens_name(&b.plan, rows[i].name, rows[i].port) != rows[i].open)
			fail_msg("%s", rows[i].what);
		done(&b);
	}
}

TEST(an_empty_ceiling)
{
	struct world w = { 0 };
	struct policy policy = read_policy(&w, asked);
	struct policy ceiling =
		read_policy(&w, "egress:\n  - {action: deny, target: x.test}");
	struct err err = { 0 };

	assert_int_equal(policy_open_learn(&policy, &ceiling, false, &w.arena, &err),
			 -EINVAL);
	assert_non_null(strstr(err.text, "allows no name"));
	world_done(&w);
}

TEST(hindsight)
{
	static const struct {
		const char *what, *name, *addr;
		uint16_t port;
		uint8_t layer;
		bool refused;
		const char *advice;
		uint16_t query_type;
		bool claimed;
	} rows[] = {
		{ "a name", "a.test", "93.1.1.1", 443, EVENT_NAME, true,
		  "a.test:tcp/443" },
		{ "a look-up", "a.test", NULL, 0, EVENT_DNS, true, "a.test" },
		{ "a rule's deny", "denied.test", "93.1.1.1", 443, EVENT_NAME, true, "" },
		{ "an address rule's deny", "a.test", "93.7.1.1", 443, EVENT_NAME, true,
		  "" },
		{ "a port", "narrow.test", "93.1.1.1", 8443, EVENT_NAME, false, "" },
		{ "another port", "narrow.test", "93.1.1.1", 443, EVENT_NAME, true,
		  "narrow.test:tcp/443,8443" },
		{ "private", "nas.test", "10.1.1.1", 445, EVENT_ADDRESS, false, "" },
		{ "not private", "narrow.test", "10.1.1.1", 8443, EVENT_NAME, true,
		  "narrow.test:8443,private" },
		{ "metadata, whatever says private", "nas.test", "169.254.169.254", 445,
		  EVENT_NAME, true, "" },
		{ "bytes", "narrow.test", "93.1.1.1", 8443, EVENT_ADDRESS, true, "" },
		{ "an address", "", "93.1.1.1", 443, EVENT_ADDRESS, true,
		  "93.1.1.1:tcp/443" },
		{ "an allowed address", "", "10.9.1.1", 22, EVENT_ADDRESS, false, "" },
		{ "bytes on its web port", "", "10.9.1.1", 443, EVENT_ADDRESS, true, "" },
		{ "with raw", "", "10.6.1.1", 443, EVENT_ADDRESS, false, "" },
		{ "by name", "narrow.test", "10.6.1.1", 8443, EVENT_ADDRESS, false, "" },
		{ "TLS without a name", "", "10.9.1.1", 443, EVENT_NAME, false, "" },
		{ "its addresses", "narrow.test", NULL, 0, EVENT_DNS, false, "", 28 },
		{ "a type", "narrow.test", NULL, 0, EVENT_DNS, true,
		  "narrow.test:8443,TXT", 16 },
		{ "an allowed type", "typed.test", NULL, 0, EVENT_DNS, false, "", 16 },
		{ "another type", "typed.test", NULL, 0, EVENT_DNS, true,
		  "typed.test:TXT,MX", 15 },
		{ "a type for nobody", "typed.test", NULL, 0, EVENT_DNS, true, "", 65 },
		{ "a reverse name", "1.1.9.10.in-addr.arpa", NULL, 0, EVENT_DNS, true,
		  "1.1.9.10.in-addr.arpa:PTR", 12 },
		{ "no name", "a..b", "93.1.1.1", 443, EVENT_NAME, true, "" },
		{ "a name that was claimed", "narrow.test", "93.1.1.1", 8443, EVENT_NAME,
		  true, "93.1.1.1:tcp/8443", 0, true },
		{ "one at an allowed address", "narrow.test", "10.6.1.1", 8443,
		  EVENT_NAME, false, "", 0, true },
		{ "a denied one there", "denied.test", "10.6.1.1", 8443, EVENT_NAME, true,
		  "", 0, true },
	};
	struct built b = { 0 };
	struct policy policy = read_policy(&b.w, asked);
	struct err err = { 0 };
	size_t size;

	policy.verify = POLICY_VERIFY_TLS;
	assert_int_equal(policy_compile(&policy, &b.bytes, &size, &err), 0);
	assert_int_equal(plan_open(b.bytes, size, &b.plan, &err), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct event e = { .action = EVENT_ALLOW,
				   .layer = rows[i].layer,
				   .protocol = IPPROTO_TCP,
				   .port = rows[i].port,
				   .query_type = rows[i].query_type,
				   .claimed = rows[i].claimed,
				   .packets = 3 },
			     ret;

		snprintf(e.name, sizeof(e.name), "%s", rows[i].name);
		if (rows[i].addr)
			assert_true(addr_parse(rows[i].addr, strlen(rows[i].addr),
					       &e.remote));
		if (policy_would_refuse(&b.plan, &e, &ret) != rows[i].refused)
			fail_msg("%s", rows[i].what);
		if (!rows[i].refused)
			continue;
		if (strcmp(ret.advice, rows[i].advice) != 0)
			fail_msg("%s: %s", rows[i].what, ret.advice);
		assert_int_equal(ret.action, EVENT_DENY);
		assert_int_equal(ret.packets, 3);
	}
	done(&b);
}
