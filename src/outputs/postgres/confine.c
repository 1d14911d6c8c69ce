// SPDX-License-Identifier: Apache-2.0
#include "outputs/postgres/confine.h"

#include <errno.h>

#include "sys/confine.h"

int confine(const char *directory, struct err *err)
{
	/* Certificates and password files may be anywhere. */
	const struct landlock_path paths[] = { { .path = "/", .write = false },
					       { .path = directory, .write = true } };
	int r = confine_rights(0, err);

	if (r < 0)
		return r;
	r = landlock_enter(paths, ARRAY_SIZE(paths));
	if (r < 0 && r != -EOPNOTSUPP)
		return err_sys(err, r, "cannot cut file access by Landlock");
	return confine_calls(CONFINE_POSTGRES, err);
}
