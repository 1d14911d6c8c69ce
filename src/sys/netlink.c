// SPDX-License-Identifier: Apache-2.0
#include "sys/netlink.h"

#include <errno.h>
#include <libmnl/libmnl.h>
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

/* ---- datagrams ---- */

void nl_drain(int fd)
{
	uint8_t buf[NL_REPLY_SIZE];

	for (int i = 0; i < DRAIN_MAX; i++)
		if (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) < 0 && errno != EINTR &&
		    errno != ENOBUFS)
			return;
}

void *nl_request_begin(struct nl_request *q, uint16_t type, uint16_t flags, size_t size)
{
	q->header = mnl_nlmsg_put_header(q->buf);
	q->header->nlmsg_type = type;
	q->header->nlmsg_flags = NLM_F_REQUEST | flags;
	return mnl_nlmsg_put_extra_header(q->header, size);
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

int nl_run(int fd, const struct nlmsghdr *request,
	   int (*fn)(const struct nlmsghdr *h, void *data), void *data)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NL_REPLY_SIZE];
	int more = MNL_CB_OK, r = nl_send(fd, request, request->nlmsg_len);

	while (r == 0 && more > MNL_CB_STOP) {
		ssize_t n = nl_receive(fd, buf, sizeof(buf));

		if (n < 0)
			return (int)n;
		more = mnl_cb_run(buf, (size_t)n, request->nlmsg_seq, 0, fn, data);
		if (more < 0)
			r = -errno;
		if (!(request->nlmsg_flags & NLM_F_DUMP))
			break; /* one answer */
	}
	return r;
}

/* ---- sock_diag ---- */

int nl_diag_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	return fd < 0 ? -errno : fd;
}

