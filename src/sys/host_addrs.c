// SPDX-License-Identifier: Apache-2.0
#include "sys/host_addrs.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>

#include "sys/link.h"

enum { BUFFER_SIZE = 32 * 1024 }; /* what the kernel fills at most in one go */

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

static int ask_kernel(int fd, char *buf)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);

	h->nlmsg_type = RTM_GETROUTE;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	mnl_nlmsg_put_extra_header(h, sizeof(struct rtmsg));
	return send(fd, h, h->nlmsg_len, 0) < 0 ? -errno : 0;
}

static int collect(int fd, struct list *list)
{
	CLEAN(mem) char *buf = calloc(1, BUFFER_SIZE);
	int r = buf ? ask_kernel(fd, buf) : -ENOMEM;

	while (r == 0) {
		ssize_t n = recv(fd, buf, BUFFER_SIZE, 0);
		int more = n < 0 ? MNL_CB_ERROR
				 : mnl_cb_run(buf, (size_t)n, 0, 0, on_route, list);

		if (more == MNL_CB_STOP)
			return 0;
		if (more == MNL_CB_ERROR)
			r = -errno;
	}
	return r;
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
