// SPDX-License-Identifier: Apache-2.0
#include "filter/nflog.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>
#include <linux/netfilter/nfnetlink_log.h>

#include "base/wire.h"
#include "filter/filter.h"
#include "filter/message.h"
#include "sys/netlink.h"

enum {
	COPY_BYTES = 128,	     /* of each packet: headers only */
	RECEIVE_BUFFER = 256 * 1024, /* the kernel drops what doesn't fit */
	DATAGRAM_MAX = 16 * 1024,    /* threshold 1: one packet with its metadata */
	PACKETS_MAX = 4096,	     /* before an acknowledgement */
	EXTENSIONS_MAX = 8,	     /* IPv6 extension headers that are skipped */
};

/* ---- configuration ---- */

/* The acknowledgement is queued when the request has been sent; packets may stand
 * before it. */
static int receive_ack(int fd)
{
	_Alignas(struct nlmsghdr) char buf[DATAGRAM_MAX];

	for (int i = 0; i < PACKETS_MAX; i++) {
		const uint8_t *at = (const void *)buf;
		ssize_t n = nl_receive(fd, buf, sizeof(buf));
		size_t left = n < 0 ? 0 : (size_t)n;
		const struct nlmsghdr *h;
		const struct nlmsgerr *e;

		if (n < 0)
			return (int)n;
		h = nl_take(&at, &left);
		if (!h)
			return -EBADMSG;
		if (h->nlmsg_type != NLMSG_ERROR)
			continue;
		e = nl_body(h, sizeof(*e));
		return e ? e->error : -EBADMSG;
	}
	return -ENOBUFS;
}

int nflog_bind(int fd, uint16_t group, struct err *err)
{
	struct nfulnl_msg_config_cmd cmd = { .command = NFULNL_CFG_CMD_BIND };
	struct nfulnl_msg_config_mode mode = {
		.copy_range = htobe32(COPY_BYTES),
		.copy_mode = NFULNL_COPY_PACKET,
	};
	int receive_buffer = RECEIVE_BUFFER, r;
	struct nl_request q;
	struct nfgenmsg *g = nl_request_begin(
		&q, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK, sizeof(*g));
	struct nl_writer *w = &q.writer;

	g->nfgen_family = AF_UNSPEC;
	g->version = NFNETLINK_V0;
	g->res_id = htobe16(group);
	nl_put(w, NFULA_CFG_CMD, &cmd, sizeof(cmd));
	nl_put(w, NFULA_CFG_MODE, &mode, sizeof(mode));
	nl_put_be32(w, NFULA_CFG_QTHRESH, 1);
	nl_end(w);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
		       sizeof(receive_buffer)) < 0)
		return err_sys(err, -errno, "cannot configure the log socket");
	nl_drain(fd);
	r = nl_send(fd, w->bytes, w->size);
	if (r == 0)
		r = receive_ack(fd);
	/* -EBUSY: this very socket has it already, and as it should be (somebody else's
	 * would be -EPERM). */
	if (r < 0 && r != -EBUSY)
		return err_sys(err, r, "cannot bind log group %u", group);
	return 0;
}

/* ---- packets ---- */

static void read_ports(struct wire *w, struct nflog_packet *p)
{
	switch (p->protocol) {
	case IPPROTO_TCP:
	case IPPROTO_UDP:
	case IPPROTO_UDPLITE:
	case IPPROTO_SCTP:
	case IPPROTO_DCCP:
		p->source_port = wire_read_u16(w);
		p->destination_port = wire_read_u16(w);
		if (!wire_ok(w))
			p->source_port = p->destination_port = 0;
		break;
	default:
		break;
	}
}

