// SPDX-License-Identifier: Apache-2.0
/* What a grant does to a policy, whatever the policy says: policies and grants made from
 * a seed, and what each lets pass, asks for and counts, at each time. */
#include <netinet/in.h>
#include <stdlib.h>

#include "opensandbox/policy.h"
#include "policy/explain.h"
#include "policy/policy.h"
#include "policy/random_policy.h"
#include "policy/read_world.h"

enum { HOURS = 5, CASES = 4000, RULES_MAX = 5 };

static const char *const targets[] = {
	"a.x.test",    "A.X.test",   "b.x.test",    "a.x.test",	   "**.x.test",
	"*.x.test",    "*.test",     "**.a.x.test", "93.1.2.3",	   "93.1.2.3",
	"93.1.2.0/24", "93.0.0.0/8", "93.1.2.4",    "2001:db8::1", "2001:db8::/32",
};
static const char *const granted[] = { "a.x.test", "a.x.test", "A.x.test", "93.1.2.3",
				       "2001:db8::1" };
static const char *const destinations[] = { "a.x.test", "b.x.test", "c.a.x.test",
					    "93.1.2.3", "93.1.2.4", "2001:db8::1" };
enum { DESTINATIONS = ARRAY_SIZE(destinations) };

static const struct plan_port_range looked_at[] = {
	{ IPPROTO_TCP, 0, 22, 22 },   { IPPROTO_UDP, 0, 22, 22 },
	{ IPPROTO_TCP, 0, 443, 443 }, { IPPROTO_UDP, 0, 443, 443 },
	{ IPPROTO_TCP, 0, 853, 853 },
};
enum { PORTS = ARRAY_SIZE(looked_at) };

static const char *const port_words[] = { "22",	     "tcp/22", "udp/443",
					  "tcp/443", "853",    "default" };

/* ---- policies ---- */

