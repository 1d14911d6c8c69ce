// SPDX-License-Identifier: Apache-2.0
/* Whatever was refused: the advice, given as one more --allow or put as a rule in front
 * of the policy, lets that through, and nothing that it doesn't name. Policies and
 * refusals come from a seed. */
#include "read_world.h"

#include "dns/message.h"
#include "policy/advice.h"
#include "random_policy.h"
#include "sandbox/verdict.h"

enum { REFUSALS = 500, TRIES_MAX = 100 * REFUSALS };

static const char *const names[] = { "a.test",		 "b.a.test",
				     "c.b.a.test",	 "other.test",
				     "_srv._tcp.a.test", "5.0.0.10.in-addr.arpa" };
static const char *const targets[] = { "a.test",    "b.a.test",	  "*.a.test",
				       "**.a.test", "other.test", "**.test.example" };
static const char *const lists[] = {
	"",    "443",	      "tcp/443",    "80,443",	       "udp/443",
	"853", "default,853", "default,22", "8000-8100,tcp/22"
};
static const char *const words[] = { "",       "private", "raw", "SRV", "private,PTR",
				     "TXT,MX", "required" };
static const char *const addrs[] = { "93.184.216.34", "10.0.0.5",    "192.168.7.7",
				     "100.64.1.1",    "203.0.113.9", "2606:2800::1",
				     "fd00::5",	      "127.0.0.1",   "169.254.169.254" };
static const char *const prefixes[] = { "10.0.0.0/8",	  "10.0.0.5", "93.184.216.0/24",
					"2606:2800::/32", "fd00::5",  "192.168.7.7" };
static const uint16_t ports[] = { 22, 53, 80, 443, 853, 8080, 9418 };
static const uint16_t types[] = { DNS_TYPE_A,	DNS_TYPE_AAAA, DNS_TYPE_PTR,
				  DNS_TYPE_SRV, DNS_TYPE_TXT,  DNS_TYPE_MX };

#define PICK(seed, all) ((all)[random_next(seed) % ARRAY_SIZE(all)])

/* ---- one policy: options in front, then a document ---- */

struct source {
	char options[4][EVENT_ADVICE_SIZE];
	size_t option_count;
	char document[2048];
	char front[ADVICE_RULE_SIZE]; /* a rule before all of the document's; "": none */
};

struct built {
	struct world w;
	uint8_t *bytes;
	struct plan plan;
};

static bool build(const struct source *s, struct built *ret)
{
	struct policy_reader r = reader(&ret->w);
	char text[sizeof(s->document) + sizeof(s->front) + 32];
	struct err err = { 0 };
	size_t size;

	for (size_t i = 0; i < s->option_count; i++)
		if (policy_read_option(&r, "--allow", POLICY_ALLOW,
				       text_of(s->options[i]), &ret->w.policy) < 0)
			return false;
	if (s->front[0]) {
		snprintf(text, sizeof(text), "egress: [%s]", s->front);
		world_read(&ret->w, "front.yaml", text);
		if (ret->w.result < 0)
			return false;
	}
	world_read(&ret->w, "p.yaml", s->document);
	ret->w.policy.verify = POLICY_VERIFY_TLS;
	return ret->w.result == 0 &&
	       policy_build(&r, &ret->w.policy, &ret->bytes, &size) == 0 &&
	       plan_open(ret->bytes, size, &ret->plan, &err) == 0;
}

static void built_done(struct built *b)
{
	free(b->bytes);
	world_done(&b->w);
}

static void add_rule(uint32_t *seed, char *text, size_t size)
{
	const bool is_addr = random_next(seed) % 3 == 0;
	const bool is_deny = random_next(seed) % 4 == 0;
	const char *list = PICK(seed, lists);
	size_t used = strlen(text);
	uint32_t more = random_next(seed) % 8;

	used += (size_t)snprintf(text + used, size - used,
				 "  - {action: %s, target: \"%s\"",
				 is_deny ? "deny" : "allow",
				 is_addr ? PICK(seed, prefixes) : PICK(seed, targets));
	if (!is_deny && list[0])
		used += (size_t)snprintf(text + used, size - used, ", ports: [%s]", list);
	if (!is_deny && !is_addr && more < 4)
		used += (size_t)snprintf(
			text + used, size - used, ", %s",
			(const char *const[]){ "private: true", "types: [SRV, TXT]",
					       "raw: true", "types: [PTR]" }[more]);
	snprintf(text + used, size - used, "}\n");
}

