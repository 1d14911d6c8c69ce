// SPDX-License-Identifier: Apache-2.0
/* filter/text - the second back end: a ruleset as text for nft(8), for hosts that load it
 * by themselves. What the kernel holds afterwards is what filter/install loads, but that
 * nobody owns the table. */
#pragma once

#include <stdio.h>

#include "base/macros.h"
#include "filter/ruleset.h"

/* Write the table, called @table: first taken away, if it is there, then made anew, so
 * that `nft -f` puts it in its own place in one transaction.
 * Return: 0, -EOPNOTSUPP (there is no text for a statement of @rs: nothing of use was
 * written) or -EIO. */
int filter_text(const struct ruleset *rs, const char *table, FILE *out) MUST_CHECK;
