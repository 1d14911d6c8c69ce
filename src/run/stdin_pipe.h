// SPDX-License-Identifier: Apache-2.0
/* run/stdin_pipe - a pipe of the command's own in front of a pipe that is standard input.
 *
 * HOW IT WORKS
 * Who reads a pipe of the own user can open the pipe for writing as well, by
 * /proc/self/fd/0. Where the caller reads the same pipe, as a shell does that gets its
 * script there, the command could write lines that run outside of the sandbox.
 *
 * So the command gets another pipe. What waits in the caller's pipe is lent: tee() copies
 * it into the command's pipe and leaves it where it is. What the command has read is then
 * taken from the caller's pipe, and more is lent. What the command never reads stays for
 * whoever reads the caller's pipe next. The command's pipe holds one buffer, so that it
 * is writable again once all that was lent has been read. Where more wait, the command's
 * pipe holds as many, up to 64 KiB: it is writable again once the command has read the
 * first of them, and is looked at from then on until all have been read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "sys/loop.h"

struct stdin_pipe {
	struct loop *loop;
	struct loop_source from_caller; /* standard input */
	struct loop_source to_command;	/* owned; fd -1: the command has the caller's */
	struct loop_timer again;	/* some of what was lent has been read */
	int again_ms;			/* of that timer */
	int given;			/* owned: the command's end; -1: there is none */
	int nowhere;			/* owned: /dev/null, for what was read */
	size_t lent;			/* bytes that are in both pipes */
	int size;			/* bytes that the command's pipe holds */
};

void stdin_pipe_init(struct stdin_pipe *p);
/* Make the command's pipe where one is needed. @root: as in std_fds_protect(). Return: 0,
 * or -errno with @err. */
int stdin_pipe_open(struct stdin_pipe *p, bool root, struct err *err) MUST_CHECK;
/* Lend from now on. Return: 0 or -errno. */
int stdin_pipe_serve(struct stdin_pipe *p, struct loop *loop) MUST_CHECK;
/* When the command has ended: what it has read is taken. */
void stdin_pipe_close(struct stdin_pipe *p);
