// SPDX-License-Identifier: Apache-2.0
/* control/wards - what the files about the daemon's sandboxes share.
 *
 *   wards.c       they come, change and go
 *   wards_list.c  those that the wardens have; what the engines enforce */
#pragma once

#include "control/side.h"

/* Of @l's the first one above @id, its number there; NULL: none. */
struct side_ward *ward_next(const struct side_link *l, uint32_t id);
int ward_compile(struct side *s, const struct document *d, struct side_candidate *c,
		 struct err *err) MUST_CHECK;
int ward_give_engine(struct side_ward *w, int plan_fd, struct err *err) MUST_CHECK;
/* In force from now on; what @c has is taken. */
void ward_take(struct side_ward *w, struct side_candidate *c);
/* Nobody finds it any more; it is buried later. */
void ward_end(struct side_ward *w, const char *why);
/* @l has it; what @c has is taken. */
int ward_add(struct side_link *l, uint32_t id, const struct ipc_ward *spec,
	     struct side_candidate *c) MUST_CHECK;
/* Not now, but in a turn of its own: an answer may be waited for. */
void wards_look_again(struct side *s);
/* Those that are gone are forgotten. */
void wards_bury(struct side *s);
