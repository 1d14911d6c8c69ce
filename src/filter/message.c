// SPDX-License-Identifier: Apache-2.0
#include "filter/message.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/netfilter/nfnetlink.h>

enum { EMPTY_BATCH = 2 /* messages: its begin and its end */ };

/* ---- writing ---- */

struct nl_writer nl_writer(void *bytes, size_t capacity, uint32_t first_seq)
{
	return (struct nl_writer){
		.bytes = bytes,
		.capacity = bytes ? capacity : 0,
		.seq = first_seq,
		.first = first_seq,
		.grows = !bytes,
	};
}

void nl_writer_done(struct nl_writer *w)
{
	if (w->grows)
		free(w->bytes);
	*w = (struct nl_writer){ 0 };
}

static bool grow(struct nl_writer *w, size_t size)
{
	size_t capacity = MAX(w->capacity * 2, w->size + size + 4096);
	uint8_t *bytes;

	if (!w->grows || capacity > NL_BATCH_MAX) {
		w->failed = -E2BIG;
		return false;
	}
	bytes = realloc(w->bytes, capacity);
	if (!bytes) {
		w->failed = -ENOMEM;
		return false;
	}
	w->bytes = bytes;
	w->capacity = capacity;
	return true;
}

/* Room for @size bytes, to be filled, and zeros behind them. NULL after a failure. */
static void *take(struct nl_writer *w, size_t size)
{
	size_t padded = NLMSG_ALIGN(size);
	uint8_t *p;

	if (w->failed || (w->capacity - w->size < padded && !grow(w, padded)))
		return NULL;
	p = w->bytes + w->size;
	memset(p + padded - NLMSG_ALIGNTO, 0, NLMSG_ALIGNTO);
	w->size += padded;
	return p;
}

static void start(struct nl_writer *w, uint16_t type, uint16_t flags, uint8_t family,
		  uint16_t resource)
{
	size_t at = w->size;
	struct nlmsghdr *h = take(w, sizeof(*h));
	struct nfgenmsg *g = take(w, sizeof(*g));

	if (!g)
		return;
	w->message = at;
	h = (struct nlmsghdr *)(void *)(w->bytes + at);
	*h = (struct nlmsghdr){ .nlmsg_type = type,
				.nlmsg_flags = NLM_F_REQUEST | flags,
				.nlmsg_seq = w->seq };
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

static struct nlmsghdr *open_message(struct nl_writer *w)
{
	return (struct nlmsghdr *)(void *)(w->bytes + w->message);
}

void nl_end(struct nl_writer *w)
{
	if (w->failed)
		return;
	open_message(w)->nlmsg_len = (uint32_t)(w->size - w->message);
	w->seq++;
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
	open_message(w)->nlmsg_flags |= NLM_F_ACK;
	start(w, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
	nl_end(w);
}

void nl_put(struct nl_writer *w, uint16_t type, const void *data, size_t size)
{
	struct nlattr *a;

	if (size > UINT16_MAX - NLA_HDRLEN) {
		w->failed = w->failed ? w->failed : -E2BIG;
		return;
	}
	a = take(w, NLA_HDRLEN + size);
	if (!a)
		return;
	a->nla_type = type;
	a->nla_len = (uint16_t)(NLA_HDRLEN + size);
	if (size > 0)
		memcpy((uint8_t *)a + NLA_HDRLEN, data, size);
}

void nl_put_text(struct nl_writer *w, uint16_t type, const char *text)
{
	nl_put(w, type, text, strlen(text) + 1);
}

void nl_put_u8(struct nl_writer *w, uint16_t type, uint8_t v)
{
	nl_put(w, type, &v, sizeof(v));
}

void nl_put_be16(struct nl_writer *w, uint16_t type, uint16_t v)
{
	uint16_t be = htobe16(v);

	nl_put(w, type, &be, sizeof(be));
}

void nl_put_be32(struct nl_writer *w, uint16_t type, uint32_t v)
{
	uint32_t be = htobe32(v);

	nl_put(w, type, &be, sizeof(be));
}

void nl_put_be64(struct nl_writer *w, uint16_t type, uint64_t v)
{
	uint64_t be = htobe64(v);

	nl_put(w, type, &be, sizeof(be));
}

size_t nl_nest(struct nl_writer *w, uint16_t type)
{
	size_t at = w->size;

	nl_put(w, type | NLA_F_NESTED, NULL, 0);
	return at;
}

void nl_nest_end(struct nl_writer *w, size_t nest)
{
	if (w->failed)
		return;
	if (w->size - nest > UINT16_MAX)
		w->failed = -E2BIG;
	else
		((struct nlattr *)(void *)(w->bytes + nest))->nla_len =
			(uint16_t)(w->size - nest);
}

/* ---- reading ---- */

/* One reply that is an error or an acknowledgement. */
static void read_error(const struct nlmsghdr *h, uint32_t last, struct nl_outcome *o)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);

	if (h->nlmsg_len < NLMSG_HDRLEN + sizeof(*e) || e->error > 0) {
		*o = (struct nl_outcome){ true, -EBADMSG, 0 };
	} else if (e->error < 0) {
		*o = (struct nl_outcome){ true, e->error, h->nlmsg_seq };
	} else if (h->nlmsg_seq == last) {
		o->done = true;
	}
}

