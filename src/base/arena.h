// SPDX-License-Identifier: Apache-2.0
/* arena - memory that is allocated piece by piece and freed all at once. */
#pragma once

#include <stddef.h>

#include "base/macros.h"
#include "base/text.h"

struct arena_block;

/* { 0 } is a valid empty arena. */
struct arena {
	struct arena_block *head; /* newest block; owned */
};

/* Zeroed, aligned for any type. Return: NULL when memory is out. */
void *arena_alloc(struct arena *a, size_t size) MUST_CHECK;
/* @count times @size, overflow checked. */
void *arena_array(struct arena *a, size_t count, size_t size) MUST_CHECK;
/* A copy that ends with NUL. */
char *arena_text(struct arena *a, struct text t) MUST_CHECK;
char *arena_printf(struct arena *a, const char *fmt, ...) MUST_CHECK PRINTF_LIKE(2, 3);
void arena_done(struct arena *a);

static inline void clean_arena(struct arena *a)
{
	arena_done(a);
}
