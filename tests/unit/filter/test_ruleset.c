// SPDX-License-Identifier: Apache-2.0
/* A ruleset printed in a short notation of its own, and rules about what stands in it
 * and in what order. */
#include "filter/ruleset.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"
#include <linux/netfilter.h>

#include "filter/host_internal.h"
#include "policy/policy.h"

enum { TEXT_SIZE = 64 * 1024 };

struct world {
	struct arena arena;
	uint8_t *bytes;
	const struct ruleset *rs;
	char text[TEXT_SIZE]; /* "chain: statement statement\n" */
};

static const char *const fields[FILTER_FIELD_COUNT] = {
	"none",	   "nfproto",  "l4proto",   "iif",   "oif",	  "oifgroup",  "meta",
	"uid",	   "ipsource", "ip",	    "ip6",   "ip6head",	  "ip6length", "words",
	"routing", "hoplimit", "sport",	    "dport", "icmp",	  "tcpflags",  "state",
	"status",  "mark",     "direction", "fib",   "fibsource", "cgroup",
};

static void print_stmt(FILE *f, const struct filter_stmt *s)
{
	switch (s->kind) {
	case FILTER_EQUAL:
	case FILTER_NOT_EQUAL:
		fprintf(f, " %s", fields[s->field]);
		if (s->mask)
			fprintf(f, "&%u", s->mask);
		fprintf(f, "%s%u", s->kind == FILTER_EQUAL ? "=" : "!=", s->value);
		return;
	case FILTER_RANGE:
		fprintf(f, " %s=%u-%u", fields[s->field], s->value, s->value_to);
		return;
	case FILTER_IN_SET:
		fprintf(f, " %s@%s", fields[s->field], s->set->name);
		return;
	case FILTER_PORT_IN_SET:
		fprintf(f, " l4proto.%s@%s", fields[s->field], s->set->name);
		return;
	case FILTER_FLOW_NEW:
		fprintf(f, " flow!@%s", s->set->name);
		return;
	case FILTER_FLOW_ADD:
		fprintf(f, " add@%s", s->set->name);
		return;
	case FILTER_FLOW_COUNT:
		fprintf(f, " count@%s", s->set->name);
		return;
	case FILTER_SET_CT_MARK:
		fprintf(f, " mark:%u", s->value);
		return;
	case FILTER_JUMP:
		fprintf(f, " jump:%s", s->chain->name);
		return;
	case FILTER_GOTO:
		fprintf(f, " goto:%s", s->chain->name);
		return;
	case FILTER_REDIRECT:
		fprintf(f, " redirect:%u", s->value);
		return;
	case FILTER_LIMIT:
		fprintf(f, " limit");
		return;
	case FILTER_COUNTER:
		fprintf(f, " counter");
		return;
	case FILTER_LOG:
		fprintf(f, " log%s",
			strcmp(s->prefix, FILTER_PREFIX_REFUSED) == 0	  ? ""
			: strcmp(s->prefix, FILTER_PREFIX_UNCOUNTED) == 0 ? ":also"
									  : ":own");
		return;
	case FILTER_ACCEPT:
		fprintf(f, " accept");
		return;
	case FILTER_DROP:
		fprintf(f, " drop");
		return;
	case FILTER_RETURN:
		fprintf(f, " return");
		return;
	case FILTER_REJECT_RESET:
		fprintf(f, " reset");
		return;
	case FILTER_REJECT_ADMIN:
		fprintf(f, " prohibited");
		return;
	case FILTER_IN_CGROUP:
		fprintf(f, " cgroup=%s", s->cgroup->path);
		return;
	case FILTER_GO_BY:
		fprintf(f, " go_by@%s", s->set->name);
		return;
	case FILTER_MARK_BY:
		fprintf(f, " meta_by@%s", s->set->name);
		return;
	case FILTER_SET_MARK:
		fprintf(f, " meta:%u", s->value);
		return;
	case FILTER_MARK_FROM_CT:
		fprintf(f, " meta:mark");
		return;
	case FILTER_CT_FROM_MARK:
		fprintf(f, " mark:meta&%08x", s->mask);
		return;
	case FILTER_LIMIT_EACH:
		fprintf(f, " limit@%s", s->set->name);
		return;
	case FILTER_STMT_NONE:
	case FILTER_STMT_COUNT:
		break;
	}
	fail_msg("a statement that says nothing");
}