void nl_outcome_read(const void *bytes, size_t size, uint32_t port_id, uint32_t first,
		     uint32_t last, struct nl_outcome *o)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;

	while (!o->done && (h = nl_take(&at, &size))) {
		/* Sequence numbers wrap: compare by distance. */
		if (h->nlmsg_pid == port_id && h->nlmsg_type == NLMSG_ERROR &&
		    h->nlmsg_seq - first <= last - first)
			read_error(h, last, o);
	}
	if (!o->done && size > 0)
		*o = (struct nl_outcome){ true, -EBADMSG, 0 };
}

static void dump_message(const struct nlmsghdr *h, struct nl_dump *d)
{
	const struct nfgenmsg *g = mnl_nlmsg_get_payload(h);
	struct nl_attrs attrs;

	if (NFNL_SUBSYS_ID(h->nlmsg_type) !=
	    (d->subsystem ? d->subsystem : NFNL_SUBSYS_NFTABLES))
		return;
	if (!nl_attrs_of(h, sizeof(*g), &attrs))
		d->error = -EBADMSG;
	else
		d->error = d->fn(d->data, NFNL_MSG_TYPE(h->nlmsg_type), g->nfgen_family,
				 &attrs);
}

static void dump_control(const struct nlmsghdr *h, struct nl_dump *d)
{
	const int *code = mnl_nlmsg_get_payload(h);

	d->done = true;
	if (d->error)
		return;
	if (h->nlmsg_len < NLMSG_HDRLEN + sizeof(*code) || *code > 0)
		d->error = -EBADMSG;
	else
		d->error = *code;
}

void nl_dump_read(const void *bytes, size_t size, struct nl_dump *d)
{
	const uint8_t *at = bytes;
	const struct nlmsghdr *h;

	while (!d->done && (h = nl_take(&at, &size))) {
		if (h->nlmsg_pid != d->port_id || h->nlmsg_seq != d->seq)
			continue;
		if (h->nlmsg_flags & NLM_F_DUMP_INTR && !d->error && !d->takes)
			d->error = -EAGAIN; /* it changed meanwhile */
		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			dump_control(h, d);
		else if (!d->error)
			dump_message(h, d);
	}
	if (!d->done && size > 0) {
		d->done = true;
		d->error = d->error ? d->error : -EBADMSG;
	}
}

/* ---- exchange ---- */

static int transact(struct filter_conn *c, struct nl_writer *w, uint32_t *ret_seq)
{
	_Alignas(struct nlmsghdr) uint8_t buf[8192];
	struct nl_outcome o = { 0 };
	uint32_t last = w->seq - 2; /* the message before the batch's end */
	int r;

	if (ret_seq)
		*ret_seq = 0;
	if (w->failed)
		return w->failed;
	c->seq = w->seq;
	/* Of nothing the kernel makes no transaction, and it would be counted as one. */
	if (w->seq - w->first == EMPTY_BATCH)
		return 0;
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
	c->commits += o.error == 0;
	return o.error;
}

int nl_transact(struct filter_conn *c, struct nl_writer *w, uint32_t *ret_seq)
{
	int r = transact(c, w, ret_seq);

	if (r < 0)
		c->unsure = true;
	return r;
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
			     type == NL_GETSETELEM_RESET };
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
