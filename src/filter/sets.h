// SPDX-License-Identifier: Apache-2.0
/* filter/set - elements of the sets that change, for those who write a batch. */
#pragma once

#include "filter/filter.h"
#include "filter/message.h"
#include "filter/ruleset.h"

/* Whose sets: those of a table of one sandbox, or with its mark those that many share. */
struct set_owner {
	enum filter_naming naming;
	uint32_t mark; /* 0: the table is the sandbox's own */
};

/* An item that names a set: a family, and a port list that can be. */
bool set_item_is_valid(const struct filter_learn *item);
/* Add @items, any number in any order, to the sets of @role. Learned ones whose lifetime
 * is over are left out; others have none. */
void set_put_items(struct nl_writer *w, const struct set_owner *o, enum filter_role role,
		   const struct filter_learn *items, size_t count);
/* Which sets of a role @items are about: bit 2 * port list, or for IPv6 the next one. */
uint32_t set_indexes(const struct filter_learn *items, size_t count);
/* What changes in a set that outlives its ruleset: those of @items, each (address, list)
 * once, that are about the set at @index. @is_new: the set is made in this very batch,
 * and has nothing that could go. */
void set_put_changes(struct nl_writer *w, const struct set_owner *o,
		     enum filter_role role, size_t index,
		     const struct filter_learn *items, size_t count, bool is_new);
/* Delete an element that may have ended meanwhile. */
void set_put_removal(struct nl_writer *w, const struct set_owner *o,
		     enum filter_role role, const struct addr *a, uint8_t port_list);
/* filter_learn() */
int set_learn(struct filter_conn *c, const struct set_owner *o,
	      const struct filter_learn *items, size_t count) MUST_CHECK;
bool set_self_port_is_valid(const struct filter_self_port *h);
/* Add or delete ports of our own. */
void set_put_self_ports(struct nl_writer *w, enum filter_naming naming, bool add,
			const struct filter_self_port *items, size_t count);
