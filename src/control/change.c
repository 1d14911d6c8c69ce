// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The order of a change, and how each step is undone:
 *
 *   compile             nothing has happened yet
 *   write and sync the new file beside the old one          remove it
 *   IPC_CHANGE: the kernel has it, or nothing was changed   remove it
 *   IPC_KEEP: the supervisor has it                             IPC_CHANGE to the old
 * plan IPC_CHANGE once more, if the engine has died meanwhile  the same the new file
 * takes the old one's place                  both of them back in memory; answer
 *
 * When this process dies in between, the supervisor's text decides: the next one starts
 * with it, finds that the engine enforces another plan (standing.plan_id) and gives it
 * this one, and puts it into the file if that was still to be done. When the engine dies,
 * its successor gets the supervisor's plan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "control/control.h"
#include "proto/closed_file.h"
#include "proto/plan_file.h"

const char *control_default_action(const struct control *s)
{
	return plan_default_action(&s->plan) == POLICY_ALLOW ? "allow" : "deny";
}

void control_candidate_done(struct control_candidate *c)
{
	document_free(c->document);
	free(c->bytes);
	if (c->plan_fd >= 0)
		close(c->plan_fd);
	if (c->text_fd >= 0)
		close(c->text_fd);
}

static void note_fault(void *data, const char *text, enum fault_level level)
{
	struct control *s = data;

	if (level != FAULT_ERROR)
		loglines_say(s->log, clock_wall_ms(),
			     level == FAULT_WARNING ? LOGLINES_WARN : LOGLINES_DEBUG,
			     "%s", text);
}

static int compile(struct control *s, const struct document *d,
		   struct control_candidate *c, struct err *err)
{
	size_t size;
	int r;

	s->policy.filters = s->spec.mode != SIDECAR_MODE_DNS &&
			    (s->standing.enforced == ENFORCED_FILTER || !s->link->stands);
	r = sidecar_policy_build(&s->policy, d, note_fault, s, &c->bytes, &size, err);
	return r < 0 ? r : plan_open(c->bytes, size, &c->plan, err);
}

int control_candidate_files(struct control_candidate *c, const struct document *d,
			    struct err *err)
{
	char *json = document_json(d, false);

	if (!json)
		return err_set(err, -ENOMEM, "out of memory");
	c->plan_fd = plan_file_make(c->plan.bytes, c->plan.size, err);
	if (c->plan_fd >= 0)
		c->text_fd = plan_file_make((const uint8_t *)json, strlen(json), err);
	free(json);
	return c->text_fd < 0 ? err->code : 0;
}

/* ---- engine and supervisor ---- */

static void note_standing(struct control *s, const struct ipc_standing *standing)
{
	uint32_t restarts = s->standing.restarts;
	char weaker[sizeof(s->standing.weaker)];

	/* These two are the supervisor's. */
	memcpy(weaker, s->standing.weaker, sizeof(weaker));
	if (standing->enforced != s->standing.enforced)
		s->since_ms = clock_wall_ms();
	s->link->heard = true;
	s->standing = *standing;
	s->standing.restarts = restarts;
	memcpy(s->standing.weaker, weaker, sizeof(weaker));
	control_tame(s->standing.lacking, sizeof(s->standing.lacking));
}

/* Is it our plan that the engine enforces? If not, it is given it soon. Where nothing can
 * be enforced everything is denied, whatever the policy. */
static void compare_standing(struct control *s)
{
	struct control_link *l = s->link;

	l->stands = l->heard && (s->standing.enforced == ENFORCED_NOTHING ||
				 s->standing.plan_id == plan_file_id(&s->plan));
	if (!l->stands && l->heard &&
	    loop_timer_start(s->loop, &s->resync, loop_now_ms(s->loop)) < 0)
		loop_stop(s->loop);
}

