// SPDX-License-Identifier: Apache-2.0
#include "sys/ctmark.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/netfilter/nf_conntrack_tcp.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "sys/netlink.h"
#include "sys/sock.h"

enum {
	REPLY_SIZE = 8192, /* one entry */
	REPLIES_MAX = 4,   /* to one request; more is a kernel that we don't know */
};

/* ---- asking ---- */

int ctmark_init(struct ctmark *c, int fd, struct err *err)
{
	uint32_t port_id;
	int r = nl_port_id(fd, "conntrack", &port_id, err);

	if (r < 0)
		return r;
	*c = (struct ctmark){ .fd = fd, .port_id = port_id };
	return 0;
}

/* ---- reading ---- */

int ctmark_read(const void *bytes, size_t size, uint32_t port_id, uint32_t seq,
		struct nl_attrs *ret)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;
	const struct nlmsgerr *e;

	do
		h = nl_take(&at, &size);
	while (h && (h->nlmsg_pid != port_id || h->nlmsg_seq != seq));
	if (!h)
		return size > 0 ? -EBADMSG : 1;
	e = nl_body(h, sizeof(*e));
	/* Nobody asked for an acknowledgement. */
	if (h->nlmsg_type == NLMSG_ERROR)
		return !e || e->error >= 0 ? -EBADMSG : e->error;
	return h->nlmsg_type == (NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_NEW) &&
			       nl_attrs_of(h, sizeof(struct nfgenmsg), ret)
		       ? 0
		       : -EBADMSG;
}

static bool is_bytes(const struct nlattr *a, const void *bytes, size_t size)
{
	return a && nl_size(a) == size && memcmp(nl_data(a), bytes, size) == 0;
}

static bool tuple_is(const struct nlattr *a, const struct endpoint *from,
		     const struct endpoint *to)
{
	const uint16_t from_port = htobe16(from->port), to_port = htobe16(to->port);
	const uint8_t tcp = IPPROTO_TCP;
	bool v4 = from->addr.family == ADDR_V4;
	size_t size = addr_size(&from->addr);
	struct nl_attrs tuple, ip, proto;

	return nl_attrs_nested(a, &tuple) &&
	       nl_attrs_nested(tuple.at[CTA_TUPLE_IP], &ip) &&
	       nl_attrs_nested(tuple.at[CTA_TUPLE_PROTO], &proto) &&
	       is_bytes(ip.at[v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC], from->addr.bytes,
			size) &&
	       is_bytes(ip.at[v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST], to->addr.bytes,
			size) &&
	       is_bytes(proto.at[CTA_PROTO_NUM], &tcp, sizeof(tcp)) &&
	       is_bytes(proto.at[CTA_PROTO_SRC_PORT], &from_port, sizeof(from_port)) &&
	       is_bytes(proto.at[CTA_PROTO_DST_PORT], &to_port, sizeof(to_port));
}

int ctmark_of_entry(const struct nl_attrs *entry, const struct endpoint *local,
		    const struct endpoint *peer, uint32_t *ret)
{
	if (!tuple_is(entry->at[CTA_TUPLE_REPLY], local, peer))
		return -EBADMSG;
	if (!entry->at[CTA_MARK])
		return -ENOENT;
	return nl_get_u32(entry->at[CTA_MARK], ret) ? 0 : -EBADMSG;
}

/* ---- one question ---- */

/* @buf: REPLY_SIZE bytes, which @ret points into afterwards. The entry is known by its
 * replies: they go from our end to the peer, whatever the destination was before a
 * redirect. */
static int ask(struct ctmark *c, const struct endpoint *local,
	       const struct endpoint *peer, uint8_t *buf, struct nl_attrs *ret)
{
	const bool v4 = local->addr.family == ADDR_V4;
	struct nl_request q;
	struct nfgenmsg *g = nl_request_begin(
		&q, NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET, 0, sizeof(*g));
	struct nl_writer *w = &q.writer;
	size_t tuple, ip, proto;
	int r;

	nl_header(w)->nlmsg_seq = ++c->seq;
	g->nfgen_family = v4 ? AF_INET : AF_INET6;
	g->version = NFNETLINK_V0;
	tuple = nl_nest(w, CTA_TUPLE_REPLY);
	ip = nl_nest(w, CTA_TUPLE_IP);
	nl_put(w, v4 ? CTA_IP_V4_SRC : CTA_IP_V6_SRC, local->addr.bytes,
	       addr_size(&local->addr));
	nl_put(w, v4 ? CTA_IP_V4_DST : CTA_IP_V6_DST, peer->addr.bytes,
	       addr_size(&peer->addr));
	nl_nest_end(w, ip);
	proto = nl_nest(w, CTA_TUPLE_PROTO);
	nl_put_u8(w, CTA_PROTO_NUM, IPPROTO_TCP);
	nl_put_be16(w, CTA_PROTO_SRC_PORT, local->port);
	nl_put_be16(w, CTA_PROTO_DST_PORT, peer->port);
	nl_nest_end(w, proto);
	nl_nest_end(w, tuple);
	nl_end(w);
	r = nl_send(c->fd, w->bytes, w->size);
	if (r < 0)
		return r;
	for (int i = 0; i < REPLIES_MAX; i++) {
		ssize_t n = nl_receive(c->fd, buf, REPLY_SIZE);

		r = n < 0 ? (int)n : ctmark_read(buf, (size_t)n, c->port_id, c->seq, ret);
		if (r <= 0)
			return r;
	}
	return -EBADMSG;
}

int ctmark_of_socket(struct ctmark *c, int socket, uint32_t *ret)
{
	_Alignas(struct nlmsghdr) uint8_t buf[REPLY_SIZE];
	struct endpoint local, peer;
	struct nl_attrs entry;
	int r = sock_here(socket, &local);

	if (r == 0)
		r = sock_peer(socket, &peer);
	if (r == 0 &&
	    (local.addr.family == ADDR_NONE || local.addr.family != peer.addr.family))
		r = -EAFNOSUPPORT;
	if (r == 0)
		r = ask(c, &local, &peer, buf, &entry);
	return r == 0 ? ctmark_of_entry(&entry, &local, &peer, ret) : r;
}

int ctmark_begun_by(struct ctmark *c, const struct endpoint *local,
		    const struct endpoint *peer)
{
	_Alignas(struct nlmsghdr) uint8_t buf[REPLY_SIZE];
	struct nl_attrs entry, info, tcp;
	struct nf_ct_tcp_flags flags;
	const struct nlattr *a;
	int r = ask(c, local, peer, buf, &entry);

	if (r == -ENOENT)
		return CTMARK_NOBODY;
	if (r < 0)
		return r;
	if (tuple_is(entry.at[CTA_TUPLE_ORIG], local, peer))
		return CTMARK_LOCAL;
	/* One that the kernel took up in the middle, with windows that it doesn't know,
	 * is marked as that. What can't be read is none that was seen to begin. */
	if (!nl_attrs_nested(entry.at[CTA_PROTOINFO], &info) ||
	    !nl_attrs_nested(info.at[CTA_PROTOINFO_TCP], &tcp))
		return CTMARK_NOBODY;
	a = tcp.at[CTA_PROTOINFO_TCP_FLAGS_ORIGINAL];
	if (!a || nl_size(a) != sizeof(flags))
		return CTMARK_NOBODY;
	memcpy(&flags, nl_data(a), sizeof(flags));
	return flags.flags & IP_CT_TCP_FLAG_BE_LIBERAL ? CTMARK_NOBODY : CTMARK_PEER;
}
