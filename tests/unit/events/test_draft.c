// SPDX-License-Identifier: Apache-2.0
/* A policy that is drafted: whatever names, programs and reasons say, it is a policy
 * again, whose rules are what was used and not allowed before. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"
#include <netinet/in.h>

#include "events/draft.h"
#include "policy/advice.h"

enum { ROUNDS = 300, EVENTS_MAX = 24 };

static const char *const hostile[] = {
	"\n  - {action: allow, target: evil.test}",
	"\"}, {action: allow, target: evil.test",
	"]}\n#",
	"# ",
	": ",
	"*a",
	"&a ",
	"\x1b[2J",
	"\\u000a",
	"'",
	"\xe2\x80\xa8 - x",
	"\xc2\x85- x",
	"%s%n",
	"-->",
	"\r\n",
	"\t",
};
static const char *const names[] = { "a.test",	 "b.test",   "no",	  "a.x.test",
				     "b.x.test", "c.x.test", "1.2",	  "o1.sentry.io",
				     "null",	 "1e3.test", "_srv.test", "xn--a.test" };

static uint64_t next(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

/* One of @list, or something that wants to be more than a text. */
static void put_word(uint64_t *seed, char *buf, size_t size)
{
	const char *name = names[next(seed) % ARRAY_SIZE(names)];
	const char *word = hostile[next(seed) % ARRAY_SIZE(hostile)];

	switch (next(seed) % 4) {
	case 0:
		snprintf(buf, size, "%s%s", word, name);
		break;
	case 1:
		snprintf(buf, size, "%s%s", name, word);
		break;
	default:
		snprintf(buf, size, "%s", name);
	}
}

static struct event random_event(uint64_t *seed)
{
	static const uint16_t ports[] = { 80, 443, 22, 8443 };
	static const uint8_t layers[] = { EVENT_DNS, EVENT_NAME, EVENT_ADDRESS };
	struct event e = { .action = EVENT_ALLOW,
			   .layer = layers[next(seed) % ARRAY_SIZE(layers)],
			   .protocol = IPPROTO_TCP,
			   .port = ports[next(seed) % ARRAY_SIZE(ports)],
			   .packets = next(seed) % 3,
			   .bytes = next(seed) % 100000,
			   .rule = EVENT_NO_RULE };
	const uint8_t v4[] = { 93, 1, 1, (uint8_t)next(seed) };

	put_word(seed, e.name, sizeof(e.name));
	put_word(seed, e.command, sizeof(e.command));
	put_word(seed, e.reason, sizeof(e.reason));
	if (next(seed) % 8 == 0)
		e.name[0] = '\0';
	if (e.layer == EVENT_DNS)
		e.port = 0;
	else
		e.remote = addr_from_bytes(ADDR_V4, v4);
	return e;
}

static char *write_draft(const struct draft_args *args)
{
	struct draft d;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(draft_make(&d, args), 0);
	draft_write(&d, out);
	draft_done(&d);
	assert_int_equal(fclose(out), 0);
	return text;
}

/* Each rule is one name or address that was used, on ports that were. */
static void check_rule(const struct rule *r, const struct event_ring *used)
{
	bool found = false;

	assert_int_equal(r->action, POLICY_ALLOW);
	assert_true(r->kind == TARGET_NAME ||
		    (r->kind == TARGET_PREFIX &&
		     r->prefix.bits == 8 * addr_size(&r->prefix.addr)));
	assert_int_equal(r->flags & (PLAN_PRIVATE | PLAN_RAW), 0);
	for (size_t i = 0; i < event_ring_count(used); i++) {
		const struct event *e = event_ring_at(used, i);
		char text[ADDR_TEXT_SIZE];

		found |= e->packets > 0 && e->layer != EVENT_DNS &&
			 strcmp(e->name[0] ? e->name : addr_format(&e->remote, text),
				r->target) == 0;
	}
	if (!found)
		fail_msg("'%s' was not used", r->target);
}

