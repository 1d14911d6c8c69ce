// SPDX-License-Identifier: Apache-2.0
/* Review tasks of the store, for the API: all of them for a sidecar, which guards one
 * sandbox, and those of one for a daemon. The store is opened for each question: they are
 * few, and the file may be another one by then. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"

/* @sandbox NULL: any. */
static int list(const struct control *s, const char *sandbox, enum review_state state,
		bool (*on_task)(void *to, const struct review *t), void *to,
		struct err *err)
{
	struct review_store *store = NULL;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = review_list(store, state, sandbox, on_task, to, err);
	review_close(store);
	return r;
}

static int find(struct review_store *store, const char *sandbox, int64_t id,
		struct review *ret, struct err *err)
{
	int r = review_find(store, id, ret, err);

	if (r == 0 && sandbox && strcmp(ret->sandbox, sandbox) != 0)
		r = err_set(err, -ENOENT, "there is no task %lld", (long long)id);
	return r;
}

static int show(const struct control *s, const char *sandbox, int64_t id,
		struct review *ret, struct err *err)
{
	struct review_store *store = NULL;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = find(store, sandbox, id, ret, err);
	review_close(store);
	return r;
}

static int decide(const struct control *s, const char *sandbox, int64_t id,
		  enum review_state state, const char *who, struct err *err)
{
	struct review_store *store = NULL;
	struct review t;
	int r = review_open(s->spec.state_dir, &store, err);

	if (r == 0)
		r = find(store, sandbox, id, &t, err);
	if (r == 0)
		r = review_decide(store, id, state, who, clock_wall_ms(), err);
	review_close(store);
	return r;
}

/* ---- of a sidecar ---- */

static int control_list(void *data, enum review_state state,
			bool (*on_task)(void *to, const struct review *t), void *to,
			struct err *err)
{
	return list(data, NULL, state, on_task, to, err);
}

static int control_show(void *data, int64_t id, struct review *ret, struct err *err)
{
	return show(data, NULL, id, ret, err);
}

static int control_decide(void *data, int64_t id, enum review_state state,
			  const char *who, struct err *err)
{
	return decide(data, NULL, id, state, who, err);
}

void control_review_ops(const struct control *s, struct api_ops *ret)
{
	if (!s->store)
		return;
	ret->reviews = control_list;
	ret->review = control_show;
	ret->decide = control_decide;
}

/* ---- of one sandbox of a daemon's ---- */

static int control_sandbox_list(void *data, enum review_state state,
				bool (*on_task)(void *to, const struct review *t),
				void *to, struct err *err)
{
	const struct control_sandbox *w = data;

	return list(w->side, w->spec.name, state, on_task, to, err);
}

static int control_sandbox_show(void *data, int64_t id, struct review *ret,
				struct err *err)
{
	const struct control_sandbox *w = data;

	return show(w->side, w->spec.name, id, ret, err);
}

static int control_sandbox_decide(void *data, int64_t id, enum review_state state,
				  const char *who, struct err *err)
{
	const struct control_sandbox *w = data;

	return decide(w->side, w->spec.name, id, state, who, err);
}

void control_sandbox_review_ops(const struct control_sandbox *w, struct api_ops *ret)
{
	if (!w->side->store)
		return;
	ret->reviews = control_sandbox_list;
	ret->review = control_sandbox_show;
	ret->decide = control_sandbox_decide;
}
