// SPDX-License-Identifier: Apache-2.0
/* proto/message - what Weir's processes say to each other: fixed-size messages over
 * SOCK_SEQPACKET, descriptors beside them.
 *
 * `weir run`: control, the launch child, the engine. `weir sidecar`: the supervisor, the
 * engine and control, each pair of them with a channel; when one of the two is replaced,
 * the supervisor hands the other a fresh one (IPC_PEER). `weir daemon` is the same with a
 * daemon as the supervisor, and with many sandboxes: messages say which one they are
 * about, by its number in that engine. Control has such a pair of channels for each
 * engine.
 */
#pragma once

#include "resolver/dns_service.h"
#include "sandbox/sandbox.h"
#include "sys/sock.h"

enum ipc_type {
	IPC_NONE = 0,
	/* a daemon's process in a namespace to the daemon, with what it has opened there
	 */
	IPC_SOCKETS,
	/* engine to launch child; to the supervisor and control of a sidecar, with
	 * `standing`
	 */
	IPC_STANDS,  /* the filter was read back, DNS and relay are served */
	IPC_REFUSED, /* text: why */
	/* control to engine */
	IPC_RUN, /* the self-test has passed: from now on denials are events. The daemon's
		  * engine hears it from the daemon, for one sandbox, and answers nothing
		  */
	IPC_FINISH, /* send IPC_COUNTERS and leave */
	/* engine to control */
	IPC_READY,   /* confined and waiting; text: what could not be confined, or "" */
	IPC_RUNNING, /* the answer to IPC_RUN */
	IPC_EVENT,
	IPC_COUNTERS,
	IPC_FAILED,  /* text: why; the engine leaves */
	IPC_WARNING, /* text: for a person; the engine goes on */

	/* -- of the sidecar -- */
	/* supervisor to engine and control: a descriptor, the channel to the other one */
	IPC_PEER,
	/* control to engine; the answer comes before anything else is asked */
	IPC_CHANGE, /* a descriptor: the plan. IPC_CHANGED, or IPC_UNCHANGED with text */
	IPC_STATS,  /* IPC_STATS back; of the daemon's engine with sandbox 0: their sum */
	IPC_SOCKET, /* a socket that the filter exempts: IPC_SOCKET back, with the
		     * descriptor or `socket.error` */
	IPC_SOCKET_DONE, /* it is not used any more; nothing comes back */
	/* engine to control */
	IPC_CHANGED,   /* standing */
	IPC_UNCHANGED, /* text: why; everything is as it was */
	IPC_TROUBLE,   /* an upstream server */
	IPC_ANSWERED,  /* a name was answered with addresses */
	/* supervisor to control: a descriptor, the channel to weir-webhook */
	IPC_WEBHOOK,
	/* control to supervisor: have a socket_owner started (proto/socket_owner.h).
	 * Back, if there is one: a descriptor, the channel to it */
	IPC_SOCKET_OWNER,
	/* control to supervisor, with the plan and the text that made it */
	IPC_KEEP, /* this is in force now. IPC_KEPT back */
	IPC_KEPT,
	IPC_STUCK, /* the engine does not answer: it needs a successor */

	/* -- of the daemon -- */
	/* daemon to engine, launch child to engine: `attach`, with descriptors.
	 * IPC_STANDS back, or IPC_REFUSED with text: rules may stand then, and nothing is
	 * served. Of a ATTACH_HOST that the engine has under that id the cgroup was made
	 * again: what comes takes its place in one transaction */
	IPC_ATTACH,
	/* engine to daemon: the names of its policy (dns: pinned) were resolved for the
	 * first time, and its self-test was over; text: which one that has to be is not,
	 * or "" */
	IPC_PINNED,
	/* daemon to engine, with `host`, before the first sandbox of the host's own
	 * namespace: the table's netlink socket, what is served there, and a second
	 * netlink socket, for conntrack. Nothing comes back. */
	IPC_HOST,
	/* daemon to engine: all that were guarded before have been given; the host's
	 * table is to take the place of whatever stands. IPC_HOST_STANDS back; text: why
	 * it doesn't, or "" */
	IPC_HOST_LOAD,
	IPC_HOST_STANDS,
	/* daemon to engine, with `attach.forget`. IPC_DETACHED back; text: why rules may
	 * still stand, or "" */
	IPC_DETACH,
	IPC_DETACHED,
	/* control to daemon, with `attached`, plan and text: IPC_ATTACHED back, or
	 * IPC_REFUSED with text. IPC_DETACH and IPC_KEEP, with the sandbox, are as above
	 */
	IPC_WARD,
	IPC_ATTACHED,
	/* control to daemon, with `sandbox` and `attached`: is it that one, and guarded?
	 * IPC_ATTACHED back, as soon as it stands, or IPC_REFUSED with text */
	IPC_AGAIN,
	/* control to daemon: the first one with an id above `sandbox`. IPC_LISTED back,
	 * with `attached` and a descriptor, its text; sandbox 0: there is none */
	IPC_LIST,
	IPC_LISTED,
	/* daemon to control: it ended by itself; text: why */
	IPC_GONE,
	/* daemon to control: something has happened to it, text says what: an event */
	IPC_TOLD,
	/* control to daemon: what goes round the filter of that sandbox? IPC_LOOKED back,
	 * with `look` */
	IPC_LOOK,
	IPC_LOOKED,
	/* control to daemon: it was closed for good: kill what lives in its cgroup, if it
	 * has one. Nothing comes back */
	IPC_STOP,
	/* daemon to control, in the place of IPC_REFUSED: this engine has no room; text:
	 * why */
	IPC_FULL,
	/* control to any daemon, with `attached`: which namespace is meant? IPC_WHO back,
	 * with `attached`, or IPC_REFUSED with text */
	IPC_WHO,
	/* first daemon to control: a descriptor, the channel to the daemon of another
	 * engine, whose number is `sandbox`; standing.restarts: of that daemon */
	IPC_ENGINE,
	/* control to first daemon: another engine is wanted. IPC_MORE back, after
	 * IPC_ENGINE; or IPC_REFUSED with text. IPC_STUCK with an engine's number: its
	 * daemon does not answer */
	IPC_MORE,
	/* first daemon to another one: IPC_ALIVE back, if its engine serves; supervisor
	 * or daemon to its engine: IPC_ALIVE back */
	IPC_ALIVE,
	/* control to engine: what was refused to the sandboxes above `sandbox`? The same
	 * back, with `denies` of the first ones and `sandbox`, the last of them; 0: there
	 * are no more */
	IPC_DENIES,
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
	bool forget;	/* IPC_DETACH: the rules are gone, or stay: don't touch them */
	bool ipv6;	/* ATTACH_OWNED: the namespace has IPv6 */
	bool owner;	/* ATTACH_OWNED: its table is owner|persist */
	/* The self-test's, until IPC_RUN: what the engine answers by itself. "": none */
	char probe_name[128];
	struct addr probe_addr;
	uint16_t probe_port;
	struct filter_member member; /* ATTACH_HOST: who is meant */
};

