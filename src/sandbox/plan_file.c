// SPDX-License-Identifier: Apache-2.0
#include "sandbox/plan_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/hash.h"

static const int all_seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

int plan_file_make(const uint8_t *bytes, size_t size, struct err *err)
{
	CLEAN(fd) int fd = memfd_create("weir-plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	size_t done = 0;

	if (fd < 0)
		return err_sys(err, -errno, "cannot make a memfd for the plan");
	while (done < size) {
		ssize_t n = write(fd, bytes + done, size - done);

		if (n < 0)
			return err_sys(err, -errno, "cannot write the plan");
		done += (size_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, all_seals) < 0)
		return err_sys(err, -errno, "cannot seal the plan");
	return TAKE_FD(fd);
}

int plan_file_map(int fd, struct plan *ret, struct err *err)
{
	int seals = fcntl(fd, F_GET_SEALS);
	/* Not fstat(): the engine maps a plan when it is confined already. */
	off_t size = lseek(fd, 0, SEEK_END);
	void *bytes;
	int r;

	if (seals < 0 || (seals & all_seals) != all_seals)
		return err_set(err, -EPERM, "the plan is not sealed");
	if (size <= 0)
		return err_set(err, -EBADMSG, "cannot read the plan's size");
	bytes = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED)
		return err_sys(err, -errno, "cannot map the plan");
	r = plan_open(bytes, (size_t)size, ret, err);
	if (r < 0)
		munmap(bytes, (size_t)size);
	return r;
}

void plan_file_unmap(struct plan *p)
{
	if (p->bytes)
		munmap((void *)(uintptr_t)p->bytes, p->size);
	*p = (struct plan){ 0 };
}

/* It tells plans apart that nobody has made to look alike: who can choose a plan may
 * have any. Four numbers side by side, since each step waits for the one before. */
uint64_t plan_file_id(const struct plan *p)
{
	const struct hash_key none = { 0 };
	uint64_t lanes[5] = { 1, 2, 3, 4, p->size };
	const uint8_t *at = p->bytes;
	size_t left = p->size;
	uint64_t words[4];

	for (; left > 0;
	     at += MIN(left, sizeof(words)), left -= MIN(left, sizeof(words))) {
		/* A copy of a size that the compiler knows is no call. */
		if (left >= sizeof(words))
			memcpy(words, at, sizeof(words));
		else
			memcpy(memset(words, 0, sizeof(words)), at, left);
		for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
			lanes[i] = (lanes[i] ^ words[i]) * UINT64_C(0x9e3779b97f4a7c15);
			lanes[i] ^= lanes[i] >> 32;
		}
	}
	return hash_bytes(&none, lanes, sizeof(lanes));
}
