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

/* policy_import.c: print the policy that another tool's settings in @path are; faults go
 * to stderr, each with its place. Nothing is printed if there was an error. @from: whose
 * settings; NULL: by what is in them. @place: of several places that one, or NULL.
 * @any_depth: names one label below a domain may become names of any depth. Return: 0,
 * -EINVAL, or another -errno. */
int cli_policy_import(const char *path, const char *from, const char *place,
		      bool any_depth, FILE *out);

/* attach.c: replace the policy of sandbox @id by that of @file, or (@patch) put its
 * rules in front; or print it as JSON. @socket NULL: as client_ask() has it. */
int cli_daemon_policy_change(const char *socket, const char *id, const char *file,
			     int64_t for_ms, bool patch);
int cli_daemon_policy_show(const char *socket, const char *id);

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
