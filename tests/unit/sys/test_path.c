// SPDX-License-Identifier: Apache-2.0
#include "sys/files.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

/* The working directory of the tests: dir/sub/file, link -> dir, other. */
static int set_up(void **state)
{
	static char folder[] = "/tmp/weir-path-XXXXXX";

	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	assert_int_equal(
		mkdir("dir", 0755) | mkdir("dir/sub", 0755) | mkdir("other", 0755), 0);
	close(open("dir/sub/file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(symlink("dir", "link"), 0);
	*state = folder;
	return 0;
}

static int tear_down(void **state)
{
	static const char *const files[] = { "dir/sub/file", "link" };
	static const char *const directories[] = { "dir/sub", "dir/new/newer", "dir/new",
						   "dir", "other" };

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		unlink(files[i]);
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		rmdir(directories[i]);
	return chdir("/") | rmdir(*state);
}

TEST(a_path_is_found_with_its_canonical_name)
{
	static const struct {
		const char *given, *below; /* of the working directory */
		size_t links;
	} cases[] = {
		{ "dir/sub", "/dir/sub", 0 },
		{ "./dir//sub/../sub/", "/dir/sub", 0 },
		{ "link/sub/file", "/dir/sub/file", 1 },
		{ "link/../link/../other", "/other", 2 },
		{ ".", "", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char expected[256];
		struct path p;

		snprintf(expected, sizeof(expected), "%s%s", (char *)*state,
			 cases[i].below);
		assert_int_equal(path_open(cases[i].given, &p, NULL), 0);
		assert_string_equal(p.name, expected);
		assert_int_equal(p.link_count, cases[i].links);
		assert_true((p.untrusted != NULL) == (cases[i].links > 0));
		assert_true(p.mount_id != 0);
		path_done(&p);
	}
}

TEST(roots_links_in_places_of_the_system_are_trusted)
{
	struct stat st;
	struct path p;

	if (lstat("/bin", &st) < 0 || !S_ISLNK(st.st_mode))
		skip();
	assert_int_equal(path_open("/bin", &p, NULL), 0);
	assert_int_equal(p.link_count, 1);
	assert_null(p.untrusted);
	path_done(&p);
}

TEST(what_is_missing_is_made_but_not_behind_a_link)
{
	struct path p;

	assert_int_equal(path_open("dir/new/newer", &p, NULL), -ENOENT);
	assert_int_equal(path_open_made("link/new/newer", &p, NULL), -ELOOP);
	assert_int_equal(access("dir/new", F_OK), -1);
	assert_int_equal(path_open_made("dir/new/newer", &p, NULL), 0);
	assert_int_equal(p.st.st_mode & 0777, 0700);
	path_done(&p);
}

TEST(links_without_an_end_are_an_error)
{
	struct path p;

	assert_int_equal(symlink("round", "round"), 0);
	assert_int_equal(path_open("round", &p, NULL), -ELOOP);
	unlink("round");
}

TEST(the_parent_of_what_does_not_exist_is_found)
{
	const char *last;
	struct path p;

	assert_int_equal(path_open_parent("dir/nothing", &p, &last, NULL), 0);
	assert_string_equal(last, "nothing");
	assert_non_null(strstr(p.name, "/dir"));
	path_done(&p);
	assert_int_equal(path_open_parent("/nothing", &p, &last, NULL), 0);
	assert_string_equal(p.name, "/");
	path_done(&p);
	assert_int_equal(path_open_parent("dir/", &p, &last, NULL), -EISDIR);
	assert_int_equal(path_open_parent("dir/..", &p, &last, NULL), -EISDIR);
}

TEST(another_file_of_the_same_name_is_not_opened_again)
{
	struct path p;
	int fd = -1;

	assert_int_equal(path_open("dir", &p, NULL), 0);
	assert_int_equal(path_reopen(p.fd, p.name, &fd), 0);
	close(fd);
	assert_int_equal(renameat2(AT_FDCWD, "dir", AT_FDCWD, "other", RENAME_EXCHANGE),
			 0);
	assert_int_equal(path_reopen(p.fd, p.name, &fd), -ESTALE);
	assert_int_equal(renameat2(AT_FDCWD, "dir", AT_FDCWD, "other", RENAME_EXCHANGE),
			 0);
	assert_int_equal(renameat2(AT_FDCWD, "dir", AT_FDCWD, "link", RENAME_EXCHANGE),
			 0);
	assert_int_equal(path_reopen(p.fd, p.name, &fd), -ESTALE);
	assert_int_equal(renameat2(AT_FDCWD, "dir", AT_FDCWD, "link", RENAME_EXCHANGE),
			 0);
	path_done(&p);
}

int main(void)
{
	return unit_run(set_up, tear_down);
}
