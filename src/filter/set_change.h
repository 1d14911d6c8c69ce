// SPDX-License-Identifier: Apache-2.0
/* filter/set_change - what changes in sets that stay while a ruleset takes the place of
 * another one. */
#pragma once

#include "filter/filter.h"
#include "filter/message.h"

struct set_changes {
	const char *table;
	const struct filter_learn *items; /* of any sets, each (address, list) once */
	size_t count;
	bool lifetimes; /* the sets' elements have any */
};

bool set_changes_any(const struct set_changes *c, enum addr_family family, size_t list);
/* Those of @c's items that are about the set @name, which is for @family and port list
 * @list. @is_new: it is made in this very batch, and has nothing that could go. */
void set_put_changes(struct nl_writer *w, const struct set_changes *c, const char *name,
		     enum addr_family family, size_t list, bool is_new);
