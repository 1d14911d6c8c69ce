// SPDX-License-Identifier: Apache-2.0
/* run/host_attach - a `weir run` on the host as the daemon sees it: attached before the
 * command starts, asked at the end what was denied, and detached. */
#pragma once

#include "event/event.h"
#include "run/policies.h"

enum { RUN_DAEMON_ID_SIZE = 64 };

struct run_daemon {
	const char *socket;	     /* NULL: as client_ask() has it */
	char id[RUN_DAEMON_ID_SIZE]; /* "": nothing is attached */
};

/* What is guarded: @cgroup, a directory, or, where that is NULL, @uid; as @id, NULL: by
 * one of its own. On success the daemon has read its filter back and tested it. */
int run_daemon_attach(struct run_daemon *d, const char *id, const char *cgroup,
		      uint32_t uid, const struct run_policy *p,
		      struct err *err) MUST_CHECK;
/* What was denied so far, into @ring, with the rules of @plan, and the counters. */
int run_daemon_read(const struct run_daemon *d, const struct plan *plan,
		    struct event_ring *ring, uint64_t *ret_counters,
		    struct err *err) MUST_CHECK;
/* The newest of what was denied, into @ring. Who can't be asked has denied nothing. */
void run_daemon_look(const struct run_daemon *d, const struct plan *plan,
		     struct event_ring *ring);
/* The daemon has closed it: too much was denied. Who can't be asked hasn't said so. */
bool run_daemon_is_closed(const struct run_daemon *d);
/* All that was counted is in @ring: the engine folds what is equal for a second. */
bool run_daemon_is_settled(const struct event_ring *ring, const uint64_t *counters);
int run_daemon_detach(struct run_daemon *d, struct err *err) MUST_CHECK;
