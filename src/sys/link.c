// SPDX-License-Identifier: Apache-2.0
#include "sys/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/fib_rules.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/addr.h"
#include "sys/netlink.h"

/* The stub link's two ends and what they are called. */
#define STUB_NAME "weir0"
#define STUB_PEER "weir1"

enum {
	LO_INDEX = 1, /* loopback is the first device of every namespace */
	STUB_V4_BITS = 29,
	STUB_V6_BITS = 64,
	/* Below the least that IPv6 takes (1280): the kernel then sets none up on the far
	 * end, which only swallows what comes, whatever its size. */
	STUB_PEER_MTU = 1000,
	UPLINK_MTU = 65520, /* what slirp4netns and pasta take */
	UPLINK_TABLE = 77,
	UPLINK_RULE = 100, /* before the main table's rule */
};

/* IPv4: the range that RFC 7335 sets aside for a host's own ends of a transition link,
 * which no network routes. IPv6: from the documentation prefix (RFC 3849), which is
 * never routed either and, unlike a unique local address, does not make resolvers
 * sort IPv6 behind IPv4 (RFC 6724, section 10.3). */
static const uint8_t stub_v4[4] = { 192, 0, 0, 2 };
static const uint8_t gateway_v4[4] = { 192, 0, 0, 1 };
static const uint8_t stub_v6[16] = { 0x20, 0x01, 0x0d, 0xb8, 0x77, 0x65, 0x69, 0x72,
				     0,	   0,	 0,    0,    0,	   0,	 0,    2 };
static const uint8_t gateway_v6[16] = { 0x20, 0x01, 0x0d, 0xb8, 0x77, 0x65, 0x69, 0x72,
					0,    0,    0,	  0,	0,    0,    0,	  1 };

static int request_ack(int fd, struct nl_request *q)
{
	nl_header(&q->writer)->nlmsg_flags |= NLM_F_ACK;
	return nl_run(fd, q, NULL, NULL);
}

/* @mtu 0: as it is. */
static int link_up(int fd, int index, uint32_t mtu)
{
	struct nl_request q;
	struct ifinfomsg *body = nl_request_begin(&q, RTM_NEWLINK, 0, sizeof(*body));

	body->ifi_index = index;
	body->ifi_flags = IFF_UP;
	body->ifi_change = IFF_UP;
	if (mtu > 0)
		nl_put_u32(&q.writer, IFLA_MTU, mtu);
	return request_ack(fd, &q);
}

/* Return: the index of our end, or -errno. */
static int stub_make(int fd)
{
	struct nl_request q;
	struct ifinfomsg *body = nl_request_begin(
		&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, sizeof(*body));
	struct nl_writer *w = &q.writer;
	size_t info, data, peer;
	int index, r;

	/* Both ends, still down: the kernel can't bring one up before it has the other.
	 */
	body->ifi_flags = IFF_NOARP;
	body->ifi_change = IFF_NOARP;
	nl_put_text(w, IFLA_IFNAME, STUB_NAME);
	/* Every queue has its place in sysfs, and by default there is one for each
	 * processor. */
	nl_put_u32(w, IFLA_NUM_TX_QUEUES, 1);
	nl_put_u32(w, IFLA_NUM_RX_QUEUES, 1);
	nl_put_u32(w, IFLA_GROUP, LINK_STUB_GROUP);
	info = nl_nest(w, IFLA_LINKINFO);
	nl_put_text(w, IFLA_INFO_KIND, "veth");
	data = nl_nest(w, IFLA_INFO_DATA);
	peer = nl_nest(w, VETH_INFO_PEER);
	body = nl_put_room(w, sizeof(*body));
	body->ifi_flags = IFF_NOARP;
	body->ifi_change = IFF_NOARP;
	nl_put_text(w, IFLA_IFNAME, STUB_PEER);
	nl_put_u32(w, IFLA_MTU, STUB_PEER_MTU);
	nl_put_u32(w, IFLA_NUM_TX_QUEUES, 1);
	nl_put_u32(w, IFLA_NUM_RX_QUEUES, 1);
	nl_put_u32(w, IFLA_GROUP, LINK_STUB_GROUP);
	nl_nest_end(w, peer);
	nl_nest_end(w, data);
	nl_nest_end(w, info);
	r = request_ack(fd, &q);
	if (r < 0)
		return r;
	index = (int)if_nametoindex(STUB_NAME);
	if (index == 0)
		return -errno;
	r = link_up(fd, (int)if_nametoindex(STUB_PEER), 0);
	if (r == 0)
		r = link_up(fd, index, 0);
	return r < 0 ? r : index;
}

