// SPDX-License-Identifier: Apache-2.0
#include "launch/git_repository.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "unit.h"

static bool has_secret(const char *text, size_t size)
{
	char name[] = "/tmp/weir-config-XXXXXX";
	int fd = mkstemp(name);
	bool found;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, size), size);
	close(fd);
	found = git_config_has_secret(name);
	unlink(name);
	return found;
}

TEST(a_config_with_a_token_or_a_password_is_known)
{
	static const struct {
		const char *what, *text;
		bool expected;
	} cases[] = {
		{ "nothing", "", false },
		{ "no URL", "[core]\n\tbare = false\n", false },
		{ "a URL", "[remote \"o\"]\n\turl = https://github.com/a/b.git\n",
		  false },
		{ "a user", "\turl = https://alice@bitbucket.org/a/b.git\n", false },
		{ "a user of ssh", "\turl = ssh://git@github.com:22/a/b\n", false },
		{ "a port", "\turl = https://git.example:8443/a@b\n", false },
		{ "no password", "\turl = https://alice:@git.example/a\n", false },
		{ "a password", "\turl = https://gitlab-ci-token:abc@gitlab.com/a.git\n",
		  true },
		{ "the second URL", "url = a://b\nurl = \"https://u:p@c\"\n", true },
		{ "a header", "\textraheader = AUTHORIZATION: basic eDp5\n", true },
		{ "another case", "\tExtraHeader = AUTHORIZATION: basic eDp5\n", true },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (has_secret(cases[i].text, strlen(cases[i].text)) != cases[i].expected)
			fail_msg("%s", cases[i].what);
	assert_true(has_secret("\0extraheader", sizeof("\0extraheader")));
	assert_false(git_config_has_secret("/nowhere/config"));
	assert_false(git_config_has_secret("/dev/zero"));
}

struct seen {
	char text[512];
	size_t size;
};

static void see(void *data, struct text section, struct text key, const char *value)
{
	struct seen *s = data;

	s->size += (size_t)snprintf(s->text + s->size, sizeof(s->text) - s->size,
				    "%.*s.%.*s=%s|", (int)section.len, section.ptr,
				    (int)key.len, key.ptr, value);
}

/* What is expected is what `git config --list` makes of it. */
TEST(a_config_is_read_as_git_reads_it)
{
	static const struct {
		const char *text, *expected;
		int r;
	} cases[] = {
		{ "", "", 0 },
		{ "[core]\n\thooksPath = a/b\n", "core.hooksPath=a/b|", 0 },
		{ "[core] hooksPath=a b  \n", "core.hooksPath=a b|", 0 },
		{ "\xef\xbb\xbf[CORE]\r\nHOOKSPATH = a\r\n", "CORE.HOOKSPATH=a|", 0 },
		{ "[include]path=x # c\n;c\n#c\npath = y;c",
		  "include.path=x|include.path=y|", 0 },
		{ "[includeIf \"gitdir:a]\\\"b\"] path = x", "includeIf.path=x|", 0 },
		{ "[core.sub]\na = 1\n[core \"]\"]\nb = 2\n", "core.a=1|core.b=2|", 0 },
		{ "[a]\nb\nc = \n", "a.c=|", 0 },
		{ "[a]\nb = \" x # \" y \" \" \n", "a.b= x #  y  |", 0 },
		{ "[a]\nb = x\\\n  y\\ttab\\\\\\\"\n", "a.b=x  y\ttab\\\"|", 0 },
		{ "[a]\nb = \"x\\\r\ny\"\n", "a.b=xy|", 0 },
		{ "[a]\nb = x\\t \n", "a.b=x\t|", 0 },
		{ "[a]\nb = \\\n \r c\n", "a.b=c|", 0 },
		{ "[a]\nb = 1\nc = \"open\nd = 2\n", "a.b=1|", -EINVAL },
		{ "[a]\nb = \\x\n", "", -EINVAL },
		{ "[a]\nb = x\\", "", -EINVAL },
		{ "[a\nb = 1\n", "", -EINVAL },
		{ "[a]\n= 1\n", "", -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char name[] = "/tmp/weir-config-XXXXXX";
		struct seen seen = { 0 };
		const size_t size = strlen(cases[i].text);
		int fd = mkstemp(name);

		assert_true(fd >= 0);
		assert_int_equal(write(fd, cases[i].text, size), size);
		close(fd);
		assert_int_equal(git_config_read(name, see, &seen), cases[i].r);
		assert_string_equal(seen.text, cases[i].expected);
		unlink(name);
	}
	assert_int_equal(git_config_read("/nowhere/config", see, NULL), -ENOENT);
}
