// SPDX-License-Identifier: Apache-2.0
/* weir-events store DIRECTORY: rows come over descriptor 3, a socket, and go into the
 * store. Started by `weir run --state-dir`, which it tells first whether there is a
 * store, and ends when that closes the socket. */
#include "tools/events_show.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "base/log.h"
#include "events/sqlite.h"
#include "events/sqlite_file.h"

enum { CHANNEL = 3, STORE_BYTES = 256 << 20 };

/* What ends or stops the command is not for us: its last events are still to be written.
 */
static void ignore_signals(void)
{
	static const int some[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };

	for (size_t i = 0; i < ARRAY_SIZE(some); i++)
		sigaction(some[i], &ignore, NULL);
}

static bool is_channel(int fd)
{
	socklen_t size = sizeof(int);
	int type = 0;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
	       type == SOCK_SEQPACKET;
}

/* Texts end, whoever has sent them. */
static void hold(struct event_row *row)
{
	row->event.name[sizeof(row->event.name) - 1] = '\0';
	row->event.reason[sizeof(row->event.reason) - 1] = '\0';
	row->sandbox[sizeof(row->sandbox) - 1] = '\0';
	row->rule[sizeof(row->rule) - 1] = '\0';
	row->rule_file[sizeof(row->rule_file) - 1] = '\0';
	row->command[sizeof(row->command) - 1] = '\0';
}

static void keep_all(struct sqlite_writer *w)
{
	struct event_row row;

	for (;;) {
		const ssize_t n = recv(CHANNEL, &row, sizeof(row), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != sizeof(row))
			return; /* the other end is gone */
		hold(&row);
		sqlite_writer_add(w, &row);
	}
}

/* The run starts its command only once there is a store. One that is broken is moved
 * aside by the writer, and one that another writer has is waited for. */
static int try_store(const struct sqlite_config *config, struct err *err)
{
	sqlite3 *db = NULL;
	int r = sqlite_file_open(config, &db, err);

	if (r == -EBADMSG || r == -EBUSY)
		return 0;
	sqlite3_close(db);
	return r;
}

/* "" when all is well, or why not. */
static void answer(const char *text)
{
	(void)!send(CHANNEL, text, strlen(text) + 1, MSG_NOSIGNAL);
}

int events_store(int argc, char **argv)
{
	struct sqlite_config config = { .directory = argc == 2 ? argv[1] : NULL,
					.max_bytes = STORE_BYTES };
	struct sqlite_writer *w = NULL;
	struct sqlite_state state;
	struct err err = { 0 };

	if (!config.directory || !is_channel(CHANNEL)) {
		log_error("this is started by `weir run`, not by hand");
		return 2;
	}
	prctl(PR_SET_NAME, "weir-store");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	ignore_signals();
	if (try_store(&config, &err) < 0 || sqlite_writer_new(&config, &w, &err) < 0) {
		answer(err.text);
		return 1;
	}
	answer("");
	keep_all(w);
	(void)sqlite_writer_drain(w, 2000);
	sqlite_writer_state(w, &state);
	if (state.trouble[0])
		log_warning("the store: %s", state.trouble);
	sqlite_writer_free(w);
	return state.lost_rows > 0;
}
