// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "outputs/postgres_read.h"
#include "supervisor/program.h"
#include "sys/process.h"
#include "tools/events_show.h"

const char *show_postgres(const char *from)
{
	static const char *const schemes[] = { "postgres://", "postgresql://" };

	if (strcmp(from, "postgres") == 0)
		return getenv("WEIR_POSTGRES") ?: "";
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (strncmp(from, schemes[i], strlen(schemes[i])) == 0)
			return from;
	return NULL;
}

/* Return: 0; -EPIPE: the program ends before. */
static int read_event(int fd, struct event *ret)
{
	uint8_t *to = (uint8_t *)ret;
	size_t have = 0;

	while (have < sizeof(*ret)) {
		ssize_t n = read(fd, to + have, sizeof(*ret) - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EPIPE;
		have += (size_t)n;
	}
	return 0;
}

static pid_t start_reader(const char *conninfo, const struct show *s, int fd)
{
	CLEAN(mem) char *since = NULL, *where = strdup(conninfo);
	CLEAN(mem) char *sandbox = strdup(s->query.sandbox ?: "");
	char *args[] = { where, NULL, NULL, NULL };
	const struct helper helper = { .program = "weir-postgres",
				       .service = POSTGRES_READ,
				       .args = args,
				       .fds = &fd,
				       .fd_count = 1 };

	if (!where || !sandbox || asprintf(&since, "%" PRId64, s->query.since_ms) < 0)
		return -ENOMEM;
	args[1] = since;
	args[2] = s->query.sandbox ? sandbox : NULL;
	return helper_start(&helper);
}

int show_read_postgres(const struct show *s, const char *conninfo,
		       void (*on_event)(void *data, const struct event *e), void *data,
		       uint64_t *ret_unread, struct err *err)
{
	CLEAN(fd) int from = -1, to = -1;
	struct event e = { .action = EVENT_ALLOW };
	int fds[2], status, r = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	from = fds[0];
	to = fds[1];
	pid = start_reader(conninfo, s, to);
	fd_close(&to);
	if (pid < 0)
		return err_sys(err, pid, "cannot start weir-postgres");
	while (r == 0 && e.action != EVENT_NONE) {
		r = read_event(from, &e);
		if (r == 0 && e.action != EVENT_NONE)
			on_event(data, &e);
	}
	if (r < 0 && r != -EPIPE)
		(void)!kill(pid, SIGKILL);
	status = process_wait(pid);
	/* weir-postgres has said why. */
	if (r < 0)
		return err_set(err,
			       WIFEXITED(status) &&
					       WEXITSTATUS(status) == RUN_STATUS_BAD_INPUT
				       ? -EINVAL
				       : -EIO,
			       "cannot read the events in PostgreSQL");
	*ret_unread = e.packets;
	return 0;
}
