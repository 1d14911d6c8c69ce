// SPDX-License-Identifier: Apache-2.0
/* api/diff - what a change of a policy's rules adds and takes away, for somebody to see
 * before it is made. */
#pragma once

#include <jansson.h>

#include "policy/document.h"

/* ["- {\"action\":\"deny\",…}", "+ {…}"]: rules as they are shown, taken away before
 * added. Owned by the caller; NULL without memory. */
json_t *document_diff(const struct document *old, const struct document *next);
