// SPDX-License-Identifier: Apache-2.0
/* proto/settings_daemon - the options of `weir daemon`: those of `weir sidecar` that mean
 * something for a whole host, and its own. */
#pragma once

#include "proto/settings.h"

#define CLI_DAEMON_SOCKET  "/run/weir/weir.sock"
#define CLI_DAEMON_RUN_DIR "/run/weir"

enum { CLI_DAEMON_ENGINES_MAX = 64 };

/* @argv[0] is "daemon". Return: 0, or -EINVAL with @err; what else is wrong has been
 * printed before. */
int cli_daemon_parse(int argc, char **argv, struct sidecar_spec *ret,
		     struct err *err) MUST_CHECK;
/* The same for weir-control and its like, which are started with the words of the one or
 * the other: a daemon's begin with "daemon". */
int cli_helper_parse(int argc, char **argv, bool *ret_daemon, struct sidecar_spec *ret,
		     struct err *err) MUST_CHECK;
void cli_daemon_usage(FILE *out);
extern const struct cli_options cli_daemon_options;
