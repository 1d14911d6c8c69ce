// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * The whole ruleset is one batch. A table that stands already is removed and made anew
 * in the same batch, so that there is no moment without it. Base chains with their
 * drop policy come before the rules only for the reader: nothing of a batch is in
 * force before all of it. */
#include "filter/filter.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "filter/netlink.h"

enum { SEND_BUFFER = 64 << 20 }; /* a limit, not an allocation: the largest batch */

int filter_conn_init(struct filter_conn *c, int fd, struct err *err)
{
	struct sockaddr_nl self;
	socklen_t size = sizeof(self);
	int one = 1, send_buffer = SEND_BUFFER;

	if (getsockname(fd, (struct sockaddr *)&self, &size) < 0)
		return err_sys(err, -errno, "cannot use the netlink socket");
	if (size != sizeof(self) || self.nl_family != AF_NETLINK || self.nl_pid == 0)
		return err_set(err, -EINVAL,
			       "cannot use the netlink socket: it is not a bound netlink "
			       "socket");
	/* Errors come without a copy of the message that caused them. */
	if (setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &one, sizeof(one)) < 0)
		return err_sys(err, -errno, "cannot configure the netlink socket");
	/* Needs CAP_NET_ADMIN over the namespace. Without it a small ruleset still
	 * loads, and a large one fails with its reason. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_buffer,
		       sizeof(send_buffer)) < 0 &&
	    errno != EPERM)
		return err_sys(err, -errno, "cannot configure the netlink socket");
	*c = (struct filter_conn){ .fd = fd, .port_id = self.nl_pid, .seq = 1 };
	return 0;
}

void filter_conn_done(struct filter_conn *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

/* ---- what a failed message was about ---- */

static const struct {
	uint16_t type, name;
	const char *what;
} subjects[] = {
	{ NFT_MSG_NEWTABLE, NFTA_TABLE_NAME, "table" },
	{ NFT_MSG_DELTABLE, NFTA_TABLE_NAME, "old table" },
	{ NFT_MSG_NEWCHAIN, NFTA_CHAIN_NAME, "chain" },
	{ NFT_MSG_NEWSET, NFTA_SET_NAME, "set" },
	{ NFT_MSG_NEWSETELEM, NFTA_SET_ELEM_LIST_SET, "elements of set" },
	{ NFT_MSG_NEWRULE, NFTA_RULE_CHAIN, "a rule of chain" },
};

static int report_message(const struct nlmsghdr *h, int code, struct err *err)
{
	const uint8_t *attrs =
		(const uint8_t *)h + NLMSG_HDRLEN + sizeof(struct nfgenmsg);
	struct nl_attrs a;

	if (nl_attrs_read(attrs, h->nlmsg_len - NLMSG_HDRLEN - sizeof(struct nfgenmsg),
			  &a))
		for (size_t i = 0; i < ARRAY_SIZE(subjects); i++)
			if (NFNL_MSG_TYPE(h->nlmsg_type) == subjects[i].type)
				return err_sys(err, code, "cannot install %s '%s'",
					       subjects[i].what,
					       nl_get_text(a.at[subjects[i].name]));
	return err_sys(err, code, "cannot install the filter");
}

/* Find the message with number @seq among those that were sent. */
static int report(const struct nl_writer *w, uint32_t seq, int code, struct err *err)
{
	const uint8_t *at = w->bytes;
	size_t left = w->size;
	const struct nlmsghdr *h;

	while (seq != w->first && (h = nl_take(&at, &left)))
		if (h->nlmsg_seq == seq)
			return report_message(h, code, err);
	return err_sys(err, code, "cannot install the filter");
}

/* ---- installing ---- */

static void write_ruleset(struct nl_writer *w, const struct ruleset *rs,
			  uint32_t table_flags, bool replaces)
{
	nl_batch(w);
	if (replaces)
		netlink_table(w, NFT_MSG_DELTABLE, 0, 0);
	netlink_table(w, NFT_MSG_NEWTABLE, NLM_F_CREATE | NLM_F_EXCL, table_flags);
	for (const struct filter_set *s = rs->sets; s; s = s->next) {
		netlink_set(w, s);
		netlink_elements(w, s);
	}
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		netlink_chain(w, c);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		for (const struct filter_rule *r = c->rules; r; r = r->next)
			netlink_rule(w, c, r);
	nl_batch_end(w);
}

static int on_table(void *data, uint16_t type, uint8_t family,
		    const struct nl_attrs *attrs)
{
	bool *exists = data;

	if (type == NFT_MSG_NEWTABLE && family == NFPROTO_INET &&
	    strcmp(nl_get_text(attrs->at[NFTA_TABLE_NAME]), FILTER_TABLE) == 0)
		*exists = true;
	return 0;
}

static int install_with(struct filter_conn *c, const struct ruleset *rs,
			uint32_t table_flags, bool replaces, struct err *err)
{
	CLEAN(nl_writer) struct nl_writer w = nl_writer(NULL, 0, c->seq);
	uint32_t seq;
	int r;

	write_ruleset(&w, rs, table_flags, replaces);
	r = nl_transact(c, &w, &seq);
	return r < 0 ? report(&w, seq, r, err) : 0;
}

int filter_install(struct filter_conn *c, const struct ruleset *rs, struct err *err)
{
	bool exists = false;
	int r;

	r = nl_ask(c, NFT_MSG_GETTABLE, NLM_F_DUMP, NFPROTO_INET, NULL, NULL, on_table,
		   &exists);
	if (r < 0)
		return err_sys(err, r, "cannot list the tables of the namespace");
	r = install_with(c, rs, NETLINK_TABLE_OWNER | NETLINK_TABLE_PERSIST, exists, err);
	c->owner = r == 0;
	/* Older kernels refuse flags that they don't know, and nothing has changed. */
	if (r == -EOPNOTSUPP || r == -EINVAL)
		r = install_with(c, rs, 0, exists, err);
	return r;
}

static int on_generation(void *data, uint16_t type, uint8_t family,
			 const struct nl_attrs *attrs)
{
	return nl_get_u32(attrs->at[NFTA_GEN_ID], data) ? 0 : -EBADMSG;
}

int filter_generation_id(struct filter_conn *c, uint32_t *ret)
{
	uint32_t id = 0;
	int r = nl_ask(c, NFT_MSG_GETGEN, NLM_F_ACK, AF_UNSPEC, NULL, NULL, on_generation,
		       &id);

	if (r < 0)
		return r;
	*ret = id;
	return 0;
}
