// SPDX-License-Identifier: Apache-2.0
/* relay_bare - the least that a DNS hop can do: batches in, batches out, an id swapped,
 * no policy, no cache, one connected socket to the upstream. What Weir's cost per query
 * is held against.
 *
 *   relay_bare ADDRESS PORT UPSTREAM PORT */
#include <arpa/inet.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { BATCH = 32, SIZE = 1536, IDS = 65536 };

struct batch {
	struct mmsghdr headers[BATCH];
	struct iovec vectors[BATCH];
	struct sockaddr_in peers[BATCH];
	uint8_t bytes[BATCH][SIZE];
};

static struct {
	struct sockaddr_in peer;
	uint16_t id;
} waiting[IDS];
static struct batch batch;
static uint16_t next_id;

static int receive(int fd, int with_peer)
{
	for (int i = 0; i < BATCH; i++) {
		batch.vectors[i] = (struct iovec){ batch.bytes[i], SIZE };
		batch.headers[i].msg_hdr =
			(struct msghdr){ .msg_name = with_peer ? &batch.peers[i] : NULL,
					 .msg_namelen = with_peer ? sizeof(batch.peers[i])
								  : 0,
					 .msg_iov = &batch.vectors[i],
					 .msg_iovlen = 1 };
	}
	return recvmmsg(fd, batch.headers, BATCH, MSG_DONTWAIT, NULL);
}

static void send_all(int fd, int count)
{
	for (int done = 0; done < count;) {
		int r = sendmmsg(fd, batch.headers + done, (unsigned int)(count - done),
				 0);

		done += r > 0 ? r : 1;
	}
}

static void forward(int client, int upstream)
{
	int n = receive(client, 1);

	for (int i = 0; i < n; i++) {
		uint16_t id = next_id++;

		waiting[id].peer = batch.peers[i];
		memcpy(&waiting[id].id, batch.bytes[i], 2);
		memcpy(batch.bytes[i], &id, 2);
		batch.vectors[i].iov_len = batch.headers[i].msg_len;
		batch.headers[i].msg_hdr.msg_name = NULL;
		batch.headers[i].msg_hdr.msg_namelen = 0;
	}
	send_all(upstream, n);
}

static void back(int client, int upstream)
{
	int n = receive(upstream, 0);

	for (int i = 0; i < n; i++) {
		uint16_t id;

		memcpy(&id, batch.bytes[i], 2);
		memcpy(batch.bytes[i], &waiting[id].id, 2);
		batch.vectors[i].iov_len = batch.headers[i].msg_len;
		batch.headers[i].msg_hdr.msg_name = &waiting[id].peer;
		batch.headers[i].msg_hdr.msg_namelen = sizeof(waiting[id].peer);
	}
	send_all(client, n);
}

static struct sockaddr_in endpoint(char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (inet_pton(AF_INET, argv[0], &at.sin_addr) != 1)
		exit(2);
	at.sin_port = htons((uint16_t)atoi(argv[1]));
	return at;
}

int main(int argc, char **argv)
{
	int client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int upstream = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int epoll = epoll_create1(EPOLL_CLOEXEC), room = 4 << 20;
	struct sockaddr_in at, to;

	if (argc != 5)
		return 2;
	at = endpoint(argv + 1);
	to = endpoint(argv + 3);
	setsockopt(client, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
	if (bind(client, (struct sockaddr *)&at, sizeof(at)) < 0 ||
	    connect(upstream, (struct sockaddr *)&to, sizeof(to)) < 0) {
		perror("relay_bare");
		return 1;
	}
	epoll_ctl(epoll, EPOLL_CTL_ADD, client,
		  &(struct epoll_event){ .events = EPOLLIN, .data.fd = client });
	epoll_ctl(epoll, EPOLL_CTL_ADD, upstream,
		  &(struct epoll_event){ .events = EPOLLIN, .data.fd = upstream });
	for (;;) {
		struct epoll_event events[2];
		int n = epoll_wait(epoll, events, 2, -1);

		for (int i = 0; i < n; i++)
			(events[i].data.fd == client ? forward : back)(client, upstream);
	}
}
