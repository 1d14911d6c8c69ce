// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The daemon has the sandboxes; what is here is a copy for answers: read from it at the
 * start (IPC_LIST), a few in each turn of the loop, and changed with it (change.c). What
 * comes while an answer is waited for is dealt with in another turn: whoever waits may
 * have the sandbox that it is about in his hands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/http_status.h"
#include "control/control.h"
#include "sandbox/plan_file.h"
#include "sys/files.h"

struct control_sandbox *control_sandbox_find(const struct control *s, uint32_t id)
{
	uint32_t engine = id >> IPC_ENGINE_SHIFT;

	if (engine >= s->link_count || !s->links[engine].sandboxes)
		return NULL;
	return s->links[engine].sandboxes[id & IPC_SANDBOXES_MAX];
}

struct control_sandbox *control_sandbox_of(struct control *s, uint32_t id)
{
	return s->many ? control_sandbox_find(s, id) : &s->own;
}

/* Of @l's the first one above @id, its number there. */
static struct control_sandbox *control_sandbox_next(const struct control_link *l,
						    uint32_t id)
{
	while (id < l->highest_id)
		if (l->sandboxes[++id])
			return l->sandboxes[id];
	return NULL;
}

struct control_sandbox *control_sandbox_after(const struct control *s, uint32_t id)
{
	struct control_sandbox *w = NULL;

	for (uint32_t at = id >> IPC_ENGINE_SHIFT; at < s->link_count && !w; at++) {
		w = control_sandbox_next(&s->links[at], id & IPC_SANDBOXES_MAX);
		id = 0;
	}
	return w;
}

struct control_sandbox *control_sandbox_named(const struct control *s, const char *name)
{
	struct index_entry *e = index_find(&s->sandboxes_by_name, name);

	return e ? CONTAINER_OF(e, struct control_sandbox, by_name) : NULL;
}

struct event_ring *control_sandbox_ring(struct control_sandbox *w)
{
	if (!w->ring)
		w->ring = event_ring_new(w->id == 0 ? CONTROL_EVENTS_KEPT
						    : CONTROL_SANDBOX_EVENTS_KEPT);
	return w->ring;
}

static void control_sandbox_free(struct control_sandbox *w)
{
	if (!w)
		return;
	control_change_done(w);
	index_remove(&w->side->sandboxes_by_name, &w->by_name);
	index_remove(&w->side->sandboxes_by_key, &w->by_key);
	document_free(w->document);
	free(w->plan_bytes);
	event_ring_free(w->ring);
	traffic_free(w->traffic);
	free(w);
}

/* -- they come and go --------------------------------------------------------------- */

/* @l has it; what @c has is taken. */
static int control_sandbox_add(struct control_link *l, uint32_t id,
			       const struct ipc_sandbox *spec,
			       struct control_candidate *c)
{
	struct control *s = l->side;
	uint32_t slot = id & IPC_SANDBOXES_MAX;
	struct control_sandbox *w = slot > 0 ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return slot > 0 ? -ENOMEM : -EBADMSG;
	w->side = s;
	w->link = l;
	w->id = id;
	control_change_init(w);
	w->spec = *spec;
	w->spec.name[IPC_SANDBOX_NAME_MAX] = '\0';
	w->spec.where[IPC_SANDBOX_WHERE_MAX] = '\0';
	w->since_ms = clock_wall_ms();
	control_namespace_key(&w->spec, w->key);
	if (index_add(&s->sandboxes_by_name, &w->by_name, w->spec.name) < 0 ||
	    (w->key[0] && index_add(&s->sandboxes_by_key, &w->by_key, w->key) < 0)) {
		index_remove(&s->sandboxes_by_name, &w->by_name);
		free(w);
		return -ENOMEM;
	}
	control_take(w, c);
	l->control_sandbox_count += !l->sandboxes[slot];
	control_sandbox_free(l->sandboxes[slot]);
	l->sandboxes[slot] = w;
	l->highest_id = MAX(l->highest_id, slot);
	if (document_closed(w->document))
		control_record_policy(w);
	return 0;
}

