// SPDX-License-Identifier: Apache-2.0
#include "tools/oci_state.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"

enum {
	STATE_MAX = 1024 * 1024, /* bytes; more is no state */
	SHORT_ID = 12,
};

/* Return: its length, or -errno; -E2BIG. */
static ssize_t read_all(int fd, char *bytes, size_t size)
{
	size_t used = 0;
	ssize_t n;

	do {
		n = read(fd, bytes + used, size - used);
		if (n < 0 && errno != EINTR)
			return -errno;
		used += n > 0 ? (size_t)n : 0;
	} while (n != 0 && used < size);
	return used < size ? (ssize_t)used : -E2BIG;
}

static int unpack(const json_t *j, struct oci_state *ret, struct err *err)
{
	const char *id = json_string_value(json_object_get(j, "id"));
	json_int_t pid = json_integer_value(json_object_get(j, "pid"));
	size_t len = id ? strlen(id) : 0;

	if (len == 0 || pid <= 0 || pid > INT_MAX)
		return err_set(err, -EBADMSG,
			       "standard input is not the state of a container that is "
			       "being created: it has no id, or no pid");
	if (len > SHORT_ID && strspn(id, "0123456789abcdef") == len)
		len = SHORT_ID;
	if (len >= sizeof(ret->id))
		return err_set(err, -EBADMSG, "the container's id is longer than %zu",
			       sizeof(ret->id) - 1);
	snprintf(ret->id, sizeof(ret->id), "%.*s", (int)len, id);
	snprintf(ret->pid, sizeof(ret->pid), "%d", (int)pid);
	return 0;
}

int oci_state_read(int fd, struct oci_state *ret, struct err *err)
{
	CLEAN(mem) char *bytes = malloc(STATE_MAX);
	ssize_t size = bytes ? read_all(fd, bytes, STATE_MAX) : -ENOMEM;
	json_error_t why;
	json_t *j;
	int r;

	if (size < 0)
		return err_sys(err, (int)size, "cannot read a container's state");
	j = json_loadb(bytes, (size_t)size, 0, &why);
	r = unpack(j, ret, err);
	json_decref(j);
	return r;
}
