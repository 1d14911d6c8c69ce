// SPDX-License-Identifier: Apache-2.0
/* dnsfleet - many sandboxes ask at once, or one of them floods.
 *
 *   dnsfleet ask ADDRESS PORT SECONDS RATE NAMES SUFFIX CPU < LIST
 *   dnsfleet flood ADDRESS PORT SECONDS SUFFIX CPU < LIST
 *
 * LIST has a sandbox in each line: `netns PATH`, `cgroup PATH` (of the directory) or
 * `uid NUMBER`; a socket is made in each of them.
 *
 * ask: RATE questions leave each second, whatever comes back, one sandbox after the
 * other, and the time of an answer counts from when its question was due. Each sandbox
 * asks for NAMES names in turn, nINDEX.SUFFIX; 0: each is new. One line of JSON.
 *
 * flood: the first sandbox of the list, as fast as it can: questions, UDP packets and TCP
 * connections that its policy doesn't allow. One line of JSON: how many. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "question.h"

enum {
	IDS = 65536,
	MEMBERS_MAX = 65536,
	SIZE = 1536,
	SLOT_NS = 1000,	     /* of the histogram */
	SLOTS = 1000 * 1000, /* one second */
	LOST_NS = 1000 * 1000 * 1000,
	EVENTS = 256,
	FLOOD_ROUND = 16, /* of each kind */
	WAIT_MIN_NS = 100 * 1000,
	CALM_RATE = 5000, /* questions a second, between which others can run */
};

struct member {
	int fd;
	uint32_t next_name;
};

static struct member members[MEMBERS_MAX];
static size_t member_count;
static struct {
	int64_t sent_ns; /* 0: nothing is awaited */
} waiting[IDS];
static uint16_t next_id;
static uint32_t histogram[SLOTS];
static uint64_t sent, answered, lost, refused, rcodes[16], next_new;
static long names;
static const char *suffix;

static void die(const char *what)
{
	perror(what);
	_exit(1);
}

/* ---- into the sandboxes ---- */

static int open_socket(int type)
{
	int fd = socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		die("socket");
	return fd;
}

/* By a child that begins its life there and shares our descriptors: to move about through
 * thousands takes seconds. */
static int open_in_cgroup(const char *where)
{
	int cgroup = open(where, O_PATH | O_DIRECTORY | O_CLOEXEC), next = dup(cgroup);
	struct clone_args args = {
		.flags = CLONE_INTO_CGROUP | CLONE_FILES | CLONE_VFORK,
		.exit_signal = SIGCHLD,
		.cgroup = (uint64_t)cgroup,
	};
	int status;
	long pid;

	close(next); /* the number that the socket gets */
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		_exit(open_socket(SOCK_DGRAM) != next);
	if (cgroup < 0 || pid < 0 || waitpid((pid_t)pid, &status, 0) != pid ||
	    status != 0)
		die(where);
	close(cgroup);
	return next;
}

/* The socket of whoever is meant; the flood's other ones are made in there, too. */
static int open_as(const char *kind, const char *where, bool stays)
{
	char path[512];
	int fd;

	if (strcmp(kind, "netns") == 0) {
		fd = open(where, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
			die(where);
		close(fd);
	} else if (strcmp(kind, "cgroup") == 0 && !stays) {
		return open_in_cgroup(where);
	} else if (strcmp(kind, "cgroup") == 0) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", where);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			die(path);
		close(fd);
	} else {
		setfsuid((uid_t)strtoul(where, NULL, 10));
	}
	return open_socket(SOCK_DGRAM);
}

/* Stays in the first one with @only_first. */
static void open_members(const struct sockaddr_in *server, bool only_first)
{
	char kind[16], where[480];

	while (member_count < MEMBERS_MAX && scanf("%15s %479s", kind, where) == 2) {
		struct member *m = &members[member_count++];

		m->fd = open_as(kind, where, only_first);
		if (connect(m->fd, (const struct sockaddr *)server, sizeof(*server)) < 0)
			die(where);
		if (only_first)
			break;
	}
	if (member_count == 0)
		die("no sandbox");
}

/* ---- questions ---- */

static void ask(struct member *m, int64_t due_ns)
{
	uint8_t bytes[512];
	uint16_t id = next_id++;
	uint64_t index = names > 0 ? m->next_name++ % (uint64_t)names : next_new++;
	size_t size = write_question(bytes, id, index, suffix);

	if (waiting[id].sent_ns)
		lost++;
	waiting[id].sent_ns = due_ns;
	if (send(m->fd, bytes, size, 0) < 0)
		refused++;
	sent++;
}

static void note(const uint8_t *bytes, int64_t at_ns)
{
	uint16_t id = (uint16_t)(bytes[0] << 8 | bytes[1]);
	int64_t slot;

	if (!waiting[id].sent_ns)
		return;
	slot = (at_ns - waiting[id].sent_ns) / SLOT_NS;
	histogram[slot < SLOTS ? slot : SLOTS - 1]++;
	waiting[id].sent_ns = 0;
	answered++;
	rcodes[bytes[3] & 15]++;
}

/* Where there is time before the next question, others may have the processor. */
static void receive(int epoll, int64_t until_ns)
{
	struct epoll_event events[EVENTS];
	int64_t left_ns = until_ns - now_ns();
	struct timespec wait = { .tv_nsec = left_ns > WAIT_MIN_NS ? left_ns : 0 };
	int n = epoll_pwait2(epoll, events, EVENTS, &wait, NULL);
	uint8_t bytes[SIZE];

	for (int i = 0; i < n; i++)
		while (recv(members[events[i].data.u32].fd, bytes, sizeof(bytes), 0) >=
		       12)
			note(bytes, now_ns());
}

