// SPDX-License-Identifier: Apache-2.0
/* directory_end - directories that can't be read to their end. For one file of a test
 * that is linked with --wrap=directory_next. */
#pragma once

#include <errno.h>

#include "sys/files.h"

static int directory_end; /* errno at the end of each; 0: as it is */

const struct dirent *__real_directory_next(DIR *dir);
const struct dirent *__wrap_directory_next(DIR *dir);

const struct dirent *__wrap_directory_next(DIR *dir)
{
	const struct dirent *e = __real_directory_next(dir);

	if (!e && directory_end != 0)
		errno = directory_end;
	return e;
}
