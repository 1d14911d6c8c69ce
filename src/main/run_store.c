// SPDX-License-Identifier: Apache-2.0
#include "main/run_store.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "main/helper.h"
#include "store/jsonl.h"

enum { CLOSE_MS = 3000, LOOK_MS = 5 };

static pid_t start(const char *directory, int end)
{
	char *copy = strdup(directory);
	char *args[] = { copy, NULL };
	const struct helper h = {
		.program = "weir-store", .args = args, .fds = &end, .fd_count = 1
	};
	pid_t pid = copy ? helper_start(&h) : -ENOMEM;

	free(copy);
	return pid;
}

void run_store_open(struct run_store *s, const char *directory)
{
	struct err err = { 0 };
	int fds[2];
	pid_t pid;

	if (!directory)
		return;
	if (helper_check("weir-store", &err) < 0) {
		log_warning("events are not kept: %s", err.text);
		return;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		log_warning("events are not kept: %s", strerror(errno));
		return;
	}
	pid = start(directory, fds[1]);
	close(fds[1]);
	if (pid < 0) {
		log_warning("events are not kept: %s", strerror(-pid));
		close(fds[0]);
		return;
	}
	*s = (struct run_store){ .pid = pid, .fd = fds[0] };
	snprintf(s->sandbox, sizeof(s->sandbox), "run-%d", (int)getpid());
}

void run_store_add(struct run_store *s, const struct event *e, const struct plan *plan)
{
	struct event_row row;

	if (s->pid == 0)
		return;
	event_row_fill(&row, e, s->sandbox, plan);
	if (send(s->fd, &row, sizeof(row), MSG_DONTWAIT | MSG_NOSIGNAL) != sizeof(row))
		s->lost += e->packets;
}

void run_store_close(struct run_store *s)
{
	const int64_t until_ms = clock_now_ms() + CLOSE_MS;

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
