// SPDX-License-Identifier: Apache-2.0
/* What answers a question on a terminal, and what does not. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "run/prompt.h"

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
		{ "\003", PROMPT_NO },
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
		"\033a",	/* Alt and a letter */
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
	assert_int_equal(answer("\033]la\003", QUIET_MS), PROMPT_NO);
	assert_int_equal(answer("\033]la\030s\r", QUIET_MS), PROMPT_SESSION);
}

TEST(a_question_is_one_line_of_ascii)
{
	static const struct {
		struct prompt_question q;
		const char *begin;
	} rows[] = {
		{ { "api.foo.dev", 443, "pip", "", 0 },
		  "api.foo.dev:443 wanted by pip. [o]nce, [1]0 minutes, [s]ession, "
		  "[a]lways, [n]o: " },
		{ { "githud.com", 0, "", "github.com", 0 },
		  "githud.com wanted, looks like github.com (allowed). [o]nce" },
		{ { "2001:db8::1", 22, "git", "", 3 },
		  "[2001:db8::1]:22 wanted by git. (3 more wait) [o]nce" },
		{ { "a\033[2Jb", 1, "\r\nx\233", "", 0 },
		  "a\\x1b[2Jb:1 wanted by \\x0d\\x0ax\\x9b. [o]nce" },
	};
	char buf[PROMPT_TEXT_SIZE], hostile[2000];
	struct prompt_question q = { hostile, 65535, hostile, hostile, 64 };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		prompt_text(&rows[i].q, buf);
		assert_memory_equal(buf, rows[i].begin, strlen(rows[i].begin));
	}
	for (int c = 1; c < 256; c++) {
		memset(hostile, c, sizeof(hostile) - 1);
		hostile[sizeof(hostile) - 1] = '\0';
		prompt_text(&q, buf);
		for (size_t i = 0; buf[i]; i++)
			assert_in_range(buf[i], ' ', '~');
		assert_non_null(strstr(buf, "[n]o: "));
	}
}
