// SPDX-License-Identifier: Apache-2.0
/* engine/engine - the process that serves the sandbox: DNS, learned addresses, the
 * filter's sets, the relay, NFLOG, in one thread on one event loop.
 *
 * Its descriptors were made inside the sandbox's network namespace and are served from
 * outside; it can't enter the namespace and the sandbox can't reach it. */
#pragma once

#include "proto/message.h"

struct engine_config {
	int control_fd; /* SOCK_SEQPACKET to control */
	int launch_fd;	/* SOCK_SEQPACKET to the launch child: IPC_HANDOVER comes here */
	int plan_fd;	/* sealed memfd */
	const struct endpoint *upstreams;
	size_t upstream_count;
	struct filter_params filter; /* but ipv6: the hand-over says */
	int64_t repin_ms; /* dns: pinned: how often, where the policy doesn't say */
	bool ipv6_out;	  /* the host has a way out for IPv6: AAAA is served */
	struct dns_name probe_name; /* the self-test's */
	struct endpoint probe;
};

/* Fork the engine. It sends IPC_READY once it is confined, then waits for the
 * hand-over. Return: its pid, or -errno. */
pid_t engine_start(const struct engine_config *config, struct err *err) MUST_CHECK;