static void take_out(struct control_sandbox *w)
{
	struct control_link *l = w->link;

	l->sandboxes[w->id & IPC_SANDBOXES_MAX] = NULL;
	l->control_sandbox_count--;
	l->full = false;
	control_sandbox_free(w);
}

/* In the engine that is chosen for it; if that is full, in another one. */
static int attach_somewhere(struct control *s, const struct ipc_sandbox *given,
			    struct control_candidate *c, struct control_sandbox **ret,
			    struct err *err)
{
	const int fds[] = { c->plan_fd, c->text_fd };
	struct ipc_sandbox spec = *given;
	struct err full = { 0 };
	struct control_link *l;
	struct ipc_message m = { 0 };
	int r;

	while ((r = control_engine_choose(s, &spec, &l, err)) == 0) {
		const struct ipc_message ask = { .type = IPC_ADD, .attached = spec };

		/* The answer has what was guarded then, a name as the number that it
		 * stands for. */
		r = control_order(l, &ask, fds, ARRAY_SIZE(fds), IPC_ATTACHED, &m, err);
		if (r != -EMFILE || spec.kind != ATTACH_NETNS)
			break;
		l->full = true;
		full = *err;
		*err = (struct err){ 0 };
	}
	if (r == -EPERM && m.type == IPC_REFUSED) {
		s->refused.id = m.sandbox;
		snprintf(s->refused.name, sizeof(s->refused.name), "%s", spec.name);
	}
	/* Why the last one is says more. */
	if (r == -EMFILE && full.code < 0)
		*err = full;
	if (r == 0)
		r = control_sandbox_add(l, m.sandbox, &m.attached, c);
	if (r == 0)
		*ret = control_sandbox_find(s, m.sandbox);
	return r;
}

unsigned int control_sandbox_attach(struct control *s, const struct ipc_sandbox *spec,
				    struct document *policy, struct err *err)
{
	CLEAN(candidate)
	struct control_candidate c = { .document = policy, .plan_fd = -1, .text_fd = -1 };
	struct event refused = event_make(EVENT_PANIC, EVENT_LAUNCH);
	unsigned int status = HTTP_CREATED;
	struct control_sandbox *w = NULL;

	if (control_sandbox_named(s, spec->name)) {
		err_set(err, -EEXIST, "there is a sandbox '%s' already", spec->name);
		status = HTTP_CONFLICT;
	} else if (control_compile(s, policy, &c, err) < 0) {
		status = err->code == -ENOMEM ? HTTP_FAILED : HTTP_BAD_REQUEST;
	} else if (control_candidate_files(&c, policy, err) < 0 ||
		   attach_somewhere(s, spec, &c, &w, err) < 0) {
		if (err->code == 0)
			err_set(err, -ENOMEM, "out of memory");
		status = HTTP_FAILED;
		/* A launch that ends for safety has an event, though there is no
		 * sandbox. */
		refused.ts_ms = clock_wall_ms();
		snprintf(refused.name, sizeof(refused.name), "%s", spec->name);
		snprintf(refused.reason, sizeof(refused.reason),
			 "failed_safety_setup: %.100s", err->text);
		control_on_event(s, &refused);
	} else {
		control_record(w, "the sandbox was attached");
	}
	return status;
}

unsigned int control_sandbox_detach(struct control_sandbox *w, struct err *err)
{
	const struct ipc_message ask = { .type = IPC_DETACH, .sandbox = w->id };
	/* A refusal that comes now is of something else, which nobody waits for any more.
	 */
	const struct control_answer answer = { IPC_DETACHED, IPC_DETACHED };
	struct ipc_message m;
	int r = control_ask_supervisor(w->link, &ask, NULL, 0, &answer, &m, NULL);

	if (r < 0) {
		err_sys(err, r, "the supervisor does not answer");
		return HTTP_FAILED;
	}
	ipc_sanitize(m.text, sizeof(m.text));
	if (m.text[0]) {
		err_set(err, -EIO, "%s", m.text);
		return HTTP_FAILED;
	}
	control_hear_engine(w->link);
	control_record(w, "the sandbox was detached");
	take_out(w);
	return HTTP_OK;
}

