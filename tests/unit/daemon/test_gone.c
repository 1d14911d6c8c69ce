// SPDX-License-Identifier: Apache-2.0
/* Which namespaces are gone, when some processes of the machine can't be seen in full.
 * The processes are made up: sys/tasks is replaced. */
#include <errno.h>

#include "daemon/internal.h"
#include "sys/tasks.h"
#include "unit.h"

enum { WANTED = 1000, OTHER = 1001 };

/* A process of the machine; the list ends with pid 0. */
struct process {
	pid_t pid;
	ino_t seen[4]; /* the namespaces of the threads that were seen */
	int r;	       /* what tasks_each() says then */
};

static const struct process *machine;
static ino_t network;

int __wrap_tasks_each_process(process_fn *fn, void *data);
int __wrap_tasks_each(int proc, pid_t pid, task_fn *fn, void *data);
int __wrap_tasks_network_of(const struct task *t, struct tasks_network *ret);
int __wrap_tasks_open_named_network(const char *where);

int __wrap_tasks_each_process(process_fn *fn, void *data)
{
	int r = 0;

	for (size_t i = 0; r == 0 && machine[i].pid != 0; i++)
		r = fn(data, (int)i, machine[i].pid);
	return r;
}

int __wrap_tasks_each(int proc, pid_t pid, task_fn *fn, void *data)
{
	const struct process *p = &machine[proc];
	const struct task t = { .pid = pid, .tid = pid };
	int r = 0;

	for (size_t i = 0; r == 0 && p->seen[i] != 0; i++) {
		network = p->seen[i];
		r = fn(data, &t);
	}
	return r == 0 ? p->r : r;
}

int __wrap_tasks_network_of(const struct task *t, struct tasks_network *ret)
{
	*ret = (struct tasks_network){ .ino = network };
	return 0;
}

int __wrap_tasks_open_named_network(const char *where)
{
	return -ENOENT;
}

/* -- the rest of the daemon, which these tests don't ask for ------------------------ */

bool host_change(struct host *h, enum host_event event)
{
	return false;
}
int host_cgroup_id(const struct daemon_sandbox *d, uint64_t *ret)
{
	return -ENOENT;
}
void cgroup_watch_check(struct daemon_sandbox *d)
{
}
void cgroup_guard_check(struct daemon *w)
{
}
void ended_check(struct daemon *w)
{
}
void attach_queue_next(struct daemon *w)
{
}
void state_restore(struct daemon *w)
{
}
void daemon_sandbox_detach(struct daemon_sandbox *d, bool forget)
{
}
void daemon_sandbox_on_gone(struct daemon_sandbox *d, const char *seen, const char *text,
			    bool forget)
{
}

/* -- tests -------------------------------------------------------------------------- */

static const struct {
	const char *what;
	struct process machine[4];
	int found;
} cases[] = {
	{ "nobody is in there", { { 7, { OTHER }, 0 } }, -ESTALE },
	{ "a process that can't be seen may be in there",
	  { { 7, { 0 }, -EACCES }, { 8, { OTHER }, 0 } },
	  -EAGAIN },
	{ "ever new threads are where the other threads of their process are",
	  { { 7, { OTHER, OTHER }, -EAGAIN } },
	  -ESTALE },
	{ "ever new threads of which none was seen may be in there",
	  { { 7, { OTHER }, 0 }, { 8, { 0 }, -EAGAIN } },
	  -EAGAIN },
	{ "a process that can't be seen may be anywhere, whatever was seen of it",
	  { { 7, { OTHER }, -EACCES } },
	  -EAGAIN },
	{ "somebody is in there, whoever can't be seen",
	  { { 7, { OTHER }, -EAGAIN }, { 8, { OTHER, WANTED }, 0 } },
	  -EAGAIN },
};

TEST(a_namespace_is_gone_when_nobody_can_be_in_it)
{
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct daemon_sandbox d = {
			.spec.where = "/proc/1/no/such/path",
			.ns_ino = WANTED,
			.ns_cookie = 1,
		};
		int r;

		machine = cases[i].machine;
		r = gone_find(&d);
		if (r != cases[i].found)
			fail_msg("%s: %d, not %d", cases[i].what, r, cases[i].found);
	}
}
