// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * At the start the daemons are asked for what they have, a few sandboxes in each turn of
 * the loop. When an engine has been replaced, and at the start, each is compared with
 * what the engine enforces: a change that was under way when somebody died is undone
 * then. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/sandboxes.h"
#include "proto/plan_file.h"

#define NOTHING UINT32_MAX

enum { ASKED_MAX = 64 }; /* sandboxes that are asked about in one turn */

/* -- the daemon's list -------------------------------------------------------------- */

static int read_text(int fd, struct document **ret, struct err *err)
{
	off_t size = lseek(fd, 0, SEEK_END);
	void *bytes;
	int r;

	if (size == 0)
		return err_set(err, -EBADMSG, "cannot read a policy: it is empty");
	bytes = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0)
			 : MAP_FAILED;
	if (bytes == MAP_FAILED)
		return err_sys(err, -errno, "cannot read a policy");
	r = document_parse((struct text){ bytes, (size_t)size }, NULL, NULL, ret, err);
	munmap(bytes, (size_t)size);
	return r;
}

/* What is in force may be another policy than the one here: of a change that its daemon
 * has died of. */
static int take_again(struct control_sandbox *w, struct control_candidate *c)
{
	control_sandbox_take(w, c);
	w->stale = false;
	return 0;
}

static int list_one(struct control_link *l, struct ipc_message *m, int fd,
		    struct err *err)
{
	struct control_candidate c = { .plan_fd = -1, .text_fd = -1 };
	struct control_sandbox *known = control_sandbox_find(l->side, m->sandbox);
	int r = read_text(fd, &c.document, err);

	m->attached.name[IPC_SANDBOX_NAME_MAX] = '\0';
	if (r == 0)
		r = control_sandbox_compile(l->side, c.document, &c, err);
	if (r == 0)
		r = known && strcmp(known->spec.name, m->attached.name) == 0
			    ? take_again(known, &c)
			    : control_sandbox_add(l, m->sandbox, &m->attached, &c);
	control_candidate_done(&c);
	return r;
}

/* The first one above *@at, if we don't know it yet; *@at moves on to it. */
static int list_after(struct control_link *l, uint32_t *at, struct err *err)
{
	const struct control_answer listed = { IPC_LISTED, IPC_LISTED };
	const struct ipc_message ask = { .type = IPC_LIST, .sandbox = *at };
	struct ipc_message m;
	int fd = -1;
	int r = control_ask_supervisor(l, &ask, NULL, 0, &listed, &m, &fd);
	uint32_t place;

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	place = m.sandbox & IPC_SANDBOXES_MAX;
	*at = place > *at ? place : NOTHING;
	if (place != 0 && fd >= 0 && (!l->sandboxes[place] || l->sandboxes[place]->stale))
		r = list_one(l, &m, fd, err);
	if (fd >= 0)
		close(fd);
	return r;
}

static void list(struct control_link *l, uint32_t *at)
{
	struct err err = { 0 };

	if (list_after(l, at, &err) < 0)
		loglines_say(l->side->log, clock_wall_ms(), LOGLINES_ERROR, "%s",
			     err.text);
}

static void list_told(struct control_link *l)
{
	l->is_told = false;
	for (uint32_t id = 1; id <= IPC_SANDBOXES_MAX; id++) {
		uint64_t bit = UINT64_C(1) << id % 64;
		uint32_t before = id - 1;

		if (!(l->told[id / 64] & bit))
			continue;
		l->told[id / 64] &= ~bit;
		if (!l->sandboxes[id] || l->sandboxes[id]->stale)
			list(l, &before);
	}
}