/* Not now, but in a turn of its own: an answer may be waited for. */
static void sandboxes_look_again(struct control *s)
{
	loop_timer_need(s->loop, &s->relist, 0);
}

/* No look-up finds @w any more; control_sandbox_free() comes later. */
static void control_sandbox_end(struct control_sandbox *w, const char *why)
{
	snprintf(w->gone, sizeof(w->gone), "%.60s", why);
	index_remove(&w->side->sandboxes_by_name, &w->by_name);
	index_remove(&w->side->sandboxes_by_key, &w->by_key);
}

void control_sandboxes_on_daemon(struct control_link *l, struct ipc_message *m)
{
	struct control *s = l->side;
	uint32_t slot = m->sandbox & IPC_SANDBOXES_MAX;
	struct control_sandbox *w = control_sandbox_find(s, m->sandbox);

	if (w && m->type == IPC_HAPPENED) {
		ipc_sanitize(m->text, sizeof(m->text));
		control_record(w, m->text);
	}
	if (m->type != IPC_GONE && m->type != IPC_ATTACHED && m->type != IPC_DETACHED)
		return;
	m->text[sizeof(m->text) - 1] = '\0';
	if (w && m->type == IPC_GONE)
		control_sandbox_end(w, m->text);
	/* The control before us had asked for that. */
	if (w && m->type == IPC_DETACHED && !m->text[0])
		control_sandbox_end(w, "the sandbox was detached");
	if (m->type == IPC_ATTACHED) {
		l->reported[slot / 64] |= UINT64_C(1) << slot % 64;
		l->has_reported = true;
	}
	sandboxes_look_again(s);
}

/* -- what the daemons have ---------------------------------------------------------- */

/* At the start the daemons are asked for what they have, a few sandboxes in each turn of
 * the loop. When an engine has been replaced, and at the start, each is compared with
 * what the engine enforces: a change that was under way when somebody died is undone
 * then. */

#define NOTHING UINT32_MAX

enum {
	ASKED_MAX = 64,	     /* sandboxes that are asked about in one turn */
	ASKED_TURN_MS = 250, /* and no more are once this has passed */
};

/* -- the daemon's list -------------------------------------------------------------- */

static int read_listed_text(int fd, struct document **ret, struct err *err)
{
	CLEAN(file_bytes) struct file_bytes text = { 0 };
	int r = file_read_fd(fd, SIZE_MAX - 1, &text);

	if (r < 0)
		return err_sys(err, r, "cannot read a policy");
	if (text.size == 0)
		return err_set(err, -EBADMSG, "cannot read a policy: it is empty");
	return document_parse((struct text){ text.bytes, text.size }, NULL, NULL, ret,
			      err);
}

static int list_one(struct control_link *l, struct ipc_message *m, int fd,
		    struct err *err)
{
	CLEAN(candidate) struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	struct control_sandbox *known = control_sandbox_find(l->side, m->sandbox);
	int r = read_listed_text(fd, &c.document, err);

	m->attached.name[IPC_SANDBOX_NAME_MAX] = '\0';
	if (r == 0)
		r = control_compile(l->side, c.document, &c, err);
	if (r == 0 && known && strcmp(known->spec.name, m->attached.name) == 0) {
		/* What is in force may be another policy than the one here: of a change
		 * that its daemon has died of. */
		control_take(known, &c);
		known->stale = false;
	} else if (r == 0) {
		r = control_sandbox_add(l, m->sandbox, &m->attached, &c);
	}
	return r;
}

/* The first one above *@at, if we don't know it yet; *@at moves on to it. */
static int list_after(struct control_link *l, uint32_t *at, struct err *err)
{
	const struct control_answer listed = { IPC_LISTED, IPC_LISTED };
	const struct ipc_message ask = { .type = IPC_LIST, .sandbox = *at };
	struct ipc_message m;
	CLEAN(fd) int fd = -1;
	int r = control_ask_supervisor(l, &ask, NULL, 0, &listed, &m, &fd);
	uint32_t slot;

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	slot = m.sandbox & IPC_SANDBOXES_MAX;
	*at = slot > *at ? slot : NOTHING;
	if (slot != 0 && fd >= 0 && (!l->sandboxes[slot] || l->sandboxes[slot]->stale))
		r = list_one(l, &m, fd, err);
	return r;
}

