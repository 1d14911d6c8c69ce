// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres_state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "base/text.h"
#include "sys/files.h"

enum { FILE_SIZE = 1024 };

/* "sent missed refused waiting trouble" */
int postgres_state_write(const char *directory, const struct postgres_state *state)
{
	CLEAN(fd) int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char line[FILE_SIZE];
	int len;

	if (dir < 0)
		return -errno;
	len = snprintf(line, sizeof(line),
		       "%" PRId64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
		       state->sent, state->missed, state->refused, state->waiting,
		       state->trouble);
	return file_replace(dir, "postgres.state.next", "postgres.state", 0600, line,
			    (size_t)MIN(len, (int)sizeof(line) - 1));
}

static bool take_number(struct text *rest, uint64_t *ret)
{
	struct text word;

	return text_split(rest, ' ', &word) && word.len <= 18 &&
	       text_to_u64(word, 10, ret);
}

int postgres_state_read(const char *directory, struct postgres_state *ret)
{
	const struct file_how how = { .max_bytes = FILE_SIZE, .anybodys = true };
	CLEAN(file_bytes) struct file_bytes file = { 0 };
	struct postgres_state state = { 0 };
	char path[PATH_MAX];
	struct text rest;
	uint64_t sent;
	int r;

	snprintf(path, sizeof(path), "%s/postgres.state", directory);
	r = file_read(AT_FDCWD, path, &how, &file, NULL);
	if (r < 0)
		return r;
	state.written_ms = (int64_t)file.stat.st_mtim.tv_sec * 1000;
	rest = text_trim((struct text){ file.bytes, file.size });
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
