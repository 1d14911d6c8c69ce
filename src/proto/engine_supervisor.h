// SPDX-License-Identifier: Apache-2.0
/* proto/engine_supervisor - what an engine and whoever started it say to each other: the
 * supervisor of a sidecar or a daemon; `weir run`, which is control as well; the launch
 * child of `weir run`, which gives the engine its sandbox. */
#pragma once

#include "base/addr.h"
#include "base/err.h"
#include "base/member.h"
#include "sys/sock.h"

enum ipc_engine_supervisor {
	/* -- supervisor to engine -- */
	/* `attach`, with descriptors; from the launch child, too. IPC_ACTIVE back, or
	 * IPC_REFUSED with text: rules may stand then, and nothing is served. Of a
	 * ATTACH_HOST that the engine has under that id the cgroup was made again: what
	 * comes takes its place in one transaction */
	IPC_ATTACH = 0x100,
	/* with `host`, before the first sandbox of the host's own namespace: the table's
	 * netlink socket, what is served there, and a second netlink socket, for
	 * conntrack. Nothing comes back. */
	IPC_HOST,
	/* all that were guarded before have been given; the host's table is to take the
	 * place of whatever stands. IPC_HOST_ACTIVE back */
	IPC_HOST_LOAD,
	/* `weir run`: send IPC_COUNTERS and leave */
	IPC_FINISH,
	/* IPC_DETACH, IPC_RUN, IPC_PEER, IPC_ALIVE: proto/message.h */

	/* -- engine to supervisor -- */
	IPC_READY, /* confined and waiting; text: what could not be confined, or "" */
	/* the names of a sandbox's policy (dns: pinned) were resolved for the first time,
	 * and its self-test was over; text: which one that has to be is not, or "" */
	IPC_PINNED,
	IPC_HOST_ACTIVE, /* text: why the host's table doesn't, or "" */
	/* IPC_ACTIVE, IPC_REFUSED, IPC_DETACHED, IPC_FAILED: proto/message.h */

	/* -- engine to `weir run`; IPC_EVENT as well -- */
	IPC_WARNING, /* text: for a person; the engine goes on */
	IPC_COUNTERS,
};

/* How a sandbox is recognised. */
enum attach_kind {
	ATTACH_NONE = 0,
	ATTACH_OWNED,  /* a namespace of `weir run` */
	ATTACH_SHARED, /* the namespace that Weir lives in itself: `weir sidecar` */
	ATTACH_NETNS,  /* somebody else's namespace; Weir stays outside */
	ATTACH_HOST,   /* in the host's own: a cgroup or a user id */
	ATTACH_KIND_COUNT
};

struct ipc_attach {
	uint8_t kind;	/* enum attach_kind */
	bool restarted; /* an engine was here before: take over what it has learned */
	bool remade;	/* ATTACH_HOST, restarted: as another cgroup, which has learned
			   nothing; what was counted goes on */
	bool forget;	/* IPC_DETACH: the rules are gone, or stay: don't touch them */
	bool ipv6;	/* ATTACH_OWNED: the namespace has IPv6 */
	bool owner;	/* ATTACH_OWNED: its table is owner|persist */
	/* The self-test's, until IPC_RUN: what the engine answers by itself. "": none */
	char probe_name[128];
	struct addr probe_addr;
	uint16_t probe_port;
	struct member member; /* whom an ATTACH_HOST is about */
};

/* The host's listeners, on 127.0.0.1 and ::1. */
struct ipc_host {
	uint16_t dns_port, relay_port;
};

/* How much of a sidecar's policy the kernel holds. */
enum ipc_enforced {
	ENFORCED_NOTHING = 0, /* no rule: DNS answers, and denies everything */
	ENFORCED_REDIRECT,    /* DNS alone */
	ENFORCED_FILTER,
	ENFORCED_COUNT
};

/* What is in force. Control hears it, too: from the engine, and from the supervisor. */
struct ipc_status {
	uint32_t generation; /* 0: no filter */
	uint32_t adopted;    /* learned addresses taken over from the engine before */
	uint32_t restarts;   /* of the engine; the supervisor fills it in */
	uint64_t plan_id;    /* plan_file_id() of what it enforces */
	uint8_t enforced;    /* enum ipc_enforced */
	bool nflog;	     /* refused packets are seen */
	char lacking[ERR_TEXT_SIZE]; /* what could not be confined, or "" */
	/* Why less is enforced than was asked for, or "". The supervisor fills it in. */
	char weaker[ERR_TEXT_SIZE];
};

/* The descriptors of a sandbox, or of the host's network: -1 where there is none. */
enum ipc_fd {
	/* from 0 on: enum sandbox_fd */
	IPC_FD_ROUTE = SANDBOX_FD_COUNT, /* ATTACH_NETNS: a route socket in there */
	IPC_FD_PLAN,			 /* a sealed memfd */
	IPC_FD_SNAPSHOT,		 /* a file of LEARNED_SNAPSHOT_SIZE */
	IPC_FD_CONNTRACK,		 /* of the host: a netlink socket */
	IPC_FD_COUNT
};
struct ipc_fds {
	int fd[IPC_FD_COUNT];
};
