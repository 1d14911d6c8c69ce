// SPDX-License-Identifier: Apache-2.0
#include "sandbox/novelty.h"

#include <string.h>

static void grow_old(struct novelty *c, int64_t now_ms)
{
	int64_t halves = (now_ms - c->halved_ms) / NOVELTY_HALF_MS;
	const unsigned int shift = (unsigned int)MIN(halves, INT64_C(16));

	if (halves <= 0)
		return;
	c->halved_ms += halves * NOVELTY_HALF_MS;
	for (size_t i = 0; i < NOVELTY_LEVELS; i++)
		for (size_t row = 0; row < NOVELTY_ROWS; row++)
			for (size_t j = 0; j < NOVELTY_CELLS; j++)
				c->cells[i][row][j] >>= shift;
	c->total >>= shift;
}

/* The last @labels labels of @name: all of it when it has no more. */
static const char *tail(const char *name, size_t len, size_t labels)
{
	size_t at = len;

	while (at > 0 && (name[at - 1] != '.' || --labels > 0))
		at--;
	return name + at;
}

/* Count the group of @e at @level. Return: how often it came, or more. */
static uint16_t count(struct novelty *c, const struct event *e, size_t level)
{
	static const uint8_t v4[] = { 2, 3, 4 }, v6[] = { 4, 6, 8 };
	uint8_t bytes[1 + EVENT_NAME_SIZE] = { e->layer };
	uint16_t least = UINT16_MAX;
	size_t size = 1;
	uint64_t hash;

	if (e->remote.family != ADDR_NONE) {
		const size_t used = e->remote.family == ADDR_V4 ? v4[level] : v6[level];

		memcpy(bytes + size, e->remote.bytes, used);
		size += used;
	} else {
		const size_t len = strnlen(e->name, sizeof(e->name));
		const char *part = tail(e->name, len, level + 1);

		memcpy(bytes + size, part, len - (size_t)(part - e->name));
		size += len - (size_t)(part - e->name);
	}
	hash = hash_bytes(&c->key, bytes, size);
	for (size_t row = 0; row < NOVELTY_ROWS; row++) {
		uint16_t *cell = &c->cells[level][row][hash % NOVELTY_CELLS];

		*cell = (uint16_t)(*cell + (*cell < UINT16_MAX));
		least = MIN(least, *cell);
		hash /= NOVELTY_CELLS;
	}
	return least;
}

unsigned int novelty_rank(struct novelty *c, const struct event *e, int64_t now_ms)
{
	unsigned int rank = NOVELTY_LEVELS;

	grow_old(c, now_ms);
	c->total += c->total < UINT32_MAX;
	for (size_t level = NOVELTY_LEVELS; level-- > 0;) {
		const uint16_t seen = count(c, e, level);

		if (seen <= NOVELTY_FEW || seen <= c->total / NOVELTY_SHARE)
			rank = (unsigned int)level;
	}
	return rank;
}
