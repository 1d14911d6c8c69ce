// SPDX-License-Identifier: Apache-2.0
/* run/asking - --ask tty: what the policy leaves to ask is asked on the caller's
 * terminal, one question at a time, in the order in which it came. */
#pragma once

#include "run/live.h"
#include "run/terminal.h"

enum {
	ASKING_MAX = 64, /* that wait; one more waits for its next try */
};

struct asking {
	struct terminal terminal;
	struct live *live; /* borrowed; NULL: nobody is asked */
	struct asking_item {
		int64_t task, at_ms;
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
/* @t, which may be NULL, is asked for, by @command, if that is known. */
void asking_note(struct asking *a, const struct review *t, const char *command);
/* At the end of a turn: put the next question; take back what was decided elsewhere. */
void asking_turn(struct asking *a);
void asking_close(struct asking *a);
