// SPDX-License-Identifier: Apache-2.0
/* `weir learn --from`: a policy, or the difference to one, from events that a sidecar, a
 * daemon or `weir run --state-dir` has stored. Nothing runs, and nothing is open. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "events/draft.h"
#include "policy/advice.h"
#include "policy/load.h"
#include "policy/open.h"
#include "tools/events_show.h"

enum { KEPT = 8192 /* different ones of what passed, and of what was refused */ };

struct learner {
	struct event_ring *used, *refused;
	const struct plan *asked;
	uint64_t unread;
};

static void on_event(void *data, const struct event *given)
{
	const struct learner *l = data;
	struct event e = *given;

	/* What allowed it or refused it, and in which sandbox, doesn't matter. */
	e.rule = EVENT_NO_RULE;
	e.sandbox = 0;
	/* Not every store has it. */
	if (e.action == EVENT_DENY && !e.advice[0])
		advice_write(l->asked, &e, e.advice);
	if (e.action == EVENT_ALLOW)
		event_ring_add(l->used, &e);
	else if (e.action == EVENT_DENY)
		event_ring_add(l->refused, &e);
}

static bool on_row(void *data, int64_t id, const struct event_row *row)
{
	struct event e = row->event;

	snprintf(e.command, sizeof(e.command), "%.*s", EVENT_COMMAND_SIZE - 1,
		 row->command);
	on_event(data, &e);
	return true;
}

static int read_rows(struct show *s, struct learner *l, struct err *err)
{
	struct sqlite_reader *reader = NULL;
	int r;

	if (s->database)
		return show_read_postgres(s, s->database, on_event, l, &l->unread, err);
	r = show_open(s, &reader);
	if (r < 0)
		return r; /* said */
	s->query.max = SIZE_MAX / 2;
	s->query.oldest_first = true; /* of too many the oldest go */
	r = sqlite_find(reader, &s->query, on_row, l, err);
	sqlite_reader_close(reader);
	return r;
}

static int print(const struct show *s, const struct learner *l, const struct plan *asked)
{
	const struct draft_args args = {
		.used = l->used,
		.refused = l->refused,
		.asked = asked,
		.refused_too = s->spec.diff != NULL,
		.program = s->spec.sandbox ?: "sandboxes",
		.unseen = event_ring_dropped(l->used) + event_ring_dropped(l->refused) +
			  l->unread,
	};
	struct draft d;

	if (draft_make(&d, &args) < 0) {
		log_error("out of memory");
		return SHOW_FAILED;
	}
	if (s->spec.diff)
		draft_write_difference(&d, asked, s->spec.diff, stdout);
	else
		draft_write(&d, stdout);
	draft_done(&d);
	if (args.unseen > 0)
		log_warning("more different destinations than %d: the oldest are left "
			    "out",
			    KEPT);
	return SHOW_OK;
}

int show_learn(struct show *s)
{
	const struct policy_args policy_args = { .file = s->spec.diff,
						 .verify = POLICY_VERIFY_TLS };
	struct plan asked;
	struct learner l = { event_ring_new(KEPT), event_ring_new(KEPT), &asked, 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct policy policy = { 0 };
	struct err err = { 0 };
	int r = 0, status = SHOW_FAILED;
	size_t size;

	if (!l.used || !l.refused)
		err_set(&err, -ENOMEM, "out of memory");
	else if ((r = cli_policy_build(&policy_args, &s->arena, true, &policy, &bytes,
				       &size)) < 0)
		status = run_status_of(r);
	else if (plan_open(bytes, size, &asked, &err) == 0 &&
		 (r = read_rows(s, &l, &err)) == 0)
		status = print(s, &l, &asked);
	else if (r == -EINVAL)
		status = SHOW_BAD_INPUT;
	if (status != SHOW_OK && err.text[0])
		log_error("%s", err.text);
	event_ring_free(l.used);
	event_ring_free(l.refused);
	return status;
}
