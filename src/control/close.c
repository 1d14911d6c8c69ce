// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The engine counts denials and says when there are more than `on_denies` takes, of a
 * `stop` again and again. The word comes while an answer to something else may be waited
 * for, so the sandbox is closed in a turn of its own: its policy is replaced by one that
 * denies everything and says why. That is kept wherever the policy is: the next process
 * starts with it. What fails is tried again each AGAIN_MS: first of all it has to be in
 * the kernel, then it has to be kept.
 *
 * A sidecar without a file for its policy keeps it as STATE_DIR/closed.json, which goes
 * when somebody sets another policy. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "control/side.h"
#include "proto/closed_file.h"

enum { AGAIN_MS = 1000 };

static void start(struct side *s, struct loop_timer *t, int64_t after_ms)
{
	if (loop_timer_start(s->loop, t, loop_now_ms(s->loop) + after_ms) < 0)
		loop_stop(s->loop);
}

static void say(struct side *s, const struct side_closing *c, const char *name,
		const struct err *err)
{
	int64_t now_ms = clock_wall_ms();

	if (!err)
		loglines_say(s->log, now_ms, LOGLINES_WARN, "%s is closed: %s", name,
			     c->why);
	else if (!c->failed)
		loglines_say(s->log, now_ms, LOGLINES_ERROR,
			     "cannot close %s, trying again: %s", name, err->text);
}

/* ---- a sidecar ---- */

static void on_side(struct loop_timer *t)
{
	struct side *s = CONTAINER_OF(t, struct side, closing.again);
	struct side_closing *c = &s->closing;
	struct err err = { 0 };

	if (!c->due)
		return;
	if (side_close(s, c->why, &err) == 0) {
		c->due = c->failed = false;
		say(s, c, "the sandbox", NULL);
		return;
	}
	say(s, c, "the sandbox", &err);
	c->failed = true;
	start(s, t, AGAIN_MS);
}

void side_closing_init(struct side *s)
{
	s->closing.again.on_fire = on_side;
}

/* ---- one of a daemon's ---- */

static void on_ward(struct loop_timer *t)
{
	struct side_ward *w = CONTAINER_OF(t, struct side_ward, closing.again);
	struct side_closing *c = &w->closing;
	struct err err = { 0 };

	if (!c->due)
		return;
	if (side_ward_close(w, c->why, &err) == 0) {
		c->due = c->failed = false;
		say(w->side, c, w->spec.name, NULL);
		return;
	}
	say(w->side, c, w->spec.name, &err);
	c->failed = true;
	start(w->side, t, AGAIN_MS);
}

void side_ward_closing_init(struct side_ward *w)
{
	w->closing.again.on_fire = on_ward;
}

/* ---- both ---- */

void side_closing_done(struct side *s, struct side_closing *c)
{
	c->due = c->failed = false;
	loop_timer_stop(s->loop, &c->again);
}

bool side_on_denies(struct side *s, const struct event *e)
{
	struct side_ward *w = s->many ? side_ward_find(s, e->sandbox) : NULL;
	const struct plan *plan = w ? &w->plan : s->plan_bytes ? &s->plan : NULL;
	const struct document *d = w ? w->document : s->document;
	struct side_closing *c = w ? &w->closing : &s->closing;

	if (!plan || plan_on_denies(plan).action != ON_DENIES_STOP)
		return true;
	if (c->due || document_closed(d))
		return false;
	c->due = true;
	snprintf(c->why, sizeof(c->why), "%s", e->reason);
	start(s, &c->again, 0);
	return true;
}

int side_closed_keep(const struct side *s, const struct document *d, struct err *err)
{
	return s->file.path || !s->spec.state_dir
		       ? 0
		       : closed_file_write(s->spec.state_dir, d, err);
}
