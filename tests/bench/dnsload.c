// SPDX-License-Identifier: Apache-2.0
/* dnsload - asks a DNS server and measures how long its answers take.
 *
 *   dnsload ADDRESS PORT SECONDS OUTSTANDING RATE NAMES SUFFIX CPU
 *
 * With RATE 0 the loop is closed: OUTSTANDING questions are always under way. Otherwise
 * RATE questions leave each second whatever comes back, and the time of an answer counts
 * from when its question was due. NAMES distinct names are asked in turn, nINDEX.SUFFIX;
 * 0: each is new. The client's ports are fixed and lie outside the ephemeral range, so
 * that no conntrack entry of another program is met. One line of JSON. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "question.h"

enum {
	SOCKETS = 8,
	FIRST_PORT = 20000,
	IDS = 65536,
	BATCH = 32,
	SIZE = 1536,
	SLOT_NS = 1000,	     /* of the histogram */
	SLOTS = 1000 * 1000, /* one second */
	LOST_NS = 1000 * 1000 * 1000,
};

struct client {
	int fd;
	uint16_t next_id;
	int64_t sent_ns[IDS]; /* 0: nothing is awaited */
};

static struct client clients[SOCKETS];
static uint32_t histogram[SLOTS];
static uint64_t sent, answered, lost, rcodes[16];
static long outstanding, names;
static uint64_t next_name;
static const char *suffix;

static void ask(struct client *c, int64_t due_ns)
{
	uint8_t bytes[512];
	uint16_t id = c->next_id++;
	uint64_t index = names > 0 ? next_name++ % (uint64_t)names : next_name++;
	size_t size = write_question(bytes, id, index, suffix);

	if (c->sent_ns[id])
		lost++;
	else
		outstanding++;
	c->sent_ns[id] = due_ns;
	if (send(c->fd, bytes, size, 0) < 0 && errno != ECONNREFUSED)
		perror("send");
	sent++;
}

static void note(struct client *c, const uint8_t *bytes, int64_t at_ns)
{
	uint16_t id = (uint16_t)(bytes[0] << 8 | bytes[1]);
	int64_t slot;

	if (!c->sent_ns[id])
		return;
	slot = (at_ns - c->sent_ns[id]) / SLOT_NS;
	histogram[slot < SLOTS ? slot : SLOTS - 1]++;
	c->sent_ns[id] = 0;
	outstanding--;
	answered++;
	rcodes[bytes[3] & 15]++;
}

static int receive(struct client *c)
{
	static uint8_t bytes[BATCH][SIZE];
	struct mmsghdr headers[BATCH] = { 0 };
	struct iovec vectors[BATCH];
	int64_t at_ns;
	int n;

	for (int i = 0; i < BATCH; i++) {
		vectors[i] = (struct iovec){ bytes[i], SIZE };
		headers[i].msg_hdr.msg_iov = &vectors[i];
		headers[i].msg_hdr.msg_iovlen = 1;
	}
	n = recvmmsg(c->fd, headers, BATCH, MSG_DONTWAIT, NULL);
	at_ns = now_ns();
	for (int i = 0; i < n; i++)
		if (headers[i].msg_len >= 12)
			note(c, bytes[i], at_ns);
	return n > 0 ? n : 0;
}

/* Questions that were never answered don't hold up a closed loop. */
static void forget_lost(int64_t at_ns)
{
	for (int i = 0; i < SOCKETS; i++)
		for (int id = 0; id < IDS; id++) {
			int64_t *t = &clients[i].sent_ns[id];

			if (*t == 0 || at_ns - *t < LOST_NS)
				continue;
			*t = 0;
			lost++;
			outstanding--;
		}
}

static void run(double seconds, long window, double rate)
{
	int64_t start = now_ns(), end = start + (int64_t)(seconds * 1e9);
	int64_t looked = start;
	struct pollfd polls[SOCKETS];
	uint64_t due = 0;
	unsigned int turn = 0;

	for (int i = 0; i < SOCKETS; i++)
		polls[i] = (struct pollfd){ .fd = clients[i].fd, .events = POLLIN };
	for (int64_t now = start; now < end; now = now_ns()) {
		if (rate > 0) {
			while (start + (int64_t)((double)due * 1e9 / rate) <= now)
				ask(&clients[turn++ % SOCKETS],
				    start + (int64_t)((double)due++ * 1e9 / rate));
		} else {
			while (outstanding < window)
				ask(&clients[turn++ % SOCKETS], now_ns());
		}
		if (poll(polls, SOCKETS, rate > 0 ? 0 : 100) > 0)
			for (int i = 0; i < SOCKETS; i++)
				if (polls[i].revents)
					receive(&clients[i]);
		if (now - looked > LOST_NS) {
			forget_lost(now);
			looked = now;
		}
	}
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

static void open_clients(const struct sockaddr_in *server)
{
	int room = 4 << 20;

	for (int i = 0; i < SOCKETS; i++) {
		struct sockaddr_in self = { .sin_family = AF_INET,
					    .sin_port =
						    htons((uint16_t)(FIRST_PORT + i)) };

		clients[i].fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		setsockopt(clients[i].fd, SOL_SOCKET, SO_RCVBUFFORCE, &room,
			   sizeof(room));
		if (bind(clients[i].fd, (struct sockaddr *)&self, sizeof(self)) < 0 ||
		    connect(clients[i].fd, (const struct sockaddr *)server,
			    sizeof(*server)) < 0) {
			perror("dnsload");
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in server = { .sin_family = AF_INET };
	double seconds;
	cpu_set_t cpus;

	if (argc != 9 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fputs("usage: dnsload ADDRESS PORT SECONDS OUTSTANDING RATE NAMES SUFFIX "
		      "CPU\n",
		      stderr);
		return 2;
	}
	server.sin_port = htons((uint16_t)atoi(argv[2]));
	seconds = atof(argv[3]);
	names = atol(argv[6]);
	suffix = argv[7];
	CPU_ZERO(&cpus);
	CPU_SET((size_t)atoi(argv[8]), &cpus);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	open_clients(&server);
	run(seconds, atol(argv[4]), atof(argv[5]));
	printf("{\"sent\": %llu, \"answered\": %llu, \"lost\": %llu, \"qps\": %.0f, "
	       "\"p50_us\": %.0f, \"p99_us\": %.0f, \"p999_us\": %.0f, \"noerror\": "
	       "%llu, "
	       "\"servfail\": %llu, \"nxdomain\": %llu}\n",
	       (unsigned long long)sent, (unsigned long long)answered,
	       (unsigned long long)lost, (double)answered / seconds, percentile(0.5),
	       percentile(0.99), percentile(0.999), (unsigned long long)rcodes[0],
	       (unsigned long long)rcodes[2], (unsigned long long)rcodes[3]);
	return 0;
}