struct writing {
	char text[4096];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void put(struct writing *w,
						      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	w->used += (size_t)vsnprintf(w->text + w->used, sizeof(w->text) - w->used, format,
				     args);
	va_end(args);
}

static void put_ports(struct writing *w, uint32_t bits)
{
	const char *before = ",\"ports\":[";

	for (size_t i = 0; i < ARRAY_SIZE(port_words); i++)
		if (bits >> i & 1) {
			put(w, "%s\"%s\"", before, port_words[i]);
			before = ",";
		}
	if (before[1] == '\0')
		put(w, "]");
}

static bool is_address(const char *target)
{
	return !strstr(target, "test");
}

/* What only an allow says, but its end. */
static void put_more(struct writing *w, uint32_t *seed, const char *target)
{
	if (random_next(seed) % 6 == 0)
		put(w, ",\"raw\":true");
	if (is_address(target))
		return;
	if (random_next(seed) % 6 == 0)
		put(w, ",\"private\":true");
	if (random_next(seed) % 6 == 0)
		put(w, ",\"types\":[\"%s\"]", random_next(seed) % 2 ? "TXT" : "MX");
}

/* @hour 0: never. */
static void put_end(struct writing *w, uint32_t hour)
{
	if (hour > 0)
		put(w, ",\"until\":\"1970-01-01T%02u:30:00Z\"", hour);
}

static void put_rule(struct writing *w, uint32_t *seed, bool may_end)
{
	const char *target = targets[random_next(seed) % ARRAY_SIZE(targets)];
	const uint32_t action = random_next(seed) % 7;

	put(w, "{\"action\":\"%s\",\"target\":\"%s\"",
	    action == 0	  ? "deny"
	    : action == 1 ? "ask"
			  : "allow",
	    target);
	if (action > 0 && random_next(seed) % 3 > 0)
		put_ports(w, random_next(seed));
	if (action > 1) {
		put_more(w, seed, target);
		if (random_next(seed) % 8 == 0)
			put(w, ",\"budget\":{\"sent\":\"1M\"}");
		if (may_end || !is_address(target))
			put_end(w, random_next(seed) % HOURS);
	}
	put(w, "}");
}

static void make_policy(struct writing *w, uint32_t *seed)
{
	static const char *const actions[] = { "deny", "deny", "ask", "allow" };
	const uint32_t action = random_next(seed) % ARRAY_SIZE(actions);

	put(w, "{\"defaultAction\":\"%s\",\"egress\":[", actions[action]);
	for (uint32_t i = random_next(seed) % (RULES_MAX + 1); i-- > 0;) {
		put_rule(w, seed, action < 3);
		put(w, "%s", i > 0 ? "," : "");
	}
	put(w, "]}");
}

/* As advice words it. */
static void make_grant(struct writing *w, uint32_t *seed, const char *target,
		       uint32_t *ret_end)
{
	*ret_end = random_next(seed) % (HOURS + 1);
	put(w, "[{\"action\":\"allow\",\"target\":\"%s\"", target);
	if (is_address(target) || random_next(seed) % 4 > 0)
		put_ports(w, 1u << random_next(seed) % 5);
	put_more(w, seed, target);
	put_end(w, *ret_end);
	put(w, "}]");
}

/* ---- what they say ---- */

struct said {
	enum policy_action action;
	uint8_t flags, types; /* on whatever port: a name has one rule */
	char budget[32];      /* the target of the rule that has it; "" */
};

struct looked {
	struct said at[HOURS + 1][DESTINATIONS][PORTS];
};

static struct said said_of(const struct plan *plan, const char *destination,
			   const struct plan_port_range *port)
{
	struct plan_verdict v = { .rule = PLAN_NO_RULE };
	struct said ret = { .action = POLICY_DENY };
	struct dns_name name;
	struct addr a;

	if (addr_parse(destination, strlen(destination), &a))
		v = plan_match_addr(plan, &a, port->protocol, port->from);
	else if (dns_name_parse(text_of(destination), &name) == 0)
		v = plan_match_name(plan, &name);
	if (v.action == POLICY_ALLOW) {
		ret.flags = v.flags & (PLAN_PRIVATE | PLAN_RAW);
		ret.types = v.types;
	}
	if (!plan_port_list_has(plan, v.port_list, port->protocol, port->from))
		return ret;
	ret.action = (enum policy_action)v.action;
	if (v.action == POLICY_ALLOW && v.rule != PLAN_NO_RULE &&
	    plan_budget_of(plan, v.rule) >= 0)
		snprintf(ret.budget, sizeof(ret.budget), "%s",
			 plan_rule(plan, v.rule).target);
	return ret;
}

static int64_t hour_ms(uint32_t hour)
{
	return hour * INT64_C(3600) * 1000;
}

/* False: no policy is made of it. */
static bool look(const struct document *d, struct looked *ret)
{
	struct world w = { 0 };
	struct policy_reader r = reader(&w);
	uint8_t *bytes = NULL;
	struct plan plan;
	size_t size;
	bool good = document_policy(d, NULL, NULL, "p.json", &r, &w.policy) == 0 &&
		    policy_build(&r, &w.policy, &bytes, &size) == 0 &&
		    plan_open(bytes, size, &plan, NULL) == 0;

	for (uint32_t h = 0; good && h <= HOURS; h++) {
		plan_set_time(&plan, hour_ms(h));
		for (size_t i = 0; i < DESTINATIONS; i++)
			for (size_t p = 0; p < PORTS; p++)
				ret->at[h][i][p] =
					said_of(&plan, destinations[i], &looked_at[p]);
	}
	free(bytes);
	world_done(&w);
	return good;
}

/* ---- what must hold ---- */

struct trial {
	struct writing policy, grant;
	const char *target;
	uint32_t end, now; /* hours */
	struct looked before, after, alone;
};

static bool same(const struct said *a, const struct said *b)
{
	return a->action == b->action && a->flags == b->flags && a->types == b->types &&
	       strcmp(a->budget, b->budget) == 0;
}

/* What is wrong at one place and time; NULL: nothing. */
static const char *fault_of(const struct trial *t, uint32_t h, size_t d, size_t p)
{
	const struct said *was = &t->before.at[h][d][p], *is = &t->after.at[h][d][p],
			  *named = &t->alone.at[h][d][p];
	const bool is_over = t->end > 0 && h > t->end;

	if (is_over || strcasecmp(destinations[d], t->target) != 0)
		return same(was, is) ? NULL : "the grant is not about this";
	if (is->action == POLICY_ALLOW && was->action != POLICY_ALLOW &&
	    named->action != POLICY_ALLOW)
		return "nothing has opened it";
	if (was->action == POLICY_ALLOW && is->action != POLICY_ALLOW)
		return "it was open";
	if (named->action == POLICY_ALLOW && is->action != POLICY_ALLOW)
		return "it was granted";
	if (is->flags & ~(was->flags | named->flags) && was->action == POLICY_ALLOW)
		return "a flag that neither has";
	if (was->flags & ~is->flags || was->types & ~is->types)
		return "a flag or a type is gone";
	if (is->types & ~(was->types | named->types) && was->action == POLICY_ALLOW)
		return "a type that neither has";
	if (strcmp(was->budget, is->budget) != 0)
		return "another budget counts";
	return NULL;
}

static void judge(const struct trial *t)
{
	for (uint32_t h = t->now; h <= HOURS; h++)
		for (size_t d = 0; d < DESTINATIONS; d++)
			for (size_t p = 0; p < PORTS; p++) {
				const char *fault = fault_of(t, h, d, p);

				if (fault)
					fail_msg("%s + %s at %u: hour %u, %s %s/%u: %s; "
						 "%s, then %s",
						 t->policy.text, t->grant.text, t->now, h,
						 destinations[d],
						 looked_at[p].protocol == IPPROTO_TCP
							 ? "tcp"
							 : "udp",
						 looked_at[p].from, fault,
						 policy_action_name(
							 t->before.at[h][d][p].action),
						 policy_action_name(
							 t->after.at[h][d][p].action));
			}
}

static struct document *document_of(const char *text)
{
	struct document *d = NULL;
	struct err err = { 0 };

