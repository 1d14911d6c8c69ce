// SPDX-License-Identifier: Apache-2.0
/* daemon/lifecycle - the states of one of the daemon's sandboxes, and the one function
 * that changes them. Nothing is done here: sandboxes.c acts on what has changed.
 *
 * HOW IT WORKS
 * A sandbox is on its way until it is ACTIVE, and control is answered then:
 *
 *   QUEUED     a child was in its namespace and has opened what is served there
 *   ATTACHING  the engine installs the rules, reads them back, serves
 *   TESTING    a child tries from inside what must work and what must not; a sandbox that
 *              was guarded before is not tested again
 *   PINNING    with `dns: pinned`: its names are resolved for the first time
 *   ACTIVE     guarded
 *
 * When the way ends before ACTIVE, nothing is weaker than before: rules that are there by
 * then stay, and keep the namespace closed. When the engine ends, its successor gets all
 * sandboxes again, but for those that were just tested or pinned: these are refused. A
 * sandbox of the host's own whose cgroup was made again is QUEUED once more: the engine
 * gets it under the same id with another member. */
#pragma once

#include <stdbool.h>

#include "proto/message.h"

enum lifecycle_state {
	LIFECYCLE_NONE = 0, /* its descriptors are being opened */
	LIFECYCLE_QUEUED,   /* they are there; the engine has to get them */
	LIFECYCLE_ATTACHING,
	LIFECYCLE_TESTING,
	LIFECYCLE_PINNING,
	LIFECYCLE_ACTIVE,
	/* From here on it is ending. */
	LIFECYCLE_FAILING,   /* the engine lets go of it; whoever asked is refused then */
	LIFECYCLE_DETACHING, /* the engine lets go of it */
	/* The host's table may have it under this id, which no other sandbox gets. It has
	 * no name and guards nothing. */
	LIFECYCLE_RESERVED,
	LIFECYCLE_ENDED, /* to be freed */
	LIFECYCLE_STATE_COUNT
};

enum lifecycle_event {
	LIFECYCLE_ON_NOTHING = 0, /* a message that says nothing of a sandbox's state */
	LIFECYCLE_ON_OPENED,	  /* its descriptors are there */
	LIFECYCLE_ON_SENT,	  /* to the engine */
	LIFECYCLE_ON_INSTALLED,	  /* the engine's answers, and those of its self-test */
	LIFECYCLE_ON_REFUSED,
	LIFECYCLE_ON_TESTED,
	LIFECYCLE_ON_PINNED,
	LIFECYCLE_ON_NOT_PINNED,
	LIFECYCLE_ON_FAILED, /* the self-test, or a time limit */
	LIFECYCLE_ON_REMADE, /* its cgroup was made again */
	LIFECYCLE_ON_DETACH, /* it is to be let go of */
	LIFECYCLE_ON_DETACHED,
	LIFECYCLE_ON_ENGINE_END,
	LIFECYCLE_EVENT_COUNT
};

/* Where a sandbox comes from. The engine gets the last kind first. */
enum lifecycle_origin {
	LIFECYCLE_NEW = 0,  /* is tested, and waits for all that were guarded before */
	LIFECYCLE_RESTORED, /* guarded before: takes over what was learned and counted */
	LIFECYCLE_REMADE,   /* guarded before, as another cgroup: takes over what was
			     * counted, and has no time to lose */
	LIFECYCLE_ORIGIN_COUNT
};

struct lifecycle {
	enum lifecycle_state state;
	enum lifecycle_origin origin;
	bool pins;	  /* dns: pinned */
	bool is_in_table; /* of the host: what is refused stays RESERVED there */
};

/* Return: false, and nothing has changed: the event means nothing in this state. */
bool lifecycle_change(struct lifecycle *l, enum lifecycle_event event) MUST_CHECK;
/* What a message of the engine says of the state of its sandbox. A test's result is never
 * the engine's to say. */
enum lifecycle_event lifecycle_event_of(const struct ipc_message *m);
bool lifecycle_is_ending(const struct lifecycle *l);
