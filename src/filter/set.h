// SPDX-License-Identifier: Apache-2.0
/* filter/set - elements of the sets that change, for those who write a batch. */
#pragma once

#include "filter/filter.h"
#include "filter/message.h"
#include "filter/ruleset_internal.h"

/* Whose sets: those of a table of one sandbox, or with its mark those that many share. */
struct set_owner {
	enum filter_naming naming;
	uint32_t mark; /* 0: the table is the sandbox's own */
};

/* An item that names a set: a family, and a port list that can be. */
bool set_item_is_valid(const struct filter_learn *item);
/* Add @items, any number in any order, to the sets of @role. With @lifetimes those whose
 * lifetime is over are left out; otherwise they get none. */
void set_put_items(struct nl_writer *w, const struct set_owner *o, enum filter_role role,
		   const struct filter_learn *items, size_t count, bool lifetimes);
/* filter_learn() */
int set_learn(struct filter_conn *c, const struct set_owner *o,
	      const struct filter_learn *items, size_t count) MUST_CHECK;
bool set_held_is_valid(const struct filter_held *h);
/* Add or delete held ports, of @count as many as fit into one message: those at the
 * beginning that are of one family. @type is NFT_MSG_NEWSETELEM or NFT_MSG_DELSETELEM.
 * Return: how many. */
size_t set_put_held(struct nl_writer *w, enum filter_naming naming, uint16_t type,
		    const struct filter_held *items, size_t count);
