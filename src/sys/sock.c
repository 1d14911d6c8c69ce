// SPDX-License-Identifier: Apache-2.0
#include "sys/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

/* After netinet/in.h, which has the same names as the kernel's. */
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/text.h"
#include "sys/files.h"
#include "sys/process.h"

enum {
	LISTEN_BACKLOG = 512,
	/* A burst of queries waits here while a commit is under way.
	 * The kernel lets a burst of four times `queries_per_second` through to the
	 * socket that all sandboxes of a host share (filter/rules.c): 20,000 by default,
	 * of 768 bytes each. The kernel doubles the number, and takes memory for what
	 * waits alone. */
	DNS_RECEIVE_BYTES = 8 * 1024 * 1024,
	AGAIN_MS = 20,	/* a port that is in use is tried again */
	WAIT_US = 1000, /* sock_limit_wait(); the kernel counts in ticks of up to 10 ms */
};

void sandbox_fds_init(struct sandbox_fds *s)
{
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		s->fd[i] = -1;
}

void sandbox_fds_done(struct sandbox_fds *s)
{
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++)
		clean_fd(&s->fd[i]);
	sandbox_fds_init(s);
}

int sandbox_fds_dont_wait(const struct sandbox_fds *s)
{
	int r = 0;

	for (size_t i = 0; i < SANDBOX_FD_COUNT && r == 0; i++)
		if (s->fd[i] >= 0)
			r = process_dont_wait(s->fd[i]);
	return r;
}

int sandbox_netlink_open(int *ret, struct err *err)
{
	struct sockaddr_nl sa = { .nl_family = AF_NETLINK };
	CLEAN(fd)
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK,
			NETLINK_NETFILTER);

	if (fd < 0)
		return err_sys(err, -errno, "cannot open a netfilter socket");
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return err_sys(err, -errno, "cannot bind a netfilter socket");
	*ret = TAKE_FD(fd);
	return 0;
}

int sock_serve(int fd, const struct sockaddr *sa, socklen_t size, int backlog,
	       int64_t until_ms)
{
	bool is_bound = false;

	/* Two that share an address only meet when both of them listen. */
	for (;;) {
		is_bound = is_bound || bind(fd, sa, size) == 0;
		if (is_bound && (backlog == 0 || listen(fd, backlog) == 0))
			return 0;
		if (errno != EADDRINUSE || clock_now_ms() >= until_ms)
			return -errno;
		(void)!poll(NULL, 0, AGAIN_MS);
	}
}

uint32_t sock_port_count(void)
{
	static const char path[] = "/proc/sys/net/ipv4/ip_local_port_range";
	const struct file_how how = { .max_bytes = 64, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	uint32_t first, last;
	struct text rest, word;

	if (file_read(AT_FDCWD, path, &how, &file, NULL) < 0)
		return 0;
	rest = text_trim((struct text){ file.bytes, file.size });
	if (!text_split(&rest, '\t', &word) || !text_to_u32(word, UINT16_MAX, &first) ||
	    !text_to_u32(text_trim(rest), UINT16_MAX, &last) || last < first)
		return 0;
	return last - first + 1;
}

bool sock_listens(int fd)
{
	socklen_t size = sizeof(int);
	int listens = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens;
}

bool sock_is_channel(int fd)
{
	socklen_t size = sizeof(int);
	int type = 0;

	return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
	       type == SOCK_SEQPACKET;
}

bool sock_is_of(int fd, enum addr_family family, uint8_t protocol)
{
	const int wanted = family == ADDR_V6 ? AF_INET6 : AF_INET;
	socklen_t size = sizeof(int), other_size = sizeof(int);
	int domain = 0, found = 0;

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &found, &other_size) == 0 &&
	       domain == wanted && found == protocol;
}

int sock_limit_wait(int fd)
{
	const struct timeval wait = { .tv_usec = WAIT_US };

	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0)
		return -errno;
	return 0;
}

void sock_reset(int fd)
{
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	(void)!connect(fd, &nobody, sizeof(nobody));
}

