// SPDX-License-Identifier: Apache-2.0
#include "filter/filter.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_conntrack.h>

#include "filter/message.h"

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
	if (!addr || mnl_attr_get_payload_len(addr) != addr_size(&e.addr) || !port ||
	    mnl_attr_get_payload_len(port) != sizeof(be))
		return -EBADMSG;
	memcpy(e.addr.bytes, mnl_attr_get_payload(addr), addr_size(&e.addr));
	memcpy(&be, mnl_attr_get_payload(port), sizeof(be));
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
