// SPDX-License-Identifier: Apache-2.0
/* What Weir calls of libmnl, and nothing else, with libmnl's declarations.
 *
 * HOW IT WORKS
 *   Weir builds each message in a buffer that is large enough by its own count, so these
 *   functions check no end of it. What they read is the kernel's answer: no attribute is
 *   taken that isn't whole, and a length counts as what it is, not as a signed number.
 *   With the library each start of `weir run` maps and relocates it, and no distribution
 *   has it for a program that is linked statically. */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <string.h>

/* ---- messages ---- */

static void *at(const void *start, size_t offset)
{
	return (uint8_t *)(uintptr_t)start + offset;
}

/* Take @size bytes at the end of the message @h, all zero. */
static void *put_room(struct nlmsghdr *h, size_t size)
{
	void *room = at(h, MNL_ALIGN(h->nlmsg_len));

	h->nlmsg_len = MNL_ALIGN(h->nlmsg_len) + (uint32_t)MNL_ALIGN(size);
	return memset(room, 0, MNL_ALIGN(size));
}

struct nlmsghdr *mnl_nlmsg_put_header(void *buf)
{
	struct nlmsghdr *h = memset(buf, 0, MNL_NLMSG_HDRLEN);

	h->nlmsg_len = MNL_NLMSG_HDRLEN;
	return h;
}

void *mnl_nlmsg_put_extra_header(struct nlmsghdr *h, size_t size)
{
	return put_room(h, size);
}

void *mnl_nlmsg_get_payload(const struct nlmsghdr *h)
{
	return at(h, MNL_NLMSG_HDRLEN);
}

size_t mnl_nlmsg_get_payload_len(const struct nlmsghdr *h)
{
	return h->nlmsg_len - MNL_NLMSG_HDRLEN;
}

/* What the message @h, which is not data, says. */
static int read_control(const struct nlmsghdr *h)
{
	const struct nlmsgerr *said = mnl_nlmsg_get_payload(h);

	if (h->nlmsg_type == NLMSG_DONE)
		return MNL_CB_STOP;
	if (h->nlmsg_type != NLMSG_ERROR)
		return MNL_CB_OK;
	if (mnl_nlmsg_get_payload_len(h) < sizeof(*said)) {
		errno = EBADMSG;
		return MNL_CB_ERROR;
	}
	errno = said->error < 0 ? -said->error : said->error;
	return errno == 0 ? MNL_CB_STOP : MNL_CB_ERROR;
}

static int read_message(const struct nlmsghdr *h, unsigned int seq, mnl_cb_t on_message,
			void *data)
{
	if (seq != 0 && h->nlmsg_seq != 0 && h->nlmsg_seq != seq)
		errno = EPROTO;
	else if (h->nlmsg_flags & NLM_F_DUMP_INTR)
		errno = EINTR; /* what was listed changed meanwhile */
	else if (h->nlmsg_type >= NLMSG_MIN_TYPE)
		return on_message ? on_message(h, data) : MNL_CB_OK;
	else
		return read_control(h);
	return MNL_CB_ERROR;
}

int mnl_cb_run(const void *buf, size_t left, unsigned int seq, unsigned int port,
	       mnl_cb_t on_message, void *data)
{
	int more = MNL_CB_OK;

	while (more > MNL_CB_STOP && left >= MNL_NLMSG_HDRLEN) {
		const struct nlmsghdr *h = buf;
		size_t size = MNL_ALIGN((size_t)h->nlmsg_len);

		if (h->nlmsg_len < MNL_NLMSG_HDRLEN || h->nlmsg_len > left)
			break;
		more = read_message(h, seq, on_message, data);
		size = size < left ? size : left;
		buf = at(buf, size);
		left -= size;
	}
	return more;
}

/* ---- attributes, written ---- */

static struct nlattr *put_attr(struct nlmsghdr *h, uint16_t type, size_t size)
{
	struct nlattr *a = put_room(h, MNL_ATTR_HDRLEN + size);

	a->nla_type = type;
	a->nla_len = (uint16_t)(MNL_ATTR_HDRLEN + size);
	return a;
}

void mnl_attr_put(struct nlmsghdr *h, uint16_t type, size_t size, const void *data)
{
	struct nlattr *a = put_attr(h, type, size);

	if (size > 0)
		memcpy(mnl_attr_get_payload(a), data, size);
}

void mnl_attr_put_u8(struct nlmsghdr *h, uint16_t type, uint8_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_u16(struct nlmsghdr *h, uint16_t type, uint16_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_u32(struct nlmsghdr *h, uint16_t type, uint32_t value)
{
	mnl_attr_put(h, type, sizeof(value), &value);
}

void mnl_attr_put_strz(struct nlmsghdr *h, uint16_t type, const char *text)
{
	mnl_attr_put(h, type, strlen(text) + 1, text);
}

struct nlattr *mnl_attr_nest_start(struct nlmsghdr *h, uint16_t type)
{
	return put_attr(h, NLA_F_NESTED | type, 0);
}

void mnl_attr_nest_end(struct nlmsghdr *h, struct nlattr *nest)
{
	nest->nla_len = (uint16_t)((uint8_t *)at(h, h->nlmsg_len) - (uint8_t *)nest);
}

/* ---- attributes, read ---- */

uint16_t mnl_attr_get_type(const struct nlattr *a)
{
	return a->nla_type & NLA_TYPE_MASK;
}

uint16_t mnl_attr_get_payload_len(const struct nlattr *a)
{
	return (uint16_t)(a->nla_len - MNL_ATTR_HDRLEN);
}

void *mnl_attr_get_payload(const struct nlattr *a)
{
	return at(a, MNL_ATTR_HDRLEN);
}

bool mnl_attr_ok(const struct nlattr *a, int left)
{
	return left >= (int)MNL_ATTR_HDRLEN && a->nla_len >= MNL_ATTR_HDRLEN &&
	       a->nla_len <= left;
}

struct nlattr *mnl_attr_next(const struct nlattr *a)
{
	return at(a, MNL_ALIGN(a->nla_len));
}