static void random_source(uint32_t *seed, struct source *s)
{
	size_t rules = random_next(seed) % 4;

	memset(s, 0, sizeof(*s));
	s->option_count = random_next(seed) % 3;
	for (size_t i = 0; i < s->option_count; i++) {
		const char *list = PICK(seed, lists), *word = PICK(seed, words);
		const bool is_addr = random_next(seed) % 4 == 0;
		const char *target = is_addr ? PICK(seed, prefixes) : PICK(seed, targets);
		const char *open = strchr(target, ':') && list[0] ? "[" : "";

		word = is_addr ? "" : word;
		snprintf(s->options[i], sizeof(s->options[i]), "%s%s%s%s%s%s%s", open,
			 target, open[0] ? "]" : "", list[0] || word[0] ? ":" : "", list,
			 list[0] && word[0] ? "," : "", word);
	}
	snprintf(s->document, sizeof(s->document), "defaultAction: %s\negress:%s\n",
		 random_next(seed) % 5 == 0 ? "allow" : "deny", rules ? "" : " []");
	while (rules-- > 0)
		add_rule(seed, s->document, sizeof(s->document));
}

/* ---- what a policy opens ---- */

static struct dns_name name_of(const char *text)
{
	struct dns_name n = { 0 };

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static struct addr addr_of(const char *text)
{
	struct addr a;

	assert_true(addr_parse(text, strlen(text), &a));
	return a;
}

static uint8_t bit_of(uint16_t type)
{
	return type == DNS_TYPE_PTR   ? PLAN_TYPE_PTR
	       : type == DNS_TYPE_SRV ? PLAN_TYPE_SRV
	       : type == DNS_TYPE_TXT ? PLAN_TYPE_TXT
	       : type == DNS_TYPE_MX  ? PLAN_TYPE_MX
				      : 0;
}

static bool answers(const struct plan *p, const char *name, uint16_t type)
{
	const struct dns_name n = name_of(name);
	const struct plan_verdict v = plan_match_name(p, &n);

	return v.action == POLICY_ALLOW && (v.types & bit_of(type)) == bit_of(type);
}

static bool teaches(const struct plan *p, const char *name, const char *addr)
{
	const struct dns_name n = name_of(name);
	const struct addr a = addr_of(addr);
	const struct plan_verdict v = plan_match_name(p, &n);

	return v.action == POLICY_ALLOW && !rebinding_fault(p, &v, &a);
}

/* With @bytes: connections that show no name. */
static bool opens_name(const struct plan *p, const char *name, uint8_t protocol,
		       uint16_t port, bool bytes)
{
	const struct dns_name n = name_of(name);
	const struct plan_verdict v = plan_match_name(p, &n);

	return v.action == POLICY_ALLOW &&
	       plan_port_list_has(p, v.port_list, protocol, port) &&
	       (!bytes || plan_rule_names_port(p, v.rule, protocol, port));
}

static bool opens_addr(const struct plan *p, const char *addr, uint8_t protocol,
		       uint16_t port)
{
	const struct addr a = addr_of(addr);

	return plan_match_addr(p, &a, protocol, port).action == POLICY_ALLOW;
}

/* ---- refusals ---- */

enum kind { LOOKUP = 0, REBINDING, NAME_PORT, NAME_BYTES, ADDRESS, KIND_COUNT };

struct refusal {
	enum kind kind;
	const char *name, *addr;
	uint8_t protocol;
	uint16_t port, type;
};

static struct refusal random_refusal(uint32_t *seed)
{
	return (struct refusal){
		.kind = (enum kind)(random_next(seed) % KIND_COUNT),
		.name = PICK(seed, names),
		.addr = PICK(seed, addrs),
		.protocol = random_next(seed) % 3 ? IPPROTO_TCP : IPPROTO_UDP,
		.port = PICK(seed, ports),
		.type = PICK(seed, types),
	};
}

static bool is_let_through(const struct plan *p, const struct refusal *x)
{
	switch (x->kind) {
	case LOOKUP:
		return answers(p, x->name, x->type);
	case REBINDING:
		return teaches(p, x->name, x->addr);
	case NAME_PORT:
		return opens_name(p, x->name, x->protocol, x->port, false);
	case NAME_BYTES:
		return opens_name(p, x->name, x->protocol, x->port, true);
	default:
		return opens_addr(p, x->addr, x->protocol, x->port);
	}
}

/* As the data path reports it. Return: whether it would. */
static bool event_of(const struct plan *p, const struct refusal *x, struct event *e)
{
	struct dns_name n = name_of(x->name);
	struct plan_verdict v = plan_match_name(p, &n);
	struct addr a = addr_of(x->addr);

	*e = (struct event){ .action = EVENT_DENY, .layer = EVENT_DNS };
	if (is_let_through(p, x))
		return false;
	if (x->kind != ADDRESS)
		snprintf(e->name, sizeof(e->name), "%s", x->name);
	switch (x->kind) {
	case LOOKUP:
		e->query_type = x->type;
		return v.action == POLICY_DENY && v.rule == PLAN_NO_RULE;
	case REBINDING:
		e->query_type = DNS_TYPE_A;
		e->remote = a;
		return v.action == POLICY_ALLOW;
	case NAME_PORT:
	case NAME_BYTES:
		if (v.action == POLICY_DENY && v.rule != PLAN_NO_RULE)
			return false;
		if (x->kind == NAME_BYTES &&
		    (v.action == POLICY_DENY || x->protocol == IPPROTO_UDP))
			return false;
		e->layer = EVENT_NAME;
		break;
	default:
		e->layer = EVENT_ADDRESS;
		v = plan_match_addr(p, &a, x->protocol, x->port);
		if (v.rule != PLAN_NO_RULE)
			return false;
	}
	e->remote = x->kind == ADDRESS ? a : addr_of("93.184.216.34");
	e->port = x->port;
	e->protocol = x->protocol;
	return true;
}

/* ---- the property ---- */

static struct source tried;
static struct refusal refused;
static const char *followed, *how;

static void check(bool before, bool after, bool named, const char *what,
		  const char *which, unsigned int number)
{
	if (before && !after)
		fail_msg("%s\n%s %s\n%s '%s' takes %s of %s %u", tried.document,
			 tried.options[0], tried.options[1], how, followed, what, which,
			 number);
	if (!before && after && !named)
		fail_msg("%s\n%s %s\n%s '%s' opens %s of %s %u", tried.document,
			 tried.options[0], tried.options[1], how, followed, what, which,
			 number);
}

/* What the advice says in words. A look-up names the name and its default ports. */
static void check_names(const struct plan *a, const struct plan *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *n = names[i];
		const bool mine = refused.kind != ADDRESS && strcmp(n, refused.name) == 0;

		for (size_t k = 0; k < ARRAY_SIZE(types); k++)
			check(answers(a, n, types[k]), answers(b, n, types[k]),
			      mine && (bit_of(types[k]) == 0 ||
				       (refused.kind == LOOKUP &&
					types[k] == refused.type)),
			      "a type", n, types[k]);
		for (size_t k = 0; k < ARRAY_SIZE(addrs); k++)
			check(teaches(a, n, addrs[k]), teaches(b, n, addrs[k]),
			      refused.kind == ADDRESS || mine, "an address", n,
			      (unsigned int)k);
		for (size_t k = 0; k < 2 * ARRAY_SIZE(ports); k++) {
			const uint8_t protocol = k % 2 ? IPPROTO_TCP : IPPROTO_UDP;
			const uint16_t port = ports[k / 2];
			const bool this_port =
				mine && port == refused.port &&
				protocol == refused.protocol &&
				(refused.kind == NAME_PORT || refused.kind == NAME_BYTES);

			check(opens_name(a, n, protocol, port, false),
			      opens_name(b, n, protocol, port, false),
			      this_port || (mine && refused.kind == LOOKUP), "a port", n,
			      port);
			check(opens_name(a, n, protocol, port, true),
			      opens_name(b, n, protocol, port, true), this_port,
			      "bytes without a name", n, port);
		}
	}
}

