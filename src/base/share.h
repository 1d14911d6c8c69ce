// SPDX-License-Identifier: Apache-2.0
/* base/share - how much one sandbox may take of a table that all sandboxes of an engine
 * share.
 *
 * A sandbox takes no more entries than it leaves free. So n sandboxes that take what they
 * can leave the (n + 1)th part to the next one, and one sandbox alone has half. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* May a sandbox that has @mine entries take one more of @all, of which @used are in use?
 */
static inline bool share_has_room(size_t mine, size_t used, size_t all)
{
	return used < all && mine < all - used;
}
