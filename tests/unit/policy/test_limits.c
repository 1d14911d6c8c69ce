// SPDX-License-Identifier: Apache-2.0
#include "policy/limits.h"

#include <stdio.h>
#include <string.h>

#include "unit.h"

static const char *manual; /* path of weir-policy.5 */

TEST(every_default_is_a_valid_value)
{
	for (size_t i = 0; i < LIMIT_COUNT; i++) {
		const struct limit_info *l = limit_info(i);
		enum plan_limit found;

		assert_true(limit_is_valid(i, l->value));
		assert_true(limit_is_valid(i, l->minimum));
		assert_true(limit_is_valid(i, l->ceiling));
		assert_false(limit_is_valid(i, l->minimum - 1));
		assert_false(limit_is_valid(i, l->ceiling + 1));
		assert_int_equal(limit_is_valid(i, LIMIT_UNLIMITED), l->unlimited);
		assert_true(limit_find(text_of(l->name), &found));
		assert_int_equal(found, i);
	}
}

TEST(the_manual_lists_the_table)
{
	static char text[64 * 1024];
	FILE *f = fopen(manual, "re");
	char line[256];

	assert_non_null(f);
	text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
	fclose(f);
	for (size_t i = 0; i < LIMIT_COUNT; i++) {
		const struct limit_info *l = limit_info(i);

		snprintf(line, sizeof(line), ".It %s Ta %u Ta %u-%u Ta %s Ta ", l->name,
			 l->value, l->minimum, l->ceiling, l->unit);
		if (!strstr(text, line))
			fail_msg("the manual lacks: %s", line);
	}
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	manual = argv[1];
	return unit_run(NULL, NULL);
}
