// SPDX-License-Identifier: Apache-2.0
/* tools/tools - the verbs that are no product. Each gets its command line, with @argv[0]
 * the verb, and returns the exit status: 0; 1 where the answer is no; 2 for what was
 * asked wrongly; 125 for a failure. Those of weir-events are in tools/events.h. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

/* What talks to `weir daemon`. */
int cli_attach(int argc, char **argv);
extern const struct cli_options cli_attach_options;

int cli_detach(int argc, char **argv);
extern const struct cli_options cli_detach_options;

int cli_ps(int argc, char **argv);
extern const struct cli_options cli_ps_options;

int cli_status(int argc, char **argv);
extern const struct cli_options cli_status_options;

/* Policies, and profiles, which are policies that others extend. */
#define CLI_POLICY_WORDS "check|explain|show|diff|import|set|patch"
int cli_policy(int argc, char **argv);
extern const struct cli_options cli_policy_options;

#define CLI_PROFILE_WORDS "list|show"

int cli_profile(int argc, char **argv);
extern const struct cli_options cli_profile_options;

/* Kubernetes workloads, with the sidecar in them. */
extern const struct cli_options cli_inject_options;
int cli_inject(int argc, char **argv);

/* A policy as nft rules for a cgroup or a user of this host, without a process that keeps
 * them; and taking them away. */
int cli_render(int argc, char **argv);
extern const struct cli_options cli_render_options;

int cli_teardown(int argc, char **argv);
extern const struct cli_options cli_teardown_options;