static int give_engine(struct control *s, int plan_fd, struct err *err)
{
	const struct control_answer answer = { IPC_CHANGED, IPC_UNCHANGED };
	const struct ipc_message ask = { .type = IPC_CHANGE };
	struct ipc_message m;
	int r = control_await_engine(s->link)
			? control_ask_engine(s->link, &ask, plan_fd, &answer, &m, NULL)
			: -ETIMEDOUT;

	if (r < 0)
		return err_sys(err, r, "the engine does not answer");
	if (m.type == IPC_CHANGED) {
		note_standing(s, &m.standing);
		return 0;
	}
	control_tame(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

/* The engine has @c, and it is not to stay. What fails now is mended by the engine's or
 * our own end: both start from what the supervisor has. */
static void take_back(struct control *s)
{
	struct control_candidate old = { .plan = s->plan, .plan_fd = -1, .text_fd = -1 };
	struct err ignored = { 0 };

	if (control_candidate_files(&old, s->document, &ignored) < 0 ||
	    give_engine(s, old.plan_fd, &ignored) < 0 ||
	    control_tell_supervisor(s, old.plan_fd, old.text_fd) < 0)
		loop_stop(s->loop);
	control_candidate_done(&old);
}

static int put_in_force(struct control *s, const struct control_candidate *c,
			struct err *err)
{
	int r = give_engine(s, c->plan_fd, err);

	if (r < 0)
		return r;
	r = control_tell_supervisor(s, c->plan_fd, c->text_fd);
	if (r < 0)
		err_sys(err, r, "the supervisor does not answer");
	/* An engine that died in between may have a successor with the old plan, which
	 * must not be in force when the caller is told that the new one is. */
	else if (!control_engine_is_same(s->link))
		r = give_engine(s, c->plan_fd, err);
	if (r < 0)
		take_back(s);
	return r;
}

/* ---- changes ---- */

/* Rules that the mode can't hold: each is a warning, and the first of them are in
 * /status. */
static void note_policy(struct control *s)
{
	s->policy_note_count = 0;
	if (s->spec.mode != SIDECAR_MODE_DNS)
		return;
	for (size_t i = 0; i < plan_rule_count(&s->plan); i++) {
		struct plan_rule rule = plan_rule(&s->plan, i);
		struct prefix ignored;
		char *note = s->policy_notes[s->policy_note_count];

		if ((rule.flags & PLAN_IMPLICIT) ||
		    !prefix_parse(rule.target, strlen(rule.target), true, &ignored))
			continue;
		snprintf(note, sizeof(s->policy_notes[0]),
			 "the rule for '%s' is without effect in mode dns", rule.target);
		loglines_say(s->log, clock_wall_ms(), LOGLINES_WARN, "%s", note);
		if (s->policy_note_count < CONTROL_NOTES_MAX - 1)
			s->policy_note_count++;
	}
}

static void take(struct control *s, struct control_candidate *c)
{
	if (c->document) {
		document_free(s->document);
		s->document = TAKE_PTR(c->document);
	}
	free(s->plan_bytes);
	s->plan_bytes = TAKE_PTR(c->bytes);
	s->plan = c->plan;
	note_policy(s);
	compare_standing(s);
}

static int keep_file(struct control *s, const struct document *d, struct err *err)
{
	char *pretty;
	int r;

	if (!s->file.path)
		return 0;
	pretty = document_json(d, true);
	if (!pretty)
		return err_set(err, -ENOMEM, "out of memory");
	r = policy_file_prepare(&s->file, text_of(pretty), err);
	free(pretty);
	return r;
}

/* Should the file be lost, a restart knows that it was there. */
static int commit_file(struct control *s, struct err *err)
{
	struct err ours = { 0 };
	int r = policy_file_commit(&s->file, err);

	if (r == 0 && s->file.path && s->spec.state_dir &&
	    closed_file_note_policy(s->spec.state_dir, &ours) < 0)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR, "%s", ours.text);
	return r;
}

/* @c->document is the next one. */
static enum api_failure change(struct control *s, struct control_candidate *c,
			       struct err *err)
{
	if (compile(s, c->document, c, err) < 0)
		return API_FAILED_POLICY;
	if (control_candidate_files(c, c->document, err) < 0)
		return API_FAILED_APPLY;
	if (keep_file(s, c->document, err) < 0)
		return API_FAILED_PERSIST;
	if (put_in_force(s, c, err) < 0) {
		policy_file_abort(&s->file);
		return API_FAILED_APPLY;
	}
	if (commit_file(s, err) < 0) {
		take_back(s);
		return API_FAILED_PERSIST;
	}
	take(s, c);
	return API_FAILED_NOT;
}

void control_record_change(struct control *s)
{
	const char *closed = document_closed(s->document);
	struct event e = {
		.ts_ms = clock_wall_ms(),
		.action = EVENT_CHANGE,
		.layer = EVENT_LAUNCH,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.packets = 1,
	};

	snprintf(e.reason, sizeof(e.reason), "%s%s",
		 closed ? "closed: " : "the policy was changed", closed ?: "");
	control_on_event(s, &e);
}

/* A policy that isn't closed was set: whatever closed the sandbox is over. */
static void note_open(struct control *s)
{
	struct err err = { 0 };

	if (document_closed(s->document))
		return;
	control_closing_done(s, &s->closing);
	if (control_closed_keep(s, s->document, &err) < 0)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR,
			     "%s: a restart closes the sandbox again", err.text);
}

