// SPDX-License-Identifier: Apache-2.0
#include "events/postgres_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

enum { FILE_SIZE = 1024 };

/* "sent missed refused waiting trouble" */
int postgres_state_write(const char *directory, const struct postgres_state *state)
{
	char path[PATH_MAX], next[PATH_MAX + 8], line[FILE_SIZE];
	CLEAN(fd) int fd = -1;
	int len;

	snprintf(path, sizeof(path), "%s/postgres.state", directory);
	snprintf(next, sizeof(next), "%s.next", path);
	len = snprintf(line, sizeof(line),
		       "%" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
		       state->sent, state->missed, state->refused, state->waiting,
		       state->trouble);
	fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0 || write(fd, line, (size_t)len) != len || rename(next, path) < 0)
		return errno ? -errno : -EIO;
	return 0;
}

static bool take_number(struct text *rest, uint64_t *ret)
{
	struct text word;

	*ret = 0;
	if (!text_split(rest, ' ', &word) || word.len == 0 || word.len > 18)
		return false;
	for (size_t i = 0; i < word.len; i++) {
		if (word.ptr[i] < '0' || word.ptr[i] > '9')
			return false;
		*ret = *ret * 10 + (uint64_t)(word.ptr[i] - '0');
	}
	return true;
}

int postgres_state_read(const char *directory, struct postgres_state *ret)
{
	char path[PATH_MAX], line[FILE_SIZE];
	CLEAN(fd) int fd = -1;
	struct postgres_state state = { 0 };
	struct text rest;
	struct stat st;
	uint64_t sent;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/postgres.state", directory);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	n = fd < 0 || fstat(fd, &st) < 0 ? -1 : read(fd, line, sizeof(line));
	if (n < 0)
		return -errno;
	state.told_ms = (int64_t)st.st_mtim.tv_sec * 1000;
	rest = text_trim((struct text){ line, (size_t)n });
	if (!take_number(&rest, &sent) || !take_number(&rest, &state.missed))
		return -EBADMSG;
	if (!take_number(&rest, &state.refused) || !take_number(&rest, &state.waiting))
		return -EBADMSG;
	state.sent = (int64_t)sent;
	if (rest.ptr)
		text_escape(rest, state.trouble, sizeof(state.trouble));
	*ret = state;
	return 0;
}
