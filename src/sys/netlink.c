// SPDX-License-Identifier: Apache-2.0
#include "sys/netlink.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/inet_diag.h>

enum {
	DRAIN_MAX = 4096, /* datagrams; a full receive buffer holds fewer */
	MAPPED_AT = 12,	  /* bytes before the IPv4 address in ::ffff:0:0/96 */
};

int nl_port_id(int fd, const char *what, uint32_t *ret, struct err *err)
{
	struct sockaddr_nl self;
	socklen_t size = sizeof(self);

	if (getsockname(fd, (struct sockaddr *)&self, &size) < 0)
		return err_sys(err, -errno, "cannot use the %s socket", what);
	if (size != sizeof(self) || self.nl_family != AF_NETLINK || self.nl_pid == 0)
		return err_set(
			err, -EINVAL,
			"cannot use the %s socket: it is not a bound netlink socket",
			what);
	*ret = self.nl_pid;
	return 0;
}

/* ---- messages, written ---- */

struct nl_writer nl_writer(void *bytes, size_t capacity, uint32_t first_seq)
{
	return (struct nl_writer){
		.bytes = bytes,
		.capacity = bytes ? capacity : 0,
		.seq = first_seq,
		.first = first_seq,
		.grows = !bytes,
	};
}

void nl_writer_done(struct nl_writer *w)
{
	if (w->grows)
		free(w->bytes);
	*w = (struct nl_writer){ 0 };
}

/* Room for @size bytes, to be filled, and zeros behind them. NULL after a failure. */
static void *take(struct nl_writer *w, size_t size)
{
	size_t padded = NLMSG_ALIGN(size);
	uint8_t *p;

	if (w->failed)
		return NULL;
	if (w->capacity - w->size < padded) {
		size_t capacity = MAX(w->capacity * 2, w->size + padded + 4096);
		bool fits = w->grows && capacity <= NL_BATCH_MAX;
		uint8_t *bytes = fits ? realloc(w->bytes, capacity) : NULL;

		if (!bytes) {
			w->failed = fits ? -ENOMEM : -E2BIG;
			return NULL;
		}
		w->bytes = bytes;
		w->capacity = capacity;
	}
	p = w->bytes + w->size;
	memset(p + padded - NLMSG_ALIGNTO, 0, NLMSG_ALIGNTO);
	w->size += padded;
	return p;
}

void *nl_put_room(struct nl_writer *w, size_t size)
{
	void *room = take(w, size);

	return room ? memset(room, 0, size) : NULL;
}

void *nl_begin(struct nl_writer *w, uint16_t type, uint16_t flags, size_t size)
{
	const size_t at = w->size;
	uint8_t *room = nl_put_room(w, NLMSG_HDRLEN + size);

	if (!room)
		return NULL;
	w->message = at;
	*nl_header(w) = (struct nlmsghdr){ .nlmsg_type = type,
					   .nlmsg_flags = NLM_F_REQUEST | flags,
					   .nlmsg_seq = w->seq };
	return room + NLMSG_HDRLEN;
}

struct nlmsghdr *nl_header(const struct nl_writer *w)
{
	return (struct nlmsghdr *)(void *)(w->bytes + w->message);
}

void nl_end(struct nl_writer *w)
{
	if (w->failed)
		return;
	nl_header(w)->nlmsg_len = (uint32_t)(w->size - w->message);
	w->seq++;
}

void nl_put(struct nl_writer *w, uint16_t type, const void *data, size_t size)
{
	struct nlattr *a;

	if (size > UINT16_MAX - NLA_HDRLEN) {
		w->failed = w->failed ? w->failed : -E2BIG;
		return;
	}
	a = take(w, NLA_HDRLEN + size);
	if (!a)
		return;
	a->nla_type = type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	if (size > 0)
		memcpy((uint8_t *)a + NLA_HDRLEN, data, size);
}

void nl_put_text(struct nl_writer *w, uint16_t type, const char *text)
{
	nl_put(w, type, text, strlen(text) + 1);
}

void nl_put_u8(struct nl_writer *w, uint16_t type, uint8_t v)
{
	nl_put(w, type, &v, sizeof(v));
}

