// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Thousands of sandboxes may have a handful of policies. Plans that are the same, byte by
 * byte, are one file here: a descriptor of the daemon's, and memory of the engine's that
 * all of its mappings share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/internal.h"
#include "proto/plan_file.h"

struct daemon_plan {
	struct index_entry entry;
	char key[20]; /* its id */
	int fd;	      /* owned */
	size_t users;
};

static void unmap(struct plan *p)
{
	if (p->bytes)
		munmap((void *)(uintptr_t)p->bytes, p->size);
}

static bool holds(const struct daemon_plan *have, const struct plan *wanted)
{
	struct err ignored = { 0 };
	struct plan p = { 0 };
	bool same = plan_file_map(have->fd, &p, &ignored) == 0 &&
		    p.size == wanted->size && memcmp(p.bytes, wanted->bytes, p.size) == 0;

	unmap(&p);
	return same;
}

/* @fd is taken with success. */
static struct daemon_plan *plan_new(struct daemon *w, int fd, const char *key)
{
	struct daemon_plan *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->users = 1;
	snprintf(p->key, sizeof(p->key), "%s", key);
	if (index_add(&w->plans, &p->entry, p->key) < 0) {
		free(p);
		return NULL;
	}
	p->fd = fd;
	w->plan_count++;
	return p;
}

static struct daemon_plan *find_or_make(struct daemon *w, int *fd,
					const struct plan *plan)
{
	struct index_entry *e;
	struct daemon_plan *p;
	char key[20];

	snprintf(key, sizeof(key), "%llx", (unsigned long long)plan_file_id(plan));
	e = index_find(&w->plans, key);
	p = e ? CONTAINER_OF(e, struct daemon_plan, entry) : NULL;
	if (p && holds(p, plan)) {
		p->users++;
		return p;
	}
	p = plan_new(w, *fd, key);
	if (p)
		*fd = -1;
	return p;
}

int daemon_plan_take(struct daemon *w, int fd, struct daemon_plan **ret, struct err *err)
{
	CLEAN(fd) int own = fd;
	struct plan plan = { 0 };
	int r = plan_file_map(own, &plan, err);

	if (r < 0)
		return r;
	*ret = find_or_make(w, &own, &plan);
	unmap(&plan);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

void daemon_plan_drop(struct daemon *w, struct daemon_plan *p)
{
	if (!p || --p->users > 0)
		return;
	index_remove(&w->plans, &p->entry);
	w->plan_count--;
	close(p->fd);
	free(p);
}

int daemon_plan_fd(const struct daemon_plan *p)
{
	return p->fd;
}
