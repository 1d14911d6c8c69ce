// SPDX-License-Identifier: Apache-2.0
/* run/terminal - a terminal of the command's own, so that Weir can ask on the caller's.
 *
 * HOW IT WORKS
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

#include <termios.h>

#include "base/err.h"
#include "run/prompt.h"
#include "sys/loop.h"

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
	/* Of a question that terminal_ask() put; no other one stands there by then. A
	 * terminal that is gone answers PROMPT_NO. */
	void (*on_answer)(struct terminal *t, enum prompt_answer answer);
};

/* No terminal; before anything else. */
void terminal_init(struct terminal *t);
/* Open the caller's and make the command's, with its modes and size. Return: 0; -ENXIO:
 * the caller has none; -EIO: Weir is not in its foreground; or another -errno. */
int terminal_open(struct terminal *t, struct err *err) MUST_CHECK;
/* Carry the bytes from now on. */
int terminal_serve(struct terminal *t, struct loop *loop) MUST_CHECK;
/* Put a question. Nothing may stand there. */
void terminal_ask(struct terminal *t, const struct prompt_question *q);
/* A line of Weir's own, printable ASCII; no question stands there. */
void terminal_say(struct terminal *t, const char *text);
/* The question is over without an answer: say @why. */
void terminal_take_back(struct terminal *t, const char *why);
/* The caller's has another size: the question is put anew. */
void terminal_resize(struct terminal *t);
/* Around what Weir prints by itself, and around a stop. */
void terminal_pause(struct terminal *t);
void terminal_resume(struct terminal *t);
/* What the command has printed is shown; the caller's terminal is as it was. */
void terminal_close(struct terminal *t);
