// SPDX-License-Identifier: Apache-2.0
/* events/logfile - a file that lines are appended to, turned over when it is big, its
 * older parts compressed, counted and let go.
 *
 * egress.log becomes egress-2026-11-20T10-06-43.424.log, then the same with .gz. Called
 * in a worker's thread: everything here may take its time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct logfile_limits {
	uint64_t file_bytes; /* 0: 100 MiB */
	uint32_t backups;    /* 0: 10 */
	uint32_t days;	     /* 0: 30 */
};

struct logfile;
/* A log in the file @path, which logfile_open() or the first write opens. Return: NULL
 * when memory is out. */
struct logfile *logfile_new(const char *path, const struct logfile_limits *limits);
void logfile_free(struct logfile *f);
/* Open the file, or open it again, by its name: somebody may have moved it away. It is
 * made with mode 0600, in directories that are made with 0755. Return: 0 or -errno. */
int logfile_open(struct logfile *f, struct err *err) MUST_CHECK;
/* Append @bytes, turning the file over first if they would make it too big. Once a second
 * it is looked whether the name still leads to the file, and opened if it doesn't or
 * could not be. Return: 0 or -errno: they are lost, in part perhaps. */
int logfile_write(struct logfile *f, const void *bytes, size_t size, int64_t wall_ms,
		  struct err *err) MUST_CHECK;
