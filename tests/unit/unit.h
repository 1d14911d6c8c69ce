// SPDX-License-Identifier: Apache-2.0
/* What each unit test includes: cmocka, with the headers that have to come before it.
 *
 * TEST(its_name_says_the_rule) { ... } is a test, and runs; those of a file run in the
 * order in which they stand in it. unit.c has main(). */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TEST(name) TEST_WITH(name, NULL, NULL)
/* @before and @after may be NULL. */
#define TEST_WITH(name, before, after)                                                   \
	static void name(void **state);                                                  \
	__attribute__((constructor)) static void name##_is_a_test(void)                  \
	{                                                                                \
		unit_add((struct CMUnitTest){ #name, name, before, after, NULL },        \
			 __LINE__);                                                      \
	}                                                                                \
	static void name(void **state)

void unit_add(struct CMUnitTest test, int line);
/* Run all tests, with @before and @after around all of them. Return: how many failed. A
 * main() of a file's own comes to that. */
int unit_run(CMFixtureFunction before, CMFixtureFunction after);