bool control_engines_stand(const struct control *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (!s->links[i].stands)
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

static int ask_stats(struct control_sandbox *w)
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

/* What comes is the engine's word. Return: above which number to go on; 0: that was all.
 */
static uint32_t take_denies(const struct control_link *l, const struct ipc_message *m,
			    uint32_t after)
{
	for (size_t i = 0; i < MIN(m->denies.count, (size_t)IPC_DENIES_MAX); i++) {
		uint32_t id = m->denies.of[i].sandbox;
		struct control_sandbox *w =
			l->sandboxes && id <= IPC_SANDBOXES_MAX ? l->sandboxes[id] : NULL;

		if (w)
			w->denies = m->denies.of[i].denies;
	}
	return m->sandbox > after ? m->sandbox : 0;
}

static void ask_denies(struct control_link *l)
{
	const struct control_answer answer = { IPC_DENIES, IPC_DENIES };
	struct ipc_message ask = { .type = IPC_DENIES }, m;

	do {
		if (l->from_engine.fd < 0 ||
		    control_ask_engine(l, &ask, -1, &answer, &m, NULL) < 0)
			return;
		ask.sandbox = take_denies(l, &m, ask.sandbox);
	} while (ask.sandbox != 0);
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

static struct ipc_look ask_look(struct control_sandbox *w)
{
	const struct control_answer answer = { IPC_LOOKED, IPC_LOOKED };
	const struct ipc_message ask = { .type = IPC_LOOK, .sandbox = w->id };
	struct ipc_message m;

	if (w->link->from_supervisor.fd < 0 ||
	    control_ask_supervisor(w->link, &ask, NULL, 0, &answer, &m, NULL) < 0)
		return (struct ipc_look){ 0 };
	return m.look;
}

void control_sandbox_counters(struct control_sandbox *w)
{
	(void)!ask_stats(w);
}

void control_sandbox_stats(struct control_sandbox *w)
{
	int64_t now_ms = loop_now_ms(w->side->loop);

	control_sandbox_counters(w);
	if (w->look_at_ms != 0 && now_ms - w->look_at_ms < CONTROL_STATS_AGE_MS)
		return;
	w->look_at_ms = now_ms;
	w->look = ask_look(w);
}

/* Should the engine enforce another plan than the one in force, it gets that. */
static void compare(struct control_sandbox *w)
{
	struct control_candidate c = { .plan = w->plan, .plan_fd = -1, .text_fd = -1 };
	struct err err = { 0 };

	if (ask_stats(w) < 0 || w->stats.plan_id == 0 ||
	    w->stats.plan_id == plan_file_id(&w->plan))
		return;
	if (control_candidate_files(&c, w->document, &err) < 0 ||
	    control_sandbox_give_engine(w, c.plan_fd, &err) < 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot give the engine the policy of '%s': %s",
			     w->spec.name, err.text);
	control_candidate_done(&c);
}

static void compare_next(struct control_link *l)
{
	struct control_sandbox *w = control_sandbox_next(l, l->compared_id);

	if (w) {
		l->compared_id = w->id & IPC_SANDBOXES_MAX;
		compare(w);
	} else if (l->listed_id == NOTHING) {
		l->compared_id = NOTHING;
	}
}

/* All that were there are here. What another daemon had, and this one doesn't, is not
 * guarded: its rules stay. */
static void know(struct control_link *l)
{
	struct control_sandbox *w;

	l->known = l->checked = true;
	for (uint32_t id = 0; (w = control_sandbox_next(l, id));
	     id = w->id & IPC_SANDBOXES_MAX)
		if (w->stale && !w->gone[0])
			control_sandbox_end(
				w, "it can't be guarded again now: its rules stay");
	sandboxes_look_again(l->side);
}

/* Return: there is more to ask about. */
static bool ask_some(struct control_link *l)
{
	/* Its successor is asked for everything. */
	if (l->from_supervisor.fd < 0)
		return false;
	if (l->is_told)
		list_told(l);
	for (int i = 0; i < ASKED_MAX && l->listed_id != NOTHING; i++)
		list(l, &l->listed_id);
	for (int i = 0; i < ASKED_MAX && l->compared_id != NOTHING; i++)
		compare_next(l);
	if (l->took_over && l->listed_id == NOTHING && !l->checked)
		know(l);
	return l->listed_id != NOTHING || l->compared_id != NOTHING;
}

static void on_relist(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, relist);
	bool again = false;

	sandboxes_bury(s);
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
	l->heard = l->stands = l->took_over = true;
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
