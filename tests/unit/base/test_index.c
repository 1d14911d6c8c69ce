// SPDX-License-Identifier: Apache-2.0
#include "base/index.h"

#include <stdio.h>

#include "unit.h"

struct thing {
	struct index_entry entry;
	char text[8];
};

static struct thing *find(const struct index *r, const char *text)
{
	struct index_entry *e = index_find(r, text);

	return e ? CONTAINER_OF(e, struct thing, entry) : NULL;
}

TEST(an_empty_one_has_nobody)
{
	struct index r = { 0 };
	struct index_entry e = { 0 };

	assert_null(index_find(&r, "a"));
	assert_null(index_find(&r, ""));
	index_remove(&r, &e);
	assert_int_equal(r.count, 0);
	free(r.heads);
}

TEST(each_is_found_until_it_is_taken_out)
{
	enum { COUNT = 1000 };
	static struct thing things[COUNT];
	struct index r = { 0 };

	for (int i = 0; i < COUNT; i++) {
		snprintf(things[i].text, sizeof(things[i].text), "t%d", i);
		assert_int_equal(index_add(&r, &things[i].entry, things[i].text), 0);
	}
	assert_int_equal(r.count, COUNT);
	for (int i = 0; i < COUNT; i += 2)
		index_remove(&r, &things[i].entry);
	for (int i = 0; i < COUNT; i++)
		assert_ptr_equal(find(&r, things[i].text), i % 2 ? &things[i] : NULL);
	assert_null(find(&r, "t"));
	assert_null(find(&r, "t10000"));
	index_remove(&r, &things[0].entry);
	assert_int_equal(r.count, COUNT / 2);
	free(r.heads);
}

TEST(the_later_of_two_is_found_first)
{
	struct thing a = { .text = "same" }, b = { .text = "same" };
	struct index r = { 0 };

	assert_int_equal(index_add(&r, &a.entry, a.text), 0);
	assert_int_equal(index_add(&r, &b.entry, b.text), 0);
	assert_ptr_equal(find(&r, "same"), &b);
	assert_ptr_equal(index_next(&b.entry), &a.entry);
	assert_null(index_next(&a.entry));
	index_remove(&r, &b.entry);
	assert_ptr_equal(find(&r, "same"), &a);
	index_remove(&r, &a.entry);
	assert_null(find(&r, "same"));
	assert_int_equal(index_add(&r, &b.entry, b.text), 0);
	assert_ptr_equal(find(&r, "same"), &b);
	free(r.heads);
}
