// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#include "daemon/internal.h"

/* Among the machine's own users: other sources of names may take long to ask, and what
 * is guarded must not wait for them. `weir attach` asks all. */
static int find(const char *name, uint32_t *ret)
{
	FILE *file = fopen("/etc/passwd", "re");
	const struct passwd *p;
	int r = -ENOENT;

	if (!file)
		return -errno;
	while (r < 0 && (p = fgetpwent(file))) {
		if (strcmp(p->pw_name, name) != 0)
			continue;
		*ret = p->pw_uid;
		r = 0;
	}
	fclose(file);
	return r;
}

int daemon_sandbox_user(struct ipc_sandbox *spec, struct err *err)
{
	char shown[TEXT_ESCAPED_SIZE];
	uint32_t uid = 0;

	if (spec->kind != ATTACH_HOST || spec->member != FILTER_MEMBER_UID ||
	    text_to_u32(text_of(spec->where), UINT32_MAX - 1, &uid))
		return 0;
	if (find(spec->where, &uid) < 0)
		return err_set(err, -ENOENT, "there is no user '%.80s' in /etc/passwd",
			       text_escape(text_of(spec->where), shown, sizeof(shown)));
	if (uid == 0)
		return err_set(err, -EINVAL, "root is not a user to be guarded");
	snprintf(spec->where, sizeof(spec->where), "%u", uid);
	return 0;
}
