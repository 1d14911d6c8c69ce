// SPDX-License-Identifier: Apache-2.0
/* weir-postgres: events of a store, copied into PostgreSQL. It takes the options of `weir
 * sidecar` or `weir daemon`, whose supervisor starts it, ends it, and starts it again. As
 * the service of outputs/postgres_state.h it reads events back. */
#include <errno.h>
#include <inttypes.h>
#include <libpq-fe.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "base/text.h"
#include "event/event.h"
#include "outputs/postgres/sender.h"
#include "outputs/postgres/server.h"
#include "outputs/postgres_state.h"
#include "settings/settings.h"
#include "settings/state_dir.h"
#include "sys/confine.h"
#include "sys/files.h"
#include "sys/process.h"

enum {
	LOOK_MS = 250,	    /* while there is nothing new */
	RETRY_MIN_MS = 500, /* after a failure, doubled each time */
	RETRY_MAX_MS = 5000,
	REFUSED_EVERY_MS = 60 * 1000,
	NOTIFY_EVERY_MS = 10 * 1000, /* while nothing changes */
	/* A step that has no end (a name service that hangs, a call of libpq's) ends this
	 * process, and its successor begins anew: nothing is lost by that. */
	STEP_SEC = 600,
};

/* What was said last, so that nothing is said again and again. */
struct said {
	char trouble[ERR_TEXT_SIZE];
	int64_t refused_ms; /* when refused events were told of; 0: never */
};

static void say(struct said *said, const char *trouble)
{
	if (strcmp(said->trouble, trouble) == 0)
		return;
	if (trouble[0])
		log_warning("%s; what is not copied waits in the store", trouble);
	else
		log_warning("events are copied to PostgreSQL again");
	snprintf(said->trouble, sizeof(said->trouble), "%s", trouble);
}

static void serve(struct sender *s, const char *directory)
{
	struct said said = { 0 };
	int wait_ms = RETRY_MIN_MS;
	int64_t sent_ms = 0;

	for (bool first = true;; first = false) {
		struct err err = { 0 };
		struct sender_state now;
		const char *trouble;
		int r;

		alarm(STEP_SEC);
		r = sender_step(s, &err);
		alarm(0);
		now = sender_state(s);
		trouble = r < 0 ? err.text : now.trouble;
		if (r >= 0 && err.text[0] &&
		    (said.refused_ms == 0 ||
		     clock_now_ms() - said.refused_ms >= REFUSED_EVERY_MS)) {
			log_warning("%s; such events are passed over (%" PRIu64
				    " so far)",
				    err.text, now.refused);
			said.refused_ms = clock_now_ms();
		}
		if (r != 0 || first || said.trouble[0] || trouble[0] ||
		    clock_now_ms() - sent_ms > NOTIFY_EVERY_MS) {
			struct postgres_state state = { .sent = now.sent,
							.missed = now.missed,
							.refused = now.refused,
							.waiting = now.waiting };

			snprintf(state.trouble, sizeof(state.trouble), "%s", trouble);
			/* What /status shows. Not worth a failure. */
			(void)!postgres_state_write(directory, &state);
			sent_ms = clock_now_ms();
		}
		say(&said, trouble);
		if (r > 0)
			continue;
		/* Not all at once: a server may have thousands of us. */
		poll(NULL, 0, r < 0 ? wait_ms + wait_ms * (getpid() % 32) / 64 : LOOK_MS);
		wait_ms = r < 0 ? MIN(wait_ms * 2, (int)RETRY_MAX_MS) : RETRY_MIN_MS;
	}
}

/* No capability, no program started, files read alone but for those below @directory,
 * which may be NULL. Return: 0 or -errno. */
static int confine(const char *directory, struct err *err)
{
	/* Certificates and password files may be anywhere. */
	const struct landlock_path paths[] = { { .path = "/", .write = false },
					       { .path = directory, .write = true } };
	int r = confine_rights(0, err);

	if (r < 0)
		return r;
	r = landlock_enter(paths, directory ? 2 : 1);
	if (r < 0 && r != -EOPNOTSUPP)
		return err_sys(err, r, "cannot cut file access by Landlock");
	return confine_calls(CONFINE_POSTGRES, err);
}

/* ---- the service that reads back ---- */

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

/* @argv: the service, the connection string, since when, and which sandbox or nothing.
 * Return: 0, or -errno with @err. */
static int reader_serve(int argc, char **argv, int fd, struct err *err)
{
	const char *parameters[] = { argc > 2 ? argv[2] : "", argc > 3 ? argv[3] : NULL };
	CLEAN(server) struct server *s = NULL;
	CLEAN(result) PGresult *res = NULL;
	struct event end = { .action = EVENT_NONE };
	uint64_t read = 0, all = 0;
	int r;

	if (argc < 3)
		return err_set(err, -EINVAL,
			       "another program of Weir's starts this service");
	r = server_open(argv[1], &s, err);
	if (r < 0)
		return r;
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
	if (PQntuples(res) > 0)
		all = number_in(res, 0, COLUMN_OF_ALL);
	for (int i = 0; r == 0 && i < PQntuples(res); i++) {
		const struct event e = event_in(res, i);

		read += e.packets;
		r = file_write_all(fd, &e, sizeof(e));
	}
	end.packets = all > read ? all - read : 0;
	if (r == 0)
		r = file_write_all(fd, &end, sizeof(end));
	return r < 0 ? err_sys(err, r, "cannot write the events") : 0;
}

/* ---- the program ---- */

int main(int argc, char **argv)
{
	static struct sidecar_spec spec;
	bool is_daemon;
	struct err err = { 0 };
	struct sender *s;

	if (settings_take(&argc, &argv) < 0)
		return RUN_STATUS_FAILED;
	prctl(PR_SET_NAME, "weir-postgres");
	if (argc > 1 && strcmp(argv[1], POSTGRES_READ) == 0) {
		int r = confine(NULL, &err);

		if (r == 0)
			r = reader_serve(argc - 1, argv + 1, INHERITED_FIRST, &err);
		if (r < 0)
			log_error("%s", err.text);
		return r == -EINVAL ? RUN_STATUS_BAD_INPUT
		       : r < 0	    ? RUN_STATUS_FAILED
				    : 0;
	}
	if (cli_helper_parse(argc, argv, &is_daemon, &spec, &err) < 0 || !spec.postgres)
		return log_end(RUN_STATUS_BAD_INPUT, "%s",
			       err.text[0] ? err.text : "no PostgreSQL is named");
	settings_wipe_token(&spec);
	/* Control makes the store in it; what isn't there yet could not be kept in reach.
	 */
	if (state_dir_take(&spec, NULL, &err) < 0 || !spec.state_dir ||
	    confine(spec.state_dir, &err) < 0)
		return log_end(RUN_STATUS_FAILED, "weir-postgres: %s", err.text);
	s = sender_new(spec.state_dir, spec.postgres);
	if (!s)
		return log_end(RUN_STATUS_FAILED, "weir-postgres: out of memory");
	serve(s, spec.state_dir);
	return RUN_STATUS_FAILED;
}
