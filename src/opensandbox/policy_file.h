// SPDX-License-Identifier: Apache-2.0
/* opensandbox/policy_file - the file that a policy is kept in, changed in two steps so
 * that the kernel's transaction can stand between them.
 *
 *     policy_file_prepare()   the new text, written and synced beside the file
 *     policy_file_commit()    it takes the file's place: rename, or where that can't be
 *                             (the file is a mount of its own, nothing can be made
 *                             beside it, it has other names, its owner can't be kept) a
 *                             copy in place
 *     policy_file_abort()     it is forgotten
 *     policy_file_resume()    what a process that died between the two has left
 *
 * HOW IT WORKS
 * Beside the file FILE stands .FILE.weir-new from prepare on. Before a copy in place it
 * becomes .FILE.weir-commit, which says: decided, and whole. Whoever then reads finds
 * that first, finishes the copy and takes it away. A .FILE.weir-new that is found was
 * never decided. Where nothing can be made beside the file both stand in `spare_dir`;
 * without one a copy in place writes all bytes in one call and shortens the file behind
 * them, so that a kill leaves the old or the new text, but a power cut may leave neither.
 *
 * A symbolic link in the file's place is followed by a reader, as Kubernetes has them in
 * its volumes, and refused by a writer: to write through it or to replace it would both
 * surprise. The file's mode stays; a new one has 0600. */
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/text.h"

enum { POLICY_FILE_MAX = 1 << 20 }; /* bytes; more is -E2BIG */

struct policy_file {
	const char *path; /* borrowed; NULL: nothing is kept, and every call succeeds */
	const char *spare_dir; /* borrowed; NULL: none */
	/* Commands of the same user may make files beside it, as in a directory that
	 * sandboxes write to: what says there that it was decided is not believed. */
	bool is_shared;
	bool prepared;
	/* While it is prepared: */
	char *text; /* owned */
	size_t size;
	bool in_place; /* a rename would change more than the text */
	bool spare;    /* what is beside the file elsewhere, is in spare_dir */
	bool alone;    /* it is nowhere */
};

/* The text, in @arena. -ENOENT: there is none; -EINVAL: no regular file. */
int policy_file_read(const struct policy_file *f, struct arena *arena, struct text *ret,
		     struct err *err) MUST_CHECK;
int policy_file_prepare(struct policy_file *f, struct text text,
			struct err *err) MUST_CHECK;
/* On failure the file is as it was, and nothing is prepared any more. */
int policy_file_commit(struct policy_file *f, struct err *err) MUST_CHECK;
void policy_file_abort(struct policy_file *f);
/* Another process prepared @text, which is in force, and ended before it committed:
 * finish that. What was left of any other text is not looked at. */
int policy_file_resume(struct policy_file *f, struct text text,
		       struct err *err) MUST_CHECK;
