// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A sandbox is on its way until it is guarded, and control is answered when it is:
 *
 *   NEW       a child was in its namespace and has opened what is served there
 *   GIVEN     the engine installs the rules, reads them back, serves
 *   TESTING   the child tries from inside what must work and what must not
 *   PINNING   with `dns: pinned`, until its names are resolved: what is required has to
 * be STANDING
 *
 * One is with the engine at a time. When that ends before STANDING, nothing is weaker
 * than before: rules that stand by then stay, and keep the namespace closed. When the
 * engine dies, its successor gets all of them again, without the test.
 *
 * One of the host's own namespace whose cgroup was made again is NEW once more: the
 * engine gets it under the same id with another member, which takes the place of the old
 * one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "daemon/internal.h"
#include "policy/policy.h"
#include "proto/plan_file.h"
#include "supervisor/probe.h"

struct ward *ward_find(const struct warden *w, uint32_t id)
{
	return id <= WARDS_MAX ? w->wards[id] : NULL;
}

struct ward *ward_find_name(const struct warden *w, const char *name)
{
	struct roster_entry *e = roster_find(&w->names, name);

	return e ? CONTAINER_OF(e, struct ward, named) : NULL;
}

struct ipc_ward ward_as_told(const struct ward *d)
{
	struct ipc_ward spec = d->spec;

	spec.ns_dev = d->ns_dev;
	spec.ns_ino = d->ns_ino;
	return spec;
}

int ward_check(const struct ipc_ward *spec, struct err *err)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "abcdefghijklmnopqrstuvwxyz0123456789-_.";
	size_t len = strnlen(spec->name, sizeof(spec->name));

	if (len == 0 || len > IPC_WARD_NAME_MAX || spec->name[0] == '.' ||
	    strspn(spec->name, letters) != len)
		return err_set(err, -EINVAL,
			       "a sandbox's id is up to %d letters, digits, '-', '_' and "
			       "'.', and doesn't begin with '.'",
			       IPC_WARD_NAME_MAX);
	if (spec->kind == GUARDED_HOST &&
	    (spec->member == FILTER_MEMBER_CGROUP || spec->member == FILTER_MEMBER_UID))
		return 0; /* host_find() says more */
	if (spec->kind != GUARDED_NETNS)
		return err_set(err, -EOPNOTSUPP, "this kind of sandbox is not known");
	if (strnlen(spec->where, sizeof(spec->where)) > IPC_WARD_WHERE_MAX ||
	    (spec->where[0] != '/' && gone_pid_of(spec->where) == 0))
		return err_set(err, -EINVAL,
			       "a network namespace is given as a process id or as an "
			       "absolute path");
	return 0;
}

/* -- life --------------------------------------------------------------------------- */

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void free_later(struct loop_deferred *l)
{
	free(CONTAINER_OF(l, struct ward, freed));
}

void ward_free(struct ward *d)
{
	struct warden *w = d->warden;

	ward_leave_queue(d);
	roster_remove(&w->names, &d->named);
	roster_remove(&w->places, &d->placed);
	if (w->wards[d->id] == d) {
		w->wards[d->id] = NULL;
		w->count--;
		w->fds_held -= d->fds_held;
		if (w->giving == d->id)
			w->giving = 0;
	}
	inside_end(d);
	gone_unwatch(d);
	follow_stop(d);
	free(d->dir);
	free(d->refused);
	d->dir = d->refused = NULL;
	sandbox_fds_done(&d->fds);
	close_fd(&d->route_fd);
	ward_plan_drop(w, d->plan);
	d->plan = NULL;
	close_fd(&d->text_fd);
	close_fd(&d->image_fd);
	/* It may be a handler of its own that has come here. */
	d->freed.run = free_later;
	loop_defer(w->keeper.loop, &d->freed);
}

