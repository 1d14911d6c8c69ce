// SPDX-License-Identifier: Apache-2.0
/* engine/engine - the process that serves sandboxes: DNS, learned addresses, the filter's
 * sets, the relay, NFLOG, in one thread on one event loop.
 *
 * Its descriptors were made inside the sandboxes' network namespaces and are served from
 * outside. `weir run` and `weir sidecar` give it one sandbox, which never leaves;
 * `weir daemon` any number of them while it runs. Where a namespace belongs to root the
 * engine keeps CAP_NET_ADMIN, which its netlink sockets and the mark of its own packets
 * need, and nothing else. Should it die, the kernel goes on refusing; what was learned is
 * in shared memory, for the next engine of a sidecar or a daemon. */
#pragma once

#include "dns/name.h"
#include "filter/ruleset.h"
#include "proto/message.h"

struct engine_config {
	/* SOCK_SEQPACKET to whoever started the engine. Of `weir run` it is control as
	 * well: events go here */
	int supervisor_fd;
	/* ATTACH_OWNED: SOCK_SEQPACKET to the launch child, which sends IPC_ATTACH; -1 */
	int attach_fd;
	/* Of the one sandbox; kind ATTACH_NONE: any number come over supervisor_fd.
	 * ATTACH_SHARED: it is attached at once. ATTACH_OWNED: what the launch child has
	 * made in the namespace is added: descriptors, `owner`, and `ipv6`, if it is set
	 * here, which says that the host has a way out for it */
	struct ipc_attach attach;
	struct ipc_fds fds; /* of it, as far as they are here: its plan at least */
	enum ipc_enforced enforce;
	struct filter_shared_params
		filter; /* all but ATTACH_OWNED. generation: whatever */
	struct filter_params owned_filter; /* but ipv6 */
	int64_t evaluated_ms; /* ATTACH_OWNED: the wall clock by which the launch child's
			       * ruleset has or hasn't the rules that end */
	const struct endpoint *upstreams; /* borrowed */
	size_t upstream_count;
	int64_t try_ms, probe_every_ms;
	int64_t repin_ms; /* dns: pinned: how often, where a policy doesn't say */
	struct dns_name probe_name; /* that upstream servers are asked for */
};

/* Fork the engine. Once it is confined it tells the supervisor IPC_READY, or IPC_ACTIVE
 * of an ATTACH_SHARED, or IPC_FAILED. Return: its pid, or -errno. */
pid_t engine_start(const struct engine_config *config, struct err *err) MUST_CHECK;
