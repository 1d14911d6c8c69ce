// SPDX-License-Identifier: Apache-2.0
/* proto/engine_control - what an engine and control say to each other. Control can change
 * policies and ask for counters; it can attach and detach nothing. What the engine says
 * may be made of hostile bytes: ipc_sanitize(). */
#pragma once

#include "base/addr.h"
#include "event/event.h"

enum ipc_engine_control {
	/* -- control to engine; the answer comes before anything else is asked -- */
	/* a descriptor: the plan. IPC_CHANGED back, or IPC_UNCHANGED */
	IPC_CHANGE = 0x200,
	IPC_STATS, /* IPC_STATS back; of the daemon's engine with sandbox 0: their sum */
	/* a socket that the filter exempts: IPC_SOCKET back, with the descriptor or
	 * `socket.error` */
	IPC_SOCKET,
	IPC_SOCKET_DONE, /* it is not used any more; nothing comes back */
	/* what was refused to the sandboxes above `sandbox`? The same back, with `denies`
	 * of the first ones and `sandbox`, the last of them; 0: there are no more */
	IPC_DENIES,
	/* nobody grants what `dismissed` says: what asks for it is refused; nothing
	 * comes back */
	IPC_DISMISS,

	/* -- engine to control -- */
	IPC_CHANGED,   /* status */
	IPC_UNCHANGED, /* text: why; everything is as it was */
	IPC_EVENT,     /* to `weir run` as well */
	IPC_TROUBLE,   /* an upstream server */
	IPC_ANSWERED,  /* a name was answered with addresses */
		       /* IPC_ACTIVE: proto/message.h */
};

/* Room for enum sandbox_counter; the last ones are 0. */
enum { IPC_COUNTERS_MAX = 32 };

struct ipc_stats {
	uint64_t counters[IPC_COUNTERS_MAX];
	uint64_t names, addresses;
	uint32_t generation;
	uint32_t adopted; /* learned addresses taken over from the engine before */
	uint64_t plan_id; /* plan_file_id() of what is enforced */
	bool ipv6;
	bool nflog;	    /* refused packets are seen */
	bool snapshot_full; /* of what was learned not all outlives the engine */
};

enum { IPC_DENIES_MAX = 48 };
struct ipc_denies {
	uint32_t count;
	struct {
		uint32_t sandbox;
		uint64_t denies; /* queries, flows and packets */
	} of[IPC_DENIES_MAX];
};

struct ipc_socket {
	uint8_t family;	  /* enum addr_family */
	uint8_t protocol; /* IPPROTO_TCP or IPPROTO_UDP */
	uint16_t port;
	int32_t error; /* 0 or -errno */
};

/* Something that a sandbox asks for (EVENT_ASK). */
struct ipc_dismissed {
	char destination[EVENT_NAME_SIZE]; /* a name or an address */
	uint8_t protocol;		   /* 0: any */
	uint16_t port;			   /* 0: any */
};

enum { IPC_ANSWERED_MAX = 16 };
struct ipc_answered {
	char name[EVENT_NAME_SIZE];
	struct addr addrs[IPC_ANSWERED_MAX]; /* the first of them */
	uint32_t count;
};
