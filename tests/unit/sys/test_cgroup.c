// SPDX-License-Identifier: Apache-2.0
/* In real cgroups, where this user may make some. */
#include "sys/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "directory_end.h"
#include "thread_chain.h"
#include "unit.h"

enum { CHILDREN = 3, WALKS = 1000 };

/* A cgroup, and some below it. */
struct tree {
	struct cgroup top;
	char below[CHILDREN][CGROUP_PATH_MAX + 8];
};

static struct tree tree;

static int make_tree(void **state)
{
	char name[64];

	snprintf(name, sizeof(name), "/weir-unit-%d", (int)getpid());
	if (cgroup_directory(name, tree.top.path, NULL) < 0 ||
	    mkdir(tree.top.path, 0755) < 0)
		return 0; /* see is_there() */
	for (size_t i = 0; i < CHILDREN; i++) {
		snprintf(tree.below[i], sizeof(tree.below[i]), "%s/%zu", tree.top.path,
			 i);
		assert_int_equal(mkdir(tree.below[i], 0755), 0);
	}
	return cgroup_open(name, &tree.top, NULL);
}

static int remove_tree(void **state)
{
	for (size_t i = 0; i < CHILDREN; i++)
		(void)!rmdir(tree.below[i]);
	(void)!rmdir(tree.top.path);
	tree = (struct tree){ 0 };
	return 0;
}

static bool is_there(void)
{
	return tree.top.id != 0;
}

static int no_process(struct cgroup_walk *w, pid_t pid)
{
	return -EEXIST;
}

/* All below go as soon as the first of them is looked at. */
static int remove_all(struct cgroup_walk *w, uint64_t id)
{
	if (id == tree.top.id)
		return 0;
	++*(int *)w->data;
	for (size_t i = 0; i < CHILDREN; i++)
		(void)!rmdir(tree.below[i]);
	return 0;
}

TEST_WITH(who_goes_meanwhile_is_nobody, make_tree, remove_tree)
{
	struct err err = { 0 };
	int seen = 0;
	struct cgroup_walk w = { .on_process = no_process,
				 .on_cgroup = remove_all,
				 .data = &seen,
				 .err = &err };

	if (!is_there())
		skip();
	assert_int_equal(cgroup_walk(&w, &tree.top), 0);
	assert_string_equal(err.text, "");
	assert_int_equal(seen, 1);
}

static int remove_top(struct cgroup_walk *w, uint64_t id)
{
	remove_all(w, 0);
	return rmdir(tree.top.path) < 0 ? -errno : 0;
}

static int count_one(struct cgroup_walk *w, uint64_t id)
{
	++*(int *)w->data;
	return 0;
}

/* Whoever may make cgroups below names them. */
TEST_WITH(a_name_that_begins_with_a_dot_hides_nobody, make_tree, remove_tree)
{
	struct err err = { 0 };
	int seen = 0;
	struct cgroup_walk w = { .on_process = no_process,
				 .on_cgroup = count_one,
				 .data = &seen,
				 .err = &err };
	char hidden[CGROUP_PATH_MAX + 8];

	if (!is_there())
		skip();
	snprintf(hidden, sizeof(hidden), "%s/.x", tree.top.path);
	assert_int_equal(mkdir(hidden, 0755), 0);
	assert_int_equal(cgroup_walk(&w, &tree.top), 0);
	assert_int_equal(rmdir(hidden), 0);
	assert_int_equal(seen, 1 + CHILDREN + 1);
}

/* What can't be read may have somebody in it. */
TEST_WITH(a_cgroup_that_cant_be_read_to_its_end_is_an_error, make_tree, remove_tree)
{
	struct err err = { 0 };
	struct cgroup_walk w = { .on_process = no_process, .err = &err };

	if (!is_there())
		skip();
	directory_end = EIO;
	assert_int_equal(cgroup_walk(&w, &tree.top), -EIO);
	directory_end = 0;
	assert_int_equal(cgroup_walk(&w, &tree.top), 0);
}

TEST_WITH(a_cgroup_that_goes_itself_is_an_error, make_tree, remove_tree)
{
	struct err err = { 0 };
	int seen = 0;
	struct cgroup_walk w = { .on_process = no_process,
				 .on_cgroup = remove_top,
				 .data = &seen,
				 .err = &err };

	if (!is_there())
		skip();
	assert_true(cgroup_walk(&w, &tree.top) < 0);
	assert_non_null(strstr(err.text, "cannot see who is in the cgroup"));
}

static int count_process(struct cgroup_walk *w, pid_t pid)
{
	++*(int *)w->data;
	return 0;
}

/* The lists name threads, and each may be gone by when it is looked up. */
TEST_WITH(who_lives_on_in_ever_new_threads_is_somebody, make_tree, remove_tree)
{
	char path[CGROUP_PATH_MAX + 32];
	FILE *f;
	pid_t pid;

	if (!is_there())
		skip();
	snprintf(path, sizeof(path), "%s/cgroup.procs", tree.top.path);
	f = fopen(path, "we");
	assert_non_null(f);
	pid = thread_chain_start();
	fprintf(f, "%d", (int)pid);
	assert_int_equal(fclose(f), 0);
	for (int i = 0; i < WALKS; i++) {
		int seen = 0;
		struct cgroup_walk w = { .on_process = count_process, .data = &seen };
		int r = cgroup_walk(&w, &tree.top);

		assert_true((r == 0 && seen == 1) || r == -EAGAIN);
	}
	thread_chain_end(pid);
}
