// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include <assert.h>

enum { TESTS_MAX = 128 };

static struct CMUnitTest tests[TESTS_MAX];
static int lines[TESTS_MAX];
static size_t count;

/* Constructors run in no order that is promised. */
void unit_add(struct CMUnitTest test, int line)
{
	size_t i = count++;

	assert(count <= TESTS_MAX);
	for (; i > 0 && lines[i - 1] > line; i--) {
		tests[i] = tests[i - 1];
		lines[i] = lines[i - 1];
	}
	tests[i] = test;
	lines[i] = line;
}

int unit_run(CMFixtureFunction before, CMFixtureFunction after)
{
	return _cmocka_run_group_tests("tests", tests, count, before, after);
}

__attribute__((weak)) int main(void)
{
	return unit_run(NULL, NULL);
}
