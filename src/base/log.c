// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINE_SIZE = 2048 }; /* longer lines are cut */

/* What waits for log_release(): a stream into memory, or NULL. */
static FILE *held;
static char *held_text;
static size_t held_size;

void log_hold(void)
{
	held = open_memstream(&held_text, &held_size);
}

FILE *log_stream(void)
{
	return held ? held : stderr;
}

/* The command can have made the file longer than any file may grow. Cut off what has no
 * data. Return: whether the file is shorter now. */
static bool cut_hole(void)
{
	struct stat st;
	off_t data, end = 0;

	if (fstat(STDERR_FILENO, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	while ((data = lseek(STDERR_FILENO, end, SEEK_DATA)) >= 0 &&
	       (end = lseek(STDERR_FILENO, data, SEEK_HOLE)) > data)
		;
	return data < 0 && errno == ENXIO && end < st.st_size &&
	       ftruncate(STDERR_FILENO, end) == 0 &&
	       lseek(STDERR_FILENO, end, SEEK_SET) == end;
}

/* A reader that has gone wants no word. A caller's own stream may be one that doesn't
 * wait. Return: 0 or -errno. */
static int write_all(const char *text, size_t size)
{
	struct pollfd room = { .fd = STDERR_FILENO, .events = POLLOUT };
	struct stat st;

	while (size > 0) {
		const ssize_t n = write(STDERR_FILENO, text, size);

		if (n >= 0) {
			text += n;
			size -= (size_t)n;
		} else if (errno == EAGAIN) {
			poll(&room, 1, -1);
		} else if (errno == EPIPE || errno == ECONNRESET ||
			   (errno == EIO && fstat(STDERR_FILENO, &st) == 0 &&
			    S_ISCHR(st.st_mode))) {
			return 0;
		} else if (errno != EINTR &&
			   ((errno != EFBIG && errno != EINVAL) || !cut_hole())) {
			return -errno;
		}
	}
	return 0;
}

int log_release(void)
{
	FILE *all = held;
	int r;

	held = NULL;
	if (!all)
		return 0;
	r = fclose(all) == 0 ? write_all(held_text, held_size) : -errno;
	free(held_text);
	return r;
}

void log_write(const char *fmt, ...)
{
	char line[LINE_SIZE] = "weir: ";
	size_t used = strlen(line);
	unsigned char before = 0;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + used, sizeof(line) - used - 1, fmt, ap);
	va_end(ap);
	/* A terminal obeys what is in a path or a name: the control bytes of ASCII, and
	 * those of Latin-1 as UTF-8 has them (C2 80 to C2 9F). */
	for (char *at = line; *at; at++) {
		unsigned char byte = (unsigned char)*at;

		if (byte < 0x20 || byte == 0x7f ||
		    (before == 0xc2 && byte >= 0x80 && byte < 0xa0))
			*at = '?';
		before = byte;
	}
	used = strlen(line);
	line[used++] = '\n';
	if (held)
		fwrite(line, 1, used, held);
	else
		(void)!write(STDERR_FILENO, line, used); /* nobody is left to tell */
}
