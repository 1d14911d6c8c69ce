// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * At the start the wardens are asked for what they have, a few sandboxes in each turn of
 * the loop. When an engine has been replaced, and at the start, each is compared with
 * what the engine enforces: a change that was under way when somebody died is undone
 * then. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/wards.h"
#include "proto/plan_file.h"

#define NOTHING UINT32_MAX

enum { ASKED_MAX = 64 }; /* sandboxes that are asked about in one turn */

/* -- the warden's list -------------------------------------------------------------- */

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

/* What is in force may be another policy than the one here: of a change that its warden
 * has died of. */
static int take_again(struct side_ward *w, struct side_candidate *c)
{
	ward_take(w, c);
	w->stale = false;
	return 0;
}

static int list_one(struct side_link *l, struct ipc_message *m, int fd, struct err *err)
{
	struct side_candidate c = { .plan_fd = -1, .text_fd = -1 };
	struct side_ward *known = side_ward_find(l->side, m->sandbox);
	int r = read_text(fd, &c.document, err);

	m->ward.name[IPC_WARD_NAME_MAX] = '\0';
	if (r == 0)
		r = ward_compile(l->side, c.document, &c, err);
	if (r == 0)
		r = known && strcmp(known->spec.name, m->ward.name) == 0
			    ? take_again(known, &c)
			    : ward_add(l, m->sandbox, &m->ward, &c);
	side_candidate_done(&c);
	return r;
}

/* The first one above *@at, if we don't know it yet; *@at moves on to it. */
static int list_after(struct side_link *l, uint32_t *at, struct err *err)
{
	const struct side_answer listed = { IPC_LISTED, IPC_LISTED };
	const struct ipc_message ask = { .type = IPC_LIST, .sandbox = *at };
	struct ipc_message m;
	int fd = -1;
	int r = side_ask_keeper(l, &ask, NULL, 0, &listed, &m, &fd);
	uint32_t place;

	if (r < 0)
		return err_sys(err, r, "the warden does not answer");
	place = m.sandbox & IPC_WARDS_MAX;
	*at = place > *at ? place : NOTHING;
	if (place != 0 && fd >= 0 && (!l->wards[place] || l->wards[place]->stale))
		r = list_one(l, &m, fd, err);
	if (fd >= 0)
		close(fd);
	return r;
}

static void list(struct side_link *l, uint32_t *at)
{
	struct err err = { 0 };

	if (list_after(l, at, &err) < 0)
		loglines_say(l->side->log, clock_wall_ms(), LOGLINES_ERROR, "%s",
			     err.text);
}

static void list_told(struct side_link *l)
{
	l->is_told = false;
	for (uint32_t id = 1; id <= IPC_WARDS_MAX; id++) {
		uint64_t bit = UINT64_C(1) << id % 64;
		uint32_t before = id - 1;

		if (!(l->told[id / 64] & bit))
			continue;
		l->told[id / 64] &= ~bit;
		if (!l->wards[id] || l->wards[id]->stale)
			list(l, &before);
	}
}

bool side_engines_stand(const struct side *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (!s->links[i].stands)
			return false;
	return true;
}

const char *side_lacking(const struct side *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (s->links[i].lacking[0])
			return s->links[i].lacking;
	return "";
}

bool side_wards_are_known(const struct side *s)
{
	for (size_t i = 0; i < s->link_count; i++)
		if (!s->links[i].known)
			return false;
	return true;
}

/* -- the engine --------------------------------------------------------------------- */

static int ask_stats(struct side_ward *w)
{
	const struct side_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS, .sandbox = w->id };
	struct ipc_message m;
	int r = w->link->from_engine.fd < 0
			? -EPIPE
			: side_ask_engine(w->link, &ask, -1, &answer, &m, NULL);

	if (r < 0)
		return r;
	w->stats = m.stats;
	w->denies = sandbox_denied(m.stats.counters);
	return 0;
}

/* What comes is the engine's word. Return: above which number to go on; 0: that was all.
 */
static uint32_t take_denies(const struct side_link *l, const struct ipc_message *m,
			    uint32_t after)
{
	for (size_t i = 0; i < MIN(m->denies.count, (size_t)IPC_DENIES_MAX); i++) {
		uint32_t id = m->denies.of[i].sandbox;
		struct side_ward *w = l->wards && id <= IPC_WARDS_MAX ? l->wards[id]
								      : NULL;

		if (w)
			w->denies = m->denies.of[i].denies;
	}
	return m->sandbox > after ? m->sandbox : 0;
}

