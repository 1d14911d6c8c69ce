// SPDX-License-Identifier: Apache-2.0
#include "daemon/lifecycle.h"

/* State and event: the next state. LIFECYCLE_NONE: the event means nothing. Where a phase
 * is not needed by every sandbox, lifecycle_change() takes the one behind it. */
static const enum lifecycle_state table[LIFECYCLE_STATE_COUNT][LIFECYCLE_EVENT_COUNT] = {
	[LIFECYCLE_NONE] = {
		[LIFECYCLE_ON_OPENED] = LIFECYCLE_QUEUED,
	},
	[LIFECYCLE_QUEUED] = {
		[LIFECYCLE_ON_SENT] = LIFECYCLE_ATTACHING,
		[LIFECYCLE_ON_REMADE] = LIFECYCLE_QUEUED,
		[LIFECYCLE_ON_FAILED] = LIFECYCLE_ENDED,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_QUEUED,
	},
	[LIFECYCLE_ATTACHING] = {
		[LIFECYCLE_ON_INSTALLED] = LIFECYCLE_TESTING,
		[LIFECYCLE_ON_REFUSED] = LIFECYCLE_RESERVED,
		[LIFECYCLE_ON_FAILED] = LIFECYCLE_FAILING,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_QUEUED,
	},
	[LIFECYCLE_TESTING] = {
		[LIFECYCLE_ON_TESTED] = LIFECYCLE_PINNING,
		[LIFECYCLE_ON_FAILED] = LIFECYCLE_FAILING,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_ENDED,
	},
	[LIFECYCLE_PINNING] = {
		[LIFECYCLE_ON_PINNED] = LIFECYCLE_ACTIVE,
		[LIFECYCLE_ON_NOT_PINNED] = LIFECYCLE_FAILING,
		[LIFECYCLE_ON_FAILED] = LIFECYCLE_FAILING,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_ENDED,
	},
	[LIFECYCLE_ACTIVE] = {
		[LIFECYCLE_ON_REMADE] = LIFECYCLE_QUEUED,
		[LIFECYCLE_ON_DETACH] = LIFECYCLE_DETACHING,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_QUEUED,
	},
	[LIFECYCLE_FAILING] = {
		[LIFECYCLE_ON_DETACHED] = LIFECYCLE_RESERVED,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_ENDED,
	},
	[LIFECYCLE_DETACHING] = {
		[LIFECYCLE_ON_DETACHED] = LIFECYCLE_ENDED,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_ENDED,
	},
	[LIFECYCLE_RESERVED] = {
		[LIFECYCLE_ON_DETACH] = LIFECYCLE_DETACHING,
		[LIFECYCLE_ON_ENGINE_END] = LIFECYCLE_ENDED,
	},
};

bool lifecycle_change(struct lifecycle *l, enum lifecycle_event event)
{
	enum lifecycle_state next = table[l->state][event];

	if (next == LIFECYCLE_NONE)
		return false;
	if ((next == LIFECYCLE_TESTING && l->origin != LIFECYCLE_NEW) ||
	    (next == LIFECYCLE_PINNING && !l->pins))
		next = LIFECYCLE_ACTIVE;
	else if (next == LIFECYCLE_RESERVED &&
		 (!l->is_in_table || l->origin != LIFECYCLE_NEW))
		next = LIFECYCLE_ENDED;
	l->state = next;
	return true;
}

enum lifecycle_event lifecycle_event_of(const struct ipc_message *m)
{
	switch (m->type) {
	case IPC_ACTIVE:
		return LIFECYCLE_ON_INSTALLED;
	case IPC_REFUSED:
		return LIFECYCLE_ON_REFUSED;
	case IPC_PINNED:
		return m->text[0] ? LIFECYCLE_ON_NOT_PINNED : LIFECYCLE_ON_PINNED;
	case IPC_DETACHED:
		return LIFECYCLE_ON_DETACHED;
	default:
		return LIFECYCLE_ON_NOTHING;
	}
}

bool lifecycle_is_ending(const struct lifecycle *l)
{
	return l->state >= LIFECYCLE_FAILING;
}