static void check_addrs(const struct plan *a, const struct plan *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(addrs); i++)
		for (size_t k = 0; k < 2 * ARRAY_SIZE(ports); k++) {
			const uint8_t protocol = k % 2 ? IPPROTO_TCP : IPPROTO_UDP;
			const uint16_t port = ports[k / 2];

			check(opens_addr(a, addrs[i], protocol, port),
			      opens_addr(b, addrs[i], protocol, port),
			      (refused.kind == ADDRESS || port == 53) &&
				      port == refused.port &&
				      protocol == refused.protocol &&
				      (port == 53 || strcmp(addrs[i], refused.addr) == 0),
			      "a port", addrs[i], port);
		}
}

static void follow(const struct source *s, const struct plan *before, const char *advice)
{
	struct built b = { .w = { .result = 0 } };

	how = s->front[0] ? "the rule of" : "--allow";
	followed = advice;
	if (!build(s, &b))
		fail_msg("%s\n%s '%s' is no valid policy: %s", tried.document, how,
			 advice, faults_text(&b.w));
	/* The server's address stands for the name on the port of name servers. */
	if (refused.port != 53 || refused.kind < NAME_PORT || refused.kind == ADDRESS)
		if (!is_let_through(&b.plan, &refused))
			fail_msg(
				"%s\n%s %s\n%s '%s' doesn't let %s (%s) %u/%u %u of kind "
				"%d through",
				tried.document, tried.options[0], tried.options[1], how,
				advice, refused.name, refused.addr, refused.protocol,
				refused.port, refused.type, (int)refused.kind);
	check_names(before, &b.plan);
	check_addrs(before, &b.plan);
	built_done(&b);
}

