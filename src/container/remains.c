// SPDX-License-Identifier: Apache-2.0
#include "container/remains.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"

enum { EXPECTED_SIZE = 256 };

static const char *text_in(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static const char *run_of(const json_t *found)
{
	return text_in(json_object_get(json_object_get(found, "Config"), "Labels"),
		       "weir.run");
}

/* An image that was made of a sandbox's container has its labels, and passes them on to
 * containers that are nobody's but their owner's. Nothing else tells them apart: a
 * container may be renamed. Return: 1: the run that the labels name has made @found; 0:
 * somebody else has; -errno with @err. */
static int is_made_here(const struct docker *e, const json_t *found, struct err *err)
{
	const char *image = text_in(found, "Image"), *run = run_of(found), *passed_on;
	json_t *its_image = NULL;
	char path[EXPECTED_SIZE];
	int r;

	if (!run || !image || strspn(image, TEXT_NAME_LETTERS ":") < strlen(image))
		return 0;
	snprintf(path, sizeof(path), "/images/%.200s/json", image);
	r = docker_ask(e, "GET", path, NULL, &its_image, err);
	if (r < 0)
		return r;
	passed_on = run_of(its_image);
	r = !passed_on || strcmp(passed_on, run) != 0;
	json_decref(its_image);
	return r;
}

/* Return: 1: it is removed; 0: it, or its image, isn't there, or it is another's; -errno
 * with @err. */
static int remove_made_here(const struct docker *e, const char *id, struct err *err)
{
	json_t *found = NULL;
	int r = docker_inspect(e, id, &found, err);

	if (r == 0)
		r = is_made_here(e, found, err);
	json_decref(found);
	if (r > 0) {
		r = docker_remove(e, id, err);
		return r < 0 ? r : 1;
	}
	if (r == -ENOENT) {
		*err = (struct err){ 0 };
		return 0;
	}
	return r;
}

/* -- of one run ---------------------------------------------------------------------- */

static int remove_role(const struct docker *e, const json_t *list, const char *role,
		       struct err *err)
{
	const json_t *one;
	size_t i;
	int r = 0;

	json_array_foreach(list, i, one)
	{
		const char *its = text_in(json_object_get(one, "Labels"), "weir.role");
		const char *id = text_in(one, "Id");

		if (r >= 0 && its && id && strcmp(its, role) == 0)
			r = remove_made_here(e, id, err);
	}
	return r < 0 ? r : 0;
}

int remains_remove(const struct docker *e, const char *nonce, struct err *err)
{
	char label[EXPECTED_SIZE];
	json_t *list = NULL;
	int r;

	snprintf(label, sizeof(label), "weir.run=%s", nonce);
	r = docker_list(e, label, &list, err);
	if (r == 0)
		r = remove_role(e, list, "app", err);
	if (r == 0)
		r = remove_role(e, list, "guard", err);
	json_decref(list);
	return r;
}

/* -- what nobody watches any more ---------------------------------------------------- */

static const char *state_of(const json_t *list, const char *id)
{
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		const char *found = text_in(one, "Id"), *state = text_in(one, "State");

		if (found && state && strcmp(found, id) == 0)
			return state;
	}
	return "gone";
}

int remains_check(const struct docker *e, const char *nonce, const char *id,
		  struct err *err)
{
	char label[EXPECTED_SIZE];
	json_t *list = NULL, *found = NULL;
	int r;

	snprintf(label, sizeof(label), "weir.run=%s", nonce);
	r = docker_list(e, label, &list, err);
	if (r == 0 && strcmp(state_of(list, id), "gone") == 0)
		r = err_set(err, -EBADMSG, "the engine doesn't list the container");
	if (r == 0)
		r = docker_inspect(e, id, &found, err);
	json_decref(list);
	json_decref(found);
	return r < 0 ? err_context(err, "the container could not be removed later") : 0;
}

/* Has its guard ended, or, when it is one itself, has it? A guard that is paused, or
 * started again, isn't gone, and its run looks after it. */
static bool is_abandoned(const json_t *list, const json_t *container, bool is_app)
{
	static const char *const ended[] = { "gone", "exited", "stopped", "dead" };
	const char *guard = text_in(json_object_get(container, "Labels"), "weir.guard");
	const char *id = text_in(container, "Id");

	if (!id || is_app != (guard != NULL))
		return false;
	return text_is_one_of(state_of(list, guard ? guard : id), ended,
			      ARRAY_SIZE(ended));
}

static void remove_abandoned(const struct docker *e, const json_t *container)
{
	const json_t *names = json_object_get(container, "Names");
	const char *name = json_string_value(json_array_get(names, 0));
	const char *id = text_in(container, "Id");
	const char *shown = SHOWN(name ? name + (name[0] == '/') : id);
	struct err err = { 0 };
	int r = remove_made_here(e, id, &err);

	if (r < 0)
		log_warning("cannot remove the container '%s', which a run has left: %s",
			    shown, err.text);
	else if (r > 0)
		log_warning("removed the container '%s', which a run has left", shown);
}

void remains_sweep(const struct docker *e)
{
	struct err ignored = { 0 };
	json_t *list = NULL, *one;
	size_t i;

	if (docker_list(e, "weir.sandbox", &list, &ignored) < 0)
		return;
	for (int is_app = 1; is_app >= 0; is_app--)
		json_array_foreach(list, i, one) if (is_abandoned(list, one, is_app))
			remove_abandoned(e, one);
	json_decref(list);
}
