// SPDX-License-Identifier: Apache-2.0
/* launch/startup_names - the names of files that a program outside of the sandbox runs or
 * obeys later, without anybody asking it to. They match in any case of their letters. */
#pragma once

#include <stdbool.h>

#include "base/text.h"

enum { STARTUP_ROW_MAX = 20 }; /* names of one row, with the NULL at the end */

/* A name may say which directories it is in. An asterisk stands for any text: such names
 * are found by a walk alone, the others of a writable directory however full that is. */
struct startup_row {
	const char *why; /* NULL: the table ends */
	const char *names[STARTUP_ROW_MAX];
};

extern const struct startup_row startup_project[];
/* In a git directory, wherever that is: the .git of a checkout, of a submodule, of
 * another working tree, a bare repository. */
extern const struct startup_row startup_git[];
/* Weir's own programs. */
extern const struct startup_row startup_weir[];

/* Why @name, in @directory, is in @table; NULL: it isn't. */
const char *startup_why(const struct startup_row *table, struct text directory,
			const char *name);
/* Why @name, in @directory, stands where startup_project has a directory on the way to
 * one of its names. A link leads elsewhere. Below the first directory of such a name a
 * file does, too: .jj/repo may be one that says where another is. NULL: it leads to none.
 */
const char *startup_why_leading(struct text directory, const char *name, bool is_link);
/* What is left of @wanted, a name of the table, below @name in @directory, where that is
 * one of the directories that @wanted begins with. NULL: it is none. */
const char *startup_rest_below(const char *wanted, struct text directory,
			       const char *name);
/* Why @path, or what it lies in, is in any of the tables. */
const char *startup_why_path(const char *path);
