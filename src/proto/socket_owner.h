// SPDX-License-Identifier: Apache-2.0
/* proto/socket_owner - the question whose process a denial was, and how often it may be
 * asked.
 *
 * Control asks (of a sidecar, of the daemon), the socket_owner answers
 * (supervisor/socket_owner.c); `weir run` asks itself. It is asked once for what is told
 * at once, and only then: a moment later the socket may be gone, or somebody else's. */
#pragma once

#include "base/rate.h"
#include "event/event.h"
#include "proto/control_supervisor.h"
#include "sys/socket_owner.h"

enum {
	SOCKET_OWNER_AGE_MAX_MS = 200, /* older events are not asked about */
	SOCKET_OWNER_WAIT_MS = 100,    /* for an answer; then nothing is known */
	SOCKET_OWNER_LOOK_MS = 80,     /* one question may take as long */
	SOCKET_OWNER_PER_SECOND = 20,  /* questions; of the daemon, of all sandboxes */
	/* Looks take a tenth of a processor at most: the time that it works for one is
	 * paid off ten times over, and so much may be owed. */
	SOCKET_OWNER_PART = 10,
	SOCKET_OWNER_OWED_MS = 500,
};

struct socket_owner_question {
	uint32_t number; /* of the question; the answer has it */
	uint8_t kind;	 /* enum attach_kind */
	uint8_t member;	 /* enum member_kind of a ATTACH_HOST */
	uint8_t protocol;
	struct endpoint from, to;
	int64_t at_ms; /* of clock_now_ms(): when it was */
	char where[IPC_SANDBOX_WHERE_MAX + 1];
};

struct socket_owner_answer {
	uint32_t number;
	struct owner owner; /* pid 0: not known */
};

/* What of it the event says; false: there is nothing to be asked. @now_ms and @wall_ms
 * are the two clocks. */
bool socket_owner_question_of(const struct event *e, int64_t now_ms, int64_t wall_ms,
			      struct socket_owner_question *ret);
/* Write it into the event. What the kernel said of the user stays. */
void socket_owner_take(struct event *e, const struct owner *o);

struct socket_owner_pace {
	struct rate rate;
	int64_t paid_at_us; /* what looks have taken */
	int64_t begun_us;   /* of the processor's time */
};
/* One may be asked now, and counts. */
bool socket_owner_may(struct socket_owner_pace *p, int64_t now_ms);
/* Around a look. */
void socket_owner_look(struct socket_owner_pace *p);
void socket_owner_looked(struct socket_owner_pace *p, int64_t now_ms);
