// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * What a sandbox learns outlives its engine in a snapshot: a sparse file of the run
 * directory, mapped. When the kernel has no page for the file it says so by SIGBUS alone,
 * which would end the engine, for all sandboxes, again and again. So every page is asked
 * for by a call that can fail, before its first byte is read or written. A sandbox
 * without a snapshot goes on: what it learns then is lost with the engine, and its status
 * says so.
 *
 * What all snapshots take is bounded: each sandbox has a little of its own, and what they
 * share is given so that no sandbox gets more than a part of what is left.
 *
 * A successor takes over what the snapshot has and the kernel's sets still hold. */
#include "engine/sandbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/core.h"
#include "sandbox/budgets.h"

enum {
	ELEMENTS_MAX = 16384, /* that the kernel still has, when adopting */
	READ_TRIES = 8,
	OWN_BYTES = 64 * 1024, /* of each sandbox: about 200 learned addresses */
	SHARED_BYTES = 64 * 1024 * 1024,
	SHARE = 4, /* one sandbox gets a fourth of what is left at most */
};

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

bool engine_sandbox_snapshot_may_be_sparse(void)
{
	return madvise(NULL, 0, MADV_POPULATE_WRITE) == 0;
}

static size_t shared_part(size_t bytes)
{
	return bytes > OWN_BYTES ? bytes - OWN_BYTES : 0;
}

static bool has_share(const struct engine_sandbox *g, size_t more)
{
	size_t now = shared_part(g->snapshot_bytes);
	size_t then = shared_part(g->snapshot_bytes + more);

	/* What it has itself counts as left. */
	return then == now ||
	       then <= (SHARED_BYTES - g->core->snapshot_bytes + now) / SHARE;
}

/* For a kernel that doesn't know the call the supervisor has reserved the file. */
static bool populate(uint8_t *bytes, size_t from, size_t to)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	from = from / page * page;
	to = MIN((to + page - 1) / page * page, (size_t)LEARNED_SNAPSHOT_SIZE);
	return madvise(bytes + from, to - from, MADV_POPULATE_WRITE) == 0 ||
	       errno == EINVAL;
}

void *engine_sandbox_kept_budgets(struct engine_sandbox *g)
{
	const size_t at = LEARNED_SNAPSHOT_SIZE - BUDGETS_KEPT_SIZE;
	uint8_t *bytes = g->snapshot.bytes;

	return bytes && populate(bytes, at, LEARNED_SNAPSHOT_SIZE) ? bytes + at : NULL;
}

static bool reserve(struct learned_snapshot *s, size_t from, size_t to)
{
	struct engine_sandbox *g = CONTAINER_OF(s, struct engine_sandbox, snapshot);
	size_t more = to - from;

	if (!has_share(g, more) || !populate(s->bytes, from, to))
		return false;
	g->core->snapshot_bytes +=
		shared_part(g->snapshot_bytes + more) - shared_part(g->snapshot_bytes);
	g->snapshot_bytes += more;
	return true;
}

int engine_sandbox_snapshot_map(struct engine_sandbox *g, int fd)
{
	void *bytes = MAP_FAILED;

	g->snapshot = (struct learned_snapshot){ .reserve = reserve, .is_full = true };
	/* A page behind its end is SIGBUS as well. */
	if (lseek(fd, 0, SEEK_END) != LEARNED_SNAPSHOT_SIZE)
		return -ENOSPC;
	bytes = mmap(NULL, LEARNED_SNAPSHOT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		     0);
	if (bytes == MAP_FAILED)
		return -errno;
	g->snapshot.bytes = bytes;
	g->snapshot.is_full = false;
	/* Of a file that has no page the kernel need make none, nor read ahead. */
	g->snapshot.is_fresh = lseek(fd, 0, SEEK_DATA) < 0 && errno == ENXIO;
	(void)!madvise(bytes, LEARNED_SNAPSHOT_SIZE, MADV_RANDOM);
	return 0;
}

