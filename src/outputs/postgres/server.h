// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/server - a connection to PostgreSQL on which every call ends.
 *
 * A server that is stopped, or behind a network that swallows, says nothing: whoever
 * waits for it by libpq's own calls waits for ever. So each call here has an end, twice
 * the connection string's connect_timeout (5 seconds), after which the connection is of
 * no use and is to be closed. What such a connection leaves behind on the server (a
 * transaction with its locks) the server ends by itself, because it is told to at the
 * beginning of each. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct server;	  /* a connection */
struct pg_result; /* libpq's */

/* Within connect_timeout for each host that @conninfo names; of several the one that
 * takes writes. Return: 0, or -errno with what each of them said. */
int server_open(const char *conninfo, struct server **ret, struct err *err) MUST_CHECK;
/* Never waits. NULL is fine. */
void server_close(struct server *s);
DEFINE_CLEAN(server, struct server *, server_close)
/* Calls may take minutes from now on, or as long as in the beginning. */
void server_be_patient(struct server *s, bool patient);

/* It was closed, by whomever, since it was opened. */
bool server_is_cut(const struct server *s);
/* Nothing was asked for twice connect_timeout. */
bool server_is_idle(const struct server *s);

extern void PQclear(struct pg_result *res); /* libpq's */
DEFINE_CLEAN(result, struct pg_result *, PQclear)

/* @sql, which may be several statements where there is no parameter ($1). Return: the
 * last result, owned by the caller, or NULL with @err, which begins "PostgreSQL: cannot
 * @what". */
struct pg_result *server_ask(struct server *s, const char *what, const char *sql,
			     const char *const *parameters, int count, struct err *err);
/* The same for what answers with nothing. Return: 0; -EBADMSG: the server takes no such
 * data; or -EIO. */
int server_order(struct server *s, const char *what, const char *sql,
		 const char *const *parameters, int count, struct err *err) MUST_CHECK;
/* @lines as the text of COPY @into ("table (column, …)"). The same codes. */
int server_copy(struct server *s, const char *into, const char *lines, size_t size,
		struct err *err) MUST_CHECK;

/* A transaction, whatever the role's defaults are, whose statements and whose silence
 * the server bounds as well. */
int server_begin(struct server *s, struct err *err) MUST_CHECK;
int server_commit(struct server *s, struct err *err) MUST_CHECK;
int server_roll_back(struct server *s, struct err *err) MUST_CHECK;

/* Digits of a result as a number; 0 for anything else. */
int64_t server_number(const struct pg_result *res, int row, int column);
