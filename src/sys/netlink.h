// SPDX-License-Identifier: Apache-2.0
/* sys/netlink - what all users of netlink sockets have in common: a request goes to the
 * kernel, datagrams come back, messages and attributes are read from them.
 *
 * The kernel answers while it is in sendmsg(), and goes on with a dump while it is in
 * recvmsg(): what is to be read is queued already, and nothing here ever waits. */
#pragma once

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/err.h"

enum {
	NL_ATTR_MAX = 64,	   /* attributes of one level that are looked at */
	NL_REQUEST_SIZE = 512,	   /* the largest request here is below 300 bytes */
	NL_REPLY_SIZE = 32 * 1024, /* the kernel's largest dump datagram */
};

/* The port of @fd, a bound netlink socket that @what is the name of; -EINVAL: it isn't.
 */
int nl_port_id(int fd, const char *what, uint32_t *ret, struct err *err) MUST_CHECK;
/* Drop what an earlier user of the socket has left unread: its sequence numbers are those
 * that will be used again. The rest of a dump counts. */
void nl_drain(int fd);

/* A request under construction, in a buffer on the caller's stack. */
struct nl_request {
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *header;
};
/* Return: what follows the header, @size bytes that are 0. */
void *nl_request_begin(struct nl_request *q, uint16_t type, uint16_t flags, size_t size);

int nl_send(int fd, const void *bytes, size_t size) MUST_CHECK;
/* The next datagram that the kernel has sent. Return: its size, not 0; or -errno, -EAGAIN
 * when there is none, -EBADMSG when it doesn't fit. */
ssize_t nl_receive(int fd, void *buf, size_t size) MUST_CHECK;
/* Send @request and call @fn, libmnl's way, for each message of the answer. Return: 0 or
 * -errno. */
int nl_run(int fd, const struct nlmsghdr *request,
	   int (*fn)(const struct nlmsghdr *h, void *data), void *data) MUST_CHECK;

/* A socket to ask by (sock_diag), of the network namespace that this process is in.
 * Return: a descriptor, or -errno. */
int nl_diag_open(void) MUST_CHECK;
/* nl_run() with the request @q of @type. */
struct inet_diag_req_v2;
int nl_diag_run(int fd, uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *q,
		int (*fn)(const struct nlmsghdr *h, void *data), void *data) MUST_CHECK;
/* One end of a socket as sock_diag has it. */
struct endpoint nl_diag_end(uint8_t family, const uint32_t addr[4], uint16_t port);

/* The message at *@bytes, which moves behind it, as *@left does. NULL: no message fits
 * there; *@left is 0 at the end of a sound datagram. (libmnl's check takes a length
 * over 2^31 for a negative number, and lets it pass.) */
const struct nlmsghdr *nl_take(const uint8_t **bytes, size_t *left);

/* A message's attributes, by type; NULL where there is none. */
struct nl_attrs {
	const struct nlattr *at[NL_ATTR_MAX];
};
/* Of the message @h, behind its header and one of @size bytes. False: they are malformed,
 * or the message ends before them. */
bool nl_attrs_of(const struct nlmsghdr *h, size_t size, struct nl_attrs *ret);
bool nl_attrs_nested(const struct nlattr *nest, struct nl_attrs *ret);
/* Values of attributes that may be missing or short: false then. */
bool nl_get_u32(const struct nlattr *a, uint32_t *ret);
bool nl_get_u64(const struct nlattr *a, uint64_t *ret);
/* "" for a missing one or one without its NUL. */
const char *nl_get_text(const struct nlattr *a);
