// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The warden has the sandboxes; what is here is a copy for answers: read from it at the
 * start (IPC_LIST), a few in each turn of the loop, and changed with it. A change goes
 * the way of the sidecar's (change.c), with the sandbox's number in every message: the
 * engine first, then the warden, which keeps the text in its folder, then memory.
 *
 * When the engine has been replaced, and at the start, each is compared with what the
 * engine enforces: a change that was under way when somebody died is undone then. What
 * comes while an answer is waited for is dealt with in another turn: whoever waits may
 * have the sandbox that it is about in his hands. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "control/side.h"
#include "ipc/plan_file.h"

#define NOTHING UINT32_MAX

enum {
	ASKED_MAX = 64, /* sandboxes that are asked about in one turn */
	HTTP_OK = 200,
	HTTP_CREATED = 201,
	HTTP_BAD_REQUEST = 400,
	HTTP_CONFLICT = 409,
	HTTP_FAILED = 500,
};

struct side_ward *side_ward_find(const struct side *s, uint32_t id)
{
	return id <= IPC_WARDS_MAX ? s->wards[id] : NULL;
}

struct side_ward *side_ward_after(const struct side *s, uint32_t id)
{
	while (id < s->highest_id)
		if (s->wards[++id])
			return s->wards[id];
	return NULL;
}

struct side_ward *side_ward_named(const struct side *s, const char *name)
{
	struct roster_entry *e = roster_find(&s->ward_names, name);

	return e ? CONTAINER_OF(e, struct side_ward, named) : NULL;
}

struct event_ring *side_ward_ring(struct side_ward *w)
{
	if (!w->ring)
		w->ring = event_ring_new(SIDE_WARD_EVENTS_KEPT);
	return w->ring;
}

static void ward_free(struct side_ward *w)
{
	if (!w)
		return;
	side_closing_done(w->side, &w->closing);
	roster_remove(&w->side->ward_names, &w->named);
	document_free(w->document);
	free(w->plan_bytes);
	event_ring_free(w->ring);
	free(w);
}

/* -- policies ----------------------------------------------------------------------- */

static int compile(struct side *s, const struct document *d, struct side_candidate *c,
		   struct err *err)
{
	const struct sidecar_policy_context context = {
		.filters = true, .names = true, .daemon = true, .file = "policy"
	};
	size_t size;
	int r = sidecar_policy_build(&context, d, NULL, NULL, &c->bytes, &size, err);

	return r < 0 ? r : plan_open(c->bytes, size, &c->plan, err);
}

int side_ward_check(struct side *s, const struct document *policy, struct err *err)
{
	struct side_candidate c = { .plan_fd = -1, .text_fd = -1 };
	int r = compile(s, policy, &c, err);

	side_candidate_done(&c);
	return r;
}

static void take(struct side_ward *w, struct side_candidate *c)
{
	if (c->document) {
		document_free(w->document);
		w->document = TAKE_PTR(c->document);
	}
	free(w->plan_bytes);
	w->plan_bytes = TAKE_PTR(c->bytes);
	w->plan = c->plan;
}