int nl_diag_run(int fd, uint16_t type, uint16_t flags, const struct inet_diag_req_v2 *q,
		int (*fn)(const struct nlmsghdr *h, void *data), void *data)
{
	struct nl_request request;

	memcpy(nl_request_begin(&request, type, flags, sizeof(*q)), q, sizeof(*q));
	return nl_run(fd, request.header, fn, data);
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

/* ---- messages ---- */

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

static bool read_attrs(const void *bytes, size_t size, struct nl_attrs *ret)
{
	const struct nlattr *a = bytes;
	int left = (int)size;

	*ret = (struct nl_attrs){ 0 };
	for (; left > 0; a = mnl_attr_next(a)) {
		uint16_t type, step;

		if (!mnl_attr_ok(a, left))
			return false;
		type = mnl_attr_get_type(a);
		if (type < NL_ATTR_MAX)
			ret->at[type] = a;
		step = (uint16_t)MIN((int)MNL_ALIGN(a->nla_len), left);
		left -= step;
	}
	return true;
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
	return nest && read_attrs(mnl_attr_get_payload(nest),
				  mnl_attr_get_payload_len(nest), ret);
}

bool nl_get_u32(const struct nlattr *a, uint32_t *ret)
{
	uint32_t be;

	if (!a || mnl_attr_get_payload_len(a) != sizeof(be))
		return false;
	memcpy(&be, mnl_attr_get_payload(a), sizeof(be));
	*ret = be32toh(be);
	return true;
}

bool nl_get_u64(const struct nlattr *a, uint64_t *ret)
{
	uint64_t be;

	if (!a || mnl_attr_get_payload_len(a) != sizeof(be))
		return false;
	memcpy(&be, mnl_attr_get_payload(a), sizeof(be));
	*ret = be64toh(be);
	return true;
}

const char *nl_get_text(const struct nlattr *a)
{
	uint16_t len = a ? mnl_attr_get_payload_len(a) : 0;
	const char *text = len > 0 ? mnl_attr_get_payload(a) : "";

	return len > 0 && text[len - 1] != '\0' ? "" : text;
}

/* ---- libmnl ----
 *
 * What Weir calls of it, and nothing else, with its declarations. Weir builds each
 * message in a buffer that is large enough by its own count, so these functions check no
 * end of it. What they read is the kernel's answer: no attribute is taken that isn't
 * whole, and a length counts as what it is, not as a signed number. With the library each
 * start of `weir run` maps and relocates it, and no distribution has it for a program
 * that is linked statically. */

/* ---- messages ---- */

static void *at(const void *start, size_t offset)
{
	return (uint8_t *)(uintptr_t)start + offset;
}

/* Take @size bytes at the end of the message @h, all zero. */
static void *put_room(struct nlmsghdr *h, size_t size)
{
	void *room = at(h, MNL_ALIGN(h->nlmsg_len));

	h->nlmsg_len = MNL_ALIGN(h->nlmsg_len) + (uint32_t)MNL_ALIGN(size);
	return memset(room, 0, MNL_ALIGN(size));
}

struct nlmsghdr *mnl_nlmsg_put_header(void *buf)
{
	struct nlmsghdr *h = memset(buf, 0, MNL_NLMSG_HDRLEN);

	h->nlmsg_len = MNL_NLMSG_HDRLEN;
	return h;
}

void *mnl_nlmsg_put_extra_header(struct nlmsghdr *h, size_t size)
{
	return put_room(h, size);
}

void *mnl_nlmsg_get_payload(const struct nlmsghdr *h)
{
	return at(h, MNL_NLMSG_HDRLEN);
}

size_t mnl_nlmsg_get_payload_len(const struct nlmsghdr *h)
{
	return h->nlmsg_len - MNL_NLMSG_HDRLEN;
}

/* What the message @h, which is not data, says. */
static int read_control(const struct nlmsghdr *h)
{
	const struct nlmsgerr *said = mnl_nlmsg_get_payload(h);

	if (h->nlmsg_type == NLMSG_DONE)
		return MNL_CB_STOP;
	if (h->nlmsg_type != NLMSG_ERROR)
		return MNL_CB_OK;
	if (mnl_nlmsg_get_payload_len(h) < sizeof(*said)) {
		errno = EBADMSG;
		return MNL_CB_ERROR;
	}
	errno = said->error < 0 ? -said->error : said->error;
	return errno == 0 ? MNL_CB_STOP : MNL_CB_ERROR;
}

static int read_message(const struct nlmsghdr *h, unsigned int seq, mnl_cb_t on_message,
			void *data)
{
	if (seq != 0 && h->nlmsg_seq != 0 && h->nlmsg_seq != seq)
		errno = EPROTO;
	else if (h->nlmsg_flags & NLM_F_DUMP_INTR)
		errno = EINTR; /* what was listed changed meanwhile */
	else if (h->nlmsg_type >= NLMSG_MIN_TYPE)
		return on_message ? on_message(h, data) : MNL_CB_OK;
	else
		return read_control(h);
	return MNL_CB_ERROR;
}

int mnl_cb_run(const void *buf, size_t left, unsigned int seq, unsigned int port,
	       mnl_cb_t on_message, void *data)
{
	int more = MNL_CB_OK;

	while (more > MNL_CB_STOP && left >= MNL_NLMSG_HDRLEN) {
		const struct nlmsghdr *h = buf;
		size_t size = MNL_ALIGN((size_t)h->nlmsg_len);

		if (h->nlmsg_len < MNL_NLMSG_HDRLEN || h->nlmsg_len > left)
			break;
		more = read_message(h, seq, on_message, data);
		size = size < left ? size : left;
		buf = at(buf, size);
		left -= size;
	}
	return more;
}

/* ---- attributes, written ---- */

static struct nlattr *put_attr(struct nlmsghdr *h, uint16_t type, size_t size)
{
	struct nlattr *a = put_room(h, MNL_ATTR_HDRLEN + size);

	a->nla_type = type;
	a->nla_len = (uint16_t)(MNL_ATTR_HDRLEN + size);
	return a;
}

void mnl_attr_put(struct nlmsghdr *h, uint16_t type, size_t size, const void *data)
{
	struct nlattr *a = put_attr(h, type, size);

	if (size > 0)
		memcpy(mnl_attr_get_payload(a), data, size);
}

void mnl_attr_put_u8(struct nlmsghdr *h, uint16_t type, uint8_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_u16(struct nlmsghdr *h, uint16_t type, uint16_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_u32(struct nlmsghdr *h, uint16_t type, uint32_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_strz(struct nlmsghdr *h, uint16_t type, const char *text)
{
	mnl_attr_put(h, type, strlen(text) + 1, text);
}

struct nlattr *mnl_attr_nest_start(struct nlmsghdr *h, uint16_t type)
{
	return put_attr(h, NLA_F_NESTED | type, 0);
}

void mnl_attr_nest_end(struct nlmsghdr *h, struct nlattr *nest)
{
	nest->nla_len = (uint16_t)((uint8_t *)at(h, h->nlmsg_len) - (uint8_t *)nest);
}

/* ---- attributes, read ---- */

uint16_t mnl_attr_get_type(const struct nlattr *a)
{
	return a->nla_type & NLA_TYPE_MASK;
}

uint16_t mnl_attr_get_payload_len(const struct nlattr *a)
{
	return (uint16_t)(a->nla_len - MNL_ATTR_HDRLEN);
}

void *mnl_attr_get_payload(const struct nlattr *a)
{
	return at(a, MNL_ATTR_HDRLEN);
}

bool mnl_attr_ok(const struct nlattr *a, int left)
{
	return left >= (int)MNL_ATTR_HDRLEN && a->nla_len >= MNL_ATTR_HDRLEN &&
	       a->nla_len <= left;
}

struct nlattr *mnl_attr_next(const struct nlattr *a)
{
	return at(a, MNL_ALIGN(a->nla_len));
}