static void print(struct world *w)
{
	FILE *f = fmemopen(w->text, sizeof(w->text), "w");

	for (const struct filter_chain *c = w->rs->chains; c; c = c->next) {
		fprintf(f, "%s\n", c->name);
		for (const struct filter_rule *r = c->rules; r; r = r->next) {
			fprintf(f, "%s:", c->name);
			for (size_t i = 0; i < r->count; i++)
				print_stmt(f, &r->stmts[i]);
			fprintf(f, "\n");
		}
	}
	fclose(f);
}

static struct rule prefix_rule(enum policy_action action, const char *prefix,
			       const struct plan_port_range *ports)
{
	struct rule r = { .action = action,
			  .kind = TARGET_PREFIX,
			  .target = prefix,
			  .file = "test",
			  .comment = "" };

	assert_true(prefix_parse(prefix, strlen(prefix), false, &r.prefix));
	if (ports) {
		r.ports = (struct rule_ports){ ports, 1 };
		r.flags = PLAN_PORTS_LISTED;
	}
	return r;
}

static struct world build(const struct policy *policy, struct filter_params params)
{
	struct world w = { 0 };
	struct err err = { 0 };
	struct plan plan;
	size_t size;

	if (policy_compile(policy, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &plan, &err) < 0 ||
	    ruleset_build_owned(&plan, &params, &w.arena, &w.rs, &err) < 0)
		fail_msg("%s", err.text);
	print(&w);
	return w;
}

static void world_done(struct world *w)
{
	arena_done(&w->arena);
	free(w->bytes);
}

static const struct filter_set *find_set(const struct world *w, const char *name)
{
	const struct filter_set *s = w->rs->sets;

	while (s && strcmp(s->name, name) != 0)
		s = s->next;
	return s;
}

static void assert_has(const struct world *w, const char *line)
{
	if (!strstr(w->text, line))
		fail_msg("no '%s' in\n%s", line, w->text);
}

static void assert_has_not(const struct world *w, const char *part)
{
	if (strstr(w->text, part))
		fail_msg("'%s' in\n%s", part, w->text);
}

static void assert_order(const struct world *w, const char *first, const char *then)
{
	assert_has(w, first);
	assert_has(w, then);
	if (strstr(w->text, first) > strstr(w->text, then))
		fail_msg("'%s' stands behind '%s' in\n%s", first, then, w->text);
}

static const struct filter_params relay = { .generation = 7,
					    .relay = true,
					    .ipv6 = true };
static const struct filter_params direct = {
	.generation = 7,
	.direct_tcp = true,
	.direct_udp = true,
	.ipv6 = true,
};

TEST(an_empty_policy_accepts_only_what_is_local_or_a_reply)
{
	struct world w =
		build(&(struct policy){ 0 }, (struct filter_params){ .generation = 1 });

	assert_has(&w, "port53: l4proto!=6 l4proto!=17 return\n"
		       "port53: fib!=2 goto:refuse\n");
	assert_has(&w, "output: l4proto=58 jump:link\n"
		       "output: l4proto=2 jump:link\n"
		       "output: nfproto=2 words!=5 goto:refuse\n"
		       "output: nfproto=10 routing=1 goto:refuse\n"
		       "output: state!=4 fibsource!=2 goto:refuse\n"
		       "output: oif!=1 status&32=0 fib=2 goto:refuse\n"
		       "output: dport=53 jump:port53\n"
		       "output: state=2 l4proto=6 tcpflags&20!=0 jump:open\n"
		       "output: state=2 l4proto!=6 jump:open\n"
		       "output: state=4 uid!=4294967295 goto:refuse\n"
		       "output: state=4 jump:related\n"
		       "output: fib!=1 jump:not_unicast\n");
	assert_has(&w, "open: mark&65535=1 accept\n"
		       "related\n");
	assert_has(&w, "related: l4proto=1 icmp=3 accept\n"
		       "related: l4proto=1 icmp=11-12 accept\n"
		       "related: l4proto=58 icmp=1-4 accept\n"
		       "related: l4proto=6 tcpflags&4!=0 accept\n"
		       "port53\n");
	assert_has(&w, "not_unicast: fib=2 mark:1 accept\n"
		       "not_unicast: fib=6-8 return\n"
		       "not_unicast: goto:refuse\n");
	assert_has(&w, "link: nfproto=10 l4proto=58 hoplimit=255 icmp=135-136 accept\n"
		       "link: l4proto=58 icmp=133 counter drop\n"
		       "link: l4proto=58 icmp=130-132 counter drop\n"
		       "link: l4proto=58 icmp=143 counter drop\n"
		       "link: l4proto=2 counter drop\n");
	assert_has(&w, "output: goto:refuse\ninput\n");
	assert_has(&w, "nat: l4proto=17 dport=53 redirect:53\noutput\n");
	world_done(&w);
}

