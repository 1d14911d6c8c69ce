// SPDX-License-Identifier: Apache-2.0
/* run/control_socket - the socket by which a run is asked and gets another policy, by the
 * verbs that ask the daemon, in the same words (api/plain.h).
 *
 * Who may ask: processes of the caller's user that are in the run's own user namespace,
 * and that no more seccomp filters hold than the caller. No command in a sandbox is:
 * neither that of this run nor that of another one, nor one that the daemon guards on the
 * host. */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "proto/run_socket.h"

struct control_socket {
	char path[RUN_SOCKET_PATH_SIZE]; /* "": there is none */
	char id[64];
	uint32_t filters; /* of seccomp, that hold the run itself */
	int fd;		  /* it listens; owned until whoever serves it has it; -1 */
};

/* Make it, in the first place that is fit; the id @id, NULL: run-PID. -EADDRINUSE: a run
 * of that id is under way; else, with @err: there is no place where it would be safe. */
int control_socket_open(struct control_socket *s, const char *id,
			struct err *err) MUST_CHECK;
/* May the process ask whose connection @fd is? */
bool control_socket_admits(const struct control_socket *s, int fd);
void control_socket_close(struct control_socket *s);