static void ask_denies(struct side_link *l)
{
	const struct side_answer answer = { IPC_DENIES, IPC_DENIES };
	struct ipc_message ask = { .type = IPC_DENIES }, m;

	do {
		if (l->from_engine.fd < 0 ||
		    side_ask_engine(l, &ask, -1, &answer, &m, NULL) < 0)
			return;
		ask.sandbox = take_denies(l, &m, ask.sandbox);
	} while (ask.sandbox != 0);
}

void side_wards_denies(struct side *s)
{
	int64_t now_ms = loop_now_ms(s->loop);

	if (s->denies_at_ms != 0 && now_ms - s->denies_at_ms < SIDE_STATS_AGE_MS)
		return;
	s->denies_at_ms = now_ms;
	for (size_t i = 0; i < s->link_count; i++)
		ask_denies(&s->links[i]);
}

static struct ipc_look ask_look(struct side_ward *w)
{
	const struct side_answer answer = { IPC_LOOKED, IPC_LOOKED };
	const struct ipc_message ask = { .type = IPC_LOOK, .sandbox = w->id };
	struct ipc_message m;

	if (w->link->from_keeper.fd < 0 ||
	    side_ask_keeper(w->link, &ask, NULL, 0, &answer, &m, NULL) < 0)
		return (struct ipc_look){ 0 };
	return m.look;
}

void side_ward_counters(struct side_ward *w)
{
	(void)!ask_stats(w);
}

void side_ward_stats(struct side_ward *w)
{
	int64_t now_ms = loop_now_ms(w->side->loop);

	side_ward_counters(w);
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
	    ward_give_engine(w, c.plan_fd, &err) < 0)
		loglines_say(w->side->log, clock_wall_ms(), LOGLINES_ERROR,
			     "cannot give the engine the policy of '%s': %s",
			     w->spec.name, err.text);
	side_candidate_done(&c);
}

static void compare_next(struct side_link *l)
{
	struct side_ward *w = ward_next(l, l->compared_id);

	if (w) {
		l->compared_id = w->id & IPC_WARDS_MAX;
		compare(w);
	} else if (l->listed_id == NOTHING) {
		l->compared_id = NOTHING;
	}
}

/* All that were there are here. What another warden had, and this one doesn't, is not
 * guarded: its rules stay. */
static void know(struct side_link *l)
{
	struct side_ward *w;

	l->known = l->checked = true;
	for (uint32_t id = 0; (w = ward_next(l, id)); id = w->id & IPC_WARDS_MAX)
		if (w->stale && !w->gone[0])
			ward_end(w, "it can't be guarded again now: its rules stay");
	wards_look_again(l->side);
}

/* Return: there is more to ask about. */
static bool ask_some(struct side_link *l)
{
	/* Its successor is asked for everything. */
	if (l->from_keeper.fd < 0)
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
	struct side *s = CONTAINER_OF(t, struct side, relist);
	bool again = false;

	wards_bury(s);
	for (size_t i = 0; i < s->link_count; i++)
		again |= ask_some(&s->links[i]);
	if (again)
		wards_look_again(s);
}

void side_wards_on_engine(struct side_link *l)
{
	/* The warden introduces us when it has given the engine what there was. */
	if (!l->took_over && l != l->side->link)
		l->listed_id = 0;
	l->heard = l->stands = l->took_over = true;
	l->compared_id = 0;
	wards_look_again(l->side);
}

int side_wards_on_link(struct side_link *l)
{
	struct side_ward *w;

	if (!l->wards)
		l->wards = calloc(IPC_WARDS_MAX + 1, sizeof(struct side_ward *));
	if (!l->wards)
		return -ENOMEM;
	for (uint32_t id = 0; (w = ward_next(l, id)); id = w->id & IPC_WARDS_MAX)
		w->stale = true;
	/* Until its engine has everything, less is there than there was. */
	l->listed_id = l == l->side->link ? 0 : NOTHING;
	l->compared_id = NOTHING;
	l->took_over = l->checked = false;
	l->lacking[0] = '\0';
	return 0;
}

int side_wards_open(struct side *s, struct err *err)
{
	s->relist.on_fire = on_relist;
	if (side_wards_on_link(s->link) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	wards_look_again(s);
	return 0;
}
