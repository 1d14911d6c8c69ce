// SPDX-License-Identifier: Apache-2.0
/* run/report - what becomes of the events of a run: what was refused, or failed, and what
 * would allow it: the first of it while the command runs, all of it at the end, for a
 * person on stderr, and for programs as a file (report_file.c: JSON, Markdown, GitHub's
 * workflow commands, SARIF, JUnit's XML).
 *
 * And, only when it is asked for, all events in a store, as a sidecar's are: a program of
 * its own, weir-events, has SQLite and writes, so that no other run waits for that
 * library. */
#pragma once

#include <stdio.h>
#include <sys/types.h>

#include "event/event.h"
#include "policy/plan.h"
#include "proto/socket_owner.h"
#include "run/options.h"
#include "run/policies.h"

/* What a run leaves. Everything is borrowed. */
struct report {
	const struct run_spec *spec;
	const struct run_policy *policy; /* the last one, with those before it */
	const struct event_ring *ring;
	const struct event_ring *failures; /* apart: they push no refusal out */
	/* What has passed and @policy would have refused, EVENT_ALLOW; NULL: no audit. */
	const struct event_ring *would;
	uint64_t would_lost;	  /* what else would have been refused: @would was full */
	const uint64_t *counters; /* SANDBOX_COUNTER_COUNT of them */
	int64_t started_ms, ended_ms; /* wall clock */
	const char *const *hidden;    /* paths; hidden_count of them */
	size_t hidden_count;
	const char *const *held; /* "NAME=value" that wasn't passed; held_count */
	size_t held_count;
	int exit_status; /* what weir exits with */
	int signal;	 /* that killed the command, or 0 */
	bool stopped;	 /* by the policy's on_denies */
	bool failed;	 /* Weir could not do what was asked */
};

typedef bool event_kind_fn(const struct event *e);
size_t report_count(const struct event_ring *ring, event_kind_fn *is_kind);
/* In an audit @e has passed: add to @would what the policy of its moment would have said.
 */
void report_would_note(struct event_ring *would, const struct run_policy *newest,
		       const struct event *e);
/* The run is over: replace *@would by a ring without the look-ups that a connection
 * repeats. Return: the occurrences that found no place in either. */
uint64_t report_would_settle(struct event_ring **would) MUST_CHECK;
/* Of report.would. */
bool report_is_would(const struct event *e);
/* Whose rule @e names. */
const struct plan *report_plan(const struct run_policy *newest, const struct event *e);
/* Refusals that were counted only. */
uint64_t report_missed(const struct report *r);
/* Of an audit: what has passed, and was lost before it was held against the policy. */
uint64_t report_unchecked(const struct report *r);
/* "and 12 more would have been refused; 5 that have passed were not judged"; "": an audit
 * has lost nothing, or there was none. */
enum { REPORT_LOST_SIZE = 128 };
const char *report_audit_lost(const struct report *r, char buf[REPORT_LOST_SIZE]);

/* The run is over, and log_hold() was called: say it on stderr unless spec->quiet is set
 * or @failure says that Weir failed, and write it to the files of spec->reports. @r has
 * all but what follows from @failure, 0 or the exit status of that, and @wait_status of
 * the command. Return: the exit status. */
int report_end(struct report *r, int failure, int wait_status);
/* Last of all: write the words that have waited. A command that was killed is answered by
 * the same signal, if @status says so; then this doesn't return.
 * Return: @status, or RUN_STATUS_FAILED where the words could not be written. */
int report_leave(int status, int wait_status) MUST_CHECK;

/* An engine may have been taken over: advice that nobody makes would be another line for
 * a shell, and goes. */
void report_check_advice(struct event *e);

/* The first destinations that are refused or fail, for a line each on stderr. */
enum { REPORT_LIVE_MAX = 8, REPORT_LIVE_MS = 500 };
struct report_live {
	struct event events[REPORT_LIVE_MAX];
	size_t count, said;
	bool more, more_said; /* than there is room for */
};
/* Before @e is in @ring, that of its kind. Return: there is something to say, in
 * REPORT_LIVE_MS: where the run has ended by then the report says it alone. */
bool report_live_note(struct report_live *l, const struct event_ring *ring,
		      const struct event *e);
/* While the command runs: say @text on stderr, unless that would make Weir wait or fall
 * into the screen of a program that draws on its terminal. Return: whether it was said.
 */
bool report_say_now(const char *text);
void report_live_say(struct report_live *l, const struct run_policy *policy);

/* Before the command starts: open the files that --report names, so that nothing that the
 * sandbox does to the paths matters. Markdown and GitHub's commands are appended, as a CI
 * job's summary wants it; the other forms replace what is there. "-" is standard output.
 * Return: 0 with the descriptors in spec->reports, or -errno with @err. */
int report_open(struct run_spec *spec, struct err *err) MUST_CHECK;

/* The directory that holds @name, whose last component is *@ret_last, with no link on the
 * way that an earlier sandbox may have left there. Return: an O_PATH descriptor, or
 * -errno with @err. */
int report_open_directory(const char *name, const char **ret_last,
			  struct err *err) MUST_CHECK;

/* Write them all, and close them. Return: 0, or -errno with @err: one could not be
 * written. */
int report_write(const struct report *r, struct err *err) MUST_CHECK;

struct run_store {
	pid_t pid; /* 0: nothing is kept */
	int fd;
	const char *sandbox; /* how the run is named there; borrowed */
	uint64_t lost;	     /* events that nobody took */
	/* To find out whose a denial was. */
	int diag; /* owned; 0: it can't be asked */
	pid_t in; /* a process of the sandbox's network namespace */
	struct socket_owner_pace pace;
};

/* In @directory, which is made; NULL: nothing. The run is called @id there, which is
 * borrowed. A link on the way that an earlier command may have left is an error. Return:
 * 0 or -errno: nothing would be kept. */
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
