// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The order of a change:
 *
 *   compile
 *   of a sidecar: write and sync the new file beside the old one
 *   IPC_CHANGE: the engine puts the plan into the kernel, or changes nothing
 *   IPC_KEEP: the supervisor has plan and text
 *   IPC_CHANGE once more, if the engine has died meanwhile
 *   of a sidecar: the new file takes the old one's place
 *
 * Up to IPC_CHANGE the new file is all that there is to remove. What fails later is
 * undone so: IPC_KEEP of the old plan and text, the new file goes, IPC_CHANGE to the old
 * plan.
 *
 * What the supervisor has decides. When this process dies in between, the next one starts
 * with the supervisor's text, finds that the engine enforces another plan
 * (plan_id) and gives it this one, and puts the text into the file if that was
 * still to be done: so the new file stays where the supervisor could not be told to go
 * back. When the engine dies, its successor gets the supervisor's plan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"
#include "sandbox/plan_file.h"
#include "settings/state_dir.h"
#include "sys/files.h"

void control_candidate_done(struct control_candidate *c)
{
	document_free(c->document);
	free(c->bytes);
	clean_fd(&c->plan_fd);
	clean_fd(&c->text_fd);
}

static void note_fault(void *data, const char *text, enum fault_level level)
{
	struct control *s = data;

	if (level != FAULT_ERROR)
		loglines_say(s->log, clock_wall_ms(),
			     level == FAULT_WARNING ? LOGLINES_WARN : LOGLINES_DEBUG,
			     "%s", text);
}

static void note_means(struct control *s)
{
	s->policy.filters = s->many || (s->spec.mode != SIDECAR_MODE_DNS &&
					s->status.enforced == ENFORCED_FILTER);
}

int control_check(struct control *s, const struct document *d, sidecar_fault_fn *on_fault,
		  void *to, struct err *err)
{
	CLEAN(mem) uint8_t *bytes = NULL;
	size_t size;

	note_means(s);
	return sidecar_policy_build(&s->policy, d, on_fault, to, &bytes, &size, err);
}

int control_compile(struct control *s, const struct document *d,
		    struct control_candidate *c, struct err *err)
{
	size_t size;
	int r;

	note_means(s);
	r = sidecar_policy_build(&s->policy, d, s->many ? NULL : note_fault, s, &c->bytes,
				 &size, err);
	/* The bytes were checked when the rules were. */
	if (r == 0)
		c->plan = (struct plan){ .bytes = c->bytes, .size = size };
	return r;
}

int control_candidate_files(struct control_candidate *c, const struct document *d,
			    struct err *err)
{
	CLEAN(mem) char *json = document_json(d, false);

	if (!json)
		return err_set(err, -ENOMEM, "out of memory");
	c->plan_fd = plan_file_make(c->plan.bytes, c->plan.size, err);
	if (c->plan_fd >= 0)
		c->text_fd = plan_file_make((const uint8_t *)json, strlen(json), err);
	return c->text_fd < 0 ? err->code : 0;
}

/* ---- engine and supervisor ---- */

void control_note_enforced(struct control *s, uint8_t enforced)
{
	if (enforced != s->status.enforced)
		s->own.since_ms = clock_wall_ms();
	s->status.enforced = enforced;
}

static void note_status(struct control *s, const struct ipc_status *status)
{
	uint32_t restarts = s->status.restarts;
	char weaker[sizeof(s->status.weaker)];

	/* These two are the supervisor's. */
	memcpy(weaker, s->status.weaker, sizeof(weaker));
	control_note_enforced(s, status->enforced);
	s->link->heard = true;
	s->status = *status;
	s->status.restarts = restarts;
	memcpy(s->status.weaker, weaker, sizeof(weaker));
	ipc_sanitize(s->status.lacking, sizeof(s->status.lacking));
}

/* Is it our plan that the engine enforces? Where nothing can be enforced everything is
 * denied, whatever the policy. */
static bool is_standing(struct control *s)
{
	struct control_link *l = s->link;

	l->is_active = l->heard && (s->status.enforced == ENFORCED_NOTHING ||
				    s->status.plan_id == plan_file_id(&s->own.plan));
	return l->is_active;
}

