// SPDX-License-Identifier: Apache-2.0
/* engine/shared - the engine of `weir sidecar`, which guards the network namespace that
 * it lives in itself, together with the app's container, and that of `weir daemon`, which
 * is given any number of sandboxes while it runs.
 *
 * It keeps CAP_NET_ADMIN, which its netlink sockets and the mark of its own packets need,
 * and nothing else. What it has learned is written through to shared memory; should it
 * die, the kernel goes on refusing, and the supervisor's next engine takes that over. */
#pragma once

#include "proto/message.h"

struct shared_config {
	int supervisor_fd; /* SOCK_SEQPACKET */
	bool many;	   /* the daemon's: sandboxes come by IPC_ATTACH, and what follows
			    * here about the one sandbox doesn't count, @filter apart */
	int plan_fd;	   /* sealed memfd */
	int snapshot_fd;   /* memfd of LEARNED_SNAPSHOT_SIZE */
	struct sandbox_fds fds;
	enum ipc_enforced enforce;
	struct filter_shared_params filter; /* generation: whatever */
	const struct endpoint *upstreams;   /* borrowed */
	size_t upstream_count;
	int64_t try_ms, probe_every_ms;
	int64_t repin_ms; /* dns: pinned: how often, where a policy doesn't say */
	struct dns_name probe_name;
	bool restarted; /* an engine was here before: take over what it has learned */
};

/* Fork the engine. It tells the supervisor IPC_STANDS (with @many: IPC_READY) or
 * IPC_FAILED, and waits for its channel to control (IPC_PEER). Return: its pid, or
 * -errno. */
pid_t shared_start(const struct shared_config *config, struct err *err) MUST_CHECK;