static struct ward *ward_new(struct warden *w, const struct ward *given, int text_fd)
{
	struct ward *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->warden = w;
	d->id = given->id;
	d->spec = given->spec;
	d->restarted = given->restarted;
	d->asked = given->asked;
	d->ns_dev = given->ns_dev;
	d->ns_ino = given->ns_ino;
	d->member = given->member;
	d->guards = given->guards;
	d->watch = d->join.process = -1;
	sandbox_fds_init(&d->fds);
	d->route_fd = d->image_fd = d->from_child.fd = d->process.fd = -1;
	d->text_fd = text_fd;
	/* It comes from another engine, where it had that. */
	if (d->restarted && d->spec.kind == GUARDED_NETNS && ward_find(w, d->id))
		d->id = 0;
	for (uint32_t i = 0; d->id == 0 && i < WARDS_MAX; i++) {
		w->last_id = w->last_id % WARDS_MAX + 1;
		if (!w->wards[w->last_id])
			d->id = w->last_id;
	}
	return d;
}

/* The self-test's targets, by the plan. What the engine answers is not dialled. */
static int choose_probe(struct ward *d, struct err *err)
{
	const struct policy none = { 0 };
	struct dns_name ignored;
	struct plan plan;
	int r = plan_file_map(ward_plan_fd(d->plan), &plan, err);

	if (r < 0)
		return r;
	d->pins = plan_dns(&plan) == POLICY_DNS_PINNED;
	r = probe_choose(&plan, &none, false, &ignored, &d->probe, err);
	munmap((void *)(uintptr_t)plan.bytes, plan.size);
	return r;
}

static int check_place(const struct warden *w, const struct ward *d, struct err *err)
{
	if (w->engine != 0 && d->spec.kind == GUARDED_HOST)
		return err_set(err, -EINVAL, "that is the first engine's to guard");
	if (d->id == 0)
		return err_set(err, -EMFILE, "%d sandboxes are guarded already",
			       WARDS_MAX);
	if (w->wards[d->id] || ward_find_name(w, d->spec.name))
		return err_set(err, -EEXIST, "there is a sandbox '%s' already",
			       d->spec.name);
	return 0;
}

/* Of a cgroup that is waited for its last id. */
static void name_place(struct ward *d)
{
	const struct filter_member *m = &d->member;

	if (d->spec.kind == GUARDED_NETNS)
		snprintf(d->place, sizeof(d->place), "netns %llx %llu",
			 (unsigned long long)d->ns_dev, (unsigned long long)d->ns_ino);
	else if (m->kind == FILTER_MEMBER_CGROUP)
		snprintf(d->place, sizeof(d->place), "cgroup %llu",
			 (unsigned long long)m->cgroup);
	else
		snprintf(d->place, sizeof(d->place), "uid %u", m->uid);
}

static const char *place_word(const struct ward *d)
{
	if (d->spec.kind == GUARDED_NETNS)
		return "network namespace";
	return d->dir ? "cgroup" : "user";
}

/* Two in one place would fight over it. One of the host's own that was left gives its id:
 * the table may have the member under that. */
static int check_alone(struct ward *d, struct err *err)
{
	struct roster_entry *e;
	struct ward *other;

	name_place(d);
	e = roster_find(&d->warden->places, d->place);
	if (!e)
		return 0;
	other = CONTAINER_OF(e, struct ward, placed);
	if (other->state != WARD_LEFT)
		return err_set(err, -EEXIST, "sandbox '%s' is that %s already",
			       other->spec.name, place_word(d));
	d->id = other->id;
	ward_free(other);
	return 0;
}

/* In its namespace, or in the host's own. */
static int open_ward(struct ward *d, struct err *err)
{
	bool is_host = d->spec.kind == GUARDED_HOST;
	CLEAN(fd) int ns = -1;
	int r = is_host ? host_find(d, err) : inside_find(d, &ns, err);

	if (r == 0)
		r = check_alone(d, err);
	if (r == 0 && !is_host)
		r = inside_open(d, ns, err);
	if (r == 0 && is_host && d->probe.allowed_name[0])
		r = join_start(d, err);
	if (r == 0 && !d->restarted)
		state_claim(d, d->spec.engines);
	if (r == 0)
		r = state_image(d, err);
	return r < 0 || is_host ? r : gone_watch(d, err);
}

int ward_attach(struct warden *w, const struct ward *given, int plan_fd, int text_fd,
		struct err *err)
{
	struct ward *d = ward_new(w, given, text_fd);
	struct err why = { 0 };
	int r;

