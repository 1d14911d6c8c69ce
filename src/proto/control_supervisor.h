// SPDX-License-Identifier: Apache-2.0
/* proto/control_supervisor - what control and the supervisor of a sidecar or a daemon say
 * to each other, and what the daemon's engines' supervisors say to the first of them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

enum ipc_control_supervisor {
	/* -- control to supervisor -- */
	/* with the plan and the text that made it: this is in force now. IPC_KEPT back */
	IPC_KEEP = 0x300,
	/* the engine does not answer: it needs a successor. With an engine's number: its
	 * daemon does not answer */
	IPC_STUCK,
	/* have a socket_owner started (proto/socket_owner.h). Back, if there is one: a
	 * descriptor, the channel to it */
	IPC_SOCKET_OWNER,

	/* -- control to daemon; IPC_DETACH and IPC_KEEP, with the sandbox, as well -- */
	/* with `attached`, plan and text: IPC_ATTACHED back, or IPC_REFUSED with text */
	IPC_ADD,
	/* with `sandbox` and `attached`: is it that one, and guarded? IPC_ATTACHED back,
	 * as soon as it stands, or IPC_REFUSED with text */
	IPC_AGAIN,
	/* the first one with an id above `sandbox`. IPC_LISTED back, with `attached` and
	 * a descriptor, its text; sandbox 0: there is none */
	IPC_LIST,
	/* what goes round the filter of that sandbox? IPC_AUDITED back, with `audit` */
	IPC_AUDIT,
	/* it was closed for good: kill what lives in its cgroup, if it has one. Nothing
	 * comes back */
	IPC_STOP,
	/* to any daemon, with `attached`: which namespace is meant? IPC_WHO back, with
	 * `attached`, or IPC_REFUSED with text */
	IPC_WHO,
	/* to the first daemon: another engine is wanted. IPC_MORE back, after IPC_ENGINE;
	 * or IPC_REFUSED with text */
	IPC_MORE,

	/* -- supervisor to control -- */
	IPC_KEPT,
	IPC_WEBHOOK, /* a descriptor, the channel to weir-webhook */

	/* -- daemon to control -- */
	IPC_ATTACHED,
	IPC_LISTED,
	IPC_AUDITED,
	IPC_GONE,     /* it ended by itself; text: why */
	IPC_HAPPENED, /* something has happened to it, text says what: an event */
	/* in the place of IPC_REFUSED: this engine has no room; text: why */
	IPC_FULL,
	/* first daemon: a descriptor, the channel to the daemon of another engine, whose
	 * number is `sandbox`; status.restarts: of that daemon */
	IPC_ENGINE,

	/* -- a daemon's process in a namespace to the daemon -- */
	IPC_SOCKETS,	  /* with what it has opened there. IPC_RUN back */
	IPC_SOCKETS_DONE, /* its copies of them are closed */
};

/* What an operator says of a sandbox. */
enum {
	IPC_SANDBOXES_MAX =
		65535,	       /* of one engine: ids have 16 bits, and 0 is nobody's */
	IPC_ENGINES_MAX = 64,  /* of one daemon */
	IPC_ENGINE_SHIFT = 16, /* control's ids have the engine's number above that */
	IPC_SANDBOX_NAME_MAX = 63,
	IPC_SANDBOX_WHERE_MAX = 255,
};
/* What a sandbox's name has to be; it stands in paths. */
#define IPC_SANDBOX_NAME_RULE                                                            \
	"a sandbox's id is up to 63 letters, digits, '-', '_' and '.', and doesn't "     \
	"begin with '.'"
static inline bool ipc_is_sandbox_name(const char *name)
{
	return name[0] != '.' && text_is_name(name, IPC_SANDBOX_NAME_MAX);
}

struct ipc_sandbox {
	char name[IPC_SANDBOX_NAME_MAX + 1];
	char where[IPC_SANDBOX_WHERE_MAX + 1]; /* a path, a number */
	uint8_t kind;			       /* enum attach_kind */
	/* enum member_kind of a ATTACH_HOST: a cgroup, @where is its path below
	 * the hierarchy's root; or a user id, a number. Control may ask for a cgroup by
	 * its directory and for a user by name: the answer says what was meant */
	uint8_t member;
	bool guard_parent; /* of a cgroup: its parent is closed to whom nobody knows */
	/* ATTACH_NETNS: which one it is. IPC_ADD with 0: any that is there */
	uint64_t ns_dev, ns_ino;
	/* IPC_ADD: in all engines below this one nobody else has the name, not even from
	 * before */
	uint32_t engines;
};

/* Sockets that somebody has open in a namespace. */
struct ipc_audit {
	bool known;	  /* it could be seen */
	bool packet, raw; /* AF_PACKET, SOCK_RAW */
	bool unseen;	  /* whether what is guarded is gone can't be seen */
	uint64_t network; /* for the daemon: see tasks_own_network() */
	/* Of a ATTACH_HOST */
	bool waiting;	  /* its cgroup is gone, and guarded when it comes again */
	uint32_t strays;  /* sockets that its processes have from outside: not guarded */
	int32_t stray_of; /* one of those processes */
};
