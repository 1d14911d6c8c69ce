// SPDX-License-Identifier: Apache-2.0
/* What the snapshots of all sandboxes take of memory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/core.h"
#include "unit.h"

enum {
	MANY = 100,
	OWN_BYTES = 64 * 1024,
	SHARED_BYTES = 64 * 1024 * 1024,
};

static struct engine_core core;

static void open_one(struct engine_sandbox *g)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, LEARNED_SNAPSHOT_SIZE), 0);
	*g = (struct engine_sandbox){ .core = &core };
	assert_int_equal(engine_sandbox_snapshot_map(g, fd), 0);
	assert_true(g->snapshot.is_fresh && !g->snapshot.is_full);
	close(fd);
}

static void close_one(struct engine_sandbox *g)
{
	engine_sandbox_snapshot_leave(g);
	engine_sandbox_snapshot_done(g);
}

/* As much as can be had. Return: how much. */
static size_t take_all(struct engine_sandbox *g)
{
	size_t at = 0;

	while (at < LEARNED_SNAPSHOT_SIZE &&
	       g->snapshot.reserve(&g->snapshot, at, at + LEARNED_SNAPSHOT_STEP))
		at += LEARNED_SNAPSHOT_STEP;
	return at;
}

TEST(all_together_are_bounded)
{
	struct engine_sandbox *all = calloc(MANY, sizeof(*all));
	size_t sum = 0, taken = 0;

	assert_non_null(all);
	for (size_t i = 0; i < MANY; i++) {
		open_one(&all[i]);
		taken = take_all(&all[i]);
		assert_true(i > 0 || taken == LEARNED_SNAPSHOT_SIZE);
		assert_true(taken >= OWN_BYTES);
		sum += taken;
	}
	assert_true(taken < 2 * OWN_BYTES);
	assert_in_range(sum, SHARED_BYTES / 2, SHARED_BYTES + MANY * OWN_BYTES);
	for (size_t i = 0; i < MANY; i++)
		close_one(&all[i]);
	assert_int_equal(core.snapshot_bytes, 0);
	open_one(&all[0]);
	assert_int_equal(take_all(&all[0]), LEARNED_SNAPSHOT_SIZE);
	close_one(&all[0]);
	free(all);
}

TEST(a_file_that_is_too_short_is_none)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);
	struct engine_sandbox g = { .core = &core };

	assert_int_equal(ftruncate(fd, LEARNED_SNAPSHOT_SIZE - 1), 0);
	assert_int_equal(engine_sandbox_snapshot_map(&g, fd), -ENOSPC);
	assert_true(g.snapshot.is_full && !g.snapshot.bytes);
	engine_sandbox_snapshot_done(&g);
	close(fd);
}

/* A page that can't be had later would hide from the next engine that something was
 * forgotten. */
TEST(who_has_budgets_has_room_for_what_is_forgotten)
{
	const int fd = memfd_create("snapshot", MFD_CLOEXEC);
	struct engine_sandbox g = { .core = &core };

	if (!engine_sandbox_snapshot_may_be_sparse())
		skip();
	assert_int_equal(ftruncate(fd, LEARNED_SNAPSHOT_SIZE), 0);
	assert_int_equal(engine_sandbox_snapshot_map(&g, fd), 0);
	assert_non_null(engine_sandbox_kept_budgets(&g));
	assert_int_equal(lseek(fd, 0, SEEK_DATA), 0);
	close_one(&g);
	close(fd);
}
