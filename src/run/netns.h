// SPDX-License-Identifier: Apache-2.0
/* run/netns - what the launch child does in its new network namespace, before anything
 * of the command's exists: link, sockets, ruleset, and the hand-over to the engine. */
#pragma once

#include "filter/ruleset.h"
#include "policy/plan.h"
#include "run/uplink.h"

struct inside {
	const struct plan *plan;
	int engine_fd; /* SOCK_SEQPACKET to the engine */
	/* The engine's ends of its channels, inherited: held open here they would hide
	 * its death. */
	int far_ends[2];
	int report_fd; /* to control: it hears about the sockets here; -1: nobody asks */
	struct filter_params filter; /* but ipv6 */
	enum uplink_kind uplink;     /* serves a link, or none does */
	bool uplink_ipv6;
};

/* For struct launch_spec.prepare; @data is a struct inside. */
int inside_prepare(void *data, struct err *err) MUST_CHECK;

/* For struct launch_spec.confirm. Returns 0 once the engine has read the filter back and
 * serves the sandbox, and the uplink's link is up. */
int inside_confirm(void *data, struct err *err) MUST_CHECK;
