// SPDX-License-Identifier: Apache-2.0
#include "filter/message.h"

#include <errno.h>
#include <sys/socket.h>

#include <linux/netfilter/nfnetlink.h>

enum { EMPTY_BATCH = 2 /* messages: its begin and its end */ };

/* ---- writing ---- */

static void start(struct nl_writer *w, uint16_t type, uint16_t flags, uint8_t family,
		  uint16_t resource)
{
	struct nfgenmsg *g = nl_begin(w, type, flags, sizeof(*g));

	if (g)
		*g = (struct nfgenmsg){ .nfgen_family = family,
					.version = NFNETLINK_V0,
					.res_id = htons(resource) };
}

void nl_message(struct nl_writer *w, uint16_t type, uint16_t flags, uint8_t family)
{
	if (NFNL_SUBSYS_ID(type) == 0)
		type |= NFNL_SUBSYS_NFTABLES << 8;
	start(w, type, flags, family, 0);
}

void nl_batch(struct nl_writer *w)
{
	start(w, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	nl_end(w);
}

void nl_batch_end(struct nl_writer *w)
{
	if (w->failed)
		return;
	nl_header(w)->nlmsg_flags |= NLM_F_ACK;
	start(w, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	nl_end(w);
}

/* ---- reading ---- */

void nl_outcome_read(const void *bytes, size_t size, uint32_t port_id, uint32_t first,
		     uint32_t last, struct nl_outcome *o)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;

	while (!o->done && (h = nl_take(&at, &size))) {
		const struct nlmsgerr *e;

		/* Sequence numbers wrap: compare by distance. */
		if (h->nlmsg_pid != port_id || h->nlmsg_type != NLMSG_ERROR ||
		    h->nlmsg_seq - first > last - first)
			continue;
		e = nl_body(h, sizeof(*e));
		if (!e || e->error > 0)
			*o = (struct nl_outcome){ true, -EBADMSG, 0 };
		else if (e->error < 0)
			*o = (struct nl_outcome){ true, e->error, h->nlmsg_seq };
		else if (h->nlmsg_seq == last)
			o->done = true;
	}
	if (!o->done && size > 0)
		*o = (struct nl_outcome){ true, -EBADMSG, 0 };
}

void nl_dump_read(const void *bytes, size_t size, struct nl_dump *d)
{
	const uint8_t subsystem = d->subsystem ? d->subsystem : NFNL_SUBSYS_NFTABLES;
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;

	while (!d->done && (h = nl_take(&at, &size))) {
		const struct nfgenmsg *g = nl_body(h, sizeof(*g));
		const int *code = nl_body(h, sizeof(*code));
		struct nl_attrs attrs;

		if (h->nlmsg_pid != d->port_id || h->nlmsg_seq != d->seq)
			continue;
		if (h->nlmsg_flags & NLM_F_DUMP_INTR && !d->error && !d->takes)
			d->error = -EAGAIN; /* it changed meanwhile */
		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR) {
			d->done = true;
			if (!d->error)
				d->error = code && *code <= 0 ? *code : -EBADMSG;
			continue;
		}
		if (d->error || NFNL_SUBSYS_ID(h->nlmsg_type) != subsystem)
			continue;
		d->error = nl_attrs_of(h, sizeof(*g), &attrs)
				   ? d->fn(d->data, NFNL_MSG_TYPE(h->nlmsg_type),
					   g->nfgen_family, &attrs)
				   : -EBADMSG;
	}
	if (!d->done && size > 0) {
		d->done = true;
		d->error = d->error ? d->error : -EBADMSG;
	}
}

/* ---- exchange ---- */

int nl_transact(struct filter_conn *c, struct nl_writer *w, uint32_t *ret_seq)
{
	_Alignas(struct nlmsghdr) uint8_t buf[8192];
	const bool was_unsure = c->unsure;
	struct nl_outcome o = { 0 };
	uint32_t last = w->seq - 2; /* the message before the batch's end */
	int r;

	c->unsure = true; /* until the kernel has taken all of it */
	if (ret_seq)
		*ret_seq = 0;
	if (w->failed)
		return w->failed;
	c->seq = w->seq;
	/* Of nothing the kernel makes no transaction, and it would be counted as one. */
	if (w->seq - w->first == EMPTY_BATCH) {
		c->unsure = was_unsure;
		return 0;
	}
	r = nl_send(c->fd, w->bytes, w->size);
	if (r < 0)
		return r;
	while (!o.done) {
		ssize_t n = nl_receive(c->fd, buf, sizeof(buf));

		if (n < 0)
			return (int)n;
		nl_outcome_read(buf, (size_t)n, c->port_id, w->first, last, &o);
	}
	if (ret_seq)
		*ret_seq = o.error_seq;
	if (o.error == 0) {
		c->commits++;
		c->unsure = was_unsure;
	}
	return o.error;
}

int nl_ask(struct filter_conn *c, uint16_t type, uint16_t flags, uint8_t family,
	   void (*fill)(struct nl_writer *w, const void *what), const void *what,
	   nl_dump_fn *fn, void *data)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NL_REPLY_SIZE];
	uint8_t request[256];
	struct nl_writer w = nl_writer(request, sizeof(request), c->seq);
	struct nl_dump d = { c->port_id,
			     c->seq,
			     fn,
			     data,
			     false,
			     0,
			     NFNL_SUBSYS_ID(type),
			     type == NL_GETSETELEM_RESET || type == NL_GETRULE_RESET };
	int r;

	nl_message(&w, type, flags, family);
	if (fill)
		fill(&w, what);
	nl_end(&w);
	c->seq = w.seq;
	r = w.failed ? w.failed : nl_send(c->fd, w.bytes, w.size);
	if (r < 0)
		return r;
	while (!d.done) {
		ssize_t n = nl_receive(c->fd, buf, sizeof(buf));

		if (n < 0)
			return (int)n;
		nl_dump_read(buf, (size_t)n, &d);
	}
	return d.error;
}