static int addr_add(int fd, int index, const struct addr *a, uint8_t bits)
{
	struct nl_request q;
	struct ifaddrmsg *body = nl_request_begin(
		&q, RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, sizeof(*body));

	body->ifa_family = a->family == ADDR_V4 ? AF_INET : AF_INET6;
	body->ifa_prefixlen = bits;
	body->ifa_index = (uint32_t)index;
	/* Without duplicate address detection it can be used as soon as it is local. */
	body->ifa_flags = a->family == ADDR_V6 ? IFA_F_NODAD : 0;
	nl_put(&q.writer, IFA_LOCAL, a->bytes, addr_size(a));
	nl_put(&q.writer, IFA_ADDRESS, a->bytes, addr_size(a));
	return request_ack(fd, &q);
}

/* A socket that hears what the kernel says to @groups from now on. */
static int news_open(uint32_t groups)
{
	const struct sockaddr_nl address = { .nl_family = AF_NETLINK,
					     .nl_groups = groups };
	CLEAN(fd) int fd = link_route_open();

	if (fd < 0)
		return fd;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

/* Wait for something to be said. What, doesn't matter; cut or lost, it says: look again.
 */
static int news_wait(int fd, int most_ms)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	char news[1024];
	int n = poll(&wait, 1, most_ms);

	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0 || (recv(fd, news, sizeof(news), 0) < 0 && errno != ENOBUFS))
		return -errno;
	return 0;
}

/* The kernel puts in the route to an IPv6 address of our own a moment after it has said
 * that the address is there, by a worker that waits for its turn where much is to do.
 * What comes for the address until then is lost: the first connection's answer or its
 * refusal, and that connection hangs for a second. */
static int addr_await_local(int fd, const struct addr *a)
{
	CLEAN(fd) int news = -1;
	int r = link_addr_is_local(fd, a);

	/* Mostly the worker is through by now. */
	if (r != 0)
		return MIN(r, 0);
	news = news_open(RTMGRP_IPV6_ROUTE);
	r = MIN(news, 0);
	/* News can be lost, so the address is looked at again without any, too. */
	for (int ms = 0; r == 0 && (r = link_addr_is_local(fd, a)) == 0;
	     ms += LINK_LOOK_MS) {
		r = ms < LINK_LOCAL_WAIT_MS ? news_wait(news, LINK_LOOK_MS) : -ETIMEDOUT;
		if (r == -ETIMEDOUT && ms < LINK_LOCAL_WAIT_MS)
			r = 0;
	}
	return r < 0 ? r : 0;
}

/* A default route; the gateway need not be in a network of the link's. */
static int route_add(int fd, int index, uint8_t table, const struct addr *gateway)
{
	struct nl_request q;
	struct rtmsg *body = nl_request_begin(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL,
					      sizeof(*body));

	body->rtm_family = gateway->family == ADDR_V4 ? AF_INET : AF_INET6;
	body->rtm_table = table;
	body->rtm_flags = RTNH_F_ONLINK;
	body->rtm_protocol = RTPROT_STATIC;
	body->rtm_scope = RT_SCOPE_UNIVERSE;
	body->rtm_type = RTN_UNICAST;
	nl_put(&q.writer, RTA_GATEWAY, gateway->bytes, addr_size(gateway));
	nl_put_u32(&q.writer, RTA_OIF, (uint32_t)index);
	return request_ack(fd, &q);
}

static int neighbour_add(int fd, int index, const struct addr *a)
{
	static const uint8_t mac[6] = { 0x02, 0x77, 0x65, 0x69, 0x72, 0x01 };
	struct nl_request q;
	struct ndmsg *body = nl_request_begin(
		&q, RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, sizeof(*body));

	body->ndm_family = a->family == ADDR_V4 ? AF_INET : AF_INET6;
	body->ndm_ifindex = index;
	body->ndm_state = NUD_PERMANENT;
	nl_put(&q.writer, NDA_DST, a->bytes, addr_size(a));
	nl_put(&q.writer, NDA_LLADDR, mac, sizeof(mac));
	return request_ack(fd, &q);
}

