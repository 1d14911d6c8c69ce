// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/reader.h"

#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "event/event.h"
#include "outputs/postgres/server.h"
#include "sys/files.h"

/* The newest of what differs in more than time, sandbox and rule, oldest first, and the
 * occurrences of all, read or not. */
static const char find_sql[] =
	"SELECT action, layer, protocol, host(remote_ip), remote_port, fqdn_pinned,"
	" query_type, packets, bytes, pid, command, reason, of_all FROM ("
	"SELECT action, layer, protocol, remote_ip, remote_port, fqdn_pinned, query_type,"
	" least(sum(coalesce(packets, raw_pkts)), 999999999999999999)::bigint packets,"
	" least(sum(bytes), 999999999999999999)::bigint bytes, max(pid) pid, command,"
	" max(reason) reason, max(ts) last_ts,"
	" least(sum(sum(coalesce(packets, raw_pkts))) OVER (), "
	"999999999999999999)::bigint"
	" of_all"
	" FROM sandbox_egress_event WHERE ts >= to_timestamp($1::double precision / 1000)"
	" AND action IN ('allow', 'deny') AND ($2::text IS NULL OR analysis_id = $2)"
	" GROUP BY action, layer, protocol, remote_ip, remote_port, fqdn_pinned,"
	" query_type, command"
	" ORDER BY last_ts DESC LIMIT 32768) newest ORDER BY last_ts";

enum column {
	COLUMN_ACTION,
	COLUMN_LAYER,
	COLUMN_PROTOCOL,
	COLUMN_ADDRESS,
	COLUMN_PORT,
	COLUMN_NAME,
	COLUMN_QUERY_TYPE,
	COLUMN_PACKETS,
	COLUMN_BYTES,
	COLUMN_PID,
	COLUMN_COMMAND,
	COLUMN_REASON,
	COLUMN_OF_ALL,
};

/* NULL is "". */
static const char *text_in(const PGresult *res, int row, enum column column)
{
	return PQgetvalue(res, row, (int)column);
}

static uint64_t number_in(const PGresult *res, int row, enum column column)
{
	return (uint64_t)server_number(res, row, (int)column);
}

static struct event event_in(const PGresult *res, int row)
{
	const char *address = text_in(res, row, COLUMN_ADDRESS);
	const char *protocol = text_in(res, row, COLUMN_PROTOCOL);
	const bool allowed = strcmp(text_in(res, row, COLUMN_ACTION), "allow") == 0;
	struct event e = {
		.action = allowed ? EVENT_ALLOW : EVENT_DENY,
		.layer = (uint8_t)event_layer_find(text_in(res, row, COLUMN_LAYER)),
		.protocol = strcmp(protocol, "tcp") == 0   ? IPPROTO_TCP
			    : strcmp(protocol, "udp") == 0 ? IPPROTO_UDP
							   : 0,
		.port = (uint16_t)number_in(res, row, COLUMN_PORT),
		.query_type = (uint16_t)number_in(res, row, COLUMN_QUERY_TYPE),
		.packets = number_in(res, row, COLUMN_PACKETS),
		.bytes = number_in(res, row, COLUMN_BYTES),
		.pid = (uint32_t)number_in(res, row, COLUMN_PID),
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
	};

	if (!addr_parse(address, strlen(address), &e.remote))
		e.remote = (struct addr){ 0 };
	snprintf(e.name, sizeof(e.name), "%s", text_in(res, row, COLUMN_NAME));
	snprintf(e.command, sizeof(e.command), "%s", text_in(res, row, COLUMN_COMMAND));
	event_set_reason(&e, text_in(res, row, COLUMN_REASON));
	return e;
}

static int write_events(const PGresult *res, int fd)
{
	const int rows = PQntuples(res);
	uint64_t read = 0, all = rows > 0 ? number_in(res, 0, COLUMN_OF_ALL) : 0;
	struct event end = { .action = EVENT_NONE };
	int r = 0;

	for (int i = 0; r == 0 && i < rows; i++) {
		const struct event e = event_in(res, i);

		read += e.packets;
		r = file_write_all(fd, &e, sizeof(e));
	}
	end.packets = all > read ? all - read : 0;
	return r < 0 ? r : file_write_all(fd, &end, sizeof(end));
}

static int read_events(struct server *s, const char *const *parameters, int fd,
		       struct err *err)
{
	PGresult *res;
	int r;

	server_be_patient(s, true);
	r = server_order(s, "begin",
			 "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY;"
			 " SET LOCAL client_min_messages = error;"
			 " SET LOCAL statement_timeout = '290s'",
			 NULL, 0, err);
	if (r < 0)
		return r;
	res = server_ask(s, "read the events", find_sql, parameters, 2, err);
	if (!res)
		return -EIO;
	r = write_events(res, fd);
	PQclear(res);
	return r < 0 ? err_sys(err, r, "cannot write the events") : 0;
}

int reader_serve(int argc, char **argv, int fd, struct err *err)
{
	const char *parameters[] = { argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : NULL };
	struct server *s = NULL;
	int r;

	if (argc < 3)
		return err_set(err, -EINVAL,
			       "another program of Weir's starts this service");
	r = server_open(argv[1], &s, err);
	if (r == 0)
		r = read_events(s, parameters, fd, err);
	server_close(s);
	return r;
}