TEST(the_advice_lets_just_that_through)
{
	size_t done[KIND_COUNT] = { 0 }, count = 0;
	uint32_t seed = 20261;

	for (size_t i = 0; i < TRIES_MAX && count < REFUSALS; i++) {
		struct built b = { .w = { .result = 0 } };
		char advice[EVENT_ADVICE_SIZE];
		struct source s;
		struct event e;

		random_source(&seed, &tried);
		refused = random_refusal(&seed);
		s = tried;
		if (build(&s, &b) && event_of(&b.plan, &refused, &e) &&
		    advice_write(&b.plan, &e, advice)[0]) {
			snprintf(s.options[s.option_count++], sizeof(s.options[0]), "%s",
				 advice);
			follow(&s, &b.plan, advice);
			s = tried;
			/* As in a review: a rule in front of the one policy. */
			if (s.option_count == 0) {
				assert_true(advice_rule(advice, s.front));
				follow(&s, &b.plan, advice);
			}
			done[refused.kind]++;
			count++;
		}
		built_done(&b);
	}
	assert_int_equal(count, REFUSALS);
	for (size_t i = 0; i < KIND_COUNT; i++)
		assert_true(done[i] > 20);
}

/* ---- what is advised ---- */

static const struct {
	const char *what, *policy, *name, *addr;
	uint8_t layer, protocol;
	uint16_t port, type;
	const char *want;
} rows[] = {
	{ "a name", "egress: []", "h.test", NULL, EVENT_DNS, 0, 0, DNS_TYPE_A, "h.test" },
	{ "a service", "egress: []", "_s._tcp.h.test", NULL, EVENT_DNS, 0, 0,
	  DNS_TYPE_SRV, "_s._tcp.h.test:SRV" },
	{ "a reverse name", "egress: []", "5.0.0.10.in-addr.arpa", NULL, EVENT_DNS, 0, 0,
	  DNS_TYPE_PTR, "5.0.0.10.in-addr.arpa:PTR" },
	{ "a private answer", "egress: [{action: allow, target: h.test, ports: [443]}]",
	  "h.test", "10.0.0.5", EVENT_DNS, 0, 0, DNS_TYPE_A, "h.test:443,private" },
	{ "another port of a rule with a budget",
	  "egress: [{action: allow, target: h.test, ports: [443], budget: {sent: 20M}}]",
	  "h.test", NULL, EVENT_NAME, IPPROTO_TCP, 22, 0, "" },
	{ "a loopback answer", "egress: [{action: allow, target: h.test}]", "h.test",
	  "127.0.0.1", EVENT_DNS, 0, 0, DNS_TYPE_A, "" },
	{ "a metadata answer", "egress: [{action: allow, target: h.test}]", "h.test",
	  "169.254.169.254", EVENT_DNS, 0, 0, DNS_TYPE_A, "" },
	{ "an answer that a rule denies",
	  "egress: [{action: allow, target: h.test}, {action: deny, target: 10.0.0.0/8}]",
	  "h.test", "10.0.0.5", EVENT_DNS, 0, 0, DNS_TYPE_A, "" },
	{ "a port besides those listed",
	  "egress: [{action: allow, target: '*.x.test', ports: [443], types: [SRV]}]",
	  "h.x.test", "1.2.3.4", EVENT_ADDRESS, IPPROTO_TCP, 22, 0,
	  "h.x.test:tcp/22,443,SRV" },
	{ "a port besides one that is open for a time",
	  "egress: [{action: allow, target: h.test, ports: [443], until: "
	  "'2099-01-01T00:00:00Z'}]",
	  "h.test", "1.2.3.4", EVENT_ADDRESS, IPPROTO_TCP, 22, 0, "h.test:tcp/22" },
	{ "a type of a name that is open for a time",
	  "egress: [{action: allow, target: h.test, ports: [443], until: "
	  "'2099-01-01T00:00:00Z'}]",
	  "h.test", NULL, EVENT_DNS, 0, 0, DNS_TYPE_TXT, "" },
	{ "bytes without a name", "egress: [{action: allow, target: h.test}]", "h.test",
	  "1.2.3.4", EVENT_NAME, IPPROTO_TCP, 9418, 0, "h.test:default,tcp/9418" },
	{ "an address", "egress: []", "", "10.0.0.5", EVENT_ADDRESS, IPPROTO_TCP, 443, 0,
	  "10.0.0.5:tcp/443" },
	{ "an IPv6 address", "egress: []", "", "fd00::5", EVENT_ADDRESS, IPPROTO_UDP, 443,
	  0, "[fd00::5]:udp/443" },
	{ "a name server of a name", "egress: [{action: allow, target: h.test}]",
	  "h.test", "1.2.3.4", EVENT_ADDRESS, IPPROTO_UDP, 53, 0, "1.2.3.4:udp/53" },
	{ "a ping", "egress: []", "", "1.2.3.4", EVENT_ADDRESS, IPPROTO_ICMP, 0, 0, "" },
	{ "a name that a rule denies", "egress: [{action: deny, target: h.test}]",
	  "h.test", NULL, EVENT_DNS, 0, 0, DNS_TYPE_A, "" },
	{ "what looks like an option", "egress: []", "-h.test", NULL, EVENT_DNS, 0, 0,
	  DNS_TYPE_A, "" },
	{ "types, where all names are pinned", "dns: pinned\negress: []", "h.test", NULL,
	  EVENT_DNS, 0, 0, DNS_TYPE_TXT, "" },
	{ "more lists of ports than a policy can have",
	  "egress: [{action: allow, target: a, ports: [1]}, {action: allow, target: a, "
	  "ports: [2]}, {action: allow, target: a, ports: [3]}, {action: allow, target: "
	  "a, ports: [4]}, {action: allow, target: a, ports: [5]}, {action: allow, "
	  "target: a, ports: [6]}, {action: allow, target: a, ports: [7]}, {action: "
	  "allow, target: a, ports: [8]}, {action: allow, target: a, ports: [9]}, "
	  "{action: allow, target: a, ports: [10]}, {action: allow, target: a, ports: "
	  "[11]}, {action: allow, target: a, ports: [12]}, {action: allow, target: a, "
	  "ports: [13]}, {action: allow, target: a, ports: [14]}, {action: allow, "
	  "target: a, ports: [15]}]",
	  "", "1.2.3.4", EVENT_ADDRESS, IPPROTO_TCP, 443, 0, "" },
};

