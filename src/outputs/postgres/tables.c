// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/tables.h"

#include <errno.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

#include "outputs/postgres/migrations_postgres.h" /* generated: migrations[] */

enum {
	SQL_SIZE = 256,
	LOCK_KEY = 0x77656972, /* of pg_advisory_xact_lock: one brings them up */
};

static const char make[] = "make the tables";

/* 0 when there are none. */
static int read_version(struct server *server, int64_t *ret, struct err *err)
{
	PGresult *res = server_ask(
		server, "look for the tables",
		"SELECT to_regclass('sandbox_egress_schema') IS NOT NULL", NULL, 0, err);
	bool there = res && strcmp(PQgetvalue(res, 0, 0), "t") == 0;

	PQclear(res);
	*ret = 0;
	if (!res || !there)
		return res ? 0 : -EIO;
	res = server_ask(server, "read the tables' version",
			 "SELECT coalesce(max(version), 0) FROM sandbox_egress_schema",
			 NULL, 0, err);
	if (!res)
		return -EIO;
	*ret = server_number(res, 0, 0);
	PQclear(res);
	return 0;
}

/* Each notes its own number. */
static int migrate_from(struct server *server, size_t version, struct err *err)
{
	int r = 0;

	for (size_t i = version; i < ARRAY_SIZE(migrations) && r == 0; i++)
		r = server_order(server, make, migrations[i], NULL, 0, err);
	return r;
}

/* Under a lock: others may be at it. A table that is there already and has many rows
 * gets its indexes, which takes its time. */
static int bring_up_to_date(struct server *server, struct err *err)
{
	char sql[SQL_SIZE];
	int64_t version;
	int r = server_begin(server, err);

	snprintf(sql, sizeof(sql),
		 "SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock(%d)",
		 LOCK_KEY);
	if (r == 0)
		r = server_order(server, make, sql, NULL, 0, err);
	if (r == 0)
		r = read_version(server, &version, err);
	if (r == 0)
		r = migrate_from(server, (size_t)version, err);
	return r < 0 ? r : server_commit(server, err);
}

int tables_make(struct server *server, int64_t *ret_version, struct err *err)
{
	int64_t version;
	int r = read_version(server, &version, err);

	if (r == 0 && version < (int64_t)ARRAY_SIZE(migrations)) {
		server_be_patient(server, true);
		r = bring_up_to_date(server, err);
		server_be_patient(server, false);
		if (r == 0)
			version = ARRAY_SIZE(migrations);
		else if (r == -EPERM && version >= TABLES_EVENT) {
			*err = (struct err){ 0 };
			r = server_roll_back(server, err);
		}
	}
	if (r == 0)
		*ret_version = version;
	return r;
}
