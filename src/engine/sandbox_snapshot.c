// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * A snapshot is a sparse file of the run directory, mapped. The kernel has no way to say
 * that it has no page for it but SIGBUS, which would end the engine, for all sandboxes,
 * again and again. So every page is asked for by a call that can fail, before the first
 * byte of it is read or written. Without it the sandbox goes on: what is learned then is
 * lost with the engine, and the status says so.
 *
 * What all of them take is bounded: each has a little of its own, and what they share is
 * given so that no sandbox gets more than a part of what is left. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/core.h"

enum {
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

/* A kernel that doesn't know the call: whoever made the file has reserved it. */
static bool populate(uint8_t *bytes, size_t from, size_t to)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	from = from / page * page;
	to = MIN((to + page - 1) / page * page, (size_t)LEARNED_SNAPSHOT_SIZE);
	return madvise(bytes + from, to - from, MADV_POPULATE_WRITE) == 0 ||
	       errno == EINVAL;
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