/* The host's listeners, on 127.0.0.1 and ::1. */
struct ipc_host {
	uint16_t dns_port, relay_port;
};

/* Sockets that somebody has open in a namespace. */
struct ipc_look {
	bool known;	  /* it could be seen */
	bool packet, raw; /* AF_PACKET, SOCK_RAW */
	bool unseen;	  /* whether what is guarded is gone can't be seen */
	uint64_t network; /* for the daemon: see tasks_own_network() */
	/* Of a ATTACH_HOST */
	bool waiting;	  /* its cgroup is gone, and guarded when it comes again */
	uint32_t strays;  /* sockets that its processes have from outside: not guarded */
	int32_t stray_of; /* one of those processes */
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
struct ipc_sandbox {
	char name[IPC_SANDBOX_NAME_MAX + 1];
	char where[IPC_SANDBOX_WHERE_MAX + 1]; /* a path, a number */
	uint8_t kind;			       /* enum attach_kind */
	/* enum filter_member_kind of a ATTACH_HOST: a cgroup, @where is its path below
	 * the hierarchy's root; or a user id, a number. Control may ask for a cgroup by
	 * its directory and for a user by name: the answer says what was meant */
	uint8_t member;
	bool guard_parent; /* of a cgroup: its parent is closed to whom nobody knows */
	/* ATTACH_NETNS: which one it is. IPC_WARD with 0: any that is there */
	uint64_t ns_dev, ns_ino;
	/* IPC_WARD: in all engines below this one nobody else has the name, not even from
	 * before */
	uint32_t engines;
};

/* How much of a sidecar's policy the kernel holds. */
enum ipc_enforced {
	ENFORCED_NOTHING = 0, /* no rule: DNS answers, and denies everything */
	ENFORCED_REDIRECT,    /* DNS alone */
	ENFORCED_FILTER,
	ENFORCED_COUNT
};

/* What is in force. */
struct ipc_standing {
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

struct ipc_stats {
	uint64_t counters[SANDBOX_COUNTER_COUNT];
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

enum { IPC_ANSWERED_MAX = 16 };
struct ipc_answered {
	char name[EVENT_NAME_SIZE];
	struct addr addrs[IPC_ANSWERED_MAX]; /* the first of them */
	uint32_t count;
};

struct ipc_message {
	uint32_t type;
	uint32_t sandbox; /* which one it is about; 0 in `weir run` and `weir sidecar` */
	uint32_t present; /* ipc_send_fds(): bit i: descriptor i of struct ipc_fds */
	union {
		struct event event;
		uint64_t counters[SANDBOX_COUNTER_COUNT];
		char text[ERR_TEXT_SIZE];
		struct ipc_standing standing;
		struct ipc_stats stats;
		struct ipc_denies denies;
		struct ipc_socket socket;
		struct ipc_attach attach;
		struct ipc_sandbox attached;
		struct ipc_host host;
		struct ipc_look look;
		struct upstream_trouble trouble;
		struct ipc_answered answered;
	};
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

/* None; with those of @own, if that is not NULL. */
void ipc_fds_init(struct ipc_fds *f, const struct sandbox_fds *own);
void ipc_fds_done(struct ipc_fds *f); /* closes what is open */
/* ipc_send() with all that @f has; m->present says which. */
int ipc_send_fds(int sock, struct ipc_message *m, const struct ipc_fds *f) MUST_CHECK;
/* The same where they arrive: @fds, as m->present says, go to free slots of @to. Each one
 * that is taken is -1 in @fds then. -EBADMSG: they are not what @m says. */
int ipc_take_fds(const struct ipc_message *m, int *fds, size_t count,
		 struct ipc_fds *to) MUST_CHECK;

/* Whole messages only. Return: 0, or -errno; ipc_receive gives -EPIPE at end of file,
 * -EAGAIN when there is none, -EBADMSG for what is no message. Flags are true or false
 * then; everything else is as the other end would have it. */
int ipc_send(int sock, const struct ipc_message *m, const int *fds,
	     size_t count) MUST_CHECK;
int ipc_receive(int sock, struct ipc_message *ret, int *ret_fds, size_t max,
		size_t *ret_count) MUST_CHECK;
/* @text came from an engine, which has read hostile bytes: it is held to what can be
 * printed, and ends. */
void ipc_tame(char *text, size_t size);
