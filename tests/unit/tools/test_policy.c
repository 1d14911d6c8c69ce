// SPDX-License-Identifier: Apache-2.0
/* What `weir policy` prints, and where the command line's policy comes from. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "policy/explain.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "tools/tools.h"
#include "unit.h"

/* A directory of its own, with XDG_CONFIG_HOME in it. */
struct world {
	char dir[64];
	struct arena arena;
	struct faults faults;
	struct policy policy;
	uint8_t *bytes;
	size_t size;
	struct plan plan;
};

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));

	snprintf(w->dir, sizeof(w->dir), "/tmp/weir-test-XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	setenv("XDG_CONFIG_HOME", w->dir, 1);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", w->dir);
	assert_int_equal(system(command), 0);
	arena_done(&w->arena);
	faults_done(&w->faults);
	free(w->bytes);
	free(w);
	return 0;
}

static const char *world_file(struct world *w, const char *name, const char *text)
{
	char *path = arena_printf(&w->arena, "%s/%s", w->dir, name);
	FILE *f = fopen(path, "we");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return path;
}

static int world_load(struct world *w, const struct policy_args *args)
{
	int r = cli_policy_load(args, &w->arena, &w->faults, &w->policy);

	if (r < 0)
		return r;
	assert_int_equal(policy_compile(&w->policy, &w->bytes, &w->size, NULL), 0);
	assert_int_equal(plan_open(w->bytes, w->size, &w->plan, NULL), 0);
	return 0;
}

static void assert_fault(const struct world *w, const char *want)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < w->faults.count; i++) {
		if (strstr(fault_format(&w->faults.items[i], line, sizeof(line)), want))
			return;
	}
	fail_msg("no fault says '%s'", want);
}

TEST_WITH(rules_come_in_the_order_of_the_options, setup, teardown)
{
	struct world *w = *state;
	struct policy_args args = { .deny = { { "deny.test" }, 1 },
				    .allow = { { "allow.test:443" }, 1 },
				    .profiles = { { "none", "notebook" }, 2 } };

	args.file =
		world_file(w, "p.yaml", "egress: [{action: allow, target: own.test}]\n");
	assert_int_equal(world_load(w, &args), 0);
	assert_string_equal(w->policy.rules[0].target, "deny.test");
	assert_string_equal(w->policy.rules[0].file, "--deny");
	assert_string_equal(w->policy.rules[1].target, "allow.test");
	assert_string_equal(w->policy.rules[2].target, "own.test");
	assert_string_equal(w->policy.rules[3].target, "huggingface.co");
	assert_int_equal(w->policy.count, 3 + 14);
	/* What ships is meant: that one could write there is a hint. */
	for (size_t i = 0; i < w->faults.count; i++)
		assert_int_equal(w->faults.items[i].level, FAULT_HINT);
	assert_int_equal(w->policy.source_count, 4);
}

/* XDG_CONFIG_HOME counts for nothing where root is the machine's. */
static void become_ordinary(const struct world *w)
{
	enum { ANYBODY = 4242 };

	if (geteuid() == 0) {
		assert_int_equal(chown(w->dir, ANYBODY, ANYBODY), 0);
		assert_int_equal(seteuid(ANYBODY), 0);
	}
}

TEST_WITH(the_users_profile_goes_before_the_shipped_one, setup, teardown)
{
	struct world *w = *state;
	const struct policy_args args = { .profiles = { { "default" }, 1 } };

	become_ordinary(w);
	assert_int_equal(mkdir(arena_printf(&w->arena, "%s/weir", w->dir), 0700), 0);
	assert_int_equal(mkdir(arena_printf(&w->arena, "%s/weir/profiles", w->dir), 0700),
			 0);
	world_file(w, "weir/profiles/default.yaml",
		   "egress: [{action: deny, target: my.test}]\n");
	assert_int_equal(world_load(w, &args), 0);
	assert_int_equal(seteuid(getuid()), 0);
	assert_int_equal(w->policy.count, 1);
	assert_string_equal(w->policy.rules[0].target, "my.test");
}

TEST_WITH(what_can_not_be_read_is_a_fault, setup, teardown)
{
	struct world *w = *state;
	struct policy_args args = { .profiles = { { "nowhere", "./missing.yaml" }, 2 },
				    .file = w->dir };

	assert_int_equal(world_load(w, &args), -EINVAL);
	assert_int_equal(w->faults.errors, 3);
	assert_fault(w, "it is not a regular file");
	assert_fault(w, "'nowhere': there is no profile of this name");
	assert_fault(w, "cannot open missing.yaml: No such file");
}

TEST_WITH(an_extended_file_stands_beside_the_one_that_names_it, setup, teardown)
{
	struct world *w = *state;
	struct policy_args args = { 0 };

	world_file(w, "base.yaml", "extends: [./p.yaml]\n");
	args.file = world_file(w, "p.yaml", "extends: [base.yaml]\n");
	assert_int_equal(world_load(w, &args), -EINVAL);
	assert_fault(w, "/base.yaml:1:11: extends[0]: './p.yaml' extends in a circle");
}

