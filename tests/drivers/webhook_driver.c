// SPDX-License-Identifier: Apache-2.0
/* The parent of weir-webhook for test_webhook.py: webhook_driver PROGRAM SANDBOX-ID
 * URL... One order per line on stdin: deny NAME         a lookup was refused state prints
 * the counters as JSON restart           ends the program and starts it again refuse /
 * serve    sockets are refused from now on / made again pid               prints the
 * program's It resolves every name to 127.0.0.1 and says "connect URL-INDEX ATTEMPT" to
 * stderr for each socket that it makes. */
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
#include "outputs/webhook.h"

struct driver {
	struct webhook *hook;
	const char *program;
	pid_t pid;
	int fd; /* to the program; the hook owns it */
	struct {
		uint32_t id;
		int fd;
	} held[WEBHOOK_SOCKETS_MAX];
	bool refuse;
};

static void start(struct driver *d)
{
	int pair[2], child;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) <
	    0)
		_exit(3);
	d->pid = fork();
	if (d->pid == 0) {
		child = pair[1] == WEBHOOK_FD ? fcntl(pair[1], F_DUPFD, 10) : pair[1];
		dup2(child, WEBHOOK_FD);
		execl(d->program, "weir-webhook", (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	d->fd = pair[0];
	webhook_attach(d->hook, d->fd);
}

static void forget_sockets(struct driver *d, uint32_t id)
{
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++) {
		if (d->held[i].id == 0 || (id > 0 && d->held[i].id != id))
			continue;
		close(d->held[i].fd);
		d->held[i].id = 0;
	}
}

static void restart(struct driver *d)
{
	kill(d->pid, SIGKILL);
	waitpid(d->pid, NULL, 0);
	forget_sockets(d, 0);
	start(d);
}

static void connect_for(struct driver *d, const struct webhook_message *m)
{
	const struct webhook_url *url = webhook_url_at(d->hook, m->url);
	struct endpoint to = { url->addr, url->port };
	struct sockaddr_storage sa;
	socklen_t size;
	int fd;

	fprintf(stderr, "connect %u %u\n", m->url, m->attempt);
	if (to.addr.family == ADDR_NONE)
		to.addr = addr_v4(127, 0, 0, 1);
	size = endpoint_to_sockaddr(&to, &sa);
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (d->refuse ||
	    (connect(fd, (struct sockaddr *)&sa, size) < 0 && errno != EINPROGRESS)) {
		close(fd);
		(void)!webhook_answer(d->hook, m->id,
				      m->attempt < 2 ? -ECONNREFUSED : -EHOSTUNREACH);
		return;
	}
	if (webhook_answer(d->hook, m->id, fd) < 0) {
		close(fd);
		return;
	}
	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++) {
		if (d->held[i].id != 0)
			continue;
		d->held[i].id = m->id;
		d->held[i].fd = fd;
		return;
	}
}

static void receive(struct driver *d)
{
	struct webhook_message m;
	int r;

	while ((r = webhook_receive(d->hook, &m)) == 1) {
		if (m.type == WEBHOOK_WANT)
			connect_for(d, &m);
		else
			forget_sockets(d, m.id);
	}
	if (r < 0) {
		fprintf(stderr, "gone: %s\n", strerror(-r));
		restart(d);
	}
}

static void say_state(const struct driver *d)
{
	const struct webhook_state s = webhook_state(d->hook);
	size_t held = 0;

	for (size_t i = 0; i < WEBHOOK_SOCKETS_MAX; i++)
		held += d->held[i].id != 0;
	printf("{\"sent\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"dropped\": %" PRIu64
	       ", \"retried\": %" PRIu64 ", \"held\": %zu}\n",
	       s.counters[WEBHOOK_SENT], s.counters[WEBHOOK_FAILED],
	       s.counters[WEBHOOK_DROPPED], s.counters[WEBHOOK_RETRIED], held);
	fflush(stdout);
}

static void obey(struct driver *d, char *order)
{
	order[strcspn(order, "\n")] = '\0';
	if (strncmp(order, "deny ", 5) == 0)
		webhook_denied(d->hook, UINT32_MAX, order + 5, clock_wall_ms());
	else if (strcmp(order, "state") == 0)
		say_state(d);
	else if (strcmp(order, "restart") == 0)
		restart(d);
	else if (strcmp(order, "refuse") == 0)
		d->refuse = true;
	else if (strcmp(order, "serve") == 0)
		d->refuse = false;
	else if (strcmp(order, "pid") == 0)
		printf("%d\n", d->pid), fflush(stdout);
}

static bool turn(struct driver *d)
{
	const bool waits = webhook_flush(d->hook) == -EAGAIN;
	struct pollfd fds[] = {
		{ STDIN_FILENO, POLLIN, 0 },
		{ d->fd, (short)(POLLIN | (waits ? POLLOUT : 0)), 0 },
	};
	char order[1024];

	poll(fds, 2, -1);
	if (fds[1].revents & (POLLIN | POLLHUP | POLLERR))
		receive(d);
	if (!(fds[0].revents & (POLLIN | POLLHUP)))
		return true;
	if (!fgets(order, sizeof(order), stdin))
		return false;
	obey(d, order);
	return true;
}

int main(int argc, char **argv)
{
	struct driver d = { .program = argv[1] };
	struct err err = { 0 };

	if (argc < 4 || webhook_new((const char *const *)argv + 3, (size_t)argc - 3,
				    argv[2], &d.hook, &err) < 0) {
		fprintf(stderr, "%s\n", err.text);
		return 2;
	}
	setvbuf(stdin, NULL, _IONBF, 0); /* poll() sees what is there */
	start(&d);
	while (turn(&d))
		;
	webhook_free(d.hook);
	waitpid(d.pid, NULL, 0);
	return 0;
}
