// SPDX-License-Identifier: Apache-2.0
/* run/asking - --ask tty: what the policy leaves to ask is asked on the caller's
 * terminal, one question at a time, in the order in which it came: one question and the
 * keys that answer it, a terminal of the command's own so that Weir can ask on the
 * caller's, and who waits.
 *
 * THE QUESTION
 * What is typed may not be an answer: somebody was typing something else when the
 * question came, and a program in the sandbox can have the terminal itself send bytes, by
 * asking it where its cursor is or what its title is. So
 *   - nothing counts until no byte has come for PROMPT_QUIET_MS, at first and after each
 *     line that was no answer;
 *   - sequences that begin with ESC are passed over whole, strings in them too: that is
 *     how terminals answer;
 *   - an answer is a line of one letter. Any other line is none, and is asked for again.
 * Ctrl-C and Ctrl-D deny: all that wait, and what is asked for. Time is an argument.
 *
 * THE TERMINAL
 * Where command and caller share a terminal, the command can read what is typed, and what
 * it prints can't be told from what Weir prints. So with --ask tty the command gets a new
 * one (a pty), as its controlling terminal, in a session of its own; it has no way to the
 * caller's. This process carries the bytes between the two, the caller's in raw mode.
 * While a question stands on the screen nothing is carried: what the command prints
 * waits in the pty, which the kernel bounds, and what is typed goes to the prompt alone.
 * So the command can print something that looks like a question, but what is answered
 * to that goes to the command and grants nothing; and it can neither write over a
 * question nor answer one.
 *
 * Ctrl-C and Ctrl-Z are bytes for the command's terminal; the kernel sends the signals
 * there. Ctrl-C reaches it while a question stands, too: who presses it wants the command
 * to stop. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "base/err.h"
#include "run/live.h"
#include "sys/loop.h"

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
	SEQUENCE_CONTROL,     /* ESC [ */
	SEQUENCE_PARAMETERS,  /* ESC [ … */
	SEQUENCE_MORE,	      /* ESC O, ESC N, ESC (, ESC [ M … */
	SEQUENCE_STRING,      /* ESC ], ESC P, ESC X, ESC ^, ESC _ … */
	SEQUENCE_STRING_ENDS, /* … ESC */
};

struct prompt {
	int64_t quiet_at_ms; /* answers count from then on */
	enum prompt_sequence sequence;
	uint8_t more;	/* characters in SEQUENCE_MORE */
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

enum {
	TERMINAL_OUT_SIZE = 16384, /* from the command; no more is read until it went */
	TERMINAL_IN_SIZE = 4096,   /* the same of what is typed */
	TERMINAL_OWN_SIZE = 4096,  /* of TERMINAL_OUT_SIZE, kept for what Weir writes */
};

struct terminal_buffer {
	uint8_t *bytes; /* owned */
	size_t used;
};

struct terminal {
	int tty; /* the caller's, opened anew; -1: there is none, or it is gone */
	int master, slave;     /* the command's; -1 */
	struct termios before; /* of the caller's */
	bool is_raw;
	struct loop *loop; /* NULL: nothing is carried yet */
	struct loop_source from_tty, from_master;
	struct terminal_buffer out, in;
	bool asks; /* a question stands there */
	struct prompt prompt;
	struct prompt_question question;
};

/* The caller's has another size: the question is put anew. */
void terminal_resize(struct terminal *t);
/* Around what Weir prints by itself, and around a stop. */
void terminal_pause(struct terminal *t);
void terminal_resume(struct terminal *t);

enum {
	ASKING_MAX = 64, /* that wait; one more waits for its next try */
};

struct asking {
	struct terminal terminal;
	struct live *live; /* borrowed; NULL: nobody is asked */
	struct asking_item {
		int64_t task, at_ms; /* when it was asked for last */
		char command[PROMPT_COMMAND_SIZE];
	} items[ASKING_MAX]; /* the first one is asked, while the terminal asks */
	size_t count;
	struct loop_timer patience;
	int64_t timeout_ms;
};

/* Where --ask tty isn't given, after this, all others do nothing. */
void asking_init(struct asking *a);
/* Return: 0, or -errno with @err: there is nobody to ask. */
int asking_open(struct asking *a, struct err *err) MUST_CHECK;
/* The command runs. */
int asking_serve(struct asking *a, struct live *live, struct loop *loop,
		 int64_t timeout_ms) MUST_CHECK;
/* Is @task asked for on the terminal, or will it be? */
bool asking_has(const struct asking *a, int64_t task);
/* @t, which may be NULL, is asked for, by @command, if that is known. It may be asked for
 * already: then it is for as long as what has come now waits. */
void asking_note(struct asking *a, const struct review *t, const char *command);
/* At the end of a turn: put the next question; take back what was decided elsewhere. */
void asking_turn(struct asking *a);
void asking_close(struct asking *a);