	if (!d) {
		close_fd(&plan_fd);
		close_fd(&text_fd);
		return err_set(err, -ENOMEM, "out of memory");
	}
	r = ward_plan_take(w, plan_fd, &d->plan, err);
	if (r == 0)
		r = ward_check(&d->spec, err);
	if (r == 0)
		r = check_place(w, d, err);
	if (r == 0 && !d->restarted)
		r = choose_probe(d, err);
	if (r == 0)
		r = room_check(d, err);
	if (r == 0)
		r = open_ward(d, err);
	if (r == 0)
		r = room_check_opened(d, err);
	if (r == 0 && (roster_add(&w->names, &d->named, d->spec.name) < 0 ||
		       roster_add(&w->places, &d->placed, d->place) < 0))
		r = err_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		ward_free(d);
		return r;
	}
	w->wards[d->id] = d;
	w->count++;
	d->fds_held = room_fds_of(d);
	w->fds_held += d->fds_held;
	ward_wait(d);
	ward_give_next(w);
	/* While the engine is at it. */
	if (join_wait(d, &why) == 0)
		return 0;
	if (d->state == WARD_NEW) {
		ward_refuse(d, why.text);
		ward_free(d);
	} else {
		ward_fail(d, why.text);
	}
	return 0;
}

/* -- standing ----------------------------------------------------------------------- */

static int settle(struct ward *d, struct err *err)
{
	return d->restarted || d->spec.kind != GUARDED_HOST ? 0 : host_settle(d, err);
}

/* What was asked for has to be so; of what was guarded before nobody is served by less.
 */
static int guard_parent(struct ward *d, struct err *err)
{
	struct err why = { 0 };
	int r = parent_guard(d, &why);

	if (r < 0 && d->spec.guard_parent && !d->restarted)
		return err_set(err, r, "%s", why.text);
	if (r < 0)
		log_warning("sandbox '%s': %s", d->spec.name, why.text);
	return 0;
}

static int keep(const struct ward *d, struct err *err)
{
	struct err why = { 0 };
	int r = d->restarted && !d->fresh ? 0 : state_keep(d, &why);

	if (r < 0 && !d->restarted)
		return err_set(err, r, "%s", why.text);
	if (r < 0)
		log_warning("sandbox '%s': %s", d->spec.name, why.text);
	return 0;
}

static void enter_the_next(struct ward *d)
{
	d->again = false;
	d->fresh = true;
	ward_enter_again(d);
}

/* What is left to do when its rules stand. */
static int settle_all(struct ward *d, struct err *err)
{
	int r = settle(d, err);

	if (r == 0)
		r = guard_parent(d, err);
	if (r == 0)
		r = keep(d, err);
	d->is_settled = r == 0;
	return r;
}

static void stands(struct ward *d)
{
	struct ipc_message m = { .type = IPC_WARDED, .sandbox = d->id };
	struct err err = { 0 };

	d->state = WARD_STANDING;
	/* What stands is the one before. */
	if (d->again && d->restarted) {
		enter_the_next(d);
		return;
	}
	if (!d->is_settled && settle_all(d, &err) < 0) {
		ward_fail(d, err.text);
		return;
	}
	d->is_settled = false;
	/* Whoever asked for it finds nobody there who wasn't before. */
	join_end(d);
	close_fd(&d->text_fd);
	/* From now on a successor of the engine takes over. */
	d->restarted = true;
	d->fresh = false;
	d->probe.allowed_name[0] = '\0';
	m.ward = ward_as_told(d);
	if (d->asked || !d->told)
		warden_tell_control(d->warden, &m, NULL);
	if (d->spec.kind == GUARDED_HOST && (d->asked || !d->told))
		host_tell_settled(d);
	d->asked = false;
	d->told = true;
	if (d->again)
		enter_the_next(d);
}

static void run(const struct ward *d)
{
	const struct ipc_message m = { .type = IPC_RUN, .sandbox = d->id };

	(void)!ipc_send(d->warden->keeper.engine.source.fd, &m, NULL, 0);
}

static void on_pins_late(struct loop_timer *t)
{
	ward_fail(CONTAINER_OF(t, struct ward, late),
		  "the names can't be pinned in time");
}

static void wait_for_pins(struct ward *d)
{
	struct loop *loop = d->warden->keeper.loop;

	d->state = WARD_PINNING;
	d->late.on_fire = on_pins_late;
	if (loop_timer_start(loop, &d->late, loop_now_ms(loop) + WARD_PIN_MS) < 0)
		ward_fail(d, "out of memory");
}

