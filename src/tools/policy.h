// SPDX-License-Identifier: Apache-2.0
/* tools/policy - the words of `weir policy`, for policy.c. */
#pragma once

#include <stdio.h>

#include "policy/explain.h"
#include "policy/load.h"
#include "policy/plan.h"
#include "sys/options.h"

/* tools/policy_import.c: print the policy that another tool's settings in @path are;
 * faults go to stderr, each with its place. Nothing is printed if there was an error.
 * @from: whose settings; NULL: by what is in them. @place: of several places that one, or
 * NULL. @any_depth: names one label below a domain may become names of any depth.
 * Return: 0, -EINVAL, or another -errno. */
int cli_policy_import(const char *path, const char *from, const char *place,
		      bool any_depth, FILE *out);

/* tools/attach.c: replace the policy of sandbox @id by that of @file, or (@patch) put its
 * rules in front; or print it as JSON. @socket NULL: as client_ask() has it. */
int cli_daemon_policy_change(const char *socket, const char *id, const char *file,
			     int64_t for_ms, bool patch);
int cli_daemon_policy_show(const char *socket, const char *id);
