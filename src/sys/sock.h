// SPDX-License-Identifier: Apache-2.0
/* sys/sock - the sockets that are made inside a sandbox's network namespace and
 * passed to the engine, which serves them from outside. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

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

struct endpoint;
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