enum api_failure control_change(struct control *s, struct document *next, struct err *err)
{
	struct control_candidate c = { .document = next, .plan_fd = -1, .text_fd = -1 };
	enum api_failure failure = change(s, &c, err);

	control_candidate_done(&c);
	if (failure == API_FAILED_NOT) {
		s->updates++;
		control_record_change(s);
		note_open(s);
	} else {
		s->failures++;
	}
	return failure;
}

static enum api_failure change_to_closed(struct control *s, const char *why,
					 struct err *err)
{
	struct document *closed = document_close(why);

	if (closed)
		return control_change(s, closed, err);
	err_set(err, -ENOMEM, "out of memory");
	return API_FAILED_APPLY;
}

/* In force first, whatever the file is like; then in the file. */
int control_close(struct control *s, const char *why, struct err *err)
{
	const char *path = s->file.path;
	enum api_failure failure = API_FAILED_NOT;
	int r;

	if (!document_closed(s->document)) {
		s->file.path = NULL;
		failure = change_to_closed(s, why, err);
		s->file.path = path;
	}
	if (failure != API_FAILED_NOT)
		return err->code < 0 ? err->code : -EIO;
	r = keep_file(s, s->document, err);
	if (r == 0)
		r = commit_file(s, err);
	return r < 0 ? r : control_closed_keep(s, s->document, err);
}

enum api_failure control_apply_again(struct control *s, struct err *err)
{
	struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	enum api_failure failure = API_FAILED_NOT;

	if (compile(s, s->document, &c, err) < 0)
		failure = API_FAILED_POLICY;
	else if (control_candidate_files(&c, s->document, err) < 0 ||
		 put_in_force(s, &c, err) < 0)
		failure = API_FAILED_APPLY;
	else
		take(s, &c);
	control_candidate_done(&c);
	return failure;
}

/* ---- what the engine says ---- */

static void on_resync(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, resync);
	struct err err = { 0 };

	if (s->link->stands || !s->link->heard)
		return;
	if (control_apply_again(s, &err) != API_FAILED_NOT)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot give the engine the policy in force: %s", err.text);
}

void control_on_standing(struct control *s, const struct ipc_standing *standing)
{
	note_standing(s, standing);
	compare_standing(s);
}

/* ---- start ---- */

/* The supervisor's text; the plan that came of it is the one in force. */
static int read_text(struct document **ret, struct err *err)
{
	int fd = PLACE_FIRST + PLACE_TEXT;
	off_t size = lseek(fd, 0, SEEK_END);
	struct text text = { "", 0 };
	int r;

	if (size > 0) {
		void *bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);

		if (bytes == MAP_FAILED)
			return err_sys(err, -errno, "cannot read the policy in force");
		text = (struct text){ bytes, (size_t)size };
	}
	r = document_parse(text, NULL, NULL, ret, err);
	if (size > 0)
		munmap((void *)(uintptr_t)text.ptr, text.len);
	close(fd);
	return r;
}

/* The supervisor's text may be one that the process before this one died of. */
static void finish_file(struct control *s)
{
	char *pretty = document_json(s->document, true);
	struct err err = { 0 };

	if (pretty && policy_file_resume(&s->file, text_of(pretty), &err) < 0)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR,
			     "the policy in force is not in its file: %s", err.text);
	free(pretty);
}

int control_policy_open(struct control *s, struct err *err)
{
	struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	int r;

	s->resync.on_fire = on_resync;
	control_closing_init(s);
	s->file.path = s->spec.policy_file;
	s->file.spare_dir = s->spec.state_dir;
	s->policy.names = s->spec.mode == SIDECAR_MODE_DNS_NFT_TLS;
	s->policy.file = "policy";
	r = control_reload_open(s, err);
	if (r == 0)
		r = read_text(&s->document, err);
	if (r == 0)
		r = compile(s, s->document, &c, err);
	if (r == 0) {
		take(s, &c);
		finish_file(s);
	}
	control_candidate_done(&c);
	return r;
}
