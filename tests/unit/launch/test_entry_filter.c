// SPDX-License-Identifier: Apache-2.0
#include "launch/entry_filter.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "launch/secret_lists.h" /* generated */
#include "unit.h"

/* The first part of each path below a home that may have credentials, after "~/". */
static const char *first_part(size_t i, char part[64])
{
	const char *path = credentials_list[i][0];

	if (path[0] != '~')
		return NULL;
	snprintf(part, 64, "%.*s", (int)strcspn(path + 2, "/"), path + 2);
	return path + 2;
}

TEST(each_name_is_found_where_it_is_and_few_elsewhere)
{
	size_t count = 0, wrong = 0;

	for (size_t i = 0; i < ARRAY_SIZE(credentials_list); i++) {
		char top[] = "/tmp/entry_filter.XXXXXX", part[64], place[128];
		struct entry_filter full = { 0 }, empty = { 0 };
		const char *path = first_part(i, part);

		if (!path)
			continue;
		assert_non_null(mkdtemp(top));
		entry_filter_read(&empty, top);
		snprintf(place, sizeof(place), "%s/%s", top, part);
		assert_int_equal(mkdir(place, 0700), 0);
		entry_filter_read(&full, top);
		assert_true(entry_filter_may_have(&full, path));
		wrong += entry_filter_may_have(&empty, path);
		count++;
		rmdir(place);
		rmdir(top);
	}
	assert_true(count > 100);
	/* "." and ".." are entries, too. */
	assert_true(wrong <= 2);
}

TEST(what_can_not_be_listed_may_have_anything)
{
	struct entry_filter any = { 0 };

	entry_filter_read(&any, "/dev/null");
	assert_true(entry_filter_may_have(&any, ".netrc"));
}

TEST(what_is_not_there_has_nothing)
{
	struct entry_filter none = { 0 };

	entry_filter_read(&none, "/nowhere");
	assert_false(entry_filter_may_have(&none, ".netrc"));
}

struct waiting {
	int ready[2], end[2]; /* pipes */
};

static void *wait_for_end(void *data)
{
	const struct waiting *w = data;
	const pid_t id = gettid();
	char byte;

	(void)!write(w->ready[1], &id, sizeof(id));
	(void)!read(w->end[0], &byte, 1);
	return NULL;
}

/* /proc has a directory for each thread, and lists those of processes alone. */
TEST(a_name_that_is_not_listed_but_there_may_be_there)
{
	struct entry_filter proc = { 0 };
	char name[16], path[32];
	pthread_t thread;
	struct waiting w;
	struct stat st;
	pid_t id;

	assert_int_equal(pipe(w.ready) | pipe(w.end), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_end, &w), 0);
	assert_int_equal(read(w.ready[0], &id, sizeof(id)), sizeof(id));
	entry_filter_read(&proc, "/proc");
	snprintf(name, sizeof(name), "%d", (int)id);
	snprintf(path, sizeof(path), "/proc/%s", name);
	assert_int_equal(stat(path, &st), 0);
	assert_true(entry_filter_may_have(&proc, name));
	close(w.end[1]);
	pthread_join(thread, NULL);
}