static void on_pinned(struct ward *d, const char *why)
{
	loop_timer_stop(d->warden->keeper.loop, &d->late);
	if (why[0])
		ward_fail(d, why);
	else
		stands(d);
}

static void on_tested(struct loop_source *source, uint32_t events)
{
	struct ward *d = CONTAINER_OF(source, struct ward, from_child);
	struct err err = { 0 };
	int r = inside_result(d, &err);

	inside_hear_no_more(d);
	if (r < 0) {
		ward_fail(d, err.text);
		return;
	}
	run(d);
	if (d->pins) {
		join_end(d);
		wait_for_pins(d);
	} else {
		stands(d);
	}
}

static void on_test_late(struct loop_timer *t)
{
	struct ward *d = CONTAINER_OF(t, struct ward, late);

	ward_fail(d, "the self-test has not ended in time");
}

static void test(struct ward *d)
{
	struct loop *loop = d->warden->keeper.loop;
	struct err err = { 0 };

	d->state = WARD_TESTING;
	parent_let_through(d); /* its rules stand */
	d->from_child.on_ready = on_tested;
	d->late.on_fire = on_test_late;
	if (inside_begin_test(d) < 0 || loop_add(loop, &d->from_child, EPOLLIN) < 0 ||
	    loop_timer_start(loop, &d->late, loop_now_ms(loop) + WARD_TEST_MS) < 0)
		ward_fail(d, "the self-test can't be started");
	else if (settle_all(d, &err) < 0) /* meanwhile */
		ward_fail(d, err.text);
}

/* What a cgroup's new id makes of it. Without memory for it nobody is kept from attaching
 * the same. */
static void place_again(struct ward *d)
{
	roster_remove(&d->warden->places, &d->placed);
	name_place(d);
	(void)!roster_add(&d->warden->places, &d->placed, d->place);
}

void ward_on_engine_end(struct ward *d)
{
	if (d->state == WARD_TESTING || d->state == WARD_PINNING)
		inside_end(d);
	d->again = d->is_settled = false;
	if (d->state == WARD_ENDING)
		ward_on_detached(d, "the engine has ended; rules of it may be left");
	else if (d->state == WARD_LEFT)
		ward_free(d);
	else
		ward_wait(d);
}

void ward_enter_again(struct ward *d)
{
	place_again(d);
	if (d->state == WARD_GIVEN || d->state == WARD_TESTING ||
	    d->state == WARD_PINNING) {
		d->again = true;
		return;
	}
	close_fd(&d->image_fd); /* a fresh one is made */
	ward_wait(d);
	ward_give_next(d->warden);
}

void ward_on_engine(struct warden *w, const struct ipc_message *given)
{
	struct ipc_message m = *given;
	struct ward *d = ward_find(w, m.sandbox);

	if (!d)
		return;
	ipc_tame(m.text, sizeof(m.text));
	if (w->giving == d->id)
		w->giving = 0;
	if (m.type == IPC_DETACHED && d->state == WARD_ENDING) {
		ward_on_detached(d, m.text);
	} else if (m.type == IPC_REFUSED && d->state == WARD_GIVEN) {
		ward_refuse(d, m.text);
		ward_leave(d);
	} else if (m.type == IPC_PINNED && d->state == WARD_PINNING) {
		on_pinned(d, m.text);
	} else if (m.type == IPC_STANDS && d->state == WARD_GIVEN) {
		if (d->probe.allowed_name[0]) {
			test(d);
		} else {
			if (d->fresh)
				run(d);
			stands(d);
		}
	}
	ward_give_next(w);
}

int ward_keep(struct ward *d, int plan_fd, int text_fd, struct err *err)
{
	CLEAN(fd) int text = text_fd;
	struct ward_plan *plan;
	int r = ward_plan_take(d->warden, plan_fd, &plan, err);

	if (r < 0)
		return r;
	/* A restart must not bring back what was in force before. */
	r = state_keep_text(d, text, err);
	if (r < 0) {
		ward_plan_drop(d->warden, plan);
		return r;
	}
	ward_plan_drop(d->warden, d->plan);
	d->plan = plan;
	/* One that isn't kept yet keeps this. */
	if (d->text_fd >= 0) {
		close(d->text_fd);
		d->text_fd = TAKE_FD(text);
	}
	return 0;
}
