// SPDX-License-Identifier: Apache-2.0
#include "supervisor/init.h"

#include <string.h>

#include "base/wire.h"

enum { TYPE_A = 1, CLASS_IN = 1, FLAGS_RD = 0x0100, FLAG_QR = 0x8000, HEADER_SIZE = 12 };

static void write_name(struct wire *w, const char *name)
{
	while (*name) {
		size_t len = strcspn(name, ".");

		if (len == 0 || len > 63) {
			w->failed = true;
			return;
		}
		wire_write_u8(w, (uint8_t)len);
		wire_write_bytes(w, name, len);
		name += len;
		if (*name == '.')
			name++;
	}
	wire_write_u8(w, 0);
}

size_t lookup_write(const char *name, uint16_t id, uint8_t *out, size_t size)
{
	struct wire w = wire_writer(out, size);

	wire_write_u16(&w, id);
	wire_write_u16(&w, FLAGS_RD);
	wire_write_u16(&w, 1);
	wire_write_bytes(&w, (const uint8_t[6]){ 0 }, 6);
	write_name(&w, name);
	wire_write_u16(&w, TYPE_A);
	wire_write_u16(&w, CLASS_IN);
	return wire_ok(&w) ? wire_offset(&w) : 0;
}

/* Only past it: a pointer ends a name. */
static void skip_name(struct wire *w)
{
	uint8_t len;

	while (wire_ok(w) && (len = wire_read_u8(w)) != 0) {
		if (len >= 0xc0) {
			wire_take(w, 1);
			return;
		}
		if (len > 63)
			w->failed = true;
		wire_take(w, len);
	}
}

static void read_record(struct wire *w, struct lookup_answer *ret)
{
	const uint8_t *data;
	uint16_t type, class, size;

	skip_name(w);
	type = wire_read_u16(w);
	class = wire_read_u16(w);
	wire_take(w, 4);
	size = wire_read_u16(w);
	data = wire_take(w, size);
	if (!data || type != TYPE_A || class != CLASS_IN ||
	    size != sizeof(ret->address) || ret->has_address)
		return;
	ret->has_address = true;
	memcpy(ret->address, data, sizeof(ret->address));
}

bool lookup_read(const uint8_t *query, size_t query_size, const uint8_t *bytes,
		 size_t size, struct lookup_answer *ret)
{
	struct wire w = wire_reader(bytes, size);
	struct lookup_answer answer = { 0 };
	uint16_t id = wire_read_u16(&w), flags = wire_read_u16(&w);
	uint16_t questions = wire_read_u16(&w), records = wire_read_u16(&w);

	if (size < query_size || id != (uint16_t)(query[0] << 8 | query[1]) ||
	    !(flags & FLAG_QR) || questions != 1 ||
	    memcmp(bytes + HEADER_SIZE, query + HEADER_SIZE, query_size - HEADER_SIZE) !=
		    0)
		return false;
	wire_seek(&w, query_size);
	for (; wire_ok(&w) && records > 0; records--)
		read_record(&w, &answer);
	answer.rcode = flags & 0xf;
	if (wire_ok(&w))
		*ret = answer;
	return wire_ok(&w);
}
