// SPDX-License-Identifier: Apache-2.0
#include "sys/mounts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit.h"

static const char table[] =
	"22 27 0:21 / /proc rw,relatime - proc proc rw\n"
	"27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw\n"
	"30 27 8:17 /s\\040b /mnt/a\\040b rw - xfs /dev/sdb1 rw\n"
	"31 27 0:99 / /mnt rw - tmpfs t rw\n"
	"32 27 0:98 / /mnt rw - tmpfs u rw\n";

TEST(the_table_is_sorted_unescaped_and_unique)
{
	static const struct mount want[] = {
		{ "/", "ext4", 254 << 20, "/", 27 },
		{ "/mnt", "tmpfs", 98, "/", 32 },
		{ "/mnt/a b", "xfs", 8 << 20 | 17, "/s b", 30 },
		{ "/proc", "proc", 21, "/", 22 },
	};
	char *text = strdup(table);
	struct mounts m;

	assert_int_equal(mounts_parse(text, false, &m, NULL), 0);
	assert_int_equal(m.count, ARRAY_SIZE(want));
	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_string_equal(m.list[i].path, want[i].path);
		assert_string_equal(m.list[i].type, want[i].type);
		assert_string_equal(m.list[i].root, want[i].root);
		assert_int_equal(m.list[i].device, want[i].device);
		assert_int_equal(m.list[i].id, want[i].id);
	}
	mounts_done(&m);
	free(text);
}

TEST(what_is_no_mount_table_is_refused)
{
	static const char *const cases[] = {
		"x\n",
		"1 2 3:4 / /a rw\n",
		"1 2 3:4 / a rw - ext4 d rw\n",
		"1 2 - ext4 d rw\n",
		"1 2 3 / /a rw - ext4 d rw\n",
		"1 2 3:4x / /a rw - ext4 d rw\n",
		"x 2 3:4 / /a rw - ext4 d rw\n",
		"1 2 3:99999999 / /a rw - ext4 d rw\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *text = strdup(cases[i]);
		struct mounts m;

		assert_int_equal(mounts_parse(text, false, &m, NULL), -EBADMSG);
		free(text);
	}
}

TEST(of_very_many_mounts_each_is_found)
{
	enum { MANY = 20000 };
	static const char line[] = "1 2 3:4 / /m%05d/x rw - ext4 d rw\n";
	size_t size = MANY * sizeof(line) + 1, used = 0;
	char *text = malloc(size);
	struct mounts m;

	for (int i = 0; i < MANY; i++)
		used += (size_t)snprintf(text + used, size - used, line, i);
	assert_int_equal(mounts_parse(text, false, &m, NULL), 0);
	assert_int_equal(m.count, MANY);
	for (int i = 0; i < MANY; i++) {
		char path[16];

		snprintf(path, sizeof(path), "/m%05d/x", i);
		assert_non_null(mounts_find(&m, path));
		assert_false(mounts_has_below(&m, path));
		path[strlen("/m00000")] = '\0';
		assert_null(mounts_find(&m, path));
		assert_true(mounts_has_below(&m, path));
	}
	assert_false(mounts_has_below(&m, "/m0000"));
	assert_true(mounts_has_below(&m, "/"));
	free(m.list);
	free(text);
}

TEST(paths_are_compared_by_component)
{
	static const struct {
		const char *path, *top;
		bool want;
	} cases[] = {
		{ "/a/b", "/a", true }, { "/a", "/a", true },
		{ "/ab", "/a", false }, { "/a", "/a/b", false },
		{ "/x", "/", true },	{ "/", "/", true },
		{ "/", "/x", false },	{ "/a/bc", "/a/b", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(path_is_within(cases[i].path, cases[i].top),
				 cases[i].want);
}

TEST(a_path_is_cleaned_or_refused)
{
	static const struct {
		const char *path, *want; /* NULL: refused */
	} cases[] = {
		{ "/", "" },	       { "", "" },
		{ "/a/b", "/a/b" },    { "/a/b/", "/a/b" },
		{ "//a/./b", "/a/b" }, { "/.", "" },
		{ "a", "/a" },	       { "/a/..", NULL },
		{ "..", NULL },	       { "/a/..b", "/a/..b" },
		{ "/...", "/..." },
	};
	char got[PATH_MAX], large[PATH_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const int r = path_clean(cases[i].path, got);

		print_message("'%s'\n", cases[i].path);
		assert_int_equal(r, cases[i].want ? 0 : -EINVAL);
		if (r == 0)
			assert_string_equal(got, cases[i].want);
	}
	memset(large, 'a', sizeof(large) - 1);
	large[sizeof(large) - 1] = '\0';
	assert_int_equal(path_clean(large, got), -ENAMETOOLONG);
}

TEST(the_holding_mount_is_the_deepest)
{
	struct mounts m;
	char *text = strdup(table);

	assert_int_equal(mounts_parse(text, false, &m, NULL), 0);
	assert_string_equal(mounts_holding(&m, "/usr/lib")->path, "/");
	assert_string_equal(mounts_holding(&m, "/mnt/a")->path, "/mnt");
	assert_string_equal(mounts_holding(&m, "/mnt/a b/c")->path, "/mnt/a b");
	assert_true(mounts_has_below(&m, "/mnt"));
	assert_false(mounts_has_below(&m, "/proc"));
	assert_null(mounts_find(&m, "/usr"));
	mounts_done(&m);
	free(text);
}

TEST(a_path_shows_what_lies_there_and_each_mount_below_it)
{
	static const char below[] = "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
				    "30 27 254:0 /etc /srv/p/etc rw - ext4 /dev/vda rw\n"
				    "31 30 0:99 / /srv/p/etc/in rw - tmpfs t rw\n"
				    "32 27 254:0 /srv/p/s /mnt rw - ext4 /dev/vda rw\n"
				    "33 27 0:98 / /srv/p2 rw - tmpfs u rw\n";
	static const struct {
		const char *path, *inside;
		const char *others; /* where else it shows, or a piece of it */
	} want[] = {
		{ "/srv/p", "/srv/p", "/mnt " },
		{ "/srv/p/etc", "/etc", "/etc " },
		{ "/srv/p/etc/in", "/", "" },
	};
	struct mount_part part = { 0 };
	char *text = strdup(below);
	size_t count = 0;
	struct mounts m;

	assert_int_equal(mounts_parse(text, false, &m, NULL), 0);
	while (mounts_next_part(&m, "/srv/p", 27, &part)) {
		char others[64] = "", other[PATH_MAX];

		assert_true(count < ARRAY_SIZE(want));
		for (size_t i = 0; i < m.count; i++)
			if (mount_shows_part(&m.list[i], &part, other))
				strcat(strcat(others, other), " ");
		assert_string_equal(part.path, want[count].path);
		assert_string_equal(part.inside, want[count].inside);
		assert_string_equal(others, want[count++].others);
	}
	assert_int_equal(count, ARRAY_SIZE(want));
	part = (struct mount_part){ 0 };
	assert_false(mounts_next_part(&m, "/srv/p", 99, &part));
	assert_null(part.of);
	mounts_done(&m);
	free(text);
}

TEST(this_machine_s_table_is_read)
{
	struct mounts m;

	assert_int_equal(mounts_read(false, &m, NULL), 0);
	assert_string_equal(m.list[0].path, "/");
	mounts_done(&m);
}