/* 127.0.0.1 or ::1, and no other: a wildcard would answer from the wrong source. */
static int loopback_open(int family, int type, const struct sandbox_ports *ports,
			 uint16_t port, int *ret, struct err *err)
{
	int backlog = type == SOCK_STREAM ? LISTEN_BACKLOG : 0;
	const int bytes = DNS_RECEIVE_BYTES;
	const uint8_t six[16] = { [15] = 1 };
	struct endpoint e = { .port = port };
	CLEAN(fd) int fd = -1;
	struct sockaddr_storage sa;
	socklen_t size;
	int on = 1, r;

	e.addr = family == AF_INET ? addr_v4(127, 0, 0, 1)
				   : addr_from_bytes(ADDR_V6, six);
	size = endpoint_to_sockaddr(&e, &sa);
	fd = socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, -errno, "cannot open a loopback socket");
	if (family == AF_INET6 &&
	    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0)
		return err_sys(err, -errno, "cannot set IPV6_V6ONLY");
	/* Connections of the process before, which the kernel keeps for a minute, keep
	 * nobody out; whoever listens does. UDP has no such connections, and would share
	 * the port with everybody. */
	if (type == SOCK_STREAM &&
	    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return err_sys(err, -errno, "cannot set SO_REUSEADDR");
	r = sock_serve(fd, (struct sockaddr *)&sa, size, backlog, ports->until_ms);
	if (r < 0)
		return err_sys(err, r, "cannot bind loopback port %u", port);
	/* Capped at net.core.rmem_max where we may not go over it: less is fine. */
	if (type == SOCK_DGRAM &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes)) < 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0)
		return err_sys(err, -errno, "cannot set SO_RCVBUF");
	*ret = TAKE_FD(fd);
	return 0;
}

int sandbox_fds_open(struct sandbox_fds *ret, const struct sandbox_ports *ports,
		     bool ipv6, struct err *err)
{
	struct sandbox_fds s;
	int r;

	sandbox_fds_init(&s);
	r = sandbox_netlink_open(&s.fd[SANDBOX_FD_NETLINK], err);
	if (r == 0)
		r = sandbox_netlink_open(&s.fd[SANDBOX_FD_NFLOG], err);
	if (r == 0)
		r = loopback_open(AF_INET, SOCK_DGRAM, ports, ports->dns,
				  &s.fd[SANDBOX_FD_DNS_UDP4], err);
	if (r == 0)
		r = loopback_open(AF_INET, SOCK_STREAM, ports, ports->dns,
				  &s.fd[SANDBOX_FD_DNS_TCP4], err);
	if (r == 0 && ports->relay > 0)
		r = loopback_open(AF_INET, SOCK_STREAM, ports, ports->relay,
				  &s.fd[SANDBOX_FD_RELAY4], err);
	if (r == 0 && ipv6)
		r = loopback_open(AF_INET6, SOCK_DGRAM, ports, ports->dns,
				  &s.fd[SANDBOX_FD_DNS_UDP6], err);
	if (r == 0 && ipv6)
		r = loopback_open(AF_INET6, SOCK_STREAM, ports, ports->dns,
				  &s.fd[SANDBOX_FD_DNS_TCP6], err);
	if (r == 0 && ipv6 && ports->relay > 0)
		r = loopback_open(AF_INET6, SOCK_STREAM, ports, ports->relay,
				  &s.fd[SANDBOX_FD_RELAY6], err);
	if (r < 0)
		sandbox_fds_done(&s);
	else
		*ret = s;
	return r;
}

enum { FDS_MAX = 32 }; /* in one message */

