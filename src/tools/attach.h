// SPDX-License-Identifier: Apache-2.0
/* tools/attach - the verbs that talk to `weir daemon`: attach, detach, ps, status, and of
 * policy set, patch and show. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

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

int cli_status(int argc, char **argv);
void cli_status_usage(FILE *out);
extern const struct cli_options cli_status_options;

/* tools/policy_set.c: "set" replaces the policy of sandbox @id by that of @file, "patch"
 * puts its rules in front, "show" prints it as JSON, as "set" reads it. @socket NULL: as
 * client_ask() has it. */
int cli_daemon_policy_set(const char *socket, const char *id, const char *file);
int cli_daemon_policy_patch(const char *socket, const char *id, const char *file);
int cli_daemon_policy_show(const char *socket, const char *id);
