// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A control group or a user goes to the first engine, which looks after the host's own
 * namespace. A network namespace goes to the engine that has the fewest sandboxes. Unless
 * a number of engines is given, there is one at first, and one more is started when each
 * has NOVELTY of them and there is a processor for it, or when all are full.
 *
 * With one engine its daemon knows all names and namespaces. With more of them only
 * control does: it asks first which namespace is meant. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>

#include "control/control.h"

/* So many are looked at within 100 ms, see ENGINE_LOOKS_MAX. */
enum { NOVELTY = 500 };

void control_place(const struct ipc_sandbox *spec, char ret[CONTROL_PLACE_SIZE])
{
	ret[0] = '\0';
	if (spec->kind == ATTACH_NETNS && spec->ns_ino != 0)
		snprintf(ret, CONTROL_PLACE_SIZE, "%llx %llu",
			 (unsigned long long)spec->ns_dev,
			 (unsigned long long)spec->ns_ino);
}

/* @spec says which namespace it is. */
static int find_namespace(struct control *s, struct ipc_sandbox *spec, struct err *err)
{
	const struct control_answer answer = { IPC_WHO, IPC_REFUSED };
	const struct ipc_message ask = { .type = IPC_WHO, .attached = *spec };
	struct ipc_message m;
	int r = control_ask_supervisor(s->link, &ask, NULL, 0, &answer, &m, NULL);

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	if (m.type == IPC_WHO) {
		spec->ns_dev = m.attached.ns_dev;
		spec->ns_ino = m.attached.ns_ino;
		return 0;
	}
	control_tame(m.text, sizeof(m.text));
	return err_set(err, -EPERM, "%s", m.text);
}

static int check_alone(const struct control *s, const struct ipc_sandbox *spec,
		       struct err *err)
{
	char place[CONTROL_PLACE_SIZE];
	struct index_entry *e;

	control_place(spec, place);
	e = index_find(&s->control_sandbox_places, place);
	if (!e)
		return 0;
	return err_set(err, -EEXIST, "sandbox '%s' is that network namespace already",
		       CONTAINER_OF(e, struct control_sandbox, placed)->spec.name);
}

static struct control_link *emptiest(struct control *s)
{
	struct control_link *best = NULL;

	for (size_t i = 0; i < s->link_count; i++) {
		struct control_link *l = &s->links[i];

		if (l->from_supervisor.fd >= 0 && !l->full &&
		    (!best || l->control_sandbox_count < best->control_sandbox_count))
			best = l;
	}
	return best;
}

static size_t processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) < 0 ? 1 : (size_t)CPU_COUNT(&set);
}

static bool is_one_more_wanted(const struct control *s, const struct control_link *best)
{
	if (s->spec.engines != 0 || s->link_count == IPC_ENGINES_MAX)
		return false;
	return !best ||
	       (best->control_sandbox_count >= NOVELTY && s->link_count < processors());
}

/* Its engine takes a moment; nobody is to see the daemon without it. */
static int start_one_more(struct control *s, struct err *err)
{
	const struct control_answer answer = { IPC_MORE, IPC_REFUSED };
	const struct ipc_message ask = { .type = IPC_MORE };
	size_t count = s->link_count;
	struct ipc_message m;
	int r = control_ask_supervisor(s->link, &ask, NULL, 0, &answer, &m, NULL);

	if (r < 0)
		return err_sys(err, r, "the supervisor does not answer");
	if (m.type == IPC_REFUSED) {
		control_tame(m.text, sizeof(m.text));
		return err_set(err, -EMFILE, "%s", m.text);
	}
	/* Once, for a start. */
	s->links[count % IPC_ENGINES_MAX].patience_ms = CONTROL_ASK_MS;
	if (s->link_count == count || !control_await_engine(&s->links[count]))
		return err_set(err, -EMFILE, "another engine does not start");
	return 0;
}

static int choose(struct control *s, struct control_link **ret, struct err *err)
{
	struct err why = { 0 };

	*ret = emptiest(s);
	if (is_one_more_wanted(s, *ret)) {
		(void)!start_one_more(s, &why);
		*ret = emptiest(s);
	}
	if (*ret)
		return 0;
	return err_set(err, -EMFILE, "%s",
		       why.code < 0 ? why.text : "all engines are full");
}

int control_engine_choose(struct control *s, struct ipc_sandbox *spec,
			  struct control_link **ret, struct err *err)
{
	int r = 0;

	*ret = s->link;
	if (spec->kind != ATTACH_NETNS)
		return 0;
	r = choose(s, ret, err);
	if (r == 0 && s->link_count > 1 && spec->ns_ino == 0) {
		r = find_namespace(s, spec, err);
		if (r == 0)
			r = check_alone(s, spec, err);
	}
	spec->engines = (uint32_t)s->link_count;
	return r;
}
