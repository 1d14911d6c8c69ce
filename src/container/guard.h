// SPDX-License-Identifier: Apache-2.0
/* container/guard - the container that has the network namespace which the app's
 * container joins, guarded before the app is made.
 *
 * A sidecar guards it from inside. Where the daemon guards it from outside, the container
 * only holds it, without a capability: the app's first process may not run before the
 * filter stands, and a container has no namespace before its first process runs. */
#pragma once

#include "container/docker.h"

enum { GUARD_TOKEN_SIZE = 43 };

struct guard {
	const struct docker *engine;
	const struct container_spec *spec;
	const char *name; /* of the container */
	const char *id;	  /* of the container */
	bool is_daemon;
	const char *daemon_socket; /* of a daemon; NULL: where it always is */
	uint16_t port;		   /* of 127.0.0.1: a sidecar's API */
	char token[GUARD_TOKEN_SIZE];
	struct docker_wait end; /* of the container */
	struct arena *arena;
};

/* Start it, with @policy in force. @signals: readable when all of this is to end.
 * Return: 0; -EINVAL: bad input; -ECANCELED: @signals; -errno with @err. */
int guard_start(struct guard *g, const char *policy, int signals,
		struct err *err) MUST_CHECK;
/* Labels of every container that is made here. */
json_t *guard_labels(const struct guard *g, const char *role);
void guard_done(struct guard *g);