static int stub_family(int fd, int index, const struct addr *own, uint8_t bits,
		       const struct addr *gateway)
{
	int r = addr_add(fd, index, own, bits);

	if (r == 0)
		r = neighbour_add(fd, index, gateway);
	if (r == 0)
		r = route_add(fd, index, RT_TABLE_MAIN, gateway);
	return r;
}

int link_loopback_up(int route_fd)
{
	return link_up(route_fd, LO_INDEX, 0);
}

int link_make_stub(bool *ret_ipv6, struct err *err)
{
	struct addr own = addr_from_bytes(ADDR_V4, stub_v4);
	struct addr gateway = addr_from_bytes(ADDR_V4, gateway_v4);
	CLEAN(fd) int fd = link_route_open();
	CLEAN(fd) int probe = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ipv6 = probe >= 0; /* the kernel has it */
	int index, r;

	if (fd < 0)
		return err_sys(err, fd, "cannot open a route socket");
	r = link_loopback_up(fd);
	if (r < 0)
		return err_sys(err, r, "cannot bring the loopback device up");
	index = stub_make(fd);
	if (index < 0)
		return err_sys(err, index, "cannot make a veth pair");
	r = stub_family(fd, index, &own, STUB_V4_BITS, &gateway);
	if (r < 0)
		return err_sys(err, r, "cannot set up IPv4 on the stub link");
	own = addr_from_bytes(ADDR_V6, stub_v6);
	gateway = addr_from_bytes(ADDR_V6, gateway_v6);
	if (ipv6) {
		r = stub_family(fd, index, &own, STUB_V6_BITS, &gateway);
		/* Switched off by sysctl: then it is off inside as well. */
		if (r == -EACCES || r == -EPERM || r == -EOPNOTSUPP)
			ipv6 = false;
		else if (r < 0)
			return err_sys(err, r, "cannot set up IPv6 on the stub link");
	}
	*ret_ipv6 = ipv6;
	return 0;
}

int link_await_stub(bool ipv6, struct err *err)
{
	const struct addr own = addr_from_bytes(ADDR_V6, stub_v6);
	CLEAN(fd) int fd = link_route_open();
	int r = fd < 0 ? fd : ipv6 ? addr_await_local(fd, &own) : 0;

	return r < 0 ? err_sys(err, r, "cannot set up IPv6 on the stub link") : 0;
}

int link_setup_owned(bool *ret_ipv6, struct err *err)
{
	int r = link_make_stub(ret_ipv6, err);

	return r < 0 ? r : link_await_stub(*ret_ipv6, err);
}

static int uplink_family(int fd, int index, const struct addr *own,
			 const struct addr *gateway, bool silent)
{
	struct nl_request q;
	struct fib_rule_hdr *body;
	int r = addr_add(fd, index, own, (uint8_t)(addr_size(own) * 8));

	if (r == 0)
		r = addr_await_local(fd, own);
	if (r == 0 && silent)
		r = neighbour_add(fd, index, gateway);
	if (r == 0)
		r = route_add(fd, index, UPLINK_TABLE, gateway);
	if (r < 0)
		return r;
	/* UDP asks UPLINK_TABLE first; once the link is gone, that table is empty. */
	body = nl_request_begin(&q, RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL,
				sizeof(*body));
	body->family = own->family == ADDR_V4 ? AF_INET : AF_INET6;
	body->action = FR_ACT_TO_TBL;
	body->table = UPLINK_TABLE;
	nl_put_u32(&q.writer, FRA_PRIORITY, UPLINK_RULE);
	nl_put_u8(&q.writer, FRA_IP_PROTO, IPPROTO_UDP);
	return request_ack(fd, &q);
}

/* Return: the index of the link @name, once the kernel has told of it. */
static int uplink_wait(const char *name)
{
	CLEAN(fd) int news = news_open(RTMGRP_LINK);
	int index, r;

	if (news < 0)
		return news;
	while ((index = (int)if_nametoindex(name)) == 0) {
		r = news_wait(news, LINK_UPLINK_WAIT_MS);
		if (r < 0)
			return r;
	}
	return index;
}

