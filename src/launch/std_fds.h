// SPDX-License-Identifier: Apache-2.0
/* launch/std_fds - are descriptors 0 to 2 harmless in a sandbox?
 *
 * They are the only ones that come in from outside, and each is a handle on the host:
 * whatever it can do, the command can, and through /proc/self/fd it can open
 * the same file again with other rights. */
#pragma once

#include <stdbool.h>
#include <sys/time.h>
#include <termios.h>

#include "base/err.h"

/* Only terminals, files, pipes, null devices and connected unix sockets are. A network
 * socket, or a unix socket that isn't connected, can be connected again, to anywhere
 * outside of the sandbox; a directory opens the host's file system; a namespace, another
 * device (memory, a TUN, a modem) has ways out of its own.
 * A unix socket takes no descriptors from then on, where the kernel knows how, also for
 * others who hold it; one in which descriptors wait is refused.
 * @control_fd: must not be one of the three.
 * Return: 0, or -EPERM with a line that names the descriptor. */
int std_fds_check(int control_fd, struct err *err) MUST_CHECK;

/* In the caller's user namespace: which of the three could the command open for writing,
 * by /proc/self/fd, or give itself the right to? Bit N stands for descriptor N. @root:
 * the command gets a kernel uid that owns nothing. */
unsigned int std_fds_changeable(bool root);
/* Is standard input a pipe that the command could open for writing? */
bool std_fds_has_changeable_pipe(bool root);

/* In the child, first: the terminal @slave, which nobody has yet, becomes the controlling
 * one of a new session, and takes the place of each of the three that is a terminal.
 * Return: 0, or -errno with @err: nothing may start. */
int std_fds_enter_terminal(int slave, struct err *err) MUST_CHECK;

/* In the child, in a mount namespace of its own: replace a file that was opened for
 * reading by the same file on a read-only mount, or by a copy where it has no name. It
 * keeps its place, but no longer shares it with the caller: a shell that reads its script
 * there would go on where the command says. A file that can't be opened again stays, if
 * the command can't change it. Output, be it at the end only, may be written anywhere.
 * @changeable: as std_fds_changeable() has it.
 * Return: 0, or -errno with a line that names the descriptor: nothing may start. */
int std_fds_protect(unsigned int changeable, struct err *err) MUST_CHECK;

/* What belongs to the open files of descriptors 0 to 2, which the command shares. Flags
 * such as O_NONBLOCK and a socket's limit of time would keep Weir's report from being
 * written, and stay with the caller. */
struct std_state {
	int flags[3];
	struct timeval send_timeout[3]; /* of a socket */
	cc_t stop[3];			/* the byte that stops a terminal */
};

void std_state_read(struct std_state *ret);
/* When the command has ended. A file in which the command has left its place behind the
 * end is written on at its end, and a terminal that was stopped goes on. From then on no
 * key stops Weir, nor does writing to a terminal whose foreground Weir doesn't have, and
 * no file's length ends it. */
void std_state_restore(const struct std_state *s);