static int give_engine(struct side_ward *w, int plan_fd, struct err *err)
{
	const struct side_answer answer = { IPC_CHANGED, IPC_UNCHANGED };
	const struct ipc_message ask = { .type = IPC_CHANGE, .sandbox = w->id };
	struct ipc_message m;
	int r = side_await_engine(w->side)
			? side_ask_engine(w->side, &ask, plan_fd, &answer, &m, NULL)
			: -ETIMEDOUT;

	if (r < 0)
		return err_sys(err, r, "the engine does not answer");
	if (m.type == IPC_CHANGED)
		return 0;
	side_tame(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

static int give_warden(struct side_ward *w, const struct side_candidate *c,
		       struct err *err)
{
	const struct ipc_message keep = { .type = IPC_KEEP, .sandbox = w->id };
	const struct side_answer kept = { IPC_KEPT, IPC_REFUSED };
	const int fds[] = { c->plan_fd, c->text_fd };
	struct ipc_message m;
	int r = side_ask_keeper(w->side, &keep, fds, ARRAY_SIZE(fds), &kept, &m, NULL);

	/* Our successor starts with what the warden has, and mends the engine. */
	if (r < 0) {
		loop_stop(w->side->loop);
		return err_sys(err, r, "the warden does not answer");
	}
	if (m.type == IPC_KEPT)
		return 0;
	side_tame(m.text, sizeof(m.text));
	return err_set(err, -EIO, "%s", m.text);
}

/* The engine has another plan than the one that is kept. What fails now is mended by its
 * end or ours: both start from what the warden has. */
static void take_back(struct side_ward *w)
{
	struct side_candidate old = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	struct err ignored = { 0 };

	if (side_candidate_files(&old, w->document, &ignored) < 0 ||
	    give_engine(w, old.plan_fd, &ignored) < 0)
		loop_stop(w->side->loop);
	side_candidate_done(&old);
}

static void record(struct side_ward *w, enum event_action action, const char *reason)
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
	side_on_event(w->side, &e);
}

enum api_failure side_ward_change(struct side_ward *w, struct document *next,
				  struct err *err)
{
	struct side_candidate c = { .document = next, .plan_fd = -1, .text_fd = -1 };
	enum api_failure failure = API_FAILED_NOT;

	if (compile(w->side, next, &c, err) < 0) {
		failure = API_FAILED_POLICY;
	} else if (side_candidate_files(&c, next, err) < 0 ||
		   give_engine(w, c.plan_fd, err) < 0) {
		failure = API_FAILED_APPLY;
	} else if (give_warden(w, &c, err) < 0) {
		take_back(w);
		failure = API_FAILED_PERSIST;
	}
	if (failure == API_FAILED_NOT) {
		take(w, &c);
		if (!document_closed(w->document))
			side_closing_done(w->side, &w->closing);
		w->updates++;
		record(w, EVENT_CHANGE, "the policy was changed");
	} else {
		w->failures++;
	}
	side_candidate_done(&c);
	return failure;
}

/* First it is kept, so that whoever starts next closes it as well; then it is in force,
 * even if it could not be kept. */
int side_ward_close(struct side_ward *w, const char *why, struct err *err)
{
	struct side_candidate c = { .document = document_close(why),
				    .plan_fd = -1,
				    .text_fd = -1 };
	const struct ipc_message stop = { .type = IPC_STOP, .sandbox = w->id };
	bool is_news = !document_closed(w->document);
	char reason[EVENT_REASON_SIZE];
	int kept = -ENOMEM, r = -ENOMEM;

	if (c.document && compile(w->side, c.document, &c, err) == 0 &&
	    side_candidate_files(&c, c.document, err) == 0) {
		kept = give_warden(w, &c, err);
		r = give_engine(w, c.plan_fd, err);
	}
	if (r == 0)
		take(w, &c);
	side_candidate_done(&c);
	/* Whoever lives in a cgroup of its own has nothing left to do. */
	if (r == 0 && is_news && w->spec.kind == GUARDED_HOST)
		(void)!ipc_send(w->side->from_keeper.fd, &stop, NULL, 0);
	if (r == 0 && is_news) {
		w->updates++;
		snprintf(reason, sizeof(reason), "closed: %.50s", why);
		record(w, EVENT_CHANGE, reason);
	}
	if (r < 0 && err->code == 0)
		err_set(err, r, "out of memory");
	return r < 0 ? r : kept;
}

/* -- they come and go --------------------------------------------------------------- */

static int add(struct side *s, uint32_t id, const struct ipc_ward *spec,
	       struct side_candidate *c)
{
	struct side_ward *w = id >= 1 && id <= IPC_WARDS_MAX ? calloc(1, sizeof(*w))
							     : NULL;

	if (!w)
		return id >= 1 && id <= IPC_WARDS_MAX ? -ENOMEM : -EBADMSG;
	w->side = s;
	w->id = id;
	side_ward_closing_init(w);
	w->spec = *spec;
	w->spec.name[IPC_WARD_NAME_MAX] = '\0';
	w->spec.where[IPC_WARD_WHERE_MAX] = '\0';
	w->since_ms = clock_wall_ms();
	if (roster_add(&s->ward_names, &w->named, w->spec.name) < 0) {
		free(w);
		return -ENOMEM;
	}
	take(w, c);
	ward_free(s->wards[id]);
	s->wards[id] = w;
	s->highest_id = MAX(s->highest_id, id);
	return 0;
}

/* A launch that ends for safety has an event, though there is no sandbox. */
static void record_refusal(struct side *s, const struct ipc_ward *spec, const char *why)
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
	side_on_event(s, &e);
}

/* @ret has what was guarded then, a name as the number that it stands for. */
static int ask_attach(struct side *s, const struct ipc_ward *spec,
		      const struct side_candidate *c, struct ipc_message *ret,
		      struct err *err)
{
	const struct ipc_message ask = { .type = IPC_WARD, .ward = *spec };
	const struct side_answer answer = { IPC_WARDED, IPC_REFUSED };
	const int fds[] = { c->plan_fd, c->text_fd };
	int r = side_ask_keeper(s, &ask, fds, ARRAY_SIZE(fds), &answer, ret, NULL);

	if (r < 0)
		return err_sys(err, r, "the warden does not answer");
	if (ret->type == IPC_WARDED)
		return 0;
	side_tame(ret->text, sizeof(ret->text));
	return err_set(err, -EPERM, "%s", ret->text);
}

