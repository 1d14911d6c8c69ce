// SPDX-License-Identifier: Apache-2.0
/* launch/secret - does a variable, or a file, look as if it had a secret?
 *
 * By its name or by its value: profiles/environment.txt says which, and why. */
#pragma once

#include <stdbool.h>

#include "base/text.h"

/* Does @value, of the variable @name, look like a secret? */
bool secret_is_variable(struct text name, const char *value);

/* Has it a URL with a user's password or token? */
bool secret_has_user_info(const char *value);
