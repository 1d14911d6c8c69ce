// SPDX-License-Identifier: Apache-2.0
/* control/sandboxes - what the files about the daemon's sandboxes share.
 *
 *   sandboxes.c       they come, change and go
 *   sandboxes_list.c  those that the daemons have; what the engines enforce */
#pragma once

#include "control/control.h"

/* Of @l's the first one above @id, its number there; NULL: none. */
struct control_sandbox *control_sandbox_next(const struct control_link *l, uint32_t id);
int control_sandbox_compile(struct control *s, const struct document *d,
			    struct control_candidate *c, struct err *err) MUST_CHECK;
int control_sandbox_give_engine(struct control_sandbox *w, int plan_fd,
				struct err *err) MUST_CHECK;
/* In force from now on; what @c has is taken. */
void control_sandbox_take(struct control_sandbox *w, struct control_candidate *c);
/* Nobody finds it any more; it is buried later. */
void control_sandbox_end(struct control_sandbox *w, const char *why);
/* @l has it; what @c has is taken. */
int control_sandbox_add(struct control_link *l, uint32_t id,
			const struct ipc_sandbox *spec,
			struct control_candidate *c) MUST_CHECK;
/* Not now, but in a turn of its own: an answer may be waited for. */
void sandboxes_look_again(struct control *s);
/* Those that are gone are forgotten. */
void sandboxes_bury(struct control *s);
