// SPDX-License-Identifier: Apache-2.0
/* Any text as a document, a patch, a grant and a removal: it is refused with a text, or
 * it comes back from what it prints, in both forms; what it makes of a policy opens
 * nothing that no rule of it allows. */
#include <string.h>

#include "opensandbox/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static void on_unknown(void *data, const char *key)
{
	size_t *reported = data;

	require(strlen(key) < TEXT_ESCAPED_SIZE);
	require(++*reported <= 32);
}

static void comes_back(const struct document *d, bool pretty)
{
	char *text = document_json(d, pretty), *again_text;
	struct document *again = NULL;

	require(text != NULL);
	require(document_parse(text_of(text), NULL, NULL, &again, NULL) == 0);
	require(document_equal(d, again));
	again_text = document_json(again, pretty);
	require(again_text && strcmp(text, again_text) == 0);
	document_free(again);
	free(again_text);
	free(text);
}

/* A name and an address that nobody writes are open only under an open default. */
static void opens_nothing_else(const struct plan *plan, enum policy_action action,
			       const struct policy *p)
{
	static const uint8_t wire[] = "\x03\x01\x02\x03\x07invalid";
	struct dns_name n = { .size = sizeof(wire), .labels = 2 };

	memcpy(n.bytes, wire, sizeof(wire));
	for (size_t i = 0; i < p->count; i++) {
		if (p->rules[i].kind != TARGET_PREFIX &&
		    dns_name_is_within(&n, &p->rules[i].name))
			return;
	}
	require(plan_match_name(plan, &n).action == action);
}

static void make_policy(const struct document *d, struct text static_rules)
{
	const struct static_rules_file file = { "deny.always", static_rules };
	struct arena arena = { 0 };
	struct faults faults = { 0 };
	struct policy policy = { 0 };
	const struct policy_reader reader = { .arena = &arena, .faults = &faults };
	int r = document_policy(d, &file, NULL, "p", &reader, &policy);
	uint8_t *bytes = NULL;
	struct plan plan;
	size_t size;

	require((r < 0) == (faults.errors > 0));
	if (r == 0 && policy_build(&reader, &policy, &bytes, &size) == 0) {
		require(plan_open(bytes, size, &plan, NULL) == 0);
		opens_nothing_else(&plan, policy.default_action, &policy);
	}
	free(bytes);
	arena_done(&arena);
	faults_done(&faults);
}

static void run_document(struct text text)
{
	struct document *d = NULL;
	struct err err = { 0 };
	size_t reported = 0;

	if (document_parse(text, on_unknown, &reported, &d, &err) < 0) {
		require(err.text[0] != '\0');
		return;
	}
	comes_back(d, false);
	comes_back(d, true);
	make_policy(d, (struct text){ 0 });
	document_free(d);
}

static void run_change(struct text text)
{
	static const char body[] =
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.b\","
		"\"types\":[\"SRV\"],\"ports\":[443]},"
		"{\"target\":\"10.0.0.1\"},{\"target\":\"A.b\"}]}";
	struct document *old = NULL, *merged = NULL, *removed = NULL, *granted = NULL;
	struct err err = { 0 };

	require(document_parse(text_of(body), NULL, NULL, &old, NULL) == 0);
	if (document_merge(old, text, NULL, NULL, &merged, &err) < 0)
		require(err.text[0] != '\0');
	else
		comes_back(merged, false);
	err.text[0] = '\0';
	if (document_grant(old, text, 1700000000000, &granted, &err) < 0)
		require(err.text[0] != '\0');
	else
		comes_back(granted, false);
	err.text[0] = '\0';
	if (document_remove(old, text, &removed, &err) < 0)
		require(err.text[0] != '\0');
	else
		require(!removed || document_rule_count(removed) < 3);
	make_policy(old, text);
	document_free(old);
	document_free(merged);
	document_free(removed);
	document_free(granted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text text = { (const char *)data, size };

	run_document(text);
	run_change(text);
	return 0;
}