void engine_sandbox_snapshot_done(struct engine_sandbox *g)
{
	if (g->snapshot.bytes)
		munmap(g->snapshot.bytes, LEARNED_SNAPSHOT_SIZE);
	g->snapshot = (struct learned_snapshot){ 0 };
}

void engine_sandbox_snapshot_leave(struct engine_sandbox *g)
{
	g->core->snapshot_bytes -= shared_part(g->snapshot_bytes);
	g->snapshot_bytes = 0;
}

/* -- taking over what an engine before us has learned ------------------------------- */

struct engine_element {
	uint32_t id;
	struct addr addr;
	uint8_t port_list;
	uint32_t left_ms; /* not compared */
};

static int compare_elements(const void *a, const void *b)
{
	const struct engine_element *x = a, *y = b;
	int r;

	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	r = memcmp(&x->addr, &y->addr, sizeof(x->addr));
	return r ? r : x->port_list - y->port_list;
}

/* A filter_learned_fn; the data is a struct engine_elements. */
static void on_element(void *data, uint16_t id, const struct filter_learn *item)
{
	struct engine_elements *e = data;

	if (e->count == e->capacity) {
		size_t capacity = MIN(MAX(e->capacity * 2, (size_t)256), e->max);
		struct engine_element *grown =
			capacity > e->count
				? reallocarray(e->items, capacity, sizeof(*grown))
				: NULL;

		e->is_cut = !grown;
		if (!grown)
			return;
		e->items = grown;
		e->capacity = capacity;
	}
	e->items[e->count++] = (struct engine_element){ id, item->addr, item->port_list,
							item->lifetime_ms };
}

int engine_elements_read(struct engine_elements *e, struct filter_conn *c, size_t lists)
{
	int r = -EAGAIN;

	/* Others may change tables of their own meanwhile. */
	for (int i = 0; i < READ_TRIES && r == -EAGAIN; i++) {
		e->count = 0;
		e->is_cut = false;
		r = filter_learned_read(c, lists, on_element, e);
	}
	if (r < 0)
		e->count = 0;
	if (e->count > 0)
		qsort(e->items, e->count, sizeof(*e->items), compare_elements);
	return r;
}

struct elements_of {
	const struct engine_elements *all; /* NULL: the kernel has nothing */
	uint32_t id;
};

static uint32_t left_in_kernel(void *data, const struct addr *a, uint8_t port_list)
{
	const struct elements_of *of = data;
	const struct engine_element key = { of->id, *a, port_list, 0 };
	const struct engine_element *found = NULL;

	if (of->all && of->all->count > 0)
		found = bsearch(&key, of->all->items, of->all->count, sizeof(key),
				compare_elements);
	return found ? found->left_ms : 0;
}

void engine_sandbox_adopt(struct engine_sandbox *g, const struct engine_elements *e)
{
	struct sandbox *s = &g->sandbox;
	struct elements_of of = { e, s->host ? s->id : 0 };

	g->adopted = (uint32_t)learned_snapshot_adopt(s->learned, &g->snapshot,
						      loop_now_ms(g->core->loop),
						      left_in_kernel, &of);
	s->counters[COUNT_ADOPTED] += g->adopted;
}

bool engine_sandbox_adopt_all(struct engine_sandbox *g)
{
	struct sandbox *s = &g->sandbox;
	struct engine_elements have = { .max = ELEMENTS_MAX };
	uint32_t longest_ms = 0;
	bool is_all = engine_elements_read(&have, &s->filter,
					   plan_port_list_count(&s->plan)) == 0;

	if (is_all) {
		engine_sandbox_adopt(g, &have);
		is_all = !have.is_cut &&
			 learned_counts(s->learned).elements == have.count;
	}
	for (size_t i = 0; is_all && i < have.count; i++)
		longest_ms = MAX(longest_ms, have.items[i].left_ms);
	if (is_all)
		learned_bound_doubt(s->learned, loop_now_ms(g->core->loop) + longest_ms);
	free(have.items);
	return is_all;
}
