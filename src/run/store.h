// SPDX-License-Identifier: Apache-2.0
/* run/store - the events of a run, kept in a store as a sidecar's are. Only when it
 * is asked for: a program of its own, weir-events, has SQLite and writes, so that no
 * other run waits for that library. */
#pragma once

#include <sys/types.h>

#include "policy/plan.h"
#include "proto/socket_owner.h"

struct run_store {
	pid_t pid; /* 0: nothing is kept */
	int fd;
	char sandbox[64]; /* how the run is named there */
	uint64_t lost;	  /* events that nobody took */
	/* To find out whose a denial was. */
	int diag; /* owned; 0: it can't be asked */
	pid_t in; /* a process of the sandbox's network namespace */
	struct socket_owner_pace pace;
};

/* In @directory, which is made; NULL: nothing. The run is called @id there, NULL:
 * run-PID. A link on the way that an earlier
 * command may have left is an error. Return: 0 or -errno: nothing would be kept. */
int run_store_open(struct run_store *s, const char *directory, const char *id,
		   struct err *err) MUST_CHECK;
/* Until the store has been opened: the command starts behind that. Return: 0, also where
 * nothing is kept; -errno: nothing would be. */
int run_store_wait(const struct run_store *s, struct err *err) MUST_CHECK;
/* @diag, owned from then on, knows the sockets in the namespace of process @in. */
void run_store_see(struct run_store *s, int diag, pid_t in);
/* Whose @e was, as far as that can be seen, into @e: takes SOCKET_OWNER_LOOK_MS at most,
 * and mostly nothing. */
void run_store_look(struct run_store *s, struct event *e);
void run_store_add(struct run_store *s, const struct event *e, const struct plan *plan);
/* Until everything is written, for at most three seconds; says what was lost. */
void run_store_close(struct run_store *s);
