// SPDX-License-Identifier: Apache-2.0
#include "sys/ctmark.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

enum {
	REPLY_SIZE = 8192, /* one entry */
	REPLIES_MAX = 4,   /* to one request; more is a kernel that we don't know */
	ATTRS_MAX = 32,	   /* attributes of one level that are looked at */
};

/* ---- asking ---- */

int ctmark_init(struct ctmark *c, int fd, struct err *err)
{
	struct sockaddr_nl self;
	socklen_t size = sizeof(self);

	if (getsockname(fd, (struct sockaddr *)&self, &size) < 0)
		return err_sys(err, -errno, "cannot use the conntrack socket");
	if (size != sizeof(self) || self.nl_family != AF_NETLINK || self.nl_pid == 0)
		return err_set(err, -EINVAL,
			       "cannot use the conntrack socket: it is not a bound "
			       "netlink socket");
	*c = (struct ctmark){ .fd = fd, .port_id = self.nl_pid };
	return 0;
}

void ctmark_done(struct ctmark *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void put_addrs(struct nlmsghdr *h, const struct addr *from, const struct addr *to)
{
	bool v4 = from->family == ADDR_V4;
	struct nlattr *ip = mnl_attr_nest_start(h, CTA_TUPLE_IP);

	mnl_attr_put(h, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, addr_size(from), from->bytes);
	mnl_attr_put(h, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, addr_size(to), to->bytes);
	mnl_attr_nest_end(h, ip);
}

/* The entry is known by its replies: they go from our end to the peer, whatever the
 * destination was before a redirect. */
static void put_request(struct nlmsghdr *h, uint32_t seq, const struct endpoint *local,
			const struct endpoint *peer)
{
	struct nlattr *tuple, *proto;
	struct nfgenmsg *g;

	h->nlmsg_type = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET;
	h->nlmsg_flags = NLM_F_REQUEST;
	h->nlmsg_seq = seq;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->nfgen_family = local->addr.family == ADDR_V4 ? AF_INET : AF_INET6;
	g->version = NFNETLINK_V0;
	tuple = mnl_attr_nest_start(h, CTA_TUPLE_REPLY);
	put_addrs(h, &local->addr, &peer->addr);
	proto = mnl_attr_nest_start(h, CTA_TUPLE_PROTO);
	mnl_attr_put_u8(h, CTA_PROTO_NUM, IPPROTO_TCP);
	mnl_attr_put_u16(h, CTA_PROTO_SRC_PORT, htobe16(local->port));
	mnl_attr_put_u16(h, CTA_PROTO_DST_PORT, htobe16(peer->port));
	mnl_attr_nest_end(h, proto);
	mnl_attr_nest_end(h, tuple);
}

static int ends_of(int socket, struct endpoint *local, struct endpoint *peer)
{
	struct sockaddr_storage here = { 0 }, there = { 0 };
	socklen_t here_size = sizeof(here), there_size = sizeof(there);

	if (getsockname(socket, (struct sockaddr *)&here, &here_size) < 0 ||
	    getpeername(socket, (struct sockaddr *)&there, &there_size) < 0)
		return -errno;
	*local = endpoint_from_sockaddr(&here);
	*peer = endpoint_from_sockaddr(&there);
	if (addr_size(&local->addr) == 0 || local->addr.family != peer->addr.family)
		return -EAFNOSUPPORT;
	return 0;
}

/* The answer is queued when the request has been sent. */
static ssize_t receive(int fd, void *buf, size_t size)
{
	struct sockaddr_nl from = { 0 };
	struct iovec iov = { buf, size };
	struct msghdr m = {
		.msg_name = &from,
		.msg_namelen = sizeof(from),
		.msg_iov = &iov,
		.msg_iovlen = 1,
	};
	ssize_t n;

	do {
		n = recvmsg(fd, &m, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return m.msg_flags & MSG_TRUNC || from.nl_pid != 0 ? -EBADMSG : n;
}

int ctmark_of_socket(struct ctmark *c, int socket, uint32_t *ret)
{
	_Alignas(struct nlmsghdr) uint8_t buf[REPLY_SIZE];
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct endpoint local, peer;
	int r = ends_of(socket, &local, &peer);

	if (r < 0)
		return r;
	put_request(h, ++c->seq, &local, &peer);
	if (sendto(c->fd, h, h->nlmsg_len, MSG_NOSIGNAL, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	for (int i = 0; i < REPLIES_MAX; i++) {
		ssize_t n = receive(c->fd, buf, sizeof(buf));

		if (n < 0)
			return (int)n;
		r = ctmark_read(buf, (size_t)n, c->port_id, c->seq, &local, &peer, ret);
		if (r <= 0)
			return r;
	}
	return -EBADMSG;
}

/* ---- reading ---- */

/* Attributes by their type; NULL where there is none. */
struct attrs {
	const struct nlattr *at[ATTRS_MAX];
};

static bool read_attrs(const void *bytes, size_t size, struct attrs *ret)
{
	const uint8_t *at = bytes;

	*ret = (struct attrs){ 0 };
	while (size > 0) {
		const struct nlattr *a = (const void *)at;
		size_t step;

		if (size < sizeof(*a) || a->nla_len < sizeof(*a) || a->nla_len > size)
			return false;
		if (mnl_attr_get_type(a) < ATTRS_MAX)
			ret->at[mnl_attr_get_type(a)] = a;
		step = MIN((size_t)MNL_ALIGN(a->nla_len), size);
		at += step;
		size -= step;
	}
	return true;
}

static bool read_nest(const struct nlattr *a, struct attrs *ret)
{
	return a && read_attrs(mnl_attr_get_payload(a), mnl_attr_get_payload_len(a), ret);
}

static bool is_bytes(const struct nlattr *a, const void *bytes, size_t size)
{
	return a && mnl_attr_get_payload_len(a) == size &&
	       memcmp(mnl_attr_get_payload(a), bytes, size) == 0;
}

static bool tuple_is(const struct nlattr *a, const struct endpoint *from,
		     const struct endpoint *to)
{
	const uint16_t from_port = htobe16(from->port), to_port = htobe16(to->port);
	const uint8_t tcp = IPPROTO_TCP;
	bool v4 = from->addr.family == ADDR_V4;
	size_t size = addr_size(&from->addr);
	struct attrs tuple, ip, proto;

	return read_nest(a, &tuple) && read_nest(tuple.at[CTA_TUPLE_IP], &ip) &&
	       read_nest(tuple.at[CTA_TUPLE_PROTO], &proto) &&
	       is_bytes(ip.at[v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC], from->addr.bytes,
			size) &&
	       is_bytes(ip.at[v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST], to->addr.bytes,
			size) &&
	       is_bytes(proto.at[CTA_PROTO_NUM], &tcp, sizeof(tcp)) &&
	       is_bytes(proto.at[CTA_PROTO_SRC_PORT], &from_port, sizeof(from_port)) &&
	       is_bytes(proto.at[CTA_PROTO_DST_PORT], &to_port, sizeof(to_port));
}

static int read_entry(const struct nlmsghdr *h, const struct endpoint *local,
		      const struct endpoint *peer, uint32_t *ret)
{
	const size_t headers = NLMSG_HDRLEN + MNL_ALIGN(sizeof(struct nfgenmsg));
	const struct nlattr *mark;
	struct attrs attrs;
	uint32_t be;

	if (h->nlmsg_len < headers ||
	    !read_attrs((const uint8_t *)h + headers, h->nlmsg_len - headers, &attrs) ||
	    !tuple_is(attrs.at[CTA_TUPLE_REPLY], local, peer))
		return -EBADMSG;
	mark = attrs.at[CTA_MARK];
	if (!mark || mnl_attr_get_payload_len(mark) != sizeof(be))
		return mark ? -EBADMSG : -ENOENT;
	memcpy(&be, mnl_attr_get_payload(mark), sizeof(be));
	*ret = be32toh(be);
	return 0;
}

static int read_error(const struct nlmsghdr *h)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

	if (h->nlmsg_len < NLMSG_HDRLEN + sizeof(*e) || e->error >= 0)
		return -EBADMSG; /* nobody asked for an acknowledgement */
	return e->error;
}

int ctmark_read(const void *bytes, size_t size, uint32_t port_id, uint32_t seq,
		const struct endpoint *local, const struct endpoint *peer, uint32_t *ret)
{
	const uint8_t *at = bytes;

	while (size > 0) {
		const struct nlmsghdr *h = (const void *)at;
		size_t step;

		if (size < sizeof(*h) || h->nlmsg_len < sizeof(*h) || h->nlmsg_len > size)
			return -EBADMSG;
		step = MIN((size_t)NLMSG_ALIGN(h->nlmsg_len), size);
		at += step;
		size -= step;
		if (h->nlmsg_pid != port_id || h->nlmsg_seq != seq)
			continue; /* of a request that was given up */
		if (h->nlmsg_type == NLMSG_ERROR)
			return read_error(h);
		if (h->nlmsg_type == (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW))
			return read_entry(h, local, peer, ret);
		return -EBADMSG;
	}
	return 1;
}

/* ---- who began ---- */

/* One that the kernel took up in the middle, with windows that it doesn't know, is marked
 * as that. What can't be read is none that was seen to begin. */
static bool was_seen_to_begin(const struct nlattr *protoinfo)
{
	struct nf_ct_tcp_flags flags;
	struct attrs info, tcp;
	const struct nlattr *a;

	if (!read_nest(protoinfo, &info) || !read_nest(info.at[CTA_PROTOINFO_TCP], &tcp))
		return false;
	a = tcp.at[CTA_PROTOINFO_TCP_FLAGS_ORIGINAL];
	if (!a || mnl_attr_get_payload_len(a) != sizeof(flags))
		return false;
	memcpy(&flags, mnl_attr_get_payload(a), sizeof(flags));
	return !(flags.flags & IP_CT_TCP_FLAG_BE_LIBERAL);
}

/* Return: -EAGAIN, it is about another request. */
static int read_side(const struct nlmsghdr *h, size_t size, const struct ctmark *c,
		     const struct endpoint *local, const struct endpoint *peer)
{
	const size_t headers = NLMSG_HDRLEN + MNL_ALIGN(sizeof(struct nfgenmsg));
	struct attrs attrs;
	int r;

	if (size < sizeof(*h) || h->nlmsg_len < sizeof(*h) || h->nlmsg_len > size)
		return -EBADMSG;
	if (h->nlmsg_pid != c->port_id || h->nlmsg_seq != c->seq)
		return -EAGAIN;
	if (h->nlmsg_type == NLMSG_ERROR) {
		r = read_error(h);
		return r == -ENOENT ? CTMARK_NOBODY : r;
	}
	if (h->nlmsg_type != (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW) ||
	    h->nlmsg_len < headers ||
	    !read_attrs((const uint8_t *)h + headers, h->nlmsg_len - headers, &attrs))
		return -EBADMSG;
	if (tuple_is(attrs.at[CTA_TUPLE_ORIG], local, peer))
		return CTMARK_LOCAL;
	return was_seen_to_begin(attrs.at[CTA_PROTOINFO]) ? CTMARK_PEER : CTMARK_NOBODY;
}

int ctmark_begun_by(struct ctmark *c, const struct endpoint *local,
		    const struct endpoint *peer)
{
	_Alignas(struct nlmsghdr) uint8_t buf[REPLY_SIZE];
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	put_request(h, ++c->seq, local, peer);
	if (sendto(c->fd, h, h->nlmsg_len, MSG_NOSIGNAL, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		return -errno;
	for (int i = 0; i < REPLIES_MAX; i++) {
		ssize_t n = receive(c->fd, buf, sizeof(buf));
		int r = n < 0 ? (int)n : read_side(h, (size_t)n, c, local, peer);

		if (n < 0 || r != -EAGAIN)
			return r;
	}
	return -EBADMSG;
}
