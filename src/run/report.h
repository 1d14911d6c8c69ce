// SPDX-License-Identifier: Apache-2.0
/* run/report - at the end of a run: what was refused and what would allow it, for a
 * person on stderr, and for programs as a file. */
#pragma once

#include <stdio.h>

#include "event/event.h"
#include "policy/policy.h"
#include "run/options.h"

/* What a run leaves. Everything is borrowed. */
struct report {
	const struct run_spec *spec;
	const struct policy *policy;
	const struct plan *plan; /* bytes NULL: it did not get so far */
	const struct event_ring *ring;
	const uint64_t *counters;     /* SANDBOX_COUNTER_COUNT of them */
	int64_t started_ms, ended_ms; /* wall clock */
	int exit_status;	      /* what weir exits with */
	int signal;		      /* that killed the command, or 0 */
	bool stopped;		      /* by the policy's on_denies */
	bool failed;		      /* Weir could not do what was asked */
};

/* Before the command starts: open the file that --report names, so that nothing that the
 * sandbox does to the path matters. Markdown is appended, as a CI job's summary wants it;
 * JSON replaces what is there. Return: 0 with spec->report_fd, or -errno with @err. */
int report_open(struct run_spec *spec, struct err *err) MUST_CHECK;
/* The run is over: say it on stderr unless spec->quiet is set or @failure says that Weir
 * failed, and write it to spec->report_fd, which is closed. @r has all but what follows
 * from @failure, 0 or the exit status of that, and @wait_status of the command.
 * Return: the exit status. */
int report_end(struct report *r, int failure, int wait_status);
