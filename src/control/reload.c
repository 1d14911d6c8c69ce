// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * inotify tells of changes at once where the directory is a file system that it works
 * on; besides, the files are looked at every POLL_MS, because mounts of other machines
 * and files that are put in the place of a mount don't tell. A file that can't be read,
 * or has a fault, leaves the old rules in force, and says so once per change. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"

enum {
	POLL_MS = 5000,
	SETTLE_MS = 20, /* a file is often written in more than one step */
};

static int read_all(struct control *s, struct err *err)
{
	struct arena arena = { 0 };
	struct text texts[ALWAYS_COUNT];
	int r = always_read(&s->always, &arena, texts, err);

	if (r < 0) {
		arena_done(&arena);
		return r;
	}
	arena_done(&s->always_arena);
	s->always_arena = arena;
	for (size_t i = 0; i < ALWAYS_COUNT; i++) {
		s->policy.always[i] = texts[i];
		s->policy.paths[i] = s->always.paths[i];
	}
	return 0;
}

/* @old is what was in force; on failure it is again. */
static void reload(struct control *s)
{
	struct sidecar_policy_context old = s->policy;
	struct arena old_arena = s->always_arena;
	enum api_failure failure = API_FAILED_POLICY;
	int64_t now_ms = clock_wall_ms();
	struct err err = { 0 };

	s->always_arena = (struct arena){ 0 };
	if (read_all(s, &err) == 0)
		failure = control_apply_again(s, &err);
	/* Nothing is wrong with the files then: they are to be tried again. */
	if (failure == API_FAILED_APPLY)
		memset(s->always.seen, 0xff, sizeof(s->always.seen));
	if (failure != API_FAILED_NOT) {
		arena_done(&s->always_arena);
		s->always_arena = old_arena;
		s->policy = old;
		loglines_say(s->log, now_ms, LOGLINES_WARN,
			     "always rules not reloaded: %s; the old ones stay",
			     err.text);
		return;
	}
	arena_done(&old_arena);
	loglines_say(s->log, now_ms, LOGLINES_INFO, "always rules reloaded");
}

static void start_poll(struct control *s)
{
	if (loop_timer_start(s->loop, &s->poll, loop_now_ms(s->loop) + POLL_MS) < 0)
		loop_stop(s->loop);
}

static void on_poll(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, poll);

	/* Without an engine there is nobody who could take them: next time. */
	if (s->link->stands && always_changed(&s->always))
		reload(s);
	start_poll(s);
}

static void on_notify(struct loop_source *source, uint32_t events)
{
	struct control *s = CONTAINER_OF(source, struct control, notify);

	int64_t at_ms = loop_now_ms(s->loop) + SETTLE_MS;

	always_drain(&s->always);
	/* Not later than it is due already: who writes there all the time must not put it
	 * off for ever. */
	if (s->poll.slot > 0 && s->poll.at_ms <= at_ms)
		return;
	if (loop_timer_start(s->loop, &s->poll, at_ms) < 0)
		loop_stop(s->loop);
}

int control_reload_open(struct control *s, struct err *err)
{
	struct err why = { 0 };
	int r = always_open(&s->always, s->spec.always_dir);

	if (r == 0)
		r = read_all(s, err);
	if (r < 0)
		return err->code < 0 ? r : err_sys(err, r, "cannot read the rules files");
	r = always_names_parse(s->policy.always[ALWAYS_LOG_SKIP],
			       s->always.paths[ALWAYS_LOG_SKIP], &s->skip, &why);
	if (r < 0)
		return err_set(err, r, "%s", why.text);
	s->poll.on_fire = on_poll;
	s->notify =
		(struct loop_source){ .fd = s->always.inotify_fd, .on_ready = on_notify };
	if (s->notify.fd >= 0 && loop_add(s->loop, &s->notify, EPOLLIN) < 0)
		return err_set(err, -ENOMEM, "cannot watch the rules files");
	start_poll(s);
	return 0;
}

bool control_skips_log(const struct control *s, const char *name)
{
	return always_names_has(s->skip, name);
}
