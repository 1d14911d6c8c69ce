// SPDX-License-Identifier: Apache-2.0
/* main/ipc - what control, the launch child and the engine say to each other: fixed-size
 * messages over SOCK_SEQPACKET, descriptors beside them. */
#pragma once

#include "net/sock.h"
#include "sandbox/sandbox.h"

enum ipc_type {
	IPC_NONE = 0,
	/* launch child to engine, with the sandbox's descriptors */
	IPC_HANDOVER,
	/* engine to launch child */
	IPC_STANDS,  /* the filter was read back, DNS and relay are served */
	IPC_REFUSED, /* text: why */
	/* control to engine */
	IPC_RUN,    /* the self-test has passed: from now on denials are events */
	IPC_FINISH, /* send IPC_COUNTERS and leave */
	/* engine to control */
	IPC_READY,   /* confined and waiting; text: what could not be confined, or "" */
	IPC_RUNNING, /* the answer to IPC_RUN */
	IPC_EVENT,
	IPC_COUNTERS,
	IPC_FAILED, /* text: why; the engine leaves */
};

struct ipc_message {
	uint32_t type;
	uint32_t present; /* IPC_HANDOVER: bit i: descriptor i of enum sandbox_fd follows
			   */
	bool ipv6;	  /* IPC_HANDOVER: the namespace has IPv6 */
	bool owner;	  /* IPC_HANDOVER: the table is owner|persist */
	union {
		struct event event;
		uint64_t counters[SANDBOX_COUNTER_COUNT];
		char text[ERR_TEXT_SIZE];
	};
};

/* Whole messages only. Return: 0, or -errno; ipc_receive gives -EPIPE at end of file,
 * -EAGAIN when there is none, -EBADMSG for what is no message. */
int ipc_send(int sock, const struct ipc_message *m, const int *fds,
	     size_t count) MUST_CHECK;
int ipc_receive(int sock, struct ipc_message *ret, int *ret_fds, size_t max,
		size_t *ret_count) MUST_CHECK;
