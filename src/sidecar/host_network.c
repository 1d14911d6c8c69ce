// SPDX-License-Identifier: Apache-2.0
#include "sidecar/host_network.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/message.h"
#include "sys/link.h"
#include "sys/netlink.h"
#include "sys/sock.h"

enum {
	/* PROC_NET_INIT_INO of the kernel's include/uapi/linux/nsfs.h, of late; older
	 * kernels number it like any other. */
	INIT_NET_INODE = 0xEFFFFFF9u,
	PARENT_DEV_NAME = 56, /* IFLA_PARENT_DEV_NAME, since 5.14 */
	ATTRS = 64,
};

static int check_inode(struct err *err)
{
	struct stat st;

	if (stat("/proc/self/ns/net", &st) < 0)
		return err_sys(err, -errno, "cannot look at /proc/self/ns/net");
	return st.st_ino == INIT_NET_INODE
		       ? err_set(err, -EPERM, "it is the machine's first one")
		       : 0;
}

/* ---- links ---- */

static int on_attr(const struct nlattr *a, void *data)
{
	const struct nlattr **attrs = data;

	if (mnl_attr_get_type(a) < ATTRS)
		attrs[mnl_attr_get_type(a)] = a;
	return MNL_CB_OK;
}

static bool is_bridge(const struct nlattr *info)
{
	const struct nlattr *attrs[ATTRS] = { 0 };

	if (!info || mnl_attr_parse_nested(info, on_attr, attrs) < 0 ||
	    !attrs[IFLA_INFO_KIND])
		return false;
	return mnl_attr_get_payload_len(attrs[IFLA_INFO_KIND]) >= strlen("bridge") &&
	       memcmp(mnl_attr_get_payload(attrs[IFLA_INFO_KIND]), "bridge",
		      strlen("bridge")) == 0;
}

static int on_link(const struct nlmsghdr *h, void *data)
{
	const struct ifinfomsg *link = mnl_nlmsg_get_payload(h);
	const struct nlattr *attrs[ATTRS] = { 0 };
	struct err *err = data;
	const char *name = "?";

	if (h->nlmsg_type != RTM_NEWLINK ||
	    mnl_attr_parse(h, sizeof(*link), on_attr, attrs) < 0)
		return MNL_CB_OK;
	if (attrs[IFLA_IFNAME] &&
	    mnl_attr_validate(attrs[IFLA_IFNAME], MNL_TYPE_NUL_STRING) == 0)
		name = mnl_attr_get_str(attrs[IFLA_IFNAME]);
	if (is_bridge(attrs[IFLA_LINKINFO]))
		err_set(err, -EPERM, "it has the bridge '%s'", name);
	else if (link->ifi_type == ARPHRD_ETHER && attrs[PARENT_DEV_NAME])
		err_set(err, -EPERM, "it has the physical link '%s'", name);
	return err->code < 0 ? MNL_CB_STOP : MNL_CB_OK;
}

static int check_links(int fd, struct err *err)
{
	_Alignas(struct nlmsghdr) char buf[NL_REQUEST_SIZE];
	struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *link;
	int r;

	h->nlmsg_type = RTM_GETLINK;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	h->nlmsg_seq = 1;
	link = mnl_nlmsg_put_extra_header(h, sizeof(*link));
	link->ifi_family = AF_UNSPEC;
	r = nl_run(fd, h, on_link, err);
	return r < 0 ? err_sys(err, r, "cannot list the links") : err->code;
}

/* ---- tables ---- */

/* Docker makes a table ip nat in containers as well, so that one says nothing. */
static const struct {
	uint8_t family;
	const char *name;
} hosts_tables[] = {
	{ NFPROTO_INET, "firewalld" },
	{ NFPROTO_INET, "fw4" },
	{ NFPROTO_IPV4, "filter" },
	{ NFPROTO_BRIDGE, "filter" },
};

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	const char *name = nl_get_text(attrs->at[NFTA_TABLE_NAME]);

	for (size_t i = 0; i < ARRAY_SIZE(hosts_tables); i++)
		if (family == hosts_tables[i].family &&
		    strcmp(name, hosts_tables[i].name) == 0)
			return err_set(data, -EPERM, "it has the table '%s'", name);
	return 0;
}

/* Without the right to list tables there is none to change them, which is reported
 * later. */
static int check_tables(int fd, struct err *err)
{
	struct filter_conn conn = { .fd = -1 };
	struct err ignored = { 0 };
	int r = filter_conn_init(&conn, fd, &ignored);

	if (r == 0)
		r = nl_ask(&conn, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_UNSPEC, NULL,
			   NULL, on_table, err);
	return err->code < 0 ? err->code : 0;
}

int host_network_check(struct err *err)
{
	CLEAN(fd) int route = link_route_open();
	CLEAN(fd) int netfilter = -1;
	int r = check_inode(err);

	if (r == 0)
		r = sandbox_netlink_open(&netfilter, err);
	if (r == 0 && route < 0)
		r = err_sys(err, route, "cannot open a route socket");
	if (r == 0)
		r = check_links(route, err);
	if (r == 0)
		r = check_tables(netfilter, err);
	return r;
}
