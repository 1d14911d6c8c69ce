// SPDX-License-Identifier: Apache-2.0
/* A plan from the text of a policy, for tests. */
#pragma once

#include "policy/policy.h"
#include "unit.h"

/* Owned by the caller: free(). */
static inline uint8_t *plan_from(const char *text, struct plan *ret)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct faults *faults = calloc(1, sizeof(*faults));
	struct policy_reader reader = { .arena = &arena, .faults = faults };
	struct policy policy = { 0 };
	struct err err = { 0 };
	uint8_t *bytes = NULL;
	char line[FAULT_TEXT_SIZE];
	size_t size;

	assert_non_null(faults);
	if (policy_read(&reader, "t", text_of(text), POLICY_FORMAT_YAML, &policy) < 0)
		fail_msg("%s", fault_format(&faults->items[0], line, sizeof(line)));
	if (policy_compile(&policy, &bytes, &size, &err) < 0 ||
	    plan_open(bytes, size, ret, &err) < 0)
		fail_msg("%s", err.text);
	faults_done(faults);
	free(faults);
	return bytes;
}
