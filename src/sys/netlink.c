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
