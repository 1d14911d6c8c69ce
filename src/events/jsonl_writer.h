// SPDX-License-Identifier: Apache-2.0
/* events/jsonl_writer - events as JSON lines, appended to a file or to standard output by
 * a thread of its own. See event_json() for a line.
 *
 * Writing never waits and never fails for the caller: what doesn't fit the queue, and
 * what can't be written, is counted, and the reason stands in the state until a line is
 * written again. No line stands there in part. The file is turned over when it is big
 * (events/logfile), and opened again by name when it is told so. */
#pragma once

#include "events/jsonl.h"
#include "events/logfile.h"

struct jsonl_config {
	const char *where; /* "stdout" or a path; copied */
	struct logfile_limits files;
};

struct jsonl_state {
	uint64_t rows;			  /* written by this process */
	uint64_t lost_rows, lost_packets; /* that could not be */
	char trouble[ERR_TEXT_SIZE];	  /* "" while all is well */
};

struct jsonl_writer;
/* The file is opened by the thread: what is wrong with it shows in the state. Return: 0,
 * or -errno when there is no thread to be had. */
int jsonl_writer_new(const struct jsonl_config *config, struct jsonl_writer **ret,
		     struct err *err) MUST_CHECK;
/* Writes what it has, for at most two seconds. */
void jsonl_writer_free(struct jsonl_writer *w);
void jsonl_writer_add(struct jsonl_writer *w, const struct event_row *row);
/* Somebody has moved the file away: go on with a new one. */
void jsonl_writer_reopen(struct jsonl_writer *w);
void jsonl_writer_state(struct jsonl_writer *w, struct jsonl_state *ret);
