// SPDX-License-Identifier: Apache-2.0
/* store/policy_file - the file that a policy is kept in, changed in two steps so that the
 * kernel's transaction can stand between them.
 *
 *     policy_file_prepare()   the new text, written and synced beside the file
 *     policy_file_commit()    it takes the file's place: rename, or where the file is a
 *                             mount of its own a copy in place
 *     policy_file_abort()     it is forgotten
 *
 * A copy in place that was cut short is told by the copy beside it, which
 * policy_file_read() then takes. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"

enum { POLICY_FILE_MAX = 1 << 20 }; /* bytes; more is -E2BIG */

struct policy_file {
	const char *path; /* borrowed; NULL: nothing is kept, and every call succeeds */
	bool prepared;
};

/* The text, in @arena. -ENOENT: there is none; -EINVAL: no regular file. */
int policy_file_read(const struct policy_file *f, struct arena *arena, struct text *ret,
		     struct err *err) MUST_CHECK;
int policy_file_prepare(struct policy_file *f, struct text text,
			struct err *err) MUST_CHECK;
int policy_file_commit(struct policy_file *f, struct err *err) MUST_CHECK;
void policy_file_abort(struct policy_file *f);
