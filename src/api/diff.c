// SPDX-License-Identifier: Apache-2.0
#include "api/diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *rules_of(const struct document *d)
{
	char *text = document_rules_json(d);
	json_t *rules = text ? json_loads(text, 0, NULL) : NULL;

	free(text);
	return rules;
}

static bool has(const json_t *rules, const json_t *rule)
{
	for (size_t i = 0; i < json_array_size(rules); i++)
		if (json_equal(json_array_get(rules, i), rule))
			return true;
	return false;
}

/* The rules of @some that @others lack. */
static void put_lacking(json_t *ret, char sign, const json_t *some, const json_t *others)
{
	for (size_t i = 0; i < json_array_size(some); i++) {
		const json_t *rule = json_array_get(some, i);
		char *text = has(others, rule)
				     ? NULL
				     : json_dumps(rule, JSON_COMPACT | JSON_ENSURE_ASCII);

		if (text)
			json_array_append_new(ret, json_sprintf("%c %s", sign, text));
		free(text);
	}
}

json_t *document_diff(const struct document *old, const struct document *next)
{
	json_t *before = rules_of(old), *after = rules_of(next), *ret = json_array();

	if (before && after && ret) {
		put_lacking(ret, '-', before, after);
		put_lacking(ret, '+', after, before);
	} else {
		json_decref(ret);
		ret = NULL;
	}
	json_decref(before);
	json_decref(after);
	return ret;
}
