// SPDX-License-Identifier: Apache-2.0
/* tools/policy_import - the allow and deny lists of other tools' settings as a policy.
 *
 * What it knows, in YAML or JSON, wherever it stands in the file:
 *
 *     network: {allowedDomains: [...], deniedDomains: [...]}    (also below `sandbox`)
 *     allowed-endpoints: "host:port host:port"                  (or a list of these)
 *
 * Whatever else a file says is not about this, and left alone; what stands in a
 * `network` beside the lists and can't be said in a policy is an error, and so is a
 * second place with lists: whose would the policy be? */
#pragma once

#include <stdio.h>

/* Print the policy of @path to @out; faults go to stderr, each with its place. Nothing is
 * printed unless all of it could be. Return: 0, -EINVAL, or another -errno. */
int cli_policy_import(const char *path, FILE *out);
