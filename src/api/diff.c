// SPDX-License-Identifier: Apache-2.0
#include "api/diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *whole_of(const struct document *d)
{
	CLEAN(mem) char *text = document_json(d, false);

	return text ? json_loads(text, 0, NULL) : NULL;
}

static void put(json_t *ret, char sign, const json_t *what)
{
	CLEAN(mem) char *text = json_dumps(what, JSON_COMPACT | JSON_ENSURE_ASCII);

	if (text)
		json_array_append_new(ret, json_sprintf("%c %s", sign, text));
}

/* The keys of @some, the rules aside, that @others lacks or has with other values, each
 * as an object of its own. */
static void put_keys(json_t *ret, char sign, json_t *some, const json_t *others)
{
	const char *key;
	json_t *value;

	json_object_foreach(some, key, value)
	{
		CLEAN(json) json_t *one = NULL;

		if (strcmp(key, "egress") == 0 ||
		    json_equal(value, json_object_get(others, key)))
			continue;
		one = json_pack("{s:O}", key, value);
		put(ret, sign, one);
	}
}

/* ---- rules, whose order counts ---- */

enum { NO_PLACE = -1 };

/* A rule of the new policy. */
struct kept {
	int place;  /* of the same rule in the old policy, each once; NO_PLACE */
	int before; /* in the longest row of places in order that ends here */
	bool stays;
};

static int place_of(const json_t *rules, const json_t *rule, const bool *taken, int from)
{
	const int count = (int)json_array_size(rules);

	for (int n = 0; n < count; n++) {
		const int i = (from + n) % count;

		if (!taken[i] && json_equal(json_array_get(rules, (size_t)i), rule))
			return i;
	}
	return NO_PLACE;
}

/* As many rules as can be stay where they are; the others have moved. @ends: the rule at
 * which a row of each size ends with the lowest place. */
static void find_stays(struct kept *all, int count, int *ends)
{
	int longest = 0;

	for (int i = 0; i < count; i++) {
		int low = 0, high = longest;

		if (all[i].place == NO_PLACE)
			continue;
		while (low < high) {
			const int middle = (low + high) / 2;

			if (all[ends[middle]].place < all[i].place)
				low = middle + 1;
			else
				high = middle;
		}
		all[i].before = low > 0 ? ends[low - 1] : NO_PLACE;
		ends[low] = i;
		longest = low == longest ? longest + 1 : longest;
	}
	for (int i = longest > 0 ? ends[longest - 1] : NO_PLACE; i != NO_PLACE;
	     i = all[i].before)
		all[i].stays = true;
}

/* A rule that has moved is taken away and added. */
static int put_rules(json_t *ret, const json_t *before, const json_t *after)
{
	const size_t old = json_array_size(before), new = json_array_size(after);
	CLEAN(mem) struct kept *all = calloc(new + 1, sizeof(*all));
	CLEAN(mem) bool *taken = calloc(old + 1, sizeof(*taken));
	CLEAN(mem) int *ends = calloc(new + 1, sizeof(*ends));
	int next = 0;

	if (!all || !taken || !ends)
		return -1;
	for (size_t i = 0; i < new; i++) {
		const int place = place_of(before, json_array_get(after, i), taken, next);

		all[i].place = place;
		if (place == NO_PLACE)
			continue;
		taken[place] = true;
		next = place + 1;
	}
	find_stays(all, (int)new, ends);
	memset(taken, 0, old * sizeof(*taken));
	for (size_t i = 0; i < new; i++)
		if (all[i].stays)
			taken[all[i].place] = true;
	for (size_t i = 0; i < old; i++)
		if (!taken[i])
			put(ret, '-', json_array_get(before, i));
	for (size_t i = 0; i < new; i++)
		if (!all[i].stays)
			put(ret, '+', json_array_get(after, i));
	return 0;
}

json_t *document_diff(const struct document *old, const struct document *next)
{
	CLEAN(json)
	json_t *before = whole_of(old), *after = whole_of(next), *ret = json_array();

	if (!before || !after || !ret)
		return NULL;
	put_keys(ret, '-', before, after);
	put_keys(ret, '+', after, before);
	return put_rules(ret, json_object_get(before, "egress"),
			 json_object_get(after, "egress")) < 0
		       ? NULL
		       : TAKE_PTR(ret);
}