static bool read_ipv4(struct wire *w, struct nflog_packet *p)
{
	unsigned int header = (wire_read_u8(w) & 0x0f) * 4u;
	uint16_t fragment;
	const uint8_t *source, *destination;

	(void)wire_read_u8(w);
	p->length = wire_read_u16(w);
	(void)wire_read_u16(w);
	fragment = wire_read_u16(w) & 0x1fff;
	(void)wire_read_u8(w);
	p->protocol = wire_read_u8(w);
	(void)wire_read_u16(w);
	source = wire_take(w, 4);
	destination = wire_take(w, 4);
	if (!wire_ok(w) || header < 20)
		return false;
	p->source = addr_from_bytes(ADDR_V4, source);
	p->destination = addr_from_bytes(ADDR_V4, destination);
	wire_seek(w, header);
	if (fragment == 0)
		read_ports(w, p);
	return true;
}

/* Skip to the transport header. false: there is none to be read. */
static bool skip_extensions(struct wire *w, uint8_t *protocol)
{
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		uint8_t next, length;

		if (*protocol != IPPROTO_HOPOPTS && *protocol != IPPROTO_ROUTING &&
		    *protocol != IPPROTO_DSTOPTS)
			return *protocol != IPPROTO_FRAGMENT;
		next = wire_read_u8(w);
		length = wire_read_u8(w);
		wire_take(w, length * 8u + 6);
		if (!wire_ok(w))
			return false;
		*protocol = next;
	}
	return false;
}

static bool read_ipv6(struct wire *w, struct nflog_packet *p)
{
	const uint8_t *source, *destination;

	(void)wire_read_u32(w);
	p->length = (uint16_t)MIN(wire_read_u16(w) + 40u, UINT16_MAX);
	p->protocol = wire_read_u8(w);
	(void)wire_read_u8(w);
	source = wire_take(w, 16);
	destination = wire_take(w, 16);
	if (!wire_ok(w))
		return false;
	p->source = addr_from_bytes(ADDR_V6, source);
	p->destination = addr_from_bytes(ADDR_V6, destination);
	if (skip_extensions(w, &p->protocol))
		read_ports(w, p);
	return true;
}

/* ---- messages ---- */

/* An attribute of another size than its number's says nothing. */
static bool read_message(const struct nlmsghdr *h, struct nflog_packet *p)
{
	const size_t headers = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));
	const uint8_t *at = (const uint8_t *)h + headers;
	const struct nlattr *a;
	bool has_packet = false;
	unsigned int version;
	struct wire w;
	size_t left;

	*p = (struct nflog_packet){ .uid = UINT32_MAX };
	if (h->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) ||
	    h->nlmsg_len < headers)
		return false;
	left = h->nlmsg_len - headers;
	while ((a = nl_take_attr(&at, &left))) {
		switch (nl_type(a)) {
		case NFULA_PAYLOAD:
			w = wire_reader(nl_data(a), nl_size(a));
			version = nl_size(a) > 0 ? *(const uint8_t *)nl_data(a) >> 4 : 0;
			has_packet = (version == 4 && read_ipv4(&w, p)) ||
				     (version == 6 && read_ipv6(&w, p));
			break;
		case NFULA_PREFIX:
			memcpy(p->prefix, nl_data(a),
			       MIN(nl_size(a), sizeof(p->prefix) - 1));
			break;
		case NFULA_UID:
			(void)nl_get_u32(a, &p->uid);
			break;
		case NFULA_MARK:
			(void)nl_get_u32(a, &p->mark);
			break;
		default:
			break;
		}
	}
	return has_packet;
}

int nflog_parse(const void *bytes, size_t size,
		void (*fn)(void *data, const struct nflog_packet *p), void *data)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;
	int packets = 0;

	while ((h = nl_take(&at, &size))) {
		struct nflog_packet p;

		if (read_message(h, &p)) {
			fn(data, &p);
			packets++;
		}
	}
	return packets;
}

int nflog_read(int fd, void (*fn)(void *data, const struct nflog_packet *p), void *data)
{
	_Alignas(struct nlmsghdr) uint8_t buf[DATAGRAM_MAX];
	struct sockaddr_nl from = { 0 };
	struct iovec iov = { buf, sizeof(buf) };
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
		return errno == EAGAIN ? 0 : -errno;
	if (m.msg_flags & MSG_TRUNC || from.nl_pid != 0)
		return -EBADMSG;
	return nflog_parse(buf, (size_t)n, fn, data);
}

