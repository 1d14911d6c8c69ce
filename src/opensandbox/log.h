// SPDX-License-Identifier: Apache-2.0
/* opensandbox/log - log lines in JSON, as OpenSandbox's sidecar has them, to stdout,
 * stderr and files.
 *
 * {"level":"info","ts":"2026-11-20T10:06:43.424Z","logger":"opensandbox.egress",
 *  "msg":"egress outbound","opensandbox.event":"egress.outbound",…,"sandbox_id":"sb-1"}
 *
 * Weir's own (the daemon's) say "logger":"weir" and "event" there.
 *
 * Each output has a thread and a bounded queue: one that is blocked (a full pipe, a slow
 * disk) delays neither the caller nor the others; what doesn't fit is dropped and
 * counted, and a line says so as soon as there is room. Of equal lines (level and msg)
 * the first 100 of a second are written and then every 100th, but a change of policy
 * always is, and may use a reserve of the queue. */
#pragma once

#include "events/jsonl.h"
#include "events/logfile.h"

enum loglines_level {
	LOGLINES_DEBUG = 0,
	LOGLINES_INFO,
	LOGLINES_WARN,
	LOGLINES_ERROR,
	LOGLINES_FATAL,
	LOGLINES_LEVEL_COUNT
};

enum {
	LOGLINES_SAMPLE_FIRST = 100, /* of equal lines in a second */
	LOGLINES_SAMPLE_THEN = 100,  /* then one of so many */
	LOGLINES_ATTRS_SIZE = 4096,  /* of all attributes as JSON; the rest is left out */
};

struct loglines_attr {
	struct text key, value;
};

struct loglines_config {
	enum loglines_level level;  /* lines below it are not made */
	const char *const *outputs; /* "stdout", "stderr" or a path */
	size_t output_count;	    /* 0: stdout */
	/* On every line. Keys of Weir's own lines are left out, and all but the first
	 * of equal ones. */
	const struct loglines_attr *attrs;
	size_t attr_count;
	const char *sandbox_id; /* "" or NULL: none */
	bool opensandbox;	/* the logger and the events' key are named as there */
	struct logfile_limits files;
};

struct loglines;
/* A file that can't be opened loses its lines, and is tried again each second. Return: 0,
 * or -errno: no memory, or no thread. */
int loglines_new(const struct loglines_config *config, struct loglines **ret,
		 struct err *err) MUST_CHECK;
/* Gives each output that still has lines at most @timeout_ms. */
void loglines_free(struct loglines *l, int timeout_ms);
/* Lines that an output lost, by a full queue or a failed write. What sampling left
 * out is not in it. */
uint64_t loglines_dropped(struct loglines *l);
/* A file that takes no lines just now, or NULL. */
const char *loglines_lacks(const struct loglines *l);
/* Whether lines of @level are made. */
bool loglines_has_level(const struct loglines *l, enum loglines_level level);

/* @sandbox: whom it is about ("sandbox_id"), where the config names none; "": nobody. */

enum loglines_change { LOGLINES_LOADED = 0, LOGLINES_UPDATED };
/* @rules_json is JSON already ("[]"); bytes that JSON doesn't need stay escaped. */
void loglines_policy(struct loglines *l, int64_t wall_ms, enum loglines_change change,
		     const char *sandbox, const char *default_action,
		     const char *rules_json);
/* A warning when it was the caller's fault, else an error. */
void loglines_policy_failed(struct loglines *l, int64_t wall_ms, const char *sandbox,
			    const char *error, bool callers_fault);
/* A lookup that was allowed: its addresses, or why there are none (@error, else
 * NULL). */
void loglines_outbound(struct loglines *l, int64_t wall_ms, const char *sandbox,
		       const char *host, const struct addr *ips, size_t count,
		       const char *error);
/* What was refused, of @row's sandbox. */
void loglines_denied(struct loglines *l, int64_t wall_ms, const struct event_row *row);

enum loglines_upstream {
	LOGLINES_NEXT = 0, /* "[dns] upstream 1.2.3.4:53: SERVFAIL; trying next" */
	LOGLINES_EXCHANGE, /* "[dns] upstream 1.2.3.4:53 exchange error: timed out" */
	LOGLINES_PROBE,	   /* "[dns] upstream probe 1.2.3.4:53 failed: timed out" */
};
/* @what: the answer's code, or the error. */
void loglines_upstream(struct loglines *l, int64_t wall_ms, enum loglines_upstream kind,
		       const struct endpoint *upstream, const char *what);

/* Anything else. */
void loglines_say(struct loglines *l, int64_t wall_ms, enum loglines_level level,
		  const char *fmt, ...) PRINTF_LIKE(4, 5);
