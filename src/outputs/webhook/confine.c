// SPDX-License-Identifier: Apache-2.0
#include "outputs/webhook/confine.h"

#include <errno.h>
#include <sys/resource.h>

#include "sys/confine.h"

enum { FILES_MAX = 64 };

int confine(struct err *err)
{
	const struct rlimit files = { FILES_MAX, FILES_MAX };
	int r;

	if (setrlimit(RLIMIT_NOFILE, &files) < 0)
		return err_sys(err, -errno, "cannot confine the program");
	r = confine_rights(0, err);
	return r < 0 ? r : confine_calls(CONFINE_WEBHOOK, err);
}
