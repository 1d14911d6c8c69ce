// SPDX-License-Identifier: Apache-2.0
#include "sidecar/healthy.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

static const char request[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
			      "Connection: close\r\n\r\n";
static const char healthy[] = "HTTP/1.1 200 ";

/* Both directions, and the connecting, each. */
static int set_timeout(int fd)
{
	const struct timeval wait = { .tv_sec = HEALTHY_WAIT_MS / 1000 };

	return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
			       setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait,
					  sizeof(wait)) < 0
		       ? -errno
		       : 0;
}

int healthy_ask(const struct sidecar_spec *spec, struct err *err)
{
	struct endpoint e = spec->http;
	struct sockaddr_storage sa;
	char answer[sizeof(healthy) - 1];
	CLEAN(fd) int fd = -1;
	socklen_t size;
	ssize_t n;

	if (e.addr.family == ADDR_NONE)
		e.addr = addr_v4(127, 0, 0, 1);
	size = endpoint_to_sockaddr(&e, &sa);
	fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || set_timeout(fd) < 0)
		return err_sys(err, -errno, "cannot open a socket");
	if (connect(fd, (const struct sockaddr *)&sa, size) < 0)
		return err_sys(err, -errno, "cannot reach the sidecar");
	if (send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) < 0)
		return err_sys(err, -errno, "cannot ask the sidecar");
	n = recv(fd, answer, sizeof(answer), MSG_WAITALL);
	if (n < 0)
		return err_sys(err, -errno, "the sidecar does not answer");
	if (n != sizeof(answer) || memcmp(answer, healthy, sizeof(answer)) != 0)
		return err_set(err, -EAGAIN, "the sidecar is not healthy");
	return 0;
}
