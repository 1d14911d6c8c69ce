// SPDX-License-Identifier: Apache-2.0
/* wire - a cursor over bytes of known length, for reading and for writing.
 *
 * Failure sticks: after the first read or write that doesn't fit, every later one
 * returns zero or does nothing, and wire_ok() is false. So a group of fields is
 * read in a row and checked once. Integers are big-endian, as protocols have them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/macros.h"

struct wire {
	uint8_t *start;
	uint8_t *pos;
	uint8_t *end;
	bool failed;
};

/* For reading; the bytes are never changed through it. */
static inline struct wire wire_reader(const void *bytes, size_t size)
{
	uint8_t *start = (uint8_t *)(uintptr_t)bytes;

	return (struct wire){ .start = start, .pos = start, .end = start + size };
}

static inline struct wire wire_writer(void *bytes, size_t size)
{
	return (struct wire){ .start = bytes,
			      .pos = bytes,
			      .end = (uint8_t *)bytes + size };
}

static inline bool wire_ok(const struct wire *w)
{
	return !w->failed;
}

static inline size_t wire_offset(const struct wire *w)
{
	return (size_t)(w->pos - w->start);
}

static inline size_t wire_left(const struct wire *w)
{
	return w->failed ? 0 : (size_t)(w->end - w->pos);
}

/* Room for @n bytes, and move behind them. Return: their start, or NULL. */
static inline uint8_t *wire_take(struct wire *w, size_t n)
{
	uint8_t *p = w->pos;

	if (w->failed || (size_t)(w->end - w->pos) < n) {
		w->failed = true;
		return NULL;
	}
	w->pos += n;
	return p;
}

static inline void wire_seek(struct wire *w, size_t offset)
{
	if (offset > (size_t)(w->end - w->start))
		w->failed = true;
	else
		w->pos = w->start + offset;
}

static inline uint8_t wire_read_u8(struct wire *w)
{
	const uint8_t *p = wire_take(w, 1);

	return p ? p[0] : 0;
}

static inline uint16_t wire_read_u16(struct wire *w)
{
	const uint8_t *p = wire_take(w, 2);

	return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

static inline uint32_t wire_read_u32(struct wire *w)
{
	const uint8_t *p = wire_take(w, 4);

	return p ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
			       p[3]
		 : 0;
}

static inline void wire_write_u8(struct wire *w, uint8_t v)
{
	uint8_t *p = wire_take(w, 1);

	if (wire_ok(w))
		p[0] = v;
}

static inline void wire_write_u16(struct wire *w, uint16_t v)
{
	uint8_t *p = wire_take(w, 2);

	if (wire_ok(w)) {
		p[0] = (uint8_t)(v >> 8);
		p[1] = (uint8_t)v;
	}
}

static inline void wire_write_u32(struct wire *w, uint32_t v)
{
	uint8_t *p = wire_take(w, 4);

	if (wire_ok(w)) {
		p[0] = (uint8_t)(v >> 24);
		p[1] = (uint8_t)(v >> 16);
		p[2] = (uint8_t)(v >> 8);
		p[3] = (uint8_t)v;
	}
}

static inline void wire_write_bytes(struct wire *w, const void *bytes, size_t n)
{
	uint8_t *p = wire_take(w, n);

	if (p && n > 0)
		memcpy(p, bytes, n);
}
