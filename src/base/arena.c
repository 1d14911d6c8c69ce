// SPDX-License-Identifier: Apache-2.0
#include "base/arena.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Each block is twice as large as the one before; a larger request gets one of its own.
 */
enum { BLOCK_FIRST = 512, BLOCK_SIZE = 16 * 1024 };

struct arena_block {
	struct arena_block *next;
	size_t used;
	size_t size;
	bool is_zero; /* all of it, since it was made */
	alignas(max_align_t) unsigned char bytes[];
};

/* A block that has room for @size. The tail of a usual block may never be given out, and
 * zeros there would cost pages; what is large by itself the C library has as zeros. */
static struct arena_block *block_add(struct arena *a, size_t size)
{
	const size_t next = a->head ? a->head->size * 2 : (size_t)BLOCK_FIRST;
	const size_t usual = MIN(next, (size_t)BLOCK_SIZE);
	const size_t room = MAX(size, usual);
	const bool is_zero = size > usual;
	struct arena_block *b = is_zero ? calloc(1, sizeof(*b) + room)
					: malloc(sizeof(*b) + room);

	if (!b)
		return NULL;
	*b = (struct arena_block){ .next = a->head, .size = room, .is_zero = is_zero };
	a->head = b;
	return b;
}

void *arena_alloc(struct arena *a, size_t size)
{
	const size_t align = alignof(max_align_t);
	struct arena_block *b = a->head;
	size_t rounded;
	void *p;

	if (size > SIZE_MAX / 2)
		return NULL;
	rounded = (size + align - 1) & ~(align - 1);
	if (!b || b->size - b->used < rounded)
		b = block_add(a, rounded);
	if (!b)
		return NULL;
	p = b->bytes + b->used;
	b->used += rounded;
	return b->is_zero ? p : memset(p, 0, rounded);
}

void *arena_array(struct arena *a, size_t count, size_t size)
{
	size_t total;

	if (__builtin_mul_overflow(count, size, &total))
		return NULL;
	return arena_alloc(a, total);
}

char *arena_text(struct arena *a, struct text t)
{
	char *copy = arena_alloc(a, t.len + 1);

	if (copy && t.len > 0)
		memcpy(copy, t.ptr, t.len);
	return copy;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
	va_list ap;
	char *text;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0)
		return NULL;
	text = arena_alloc(a, (size_t)len + 1);
	if (!text)
		return NULL;
	va_start(ap, fmt);
	vsnprintf(text, (size_t)len + 1, fmt, ap);
	va_end(ap);
	return text;
}

void arena_done(struct arena *a)
{
	while (a->head) {
		struct arena_block *next = a->head->next;

		free(a->head);
		a->head = next;
	}
}
