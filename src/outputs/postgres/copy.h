// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/copy - rows in the text format of PostgreSQL's COPY. */
#pragma once

#include "events/jsonl.h"

/* The columns that a row has, in its order: "analysis_id, ts, …". */
extern const char copy_columns[];

enum { COPY_ROW_SIZE = 16384 }; /* holds any */

/* One line with its end. @id is the row's number in the store @store (a UUID). @buf holds
 * COPY_ROW_SIZE. Return: the length. */
size_t copy_row(const struct event_row *row, int64_t id, const char *store, char *buf);
