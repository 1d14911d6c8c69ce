// SPDX-License-Identifier: Apache-2.0
#include "sandbox/verdict.h"

#include <string.h>

#include "../relay/test_relay_world.h"
#include "unit.h"

enum { RULES_MAX = 4, TAUGHT_MAX = 2 };

static struct world w;

struct row {
	const char *what;
	const char *rules[RULES_MAX + 1];
	struct {
		const char *name, *addr;
	} taught[TAUGHT_MAX];
	const char *to;
	uint16_t port;
	bool host_local;
	bool shared;
	bool allowed;
	uint32_t rule;	  /* the deciding one */
	const char *name; /* that opened it */
};

#define NONE PLAN_NO_RULE

static const struct row rows[] = {
	{ .what = "an empty policy denies",
	  .to = "93.184.216.10",
	  .port = 443,
	  .rule = NONE },
	{ .what = "an address rule opens its address",
	  .rules = { "allow 93.184.216.10" },
	  .to = "93.184.216.10",
	  .port = 443,
	  .allowed = true },
	{ .what = "and not the next one",
	  .rules = { "allow 93.184.216.10" },
	  .to = "93.184.216.11",
	  .port = 443,
	  .rule = NONE },
	{ .what = "only on its ports",
	  .rules = { "allow 93.184.216.10 443" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .rule = NONE },
	{ .what = "UDP alone opens no TCP",
	  .rules = { "allow 93.184.216.10 udp/443" },
	  .to = "93.184.216.10",
	  .port = 443,
	  .rule = NONE },
	{ .what = "port 53 has to be named",
	  .rules = { "allow 93.184.216.10" },
	  .to = "93.184.216.10",
	  .port = 53,
	  .rule = NONE },
	{ .what = "an address deny is absolute",
	  .rules = { "allow 93.184.216.10", "deny 93.184.216.0/24" },
	  .to = "93.184.216.10",
	  .port = 443,
	  .rule = 1 },
	{ .what = "over names, too",
	  .rules = { "allow a.example.com", "deny 93.184.216.0/24" },
	  .taught = { { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 443,
	  .rule = 1 },
	{ .what = "a name opens what it taught",
	  .rules = { "allow a.example.com 443" },
	  .taught = { { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 443,
	  .allowed = true,
	  .name = "a.example.com" },
	{ .what = "on its ports only",
	  .rules = { "allow a.example.com 443" },
	  .taught = { { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 444,
	  .rule = 0 },
	{ .what = "not what another name taught",
	  .rules = { "allow a.example.com" },
	  .taught = { { "b.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 443,
	  .rule = NONE },
	{ .what = "a denied name's address is open when an allowed name shares it",
	  .rules = { "deny b.example.com", "allow a.example.com" },
	  .taught = { { "b.example.com", "93.184.216.10" },
		      { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 443,
	  .allowed = true,
	  .rule = 1,
	  .name = "a.example.com" },
	{ .what = "the second name's port counts",
	  .rules = { "allow b.example.com 80", "allow a.example.com 443" },
	  .taught = { { "b.example.com", "93.184.216.10" },
		      { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 443,
	  .allowed = true,
	  .rule = 1,
	  .name = "a.example.com" },
	{ .what = "a name opens no private address",
	  .rules = { "allow a.example.com" },
	  .taught = { { "a.example.com", "10.1.2.3" } },
	  .to = "10.1.2.3",
	  .port = 443,
	  .rule = 0 },
	{ .what = "unless its rule says so",
	  .rules = { "allow a.example.com private" },
	  .taught = { { "a.example.com", "10.1.2.3" } },
	  .to = "10.1.2.3",
	  .port = 443,
	  .allowed = true,
	  .name = "a.example.com" },
	{ .what = "private is no word for metadata",
	  .rules = { "allow a.example.com private" },
	  .taught = { { "a.example.com", "169.254.169.254" } },
	  .to = "169.254.169.254",
	  .port = 80,
	  .rule = 0 },
	{ .what = "nor for loopback",
	  .rules = { "allow a.example.com private" },
	  .taught = { { "a.example.com", "127.0.0.1" } },
	  .to = "127.0.0.1",
	  .port = 80,
	  .rule = 0 },
	{ .what = "a range opens no loopback",
	  .rules = { "allow 127.0.0.0/8" },
	  .to = "127.0.0.1",
	  .port = 80 },
	{ .what = "its own rule does",
	  .rules = { "allow 127.0.0.1 80" },
	  .to = "127.0.0.1",
	  .port = 80,
	  .allowed = true },
	{ .what = "on its port only, even beside a range",
	  .rules = { "allow 127.0.0.0/8", "allow 127.0.0.1 80" },
	  .to = "127.0.0.1",
	  .port = 81 },
	{ .what = "two neighbours that merge are still two addresses",
	  .rules = { "allow 127.0.0.2", "allow 127.0.0.3" },
	  .to = "127.0.0.2",
	  .port = 80,
	  .allowed = true },
	{ .what = "a range opens no address of the host",
	  .rules = { "allow 93.184.216.0/24" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .rule = PLAN_NO_RULE },
	{ .what = "nor does a name",
	  .rules = { "allow a.example.com" },
	  .taught = { { "a.example.com", "93.184.216.10" } },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .rule = PLAN_NO_RULE },
	{ .what = "its own rule does that, too",
	  .rules = { "allow 93.184.216.0/24", "allow 93.184.216.10" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .allowed = true },
	{ .what = "until it has ended",
	  .rules = { "allow 93.184.216.0/24", "allow 93.184.216.10 80 ended" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .rule = NONE },
	{ .what = "on its port",
	  .rules = { "allow 93.184.216.0/24", "allow 93.184.216.10 81" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .rule = NONE },
	{ .what = "but not in a namespace where that is the sandbox's own",
	  .rules = { "allow 93.184.216.0/24", "allow 93.184.216.10" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .shared = true },
	{ .what = "nor loopback there",
	  .rules = { "allow 127.0.0.1" },
	  .to = "127.0.0.1",
	  .port = 15354,
	  .shared = true },
	{ .what = "the rest is as anywhere",
	  .rules = { "allow 93.184.216.10" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .shared = true,
	  .allowed = true },
	{ .what = "the default opens no address of the host",
	  .rules = { "default allow" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .host_local = true,
	  .rule = NONE },
	{ .what = "the default opens the rest",
	  .rules = { "default allow" },
	  .to = "93.184.216.10",
	  .port = 80,
	  .allowed = true,
	  .rule = NONE },
	{ .what = "but not DNS over TLS",
	  .rules = { "default allow" },
	  .to = "93.184.216.10",
	  .port = 853,
	  .rule = NONE },
	{ .what = "nor the unspecified address",
	  .rules = { "default allow" },
	  .to = "0.0.0.0",
	  .port = 80,
	  .rule = NONE },
	{ .what = "nor IPv6's",
	  .rules = { "default allow" },
	  .to = "::",
	  .port = 80,
	  .rule = NONE },
	{ .what = "nor a group",
	  .rules = { "default allow" },
	  .to = "224.0.0.1",
	  .port = 80,
	  .rule = NONE },
	{ .what = "nor an IPv4 address in IPv6 form",
	  .rules = { "default allow" },
	  .to = "::ffff:93.184.216.10",
	  .port = 80,
	  .rule = NONE },
	{ .what = "IPv6 by rule",
	  .rules = { "allow 2606:2800:220::/48" },
	  .to = "2606:2800:220::10",
	  .port = 443,
	  .allowed = true },
	{ .what = "IPv6 loopback by range is none",
	  .rules = { "allow ::/64" },
	  .to = "::1",
	  .port = 443 },
};

static struct relay_question question_of(const struct row *row)
{
	world_set_plan(&w, row->rules);
	world_forget(&w);
	for (size_t i = 0; i < TAUGHT_MAX && row->taught[i].name; i++)
		world_teach(&w, row->taught[i].name, row->taught[i].addr);
	return (struct relay_question){
		.plan = &w.sandbox.plan,
		.to = { .addr = world_addr(row->to), .port = row->port },
		.host_local = row->host_local,
		.shared = row->shared,
	};
}

TEST(test_destinations_are_judged)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct relay_question q = question_of(&rows[i]);
		struct relay_verdict j = relay_verdict_of(&q);
		char name[DNS_NAME_TEXT_SIZE] = "";

		if (j.allowed != rows[i].allowed || (j.reason != NULL) == j.allowed)
			fail_msg("%s: %d (%s)", rows[i].what, j.allowed, j.reason);
		if (j.rule != rows[i].rule)
			fail_msg("%s: rule %u", rows[i].what, j.rule);
		if (j.name.size > 0)
			dns_name_format(&j.name, name);
		if (strcmp(name, rows[i].name ? rows[i].name : "") != 0)
			fail_msg("%s: by '%s'", rows[i].what, name);
	}
}

TEST(test_the_zero_judgement_denies)
{
	struct relay_verdict j = { 0 };

	assert_false(j.allowed);
}

/* A flow that a name opened, after what it taught has expired. */
TEST(test_an_open_flow_is_judged_by_its_name)
{
	static const struct {
		const char *what;
		const char *rules[RULES_MAX + 1];
		uint16_t port;
		bool host_local;
		bool allowed;
	} again[] = {
		{ "still allowed", { "allow a.example.com" }, 443, false, true },
		{ "no longer named", { "allow b.example.com" }, 443, false, false },
		{ "now denied", { "deny a.example.com" }, 443, false, false },
		{ "not on this port", { "allow a.example.com 80" }, 443, false, false },
		{ "its address is denied",
		  { "allow a.example.com", "deny 93.184.216.10" },
		  443,
		  false,
		  false },
		{ "its address is allowed by itself",
		  { "allow 93.184.216.10" },
		  443,
		  false,
		  true },
		{ "the host's own", { "allow a.example.com" }, 443, true, false },
	};
	struct dns_name name;

	assert_int_equal(dns_name_parse(text_of("a.example.com"), &name), 0);
	for (size_t i = 0; i < ARRAY_SIZE(again); i++) {
		struct row row = { .to = "93.184.216.10",
				   .port = again[i].port,
				   .host_local = again[i].host_local };
		struct relay_question q;

		memcpy(row.rules, again[i].rules, sizeof(row.rules));
		q = question_of(&row);
		if (relay_verdict_again(&q, SHOWN_NOTHING, &name, true).allowed !=
		    again[i].allowed)
			fail_msg("%s", again[i].what);
	}
}

/* A name that was only claimed, where a rule for the address let it through. */
TEST(test_a_claimed_name_carries_no_flow_over_a_change)
{
	static const struct {
		const char *rules[RULES_MAX + 1];
		const char *taught_now;
		bool allowed;
	} again[] = {
		{ { "allow a.example.com" }, NULL, false },
		{ { "allow a.example.com" }, "b.example.com", false },
		{ { "allow a.example.com" }, "a.example.com", true },
		{ { "allow a.example.com", "allow 93.184.216.10" }, NULL, true },
		{ { "allow b.example.com", "default allow" }, NULL, true },
		{ { "deny a.example.com", "default allow" }, NULL, false },
	};
	struct dns_name name;

	assert_int_equal(dns_name_parse(text_of("a.example.com"), &name), 0);
	for (size_t i = 0; i < ARRAY_SIZE(again); i++) {
		struct row row = { .to = "93.184.216.10",
				   .port = 443,
				   .taught = {
					   { again[i].taught_now, "93.184.216.10" } } };
		struct relay_question q;
		struct relay_verdict j;

		memcpy(row.rules, again[i].rules, sizeof(row.rules));
		row.rules[2] = "verify tls";
		if (!row.rules[1])
			row.rules[1] = "allow unused.example.com";
		q = question_of(&row);
		j = relay_verdict_again(&q, SHOWN_NAME, &name, false);
		if (j.allowed != again[i].allowed)
			fail_msg("row %zu: %s", i, j.allowed ? "allowed" : j.reason);
		assert_int_equal(j.taught, again[i].taught_now && j.allowed);
		/* Nor does it under verify: dns. */
		row.rules[2] = NULL;
		q = question_of(&row);
		if (!again[i].allowed && again[i].rules[0][0] == 'a')
			assert_false(relay_verdict_again(&q, SHOWN_NAME, &name, false)
					     .allowed);
	}
}

#define TLS "verify tls"

static const struct {
	const char *what;
	enum relay_shown shown;
	const char *name; /* shown */
	const char *opened_by;
	struct row row;
} shown_rows[] = {
	{ "an allowed name that taught it",
	  SHOWN_NAME,
	  "a.example.com",
	  NULL,
	  { .rules = { TLS, "allow a.example.com" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 443,
	    .allowed = true } },
	{ "another allowed name",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "allow a.example.com", "allow b.example.com" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 443 } },
	{ "an allowed name that taught it before it opened the flow",
	  SHOWN_NAME,
	  "a.example.com",
	  "a.example.com",
	  { .rules = { TLS, "allow a.example.com" }, .port = 443, .allowed = true } },
	{ "a name that may have other ports",
	  SHOWN_NAME,
	  "a.example.com",
	  NULL,
	  { .rules = { TLS, "allow a.example.com 80" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 443 } },
	{ "a denied name on an address that is allowed",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "deny b.example.com", "allow 93.184.216.10" },
	    .port = 443 } },
	{ "an unknown name on an address that is allowed",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "allow 93.184.216.10" }, .port = 443 } },
	{ "an allowed name on an address that is allowed",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "allow b.example.com", "allow 93.184.216.10" },
	    .port = 443,
	    .allowed = true } },
	{ "an allowed name on an address that is denied",
	  SHOWN_NAME,
	  "a.example.com",
	  "a.example.com",
	  { .rules = { TLS, "allow a.example.com", "deny 93.184.216.10" },
	    .port = 443 } },
	{ "any name by default",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "default allow" }, .port = 443, .allowed = true } },
	{ "a denied name by default",
	  SHOWN_NAME,
	  "b.example.com",
	  NULL,
	  { .rules = { TLS, "default allow", "deny b.example.com" }, .port = 443 } },
	{ "no name at a name's address",
	  SHOWN_NO_NAME,
	  NULL,
	  "a.example.com",
	  { .rules = { TLS, "allow a.example.com 443 raw" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 443 } },
	{ "no name at an allowed address",
	  SHOWN_NO_NAME,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow 93.184.216.10" }, .port = 443, .allowed = true } },
	{ "no name by default",
	  SHOWN_NO_NAME,
	  NULL,
	  NULL,
	  { .rules = { TLS, "default allow" }, .port = 443 } },
	{ "bytes on a listed port",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow a.example.com 22" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 22,
	    .allowed = true } },
	{ "bytes on a port that isn't",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow a.example.com" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 22 } },
	{ "bytes on a listed web port",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow a.example.com 8443" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 8443 } },
	{ "raw bytes on a listed web port",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow a.example.com 8443 raw" },
	    .taught = { { "a.example.com", "93.184.216.10" } },
	    .port = 8443,
	    .allowed = true } },
	{ "bytes at an allowed address",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow 93.184.216.10" }, .port = 22, .allowed = true } },
	{ "bytes at an allowed address, on a web port",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow 93.184.216.10" }, .port = 80 } },
	{ "bytes by default",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "default allow" }, .port = 22, .allowed = true } },
	{ "bytes to the host",
	  SHOWN_BYTES,
	  NULL,
	  NULL,
	  { .rules = { TLS, "allow 93.184.216.0/24" }, .port = 22, .host_local = true } },
	{ "nothing",
	  SHOWN_NOTHING,
	  NULL,
	  "a.example.com",
	  { .rules = { TLS, "allow a.example.com", "allow 93.184.216.10" },
	    .port = 443 } },
};

static struct dns_name name_of(const char *text)
{
	struct dns_name n = { .size = 0 };

	if (text)
		assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

TEST(test_what_is_shown_is_judged)
{
	for (size_t i = 0; i < ARRAY_SIZE(shown_rows); i++) {
		struct dns_name name = name_of(shown_rows[i].name);
		struct dns_name opened_by = name_of(shown_rows[i].opened_by);
		struct row row = shown_rows[i].row;
		struct relay_question q;
		struct relay_verdict j;

		row.to = "93.184.216.10";
		q = question_of(&row);
		j = relay_verdict_shown(&q, shown_rows[i].shown, &name, &opened_by);
		if (j.allowed != row.allowed || (j.reason != NULL) == j.allowed)
			fail_msg("%s: %d (%s)", shown_rows[i].what, j.allowed, j.reason);
	}
}

int main(void)
{
	int failed = unit_run(NULL, NULL);

	free(w.plan_bytes);
	return failed;
}