int sock_here(int fd, struct endpoint *ret)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t size = sizeof(sa);

	if (getsockname(fd, (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	*ret = endpoint_from_sockaddr(&sa);
	return 0;
}

int sock_peer(int fd, struct endpoint *ret)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t size = sizeof(sa);

	if (getpeername(fd, (struct sockaddr *)&sa, &size) < 0)
		return -errno;
	*ret = endpoint_from_sockaddr(&sa);
	return 0;
}

int sock_original(int fd, struct endpoint *ret_here, struct endpoint *ret_asked)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t size = sizeof(sa);
	struct endpoint asked;
	int r = sock_here(fd, ret_here);

	if (r < 0)
		return r;
	*ret_asked = *ret_here;
	if (ret_here->addr.family == ADDR_V4)
		r = getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, &sa, &size);
	else
		r = getsockopt(fd, IPPROTO_IPV6, IP6T_SO_ORIGINAL_DST, &sa, &size);
	asked = endpoint_from_sockaddr(&sa);
	if (r < 0 || asked.addr.family != ret_here->addr.family)
		return 0;
	*ret_asked = asked;
	return 1;
}

int sock_ends(int fd, struct endpoint *ret_from, struct endpoint *ret_to)
{
	struct endpoint here, from;
	int r = sock_peer(fd, &from);

	if (r == 0)
		r = MIN(sock_original(fd, &here, ret_to), 0);
	if (r == 0)
		*ret_from = from;
	return r;
}

ssize_t fds_send(int sock, const void *bytes, size_t size, const int *fds, size_t count)
{
	union {
		char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	if (count > FDS_MAX)
		return -E2BIG;
	if (count > 0) {
		struct cmsghdr *c;

		msg.msg_control = control.room;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
		c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(c), fds, count * sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Every descriptor that came, so that none is lost when the message is refused. */
static size_t rights_take(struct msghdr *msg, int *ret, size_t max)
{
	size_t count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (count < max)
				ret[count++] = fd;
			else
				close(fd);
		}
	}
	return count;
}

ssize_t fds_receive(int sock, void *bytes, size_t size, int *ret_fds, size_t max,
		    size_t *ret_count)
{
	union {
		char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
		struct cmsghdr align;
	} control;
	struct iovec iov = { .iov_base = bytes, .iov_len = size };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.room,
			      .msg_controllen = sizeof(control.room) };
	int fds[FDS_MAX];
	size_t count;
	ssize_t n;

	/* A peer that ends with something unread resets the socket. The kernel says so
	 * once, and before what the peer had sent. */
	do
		n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	if (n < 0)
		return -errno;
	count = rights_take(&msg, fds, FDS_MAX);
	/* Descriptors beside no bytes at all would be lost as an end of file. */
	if ((msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) || count > max ||
	    (n == 0 && count > 0)) {
		for (size_t i = 0; i < count; i++)
			close(fds[i]);
		return -EBADMSG;
	}
	if (count > 0)
		memcpy(ret_fds, fds, count * sizeof(int));
	*ret_count = count;
	return n;
}

/* ---- ports of Weir's own ----
 *
 * A port that the kernel chose at bind() goes back to it as soon as the connection is
 * over: refused, reset by the peer. The filter would still let packets from there pass,
 * and whoever binds it then could use that. A port that bind() was asked for stays with
 * the socket until it is closed. So a socket that is closed again finds a free port, and
 * the one that is to be held asks for it by number. */

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
	struct endpoint here;
	int r = fd < 0 ? -errno : bind_port(fd, family, 0);

	if (r == 0)
		r = sock_here(fd, &here);
	return r < 0 ? r : here.port;
}

int own_hold(const struct own_ports *o, int fd, enum addr_family family, uint8_t protocol)
{
	int port = 0, r = -EADDRINUSE;

	if (o->mark == 0)
		return 0;
	if ((family != ADDR_V4 && family != ADDR_V6) ||
	    (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP) || !o->hold)
		return -EINVAL;
	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &o->mark, sizeof(o->mark)) < 0)
		return -errno;
	for (int i = 0; i < TRIES && r == -EADDRINUSE; i++) {
		port = find_port(family, protocol);
		if (port <= 0)
			return port < 0 ? port : -EADDRINUSE;
		r = bind_port(fd, family, (uint16_t)port);
	}
	if (r < 0)
		return r;
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
