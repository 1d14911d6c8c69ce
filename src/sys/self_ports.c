// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A port that the kernel chose at bind() goes back to it as soon as the connection is
 * over: refused, reset by the peer. The filter would still let packets from there pass,
 * and whoever binds it then could use that. A port that bind() was asked for stays with
 * the socket until it is closed. So a socket that is closed again finds a free port, and
 * the one that is to be held asks for it by number. */
#include "sys/self_ports.h"

#include <errno.h>

enum { TRIES = 16 }; /* somebody else may take the port in between */

static int bind_port(int fd, enum addr_family family, uint16_t port)
{
	const struct endpoint e = {
		.addr = addr_from_bytes(family, (const uint8_t[16]){ 0 }),
		.port = port,
	};
	struct sockaddr_storage sa;
	socklen_t size = endpoint_to_sockaddr(&e, &sa);
	const int on = 1;

	if (family == ADDR_V6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return -errno;
	return bind(fd, (const struct sockaddr *)&sa, size) < 0 ? -errno : 0;
}

/* Return: a port that nobody has just now, or -errno. */
static int find_port(enum addr_family family, uint8_t protocol)
{
	int type = protocol == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM;
	CLEAN(fd)
	int fd = socket(family == ADDR_V6 ? AF_INET6 : AF_INET, type | SOCK_CLOEXEC,
			protocol);
	struct sockaddr_storage sa;
	socklen_t size = sizeof(sa);
	int r = fd < 0 ? -errno : bind_port(fd, family, 0);

	if (r < 0)
		return r;
	if (getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	return endpoint_from_sockaddr(&sa).port;
}

/* Return: the port that @fd now has, or -errno. */
static int bind_some_port(int fd, enum addr_family family, uint8_t protocol)
{
	int r = -EADDRINUSE;

	for (int i = 0; i < TRIES && r == -EADDRINUSE; i++) {
		int port = find_port(family, protocol);

		if (port <= 0)
			return port < 0 ? port : -EADDRINUSE;
		r = bind_port(fd, family, (uint16_t)port);
		if (r == 0)
			return port;
	}
	return r;
}

int own_hold(const struct own_ports *o, int fd, enum addr_family family, uint8_t protocol)
{
	int port, r;

	if (o->mark == 0)
		return 0;
	if ((family != ADDR_V4 && family != ADDR_V6) ||
	    (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || !o->hold)
		return -EINVAL;
	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &o->mark, sizeof(o->mark)) < 0)
		return -errno;
	port = bind_some_port(fd, family, protocol);
	if (port < 0)
		return port;
	r = o->hold(o->data, family, protocol, (uint16_t)port);
	return r < 0 ? r : port;
}

void own_let_go(const struct own_ports *o, int fd, enum addr_family family,
		uint8_t protocol, uint16_t port)
{
	if (o->mark == 0 || port == 0)
		return;
	/* Fails where there is no connection any more: then there is nothing to say. */
	if (protocol == IPPROTO_TCP)
		(void)shutdown(fd, SHUT_RDWR);
	o->let_go(o->data, family, protocol, port);
}
