// SPDX-License-Identifier: Apache-2.0
#include "launch/startup_files.h"

#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "directory_end.h"
#include "launch/startup_report.h"
#include "unit.h"

/* The working directory of each test has a checkout. */
static int set_up(void **state)
{
	static const char *const directories[] = { "a", "a/.git", "a/.git/hooks",
						   "a/.git/objects", "a/.git/refs" };
	static const char *const files[] = { "a/.git/HEAD", "a/.git/config" };
	static char folder[32];

	snprintf(folder, sizeof(folder), "/tmp/weir-startup-XXXXXX");
	assert_non_null(mkdtemp(folder));
	assert_int_equal(chdir(folder), 0);
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		assert_int_equal(mkdir(directories[i], 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		close(open(files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	*state = folder;
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	return remove(path);
}

static int tear_down(void **state)
{
	return chdir("/") | nftw(*state, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_many(const char *pattern, int count)
{
	for (int i = 0; i < count; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s%d.toml", pattern, i);
		close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	}
}

static struct startup_files *search(const char *const *tops, size_t count)
{
	struct startup_files *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	for (size_t i = 0; i < count; i++) {
		CLEAN(path) struct path p = { .fd = -1 };

		assert_int_equal(path_open(tops[i], &p, NULL), 0);
		assert_int_equal(startup_files_add(s, &p, NULL), 0);
	}
	assert_int_equal(startup_files_find(s, NULL), 0);
	return s;
}

static bool has(const struct startup_files *s, const char *end)
{
	for (size_t i = 0; i < s->count; i++) {
		const size_t len = strlen(s->found[i].name), tail = strlen(end);

		if (len > tail && strcmp(s->found[i].name + len - tail, end) == 0)
			return true;
	}
	return false;
}

static void assert_git_is_held(const char *const *tops, size_t count, bool cut)
{
	struct startup_files *s = search(tops, count);

	assert_true(has(s, "/a/.git/config"));
	assert_true(has(s, "/a/.git/hooks"));
	assert_int_equal(s->cut, cut);
	startup_files_done(s);
	free(s);
}

static const char *const top[] = { "a" };

TEST_WITH(a_checkout_is_held, set_up, tear_down)
{
	assert_git_is_held(top, 1, false);
}

TEST_WITH(a_checkout_without_what_shows_it_is_held, set_up, tear_down)
{
	assert_int_equal(unlink("a/.git/HEAD") | rmdir("a/.git/objects") |
				 rmdir("a/.git/refs"),
			 0);
	assert_git_is_held(top, 1, false);
}

TEST_WITH(a_full_git_directory_is_held, set_up, tear_down)
{
	make_many("a/.git/x", STARTUP_ENTRIES_MAX + 1);
	assert_git_is_held(top, 1, true);
}

TEST_WITH(more_such_files_than_are_held_leave_git_its_place, set_up, tear_down)
{
	make_many("a/.git/mise.", 2 * STARTUP_MAX);
	assert_git_is_held(top, 1, true);
}

TEST_WITH(a_full_directory_leaves_another_one_its_place, set_up, tear_down)
{
	static const char *const both[] = { "b", "a" };

	assert_int_equal(mkdir("b", 0755), 0);
	make_many("b/mise.", 2 * STARTUP_MAX);
	assert_git_is_held(both, 2, true);
}

TEST_WITH(a_module_without_what_shows_it_is_held, set_up, tear_down)
{
	struct startup_files *s;

	assert_int_equal(mkdir("a/.git/modules", 0755) | mkdir("a/.git/modules/m", 0755) |
				 mkdir("a/.git/modules/m/hooks", 0755),
			 0);
	close(open("a/.git/modules/m/config", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	s = search(top, 1);
	assert_true(has(s, "/m/config") && has(s, "/m/hooks"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(a_bare_repository_without_what_shows_it_is_held, set_up, tear_down)
{
	struct startup_files *s;

	assert_int_equal(mkdir("a/b.git", 0755) | mkdir("a/b.git/hooks", 0755), 0);
	close(open("a/b.git/config", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	s = search(top, 1);
	assert_true(has(s, "/b.git/config") && has(s, "/b.git/hooks"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(a_directory_of_a_project_is_no_git_directory, set_up, tear_down)
{
	struct startup_files *s;

	assert_int_equal(mkdir("a/hooks", 0755) | mkdir("a/config", 0755), 0);
	s = search(top, 1);
	assert_false(has(s, "a/hooks") || has(s, "a/config"));
	startup_files_done(s);
	free(s);
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Of what lies below @directory, of which the search is one, each of @names is found. */
static void assert_all_are_held(const char *directory, const char *const *names)
{
	struct startup_files *s = search(&directory, 1);

	for (; *names; names++)
		if (!has(s, *names))
			fail_msg("%s is not held", *names);
	assert_false(s->cut);
	startup_files_done(s);
	free(s);
}

TEST_WITH(the_hooks_of_a_linked_working_tree_are_held, set_up, tear_down)
{
	static const char *const held[] = { "/a/tools/hooks", "/a/wt/tools/hooks", NULL };
	static const char *const made[] = { "a/.git/worktrees",
					    "a/.git/worktrees/wt",
					    "a/tools",
					    "a/tools/hooks",
					    "a/wt",
					    "a/wt/tools",
					    "a/wt/tools/hooks" };
	char line[256], *here = getcwd(NULL, 0);

	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		assert_int_equal(mkdir(made[i], 0755), 0);
	put("a/.git/config", "[core]\n\tworktree = ..\n\thooksPath = tools/hooks\n");
	put("a/.git/worktrees/wt/commondir", "../..\n");
	snprintf(line, sizeof(line), "%s/a/wt/.git\n", here);
	put("a/.git/worktrees/wt/gitdir", line);
	snprintf(line, sizeof(line), "gitdir: %s/a/.git/worktrees/wt\n", here);
	put("a/wt/.git", line);
	assert_all_are_held("a", held);
	free(here);
}

TEST_WITH(the_hooks_of_a_repository_that_is_kept_elsewhere_are_held, set_up, tear_down)
{
	static const char *const held[] = { "/b/tools/hooks", NULL };

	assert_int_equal(rename("a/.git", "repo") | mkdir("b", 0755) |
				 mkdir("b/tools", 0755) | mkdir("b/tools/hooks", 0755),
			 0);
	put("repo/config", "[core]\n\thooksPath = tools/hooks\n");
	put("b/.git", "gitdir: ../repo\n");
	assert_all_are_held("b", held);
}

TEST_WITH(each_link_on_the_way_to_what_runs_is_held, set_up, tear_down)
{
	static const char *const held[] = {
		"/a/inc",	"/a/conf/git.inc", /* include.path */
		"/a/hk",	"/a/real",	   /* core.hooksPath */
		"/a/envrc.dir", "/a/.envrc",	   NULL
	};

	assert_int_equal(mkdir("a/conf", 0755) | mkdir("a/real", 0755), 0);
	put("a/.git/config", "[include]\n\tpath = ../inc\n[core]\n\thooksPath = hk\n");
	put("a/conf/git.inc", "");
	put("a/conf/envrc", "");
	assert_int_equal(symlink("conf/git.inc", "a/inc"), 0);
	assert_int_equal(symlink("real", "a/hk"), 0);
	assert_int_equal(symlink("conf", "a/envrc.dir"), 0);
	assert_int_equal(symlink("envrc.dir/envrc", "a/.envrc"), 0);
	assert_all_are_held("a", held);
}

TEST_WITH(links_in_what_a_held_directory_has_are_held, set_up, tear_down)
{
	static const char *const held[] = { "/a/.claude/hooks/x", "/a/husky/pre-commit",
					    NULL };
	struct startup_files *s;

	assert_int_equal(mkdir("a/.claude", 0755) | mkdir("a/.claude/hooks", 0755) |
				 mkdir("a/.claude/node_modules", 0755) |
				 mkdir("a/husky", 0755) | mkdir("a/tools", 0755),
			 0);
	put("a/tools/x", "");
	assert_int_equal(symlink("../../tools/x", "a/.claude/hooks/x"), 0);
	assert_int_equal(symlink("../../tools/x", "a/.claude/node_modules/x"), 0);
	assert_int_equal(symlink("husky", "a/.husky"), 0);
	assert_int_equal(symlink("../tools/x", "a/husky/pre-commit"), 0);
	assert_all_are_held("a", held);
	s = search(top, 1);
	assert_false(has(s, "/a/.claude/node_modules/x"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(links_in_another_writable_directory_that_a_held_link_leads_to_are_held, set_up,
	  tear_down)
{
	static const char *const both[] = { "a", "b" };
	struct startup_files *s;

	assert_int_equal(mkdir("b", 0755) | mkdir("b/husky", 0755), 0);
	assert_int_equal(symlink("../b/husky", "a/.husky"), 0);
	assert_int_equal(symlink("../x", "b/husky/pre-commit"), 0);
	s = search(both, ARRAY_SIZE(both));
	assert_true(has(s, "/b/husky/pre-commit"));
	startup_files_done(s);
	free(s);
}

static bool is_cut(void)
{
	struct startup_files *s = search(top, 1);
	bool cut = s->cut;

	startup_files_done(s);
	free(s);
	return cut;
}

TEST_WITH(a_directory_that_cant_be_read_to_its_end_is_told, set_up, tear_down)
{
	assert_false(is_cut());
	directory_end = EIO;
	assert_true(is_cut());
	directory_end = 0;
}

TEST_WITH(more_links_than_are_looked_for_are_told, set_up, tear_down)
{
	char name[64];

	assert_int_equal(mkdir("a/.claude", 0755) | mkdir("a/tools", 0755), 0);
	put("a/tools/x", "");
	for (int i = 0; i < 32; i++) {
		snprintf(name, sizeof(name), "a/.claude/%d", i);
		assert_int_equal(symlink("../tools/x", name), 0);
	}
	assert_false(is_cut());
	assert_int_equal(symlink("../tools/x", "a/.claude/one-more"), 0);
	assert_true(is_cut());
}

TEST_WITH(more_entries_than_are_searched_for_links_are_told, set_up, tear_down)
{
	char name[64];

	assert_int_equal(mkdir("a/.claude", 0755) | mkdir("a/.claude/d", 0755), 0);
	for (int i = 0; i < 999; i++) {
		snprintf(name, sizeof(name), "a/.claude/d/%d", i);
		put(name, "");
	}
	assert_false(is_cut());
	put("a/.claude/d/one-more", "");
	assert_true(is_cut());
}

TEST_WITH(the_way_from_a_hook_of_the_repository_around_is_held, set_up, tear_down)
{
	static const char *const held[] = { "/a/s/pre-commit", "/a/s/real", "/a/s/post",
					    NULL };

	assert_int_equal(mkdir("a/s", 0755) | mkdir("a/hooks", 0755), 0);
	put("a/s/real", "");
	put("a/.git/config", "[core]\n\thooksPath = hooks\n");
	put("a/post", "");
	assert_int_equal(symlink("../../s/pre-commit", "a/.git/hooks/pre-commit"), 0);
	assert_int_equal(symlink("real", "a/s/pre-commit"), 0);
	/* It leads out again. */
	assert_int_equal(symlink("../s/post", "a/hooks/post-commit"), 0);
	assert_int_equal(symlink("../post", "a/s/post"), 0);
	assert_all_are_held("a/s", held);
}

/* The directories @made, up to NULL; each after the one that it is in. */
static void make(const char *const *made)
{
	for (; *made; made++)
		assert_int_equal(mkdir(*made, 0755), 0);
}

#define MAKE(...) make((const char *const[]){ __VA_ARGS__, NULL })
#define ASSERT_HELD(directory, ...)                                                      \
	assert_all_are_held(directory, (const char *const[]){ __VA_ARGS__, NULL })

TEST_WITH(git_goes_past_what_is_no_repository, set_up, tear_down)
{
	MAKE("a/sub", "a/sub/.git", "a/sub/hk", "a/sub/deep");
	put("a/.git/config", "[core]\n\thooksPath = sub/hk\n");
	put("a/sub/.git/HEAD", "x");
	ASSERT_HELD("a/sub", "/a/sub/hk");
	put("a/sub/deep/.git", "gitdir: nowhere\n");
	ASSERT_HELD("a/sub", "/a/sub/hk");
}

TEST_WITH(a_git_directory_elsewhere_without_what_shows_it_is_held, set_up, tear_down)
{
	MAKE("b", "b/store", "b/node_modules");
	assert_int_equal(rename("a/.git", "b/store/g") | unlink("b/store/g/HEAD") |
				 rmdir("b/store/g/refs"),
			 0);
	ASSERT_HELD("b", "/b/store/g/config", "/b/store/g/hooks"); /* a bare one */
	assert_int_equal(rename("b/store/g", "b/node_modules/g"), 0);
	put("b/.git", "gitdir: node_modules/g\n");
	ASSERT_HELD("b", "/b/node_modules/g/config", "/b/node_modules/g/hooks");
}

TEST_WITH(a_link_to_a_git_directory_is_followed, set_up, tear_down)
{
	MAKE("b", "b/hk");
	put("a/.git/config", "[core]\n\thooksPath = hk\n");
	assert_int_equal(symlink("../l/.git", "b/.git") | symlink("b/l2", "l") |
				 symlink("../a", "b/l2"),
			 0);
	ASSERT_HELD("b", "/b/hk", "/b/.git", "/b/l2");
}

TEST_WITH(a_working_tree_that_was_moved_is_followed, set_up, tear_down)
{
	MAKE("a/.git/worktrees", "a/.git/worktrees/wt", "a/.git/worktrees/wt/hooks", "wt",
	     "wt/hk");
	put("a/.git/config", "[core]\n\thooksPath = hk\n");
	put("a/.git/worktrees/wt/commondir", "../..\n");
	put("a/.git/worktrees/wt/gitdir", "/nowhere/.git\n");
	put("wt/.git", "gitdir: ../a/.git/worktrees/wt\n");
	ASSERT_HELD("wt", "/wt/hk");
	put("a/.git/config", "");
	put("a/.git/worktrees/wt/config.worktree", "[core]\n\thooksPath = hk\n");
	ASSERT_HELD("wt", "/wt/hk");
}

TEST_WITH(each_link_on_the_way_to_a_git_directory_is_held, set_up, tear_down)
{
	MAKE("b", "b/real");
	put("b/.git", "gitdir: out/a/.git\n");
	assert_int_equal(symlink("..", "b/out"), 0);
	ASSERT_HELD("b", "/b/out");
	put("a/.git/commondir", "../../b/c");
	assert_int_equal(symlink("real", "b/c"), 0);
	ASSERT_HELD("b", "/b/out", "/b/c");
}

TEST_WITH(a_name_is_taken_as_git_takes_it, set_up, tear_down)
{
	MAKE("b", "b/hk", "a/.git ");
	put("a/.git /config", "[core]\n\thooksPath = hk\n");
	put("b/.git", "gitdir: ../a/.git \r\n\n");
	ASSERT_HELD("b", "/b/hk");
}

TEST_WITH(a_config_that_is_a_link_is_read, set_up, tear_down)
{
	MAKE("a/hk");
	put("a/cfg", "[core]\n\thooksPath = hk\n");
	assert_int_equal(unlink("a/.git/config") | symlink("../cfg", "a/.git/config"), 0);
	ASSERT_HELD("a", "/a/hk", "/a/.git/config");
}

TEST_WITH(hooks_for_which_all_would_be_held_are_told, set_up, tear_down)
{
	put("a/.git/config", "[core]\n\thooksPath = .\n");
	assert_git_is_held(top, 1, true);
}

TEST_WITH(the_callers_own_configs_count, set_up, tear_down)
{
	char *here, *kept = strdup(getenv("HOME") ?: "/");

	MAKE("a/hk", "a/dot", "a/all", "home", "home/.config");
	put("a/dot/git", "[core]\n\thooksPath = hk\n");
	put("a/dot/rc", "");
	put("a/all/pre-push", "");
	assert_int_equal(symlink("../a/dot/git", "home/.gitconfig") |
				 symlink("../a/dot/rc", "home/.bashrc") |
				 symlink("../../a/dot", "home/.config/git"),
			 0);
	put("a/dot/config", "[core]\n\thooksPath = ~/../a/all\n");
	assert_int_equal(chdir("home"), 0);
	here = getcwd(NULL, 0);
	setenv("HOME", here, 1);
	assert_int_equal(chdir(".."), 0);
	ASSERT_HELD("a", "/a/hk", "/a/dot/rc", "/a/dot/git", "/a/all");
	setenv("HOME", kept, 1);
	free(kept);
	free(here);
}

TEST_WITH(a_config_that_is_too_large_is_told, set_up, tear_down)
{
	assert_int_equal(truncate("a/.git/config", (1 << 20) + 1), 0);
	assert_git_is_held(top, 1, true);
}

TEST_WITH(links_in_directories_elsewhere_are_followed, set_up, tear_down)
{
	static const char *const both[] = { "a", "b" };
	struct startup_files *s;

	MAKE("a/s", "a/hooks", "b", "out", "out/more", "out/claude");
	put("a/s/pc", "");
	put("a/s/deep", "");
	put("a/s/h", "");
	/* From one writable directory to another. */
	assert_int_equal(rename("a/.git", "b/.git") | rmdir("b/.git/hooks") |
				 symlink("../../a/hooks", "b/.git/hooks") |
				 symlink("../s/pc", "a/hooks/pre-commit"),
			 0);
	/* Out of all of them, and in again. */
	assert_int_equal(symlink("../out/claude", "a/.claude") |
				 symlink("../more", "out/claude/more") |
				 symlink("../../a/s/deep", "out/more/x") |
				 symlink("../../a/s/h", "out/claude/h"),
			 0);
	s = search(both, ARRAY_SIZE(both));
	assert_true(has(s, "/a/hooks/pre-commit"));
	assert_true(has(s, "/a/s/deep") && has(s, "/a/s/h"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(hooks_elsewhere_are_followed, set_up, tear_down)
{
	MAKE("a/sub", "out", "a/s");
	put("a/s/pc", "");
	assert_int_equal(rename("a/.git", "a/sub/.git") | rmdir("a/sub/.git/hooks") |
				 symlink("../../../out", "a/sub/.git/hooks") |
				 symlink("../a/s/pc", "out/pre-commit"),
			 0);
	ASSERT_HELD("a", "/a/s/pc");
}

TEST_WITH(links_to_directories_in_what_is_held_are_held, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/.claude", "a/tools", "a/tools/cmds", "a/tools/more");
	assert_int_equal(symlink("../tools/cmds", "a/.claude/commands") |
				 symlink("../more", "a/tools/cmds/more") |
				 symlink("..", "a/.claude/project"),
			 0);
	ASSERT_HELD("a", "/a/.claude/commands", "/a/tools/cmds/more");
	/* All of the project would be read-only. */
	s = search(top, 1);
	assert_false(has(s, "/a/.claude/project"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(what_only_seems_to_be_gits_is_walked, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/objects", "a/refs", "a/logs", "a/logs/app", "a/.git/logs",
	     "a/.git/logs/x", "a/objects/x", "a/objects/x/.git");
	put("a/HEAD", "");
	put("a/logs/app/.envrc", "");
	put("a/objects/x/.git/config", "");
	put("a/.git/logs/x/.envrc", "");
	ASSERT_HELD("a", "/a/logs/app/.envrc", "/a/objects/x/.git/config");
	s = search(top, 1);
	assert_false(has(s, "/a/.git/logs/x/.envrc"));
	startup_files_done(s);
	free(s);
}

TEST_WITH(the_callers_own_configs_count_without_a_repository, set_up, tear_down)
{
	char *kept = strdup(getenv("HOME") ?: "/"), *here;

	MAKE("b", "b/hk", "b/cfg", "b/tpl", "home", "home/.config");
	put("b/cfg/config",
	    "[core]\n\thooksPath = hk\n[init]\n\ttemplateDir = ~/../b/tpl");
	assert_int_equal(symlink("../../b/cfg", "home/.config/git") | chdir("home"), 0);
	here = getcwd(NULL, 0);
	setenv("HOME", here, 1);
	assert_int_equal(chdir(".."), 0);
	ASSERT_HELD("b", "/b/cfg/config", "/b/hk", "/b/tpl");
	setenv("HOME", kept, 1);
	free(kept);
	free(here);
}

TEST_WITH(hooks_count_from_each_place_that_git_takes, set_up, tear_down)
{
	MAKE("a/hk", "a/.git/hk", "a/w", "a/w/hk");
	put("a/.git/config", "[core]\n\thooksPath = hk\n");
	ASSERT_HELD("a", "/a/hk", "/a/.git/hk");
	put("a/.git/config", "[core]\n\thooksPath = hk\n\tworktree = ../w\n");
	ASSERT_HELD("a", "/a/w/hk", "/a/.git/hk");
}

TEST_WITH(a_directory_of_the_callers_that_is_closed_is_told, set_up, tear_down)
{
	bool cut;

	MAKE("a/closed");
	assert_false(is_cut());
	/* Root may enter what is closed. */
	assert_int_equal(chmod("a/closed", 0), 0);
	cut = is_cut();
	assert_int_equal(chmod("a/closed", 0700), 0);
	assert_int_equal(cut, geteuid() != 0);
}

TEST_WITH(what_a_closed_directory_hides_from_a_config_is_told, set_up, tear_down)
{
	bool cut;

	MAKE("a/.cfg");
	put("a/.cfg/inc", "");
	put("a/.git/config", "[include]\n\tpath = ../.cfg/inc\n");
	assert_false(is_cut());
	assert_int_equal(chmod("a/.cfg", 0400), 0);
	cut = is_cut();
	assert_int_equal(chmod("a/.cfg", 0700), 0);
	assert_int_equal(cut, geteuid() != 0);
}

TEST_WITH(a_git_directory_that_is_too_full_for_its_links_is_told_each_time, set_up,
	  tear_down)
{
	struct startup_files *s;

	MAKE("a/.git/logs", "a/.git/logs/z");
	assert_int_equal(symlink("config", "a/.git/info"), 0);
	make_many("a/.git/logs/z/", STARTUP_ENTRIES_MAX + 1);
	s = search(top, 1);
	assert_true(s->cut);
	usleep(20000);
	/* What the caller had stays, although it wasn't seen then. */
	assert_int_equal(rename("a/.git/logs/z", "a/z"), 0);
	assert_true(startup_report_new(s, true));
	startup_files_done(s);
	free(s);
}

TEST_WITH(more_git_directories_than_are_looked_into_are_told, set_up, tear_down)
{
	char name[64];

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "a/%d", i);
		assert_int_equal(mkdir(name, 0755), 0);
		snprintf(name, sizeof(name), "a/%d/commondir", i);
		put(name, "../.git\n");
		if (i == 50)
			assert_false(is_cut());
	}
	assert_true(is_cut());
}

TEST_WITH(files_that_have_other_names_are_counted, set_up, tear_down)
{
	struct startup_files *s;

	put("a/.git/hooks/pre-commit", "");
	put("a/.git/hooks/pre-push", "");
	assert_int_equal(link("a/.git/hooks/pre-commit", "a/script"), 0);
	s = search(top, 1);
	assert_int_equal(s->other_names, 1);
	assert_non_null(strstr(s->with_other_names, "/a/.git/hooks/pre-commit"));
	startup_files_done(s);
	free(s);
}

/* What the command did is told: what git would obey has been moved. */
static void assert_is_moved(struct startup_files *s, const char *name)
{
	char aside[PATH_MAX];

	assert_false(startup_report_new(s, true));
	snprintf(aside, sizeof(aside), "%s.weir", name);
	assert_int_not_equal(faccessat(AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(faccessat(AT_FDCWD, aside, F_OK, AT_SYMLINK_NOFOLLOW), 0);
}

TEST_WITH(links_in_a_git_directory_are_moved, set_up, tear_down)
{
	static const char *const made[] = { "a/.git/COMMIT_EDITMSG", "a/.git/logs/HEAD",
					    "a/.git/objects/info",
					    "a/.git/config.worktree",
					    "a/.git/refs/objects/ab/x" };
	struct startup_files *s;

	MAKE("a/.git/logs", "a/.git/refs/heads", "a/.git/refs/objects",
	     "a/.git/refs/objects/ab");
	assert_int_equal(symlink("/etc/gitignore", "a/.git/info"), 0);
	s = search(top, 1);
	/* The caller's own, from before, and such as git makes. */
	assert_int_equal(symlink("refs/heads/main", "a/.git/refs/heads/x"), 0);
	assert_true(startup_report_new(s, true));
	for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
		assert_int_equal(symlink("refs/../config", made[i]), 0);
		assert_is_moved(s, made[i]);
	}
	assert_int_equal(unlink("a/.git/info") | symlink("config", "a/.git/info"), 0);
	assert_is_moved(s, "a/.git/info");
	startup_files_done(s);
	free(s);
}

TEST_WITH(links_of_working_trees_in_a_git_directory_stay, set_up, tear_down)
{
	static const char *const b[] = { "b" };
	struct startup_files *s;

	MAKE("a/.git/tool", "a/.git/tool/tree");
	s = search(top, 1);
	assert_int_equal(symlink("x", "a/.git/tool/tree/x"), 0);
	assert_true(startup_report_new(s, true));
	startup_files_done(s);
	free(s);
	/* A bare one with its working trees in it. */
	MAKE("a/.git/main", "a/.git/main/.bin", "a/.git/logs");
	assert_int_equal(rename("a/.git", "b"), 0);
	s = search(b, 1);
	assert_int_equal(symlink("x", "b/main/.bin/x") | symlink("main", "b/now"), 0);
	assert_true(startup_report_new(s, true));
	assert_int_equal(symlink("../config", "b/logs/HEAD") |
				 symlink("config", "b/COMMIT_EDITMSG"),
			 0);
	assert_is_moved(s, "b/logs/HEAD");
	assert_int_not_equal(
		faccessat(AT_FDCWD, "b/COMMIT_EDITMSG", F_OK, AT_SYMLINK_NOFOLLOW), 0);
	assert_int_equal(faccessat(AT_FDCWD, "b/now", F_OK, AT_SYMLINK_NOFOLLOW), 0);
	startup_files_done(s);
	free(s);
}

TEST_WITH(links_that_were_left_before_are_moved, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/.git/objects/00", "a/.git/objects/00/x");
	assert_int_equal(symlink("../config", "a/.git/objects/00/x/HEAD"), 0);
	s = search(top, 1);
	assert_int_equal(rename("a/.git/objects/00/x", "a/.git/logs"), 0);
	assert_is_moved(s, "a/.git/logs/HEAD");
	startup_files_done(s);
	free(s);
}

TEST_WITH(links_in_a_directory_that_was_closed_are_moved, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/.git/logs");
	s = search(top, 1);
	assert_int_equal(symlink("../config", "a/.git/logs/HEAD"), 0);
	assert_int_equal(chmod("a/.git/logs", 0311), 0);
	assert_is_moved(s, "a/.git/logs/HEAD");
	startup_files_done(s);
	free(s);
}

/* How many words the report has, on stderr. */
static size_t count_reported(const struct startup_files *s)
{
	char text[8192];
	FILE *f = tmpfile();
	int kept = dup(STDERR_FILENO);
	size_t n, lines = 0;

	assert_non_null(f);
	fflush(stderr);
	dup2(fileno(f), STDERR_FILENO);
	startup_report_new(s, false);
	fflush(stderr);
	dup2(kept, STDERR_FILENO);
	close(kept);
	rewind(f);
	n = fread(text, 1, sizeof(text), f);
	fclose(f);
	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

TEST_WITH(a_link_that_is_moved_is_told_once, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/.git/modules", "a/.git/modules/m", "a/.git/modules/m/hooks");
	put("a/.git/modules/m/config", "");
	s = search(top, 1);
	assert_int_equal(symlink("config", "a/.git/config.worktree") |
				 symlink("config", "a/.git/modules/m/COMMIT_EDITMSG"),
			 0);
	assert_int_equal(count_reported(s), 2);
	startup_files_done(s);
	free(s);
}

TEST_WITH(hooks_that_many_repositories_have_are_looked_at_once, set_up, tear_down)
{
	char name[64], *kept = strdup(getenv("HOME") ?: "/"), *here;

	MAKE("home", "out");
	put("home/.gitconfig", "[core]\n\thooksPath = ~/../out\n");
	assert_int_equal(chdir("home"), 0);
	here = getcwd(NULL, 0);
	setenv("HOME", here, 1);
	assert_int_equal(chdir(".."), 0);
	for (int i = 0; i < 80; i++) {
		snprintf(name, sizeof(name), "a/%d", i);
		assert_int_equal(mkdir(name, 0755), 0);
		snprintf(name, sizeof(name), "a/%d/commondir", i);
		put(name, "");
	}
	assert_false(is_cut());
	/* An own config includes what a command can write. */
	put("home/.gitconfig", "[include]\n\tpath = ~/../a/inc\n");
	put("a/inc", "[include]\n\tpath = inc\n\tpath = inc\n\tpath = inc\n");
	assert_true(is_cut());
	setenv("HOME", kept, 1);
	free(kept);
	free(here);
}

TEST_WITH(a_rebase_that_would_run_programs_is_told, set_up, tear_down)
{
	struct startup_files *s;

	MAKE("a/.git/rm.bak", "a/.git/sequencer");
	put("a/.git/rm.bak/git-rebase-todo", "pick 1\nexec x\n");
	usleep(20000);
	s = search(top, 1);
	assert_int_equal(count_reported(s), 0);
	assert_int_equal(rename("a/.git/rm.bak", "a/.git/rebase-merge"), 0);
	assert_int_equal(count_reported(s), 1);
	put("a/.git/rebase-merge/strategy", "ort\n");
	put("a/.git/sequencer/opts", "[options]\n\tstrategy = ours\n");
	assert_int_equal(count_reported(s), 1);
	put("a/.git/rebase-merge/strategy", "x/e\n");
	put("a/.git/sequencer/opts", "[options]\n\tstrategy = x/e\n");
	assert_int_equal(count_reported(s), 3);
	startup_files_done(s);
	free(s);
}

TEST_WITH(what_lists_remotes_is_held_when_it_has_some, set_up, tear_down)
{
	struct startup_files *s;

	assert_int_equal(mkdir("a/.git/branches", 0755) | mkdir("a/.git/remotes", 0755),
			 0);
	put("a/.git/branches/origin", "https://git.test/\n");
	s = search(top, 1);
	assert_true(has(s, "/.git/branches"));
	assert_false(has(s, "/.git/remotes"));
	assert_true(startup_report_new(s, true));
	put("a/.git/remotes/origin", "URL: https://git.test/\n");
	assert_false(startup_report_new(s, true));
	assert_int_not_equal(access("a/.git/remotes", F_OK), 0);
	assert_int_equal(access("a/.git/remotes.weir/origin", F_OK), 0);
	startup_files_done(s);
	free(s);
}

/* In a child, whose stderr is closed to it, so that its first word is its end. */
static void report_to_nobody(const struct startup_files *s)
{
	int ends[2], status;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	pid = fork();
	if (pid == 0) {
		signal(SIGPIPE, SIG_DFL);
		shutdown(ends[0], SHUT_WR);
		dup2(ends[0], STDERR_FILENO);
		startup_report_new(s, true);
		_exit(0);
	}
	close(ends[0]);
	close(ends[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
}

TEST_WITH(what_git_would_obey_is_moved_before_a_word_is_said, set_up, tear_down)
{
	static const char *const made[] = { "a/.git/commondir", "a/.git/config.worktree",
					    "a/.git/lazygit.yml" };
	struct startup_files *s = search(top, 1);

	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		close(open(made[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	report_to_nobody(s);
	for (size_t i = 0; i < ARRAY_SIZE(made); i++)
		assert_int_not_equal(access(made[i], F_OK), 0);
	assert_int_equal(access("a/.git/commondir.weir", F_OK), 0);
	startup_files_done(s);
	free(s);
}
