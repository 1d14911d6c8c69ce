// SPDX-License-Identifier: Apache-2.0
/* container/guard - the container that has the network namespace which the app's
 * container joins, guarded before the app is made.
 *
 * A sidecar guards it from inside. Where the daemon guards it from outside, the container
 * only holds it, without a capability: the app's first process may not run before the
 * filter stands, and a container has no namespace before its first process runs. */
#pragma once

#include "container/docker.h"

enum { GUARD_RANDOM_SIZE = 43 }; /* 168 bits, as text */

struct guard {
	const struct docker *engine;
	const struct container_spec *spec;
	const char *name;  /* of the container */
	const char *nonce; /* of the label weir.run of both containers */
	const char *id;	   /* of the container */
	bool is_daemon;
	const char *daemon_socket; /* of a daemon; NULL: where it always is */
	uint16_t port;		   /* of 127.0.0.1: a sidecar's API */
	char pid[12];		   /* of its first process, as the engine says */
	char token[GUARD_RANDOM_SIZE];
	/* To its standard streams. The container ends when this does, and the other way
	 * round: podman tells of an end late, or where its clean-up fails. */
	int control;
	int signal; /* that came before it was ready; 0: none */
	struct arena *arena;
};

/* Start it, with @policy in force. @signals: a signalfd, for what ends the start.
 * Return: 0; -EINVAL: bad input; -ECANCELED: @signals; -errno with @err. */
int guard_start(struct guard *g, const char *policy, int signals,
		struct err *err) MUST_CHECK;
/* Read what it says; the engine keeps that. Return: it has ended. */
bool guard_has_ended(struct guard *g);
/* A number that nobody guesses, in hexadecimal digits. Return: 0 or -errno with @err. */
int guard_random(char ret[GUARD_RANDOM_SIZE], struct err *err) MUST_CHECK;
/* Labels of every container that is made here. */
json_t *guard_labels(const struct guard *g, const char *role);
void guard_done(struct guard *g);
