// SPDX-License-Identifier: Apache-2.0
#include "launch/git_repository.h"

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