static void list_next(struct control_link *l, uint32_t *at)
{
	struct err err = { 0 };

	if (list_after(l, at, &err) < 0)
		loglines_say(l->side->log, clock_wall_ms(), LOGLINES_ERROR, "%s",
			     err.text);
}

static void list_reported(struct control_link *l)
{
	l->has_reported = false;
	for (uint32_t id = 1; id <= IPC_SANDBOXES_MAX; id++) {
		uint64_t bit = UINT64_C(1) << id % 64;
		uint32_t before = id - 1;

		if (!(l->reported[id / 64] & bit))
			continue;
		l->reported[id / 64] &= ~bit;
		if (!l->sandboxes[id] || l->sandboxes[id]->stale)
			list_next(l, &before);
	}
}

bool control_engines_are_active(const struct control *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (!s->links[i].is_active)
			return false;
	return true;
}

const char *control_lacking(const struct control *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (s->links[i].lacking[0])
			return s->links[i].lacking;
	return "";
}

bool control_sandboxes_are_known(const struct control *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (!s->links[i].known)
			return false;
	return true;
}

/* -- the engine --------------------------------------------------------------------- */

int control_sandbox_stats(struct control_sandbox *w)
{
	const struct control_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS, .sandbox = w->id };
	struct ipc_message m;
	int r = w->link->from_engine.fd < 0
			? -EPIPE
			: control_ask_engine(w->link, &ask, -1, &answer, &m, NULL);

	if (r < 0)
		return r;
	w->stats = m.stats;
	w->denies = sandbox_denied(m.stats.counters);
	return 0;
}

/* All answers together have the time of one: an engine that takes nearly that for each of
 * them would have everybody else wait for days. */
static void ask_denies(struct control_link *l)
{
	const int64_t until_ms = clock_now_ms() + CONTROL_ASK_MS;
	const struct control_answer answer = { IPC_DENIES, IPC_DENIES };
	struct ipc_message ask = { .type = IPC_DENIES }, m;

	do {
		if (l->from_engine.fd < 0 ||
		    control_ask_engine(l, &ask, -1, &answer, &m, NULL) < 0)
			return;
		/* What comes is the engine's word. */
		for (size_t i = 0; i < MIN(m.denies.count, (size_t)IPC_DENIES_MAX); i++) {
			const uint32_t id = m.denies.of[i].sandbox;

			if (l->sandboxes && id <= IPC_SANDBOXES_MAX && l->sandboxes[id])
				l->sandboxes[id]->denies = m.denies.of[i].denies;
		}
		/* Above which number to go on; 0: that was all. */
		ask.sandbox = m.sandbox > ask.sandbox ? m.sandbox : 0;
	} while (ask.sandbox != 0 && clock_now_ms() < until_ms);
	if (ask.sandbox != 0)
		control_drop_engine(l, -ETIMEDOUT);
}

void control_sandboxes_denies(struct control *s)
{
	int64_t now_ms = loop_now_ms(s->loop);

	if (s->denies_at_ms != 0 && now_ms - s->denies_at_ms < CONTROL_STATS_AGE_MS)
		return;
	s->denies_at_ms = now_ms;
	for (size_t i = 0; i < s->link_count; i++)
		ask_denies(&s->links[i]);
}

void control_sandbox_audit(struct control_sandbox *w)
{
	const struct control_answer answer = { IPC_AUDITED, IPC_AUDITED };
	const struct ipc_message ask = { .type = IPC_AUDIT, .sandbox = w->id };
	int64_t now_ms = loop_now_ms(w->side->loop);
	struct ipc_message m = { 0 };

	if (w->audited_ms != 0 && now_ms - w->audited_ms < CONTROL_STATS_AGE_MS)
		return;
	w->audited_ms = now_ms;
	if (w->link->from_supervisor.fd < 0 ||
	    control_ask_supervisor(w->link, &ask, NULL, 0, &answer, &m, NULL) < 0)
		w->audit = (struct ipc_audit){ 0 };
	else
		w->audit = m.audit;
}