static void compare_standing(struct control *s)
{
	if (!is_standing(s) && s->link->heard)
		loop_timer_need(s->loop, &s->own.restore, 0);
}

static int send_engine(struct control_sandbox *w, int plan_fd, struct err *err)
{
	const struct control_answer answer = { IPC_CHANGED, IPC_UNCHANGED };
	const struct ipc_message ask = { .type = IPC_CHANGE, .sandbox = w->id };
	struct ipc_message m;
	int r = control_await_engine(w->link)
			? control_ask_engine(w->link, &ask, plan_fd, &answer, &m, NULL)
			: -ETIMEDOUT;

	if (r < 0)
		return err_sys(err, r, "the engine does not answer");
	if (m.type == IPC_CHANGED) {
		if (!w->side->many)
			note_status(w->side, &m.status);
		return 0;
	}
	ipc_sanitize(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

static int send_supervisor(struct control_sandbox *w, const struct control_candidate *c,
			   struct err *err)
{
	const struct ipc_message keep = { .type = IPC_KEEP, .sandbox = w->id };
	const struct control_answer kept = { IPC_KEPT, IPC_REFUSED };
	const int fds[] = { c->plan_fd, c->text_fd };
	struct ipc_message m;
	int r;

	/* Only close_sandbox() knows that @c is closed, and says so afterwards. */
	w->closing.is_with_supervisor = false;
	r = control_ask_supervisor(w->link, &keep, fds, ARRAY_SIZE(fds), &kept, &m, NULL);
	/* Our successor starts with what the supervisor has, and mends the engine;
	 * another daemon has brought another engine, and says what it has. */
	if (r < 0) {
		if (w->link == w->side->link)
			loop_stop(w->side->loop);
		return err_sys(err, r, "the supervisor does not answer");
	}
	if (m.type == IPC_KEPT)
		return 0;
	ipc_sanitize(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

/* The plan that the engine has is not to stay, nor, where it was @kept, that of the
 * supervisor, which goes back first: what it has is what counts. An engine that is away
 * gets the old plan when it is back. If the supervisor can't be told, or the engine
 * refuses the old plan, a sidecar's control or a daemon's engine ends: its successor
 * starts with what the supervisor has. */
static void undo_change(struct control_sandbox *w, bool kept)
{
	CLEAN(candidate)
	struct control_candidate old = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	struct err ignored = { 0 };
	bool done = control_candidate_files(&old, w->document, &ignored) == 0 &&
		    (!kept || send_supervisor(w, &old, &ignored) == 0);

	if (done) {
		policy_file_abort(&w->side->file);
		done = send_engine(w, old.plan_fd, &ignored) == 0 || !w->link->heard;
	}
	if (!done && w->side->many)
		control_drop_engine(w->link, -EPROTO);
	else if (!done)
		loop_stop(w->side->loop);
}

/* On failure nothing has changed, and nothing is prepared in the file, or this process or
 * the engine ends. */
static enum api_failure put_in_force(struct control_sandbox *w,
				     const struct control_candidate *c, struct err *err)
{
	enum api_failure failure = API_FAILED_NOT;
	bool kept = true;

	if (send_engine(w, c->plan_fd, err) < 0) {
		policy_file_abort(&w->side->file);
		return API_FAILED_APPLY;
	}
	if (send_supervisor(w, c, err) < 0) {
		/* A daemon has refused, and has the old one; a sidecar's supervisor may
		 * have taken the new one without a word. */
		kept = !w->side->many;
		failure = w->side->many ? API_FAILED_PERSIST : API_FAILED_APPLY;
	}
	/* An engine that died in between may have a successor with the old plan, which
	 * must not be in force when the caller is told that the new one is. */
	else if (!control_engine_is_same(w->link) && send_engine(w, c->plan_fd, err) < 0)
		failure = API_FAILED_APPLY;
	if (failure != API_FAILED_NOT)
		undo_change(w, kept);
	return failure;
}

/* ---- the engine has another plan than the one in force ---- */

enum { RESTORE_MS = 1000, RESTORE_TRIES = 6 };

static int restore_plan(struct control_sandbox *w, struct err *err)
{
	CLEAN(candidate)
	struct control_candidate c = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	int r = control_candidate_files(&c, w->document, err);

	if (r < 0)
		return r;
	if (w->side->many)
		return send_engine(w, c.plan_fd, err);
	/* What a sidecar's supervisor has may be of older always files. */
	if (put_in_force(w, &c, err) != API_FAILED_NOT)
		return err->code;
	return is_standing(w->side)
		       ? 0
		       : err_set(err, -EPROTO, "the engine says that it has another one");
}

void control_restore_plan(struct control_sandbox *w)
{
	/* A sandbox that is about to be closed isn't opened before. */
	const bool is_closing = w->closing.due && !document_closed(w->document);
	const bool is_due = !is_closing && (w->side->many ? !w->stale && !w->gone[0]
							  : !w->link->is_active);
	struct err err = { 0 };

	/* Another engine is compared anew. */
	if (!is_due || !w->link->heard || restore_plan(w, &err) == 0) {
		w->restore_failures = 0;
		return;
	}
	if (w->restore_failures++ == 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot give the engine the policy in force%s%s, trying "
			     "again: %s",
			     w->spec.name[0] ? " of " : "", w->spec.name, err.text);
	if (w->restore_failures < RESTORE_TRIES) {
		loop_timer_need(w->side->loop, &w->restore,
				RESTORE_MS << (w->restore_failures - 1));
		return;
	}
	w->restore_failures = 0;
	control_drop_engine(w->link, -EPROTO);
}

static void on_restore(struct loop_timer *t)
{
	control_restore_plan(CONTAINER_OF(t, struct control_sandbox, restore));
}

/* ---- changes ---- */

/* Rules that the mode can't hold: each is a warning, and the first of them are in
 * /status. */
static void note_policy(struct control *s)
{
	s->policy_note_count = 0;
	if (s->spec.mode != SIDECAR_MODE_DNS)
		return;
	for (size_t i = 0; i < plan_rule_count(&s->own.plan); i++) {
		struct plan_rule rule = plan_rule(&s->own.plan, i);
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

void control_take(struct control_sandbox *w, struct control_candidate *c)
{
	if (c->document) {
		document_free(w->document);
		w->document = TAKE_PTR(c->document);
	}
	free(w->plan_bytes);
	w->plan_bytes = TAKE_PTR(c->bytes);
	w->plan = c->plan;
	if (w->side->many)
		return;
	note_policy(w->side);
	compare_standing(w->side);
}

static int keep_file(struct control *s, const struct document *d, struct err *err)
{
	CLEAN(mem) char *pretty = NULL;

	if (!s->file.path)
		return 0;
	pretty = document_json(d, true);
	return pretty ? policy_file_prepare(&s->file, text_of(pretty), err)
		      : err_set(err, -ENOMEM, "out of memory");
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

/* A sidecar's closed policy, also where the file for its policy can't be written. */
static int keep_closed(const struct control_sandbox *w, struct err *err)
{
	const struct control *s = w->side;

	return s->many || !s->spec.state_dir
		       ? 0
		       : closed_file_write(s->spec.state_dir, w->document, err);
}

void control_record(struct control_sandbox *w, const char *reason)
{
	struct event e = event_make(EVENT_CHANGE, EVENT_LAUNCH);

	e.ts_ms = clock_wall_ms();
	e.sandbox = w->id;
	event_set_reason(&e, reason);
	control_on_event(w->side, &e);
}

void control_record_policy(struct control_sandbox *w)
{
	const char *closed = document_closed(w->document);
	char reason[EVENT_REASON_SIZE];

	snprintf(reason, sizeof(reason), "%s%.100s",
		 closed ? "closed: " : "the policy was changed", closed ?: "");
	control_record(w, reason);
}

/* control_compile() has failed. What lacks memory has no fault, and may go later. */
static enum api_failure compile_failure(const struct err *err)
{
	return err->code == -ENOMEM ? API_FAILED_APPLY : API_FAILED_POLICY;
}

/* @c->document is the next one. */
static enum api_failure change_to(struct control_sandbox *w, struct control_candidate *c,
				  struct err *err)
{
	struct control *s = w->side;
	enum api_failure failure;

	/* Should this fail, nobody may have the closed policy any more. */
	w->closing.is_in_state_dir = w->closing.is_in_file = false;
	/* What is enforced decides what a policy may ask for; who introduces the engine
	 * says that before. */
	(void)!control_await_engine(w->link);
	if (control_compile(s, c->document, c, err) < 0)
		return compile_failure(err);
	if (control_candidate_files(c, c->document, err) < 0)
		return API_FAILED_APPLY;
	if (keep_file(s, c->document, err) < 0)
		return API_FAILED_PERSIST;
	failure = put_in_force(w, c, err);
	if (failure != API_FAILED_NOT)
		return failure;
	if (commit_file(s, err) < 0) {
		undo_change(w, true);
		return API_FAILED_PERSIST;
	}
	control_take(w, c);
	return API_FAILED_NOT;
}

enum api_failure control_change(struct control_sandbox *w, struct document *next,
				struct err *err)
{
	CLEAN(candidate)
	struct control_candidate c = { .document = next, .plan_fd = -1, .text_fd = -1 };
	const bool was_due = w->closing.due;
	enum api_failure failure;
	struct err unkept = { 0 };

	if (was_due && document_is_derived(next)) {
		err_set(err, -EPERM, DOCUMENT_IS_CLOSED, w->closing.why);
		return API_FAILED_CLOSED;
	}
	failure = change_to(w, &c, err);
	if (failure != API_FAILED_NOT) {
		w->failures++;
		return failure;
	}
	w->updates++;
	control_record_policy(w);
	if (document_closed(w->document))
		return failure;
	/* A policy that isn't closed was set: whatever closed the sandbox is over, but
	 * not what was denied meanwhile. */
	if (was_due)
		control_closing_done(w);
	if (keep_closed(w, &unkept) < 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "%s: a restart closes the sandbox again", unkept.text);
	return failure;
}

static int keep_closed_in_file(struct control_sandbox *w, struct err *err)
{
	int r = keep_file(w->side, w->document, err);

	return r < 0 ? r : commit_file(w->side, err);
}

/* The closed policy of @w is in force from now on. */
static void on_closed(struct control_sandbox *w)
{
	const struct ipc_message stop = { .type = IPC_STOP, .sandbox = w->id };

	/* Whoever lives in a cgroup of its own has nothing left to do. */
	if (w->spec.kind == ATTACH_HOST)
		control_send_daemon(w->link, &stop);
	w->updates++;
	control_record_policy(w);
}

/* What is done already isn't done again. The supervisor has the closed policy first, so
 * that whoever starts next closes the sandbox as well; then the policy is in force,
 * whatever came of that. Then it is kept on the disk. */
static int close_sandbox(struct control_sandbox *w, struct err *err)
{
	struct control_closing *k = &w->closing;
	CLEAN(candidate)
	struct control_candidate c = { .document = document_close(k->why),
				       .plan_fd = -1,
				       .text_fd = -1 };

	if (!c.document || control_compile(w->side, c.document, &c, err) < 0 ||
	    control_candidate_files(&c, c.document, err) < 0)
		return err->code < 0 ? err->code : err_set(err, -ENOMEM, "out of memory");
	if (!k->is_with_supervisor)
		k->is_with_supervisor = send_supervisor(w, &c, err) == 0;
	if (!document_closed(w->document)) {
		if (send_engine(w, c.plan_fd, err) < 0)
			return err->code;
		control_take(w, &c);
		on_closed(w);
	}
	if (!k->is_in_state_dir)
		k->is_in_state_dir = keep_closed(w, err) == 0;
	if (!k->is_in_file)
		k->is_in_file = keep_closed_in_file(w, err) == 0;
	return k->is_with_supervisor && k->is_in_state_dir && k->is_in_file ? 0
									    : err->code;
}

/* The same document again: the always files have changed. */
static enum api_failure control_apply_again(struct control *s, struct err *err)
{
	struct control_sandbox *w = &s->own;
	CLEAN(candidate) struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	enum api_failure failure = API_FAILED_APPLY;

	if (control_compile(s, w->document, &c, err) < 0)
		failure = compile_failure(err);
	else if (control_candidate_files(&c, w->document, err) == 0)
		failure = put_in_force(w, &c, err);
	if (failure == API_FAILED_NOT)
		control_take(w, &c);
	return failure;
}

/* ---- what the engine says ---- */

void control_on_status(struct control *s, const struct ipc_status *status)
{
	note_status(s, status);
	compare_standing(s);
}

/* ---- start ---- */

/* The supervisor's text; the plan that came of it is the one in force. */
static int read_text_fd(struct document **ret, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	CLEAN(fd) int fd = INHERITED_FIRST + INHERITED_TEXT;
	int r = file_read_fd(fd, SIZE_MAX - 1, &text);

	return r < 0 ? err_sys(err, r, "cannot read the policy in force")
		     : document_parse((struct text){ text.bytes, text.size }, NULL, NULL,
				      ret, err);
}

static int reload_open(struct control *s, struct err *err);

int control_policy_open(struct control *s, struct err *err)
{
	CLEAN(candidate) struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	CLEAN(mem) char *pretty = NULL;
	struct err why = { 0 };
	int r;

	s->file.path = s->spec.policy_file;
	s->file.spare_dir = s->spec.state_dir;
	s->policy.names = s->spec.mode == SIDECAR_MODE_DNS_NFT_TLS;
	s->policy.file = POLICY_IN_FORCE;
	/* Until somebody says what is enforced: the supervisor has checked its text. */
	s->status.enforced = ENFORCED_FILTER;
	r = reload_open(s, err);
	if (r == 0)
		r = read_text_fd(&s->own.document, err);
	if (r == 0)
		r = control_compile(s, s->own.document, &c, err);
	if (r < 0)
		return r;
	control_take(&s->own, &c);
	/* The supervisor's text may be one that the process before this one died of. */
	pretty = document_json(s->own.document, true);
	if (pretty && policy_file_resume(&s->file, text_of(pretty), &why) < 0)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR,
			     "the policy in force is not in its file: %s", why.text);
	return 0;
}

/* -- closed, for it was denied too much --------------------------------------------- */

/* The engine counts denials and says when there are more than `on_denies` takes, of a
 * `stop` again and again. The word comes while an answer to something else may be waited
 * for, so the sandbox is closed in a turn of its own: its policy is replaced by one that
 * denies everything and says why. That is kept wherever the policy is: the next process
 * starts with it. First of all it has to be in the kernel, then it has to be kept. What
 * fails is tried again: each AGAIN_MS until the kernel has it, then less and less often.
 *
 * A sidecar keeps it besides as STATE_DIR/closed.json, which is read before the file for
 * its policy, and goes when somebody sets another policy. */

enum { AGAIN_MS = 1000, AGAIN_MAX_MS = 60 * 1000 };

static void on_closing(struct loop_timer *t)
{
	struct control_sandbox *w =
		CONTAINER_OF(t, struct control_sandbox, closing.again);
	const char *name = w->spec.name[0] ? w->spec.name : "the sandbox";
	struct control_closing *c = &w->closing;
	struct err err = { 0 };

	if (!c->due)
		return;
	if (close_sandbox(w, &err) == 0) {
		c->due = false;
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_WARN,
			     "%s is closed: %s", name, c->why);
		return;
	}
	if (c->pause_ms == 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot close %s, trying again: %s", name, err.text);
	c->pause_ms = c->pause_ms > 0 && document_closed(w->document)
			      ? MIN(c->pause_ms * 2, (int64_t)AGAIN_MAX_MS)
			      : AGAIN_MS;
	loop_timer_need(w->side->loop, t, c->pause_ms);
}

void control_change_init(struct control_sandbox *w)
{
	w->closing.again.on_fire = on_closing;
	w->restore.on_fire = on_restore;
}

void control_change_done(struct control_sandbox *w)
{
	control_closing_done(w);
	loop_timer_stop(w->side->loop, &w->restore);
}

void control_closing_done(struct control_sandbox *w)
{
	w->closing.due = false;
	loop_timer_stop(w->side->loop, &w->closing.again);
}

const char *control_closed(const struct control_sandbox *w)
{
	return w->closing.due ? w->closing.why : document_closed(w->document);
}

bool control_on_denies(struct control *s, const struct event *e)
{
	struct control_sandbox *w = control_sandbox_of(s, e->sandbox);

	if (!w || !w->plan_bytes || plan_on_denies(&w->plan).action != ON_DENIES_STOP)
		return true;
	if (control_closed(w))
		return false;
	w->closing.due = true;
	w->closing.pause_ms = 0;
	w->closing.is_with_supervisor = false;
	w->closing.is_in_state_dir = w->closing.is_in_file = false;
	snprintf(w->closing.why, sizeof(w->closing.why), "%s", e->reason);
	loop_timer_need(s->loop, &w->closing.again, 0);
	return true;
}

/* -- files whose rules come and go -------------------------------------------------- */

/* inotify tells of changes at once where the directory is a file system that it works
 * on; besides, the files are looked at every POLL_MS, because mounts of other machines
 * and files that are put in the place of a mount don't tell. A file that can't be read,
 * or has a fault, leaves the old rules in force, and says so once per change. */

enum {
	POLL_MS = 5000,
	SETTLE_MS = 20, /* a file is often written in more than one step */
};

static int read_all(struct control *s, struct err *err)
{
	struct arena arena = { 0 };
	struct text texts[STATIC_RULES_COUNT];
	int r = static_rules_read(&s->static_rules, &arena, texts, err);

	if (r < 0) {
		arena_done(&arena);
		return r;
	}
	arena_done(&s->static_rules_arena);
	s->static_rules_arena = arena;
	for (size_t i = 0; i < STATIC_RULES_COUNT; i++) {
		s->policy.static_rules[i] = texts[i];
		s->policy.paths[i] = s->static_rules.paths[i];
	}
	return 0;
}

/* @old is what was in force; on failure it is again. */
static void reload(struct control *s)
{
	struct sidecar_policy_context old = s->policy;
	struct arena old_arena = s->static_rules_arena;
	enum api_failure failure = API_FAILED_POLICY;
	int64_t now_ms = clock_wall_ms();
	struct err err = { 0 };

	s->static_rules_arena = (struct arena){ 0 };
	if (read_all(s, &err) == 0)
		failure = control_apply_again(s, &err);
	/* Nothing is wrong with the files then: they are to be tried again. */
	if (failure == API_FAILED_APPLY)
		memset(s->static_rules.seen, 0xff, sizeof(s->static_rules.seen));
	if (failure != API_FAILED_NOT) {
		arena_done(&s->static_rules_arena);
		s->static_rules_arena = old_arena;
		s->policy = old;
		loglines_say(s->log, now_ms, LOGLINES_WARN,
			     "always rules not reloaded: %s; the old ones stay",
			     err.text);
		return;
	}
	arena_done(&old_arena);
	loglines_say(s->log, now_ms, LOGLINES_INFO, "always rules reloaded");
}

static void on_poll(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, poll);

	/* Without an engine there is nobody who could take them: next time. */
	if (s->link->is_active && static_rules_changed(&s->static_rules))
		reload(s);
	loop_timer_need(s->loop, &s->poll, POLL_MS);
}

static void on_notify(struct loop_source *source, uint32_t events)
{
	struct control *s = CONTAINER_OF(source, struct control, notify);

	int64_t at_ms = loop_now_ms(s->loop) + SETTLE_MS;

	static_rules_drain(&s->static_rules);
	/* Not later than it is due already: who writes there all the time must not put it
	 * off for ever. */
	if (loop_timer_by(s->loop, &s->poll, at_ms) < 0)
		loop_stop(s->loop);
}

/* Read the always-rules files, and watch them. */
static int reload_open(struct control *s, struct err *err)
{
	struct err why = { 0 };
	int r = static_rules_open(&s->static_rules, s->spec.static_rules_dir);

	if (r == 0)
		r = read_all(s, err);
	if (r < 0)
		return err->code < 0 ? r : err_sys(err, r, "cannot read the rules files");
	r = log_skip_names_parse(s->policy.static_rules[STATIC_RULES_LOG_SKIP],
				 s->static_rules.paths[STATIC_RULES_LOG_SKIP], &s->skip,
				 &why);
	if (r < 0)
		return err_set(err, r, "%s", why.text);
	s->poll.on_fire = on_poll;
	s->notify = (struct loop_source){ .fd = s->static_rules.inotify_fd,
					  .on_ready = on_notify };
	if (s->notify.fd >= 0 && loop_add(s->loop, &s->notify, EPOLLIN) < 0)
		return err_set(err, -ENOMEM, "cannot watch the rules files");
	loop_timer_need(s->loop, &s->poll, POLL_MS);
	return 0;
}