unsigned int side_ward_attach(struct side *s, const struct ipc_ward *spec,
			      struct document *policy, struct err *err)
{
	struct side_candidate c = { .document = policy, .plan_fd = -1, .text_fd = -1 };
	unsigned int status = HTTP_CREATED;
	struct ipc_message m;

	if (side_ward_named(s, spec->name)) {
		err_set(err, -EEXIST, "there is a sandbox '%s' already", spec->name);
		status = HTTP_CONFLICT;
	} else if (compile(s, policy, &c, err) < 0) {
		status = HTTP_BAD_REQUEST;
	} else if (side_candidate_files(&c, policy, err) < 0 ||
		   ask_attach(s, spec, &c, &m, err) < 0 ||
		   add(s, m.sandbox, &m.ward, &c) < 0) {
		if (err->code == 0)
			err_set(err, -ENOMEM, "out of memory");
		status = HTTP_FAILED;
		record_refusal(s, spec, err->text);
	} else {
		record(s->wards[m.sandbox], EVENT_CHANGE, "the sandbox was attached");
	}
	side_candidate_done(&c);
	return status;
}

unsigned int side_ward_detach(struct side *s, struct side_ward *w, struct err *err)
{
	const struct ipc_message ask = { .type = IPC_DETACH, .sandbox = w->id };
	const struct side_answer answer = { IPC_DETACHED, IPC_DETACHED };
	struct ipc_message m;
	int r = side_ask_keeper(s, &ask, NULL, 0, &answer, &m, NULL);

	if (r < 0) {
		err_sys(err, r, "the warden does not answer");
		return HTTP_FAILED;
	}
	side_tame(m.text, sizeof(m.text));
	if (m.text[0]) {
		err_set(err, -EIO, "%s", m.text);
		return HTTP_FAILED;
	}
	side_hear_engine(s);
	record(w, EVENT_CHANGE, "the sandbox was detached");
	s->wards[w->id] = NULL;
	ward_free(w);
	return HTTP_OK;
}

static void look_again(struct side *s)
{
	/* Not now: an answer may be waited for. */
	if (loop_timer_start(s->loop, &s->relist, loop_now_ms(s->loop)) < 0)
		loop_stop(s->loop);
}

/* Nobody finds it any more. */
static void end(struct side_ward *w, const char *why)
{
	snprintf(w->gone, sizeof(w->gone), "%.60s", why);
	roster_remove(&w->side->ward_names, &w->named);
}

void side_wards_on_warden(struct side *s, struct ipc_message *m)
{
	struct side_ward *w = side_ward_find(s, m->sandbox);

	if (w && m->type == IPC_TOLD) {
		side_tame(m->text, sizeof(m->text));
		record(w, EVENT_CHANGE, m->text);
	}
	if (m->type != IPC_GONE && m->type != IPC_WARDED && m->type != IPC_DETACHED)
		return;
	m->text[sizeof(m->text) - 1] = '\0';
	if (w && m->type == IPC_GONE)
		end(w, m->text);
	/* The control before us had asked for that. */
	if (w && m->type == IPC_DETACHED && !m->text[0])
		end(w, "the sandbox was detached");
	if (m->type == IPC_WARDED && m->sandbox <= IPC_WARDS_MAX) {
		s->told[m->sandbox / 64] |= UINT64_C(1) << m->sandbox % 64;
		s->is_told = true;
	}
	look_again(s);
}

static void bury(struct side *s)
{
	struct side_ward *w;

	side_hear_engine(s);

	for (uint32_t id = 0; (w = side_ward_after(s, id));) {
		id = w->id;
		if (!w->gone[0])
			continue;
		side_tame(w->gone, sizeof(w->gone));
		record(w, EVENT_CHANGE, w->gone);
		s->wards[id] = NULL;
		ward_free(w);
	}
}

/* -- the warden's list -------------------------------------------------------------- */

static int read_text(int fd, struct document **ret, struct err *err)
{
	off_t size = lseek(fd, 0, SEEK_END);
	void *bytes = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0)
			       : MAP_FAILED;
	int r;

	if (bytes == MAP_FAILED)
		return err_sys(err, -errno, "cannot read a policy");
	r = document_parse((struct text){ bytes, (size_t)size }, NULL, NULL, ret, err);
	munmap(bytes, (size_t)size);
	return r;
}

static int list_one(struct side *s, struct ipc_message *m, int fd, struct err *err)
{
	struct side_candidate c = { .plan_fd = -1, .text_fd = -1 };
	int r = read_text(fd, &c.document, err);

	if (r == 0)
		r = compile(s, c.document, &c, err);
	if (r == 0)
		r = add(s, m->sandbox, &m->ward, &c);
	side_candidate_done(&c);
	return r;
}