void nl_put_u32(struct nl_writer *w, uint16_t type, uint32_t v)
{
	nl_put(w, type, &v, sizeof(v));
}

void nl_put_be16(struct nl_writer *w, uint16_t type, uint16_t v)
{
	uint16_t be = htobe16(v);

	nl_put(w, type, &be, sizeof(be));
}

void nl_put_be32(struct nl_writer *w, uint16_t type, uint32_t v)
{
	uint32_t be = htobe32(v);

	nl_put(w, type, &be, sizeof(be));
}

void nl_put_be64(struct nl_writer *w, uint16_t type, uint64_t v)
{
	uint64_t be = htobe64(v);

	nl_put(w, type, &be, sizeof(be));
}

size_t nl_nest(struct nl_writer *w, uint16_t type)
{
	size_t at = w->size;

	nl_put(w, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void nl_nest_end(struct nl_writer *w, size_t nest)
{
	if (w->failed)
		return;
	if (w->size - nest > UINT16_MAX)
		w->failed = -E2BIG;
	else
		((struct nlattr *)(void *)(w->bytes + nest))->nla_len =
			(uint16_t)(w->size - nest);
}

void *nl_request_begin(struct nl_request *q, uint16_t type, uint16_t flags, size_t size)
{
	q->writer = nl_writer(q->buf, sizeof(q->buf), 0);
	return nl_begin(&q->writer, type, flags, size);
}

/* ---- datagrams ---- */

void nl_drain(int fd)
{
	uint8_t buf[NL_REPLY_SIZE];

	for (int i = 0; i < DRAIN_MAX; i++)
		if (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) < 0 && errno != EINTR &&
		    errno != ENOBUFS)
			return;
}

int nl_send(int fd, const void *bytes, size_t size)
{
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	ssize_t n;

	do {
		n = sendto(fd, bytes, size, MSG_NOSIGNAL, (struct sockaddr *)&kernel,
			   sizeof(kernel));
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EMSGSIZE;
}

ssize_t nl_receive(int fd, void *buf, size_t size)
{
	struct sockaddr_nl from = { 0 };
	socklen_t from_size = sizeof(from);
	ssize_t n;

	do {
		n = recvfrom(fd, buf, size, MSG_DONTWAIT | MSG_TRUNC,
			     (struct sockaddr *)&from, &from_size);
	} while ((n < 0 && errno == EINTR) || (n >= 0 && from.nl_pid != 0));
	if (n < 0)
		return -errno;
	return n == 0 || (size_t)n > size ? -EBADMSG : n;
}

int nl_answer_read(const void *bytes, size_t size, nl_message_fn *fn, void *data)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;
	int r = 0;

	while (r == 0 && (h = nl_take(&at, &size))) {
		const struct nlmsgerr *said = nl_body(h, sizeof(*said));

		if (h->nlmsg_flags & NLM_F_DUMP_INTR)
			r = -EINTR;
		else if (h->nlmsg_type == NLMSG_ERROR && !said)
			r = -EBADMSG;
		else if (h->nlmsg_type == NLMSG_ERROR && said->error != 0)
			r = -abs(said->error);
		else if (h->nlmsg_type == NLMSG_ERROR || h->nlmsg_type == NLMSG_DONE)
			r = 1;
		else if (h->nlmsg_type >= NLMSG_MIN_TYPE && fn)
			r = fn(h, data);
	}
	return r;
}

int nl_run(int fd, struct nl_request *q, nl_message_fn *fn, void *data)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NL_REPLY_SIZE];
	struct nl_writer *w = &q->writer;
	bool lists = !w->failed && nl_header(w)->nlmsg_flags & NLM_F_DUMP;
	int r;

	nl_end(w);
	if (!w->failed)
		nl_drain(fd);
	r = w->failed ? w->failed : nl_send(fd, w->bytes, w->size);
	if (r < 0)
		return r;
	do {
		ssize_t n = nl_receive(fd, buf, sizeof(buf));

		r = n < 0 ? (int)n : nl_answer_read(buf, (size_t)n, fn, data);
	} while (r == 0 && lists); /* else there is one answer */
	return MIN(r, 0);
}

