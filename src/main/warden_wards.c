// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A sandbox is on its way until it is guarded, and control is answered when it is:
 *
 *   NEW       a child was in its namespace and has opened what is served there
 *   GIVEN     the engine installs the rules, reads them back, serves
 *   TESTING   the child tries from inside what must work and what must not
 *   STANDING
 *
 * One is with the engine at a time. When that ends before STANDING, nothing is weaker
 * than before: rules that stand by then stay, and keep the namespace closed. When the
 * engine dies, its successor gets all of them again, without the test. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "ipc/plan_file.h"
#include "main/probe.h"
#include "main/warden_internal.h"
#include "policy/policy.h"

struct ward *ward_find(const struct warden *w, uint32_t id)
{
	return id <= WARDS_MAX ? w->wards[id] : NULL;
}

struct ward *ward_find_name(const struct warden *w, const char *name)
{
	for (uint32_t id = 1; id <= WARDS_MAX; id++)
		if (w->wards[id] && strcmp(w->wards[id]->spec.name, name) == 0)
			return w->wards[id];
	return NULL;
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

	if (w->wards[d->id] == d) {
		w->wards[d->id] = NULL;
		w->count--;
	}
	if (w->giving == d->id)
		w->giving = 0;
	inside_end(d);
	gone_unwatch(d);
	sandbox_fds_done(&d->fds);
	close_fd(&d->route_fd);
	close_fd(&d->plan_fd);
	close_fd(&d->text_fd);
	close_fd(&d->image_fd);
	/* It may be a handler of its own that has come here. */
	d->freed.run = free_later;
	loop_defer(w->keeper.loop, &d->freed);
}

static struct ward *ward_new(struct warden *w, const struct ward *given, int plan_fd,
			     int text_fd)
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
	sandbox_fds_init(&d->fds);
	d->route_fd = d->image_fd = d->from_child.fd = d->process.fd = -1;
	d->plan_fd = plan_fd;
	d->text_fd = text_fd;
	for (uint32_t i = 0; d->id == 0 && i < WARDS_MAX; i++) {
		w->last_id = w->last_id % WARDS_MAX + 1;
		if (!w->wards[w->last_id])
			d->id = w->last_id;
	}
	return d;
}

static void refuse(struct ward *d, const char *text)
{
	struct ipc_message m = { .type = IPC_REFUSED, .sandbox = d->id };

	log_warning("sandbox '%s' is not guarded: %s", d->spec.name, text);
	snprintf(m.text, sizeof(m.text), "%s", text);
	if (d->asked)
		warden_tell_control(d->warden, &m, NULL);
	d->asked = false;
	/* What was guarded before is tried again. */
	if (d->restarted)
		d->warden->lacks = true;
	else
		state_forget(d);
}

/* The self-test's targets, by the plan. What the engine answers is not dialled. */
static int choose_probe(struct ward *d, struct err *err)
{
	const struct policy none = { 0 };
	struct dns_name ignored;
	struct plan plan;
	int r = plan_file_map(d->plan_fd, &plan, err);

	if (r < 0)
		return r;
	r = probe_choose(&plan, &none, false, &ignored, &d->probe, err);
	munmap((void *)(uintptr_t)plan.bytes, plan.size);
	return r;
}

static int check_place(const struct warden *w, const struct ward *d, struct err *err)
{
	if (d->id == 0)
		return err_set(err, -ENOSPC, "%d sandboxes are guarded already",
			       WARDS_MAX);
	if (w->wards[d->id] || ward_find_name(w, d->spec.name))
		return err_set(err, -EEXIST, "there is a sandbox '%s' already",
			       d->spec.name);
	return 0;
}

/* Two in one namespace would fight over it. */
static int check_alone(const struct warden *w, const struct ward *d, struct err *err)
{
	for (uint32_t id = 1; id <= WARDS_MAX; id++) {
		const struct ward *other = w->wards[id];

		if (other && other->ns_dev == d->ns_dev && other->ns_ino == d->ns_ino)
			return err_set(err, -EEXIST,
				       "sandbox '%s' is that network namespace already",
				       other->spec.name);
	}
	return 0;
}

int ward_attach(struct warden *w, const struct ward *given, int plan_fd, int text_fd,
		struct err *err)
{
	struct ward *d = ward_new(w, given, plan_fd, text_fd);
	int r;

	if (!d) {
		close(plan_fd);
		close(text_fd);
		return err_set(err, -ENOMEM, "out of memory");
	}
	r = ward_check(&d->spec, err);
	if (r == 0)
		r = check_place(w, d, err);
	if (r == 0 && !d->restarted)
		r = choose_probe(d, err);
	if (r == 0)
		r = inside_open(d, err);
	if (r == 0)
		r = check_alone(w, d, err);
	if (r == 0)
		r = state_image(d, err);
	if (r == 0)
		r = gone_watch(d, err);
	if (r < 0) {
		ward_free(d);
		return r;
	}
	w->wards[d->id] = d;
	w->count++;
	ward_give_next(w);
	return 0;
}

/* -- the engine --------------------------------------------------------------------- */

