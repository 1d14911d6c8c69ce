// SPDX-License-Identifier: Apache-2.0
/* proto/message - how Weir's processes talk: messages of one fixed size over
 * SOCK_SEQPACKET, descriptors beside them. What two processes say to each other is in one
 * header for each pair: engine_supervisor.h, engine_control.h, control_supervisor.h.
 *
 * `weir sidecar`, `weir daemon`: supervisor, engine and control, each pair of them with a
 * channel; when one of the two is replaced, the supervisor hands the other a fresh one
 * (IPC_PEER). A daemon has many sandboxes: messages say which one they are about, by its
 * number in that engine; control has such a pair of channels for each engine.
 *
 * These headers are below everything else: plain structs, made of base, sys and event. */
#pragma once

#include "event/event.h"
#include "proto/control_supervisor.h"
#include "proto/engine_control.h"
#include "proto/engine_supervisor.h"

/* What several pairs say. */
enum ipc_type {
	IPC_NONE = 0,
	/* -- supervisor to engine, daemon to its process in a namespace -- */
	/* the self-test has passed, or may begin: from now on denials are events.
	 * IPC_RUNNING back, in `weir run` and from the process in the namespace */
	IPC_RUN,
	IPC_RUNNING,
	IPC_FAILED, /* text: why; whoever says so leaves */
	/* -- engine to launch child, supervisor and control, with `status`; supervisor
	 *    to control -- */
	IPC_ACTIVE,  /* the filter was read back, DNS and relay are served */
	IPC_REFUSED, /* text: why */
	/* -- supervisor to engine and control: a descriptor, the channel to the other --
	 */
	IPC_PEER,
	/* -- control to daemon to engine, with `attach.forget`. IPC_DETACHED back; text:
	 *    why rules may still stand, or "" -- */
	IPC_DETACH,
	IPC_DETACHED,
	/* -- supervisor to engine, first daemon to another one: IPC_ALIVE back, if it
	 *    serves -- */
	IPC_ALIVE,
};

struct ipc_message {
	uint32_t type;	  /* of this enum, or of one of the pairs' */
	uint32_t sandbox; /* which one it is about; 0 in `weir run` and `weir sidecar` */
	uint32_t present; /* ipc_send_fds(): bit i: descriptor i of struct ipc_fds */
	/* Control to supervisor or daemon: the number of a question, which its answer
	 * has, too: one that comes too late is not the next question's. 0 in whatever
	 * was not asked for. */
	uint32_t ask;
	union {
		char text[ERR_TEXT_SIZE];
		/* engine_supervisor.h */
		struct ipc_attach attach;
		struct ipc_host host;
		struct ipc_status status;
		uint64_t counters[IPC_COUNTERS_MAX];
		/* engine_control.h */
		struct event event;
		struct ipc_stats stats;
		struct ipc_denies denies;
		struct ipc_socket socket;
		struct upstream_trouble trouble;
		struct ipc_answered answered;
		struct ipc_dismissed dismissed;
		/* control_supervisor.h */
		struct ipc_sandbox attached;
		struct ipc_audit audit;
	};
};

/* Messages that are heard of one channel in one turn of a loop: whoever sends without end
 * keeps nobody else waiting. */
enum { IPC_TURN_MAX = 256 };

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
 * then, and the texts of an event are as ipc_sanitize() leaves them; everything else is
 * as the other end would have it. */
int ipc_send(int sock, const struct ipc_message *m, const int *fds,
	     size_t count) MUST_CHECK;
int ipc_receive(int sock, struct ipc_message *ret, int *ret_fds, size_t max,
		size_t *ret_count) MUST_CHECK;
/* @text came from an engine, which has read hostile bytes: it is held to what can be
 * printed, and ends. */
void ipc_sanitize(char *text, size_t size);
/* Whatever byte another process wrote as @flag, it is true or false. */
void ipc_sanitize_flag(bool *flag);
