// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The daemon has the sandboxes; what is here is a copy for answers: read from it at the
 * start (IPC_LIST), a few in each turn of the loop, and changed with it. A change goes
 * the way of the sidecar's (change.c), with the sandbox's number in every message: the
 * engine first, then the daemon, which keeps the text in its folder, then memory.
 * What comes while an answer is waited for is dealt with in another turn: whoever waits
 * may have the sandbox that it is about in his hands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "control/sandboxes.h"

enum {
	HTTP_OK = 200,
	HTTP_CREATED = 201,
	HTTP_BAD_REQUEST = 400,
	HTTP_CONFLICT = 409,
	HTTP_FAILED = 500,
};

struct control_sandbox *control_sandbox_find(const struct control *s, uint32_t id)
{
	uint32_t engine = id >> IPC_ENGINE_SHIFT;

	if (engine >= s->link_count || !s->links[engine].sandboxes)
		return NULL;
	return s->links[engine].sandboxes[id & IPC_SANDBOXES_MAX];
}

/* Of @l's the first one above @id, its number there. */
struct control_sandbox *control_sandbox_next(const struct control_link *l, uint32_t id)
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
	struct index_entry *e = index_find(&s->control_sandbox_names, name);

	return e ? CONTAINER_OF(e, struct control_sandbox, named) : NULL;
}

struct event_ring *control_sandbox_ring(struct control_sandbox *w)
{
	if (!w->ring)
		w->ring = event_ring_new(CONTROL_SANDBOX_EVENTS_KEPT);
	return w->ring;
}

static void control_sandbox_free(struct control_sandbox *w)
{
	if (!w)
		return;
	control_closing_done(w->side, &w->closing);
	index_remove(&w->side->control_sandbox_names, &w->named);
	index_remove(&w->side->control_sandbox_places, &w->placed);
	document_free(w->document);
	free(w->plan_bytes);
	event_ring_free(w->ring);
	free(w);
}

/* -- policies ----------------------------------------------------------------------- */

int control_sandbox_compile(struct control *s, const struct document *d,
			    struct control_candidate *c, struct err *err)
{
	const struct sidecar_policy_context context = {
		.filters = true, .names = true, .daemon = true, .file = "policy"
	};
	size_t size;
	int r = sidecar_policy_build(&context, d, NULL, NULL, &c->bytes, &size, err);

	return r < 0 ? r : plan_open(c->bytes, size, &c->plan, err);
}

int control_sandbox_check(struct control *s, const struct document *policy,
			  struct err *err)
{
	struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	int r = control_sandbox_compile(s, policy, &c, err);

	control_candidate_done(&c);
	return r;
}

void control_sandbox_take(struct control_sandbox *w, struct control_candidate *c)
{
	if (c->document) {
		document_free(w->document);
		w->document = TAKE_PTR(c->document);
	}
	free(w->plan_bytes);
	w->plan_bytes = TAKE_PTR(c->bytes);
	w->plan = c->plan;
}

