// SPDX-License-Identifier: Apache-2.0
/* cli/render - `weir render` and `weir teardown`: a policy as nft rules for a cgroup or a
 * user of this host, without a process that keeps them. */
#pragma once

#include <stdio.h>

#include "cli/options.h"
#include "policy/policy.h"

/* Resolve a policy's names once, in a process that can open nothing. What it says is
 * checked by whoever asked. */
struct render_names {
	const struct plan *plan;
	const struct endpoint *upstreams;
	size_t upstream_count;
	void *data;
	void (*on_addr)(void *data, const struct dns_name *name, const struct addr *a);
	/* @name has no address, or not all that it could have: @why. */
	void (*on_fault)(void *data, const struct dns_name *name, const char *why,
			 bool has_some);
};
typedef int render_resolve_fn(const struct render_names *names, struct err *err);

/* Return: the exit status. */
int cli_render(int argc, char **argv, render_resolve_fn *resolve);
void cli_render_usage(FILE *out);
extern const struct cli_options cli_render_options;

int cli_teardown(int argc, char **argv);
void cli_teardown_usage(FILE *out);
