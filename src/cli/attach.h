// SPDX-License-Identifier: Apache-2.0
/* cli/attach - the verbs that talk to `weir daemon`: attach, detach, ps, and of policy
 * set and patch. */
#pragma once

#include <stdio.h>

#include "cli/options.h"

/* @argv[0] is the verb. Return: the exit status. */
int cli_attach(int argc, char **argv);
void cli_attach_usage(FILE *out);
extern const struct cli_options cli_attach_options;

int cli_detach(int argc, char **argv);
void cli_detach_usage(FILE *out);
extern const struct cli_options cli_detach_options;

int cli_ps(int argc, char **argv);
void cli_ps_usage(FILE *out);
extern const struct cli_options cli_ps_options;

/* cli/daemon_policy.c: "set" replaces the policy of sandbox @id by that of @file, "patch"
 * puts its rules in front. */
int cli_daemon_policy_set(const char *id, const char *file);
int cli_daemon_policy_patch(const char *id, const char *file);
