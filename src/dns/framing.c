// SPDX-License-Identifier: Apache-2.0
#include "dns/framing.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void dns_framing_init(struct dns_framing *f, uint8_t *buf, size_t size)
{
	assert(size > DNS_FRAME_PREFIX);
	*f = (struct dns_framing){ .buf = buf, .size = size };
}

size_t dns_framing_room(struct dns_framing *f, uint8_t **ret)
{
	if (f->begin > 0) {
		memmove(f->buf, f->buf + f->begin, f->end - f->begin);
		f->end -= f->begin;
		f->begin = 0;
	}
	*ret = f->buf + f->end;
	return f->size - f->end;
}

void dns_framing_received(struct dns_framing *f, size_t count)
{
	assert(count <= f->size - f->end);
	f->end += count;
}

int dns_framing_next(struct dns_framing *f, const uint8_t **ret_message, size_t *ret_size)
{
	const uint8_t *frame = f->buf + f->begin;
	size_t have = f->end - f->begin;
	size_t length;

	if (have < DNS_FRAME_PREFIX)
		return 0;
	length = (size_t)(frame[0] << 8 | frame[1]);
	if (length == 0 || length > f->size - DNS_FRAME_PREFIX)
		return -EBADMSG;
	if (have - DNS_FRAME_PREFIX < length)
		return 0;
	f->begin += DNS_FRAME_PREFIX + length;
	*ret_message = frame + DNS_FRAME_PREFIX;
	*ret_size = length;
	return 1;
}

size_t dns_framing_put_back(struct dns_framing *f)
{
	size_t count = f->end - f->begin;

	f->end = f->begin;
	return count;
}

bool dns_framing_is_within(const struct dns_framing *f)
{
	return f->end > f->begin;
}

void dns_framing_write_prefix(uint8_t prefix[DNS_FRAME_PREFIX], size_t size)
{
	assert(size > 0 && size <= UINT16_MAX);
	prefix[0] = (uint8_t)(size >> 8);
	prefix[1] = (uint8_t)size;
}