	if (document_parse(text_of(text), NULL, NULL, &d, &err) < 0)
		fail_msg("%s: %s", text, err.text);
	return d;
}

struct tally {
	size_t granted, left, unfit;
};

static void try_one(struct trial *t, struct tally *tally)
{
	struct document *old = document_of(t->policy.text), *none = document_deny_all();
	struct document *next = NULL, *again = NULL, *alone = NULL;
	const struct text grant = text_of(t->grant.text);
	const int64_t now_ms = hour_ms(t->now);
	struct err err = { 0 };

	assert_int_equal(document_grant(none, grant, now_ms, &alone, &err), 0);
	if (!look(old, &t->before) || !look(alone, &t->alone)) {
		tally->unfit++;
	} else if (document_grant(old, grant, now_ms, &next, &err) < 0) {
		assert_int_equal(err.code, -EPERM);
		tally->left++;
	} else if (!look(next, &t->after)) {
		/* An allow of an address that ends under defaultAction: allow. */
		if (!strstr(t->policy.text, "\"defaultAction\":\"allow\"") ||
		    !is_address(t->target) || t->end == 0)
			fail_msg("%s + %s: a policy that can't be", t->policy.text,
				 t->grant.text);
		tally->unfit++;
	} else {
		judge(t);
		assert_int_equal(document_grant(next, grant, now_ms, &again, &err), 0);
		if (!document_equal(next, again))
			fail_msg("%s + %s, twice", t->policy.text, t->grant.text);
		tally->granted++;
	}
	document_free(old);
	document_free(none);
	document_free(alone);
	document_free(next);
	document_free(again);
}

/* A grant opens what it says as long as it says, and nothing else; it takes nothing, what
 * counts goes on to count, and when it ends all is as it was. */
TEST(a_grant_opens_what_it_says_and_takes_nothing)
{
	struct tally tally = { 0 };
	uint32_t seed = 19;

	for (int i = 0; i < CASES; i++) {
		struct trial t = { .policy.used = 0 };

		t.target = granted[random_next(&seed) % ARRAY_SIZE(granted)];
		t.now = random_next(&seed) % 3 == 0 ? 2 : 0;
		make_policy(&t.policy, &seed);
		make_grant(&t.grant, &seed, t.target, &t.end);
		if (t.end > 0 && t.end < t.now)
			continue;
		try_one(&t, &tally);
	}
	if (tally.granted < CASES / 2 || tally.left == 0)
		fail_msg("granted %zu, left to a person %zu, unfit %zu", tally.granted,
			 tally.left, tally.unfit);
}