/* What it accepts another one has accepted before. */
TEST(every_base_chain_of_a_filter_but_the_last_drops)
{
	struct world w =
		build(&(struct policy){ .default_action = POLICY_ALLOW }, direct);
	size_t drops = 0;

	for (const struct filter_chain *c = w.rs->chains; c; c = c->next) {
		bool last = c->hook == NF_INET_POST_ROUTING;

		assert_true(c->type != FILTER_CHAIN_FILTER || c->accept == last);
		drops += c->type == FILTER_CHAIN_FILTER && !last;
	}
	assert_int_equal(drops, 3);
	world_done(&w);
}

TEST(refusals_are_logged_before_they_answer)
{
	struct world w = build(&(struct policy){ 0 }, relay);

	assert_has(&w, "refuse: counter jump:report\nrefuse: fibsource!=2 drop\n"
		       "refuse: l4proto=6 reset\n"
		       "refuse: prohibited\n");
	assert_has(&w, "report: l4proto!=6 l4proto!=17 goto:uncounted\n"
		       "report: nfproto=2 flow!@seen4 add@seen4 log return\n"
		       "report: nfproto=2 count@seen4 return\n"
		       "report: nfproto=10 flow!@seen6 add@seen6 log return\n"
		       "report: nfproto=10 count@seen6 return\n"
		       "report: goto:uncounted\n");
	assert_has(&w, "uncounted: limit log:also\n");
	assert_true(find_set(&w, "seen4")->counts);
	assert_int_equal(find_set(&w, "seen4")->size, FILTER_SEEN_MAX);
	assert_int_equal(find_set(&w, "seen6")->timeout_sec, FILTER_SEEN_SEC);
	world_done(&w);
}

TEST(what_leaves_by_the_link_is_counted_as_long_as_there_is_room)
{
	struct filter_params udp = relay;
	struct world w = build(&(struct policy){ 0 }, direct), v, none;

	udp.direct_udp = true;
	v = build(&(struct policy){ 0 }, udp);
	none = build(&(struct policy){ 0 }, relay);
	assert_has(&w, "passed: l4proto!=6 l4proto!=17 accept\n"
		       "passed: direction=1 accept\n"
		       "passed: nfproto=2 count@used4 accept\n"
		       "passed: nfproto=10 count@used6 accept\n"
		       "passed: counter accept\n");
	assert_has(&w, "ports_0: l4proto=6 dport@tcp_0_a mark:7 goto:passed\n");
	assert_has(&w, "output: nfproto=2 ip@learned4_0 jump:ports_0\n");
	assert_int_equal(find_set(&w, "used4")->size, FILTER_USED_MAX);
	assert_has(&v, "passed: l4proto!=17 accept\n"
		       "passed: direction=1 accept\n"
		       "passed: nfproto=2 count@used4 accept\n");
	assert_has_not(&none, "passed");
	world_done(&w);
	world_done(&v);
	world_done(&none);
}

TEST(related_packets_are_never_marked)
{
	struct world w = build(&(struct policy){ 0 }, relay);

	/* A refusal is attached to the flow that it refuses. */
	assert_order(&w, "output: state=4 jump:related\n", "output: fib!=1 ");
	assert_has(&w, "related: l4proto=6 tcpflags&4!=0 accept\n");
	world_done(&w);
}

TEST(the_relay_takes_only_what_nat_has_sent)
{
	struct world w = build(&(struct policy){ 0 }, relay);

	assert_has(&w, "output: l4proto=6 dport=1021 fib=2 status&32!=0 mark:7 accept\n"
		       "output: l4proto=6 dport=1021 fib=2 goto:refuse\n"
		       "output: fib!=1 jump:not_unicast\n");
	assert_has(&w,
		   "nat: l4proto=6 nfproto=2 ip@learned4_0 dport@tcp_0 redirect:1021\n");
	assert_has_not(&w, "output: l4proto=6 nfproto");
	world_done(&w);
}

