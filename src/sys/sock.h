// SPDX-License-Identifier: Apache-2.0
/* sys/sock - the sockets that are made inside a sandbox's network namespace and
 * passed to the engine, which serves them from outside; and those of Weir's own that
 * leave by such a namespace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/err.h"

/* In the order in which they are passed. A slot that the namespace can't have (no
 * IPv6) is -1 and its bit in the message that goes with them is clear. */
enum sandbox_fd {
	SANDBOX_FD_NETLINK = 0, /* NETLINK_NETFILTER: owns the table */
	SANDBOX_FD_NFLOG,
	SANDBOX_FD_DNS_UDP4,
	SANDBOX_FD_DNS_UDP6,
	SANDBOX_FD_DNS_TCP4, /* listening */
	SANDBOX_FD_DNS_TCP6,
	SANDBOX_FD_RELAY4, /* listening; absent without relay */
	SANDBOX_FD_RELAY6,
	SANDBOX_FD_COUNT
};

struct sandbox_fds {
	int fd[SANDBOX_FD_COUNT];
};

void sandbox_fds_init(struct sandbox_fds *s); /* all -1 */
void sandbox_fds_done(struct sandbox_fds *s); /* closes what is open */
/* No call on any of them waits from now on, whatever another process that had them has
 * made of that. Return: 0 or -errno. */
int sandbox_fds_dont_wait(const struct sandbox_fds *s) MUST_CHECK;

/* How many ports this namespace's connections leave from, as far as nobody binds others
 * (ip_local_port_range). 0: that can't be read. */
uint32_t sock_port_count(void);

/* On 127.0.0.1 and ::1 of the namespace. */
struct sandbox_ports {
	uint16_t dns;	/* UDP and TCP */
	uint16_t relay; /* 0: none */
	/* clock_now_ms(): until then a port that is in use is tried again; 0: once */
	int64_t until_ms;
};

/* A bound NETLINK_NETFILTER socket in the caller's namespace; non-blocking. */
int sandbox_netlink_open(int *ret, struct err *err) MUST_CHECK;

/* Open all of them in the namespace that the caller is in; non-blocking, close-on-exec.
 * Ports below 1024 need CAP_NET_BIND_SERVICE over it. */
int sandbox_fds_open(struct sandbox_fds *ret, const struct sandbox_ports *ports,
		     bool ipv6, struct err *err) MUST_CHECK;

/* Bind @fd to @sa, and listen with @backlog; 0: not yet, or never. What is in use may be
 * a process that is just ending: it is tried again until @until_ms.
 * Return: 0, or -errno. */
int sock_serve(int fd, const struct sockaddr *sa, socklen_t size, int backlog,
	       int64_t until_ms) MUST_CHECK;
/* Is @fd a socket that listens? */
bool sock_listens(int fd);
/* Is @fd a SOCK_SEQPACKET, as Weir starts its programs with? */
bool sock_is_channel(int fd);
/* Is @fd a socket of that family and of that protocol, IPPROTO_TCP or IPPROTO_UDP? */
bool sock_is_of(int fd, enum addr_family family, uint8_t protocol);

/* A call that waits on @fd waits for a few milliseconds at most from now on. Another
 * process that has the socket as well may let calls on it wait (O_NONBLOCK is the
 * socket's), but has to be allowed setsockopt() to lift this limit. Return: 0 or -errno.
 */
int sock_limit_wait(int fd) MUST_CHECK;

/* End the TCP connection of @fd by a reset, now; @fd stays open. SO_LINGER does that as
 * well, but lets whoever has it also keep another process waiting in close(): any that is
 * sent the socket. So it isn't among the engine's options. Where this fails, close() ends
 * the connection in the ordinary way. */
void sock_reset(int fd);

/* The address that @fd is bound to. Return: 0 or -errno. */
int sock_here(int fd, struct endpoint *ret) MUST_CHECK;
/* The one that it is connected to. */
int sock_peer(int fd, struct endpoint *ret) MUST_CHECK;
/* Of a connection that came in: our own end, and where it was going before a redirect.
 * Return: 1; 0, it was not redirected: both are our own end; -errno. */
int sock_original(int fd, struct endpoint *ret_here,
		  struct endpoint *ret_asked) MUST_CHECK;
/* Of a connection that came in: who it is from, and where it was going before a
 * redirect. Return: 0, or -errno with nothing written. */
int sock_ends(int fd, struct endpoint *ret_from, struct endpoint *ret_to) MUST_CHECK;

/* Send @count descriptors and @size bytes as one message over a SOCK_SEQPACKET or
 * SOCK_STREAM unix socket; receive the same. Received descriptors are close-on-exec.
 * Return: bytes, 0 at end of file, also where the peer left something unread, or -errno;
 * -EBADMSG when the kernel cut the message or the control data (what came is closed). */
ssize_t fds_send(int sock, const void *bytes, size_t size, const int *fds,
		 size_t count) MUST_CHECK;
ssize_t fds_receive(int sock, void *bytes, size_t size, int *ret_fds, size_t max,
		    size_t *ret_count) MUST_CHECK;

/* Weir's own sockets in a namespace that it shares with the sandbox.
 *
 * Their packets cross the sandbox's filter and are exempt there by three things together:
 * a mark, Weir's uid, and a local port that Weir holds bound and has told the filter of.
 * The port is bound without SO_REUSEADDR and SO_REUSEPORT and stays bound until the
 * socket is closed, whatever becomes of its connection; the filter is told before the
 * first packet, and told again before the port is let go.
 *
 * It is bound on the wildcard address, but connect() narrows the socket to the address
 * that it sends from: where the namespace has several of a family, the same port of
 * another of them can be bound meanwhile by others. Those still have to have mark and uid
 * to pass, which takes NET_RAW and SETUID.
 *
 * TCP ports rest in TIME_WAIT for a minute after a connection that we closed first: a
 * machine with 28,000 ephemeral ports has them for some 470 such connections a second.
 * Beyond that own_hold() says -EADDRINUSE. */
struct own_ports {
	uint32_t mark; /* 0: sockets are not marked, and no port is held */
	void *data;
	/* Tell the filter. 0: from now on packets from there pass; or -errno. */
	int (*hold)(void *data, enum addr_family family, uint8_t protocol, uint16_t port);
	void (*let_go)(void *data, enum addr_family family, uint8_t protocol,
		       uint16_t port);
};

/* Mark @fd, a new socket, bind it to a port of its own and hold that. Nothing with
 * mark 0. Return: the port (0 with mark 0), or -errno, and nothing is held. */
int own_hold(const struct own_ports *o, int fd, enum addr_family family,
	     uint8_t protocol) MUST_CHECK;
/* Before @fd is closed; @port is what own_hold() gave. A TCP socket is shut down first,
 * so that its last segment still passes. */
void own_let_go(const struct own_ports *o, int fd, enum addr_family family,
		uint8_t protocol, uint16_t port);
