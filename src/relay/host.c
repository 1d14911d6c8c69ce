// SPDX-License-Identifier: Apache-2.0
#include "relay/host.h"

#include <string.h>

#include "policy/names.h"

static enum wire_host_kind read_name(struct text t, struct wire_host *ret)
{
	struct wire_host host = { .kind = WIRE_HOST_NAME };
	struct text name, label = { .ptr = NULL };

	if (t.len > 0 && t.ptr[t.len - 1] == '.')
		t.len--;
	if (t.len == 0 || t.len > WIRE_HOST_MAX)
		return WIRE_HOST_BAD;
	for (size_t i = 0; i < t.len; i++)
		host.text[i] = text_lower(t.ptr[i]);
	host.size = (uint8_t)t.len;
	name = (struct text){ host.text, host.size };
	while (text_split(&name, '.', &label)) {
		if (label.len == 0 || label.len > WIRE_LABEL_MAX)
			return WIRE_HOST_BAD;
		for (size_t i = 0; i < label.len; i++) {
			char c = label.ptr[i];

			if (!(c >= 'a' && c <= 'z') && !text_is_digit(c) && c != '-' &&
			    c != '_')
				return WIRE_HOST_BAD;
		}
	}
	if (name_is_number(label)) /* the last one */
		return WIRE_HOST_BAD;
	*ret = host;
	return WIRE_HOST_NAME;
}

static enum wire_host_kind read_address(struct text t, enum addr_family family,
					struct wire_host *ret)
{
	struct wire_host host = { .kind = WIRE_HOST_ADDRESS };

	if (!addr_parse(t.ptr, t.len, &host.addr) || host.addr.family != family)
		return WIRE_HOST_BAD;
	*ret = host;
	return WIRE_HOST_ADDRESS;
}

enum wire_host_kind wire_host_read(struct text t, struct wire_host *ret)
{
	if (t.len >= 2 && t.ptr[0] == '[' && t.ptr[t.len - 1] == ']')
		return read_address((struct text){ t.ptr + 1, t.len - 2 }, ADDR_V6, ret);
	if (t.len > 0 && read_address(t, ADDR_V4, ret) == WIRE_HOST_ADDRESS)
		return WIRE_HOST_ADDRESS;
	return read_name(t, ret);
}

enum wire_host_kind wire_host_port_read(struct text t, struct wire_host *ret,
					uint16_t *ret_port)
{
	const char *colon = NULL;
	uint32_t port = 0;

	for (size_t i = t.len; i > 0 && t.ptr[i - 1] != ']' && !colon; i--) {
		if (t.ptr[i - 1] == ':')
			colon = t.ptr + i - 1;
	}
	if (colon) {
		struct text digits = { colon + 1, (size_t)(t.ptr + t.len - colon - 1) };

		if (!text_to_u32(digits, UINT16_MAX, &port) || port == 0)
			return WIRE_HOST_BAD;
		t.len = (size_t)(colon - t.ptr);
	}
	*ret_port = (uint16_t)port;
	return wire_host_read(t, ret);
}

bool wire_host_equal(const struct wire_host *a, const struct wire_host *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == WIRE_HOST_ADDRESS)
		return addr_equal(&a->addr, &b->addr);
	return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}