struct event nflog_event(const struct nflog_packet *p)
{
	struct event e = event_make(EVENT_DENY, EVENT_ADDRESS);

	e.protocol = p->protocol;
	e.remote = p->destination;
	e.port = p->destination_port;
	e.bytes = p->length;
	e.uid = p->uid;
	return e;
}

/* ---- where a redirected datagram was going ---- */

enum { CT_GET = NFNL_SUBSYS_CTNETLINK << 8 | IPCTNL_MSG_CT_GET };

/* The reply to the datagram, by which its flow is found. */
struct flow {
	uint8_t protocol;
	const struct endpoint *from, *to;
};

struct found {
	enum addr_family family;
	struct endpoint *ret;
	bool has;
};

static void put_flow(struct nl_writer *w, const void *what)
{
	const struct flow *f = what;
	bool v6 = f->from->addr.family == ADDR_V6;
	size_t size = addr_size(&f->from->addr);
	size_t tuple = nl_nest(w, CTA_TUPLE_REPLY), part = nl_nest(w, CTA_TUPLE_IP);

	nl_put(w, v6 ? CTA_IP_V6_SRC : CTA_IP_V4_SRC, f->from->addr.bytes, size);
	nl_put(w, v6 ? CTA_IP_V6_DST : CTA_IP_V4_DST, f->to->addr.bytes, size);
	nl_nest_end(w, part);
	part = nl_nest(w, CTA_TUPLE_PROTO);
	nl_put_u8(w, CTA_PROTO_NUM, f->protocol);
	nl_put_be16(w, CTA_PROTO_SRC_PORT, f->from->port);
	nl_put_be16(w, CTA_PROTO_DST_PORT, f->to->port);
	nl_nest_end(w, part);
	nl_nest_end(w, tuple);
}

static int on_flow(void *data, uint16_t type, uint8_t family,
		   const struct nl_attrs *attrs)
{
	struct found *f = data;
	bool v6 = f->family == ADDR_V6;
	struct endpoint e = { .addr.family = f->family };
	const struct nlattr *addr, *port;
	struct nl_attrs tuple, ip, proto;
	uint16_t be;

	if (!nl_attrs_nested(attrs->at[CTA_TUPLE_ORIG], &tuple) ||
	    !nl_attrs_nested(tuple.at[CTA_TUPLE_IP], &ip) ||
	    !nl_attrs_nested(tuple.at[CTA_TUPLE_PROTO], &proto))
		return -EBADMSG;
	addr = ip.at[v6 ? CTA_IP_V6_DST : CTA_IP_V4_DST];
	port = proto.at[CTA_PROTO_DST_PORT];
	if (!addr || nl_size(addr) != addr_size(&e.addr) || !port ||
	    nl_size(port) != sizeof(be))
		return -EBADMSG;
	memcpy(e.addr.bytes, nl_data(addr), addr_size(&e.addr));
	memcpy(&be, nl_data(port), sizeof(be));
	e.port = be16toh(be);
	*f->ret = e;
	f->has = true;
	return 0;
}

int filter_original(struct filter_conn *c, uint8_t protocol, const struct endpoint *from,
		    const struct endpoint *at, struct endpoint *ret)
{
	const struct flow reply = { protocol, at, from };
	struct found found = { .family = from->addr.family, .ret = ret };
	uint8_t family = from->addr.family == ADDR_V6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
	int r;

	if (from->addr.family == ADDR_NONE || from->addr.family != at->addr.family)
		return -EINVAL;
	r = nl_ask(c, CT_GET, NLM_F_ACK, family, put_flow, &reply, on_flow, &found);
	if (r < 0)
		return r;
	return found.has ? 0 : -ENOENT;
}
