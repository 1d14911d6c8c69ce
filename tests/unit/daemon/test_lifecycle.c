// SPDX-License-Identifier: Apache-2.0
/* The states of the daemon's sandboxes, fed with what the engine says and with what the
 * daemon does itself. */
#include <stdio.h>
#include <string.h>

#include "daemon/lifecycle.h"
#include "unit.h"

/* A step is a message of the engine, or an event of the daemon's own. */
struct step {
	uint32_t type; /* with @text; or 0 and */
	const char *text;
	enum lifecycle_event event;
	enum lifecycle_state then;
};

#define SAYS(type, text, then)                                                           \
	{                                                                                \
		type, text, LIFECYCLE_ON_NOTHING, LIFECYCLE_##then                       \
	}
#define DOES(event, then)                                                                \
	{                                                                                \
		0, NULL, LIFECYCLE_ON_##event, LIFECYCLE_##then                          \
	}

static const struct lifecycle new_netns = { .origin = LIFECYCLE_NEW };
static const struct lifecycle new_pinned = { .origin = LIFECYCLE_NEW, .pins = true };
static const struct lifecycle new_host = { .origin = LIFECYCLE_NEW, .is_in_table = true };
static const struct lifecycle restored = { .origin = LIFECYCLE_RESTORED,
					   .pins = true,
					   .is_in_table = true };

static const struct {
	const char *what;
	const struct lifecycle *start;
	struct step steps[12];
} ways[] = {
	{ "a new one is tested before it is active",
	  &new_netns,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(TESTED, ACTIVE), DOES(DETACH, DETACHING),
	    SAYS(IPC_DETACHED, "", ENDED) } },
	{ "the engine cannot say that a test went well",
	  &new_netns,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_RUNNING, "", ATTACHING),
	    SAYS(IPC_ACTIVE, "", TESTING), SAYS(IPC_RUNNING, "", TESTING),
	    SAYS(IPC_ACTIVE, "", TESTING), SAYS(IPC_PINNED, "", TESTING),
	    DOES(TESTED, ACTIVE) } },
	{ "the engine cannot make one active that it has not got",
	  &new_netns,
	  { DOES(OPENED, QUEUED), SAYS(IPC_ACTIVE, "", QUEUED),
	    SAYS(IPC_PINNED, "", QUEUED), SAYS(IPC_DETACHED, "", QUEUED),
	    SAYS(IPC_REFUSED, "no", QUEUED), DOES(SENT, ATTACHING) } },
	{ "names are pinned after the test",
	  &new_pinned,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(TESTED, PINNING), SAYS(IPC_PINNED, "", ACTIVE) } },
	{ "names that can't be pinned end it",
	  &new_pinned,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(TESTED, PINNING), SAYS(IPC_PINNED, "no such name", FAILING),
	    SAYS(IPC_PINNED, "", FAILING), SAYS(IPC_DETACHED, "", ENDED) } },
	{ "what the engine refuses ends",
	  &new_netns,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_REFUSED, "no", ENDED),
	    DOES(OPENED, ENDED), SAYS(IPC_ACTIVE, "", ENDED) } },
	{ "of the host's table a refused one keeps its id, until it is let go of",
	  &new_host,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING),
	    SAYS(IPC_REFUSED, "no", RESERVED), SAYS(IPC_ACTIVE, "", RESERVED),
	    DOES(REMADE, RESERVED), DOES(DETACH, DETACHING),
	    SAYS(IPC_DETACHED, "", ENDED) } },
	{ "one that fails its test is refused when the engine has let go of it",
	  &new_host,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(FAILED, FAILING), DOES(FAILED, FAILING), DOES(DETACH, FAILING),
	    SAYS(IPC_DETACHED, "", RESERVED), DOES(ENGINE_END, ENDED) } },
	{ "what fails before the engine has it ends",
	  &new_host,
	  { DOES(OPENED, QUEUED), DOES(FAILED, ENDED) } },
	{ "what was guarded before is neither tested nor pinned again",
	  &restored,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", ACTIVE) } },
	{ "what was guarded before is refused without a reserved id",
	  &restored,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING),
	    SAYS(IPC_REFUSED, "no", ENDED) } },
	{ "a successor of the engine gets what was active or on its way",
	  &restored,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), DOES(ENGINE_END, QUEUED),
	    DOES(ENGINE_END, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", ACTIVE),
	    DOES(ENGINE_END, QUEUED) } },
	{ "a cgroup that was made again waits for the engine's answer about the old one",
	  &restored,
	  { DOES(OPENED, QUEUED), DOES(REMADE, QUEUED), DOES(SENT, ATTACHING),
	    DOES(REMADE, ATTACHING), SAYS(IPC_ACTIVE, "", ACTIVE), DOES(REMADE, QUEUED),
	    DOES(SENT, ATTACHING) } },
	{ "an engine's end is the end of one that it tested: its child can't test again",
	  &new_host,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(ENGINE_END, ENDED) } },
	{ "an engine's end is the end of one whose names it pinned",
	  &new_pinned,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(TESTED, PINNING), DOES(ENGINE_END, ENDED) } },
	{ "an engine's end is the end of what it was to let go of",
	  &new_netns,
	  { DOES(OPENED, QUEUED), DOES(SENT, ATTACHING), SAYS(IPC_ACTIVE, "", TESTING),
	    DOES(TESTED, ACTIVE), DOES(DETACH, DETACHING), DOES(ENGINE_END, ENDED) } },
};

TEST(each_way_is_taken)
{
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct lifecycle l = *ways[i].start;

		for (const struct step *s = ways[i].steps; s->then != LIFECYCLE_NONE;
		     s++) {
			struct ipc_message m = { .type = s->type };
			enum lifecycle_state before = l.state;
			bool changed;

			if (s->text)
				snprintf(m.text, sizeof(m.text), "%s", s->text);
			changed = lifecycle_change(&l, s->text ? lifecycle_event_of(&m)
							       : s->event);
			if (l.state != s->then || (!changed && before != l.state))
				fail_msg("%s: step %d: state %d, not %d", ways[i].what,
					 (int)(s - ways[i].steps), (int)l.state,
					 (int)s->then);
		}
	}
}

/* Whatever else happens: active without a test is only what was guarded before. */
TEST(nothing_new_is_active_untested)
{
	for (int s = LIFECYCLE_NONE; s < LIFECYCLE_STATE_COUNT; s++)
		for (int e = LIFECYCLE_ON_NOTHING; e < LIFECYCLE_EVENT_COUNT; e++) {
			struct lifecycle l = { .state = (enum lifecycle_state)s,
					       .origin = LIFECYCLE_NEW };
			bool changed = lifecycle_change(&l, (enum lifecycle_event)e);

			if (!changed)
				assert_int_equal(l.state, s);
			if (changed && l.state == LIFECYCLE_ACTIVE)
				assert_true(s == LIFECYCLE_TESTING ||
					    s == LIFECYCLE_PINNING);
			if (s == LIFECYCLE_ENDED)
				assert_false(changed);
		}
}