int link_setup_uplink(const struct link_uplink *u, struct err *err)
{
	CLEAN(fd) int fd = link_route_open();
	int index = fd < 0 ? fd : uplink_wait(u->name), r;

	if (index < 0)
		return err_sys(err, index, "cannot find the uplink's link %s", u->name);
	r = link_up(fd, index, UPLINK_MTU);
	for (size_t i = 0; i < ARRAY_SIZE(u->own) && r == 0; i++)
		if (u->own[i].family != ADDR_NONE)
			r = uplink_family(fd, index, &u->own[i], &u->gateway[i],
					  u->silent[i]);
	return r < 0 ? err_sys(err, r, "cannot set up the uplink's link %s", u->name) : 0;
}

int link_route_open(void)
{
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	return fd < 0 ? -errno : fd;
}

static int on_route(const struct nlmsghdr *h, void *data)
{
	const struct rtmsg *m = nl_body(h, sizeof(*m));

	if (h->nlmsg_type == RTM_NEWROUTE && m)
		*(int *)data = m->rtm_type;
	return 0;
}

/* Ask for the route to @a. Return: its type (RTN_…); RTN_UNSPEC: there is none, which is
 * no way out, but not an address of ours either; -errno. */
static int route_type(int fd, const struct addr *a)
{
	struct nl_request q;
	struct rtmsg *body = nl_request_begin(&q, RTM_GETROUTE, 0, sizeof(*body));
	int type = -EBADMSG, r;

	body->rtm_family = a->family == ADDR_V4 ? AF_INET : AF_INET6;
	body->rtm_dst_len = (uint8_t)(addr_size(a) * 8);
	nl_put(&q.writer, RTA_DST, a->bytes, addr_size(a));
	r = nl_run(fd, &q, on_route, &type);
	if (r == -ENETUNREACH || r == -EHOSTUNREACH || r == -EACCES || r == -EINVAL)
		return RTN_UNSPEC;
	return r < 0 ? r : type;
}

int link_addr_is_local(int route_fd, const struct addr *a)
{
	int type = route_type(route_fd, a);

	if (type < 0)
		return type;
	return type == RTN_LOCAL || type == RTN_ANYCAST || type == RTN_BROADCAST;
}

int link_has_default_route(int route_fd, int family)
{
	/* Any global address serves: one of the root name servers' (l.root). */
	static const uint8_t four[4] = { 199, 7, 83, 42 };
	static const uint8_t six[16] = { 0x20, 0x01, 0x05, 0x00, 0x00, 0x9f, 0, 0,
					 0,    0,    0,	   0,	 0,    0,    0, 0x42 };
	struct addr a = family == 4 ? addr_from_bytes(ADDR_V4, four)
				    : addr_from_bytes(ADDR_V6, six);
	int type = route_type(route_fd, &a);

	if (type < 0)
		return type == -EAFNOSUPPORT ? 0 : type;
	return type == RTN_UNICAST;
}

/* ---- the machine's own prefixes ---- */

struct local_list {
	struct prefix *items;
	size_t count;
};

/* One route of whichever table. */
static int on_local_route(const struct nlmsghdr *h, void *data)
{
	const struct rtmsg *m = nl_body(h, sizeof(*m));
	struct local_list *list = data;
	const struct nlattr *to;
	enum addr_family family;
	struct nl_attrs attrs;
	struct addr a = { 0 };

	if (!m || m->rtm_table != RT_TABLE_LOCAL ||
	    (m->rtm_family != AF_INET && m->rtm_family != AF_INET6) ||
	    !nl_attrs_of(h, sizeof(*m), &attrs))
		return 0;
	family = m->rtm_family == AF_INET ? ADDR_V4 : ADDR_V6;
	to = attrs.at[RTA_DST];
	a = addr_from_bytes(family, (const uint8_t[16]){ 0 });
	if (to && nl_size(to) == addr_size(&a))
		a = addr_from_bytes(family, nl_data(to));
	if (list->count == LOCAL_PREFIXES_MAX)
		return -E2BIG;
	list->items[list->count++] = prefix_of(&a, m->rtm_dst_len);
	return 0;
}

int local_prefixes(struct prefix *ret, size_t *ret_count, struct err *err)
{
	CLEAN(fd) int fd = link_route_open();
	struct local_list list = { .items = ret };
	struct nl_request q;
	int r = fd;

	(void)nl_request_begin(&q, RTM_GETROUTE, NLM_F_DUMP, sizeof(struct rtmsg));
	if (fd >= 0)
		r = nl_run(fd, &q, on_local_route, &list);
	if (r < 0)
		return err_sys(err, r, "cannot list the addresses of this machine");
	*ret_count = list.count;
	return 0;
}
