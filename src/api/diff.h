// SPDX-License-Identifier: Apache-2.0
/* api/diff - what a change of a policy adds and takes away, for somebody to see before it
 * is made. */
#pragma once

#include "base/jansson.h"
#include "opensandbox/document.h"

/* ["- {\"defaultAction\":\"deny\"}", "- {\"action\":\"deny\",…}", "+ {…}"]: first the
 * other keys, then the rules, taken away before added; a rule that stands at another
 * place is both. Owned by the caller; NULL without memory. */
json_t *document_diff(const struct document *old, const struct document *next);
