// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/tables - Weir's tables in a PostgreSQL, made and brought up to date.
 */
#pragma once

#include "outputs/postgres/server.h"

/* Versions, by what they brought. */
enum { TABLES_EVENT = 1, TABLES_REVIEW };

/* One of many senders makes them; a role that may not is fine once those of the first
 * version are there, and so are tables of a newer Weir. Return: 0 with the version, or
 * -errno. */
int tables_make(struct server *server, int64_t *ret_version, struct err *err) MUST_CHECK;