/* ---- sock_diag ---- */

int nl_diag_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? -errno : fd;
}

int nl_diag_run(int fd, uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *q,
		nl_message_fn *fn, void *data)
{
	struct nl_request request;

	memcpy(nl_request_begin(&request, type, flags, sizeof(*q)), q, sizeof(*q));
	return nl_run(fd, &request, fn, data);
}

/* An IPv6 socket's IPv4 address is one. */
struct endpoint nl_diag_end(uint8_t family, const uint32_t addr[4], uint16_t port)
{
	static const uint8_t mapped[MAPPED_AT] = { [10] = 0xff, [11] = 0xff };
	const uint8_t *bytes = (const void *)addr;
	struct endpoint e = { .port = be16toh(port) };

	if (family == AF_INET)
		e.addr = addr_from_bytes(ADDR_V4, bytes);
	else if (memcmp(bytes, mapped, sizeof(mapped)) == 0)
		e.addr = addr_from_bytes(ADDR_V4, bytes + MAPPED_AT);
	else
		e.addr = addr_from_bytes(ADDR_V6, bytes);
	return e;
}

/* ---- messages, read ---- */

const struct nlmsghdr *nl_take(const uint8_t **bytes, size_t *left)
{
	const struct nlmsghdr *h = (const void *)*bytes;
	size_t step;

	if (*left < sizeof(*h) || h->nlmsg_len < sizeof(*h) || h->nlmsg_len > *left)
		return NULL;
	step = MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), *left);
	*bytes += step;
	*left -= step;
	return h;
}

const void *nl_body(const struct nlmsghdr *h, size_t size)
{
	return h->nlmsg_len - NLMSG_HDRLEN < size ? NULL
						  : (const uint8_t *)h + NLMSG_HDRLEN;
}

const struct nlattr *nl_take_attr(const uint8_t **bytes, size_t *left)
{
	const struct nlattr *a = (const void *)*bytes;
	size_t step;

	if (*left < sizeof(*a) || a->nla_len < sizeof(*a) || a->nla_len > *left)
		return NULL;
	step = MIN((size_t)NLA_ALIGN(a->nla_len), *left);
	*bytes += step;
	*left -= step;
	return a;
}

static bool read_attrs(const uint8_t *bytes, size_t size, struct nl_attrs *ret)
{
	const struct nlattr *a;

	*ret = (struct nl_attrs){ 0 };
	while ((a = nl_take_attr(&bytes, &size)))
		if (nl_type(a) < NL_ATTR_MAX)
			ret->at[nl_type(a)] = a;
	return size == 0;
}

bool nl_attrs_of(const struct nlmsghdr *h, size_t size, struct nl_attrs *ret)
{
	const size_t start = NLMSG_HDRLEN + NLMSG_ALIGN(size);

	*ret = (struct nl_attrs){ 0 };
	return h->nlmsg_len >= start &&
	       read_attrs((const uint8_t *)h + start, h->nlmsg_len - start, ret);
}

bool nl_attrs_nested(const struct nlattr *nest, struct nl_attrs *ret)
{
	*ret = (struct nl_attrs){ 0 };
	return nest && read_attrs(nl_data(nest), nl_size(nest), ret);
}

bool nl_get_u32(const struct nlattr *a, uint32_t *ret)
{
	uint32_t be;

	if (!a || nl_size(a) != sizeof(be))
		return false;
	memcpy(&be, nl_data(a), sizeof(be));
	*ret = be32toh(be);
	return true;
}

bool nl_get_u64(const struct nlattr *a, uint64_t *ret)
{
	uint64_t be;

	if (!a || nl_size(a) != sizeof(be))
		return false;
	memcpy(&be, nl_data(a), sizeof(be));
	*ret = be64toh(be);
	return true;
}

const char *nl_get_text(const struct nlattr *a)
{
	size_t len = a ? nl_size(a) : 0;
	const char *text = len > 0 ? nl_data(a) : "";

	return len > 0 && text[len - 1] != '\0' ? "" : text;
}
