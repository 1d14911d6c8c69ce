// SPDX-License-Identifier: Apache-2.0
/* sys/netlink - what all users of netlink sockets have in common: messages are written, a
 * request goes to the kernel, datagrams come back, messages and attributes are read from
 * them. Linked with libmnl, each start of `weir run` would map and relocate that library,
 * and no distribution has it for a program that is linked statically.
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
	NL_BATCH_MAX = 256 << 20,  /* bytes of all messages of a writer; more is -E2BIG */
};

/* The port of @fd, a bound netlink socket that @what is the name of; -EINVAL: it isn't.
 */
int nl_port_id(int fd, const char *what, uint32_t *ret, struct err *err) MUST_CHECK;
/* Drop what an earlier user of the socket has left unread: its sequence numbers are those
 * that will be used again. The rest of a dump counts. */
void nl_drain(int fd);

/* ---- messages, written: the first failure sticks ---- */

struct nl_writer {
	uint8_t *bytes;
	size_t size, capacity;
	size_t message; /* where the open message starts */
	uint32_t seq;	/* of the open message */
	uint32_t first; /* of the batch */
	bool grows;	/* bytes are malloc'ed and owned */
	int failed;	/* 0 or -errno; sticks */
};

/* Over @bytes of the caller's, or with @bytes NULL over memory that grows. */
struct nl_writer nl_writer(void *bytes, size_t capacity, uint32_t first_seq);
void nl_writer_done(struct nl_writer *w);
static inline void clean_nl_writer(struct nl_writer *w)
{
	nl_writer_done(w);
}

/* Begin a message. Return: what follows its header, @size bytes that are 0; NULL after a
 * failure. */
void *nl_begin(struct nl_writer *w, uint16_t type, uint16_t flags, size_t size);
/* The header of the open message, of a writer that hasn't failed. */
struct nlmsghdr *nl_header(const struct nl_writer *w);
void nl_end(struct nl_writer *w);
/* Return: @size bytes that are 0, to be filled; NULL after a failure. */
void *nl_put_room(struct nl_writer *w, size_t size);
void nl_put(struct nl_writer *w, uint16_t type, const void *data, size_t size);
void nl_put_text(struct nl_writer *w, uint16_t type, const char *text);
void nl_put_u8(struct nl_writer *w, uint16_t type, uint8_t v);
void nl_put_u32(struct nl_writer *w, uint16_t type, uint32_t v);
void nl_put_be16(struct nl_writer *w, uint16_t type, uint16_t v);
void nl_put_be32(struct nl_writer *w, uint16_t type, uint32_t v);
void nl_put_be64(struct nl_writer *w, uint16_t type, uint64_t v);
/* Return: what nl_nest_end() wants. */
size_t nl_nest(struct nl_writer *w, uint16_t type);
void nl_nest_end(struct nl_writer *w, size_t nest);

/* One message, in a buffer on the caller's stack. */
struct nl_request {
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nl_writer writer;
};
/* Return: what follows the header, @size bytes that are 0. */
void *nl_request_begin(struct nl_request *q, uint16_t type, uint16_t flags, size_t size);

/* ---- datagrams ---- */

int nl_send(int fd, const void *bytes, size_t size) MUST_CHECK;
/* The next datagram that the kernel has sent. Return: its size, not 0; or -errno, -EAGAIN
 * when there is none, -EBADMSG when it doesn't fit. */
ssize_t nl_receive(int fd, void *buf, size_t size) MUST_CHECK;
/* Of each message of an answer, by its type at least a header long. Return: 0: go on; 1:
 * what is left of the answer isn't wanted; -errno: that is the end, and the result. */
typedef int nl_message_fn(const struct nlmsghdr *h, void *data);
/* Close and send the message in @q, and call @fn, which may be NULL, for each one of the
 * answer. What is left of an answer before, whoever asked for that, is dropped first.
 * Return: 0 or -errno; -EINTR: what was listed changed meanwhile. */
int nl_run(int fd, struct nl_request *q, nl_message_fn *fn, void *data) MUST_CHECK;
/* The messages of one datagram of such an answer. Return: 0: more is to come; 1: that was
 * all; -errno. */
int nl_answer_read(const void *bytes, size_t size, nl_message_fn *fn,
		   void *data) MUST_CHECK;

/* A socket to ask by (sock_diag), of the network namespace that this process is in.
 * Return: a descriptor, or -errno. */
int nl_diag_open(void) MUST_CHECK;
/* nl_run() with the request @q of @type. */
struct inet_diag_req_v2;
int nl_diag_run(int fd, uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *q,
		nl_message_fn *fn, void *data) MUST_CHECK;
/* One end of a socket as sock_diag has it. */
struct endpoint nl_diag_end(uint8_t family, const uint32_t addr[4], uint16_t port);

/* ---- messages, read ---- */

/* The message at *@bytes, which moves behind it, as *@left does. NULL: no message fits
 * there; *@left is 0 at the end of a sound datagram. */
const struct nlmsghdr *nl_take(const uint8_t **bytes, size_t *left);
/* What follows the header of @h; NULL: not even @size bytes do. */
const void *nl_body(const struct nlmsghdr *h, size_t size);

/* The attribute at *@bytes, which moves behind it, as *@left does. NULL: no attribute
 * fits there; *@left is 0 at the end of sound ones. */
const struct nlattr *nl_take_attr(const uint8_t **bytes, size_t *left);
static inline uint16_t nl_type(const struct nlattr *a)
{
	return a->nla_type & NLA_TYPE_MASK;
}
static inline size_t nl_size(const struct nlattr *a)
{
	return a->nla_len - (size_t)NLA_HDRLEN;
}
static inline const void *nl_data(const struct nlattr *a)
{
	return (const uint8_t *)a + NLA_HDRLEN;
}

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