TEST(a_draft_is_a_policy)
{
	size_t rules = 0;

	for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
		uint64_t random = seed * 7919;
		struct event_ring *used = event_ring_new(EVENTS_MAX);
		struct event_ring *refused = event_ring_new(EVENTS_MAX);
		struct policy nothing = { .verify = POLICY_VERIFY_TLS }, policy = { 0 };
		struct arena arena = { 0 };
		struct faults faults = { 0 };
		const struct policy_reader reader = { .arena = &arena,
						      .faults = &faults };
		struct err err = { 0 };
		uint8_t *bytes;
		size_t size;
		struct plan asked;
		char *text, *again;

		assert_int_equal(policy_compile(&nothing, &bytes, &size, &err), 0);
		assert_int_equal(plan_open(bytes, size, &asked, &err), 0);
		for (size_t i = 0; i < EVENTS_MAX; i++) {
			struct event e = random_event(&random);

			event_ring_add(used, &e);
			e.action = EVENT_DENY;
			event_ring_add(refused, &e);
		}
		const struct draft_args args = {
			.used = used,
			.refused = refused,
			.asked = &asked,
			.program = hostile[seed % ARRAY_SIZE(hostile)]
		};

		text = write_draft(&args);
		again = write_draft(&args);
		assert_string_equal(text, again);
		for (const char *c = text; *c; c++)
			assert_true(*c == '\n' || (*c >= ' ' && *c <= '~'));
		if (policy_read(&reader, "p.yaml", text_of(text), POLICY_FORMAT_YAML,
				&policy) != 0)
			fail_msg("seed %d: %s", (int)seed, text);
		assert_int_equal(policy.default_action, POLICY_DENY);
		for (size_t i = 0; i < policy.count; i++) {
			check_rule(&policy.rules[i], used);
			if (i > 0)
				assert_true(strcmp(policy.rules[i - 1].target,
						   policy.rules[i].target) <
					    (policy.rules[i].kind == TARGET_PREFIX));
		}
		rules += policy.count;
		free(text);
		free(again);
		free(bytes);
		arena_done(&arena);
		faults_done(&faults);
		event_ring_free(used);
		event_ring_free(refused);
	}
	assert_true(rules > ROUNDS);
}

/* As many names as a run remembers, in a few domains and of one list of telemetry. Each
 * is found once where it belongs, and no proposal lists them all. */
TEST(thousands_of_names)
{
	enum { NAMES = 8192, DOMAINS = 16, TELEMETRY = 1024 };
	struct event_ring *used = event_ring_new(NAMES);
	struct policy nothing = { .verify = POLICY_VERIFY_TLS };
	struct event e = { .action = EVENT_ALLOW,
			   .layer = EVENT_NAME,
			   .protocol = IPPROTO_TCP,
			   .port = 443,
			   .packets = 3,
			   .bytes = 1000,
			   .rule = EVENT_NO_RULE };
	struct err err = { 0 };
	struct plan asked;
	struct draft d;
	uint8_t *bytes;
	size_t size;

	assert_int_equal(policy_compile(&nothing, &bytes, &size, &err), 0);
	assert_int_equal(plan_open(bytes, size, &asked, &err), 0);
	for (unsigned int i = 0; i < NAMES; i++) {
		const uint8_t v4[] = { 93, 1, (uint8_t)(i >> 8), (uint8_t)i };

		/* Not in the order of their names. */
		if (i < TELEMETRY)
			snprintf(e.name, sizeof(e.name), "n%u.sentry.io",
				 i * 7919 % TELEMETRY);
		else
			snprintf(e.name, sizeof(e.name), "n%u.d%u.test", i, i % DOMAINS);
		e.remote = addr_from_bytes(ADDR_V4, v4);
		event_ring_add(used, &e);
	}
	const struct draft_args args = { .used = used, .asked = &asked, .program = "x" };

	assert_int_equal(draft_make(&d, &args), 0);
	assert_int_equal(d.policy.count, NAMES - TELEMETRY);
	assert_int_equal(d.proposal_count, TELEMETRY + DOMAINS);
	for (size_t i = 0; i < d.policy.count; i++) {
		assert_string_equal(d.policy.rules[i].comment,
				    "3 connections, 1.0 kB sent");
		if (i > 0)
			assert_true(strcmp(d.policy.rules[i - 1].target,
					   d.policy.rules[i].target) < 0);
	}
	for (size_t i = TELEMETRY; i < d.proposal_count; i++)
		assert_true(strlen(d.proposals[i].why) < 512);
	draft_done(&d);
	free(bytes);
	event_ring_free(used);
}