TEST_WITH(a_way_out_is_a_hint_for_who_typed_it, setup, teardown)
{
	struct world *w = *state;
	const struct policy_args args = { .allow = { { "github.com" }, 1 } };

	assert_int_equal(world_load(w, &args), 0);
	assert_int_equal(w->faults.count, 1);
	assert_int_equal(w->faults.items[0].level, FAULT_HINT);
}

static const char policy_text[] =
	"egress:\n"
	"  - {action: allow, target: api.ok.test, ports: [tcp/443]}\n"
	"  - {action: deny, target: x.pkg.test}\n"
	"  - {action: allow, target: \"**.pkg.test\", private: true, types: [SRV]}\n"
	"  - {action: allow, target: 10.0.0.0/8, ports: [5432], comment: "
	"\"\xf0\x9f\x98\x80\", "
	"budget: {sent: 3M, per: 2h, action: event}}\n"
	"  - {action: deny, target: 10.1.0.0/16}\n";

/* What explain says of one query. */
static const char *explain(struct world *w, const char *query, bool json)
{
	char *text = NULL, *queries[] = { (char *)(uintptr_t)query };
	struct err err = { 0 };
	size_t size;
	FILE *out = open_memstream(&text, &size);
	int r = cli_policy_explain(&w->plan, queries, 1, json, out, &err);
	char *kept;

	fclose(out);
	kept = arena_text(&w->arena, text_of(r < 0 ? err.text : text));
	free(text);
	return kept;
}

TEST_WITH(explain_names_the_rule_and_its_place, setup, teardown)
{
	static const struct {
		const char *query, *first, *second;
	} rows[] = {
		{ "api.ok.test", "api.ok.test: allow\n",
		  "allow api.ok.test ports tcp/443 (" },
		{ "api.ok.test", "api.ok.test: allow\n", "p.yaml:2)\n" },
		{ "API.OK.test", "API.OK.test: allow\n", "name: api.ok.test\n" },
		{ "api.ok.test:443", "allow (tcp only)\n", "ports: tcp/443\n" },
		{ "api.ok.test:80", "api.ok.test:80: deny\n",
		  "this one is not among them" },
		{ "evil.test", "evil.test: deny\n",
		  "no rule matches; the default is deny\n" },
		{ "x.pkg.test", "x.pkg.test: deny\n", "rule: deny x.pkg.test (" },
		{ "pkg.test", "pkg.test: allow\n", "types: A, AAAA, SRV\n" },
		{ "a.pkg.test:853", "deny\n", "ports: all but 53 and 853;" },
		{ "10.2.0.1:5432", "10.2.0.1:5432: allow\n",
		  "allow 10.0.0.0/8 ports 5432 (" },
		{ "10.2.0.1:80", "10.2.0.1:80: deny\n", "no rule matches" },
		{ "10.2.0.1", "10.2.0.1: allow\n", "address: a private address\n" },
		{ "10.1.0.1:5432", "deny\n", "rule: deny 10.1.0.0/16 (" },
		{ "[2a00::1]:443", "[2a00::1]:443: deny\n",
		  "open while an allowed name" },
		{ "2a00::1", "2a00::1: deny\n", "no rule matches" },
		{ "*.pkg.test", "'*.pkg.test' is not a name or an address", "" },
		{ "a..test", "'a..test' is not a domain name", "" },
		{ "a.test:0", "'a.test:0' is not", "" },
		{ "127.1", "127.0.0.1", "" },
		{ "\x1b[2J://a.test", "'\\x1b[2J' is not a scheme", "" },
	};
	struct world *w = *state;
	const struct policy_args args = { .file = world_file(w, "p.yaml", policy_text) };

	assert_int_equal(world_load(w, &args), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *text = explain(w, rows[i].query, false);

		if (!strstr(text, rows[i].first) || !strstr(text, rows[i].second))
			fail_msg("%s: %s", rows[i].query, text);
	}
	assert_non_null(strstr(explain(w, "api.ok.test", true), "\"action\": \"allow\""));
	assert_non_null(strstr(explain(w, "evil.test", true), "\"rule\": null"));
}