int control_sandbox_give_engine(struct control_sandbox *w, int plan_fd, struct err *err)
{
	const struct control_answer answer = { IPC_CHANGED, IPC_UNCHANGED };
	const struct ipc_message ask = { .type = IPC_CHANGE, .sandbox = w->id };
	struct ipc_message m;
	int r = control_await_engine(w->link)
			? control_ask_engine(w->link, &ask, plan_fd, &answer, &m, NULL)
			: -ETIMEDOUT;

	if (r < 0)
		return err_sys(err, r, "the engine does not answer");
	if (m.type == IPC_CHANGED)
		return 0;
	control_tame(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

static int give_daemon(struct control_sandbox *w, const struct control_candidate *c,
		       struct err *err)
{
	const struct ipc_message keep = { .type = IPC_KEEP, .sandbox = w->id };
	const struct control_answer kept = { IPC_KEPT, IPC_REFUSED };
	const int fds[] = { c->plan_fd, c->text_fd };
	struct ipc_message m;
	int r = control_ask_supervisor(w->link, &keep, fds, ARRAY_SIZE(fds), &kept, &m,
				       NULL);

	/* Our successor starts with what the daemon has, and mends the engine; another
	 * daemon has brought another engine, and says what it has. */
	if (r < 0) {
		if (w->link == w->side->link)
			loop_stop(w->side->loop);
		return err_sys(err, r, "the supervisor does not answer");
	}
	if (m.type == IPC_KEPT)
		return 0;
	control_tame(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

/* The engine has another plan than the one that is kept. If it can't be told, it ends:
 * its successor starts with what the supervisor has. */
static void take_back(struct control_sandbox *w)
{
	struct control_candidate old = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	struct err ignored = { 0 };

	if (control_candidate_files(&old, w->document, &ignored) < 0 ||
	    control_sandbox_give_engine(w, old.plan_fd, &ignored) < 0)
		control_give_up_engine(w->link, -EPROTO);
	control_candidate_done(&old);
}

static void record(struct control_sandbox *w, enum event_action action,
		   const char *reason)
{
	struct event e = {
		.ts_ms = clock_wall_ms(),
		.action = (uint8_t)action,
		.layer = EVENT_LAUNCH,
		.sandbox = w->id,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.packets = 1,
	};

	snprintf(e.reason, sizeof(e.reason), "%s", reason);
	control_on_event(w->side, &e);
}

static void record_closed(struct control_sandbox *w)
{
	char reason[EVENT_REASON_SIZE];

	snprintf(reason, sizeof(reason), "closed: %.50s", document_closed(w->document));
	record(w, EVENT_CHANGE, reason);
}

enum api_failure control_sandbox_change(struct control_sandbox *w, struct document *next,
					struct err *err)
{
	struct control_candidate c = { .document = next, .plan_fd = -1, .text_fd = -1 };
	enum api_failure failure = API_FAILED_NOT;

	if (control_sandbox_compile(w->side, next, &c, err) < 0) {
		failure = API_FAILED_POLICY;
	} else if (control_candidate_files(&c, next, err) < 0 ||
		   control_sandbox_give_engine(w, c.plan_fd, err) < 0) {
		failure = API_FAILED_APPLY;
	} else if (give_daemon(w, &c, err) < 0) {
		take_back(w);
		failure = API_FAILED_PERSIST;
	}
	if (failure == API_FAILED_NOT) {
		control_sandbox_take(w, &c);
		if (!document_closed(w->document))
			control_closing_done(w->side, &w->closing);
		w->updates++;
		record(w, EVENT_CHANGE, "the policy was changed");
	} else {
		w->failures++;
	}
	control_candidate_done(&c);
	return failure;
}

/* First it is kept, so that whoever starts next closes it as well; then it is in force,
 * even if it could not be kept. */
int control_sandbox_close(struct control_sandbox *w, const char *why, struct err *err)
{
	struct control_candidate c = { .document = document_close(why),
				       .plan_fd = -1,
				       .text_fd = -1 };
	const struct ipc_message stop = { .type = IPC_STOP, .sandbox = w->id };
	bool is_news = !document_closed(w->document);
	int kept = -ENOMEM, r = -ENOMEM;

	if (c.document && control_sandbox_compile(w->side, c.document, &c, err) == 0 &&
	    control_candidate_files(&c, c.document, err) == 0) {
		kept = give_daemon(w, &c, err);
		r = control_sandbox_give_engine(w, c.plan_fd, err);
	}
	if (r == 0)
		control_sandbox_take(w, &c);
	control_candidate_done(&c);
	/* Whoever lives in a cgroup of its own has nothing left to do. */
	if (r == 0 && is_news && w->spec.kind == ATTACH_HOST)
		control_tell_daemon(w->link, &stop);
	if (r == 0 && is_news) {
		w->updates++;
		record_closed(w);
	}
	if (r < 0 && err->code == 0)
		err_set(err, r, "out of memory");
	return r < 0 ? r : kept;
}

/* -- they come and go --------------------------------------------------------------- */

int control_sandbox_add(struct control_link *l, uint32_t id,
			const struct ipc_sandbox *spec, struct control_candidate *c)
{
	struct control *s = l->side;
	uint32_t place = id & IPC_SANDBOXES_MAX;
	struct control_sandbox *w = place > 0 ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return place > 0 ? -ENOMEM : -EBADMSG;
	w->side = s;
	w->link = l;
	w->id = id;
	control_sandbox_closing_init(w);
	w->spec = *spec;
	w->spec.name[IPC_SANDBOX_NAME_MAX] = '\0';
	w->spec.where[IPC_SANDBOX_WHERE_MAX] = '\0';
	w->since_ms = clock_wall_ms();
	control_place(&w->spec, w->place);
	if (index_add(&s->control_sandbox_names, &w->named, w->spec.name) < 0 ||
	    (w->place[0] &&
	     index_add(&s->control_sandbox_places, &w->placed, w->place) < 0)) {
		index_remove(&s->control_sandbox_names, &w->named);
		free(w);
		return -ENOMEM;
	}
	control_sandbox_take(w, c);
	l->control_sandbox_count += !l->sandboxes[place];
	control_sandbox_free(l->sandboxes[place]);
	l->sandboxes[place] = w;
	l->highest_id = MAX(l->highest_id, place);
	if (document_closed(w->document))
		record_closed(w);
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

/* A launch that ends for safety has an event, though there is no sandbox. */
static void record_refusal(struct control *s, const struct ipc_sandbox *spec,
			   const char *why)
{
	struct event e = {
		.ts_ms = clock_wall_ms(),
		.action = EVENT_PANIC,
		.layer = EVENT_LAUNCH,
		.rule = EVENT_NO_RULE,
		.uid = UINT32_MAX,
		.packets = 1,
	};

	snprintf(e.name, sizeof(e.name), "%s", spec->name);
	snprintf(e.reason, sizeof(e.reason), "failed_safety_setup: %.100s", why);
	control_on_event(s, &e);
}

/* @ret has what was guarded then, a name as the number that it stands for. */
static int ask_attach(struct control_link *l, const struct ipc_sandbox *spec,
		      const struct control_candidate *c, struct ipc_message *ret,
		      struct err *err)
{
	const struct ipc_message ask = { .type = IPC_WARD, .attached = *spec };
	const struct control_answer answer = { IPC_ATTACHED, IPC_REFUSED, IPC_FULL };
	const int fds[] = { c->plan_fd, c->text_fd };
	int r = control_ask_supervisor(l, &ask, fds, ARRAY_SIZE(fds), &answer, ret, NULL);

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	if (ret->type == IPC_ATTACHED)
		return 0;
	control_tame(ret->text, sizeof(ret->text));
	return err_set(err, ret->type == IPC_FULL ? -EMFILE : -EPERM, "%s", ret->text);
}

/* In the engine that is chosen for it; if that is full, in another one. */
static int attach_somewhere(struct control *s, const struct ipc_sandbox *given,
			    struct control_candidate *c, struct control_sandbox **ret,
			    struct err *err)
{
	struct ipc_sandbox spec = *given;
	struct err full = { 0 };
	struct control_link *l;
	struct ipc_message m = { 0 };
	int r;

	while ((r = control_engine_choose(s, &spec, &l, err)) == 0) {
		r = ask_attach(l, &spec, c, &m, err);
		if (r != -EMFILE || spec.kind != ATTACH_NETNS)
			break;
		l->full = true;
		full = *err;
		*err = (struct err){ 0 };
	}
	if (r < 0 && m.type == IPC_REFUSED) {
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
	struct control_candidate c = { .document = policy, .plan_fd = -1, .text_fd = -1 };
	unsigned int status = HTTP_CREATED;
	struct control_sandbox *w = NULL;

	if (control_sandbox_named(s, spec->name)) {
		err_set(err, -EEXIST, "there is a sandbox '%s' already", spec->name);
		status = HTTP_CONFLICT;
	} else if (control_sandbox_compile(s, policy, &c, err) < 0) {
		status = HTTP_BAD_REQUEST;
	} else if (control_candidate_files(&c, policy, err) < 0 ||
		   attach_somewhere(s, spec, &c, &w, err) < 0) {
		if (err->code == 0)
			err_set(err, -ENOMEM, "out of memory");
		status = HTTP_FAILED;
		record_refusal(s, spec, err->text);
	} else {
		record(w, EVENT_CHANGE, "the sandbox was attached");
	}
	control_candidate_done(&c);
	return status;
}

unsigned int control_sandbox_detach(struct control *s, struct control_sandbox *w,
				    struct err *err)
{
	const struct ipc_message ask = { .type = IPC_DETACH, .sandbox = w->id };
	const struct control_answer answer = { IPC_DETACHED, IPC_DETACHED };
	struct ipc_message m;
	int r = control_ask_supervisor(w->link, &ask, NULL, 0, &answer, &m, NULL);

	if (r < 0) {
		err_sys(err, r, "the supervisor does not answer");
		return HTTP_FAILED;
	}
	control_tame(m.text, sizeof(m.text));
	if (m.text[0]) {
		err_set(err, -EIO, "%s", m.text);
		return HTTP_FAILED;
	}
	control_hear_engine(w->link);
	record(w, EVENT_CHANGE, "the sandbox was detached");
	take_out(w);
	return HTTP_OK;
}

void sandboxes_look_again(struct control *s)
{
	/* Not now: an answer may be waited for. */
	if (loop_timer_start(s->loop, &s->relist, loop_now_ms(s->loop)) < 0)
		loop_stop(s->loop);
}

/* Nobody finds it any more. */
void control_sandbox_end(struct control_sandbox *w, const char *why)
{
	snprintf(w->gone, sizeof(w->gone), "%.60s", why);
	index_remove(&w->side->control_sandbox_names, &w->named);
	index_remove(&w->side->control_sandbox_places, &w->placed);
}

void control_sandboxes_on_daemon(struct control_link *l, struct ipc_message *m)
{
	struct control *s = l->side;
	uint32_t place = m->sandbox & IPC_SANDBOXES_MAX;
	struct control_sandbox *w = control_sandbox_find(s, m->sandbox);

	if (w && m->type == IPC_TOLD) {
		control_tame(m->text, sizeof(m->text));
		record(w, EVENT_CHANGE, m->text);
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
		l->told[place / 64] |= UINT64_C(1) << place % 64;
		l->is_told = true;
	}
	sandboxes_look_again(s);
}

void sandboxes_bury(struct control *s)
{
	struct control_sandbox *w;

	for (size_t i = 0; i < s->link_count; i++)
		control_hear_engine(&s->links[i]);
	for (uint32_t id = 0; (w = control_sandbox_after(s, id));) {
		id = w->id;
		if (!w->gone[0])
			continue;
		control_tame(w->gone, sizeof(w->gone));
		record(w, EVENT_CHANGE, w->gone);
		take_out(w);
	}
}
