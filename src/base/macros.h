// SPDX-License-Identifier: Apache-2.0
/* macros - the attributes and cleanup helpers that every file uses. */
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define MUST_CHECK	       __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_SIZE(a)	       (sizeof(a) / sizeof((a)[0]))

#define MIN(a, b)                                                                        \
	({                                                                               \
		typeof(a) min_a_ = (a);                                                  \
		typeof(b) min_b_ = (b);                                                  \
		min_a_ < min_b_ ? min_a_ : min_b_;                                       \
	})
#define MAX(a, b)                                                                        \
	({                                                                               \
		typeof(a) max_a_ = (a);                                                  \
		typeof(b) max_b_ = (b);                                                  \
		max_a_ > max_b_ ? max_a_ : max_b_;                                       \
	})

/* Make room for one more behind the @count of @items, which have room for @capacity.
 * Return: whether there is; else nothing has changed. */
#define ARRAY_GROW(items, count, capacity)                                               \
	({                                                                               \
		const size_t grown_ = 2 * (capacity) + 16;                               \
		typeof(items) more_ =                                                    \
			(count) < (capacity)                                             \
				? (items)                                                \
				: reallocarray((items), grown_, sizeof(*(items)));       \
		if (more_ && (count) == (capacity)) {                                    \
			(items) = more_;                                                 \
			(capacity) = grown_;                                             \
		}                                                                        \
		more_ != NULL;                                                           \
	})

/* The struct that holds @member at @ptr. */
#define CONTAINER_OF(ptr, type, member)                                                  \
	((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* A local that owns something: CLEAN(fd) int s = -1; CLEAN(mem) char *b = NULL; */
#define CLEAN(kind) __attribute__((cleanup(clean_##kind)))
/* What becomes of it: @done is called with what the local holds then. */
#define DEFINE_CLEAN(kind, type, done)                                                   \
	static inline void clean_##kind(type *slot)                                      \
	{                                                                                \
		done(*slot);                                                             \
	}

static inline void clean_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

/* Close what is there; *@fd is -1 then. */
static inline void fd_close(int *fd)
{
	clean_fd(fd);
	*fd = -1;
}

static inline void clean_mem(void *slot)
{
	free(*(void **)slot);
}

/* Give an owned local away: the cleanup then finds nothing. */
#define TAKE_PTR(p)                                                                      \
	({                                                                               \
		typeof(p) take_p_ = (p);                                                 \
		(p) = NULL;                                                              \
		take_p_;                                                                 \
	})
#define TAKE_FD(fd)                                                                      \
	({                                                                               \
		int take_fd_ = (fd);                                                     \
		(fd) = -1;                                                               \
		take_fd_;                                                                \
	})
