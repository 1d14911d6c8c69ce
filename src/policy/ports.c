// SPDX-License-Identifier: Apache-2.0
/* Lists of ports: text to sorted disjoint ranges and back. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/rule.h"

static int range_compare(const void *x, const void *y)
{
	const struct plan_port_range *a = x, *b = y;

	if (a->protocol != b->protocol)
		return a->protocol - b->protocol;
	return a->from != b->from ? a->from - b->from : a->to - b->to;
}

/* Sort and merge what overlaps or touches. Return: the new count. */
static size_t ranges_normalise(struct plan_port_range *r, size_t count)
{
	size_t used = 0;

	qsort(r, count, sizeof(*r), range_compare);
	for (size_t i = 0; i < count; i++) {
		struct plan_port_range *last = used > 0 ? &r[used - 1] : NULL;

		if (last && last->protocol == r[i].protocol && r[i].from <= last->to + 1)
			last->to = MAX(last->to, r[i].to);
		else
			r[used++] = r[i];
	}
	return used;
}

static int part_fault(struct text part, struct err *err, const char *why)
{
	char shown[TEXT_ESCAPED_SIZE];

	return err_set(err, -EINVAL, "'%s' is not a port: %s",
		       text_escape(part, shown, sizeof(shown)), why);
}

/* "tcp/" or "udp/" in front. Return: the protocol, 0 for both, -1 for another word. */
static int protocol_take(struct text *t)
{
	const char *slash = t->len > 0 ? memchr(t->ptr, '/', t->len) : NULL;
	struct text word;

	if (!slash)
		return 0;
	word = (struct text){ t->ptr, (size_t)(slash - t->ptr) };
	t->len -= word.len + 1;
	t->ptr = slash + 1;
	if (text_equal_nocase(word, "tcp"))
		return IPPROTO_TCP;
	return text_equal_nocase(word, "udp") ? IPPROTO_UDP : -1;
}

/* One part: at most two ranges. Return: how many, or -EINVAL. */
static int part_parse(struct text part, struct plan_port_range ret[2], struct err *err)
{
	struct text numbers = part;
	int protocol = protocol_take(&numbers);
	const char *p = numbers.ptr, *end = p + numbers.len;
	uint32_t from, to;

	if (protocol < 0)
		return part_fault(part, err, "only tcp/ and udp/ can stand in front");
	if (!parse_u32(&p, end, UINT16_MAX, &from))
		return part_fault(part, err, "write 443, 8000-8100, tcp/22 or udp/443");
	to = from;
	if (p < end && *p == '-') {
		p++;
		if (!parse_u32(&p, end, UINT16_MAX, &to))
			return part_fault(part, err, "the range has no end");
	}
	if (p != end)
		return part_fault(part, err, "write 443, 8000-8100, tcp/22 or udp/443");
	if (from == 0 || to == 0)
		return part_fault(part, err, "ports are 1 to 65535");
	if (from > to)
		return part_fault(part, err, "the range runs backwards");
	ret[0] = (struct plan_port_range){ .protocol = (uint8_t)(protocol ? protocol
									  : IPPROTO_TCP),
					   .from = (uint16_t)from,
					   .to = (uint16_t)to };
	if (protocol != 0)
		return 1;
	ret[1] = ret[0];
	ret[1].protocol = IPPROTO_UDP;
	return 2;
}

int rule_ports_parse(struct text t, struct plan_port_range *ret, struct err *err)
{
	struct plan_port_range all[PLAN_PORT_RANGES_MAX + 2];
	size_t count = 0;
	struct text part;

	while (text_split(&t, ',', &part)) {
		int r = part_parse(text_trim(part), all + count, err);

		if (r < 0)
			return r;
		count += (size_t)r;
		if (count > PLAN_PORT_RANGES_MAX)
			count = ranges_normalise(all, count);
		if (count > PLAN_PORT_RANGES_MAX)
			return err_set(err, -EINVAL,
				       "more than %d separate ranges of ports",
				       PLAN_PORT_RANGES_MAX);
	}
	if (count == 0)
		return err_set(err, -EINVAL, "no port is named");
	count = ranges_normalise(all, count);
	memcpy(ret, all, count * sizeof(*ret));
	return (int)count;
}

/* The same range stands in @r for the other protocol. */
static bool has_twin(const struct plan_port_range *r, size_t count,
		     const struct plan_port_range *one, uint8_t protocol)
{
	for (size_t i = 0; i < count; i++) {
		if (r[i].protocol == protocol && r[i].from == one->from &&
		    r[i].to == one->to)
			return true;
	}
	return false;
}

/* Append one range. Return: false when it doesn't fit. */
static bool range_append(const struct plan_port_range *r, const char *protocol, char *buf,
			 size_t size)
{
	char text[32];
	size_t used = strlen(buf);
	int len;

	len = r->from == r->to
		      ? snprintf(text, sizeof(text), "%s%u", protocol, r->from)
		      : snprintf(text, sizeof(text), "%s%u-%u", protocol, r->from, r->to);
	if (used + 1 + (size_t)len >= size)
		return false;
	snprintf(buf + used, size - used, "%s%s", used > 0 ? "," : "", text);
	return true;
}

char *rule_ports_format(const struct plan_port_range *ranges, size_t count, char *buf,
			size_t size)
{
	buf[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		bool tcp = ranges[i].protocol == IPPROTO_TCP;
		bool both = has_twin(ranges, count, &ranges[i],
				     tcp ? IPPROTO_UDP : IPPROTO_TCP);

		if (both && !tcp)
			continue; /* shown where TCP stood */
		if (range_append(&ranges[i],
				 both  ? ""
				 : tcp ? "tcp/"
				       : "udp/",
				 buf, size))
			continue;
		if (size >= 4)
			snprintf(buf + MIN(strlen(buf), size - 4), 4, "...");
		break;
	}
	return buf;
}
