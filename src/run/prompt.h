// SPDX-License-Identifier: Apache-2.0
/* run/prompt - one question on a terminal, and the keys that answer it.
 *
 * HOW IT WORKS
 * What is typed may not be an answer: somebody was typing something else when the
 * question came, and a program in the sandbox can have the terminal itself send bytes, by
 * asking it where its cursor is or what its title is. So
 *   - nothing counts until no byte has come for PROMPT_QUIET_MS;
 *   - sequences that begin with ESC are passed over whole, strings in them too: that is
 *     how terminals answer;
 *   - an answer is a line of one letter. Any other line is none, and is asked for again.
 * Ctrl-C and Ctrl-D deny: all that wait, and what is asked for. Time is an argument. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	PROMPT_QUIET_MS = 700,
	PROMPT_NAME_SIZE = 256,
	PROMPT_COMMAND_SIZE = 64,
	PROMPT_TEXT_SIZE = 1024,
	PROMPT_CTRL_C = 0x03,
};

enum prompt_answer {
	PROMPT_WAITS = 0,
	PROMPT_NOT_AN_ANSWER, /* a line that is none: ask again */
	PROMPT_NO,
	PROMPT_NONE, /* no, and no to all that wait behind it */
	PROMPT_ONCE,
	PROMPT_TEN_MINUTES,
	PROMPT_SESSION,
	PROMPT_ALWAYS,
	PROMPT_ANSWER_COUNT
};

/* Where in a sequence of a terminal's the last byte stood. */
enum prompt_sequence {
	SEQUENCE_NONE = 0,
	SEQUENCE_BEGUN,	      /* ESC */
	SEQUENCE_CONTROL,     /* ESC [ … */
	SEQUENCE_ONE_MORE,    /* ESC O, ESC N, ESC ( … */
	SEQUENCE_STRING,      /* ESC ], ESC P, ESC X, ESC ^, ESC _ … */
	SEQUENCE_STRING_ENDS, /* … ESC */
};

struct prompt {
	int64_t quiet_at_ms; /* answers count from then on */
	enum prompt_sequence sequence;
	uint8_t letter; /* of the line; 0: it has none */
	bool is_line;	/* the line has more than a letter */
};

/* A question was put. */
void prompt_begin(struct prompt *p, int64_t now_ms);
enum prompt_answer prompt_take(struct prompt *p, uint8_t byte, int64_t now_ms);

/* What is asked for. Texts may hold any byte. */
struct prompt_question {
	char what[PROMPT_NAME_SIZE];	   /* name or address */
	uint16_t port;			   /* 0: a name, on no port yet */
	char command[PROMPT_COMMAND_SIZE]; /* "": not known */
	char like[PROMPT_NAME_SIZE];	   /* an allowed name that it looks like; "" */
	size_t more;			   /* that wait behind it */
	bool is_udp;			   /* @port is UDP's, "udp/443"; else TCP's */
};

/* "api.foo.dev:443 wanted by pip. [o]nce, [1]0 minutes, ...: ", in printable ASCII alone,
 * for a terminal of @columns. A name that would not fit the first row, behind "weir: ",
 * loses labels in front ("..."), never what its owner registered, and never the port.
 * @buf holds PROMPT_TEXT_SIZE. Return: @buf. */
char *prompt_text(const struct prompt_question *q, unsigned int columns, char *buf);