TEST(a_deny_stands_before_every_allow)
{
	struct rule rules[] = { prefix_rule(POLICY_ALLOW, "203.0.113.0/24", NULL),
				prefix_rule(POLICY_DENY, "203.0.113.7", NULL),
				prefix_rule(POLICY_DENY, "2600::/16", NULL) };
	struct policy policy = { .rules = rules,
				 .count = 3,
				 .default_action = POLICY_ALLOW };
	struct world w = build(&policy, relay), v = build(&policy, direct);

	assert_order(&w, "nat: nfproto=2 ip@deny4 return\n", "redirect:1021");
	assert_order(&w, "nat: nfproto=10 ip6@deny6 return\n", "redirect:1021");
	assert_order(&v, "output: nfproto=2 ip@deny4_a goto:refuse\n",
		     "output: nfproto=2 ip@allow4_0_a jump:ports_0\n");
	assert_order(&v, "output: nfproto=10 ip6@deny6_a goto:refuse\n",
		     "output: nfproto=2 ip@learned4_0 jump:ports_0\n");
	world_done(&w);
	world_done(&v);
}

TEST(what_the_parameters_close_is_denied_like_by_a_rule)
{
	static const struct prefix closed[] = {
		{ { ADDR_V4, { 192, 0, 0, 128 } }, 25 },
		{ { ADDR_V6, { 0xfd } }, 64 },
		{ { ADDR_V4, { 203, 0, 113, 5 } }, 32 },
	};
	struct rule rules[] = { prefix_rule(POLICY_DENY, "203.0.113.7", NULL),
				prefix_rule(POLICY_ALLOW, "203.0.113.0/24", NULL) };
	struct policy policy = { .rules = rules, .count = 2 };
	struct filter_params p = direct;
	struct world w;

	p.closed = closed;
	p.closed_count = ARRAY_SIZE(closed);
	w = build(&policy, p);
	assert_int_equal(find_set(&w, "deny4_a")->range_count, 2);
	assert_int_equal(find_set(&w, "deny4_a")->ranges[0].to[3], 255);
	assert_int_equal(find_set(&w, "deny6_a")->range_count, 3);
	assert_int_equal(find_set(&w, "closed4_a")->range_count, 1);
	/* Behind a translator, too. */
	assert_int_equal(find_set(&w, "closed6_a")->range_count, 1);
	assert_int_equal(find_set(&w, "closed6_a")->ranges[0].to[15], 5);
	assert_int_equal(find_set(&w, "allow4_0_a")->range_count, 2);
	assert_has(&w, "output: nfproto=10 ip6@deny6_a goto:refuse\n");
	assert_order(&w, "output: nfproto=2 ip@allow4_0_a jump:ports_0\n",
		     "output: nfproto=2 ip@closed4_a goto:refuse\n");
	assert_order(&w, "output: nfproto=2 ip@closed4_a goto:refuse\n",
		     "output: nfproto=2 ip@learned4_0 jump:ports_0\n");
	world_done(&w);
}

TEST(udp_never_leaves_by_the_dead_end)
{
	struct filter_params p = relay;
	struct world w, v;

	p.direct_udp = true;
	w = build(&(struct policy){ .default_action = POLICY_ALLOW }, p);
	v = build(&(struct policy){ .default_action = POLICY_ALLOW }, relay);
	/* Before open flows are: they must not vanish without an error. */
	assert_order(&w, "output: l4proto=17 oifgroup=2003134834 fib!=2 goto:refuse\n",
		     "output: state=2 l4proto!=6 jump:open\n");
	assert_has_not(&v, "oifgroup");
	world_done(&w);
	world_done(&v);
}

TEST(only_an_address_rule_opens_port_53)
{
	static const struct plan_port_range dns = { IPPROTO_UDP, 0, 53, 53 };
	struct rule rules[] = { prefix_rule(POLICY_ALLOW, "203.0.113.53", &dns) };
	struct policy policy = { .rules = rules, .count = 1 };
	struct world w = build(&policy, direct);

	assert_has(&w,
		   "dns_nat: l4proto=17 nfproto=2 ip@allow4_1_a dport@udp_1_a return\n"
		   "dns_nat: redirect:53\n");
	assert_has(&w,
		   "dns_output: l4proto=17 nfproto=2 ip@allow4_1_a dport@udp_1_a mark:7 "
		   "goto:passed\n"
		   "dns_output: goto:refuse\n");
	assert_has(&w, "port53: fib!=2 goto:dns_output\n");
	assert_has_not(&w, "dns_nat: l4proto=6");
	world_done(&w);
}

