// SPDX-License-Identifier: Apache-2.0
/* sandbox/novelty - in how large a novelty a new denial came.
 *
 * A program that tries thousands of destinations must not hide the one that matters. So
 * what is new counts for the groups that it is in: of a name the last label, the last two
 * and the last three; of an address its first 16, 24 and 32 bits, or 32, 48 and 64. The
 * first of these that is no novelty says the rank. A flood of names below one domain has
 * the third rank, a scan of one address's ports the last, and what has nothing to do with
 * either the first.
 *
 * Counters, not keys: a group has a counter in each row, which it shares with others, and
 * the lower one counts (a count-min sketch, Cormode and Muthukrishnan, 2005). In one of
 * 16,384 cases both are those of a flood, and what came is taken for a part of it. What a
 * flood spreads over all counters is no novelty in any, and can't be told apart from
 * anything else. */
#pragma once

#include "base/hash.h"
#include "event/event.h"

enum {
	NOVELTY_LEVELS = 3,
	NOVELTY_ROWS = 2,
	NOVELTY_CELLS = 128,
	NOVELTY_FEW = 8,    /* no novelty, whatever the others are */
	NOVELTY_SHARE = 32, /* one in so many of all is */
	NOVELTY_HALF_MS = 1000,
};

struct novelty {
	struct hash_key key; /* so that a sandbox can't know what shares a counter */
	uint16_t cells[NOVELTY_LEVELS][NOVELTY_ROWS][NOVELTY_CELLS];
	uint32_t total;	   /* of a level */
	int64_t halved_ms; /* all of them: each second */
};

/* Count @e, which is new. All zero, @c knows of nothing. Return: the rank, 0 to
 * NOVELTY_LEVELS. */
unsigned int novelty_rank(struct novelty *c, const struct event *e, int64_t now_ms);
