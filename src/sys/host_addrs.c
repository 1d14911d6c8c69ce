// SPDX-License-Identifier: Apache-2.0
#include "sys/host_addrs.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "sys/link.h"
#include "sys/netlink.h"

struct list {
	struct prefix *items;
	size_t count;
};

static int on_destination(const struct nlattr *attr, void *data)
{
	const struct nlattr **ret = data;

	if (mnl_attr_get_type(attr) == RTA_DST)
		*ret = attr;
	return MNL_CB_OK;
}

/* One route of whichever table. */
static int on_route(const struct nlmsghdr *h, void *data)
{
	const struct rtmsg *m = mnl_nlmsg_get_payload(h);
	const struct nlattr *to = NULL;
	struct list *list = data;
	enum addr_family family = m->rtm_family == AF_INET ? ADDR_V4 : ADDR_V6;
	struct addr a = { 0 };

	if (m->rtm_table != RT_TABLE_LOCAL ||
	    (m->rtm_family != AF_INET && m->rtm_family != AF_INET6) ||
	    mnl_attr_parse(h, sizeof(*m), on_destination, &to) < 0)
		return MNL_CB_OK;
	a = addr_from_bytes(family, (const uint8_t[16]){ 0 });
	if (to && mnl_attr_get_payload_len(to) == addr_size(&a))
		a = addr_from_bytes(family, mnl_attr_get_payload(to));
	if (list->count == LOCAL_PREFIXES_MAX) {
		errno = E2BIG;
		return MNL_CB_ERROR;
	}
	list->items[list->count++] = prefix_of(&a, m->rtm_dst_len);
	return MNL_CB_OK;
}

static int collect(int fd, struct list *list)
{
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = RTM_GETROUTE;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	mnl_nlmsg_put_extra_header(h, sizeof(struct rtmsg));
	return nl_run(fd, h, on_route, list);
}

int local_prefixes(struct prefix *ret, size_t *ret_count, struct err *err)
{
	CLEAN(fd) int fd = link_route_open();
	struct list list = { .items = ret };
	int r = fd < 0 ? fd : collect(fd, &list);

	if (r < 0)
		return err_sys(err, r, "cannot list the addresses of this machine");
	*ret_count = list.count;
	return 0;
}