/* What is enforced, where the rules alone would have it another way. */
TEST_WITH(explain_says_what_is_enforced, setup, teardown)
{
#define OPEN   "verify: tls\ndefaultAction: allow\n"
#define REFUSE "verify: tls\ndeniedNames: refuse\n"
#define ASK    "verify: tls\ndefaultAction: ask\n"
#define RAW                                                                              \
	"verify: tls\negress: [{action: allow, target: 23.1.1.1, ports: [443, 22], "     \
	"raw: "                                                                          \
	"true}]\n"
#define LISTED                                                                           \
	"verify: tls\negress: [{action: allow, target: 23.1.1.1, ports: [443, 8080, "    \
	"22]}]\n"
	static const char standing[] = "an address where connections are refused",
			  nx[] = "NXDOMAIN", loopback[] = "own loopback";
	static const struct {
		const char *policy, *query, *first, *second;
	} rows[] = {
		{ "", "localhost", ": allow\n", "answer: 127.0.0.1 or ::1" },
		{ "egress: [{action: deny, target: localhost}]\n", "x.localhost:80",
		  ": allow\n", loopback },
		{ "", "127.0.0.1:80", ": deny\n", loopback },
		{ OPEN, "127.0.0.1:80", ": allow\n", loopback },
		{ OPEN, "224.0.0.1", ": deny\n", "a multicast address" },
		{ OPEN, "255.255.255.255:9", ": deny\n", "names: none opens it" },
		{ "egress: [{action: allow, target: 224.0.0.0/4}]\n", "224.0.0.1",
		  ": allow\n", "a multicast address" },
		{ OPEN, "https://23.1.1.1/", ": deny\n", "no rule is about it" },
		{ OPEN, "https://23.1.1.1/", "to open it: --allow 23.1.1.1:tcp/443\n",
		  "" },
		{ OPEN, "ssh://23.1.1.1:443", ": deny\n", "" },
		{ OPEN, "ssh://23.1.1.1", ": allow", "" },
		{ OPEN, "23.1.1.1:443", ": allow (tcp only)\n", "no rule is about it" },
		{ OPEN, "https://a.test", ": allow", "" },
		{ "defaultAction: allow\n", "https://23.1.1.1/", ": allow\n", "" },
		{ LISTED, "https://23.1.1.1/", ": allow\n", "" },
		{ LISTED, "ssh://23.1.1.1:443", ": deny\n", "raw: true" },
		{ LISTED, "23.1.1.1:8080", "to TLS and HTTP only", "raw: true" },
		{ LISTED, "ssh://23.1.1.1", ": allow\n", "" },
		{ RAW, "ssh://23.1.1.1:443", ": allow\n", "" },
		{ REFUSE, "a.test", ": deny\n", standing },
		{ REFUSE, "a", ": deny\n", nx },
		{ REFUSE, "1.0.0.127.in-addr.arpa", ": deny\n", nx },
		{ REFUSE, "a.invalid", ": deny\n", nx },
		{ REFUSE "egress: [{action: allow, target: a.test}]\n", "a.test.lan.test",
		  ": deny\n", nx },
		{ ASK, "a.test", ": ask\n", "waits until it is granted" },
		{ ASK, "a", ": deny\n", nx },
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct policy_args args = {
			.file = world_file(w, "p.yaml", rows[i].policy),
		};
		const char *text;

		free(w->bytes);
		w->bytes = NULL;
		assert_int_equal(world_load(w, &args), 0);
		text = explain(w, rows[i].query, false);
		if (!strstr(text, rows[i].first) || !strstr(text, rows[i].second))
			fail_msg("%zu: %s: %s", i, rows[i].query, text);
	}
}

static char *show(struct world *w, bool json)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_int_equal(cli_policy_show(&w->policy, &w->plan, json, out), 0);
	fclose(out);
	return text;
}

TEST_WITH(what_is_shown_reads_back_as_the_same_policy, setup, teardown)
{
	struct world *w = *state;
	const struct policy_args args = { .file = world_file(w, "p.yaml", policy_text) };

	assert_int_equal(world_load(w, &args), 0);
	for (int json = 0; json <= 1; json++) {
		struct policy_reader r = { .arena = &w->arena, .faults = &w->faults };
		char *text = show(w, json);
		struct policy again = { 0 };

		assert_int_equal(policy_read(&r, "shown", text_of(text),
					     POLICY_FORMAT_GUESS, &again),
				 0);
		assert_int_equal(again.count, w->policy.count);
		for (size_t i = 0; i < again.count; i++) {
			const struct rule *a = &again.rules[i], *b = &w->policy.rules[i];

			assert_string_equal(a->target, b->target);
			assert_int_equal(a->action, b->action);
			assert_int_equal(a->flags, b->flags);
			assert_int_equal(a->types, b->types);
			assert_int_equal(a->ports.count, b->ports.count);
			assert_int_equal(a->budget.sent, b->budget.sent);
			assert_int_equal(a->budget.per_sec, b->budget.per_sec);
			assert_int_equal(a->budget.action, b->budget.action);
			assert_string_equal(a->comment, b->comment);
		}
		free(text);
	}
}

TEST_WITH(the_default_is_explained_as_such, setup, teardown)
{
	struct world *w = *state;
	const struct policy_args args = { 0 };
	char buf[POLICY_EXPLAIN_SIZE];

	assert_int_equal(world_load(w, &args), 0);
	assert_string_equal(policy_explain_rule(&w->plan, PLAN_NO_RULE, buf, sizeof(buf)),
			    "the default action (deny)");
}