TEST(without_ipv6_no_rule_allows_it)
{
	struct rule rules[] = { prefix_rule(POLICY_ALLOW, "2600::/16", NULL) };
	struct policy policy = { .rules = rules,
				 .count = 1,
				 .default_action = POLICY_ALLOW };
	struct filter_params p = direct;
	struct world w;

	p.ipv6 = false;
	w = build(&policy, p);
	assert_has_not(&w, "ip6@");
	assert_has_not(&w, "nfproto=10 l4proto=6 dport");
	assert_null(find_set(&w, "learned6_0"));
	world_done(&w);
}

TEST(static_sets_are_merged)
{
	struct rule rules[] = { prefix_rule(POLICY_ALLOW, "10.0.1.0/24", NULL),
				prefix_rule(POLICY_ALLOW, "10.0.0.0/24", NULL),
				prefix_rule(POLICY_ALLOW, "10.0.0.128/25", NULL),
				prefix_rule(POLICY_ALLOW, "255.255.255.255", NULL) };
	struct policy policy = { .rules = rules, .count = 4 };
	static const uint8_t from[4] = { 10, 0, 0, 0 }, to[4] = { 10, 0, 1, 255 };
	struct world w = build(&policy, relay);
	const struct filter_set *s = find_set(&w, "allow4_0");

	assert_non_null(s);
	assert_int_equal(s->range_count, 2);
	assert_memory_equal(s->ranges[0].from, from, 4);
	assert_memory_equal(s->ranges[0].to, to, 4);
	world_done(&w);
}

/* Only those, and only to the ports that were open: the chain is asked by nobody else. */
TEST(open_flows_alone_go_on_to_draining_addresses)
{
	struct world w = build(&(struct policy){ 0 }, direct);

	assert_has(&w, "draining: nfproto=2 ip@kept4_0 jump:ports_0\n"
		       "draining: nfproto=10 ip6@kept6_0 jump:ports_0\n");
	assert_has(&w, "output: state=2 l4proto=6 tcpflags&20!=0 mark&65535!=0 "
		       "jump:draining\n"
		       "output: state=2 l4proto=17 mark&65535!=0 jump:draining\n"
		       "output: goto:refuse\n");
	assert_has_not(&w, "goto:draining");
	assert_has_not(&w, "output: nfproto=2 ip@kept");
	world_done(&w);
}

/* filter_verify() does not read back a set that stays empty: somebody may have put
 * addresses into it. Return: how many there are, none of which is asked. */
static size_t asserted_empty_sets(const struct ruleset *rs)
{
	size_t empty = 0;

	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		if (s->timeout || s->changes || s->value || s->range_count > 0)
			continue;
		empty++;
		for (const struct filter_chain *c = rs->chains; c; c = c->next)
			for (const struct filter_rule *r = c->rules; r; r = r->next)
				for (size_t i = 0; i < r->count; i++)
					if (r->stmts[i].set == s)
						fail_msg("%s asks the set %s", c->name,
							 s->name);
	}
	return empty;
}

TEST(no_rule_asks_a_set_that_stays_empty)
{
	struct rule rules[] = { prefix_rule(POLICY_ALLOW, "203.0.113.0/24", NULL) };
	const struct filter_shared_params params[] = {
		{ .generation = 7,
		  .relay = true,
		  .mark = 1,
		  .uid = 1000,
		  .dns_port = 15353,
		  .relay_port = 15354 },
		{ .generation = 7,
		  .redirect_only = true,
		  .mark = 1,
		  .uid = 1000,
		  .dns_port = 15353 },
		{ .generation = 7, .dns_port = 15353 },
	};
	size_t empty = 0;

	for (size_t i = 0; i < 2 * ARRAY_SIZE(params); i++) {
		const struct policy policy = { .rules = rules, .count = i % 2 };
		CLEAN(arena) struct arena arena = { 0 };
		CLEAN(mem) uint8_t *bytes = NULL;
		const struct ruleset *rs;
		struct err err = { 0 };
		struct plan plan;
		size_t size;

		if (policy_compile(&policy, &bytes, &size, &err) < 0 ||
		    plan_open(bytes, size, &plan, &err) < 0 ||
		    ruleset_build_shared(&plan, &params[i / 2], &arena, &rs, &err) < 0)
			fail_msg("%s", err.text);
		empty += asserted_empty_sets(rs);
	}
	assert_true(empty > 0);
}

