// SPDX-License-Identifier: Apache-2.0
/* proto/witness - the question whose process a denial was, and how often it may be asked.
 *
 * Control asks (of a sidecar, of the daemon), the witness answers
 * (supervisor/socket_owner.c); `weir run` asks itself. It is asked once for what is told
 * at once, and only then: a moment later the socket may be gone, or somebody else's. */
#pragma once

#include "proto/message.h"
#include "sandbox/rate.h"
#include "sys/socket_owner.h"

enum {
	WITNESS_AGE_MAX_MS = 200, /* older events are not asked about */
	WITNESS_WAIT_MS = 100,	  /* for an answer; then nothing is known */
	WITNESS_LOOK_MS = 80,	  /* one question may take as long */
	WITNESS_PER_SECOND = 20,  /* questions; of the daemon, of all sandboxes */
	/* Looks take a tenth of a processor at most: the time that it works for one is
	 * paid off ten times over, and so much may be owed. */
	WITNESS_PART = 10,
	WITNESS_OWED_MS = 500,
};

struct witness_question {
	uint32_t number; /* of the question; the answer has it */
	uint8_t kind;	 /* enum ipc_guarded_kind */
	uint8_t member;	 /* enum filter_member_kind of a GUARDED_HOST */
	uint8_t protocol;
	struct endpoint from, to;
	int64_t at_ms; /* of clock_now_ms(): when it was */
	char where[IPC_WARD_WHERE_MAX + 1];
};

struct witness_answer {
	uint32_t number;
	struct owner owner; /* pid 0: not known */
};

/* What of it the event says; false: there is nothing to be asked. @now_ms and @wall_ms
 * are the two clocks. */
bool witness_question_of(const struct event *e, int64_t now_ms, int64_t wall_ms,
			 struct witness_question *ret);
/* Write it into the event. What the kernel said of the user stays. */
void witness_take(struct event *e, const struct owner *o);

struct witness_pace {
	struct rate rate;
	int64_t paid_at_us; /* what looks have taken */
	int64_t begun_us;   /* of the processor's time */
};
/* One may be asked now, and counts. */
bool witness_may(struct witness_pace *p, int64_t now_ms);
/* Around a look. */
void witness_look(struct witness_pace *p);
void witness_looked(struct witness_pace *p, int64_t now_ms);
