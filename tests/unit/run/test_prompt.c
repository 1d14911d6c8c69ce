// SPDX-License-Identifier: Apache-2.0
/* What answers a question on a terminal, and what does not. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "run/asking.h"

enum { BEGUN_MS = 1000, QUIET_MS = BEGUN_MS + PROMPT_QUIET_MS };

/* The first answer that @keys give, all typed at @at_ms. */
static enum prompt_answer answer(const char *keys, int64_t at_ms)
{
	enum prompt_answer a = PROMPT_WAITS;
	struct prompt p;

	prompt_begin(&p, BEGUN_MS);
	for (size_t i = 0; keys[i] && a == PROMPT_WAITS; i++)
		a = prompt_take(&p, (uint8_t)keys[i], at_ms);
	return a;
}

TEST(a_line_of_one_letter_answers)
{
	static const struct {
		const char *keys;
		enum prompt_answer answer;
	} rows[] = {
		{ "o\r", PROMPT_ONCE },
		{ "1\r", PROMPT_TEN_MINUTES },
		{ "s\n", PROMPT_SESSION },
		{ "A\r", PROMPT_ALWAYS },
		{ "n\r", PROMPT_NO },
		{ "N\r", PROMPT_NONE },
		{ "\003", PROMPT_NONE },
		{ "\004", PROMPT_NO },
		{ "ls\177a\r", PROMPT_ALWAYS }, /* taken back, then an answer */
		{ "a", PROMPT_WAITS },
		{ "a ", PROMPT_WAITS },
		{ "\r", PROMPT_NOT_AN_ANSWER },
		{ "y\r", PROMPT_NOT_AN_ANSWER },
		{ " a\r", PROMPT_NOT_AN_ANSWER },
		{ "aa\r", PROMPT_NOT_AN_ANSWER },
		{ "apt install x\r", PROMPT_NOT_AN_ANSWER },
		{ "\303\244\r", PROMPT_NOT_AN_ANSWER },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (answer(rows[i].keys, QUIET_MS) != rows[i].answer)
			fail_msg("row %zu: %d", i, answer(rows[i].keys, QUIET_MS));
}

TEST(what_was_being_typed_is_no_answer)
{
	struct prompt p;
	int64_t now_ms = BEGUN_MS;

	assert_int_equal(answer("a\r", QUIET_MS - 1), PROMPT_WAITS);
	/* Somebody who types on: each key begins the time anew. */
	prompt_begin(&p, BEGUN_MS);
	for (int i = 0; i < 100; i++, now_ms += PROMPT_QUIET_MS - 1)
		assert_int_equal(prompt_take(&p, "sao1\r"[i % 5], now_ms), PROMPT_WAITS);
	now_ms += 1;
	assert_int_equal(prompt_take(&p, 'o', now_ms), PROMPT_WAITS);
	assert_int_equal(prompt_take(&p, '\r', now_ms), PROMPT_ONCE);
}

/* Each line of a text that is pasted would else be asked for until one is an answer. */
TEST(behind_a_line_that_is_no_answer_keys_count_after_a_while)
{
	static const char text[] = "cd\ra\rs\ro\r";
	struct prompt p;
	int64_t now_ms = QUIET_MS;

	prompt_begin(&p, BEGUN_MS);
	for (size_t i = 0; text[i]; i++)
		assert_int_equal(prompt_take(&p, (uint8_t)text[i], now_ms + (int64_t)i),
				 i == 2 ? PROMPT_NOT_AN_ANSWER : PROMPT_WAITS);
	now_ms += (int64_t)strlen(text) - 1 + PROMPT_QUIET_MS;
	assert_int_equal(prompt_take(&p, 's', now_ms), PROMPT_WAITS);
	assert_int_equal(prompt_take(&p, '\r', now_ms), PROMPT_SESSION);
}

/* A program can have a terminal say these, with texts of its choice in some. */
TEST(a_terminals_own_answers_are_none)
{
	static const char *const replies[] = {
		"\033[12;40R",		 /* where the cursor is */
		"\033[?62;1;2c",	 /* what it is */
		"\033]la\r\033\\",	 /* its title */
		"\033]Lo\ns\na\r\033\\", /* its icon's name */
		"\033]52;c;YQ0=\007",	 /* the clipboard */
		"\033P1$ra\r\033\\",	 /* a setting */
		"\033]11;rgb:aaaa/aaaa/aaaa\033\\",
		"\033_Ga\r\033\\",
		"\033^a\r\033\\",
		"\033OA", /* a key */
		"\033[1;5A",
		"\033[I",	/* it has the focus */
		"\033[<0;1;1M", /* the mouse */
		"\033[Maaa",	/* its older forms */
		"\033[M \302\240a",
		"\033[taa",
		"\033[Taaaaaa",
		"\033[8;24;80t", /* the window's size */
		"\033[[A",	 /* a key of Linux' console */
		"\033O\033[A",
		"\033a", /* Alt and a letter */
		"\033(a",
		"\033\033[A",
	};

	for (size_t i = 0; i < ARRAY_SIZE(replies); i++) {
		char keys[128];

		if (answer(replies[i], QUIET_MS) != PROMPT_WAITS)
			fail_msg("reply %zu answers", i);
		/* and somebody answers behind it */
		snprintf(keys, sizeof(keys), "%ss\r", replies[i]);
		if (answer(keys, QUIET_MS) != PROMPT_SESSION)
			fail_msg("no answer behind reply %zu", i);
	}
	assert_int_equal(answer("PuTTY", QUIET_MS), PROMPT_WAITS);
	assert_int_equal(answer("PuTTYa\r", QUIET_MS), PROMPT_NOT_AN_ANSWER);
	/* One that never ends can be left. */
	assert_int_equal(answer("\033]la\003", QUIET_MS), PROMPT_NONE);
	assert_int_equal(answer("\033]la\030s\r", QUIET_MS), PROMPT_SESSION);
}

#define CHOICES " [o]nce, [1]0 minutes, [s]ession, [a]lways, [n]o, [N]o to all: "

TEST(a_question_is_one_line_of_ascii)
{
	static const struct {
		struct prompt_question q;
		const char *text;
	} rows[] = {
		{ { "api.foo.dev", 443, "pip", "", 0 },
		  "api.foo.dev:443 wanted by pip." CHOICES },
		{ { "githud.com", 0, "", "github.com", 0 },
		  "githud.com wanted, looks like github.com (allowed)." CHOICES },
		{ { "2001:db8::1", 22, "git", "", 3 },
		  "[2001:db8::1]:22 wanted by git. (3 more wait)" CHOICES },
		{ { "ntp.test", 123, "chrony", "", 0, true },
		  "ntp.test:udp/123 wanted by chrony." CHOICES },
		{ { "a\033[2Jb", 1, "\r\nx\233", "", 0 },
		  "a\\x1b[2Jb:1 wanted by \\x0d\\x0ax\\x9b." CHOICES },
	};
	char buf[PROMPT_TEXT_SIZE];
	struct prompt_question q = { .port = 65535, .more = 64, .is_udp = true };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(prompt_text(&rows[i].q, 80, buf), rows[i].text);
	for (int c = 1; c < 256; c++) {
		memset(q.what, c, sizeof(q.what) - 1);
		memset(q.like, c, sizeof(q.like) - 1);
		memset(q.command, c, sizeof(q.command) - 1);
		prompt_text(&q, c, buf);
		for (size_t i = 0; buf[i]; i++)
			assert_in_range(buf[i], ' ', '~');
		assert_non_null(strstr(buf, CHOICES));
	}
}

/* Who can have the name, and the port, are seen however long it is. */
TEST(a_long_name_is_cut_in_front_of_who_has_it)
{
	static const struct {
		const char *what, *like;
		unsigned int columns;
		const char *begin;
	} rows[] = {
		{ "api.example.co.uk", "", 27, "api.example.co.uk:443 wanted" },
		{ "api.example.co.uk", "", 26, "...example.co.uk:443 wanted" },
		{ "bbb.api.example.com", "", 28, "...api.example.com:443 wanted" },
		{ "api.example.co.uk", "", 20, "...example.co.uk:443 wanted" },
		{ "github.com.evil.dev", "", 20, "...evil.dev:443 wanted" },
		{ "x.evil.github.io", "", 20, "...evil.github.io:443 wanted" },
		{ "example.co.uk", "", 1, "example.co.uk:443 wanted" },
		{ "2001:db8:1111:2222:3333:4444:5555:6666", "", 20,
		  "[2001:db8:1111:2222:3333:4444:5555:6666]:443 wanted" },
		{ "198.51.100.200", "", 20, "198.51.100.200:443 wanted" },
		{ "a.b.githud.com", "c.d.github.com", 20,
		  "...githud.com:443 wanted, looks like ...github.com (allowed)." },
	};
	char buf[PROMPT_TEXT_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct prompt_question q = { .port = 443 };

		snprintf(q.what, sizeof(q.what), "%s", rows[i].what);
		snprintf(q.like, sizeof(q.like), "%s", rows[i].like);
		prompt_text(&q, rows[i].columns, buf);
		if (strncmp(buf, rows[i].begin, strlen(rows[i].begin)) != 0)
			fail_msg("row %zu: %s", i, buf);
	}
}

TEST(no_name_pushes_the_choices_out_of_sight)
{
	static const char end[] = ".evil.dev:65535 wanted by ";
	struct prompt_question q = { .port = 65535, .more = 64 };
	char buf[PROMPT_TEXT_SIZE];

	memset(q.what, 'a', sizeof(q.what) - 1);
	memset(q.command, 'c', sizeof(q.command) - 1);
	for (size_t i = 50; i < 200; i += 50)
		q.what[i] = '.';
	snprintf(q.what + 244, sizeof(q.what) - 244, ".evil.dev");
	memcpy(q.like, q.what, sizeof(q.like));
	for (unsigned int columns = 20; columns < 300; columns++) {
		prompt_text(&q, columns, buf);
		assert_in_range(strlen(buf), 100, 14 * columns);
		assert_non_null(strstr(buf, end + (columns < 50)));
		assert_non_null(strstr(buf, CHOICES));
	}
}
