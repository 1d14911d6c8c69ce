// SPDX-License-Identifier: Apache-2.0
#include "run/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "events/jsonl.h"
#include "supervisor/program.h"
#include "sys/path.h"
#include "sys/process.h"
#include "sys/socket_owner.h"

enum { OPEN_MS = 10000, CLOSE_MS = 3000, LOOK_MS = 5 };

/* By its canonical name: SQLite opens files by name, and follows no link. */
static int find_directory(const char *name, struct path *ret, struct err *err)
{
	int r = path_open_made(name, ret, err);

	if (r < 0)
		return r;
	if (ret->untrusted)
		r = err_set(err, -ELOOP,
			    "'%s' is a link; name the directory that it leads to",
			    ret->untrusted);
	else if (!S_ISDIR(ret->st.st_mode))
		r = err_set(err, -ENOTDIR, "'%s' is not a directory", ret->name);
	else if (faccessat(ret->fd, ".", W_OK | X_OK, AT_EACCESS) < 0)
		r = err_sys(err, -errno, "cannot write to '%s'", ret->name);
	if (r < 0)
		path_done(ret);
	return r;
}

static int open_store(struct run_store *s, const char *directory, const char *id,
		      struct err *err)
{
	CLEAN(mem) char *copy = strdup(directory);
	CLEAN(fd) int ours = -1, theirs = -1;
	char *args[] = { copy, NULL };
	const struct helper writer = { .program = PROGRAM_EVENTS,
				       .service = "store",
				       .args = args,
				       .fds = &theirs,
				       .fd_count = 1 };
	int r = helper_check(PROGRAM_EVENTS, err);
	pid_t pid;

	if (r == 0)
		r = process_pair(&ours, &theirs, err);
	if (r < 0)
		return r;
	pid = copy ? helper_start(&writer) : -ENOMEM;
	if (pid < 0)
		return err_sys(err, pid, "cannot start " PROGRAM_EVENTS);
	*s = (struct run_store){ .pid = pid, .fd = TAKE_FD(ours) };
	if (id)
		snprintf(s->sandbox, sizeof(s->sandbox), "%s", id);
	else
		snprintf(s->sandbox, sizeof(s->sandbox), "run-%d", (int)getpid());
	return 0;
}

int run_store_open(struct run_store *s, const char *directory, const char *id,
		   struct err *err)
{
	struct path found;
	int r;

	if (!directory)
		return 0;
	r = find_directory(directory, &found, err);
	if (r == 0) {
		r = open_store(s, found.name, id, err);
		path_done(&found);
	}
	return r < 0 ? err_context(err, "cannot keep events") : 0;
}

int run_store_wait(const struct run_store *s, struct err *err)
{
	struct pollfd answered = { .fd = s->fd, .events = POLLIN };
	char text[ERR_TEXT_SIZE];
	ssize_t n;

	if (s->pid == 0)
		return 0;
	if (poll(&answered, 1, OPEN_MS) != 1)
		return err_set(err, -ETIMEDOUT, "cannot keep events: no answer");
	n = recv(s->fd, text, sizeof(text) - 1, 0);
	if (n <= 0)
		return err_set(err, -EIO, "cannot keep events: who keeps them has ended");
	text[n] = '\0';
	return text[0] ? err_set(err, -EIO, "cannot keep events: %s", text) : 0;
}

void run_store_see(struct run_store *s, int diag, pid_t in)
{
	if (s->diag > 0) {
		close(diag);
		return;
	}
	s->diag = diag;
	s->in = in;
}

void run_store_look(struct run_store *s, struct event *e)
{
	const int64_t begun_ms = clock_now_ms();
	struct socket_owner_question w;
	struct owner_question q = { .among = OWNER_NETWORK,
				    .until_ms = begun_ms + SOCKET_OWNER_LOOK_MS };
	char network[OWNER_NETWORK_SIZE], process[16];
	struct owner o;

	e->pid = 0;
	e->command[0] = '\0';
	if (s->diag <= 0 || !socket_owner_question_of(e, begun_ms, clock_wall_ms(), &w) ||
	    !socket_owner_may(&s->pace, begun_ms))
		return;
	q.protocol = w.protocol;
	q.from = w.from;
	q.to = w.to;
	q.age_ms = begun_ms - w.at_ms;
	q.network = network;
	socket_owner_look(&s->pace);
	snprintf(process, sizeof(process), "%d", (int)s->in);
	if (owner_network(process, network) && owner_find(s->diag, &q, &o) == 0)
		socket_owner_take(e, &o);
	socket_owner_looked(&s->pace, clock_now_ms());
}

void run_store_add(struct run_store *s, const struct event *e, const struct plan *plan)
{
	struct event_row row;

	/* What only begins to pass is told when it has. */
	if (s->pid == 0 || (e->action == EVENT_ALLOW && e->packets == 0))
		return;
	event_row_fill(&row, e, s->sandbox, plan);
	event_row_compare(&row, plan);
	if (send(s->fd, &row, sizeof(row), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(row))
		s->lost += e->packets;
}

void run_store_close(struct run_store *s)
{
	const int64_t until_ms = clock_now_ms() + CLOSE_MS;

	if (s->diag > 0)
		close(s->diag);
	if (s->pid == 0)
		return;
	close(s->fd); /* it writes what it has, and ends */
	while (waitpid(s->pid, NULL, WNOHANG) == 0) {
		if (clock_now_ms() > until_ms)
			kill(s->pid, SIGKILL);
		poll(NULL, 0, LOOK_MS);
	}
	if (s->lost > 0)
		log_warning("%" PRIu64 " events could not be kept in the store", s->lost);
	s->pid = 0;
}
