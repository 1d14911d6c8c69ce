// SPDX-License-Identifier: Apache-2.0
/* events/sqlite_denied - what was denied, summed by one property of the events. */
#pragma once

#include "events/sqlite.h"

/* As in sql/sqlite/002_denied.sql. */
enum sqlite_by {
	SQLITE_BY_NONE = 0,
	SQLITE_BY_DESTINATION, /* the name, or the address of what has none */
	SQLITE_BY_ADDRESS,
	SQLITE_BY_NAME,
	SQLITE_BY_SANDBOX,
	SQLITE_BY_RULE,
	SQLITE_BY_PROCESS,
	SQLITE_BY_COUNT
};
#define SQLITE_BY_WORDS "destination|address|name|sandbox|rule|process"

/* "destination", "address", … */
const char *sqlite_by_name(enum sqlite_by by);
bool sqlite_by_parse(const char *text, enum sqlite_by *ret);

struct sqlite_denied {
	const char *key; /* borrowed for the call; "": the default action, or nobody knows
			    which */
	uint64_t packets, rows;
	int64_t last_ms;
};

/* The most packets first. Of @query sandbox, since_ms, until_ms and max count. @on_denied
 * says whether to go on. */
int sqlite_denied(struct sqlite_reader *r, enum sqlite_by by,
		  const struct sqlite_query *query,
		  bool (*on_denied)(void *data, const struct sqlite_denied *d),
		  void *data, struct err *err) MUST_CHECK;
