// SPDX-License-Identifier: Apache-2.0
/* run/learn - `weir learn`: what makes a run that learns of a run, before the command
 * starts and after its end. policy/advice.h says what is open meanwhile, events/draft.h
 * what becomes of it. */
#pragma once

#include "event/event.h"
#include "run/options.h"

/* Read the ceiling, and the policy that is added to or compared with; open the directory
 * of the output, so that nothing that the command does to its path matters, and make the
 * file, so that the command can't. Faults of policies are printed. Return: 0, or -errno
 * with @err, whose text is empty when all was printed. */
int learn_open(struct run_spec *spec, struct err *err) MUST_CHECK;

/* @e has passed, as far as a policy is concerned: into @used. */
void learn_note(struct event_ring *used, const struct event *e);

/* What was used becomes a policy, or the difference to one; what was refused is noted in
 * it. @unseen: so much more has passed. @asked: the policy that was there. The file is
 * read again first, because a person may have changed it meanwhile, and replaced as a
 * whole; where that fails it stays as it is, and the policy is printed.
 * Return: 0, or -errno with @err. */
int learn_end(const struct run_spec *spec, const struct event_ring *used,
	      const struct event_ring *refused, uint64_t unseen, const struct plan *asked,
	      struct err *err) MUST_CHECK;