TEST(no_ping_leaves_where_all_that_leaves_has_a_budget)
{
	static const struct filter_shared_params params = { .generation = 7,
							    .dns_port = 15353 };
	const struct policy policies[] = {
		{ .default_action = POLICY_ALLOW },
		{ .default_action = POLICY_ALLOW, .budget = { .sent = 1000 } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		struct world w = { 0 };
		struct err err = { 0 };
		struct plan plan;
		size_t size;

		if (policy_compile(&policies[i], &w.bytes, &size, &err) < 0 ||
		    plan_open(w.bytes, size, &plan, &err) < 0 ||
		    ruleset_build_shared(&plan, &params, &w.arena, &w.rs, &err) < 0)
			fail_msg("%s", err.text);
		print(&w);
		assert_has(&w, "egress: nfproto=2 l4proto=17 dport@udp_0_a mark:7 "
			       "goto:passed\n");
		/* Echo requests of both families. */
		if (i == 0) {
			assert_has(&w, "egress: nfproto=2 l4proto=1 icmp=8 mark:7 "
				       "accept\n");
			assert_has(&w, "egress: nfproto=10 l4proto=58 icmp=128 mark:7 "
				       "accept\n");
		} else {
			assert_has_not(&w, "icmp=8 ");
			assert_has_not(&w, "icmp=128 ");
		}
		world_done(&w);
	}
}

/* The other end of a connection that was cut speaks first, after the kernel has forgotten
 * the flow: what the sandbox sends would be replies to it. */
TEST(no_end_of_a_connection_takes_it_up_in_a_namespace)
{
	const struct filter_shared_params params[] = {
		{ .generation = 7, .dns_port = 15353 },
		{ .generation = 7, .dns_port = 15353, .redirect_only = true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(params); i++) {
		static const char rule[] = "input: iif!=1 state=8 l4proto=6 tcpflags&2=0 "
					   "counter reset\n";
		struct world w = { 0 };
		struct err err = { 0 };
		struct plan plan;
		size_t size;

		if (policy_compile(&(struct policy){ 0 }, &w.bytes, &size, &err) < 0 ||
		    plan_open(w.bytes, size, &plan, &err) < 0 ||
		    ruleset_build_shared(&plan, &params[i], &w.arena, &w.rs, &err) < 0)
			fail_msg("%s", err.text);
		print(&w);
		if (i == 0)
			assert_has(&w, rule);
		else
			assert_has_not(&w, rule);
		/* With a SYN it begins a flow, to which what was cut says an ACK. */
		if (i == 0)
			assert_has(&w, "replies: status&4!=0 accept\n"
				       "replies: l4proto!=6 accept\n"
				       "replies: l4proto=6 tcpflags&6!=0 accept\n"
				       "replies: counter drop\n");
		world_done(&w);
	}
}

static struct world build_member(const struct policy *policy,
				 const struct filter_member_params *params)
{
	struct world w = { 0 };
	struct err err = { 0 };
	struct plan plan;
	size_t size;

	if (policy_compile(policy, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &plan, &err) < 0 ||
	    ruleset_build_member(&plan, params, &w.arena, &w.rs, &err) < 0)
		fail_msg("%s", err.text);
	print(&w);
	return w;
}

TEST(no_end_of_a_connection_takes_it_up_without_a_daemon)
{
	const struct filter_cgroup group = { .level = 1, .id = 9, .path = "a" };
	const struct filter_member_params by_group = { .cgroup = &group,
						       .prefix = FILTER_PREFIX_REFUSED,
						       .mark = 77 };
	const struct filter_member_params by_user = { .uid = 1000,
						      .prefix = FILTER_PREFIX_REFUSED };
	struct world g = build_member(&(struct policy){ 0 }, &by_group);
	struct world u = build_member(&(struct policy){ 0 }, &by_user);

	assert_has(&g, "input: state=8 l4proto=6 tcpflags&2=0 cgroup=a mark:65535 "
		       "counter reset\n");
	assert_has(&u, "input: state=8 l4proto=6 tcpflags&2=0 uid=1000 mark:65535 "
		       "counter reset\n");
	/* Over loopback the kernel has kept the flow before it comes in. */
	assert_has(&g, "open: direction=1 mark!=65535 goto:replies\n");
	assert_has(&u, "open: direction=1 mark!=65535 goto:replies\n");
	world_done(&g);
	world_done(&u);
}

/* What an address rule has let through has no mark, and its listener was not looked at:
 * without the rule it doesn't go on. Nor does what the kernel doesn't track. */
TEST(a_connection_to_a_listener_goes_on_by_its_mark_alone)
{
	const struct filter_cgroup group = { .level = 1, .id = 9, .path = "a" };
	struct world w = build_member(
		&(struct policy){ 0 },
		&(struct filter_member_params){
			.cgroup = &group, .prefix = FILTER_PREFIX_REFUSED, .mark = 77 });

	assert_has(&w, "local\n"
		       "local: state=8 l4proto=6 tcpflags&2!=0 mark:77 accept\n"
		       "local: state=8 l4proto!=6 mark:77 accept\n"
		       "local: mark=77 direction=0 state=2 l4proto=6 tcpflags&20!=0 "
		       "accept\n"
		       "local: state=2 l4proto!=6 mark:77 accept\n"
		       "local: goto:refuse\n");
	world_done(&w);
}

static struct filter_host host = {
	.params = { .dns_port = 15353, .relay_port = 15354 },
	.level_users = { [0] = 1, [2] = 1 },
};

TEST(no_end_of_a_connection_takes_it_up_on_the_host)
{
	struct world w = { 0 };

	assert_int_equal(host_build_base(&host, &w.arena, &w.rs), 0);
	print(&w);
	assert_has(&w, "reset: mark:65535 counter reset\n");
	assert_has(&w, "taken_up: meta_by@cgroups_2 goto:reset\n"
		       "taken_up: meta_by@uids goto:reset\n");
	/* Connections over loopback have been looked at before. */
	assert_has(&w, "input: iif=1 none@ids goto:loopback\n"
		       "input: state=8 l4proto=6 tcpflags&2=0 goto:taken_up\n");
	for (const struct filter_chain *c = w.rs->chains; c; c = c->next)
		for (const struct filter_rule *r = c->rules; r; r = r->next)
			for (size_t i = 0; i < r->count; i++)
				if (r->stmts[i].set && r->stmts[i].set->level == 2)
					assert_true(host_chain_has_levels(c));
	world_done(&w);
}

TEST(a_members_connection_to_a_listener_begins_with_a_syn)
{
	struct host_plan p = { .number = 3, .relay = true };
	struct world w = { 0 };
	struct err err = { 0 };
	size_t size;

	if (policy_compile(&(struct policy){ 0 }, &w.bytes, &size, &err) < 0 ||
	    plan_open(w.bytes, size, &p.plan, &err) < 0 ||
	    host_build_plan(&host, &p, &w.arena, &w.rs, &err) < 0)
		fail_msg("%s", err.text);
	print(&w);
	assert_has(&w, "p3_local: state=8 l4proto=6 tcpflags&2!=0 mark:meta&ffff0000 "
		       "meta:0 accept\n"
		       "p3_local: state=8 l4proto!=6 mark:meta&ffff0000 meta:0 accept\n"
		       "p3_local: state=2 l4proto=6 ");
	assert_has(&w, "p3_output: state=2 l4proto=6 tcpflags&20!=0 direction=1 "
		       "mark!=65535 goto:replies\n");
	world_done(&w);
}

TEST(generation_0_is_refused)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	const struct ruleset *rs = NULL;
	struct filter_params p = { 0 };
	struct err err = { 0 };
	struct plan plan;
	size_t size;

	assert_int_equal(policy_compile(&(struct policy){ 0 }, &bytes, &size, &err), 0);
	assert_int_equal(plan_open(bytes, size, &plan, &err), 0);
	assert_int_equal(ruleset_build_owned(&plan, &p, &arena, &rs, &err), -EINVAL);
	assert_null(rs);
}