static int give(struct ward *d)
{
	struct ipc_message m = {
		.type = IPC_ATTACH,
		.sandbox = d->id,
		.attach = {
			.kind = d->spec.kind,
			.restarted = d->restarted,
			.probe_addr = d->probe.allowed.addr,
			.probe_port = d->probe.allowed.port,
		},
	};
	int fds[2 + SANDBOX_FD_COUNT + 1] = { d->plan_fd, d->image_fd };
	size_t count = 2;

	snprintf(m.attach.probe_name, sizeof(m.attach.probe_name), "%.*s",
		 (int)sizeof(m.attach.probe_name) - 1, d->probe.allowed_name);
	for (size_t i = 0; i < SANDBOX_FD_COUNT; i++) {
		if (d->fds.fd[i] < 0)
			continue;
		m.present |= 1u << i;
		fds[count++] = d->fds.fd[i];
	}
	m.present |= 1u << SANDBOX_FD_COUNT;
	fds[count++] = d->route_fd;
	return ipc_send(d->warden->keeper.engine.source.fd, &m, fds, count);
}

void ward_give_next(struct warden *w)
{
	for (uint32_t id = 1; id <= WARDS_MAX; id++) {
		struct ward *d = w->wards[id];

		if (!w->engine_ready || w->giving != 0)
			return;
		if (!d || d->state != WARD_NEW)
			continue;
		/* Should it be gone, it is given to the next. */
		if (give(d) < 0)
			return;
		d->state = WARD_GIVEN;
		w->giving = id;
	}
	if (w->engine_ready && w->giving == 0 && !w->keeper.stands) {
		w->keeper.stands = true;
		keeper_introduce(&w->keeper);
	}
}

/* -- standing ----------------------------------------------------------------------- */

static void fail(struct ward *d, const char *text)
{
	refuse(d, text);
	ward_detach(d, true);
}

static void stands(struct ward *d)
{
	struct ipc_message m = { .type = IPC_WARDED, .sandbox = d->id };
	struct err err = { 0 };

	d->state = WARD_STANDING;
	if (!d->restarted && state_keep(d, &err) < 0) {
		fail(d, err.text);
		return;
	}
	/* From now on a successor of the engine takes over. */
	d->restarted = true;
	d->probe.allowed_name[0] = '\0';
	m.ward = d->spec;
	if (d->asked || !d->told)
		warden_tell_control(d->warden, &m, NULL);
	d->asked = false;
	d->told = true;
}

static void on_tested(struct loop_source *source, uint32_t events)
{
	struct ward *d = CONTAINER_OF(source, struct ward, from_child);
	const struct ipc_message run = { .type = IPC_RUN, .sandbox = d->id };
	struct err err = { 0 };
	int r = inside_result(d, &err);

	inside_end(d);
	if (r < 0) {
		fail(d, err.text);
		return;
	}
	(void)!ipc_send(d->warden->keeper.engine.source.fd, &run, NULL, 0);
	stands(d);
}

static void on_test_late(struct loop_timer *t)
{
	struct ward *d = CONTAINER_OF(t, struct ward, late);

	fail(d, "the self-test has not ended in time");
}

static void test(struct ward *d)
{
	struct loop *loop = d->warden->keeper.loop;

	d->state = WARD_TESTING;
	d->from_child.on_ready = on_tested;
	d->late.on_fire = on_test_late;
	if (inside_begin_test(d) < 0 || loop_add(loop, &d->from_child, EPOLLIN) < 0 ||
	    loop_timer_start(loop, &d->late, loop_now_ms(loop) + WARD_TEST_MS) < 0)
		fail(d, "the self-test can't be started");
}

static void on_detached(struct ward *d, const char *text)
{
	struct ipc_message m = { .type = IPC_DETACHED, .sandbox = d->id };

	snprintf(m.text, sizeof(m.text), "%s", text);
	if (text[0])
		log_warning("sandbox '%s': %s", d->spec.name, text);
	if (d->asked)
		warden_tell_control(d->warden, &m, NULL);
	ward_free(d);
}

void ward_on_engine(struct warden *w, const struct ipc_message *given)
{
	struct ipc_message m = *given;
	struct ward *d = ward_find(w, m.sandbox);

	if (!d)
		return;
	m.text[sizeof(m.text) - 1] = '\0';
	if (w->giving == d->id)
		w->giving = 0;
	if (m.type == IPC_DETACHED && d->state == WARD_ENDING) {
		on_detached(d, m.text);
	} else if (m.type == IPC_REFUSED && d->state == WARD_GIVEN) {
		refuse(d, m.text);
		ward_free(d);
	} else if (m.type == IPC_STANDS && d->state == WARD_GIVEN) {
		if (d->probe.allowed_name[0])
			test(d);
		else
			stands(d);
	}
	ward_give_next(w);
}

void ward_detach(struct ward *d, bool forget)
{
	const struct ipc_message m = {
		.type = IPC_DETACH,
		.sandbox = d->id,
		.attach.forget = forget,
	};

	inside_end(d);
	gone_unwatch(d);
	d->state = WARD_ENDING;
	/* An engine that is gone has nothing of it any more. */
	if (ipc_send(d->warden->keeper.engine.source.fd, &m, NULL, 0) < 0)
		on_detached(d, forget ? "" : "there is no engine; its rules stay");
}

int ward_keep(struct ward *d, int plan_fd, int text_fd, struct err *err)
{
	/* A restart must not bring back what was in force before. */
	int r = state_keep_text(d, text_fd, err);

	if (r < 0) {
		close(plan_fd);
		close(text_fd);
		return r;
	}
	close(d->plan_fd);
	close(d->text_fd);
	d->plan_fd = plan_fd;
	d->text_fd = text_fd;
	return 0;
}
