// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/reviews.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SQL_SIZE = 256 };

static const char upsert[] =
	"INSERT INTO sandbox_egress_review AS r (store, task, analysis_id, destination,"
	" remote_port, protocol, packets, events, first_ts, last_ts, state, who,"
	" decided_ts, rule)"
	" SELECT $1::uuid, t.id, t.sandbox, t.destination, t.port, t.protocol, t.packets,"
	" t.events, t.first, t.last, t.state, t.who, t.decided, t.rule"
	" FROM jsonb_to_recordset($2::jsonb) AS t (id BIGINT, sandbox TEXT,"
	" destination TEXT, port INT, protocol TEXT, packets BIGINT, events BIGINT,"
	" first TIMESTAMPTZ, last TIMESTAMPTZ, state TEXT, who TEXT,"
	" decided TIMESTAMPTZ, rule JSONB)"
	" ON CONFLICT (store, task) DO UPDATE SET remote_port = excluded.remote_port,"
	" protocol = excluded.protocol, packets = excluded.packets,"
	" events = excluded.events, first_ts = excluded.first_ts,"
	" last_ts = excluded.last_ts, state = excluded.state, who = excluded.who,"
	" decided_ts = excluded.decided_ts, rule = excluded.rule";

/* The tasks as a list in JSON. */
struct list {
	char *json; /* holds REVIEWS_BATCH of them */
	size_t used, count;
	int64_t last;
};

static bool on_task(void *data, int64_t change, const struct review *t)
{
	struct list *l = data;

	l->json[l->used++] = l->count++ == 0 ? '[' : ',';
	l->used += review_json(t, l->json + l->used);
	l->last = change;
	return true;
}

static bool on_any(void *data, int64_t change, const struct review *t)
{
	*(bool *)data = t != NULL && change > 0;
	return false;
}

int reviews_wait(struct review_store *store, int64_t above, bool *ret, struct err *err)
{
	*ret = false;
	return review_changed(store, above, 1, on_any, ret, err);
}

static int put_tasks(struct server *server, const char *uuid, struct list *l,
		     struct err *err)
{
	const char *const parameters[] = { uuid, l->json };

	l->json[l->used++] = ']';
	l->json[l->used] = '\0';
	return server_order(server, "copy review tasks", upsert, parameters, 2, err);
}

static int finish_tasks(struct server *server, const char *uuid, int64_t last,
			struct err *err)
{
	char sql[SQL_SIZE];
	int r;

	snprintf(sql, sizeof(sql),
		 "UPDATE sandbox_egress_store SET reviewed = %" PRId64
		 ", at = now() WHERE store = '%s'",
		 last, uuid);
	r = server_order(server, "note how far review tasks are copied", sql, NULL, 0,
			 err);
	return r < 0 ? r : server_commit(server, err);
}

/* The others must not wait for one that the server will never have. */
static int pass_over_tasks(struct server *server, const char *uuid, int64_t last,
			   struct err *err)
{
	int r = server_roll_back(server, err);

	if (r == 0)
		r = server_begin(server, err);
	return r < 0 ? r : finish_tasks(server, uuid, last, err);
}

int reviews_copy(struct server *server, struct review_store *store, const char *uuid,
		 size_t max, int64_t *reviewed, struct err *err)
{
	struct list l = { .json = malloc((size_t)REVIEWS_BATCH * REVIEW_JSON_SIZE + 2) };
	int r;

	if (!l.json)
		return err_sys(err, -ENOMEM, "cannot copy review tasks");
	r = review_changed(store, *reviewed, MIN(max, (size_t)REVIEWS_BATCH), on_task, &l,
			   err);
	if (r == 0 && l.count == 0)
		r = server_roll_back(server, err);
	else if (r == 0)
		r = put_tasks(server, uuid, &l, err);
	if (r == 0 && l.count > 0)
		r = finish_tasks(server, uuid, l.last, err);
	else if (r == -EBADMSG && l.count == 1)
		r = pass_over_tasks(server, uuid, l.last, err);
	free(l.json);
	if (r < 0)
		return r;
	if (l.count > 0)
		*reviewed = l.last;
	return (int)l.count;
}