/* The first one above *@at, if we don't know it yet; *@at moves on to it. */
static int list_after(struct side *s, uint32_t *at, struct err *err)
{
	const struct side_answer listed = { IPC_LISTED, IPC_LISTED };
	const struct ipc_message ask = { .type = IPC_LIST, .sandbox = *at };
	struct ipc_message m;
	int fd = -1;
	int r = side_ask_keeper(s, &ask, NULL, 0, &listed, &m, &fd);

	if (r < 0)
		return err_sys(err, r, "the warden does not answer");
	*at = m.sandbox > *at ? m.sandbox : NOTHING;
	if (m.sandbox != 0 && fd >= 0 && !side_ward_find(s, m.sandbox))
		r = list_one(s, &m, fd, err);
	if (fd >= 0)
		close(fd);
	return r;
}

static void list(struct side *s, uint32_t *at)
{
	struct err err = { 0 };

	if (list_after(s, at, &err) < 0)
		loglines_say(s->log, clock_wall_ms(), LOGLINES_ERROR, "%s", err.text);
}

static void list_told(struct side *s)
{
	s->is_told = false;
	for (uint32_t id = 1; id <= IPC_WARDS_MAX; id++) {
		uint64_t bit = UINT64_C(1) << id % 64;
		uint32_t before = id - 1;

		if (!(s->told[id / 64] & bit))
			continue;
		s->told[id / 64] &= ~bit;
		if (!side_ward_find(s, id))
			list(s, &before);
	}
}

bool side_wards_are_known(const struct side *s)
{
	return s->listed_id == NOTHING && s->took_over;
}

/* -- the engine --------------------------------------------------------------------- */

static int ask_stats(struct side_ward *w)
{
	const struct side_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS, .sandbox = w->id };
	struct ipc_message m;
	int r = w->side->from_engine.fd < 0
			? -EPIPE
			: side_ask_engine(w->side, &ask, -1, &answer, &m, NULL);

	if (r == 0)
		w->stats = m.stats;
	return r;
}

static struct ipc_look ask_look(struct side_ward *w)
{
	const struct side_answer answer = { IPC_LOOKED, IPC_LOOKED };
	const struct ipc_message ask = { .type = IPC_LOOK, .sandbox = w->id };
	struct ipc_message m;

	if (side_ask_keeper(w->side, &ask, NULL, 0, &answer, &m, NULL) < 0)
		return (struct ipc_look){ 0 };
	return m.look;
}

void side_ward_counters(struct side_ward *w, int64_t age_ms)
{
	int64_t now_ms = loop_now_ms(w->side->loop);

	if (w->stats_at_ms != 0 && now_ms - w->stats_at_ms < age_ms)
		return;
	w->stats_at_ms = now_ms;
	(void)!ask_stats(w);
}

void side_ward_stats(struct side_ward *w)
{
	int64_t now_ms = loop_now_ms(w->side->loop);

	side_ward_counters(w, 0);
	if (w->look_at_ms != 0 && now_ms - w->look_at_ms < SIDE_STATS_AGE_MS)
		return;
	w->look_at_ms = now_ms;
	w->look = ask_look(w);
}

/* Should the engine enforce another plan than the one in force, it gets that. */
static void compare(struct side_ward *w)
{
	struct side_candidate c = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	struct err err = { 0 };

	if (ask_stats(w) < 0 || w->stats.plan_id == 0 ||
	    w->stats.plan_id == plan_file_id(&w->plan))
		return;
	if (side_candidate_files(&c, w->document, &err) < 0 ||
	    give_engine(w, c.plan_fd, &err) < 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot give the engine the policy of '%s': %s",
			     w->spec.name, err.text);
	side_candidate_done(&c);
}

static void compare_next(struct side *s)
{
	struct side_ward *w = side_ward_after(s, s->compared_id);

	if (w) {
		s->compared_id = w->id;
		compare(w);
	} else if (s->listed_id == NOTHING) {
		s->compared_id = NOTHING;
	}
}

static void on_relist(struct loop_timer *t)
{
	struct side *s = CONTAINER_OF(t, struct side, relist);

	bury(s);
	if (s->is_told)
		list_told(s);
	for (int i = 0; i < ASKED_MAX && s->listed_id != NOTHING; i++)
		list(s, &s->listed_id);
	for (int i = 0; i < ASKED_MAX && s->compared_id != NOTHING; i++)
		compare_next(s);
	if (s->listed_id != NOTHING || s->compared_id != NOTHING)
		look_again(s);
}

void side_wards_on_engine(struct side *s)
{
	/* The warden introduces us when it has given the engine what there was. */
	s->heard = s->stands = s->took_over = true;
	s->compared_id = 0;
	look_again(s);
}

void side_wards_open(struct side *s)
{
	s->relist.on_fire = on_relist;
	s->compared_id = NOTHING;
	look_again(s);
}