/* Should the engine enforce another plan than the one in force, it gets that. */
static void compare_next(struct control_link *l)
{
	struct control_sandbox *w = control_sandbox_next(l, l->compared_id);

	if (w) {
		l->compared_id = w->id & IPC_SANDBOXES_MAX;
		if (control_sandbox_stats(w) == 0 && w->stats.plan_id != 0 &&
		    w->stats.plan_id != plan_file_id(&w->plan))
			control_restore_plan(w);
	} else if (l->listed_id == NOTHING) {
		l->compared_id = NOTHING;
	}
}

/* Return: there is more to ask about. */
static bool ask_some(struct control_link *l)
{
	const int64_t until_ms = clock_now_ms() + ASKED_TURN_MS;
	struct control_sandbox *w;

	/* Its successor is asked for everything. */
	if (l->from_supervisor.fd < 0)
		return false;
	if (l->has_reported)
		list_reported(l);
	for (int i = 0; i < ASKED_MAX && l->listed_id != NOTHING; i++)
		list_next(l, &l->listed_id);
	for (int i = 0;
	     i < ASKED_MAX && l->compared_id != NOTHING && clock_now_ms() < until_ms; i++)
		compare_next(l);
	if (l->took_over && l->listed_id == NOTHING && !l->checked) {
		/* All that were there are here. What another daemon had, and this one
		 * doesn't, is not guarded: its rules stay. */
		l->known = l->checked = true;
		for (uint32_t id = 0; (w = control_sandbox_next(l, id));
		     id = w->id & IPC_SANDBOXES_MAX)
			if (w->stale && !w->gone[0])
				control_sandbox_end(w, "it can't be guarded again now: "
						       "its rules stay");
		sandboxes_look_again(l->side);
	}
	return l->listed_id != NOTHING || l->compared_id != NOTHING;
}

static void on_relist(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, relist);
	bool again = false;
	struct control_sandbox *w;

	/* Sandboxes that have ended are freed. */
	for (size_t i = 0; i < s->link_count; i++)
		control_hear_engine(&s->links[i]);
	for (uint32_t id = 0; (w = control_sandbox_after(s, id));) {
		id = w->id;
		if (!w->gone[0])
			continue;
		ipc_sanitize(w->gone, sizeof(w->gone));
		control_record(w, w->gone);
		take_out(w);
	}
	for (size_t i = 0; i < s->link_count; i++)
		again |= ask_some(&s->links[i]);
	if (again)
		sandboxes_look_again(s);
}

void control_sandboxes_on_engine(struct control_link *l)
{
	/* The daemon introduces us when it has given the engine what there was. */
	if (!l->took_over && l != l->side->link)
		l->listed_id = 0;
	l->heard = l->is_active = l->took_over = true;
	l->compared_id = 0;
	sandboxes_look_again(l->side);
}

int control_sandboxes_on_link(struct control_link *l)
{
	struct control_sandbox *w;

	if (!l->sandboxes)
		l->sandboxes =
			calloc(IPC_SANDBOXES_MAX + 1, sizeof(struct control_sandbox *));
	if (!l->sandboxes)
		return -ENOMEM;
	for (uint32_t id = 0; (w = control_sandbox_next(l, id));
	     id = w->id & IPC_SANDBOXES_MAX)
		w->stale = true;
	/* Until its engine has everything, less is there than there was. */
	l->listed_id = l == l->side->link ? 0 : NOTHING;
	l->compared_id = NOTHING;
	l->took_over = l->checked = false;
	l->lacking[0] = '\0';
	return 0;
}

int control_sandboxes_open(struct control *s, struct err *err)
{
	s->relist.on_fire = on_relist;
	if (control_sandboxes_on_link(s->link) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	sandboxes_look_again(s);
	return 0;
}
