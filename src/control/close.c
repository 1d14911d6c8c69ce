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
#include "control/control.h"
#include "proto/closed_file.h"

enum { AGAIN_MS = 1000 };

static void start(struct control *s, struct loop_timer *t, int64_t after_ms)
{
	if (loop_timer_start(s->loop, t, loop_now_ms(s->loop) + after_ms) < 0)
		loop_stop(s->loop);
}

static void say(struct control *s, const struct control_closing *c, const char *name,
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
	struct control *s = CONTAINER_OF(t, struct control, closing.again);
	struct control_closing *c = &s->closing;
	struct err err = { 0 };

	if (!c->due)
		return;
	if (control_close(s, c->why, &err) == 0) {
		c->due = c->failed = false;
		say(s, c, "the sandbox", NULL);
		return;
	}
	say(s, c, "the sandbox", &err);
	c->failed = true;
	start(s, t, AGAIN_MS);
}

void control_closing_init(struct control *s)
{
	s->closing.again.on_fire = on_side;
}

/* ---- one of a daemon's ---- */

static void on_sandbox(struct loop_timer *t)
{
	struct control_sandbox *w =
		CONTAINER_OF(t, struct control_sandbox, closing.again);
	struct control_closing *c = &w->closing;
	struct err err = { 0 };

	if (!c->due)
		return;
	if (control_sandbox_close(w, c->why, &err) == 0) {
		c->due = c->failed = false;
		say(w->side, c, w->spec.name, NULL);
		return;
	}
	say(w->side, c, w->spec.name, &err);
	c->failed = true;
	start(w->side, t, AGAIN_MS);
}

void control_sandbox_closing_init(struct control_sandbox *w)
{
	w->closing.again.on_fire = on_sandbox;
}

/* ---- both ---- */

void control_closing_done(struct control *s, struct control_closing *c)
{
	c->due = c->failed = false;
	loop_timer_stop(s->loop, &c->again);
}

bool control_on_denies(struct control *s, const struct event *e)
{
	struct control_sandbox *w = s->many ? control_sandbox_find(s, e->sandbox) : NULL;
	const struct plan *plan = w ? &w->plan : s->plan_bytes ? &s->plan : NULL;
	const struct document *d = w ? w->document : s->document;
	struct control_closing *c = w ? &w->closing : &s->closing;

	if (!plan || plan_on_denies(plan).action != ON_DENIES_STOP)
		return true;
	if (c->due || document_closed(d))
		return false;
	c->due = true;
	snprintf(c->why, sizeof(c->why), "%s", e->reason);
	start(s, &c->again, 0);
	return true;
}

int control_closed_keep(const struct control *s, const struct document *d,
			struct err *err)
{
	return s->file.path || !s->spec.state_dir
		       ? 0
		       : closed_file_write(s->spec.state_dir, d, err);
}