TEST(the_advice_says_what_it_takes)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct event e = { .layer = rows[i].layer,
				   .protocol = rows[i].protocol,
				   .port = rows[i].port,
				   .query_type = rows[i].type };
		struct built b = { .w = { .result = 0 } };
		char advice[EVENT_ADVICE_SIZE];
		struct source s = { .option_count = 0 };

		snprintf(s.document, sizeof(s.document), "%s", rows[i].policy);
		if (!build(&s, &b))
			fail_msg("%s: %s", rows[i].what, faults_text(&b.w));
		b.plan.ends_ahead = UINT64_MAX;
		snprintf(e.name, sizeof(e.name), "%s", rows[i].name);
		if (rows[i].addr)
			e.remote = addr_of(rows[i].addr);
		if (strcmp(advice_write(&b.plan, &e, advice), rows[i].want) != 0)
			fail_msg("%s: '%s'", rows[i].what, advice);
		built_done(&b);
	}
}

TEST(a_rule_is_made_of_advice_alone)
{
	static const struct {
		const char *advice, *want; /* "": none */
	} made[] = {
		{ "h.test", "{\"action\":\"allow\",\"target\":\"h.test\"}" },
		{ "h.test:default,tcp/22,private,SRV",
		  "{\"action\":\"allow\",\"target\":\"h.test\",\"ports\":[\"default\","
		  "\"tcp/"
		  "22\"],\"private\":true,\"types\":[\"SRV\"]}" },
		{ "[fd00::5]:udp/443", "{\"action\":\"allow\",\"target\":\"fd00::5\","
				       "\"ports\":[\"udp/443\"]}" },
		{ "", "" },
		{ "*.h.test", "" },
		{ "10.0.0.0/8:443", "" },
		{ "h\".test", "" },
		{ "h.test:53", "" },
	};
	char buf[ADVICE_RULE_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		assert_int_equal(advice_rule(made[i].advice, buf),
				 made[i].want[0] != '\0');
		assert_string_equal(buf, made[i].want);
	}
}