static void run(double seconds, double rate)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int64_t start, end;
	uint64_t due = 0;
	size_t turn = 0;

	for (size_t i = 0; i < member_count; i++) {
		struct epoll_event e = { .events = EPOLLIN, .data.u32 = (uint32_t)i };

		if (epoll_ctl(epoll, EPOLL_CTL_ADD, members[i].fd, &e) < 0)
			die("epoll");
	}
	start = now_ns();
	end = start + (int64_t)(seconds * 1e9);
	for (int64_t now = start; now < end + LOST_NS / 4; now = now_ns()) {
		int64_t due_ns = start + (int64_t)((double)due * 1e9 / rate);

		for (; due_ns <= now && due_ns < end; due++) {
			ask(&members[turn++ % member_count], due_ns);
			due_ns = start + (int64_t)((double)(due + 1) * 1e9 / rate);
		}
		receive(epoll, due_ns < end ? due_ns : now + WAIT_MIN_NS);
	}
	for (size_t id = 0; id < IDS; id++)
		lost += waiting[id].sent_ns != 0;
}

static double percentile(double share)
{
	uint64_t want = (uint64_t)((double)answered * share), have = 0;

	for (long i = 0; i < SLOTS; i++) {
		have += histogram[i];
		if (have > want)
			return (double)(i + 1) * SLOT_NS / 1000;
	}
	return 0;
}

static void print_answers(double seconds)
{
	printf("{\"sandboxes\": %zu, \"sent\": %llu, \"answered\": %llu, \"lost\": %llu, "
	       "\"refused\": %llu, \"qps\": %.0f, \"p50_us\": %.0f, \"p99_us\": %.0f, "
	       "\"p999_us\": %.0f, \"noerror\": %llu, \"servfail\": %llu, "
	       "\"nxdomain\": %llu}\n",
	       member_count, (unsigned long long)sent, (unsigned long long)answered,
	       (unsigned long long)lost, (unsigned long long)refused,
	       (double)answered / seconds, percentile(0.5), percentile(0.99),
	       percentile(0.999), (unsigned long long)rcodes[0],
	       (unsigned long long)rcodes[2], (unsigned long long)rcodes[3]);
}

/* ---- the flood ---- */

static void flood(double seconds)
{
	const struct sockaddr_in nowhere = { .sin_family = AF_INET,
					     .sin_port = htons(443),
					     .sin_addr.s_addr = htonl(0x5db8d822) };
	const struct sockaddr *to = (const struct sockaddr *)&nowhere;
	int64_t end = now_ns() + (int64_t)(seconds * 1e9);
	uint64_t packets = 0, connections = 0;
	int udp = open_socket(SOCK_DGRAM);
	uint8_t bytes[SIZE];

	while (now_ns() < end) {
		for (int i = 0; i < FLOOD_ROUND; i++) {
			int tcp = open_socket(SOCK_STREAM);

			ask(&members[0], 1);
			packets += sendto(udp, bytes, 64, MSG_DONTWAIT, to,
					  sizeof(nowhere)) < 0;
			connections += connect(tcp, to, sizeof(nowhere)) < 0;
			close(tcp);
		}
		while (recv(members[0].fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
			answered++;
	}
	printf("{\"questions\": %llu, \"answers\": %llu, \"packets\": %llu, "
	       "\"connections\": %llu, \"a_second\": %.0f}\n",
	       (unsigned long long)sent, (unsigned long long)answered,
	       (unsigned long long)packets, (unsigned long long)connections,
	       (double)(sent + packets + connections) / seconds);
}

static void pin(const char *text)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((size_t)atoi(text), &cpus);
	if (atoi(text) >= 0)
		sched_setaffinity(0, sizeof(cpus), &cpus);
}

/* The clock of one that asks must not wait for one that floods. */
static void come_first(void)
{
	const struct sched_param first = { .sched_priority = 1 };

	if (sched_setscheduler(0, SCHED_FIFO, &first) < 0)
		setpriority(PRIO_PROCESS, 0, -20);
}

int main(int argc, char **argv)
{
	bool floods = argc == 7 && strcmp(argv[1], "flood") == 0;
	struct sockaddr_in server = { .sin_family = AF_INET };
	struct rlimit files;

	if (!(floods || (argc == 9 && strcmp(argv[1], "ask") == 0)) ||
	    inet_pton(AF_INET, argv[2], &server.sin_addr) != 1) {
		fputs("usage: dnsfleet ask ADDRESS PORT SECONDS RATE NAMES SUFFIX CPU\n"
		      "       dnsfleet flood ADDRESS PORT SECONDS SUFFIX CPU\n",
		      stderr);
		return 2;
	}
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	server.sin_port = htons((uint16_t)atoi(argv[3]));
	suffix = argv[floods ? 5 : 7];
	open_members(&server, floods);
	pin(argv[floods ? 6 : 8]);
	if (floods) {
		flood(atof(argv[4]));
		return 0;
	}
	names = atol(argv[6]);
	if (atof(argv[5]) <= CALM_RATE)
		come_first();
	run(atof(argv[4]), atof(argv[5]));
	print_answers(atof(argv[4]));
	return 0;
}
