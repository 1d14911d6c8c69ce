// SPDX-License-Identifier: Apache-2.0
/* container/watcher - what takes the containers away again, whatever ends the run.
 *
 * HOW IT WORKS
 * A child in a session of its own holds one end of a pipe and waits for the pipe's end.
 * That comes when watcher_finish() is called, and when `weir container run` is killed. So
 * the containers are removed in one place, and nothing but this child knows how. It takes
 * no signal but SIGKILL; one that was killed is replaced (watcher_replace()). Both
 * containers have a label, weir.run, whose value nobody else knows before they are made:
 * the child asks for containers with that label and removes those alone. So it has to be
 * told nothing more than whether a request that makes one may still be on its way. */
#pragma once

#include <sys/types.h>

#include "container/docker.h"

struct watcher {
	const struct docker *engine;
	const char *nonce; /* the label's value */
	const char *app;   /* the app's container by name, for messages */
	pid_t pid;	   /* 0: none */
	int pipe, process; /* the pipe's other end; a pidfd, readable at its end */
};

/* Return: 0 or -errno with @err. */
int watcher_start(struct watcher *w, struct err *err) MUST_CHECK;
/* Another one in the place of one that has ended. @settled: nothing is being made. */
int watcher_replace(struct watcher *w, bool settled, struct err *err) MUST_CHECK;
/* No request is on its way any more that makes a container. */
void watcher_settle(const struct watcher *w);
/* Have both containers removed, the app's first, and wait until they are gone. Return: 0,
 * or -errno when they are not; that was logged. */
int watcher_finish(struct watcher *w) MUST_CHECK;
