// SPDX-License-Identifier: Apache-2.0
#include "sys/settings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/process.h"

/* ---- descriptors ---- */

int inherited_fds_take(const int *fds, size_t count, int last)
{
	int all[INHERITED_MAX + 1];

	if (count > INHERITED_MAX)
		return -E2BIG;
	for (size_t i = 0; i < INHERITED_MAX; i++) {
		if (i < count && fds[i] < 0)
			return -EBADF;
		all[i] = i < count ? fds[i] : -1;
	}
	all[INHERITED_MAX] = last;
	return process_place_fds(all, ARRAY_SIZE(all), INHERITED_FIRST, 0);
}

/* ---- arguments and environment ---- */

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/* In front of the strings, each of which ends with a zero byte. */
struct head {
	uint32_t args, variables;
};

static uint32_t count_of(char *const *strings)
{
	uint32_t n = 0;

	while (strings[n])
		n++;
	return n;
}

static int put(int fd, const void *bytes, size_t size)
{
	ssize_t n = write(fd, bytes, size);

	return n < 0 ? -errno : (size_t)n == size ? 0 : -EIO;
}

static int put_strings(int fd, char *const *strings)
{
	int r = 0;

	for (; *strings && r == 0; strings++)
		r = put(fd, *strings, strlen(*strings) + 1);
	return r;
}

int settings_make(char *const *args, char *const *environment)
{
	const struct head head = { count_of(args), count_of(environment) };
	CLEAN(fd) int fd = memfd_create("weir-settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r = fd < 0 ? -errno : put(fd, &head, sizeof(head));

	if (r == 0)
		r = put_strings(fd, args);
	if (r == 0)
		r = put_strings(fd, environment);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	return r < 0 ? r : TAKE_FD(fd);
}

/* @count strings from *@at on, before @end; NULL: there are fewer. */
static char **take_strings(char **at, const char *end, uint32_t count)
{
	char **strings =
		count > (size_t)(end - *at) ? NULL : calloc(count + 1, sizeof(*strings));

	for (uint32_t i = 0; strings && i < count; i++) {
		char *zero = memchr(*at, '\0', (size_t)(end - *at));

		if (!zero) {
			free(strings);
			return NULL;
		}
		strings[i] = *at;
		*at = zero + 1;
	}
	return strings;
}

/* What is read stays for as long as the program lives. */
static int take_from(int fd, size_t size, int *argc, char ***argv)
{
	char *bytes = malloc(size), *at = bytes + sizeof(struct head);
	char **args = NULL, **variables = NULL;
	struct head head;

	if (!bytes || pread(fd, bytes, size, 0) != (ssize_t)size) {
		free(bytes);
		return bytes ? -EIO : -ENOMEM;
	}
	memcpy(&head, bytes, sizeof(head));
	args = take_strings(&at, bytes + size, head.args);
	variables = args ? take_strings(&at, bytes + size, head.variables) : NULL;
	if (!variables) {
		free(args);
		free(bytes);
		return -EBADMSG;
	}
	*argc = (int)head.args;
	*argv = args;
	environ = variables;
	return 0;
}

int settings_take(int *argc, char ***argv)
{
	struct stat st;
	int r;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if ((fcntl(SETTINGS_FD, F_GET_SEALS) & SEALS) != SEALS ||
	    fcntl(SETTINGS_FD, F_GET_SEALS) < 0)
		return 0;
	if (fstat(SETTINGS_FD, &st) < 0 || st.st_size > SETTINGS_MAX ||
	    st.st_size < (off_t)sizeof(struct head))
		return -EBADMSG;
	r = take_from(SETTINGS_FD, (size_t)st.st_size, argc, argv);
	close(SETTINGS_FD);
	return r;
}
