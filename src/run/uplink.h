// SPDX-License-Identifier: Apache-2.0
/* run/uplink - the programs that carry what the relay doesn't: slirp4netns or pasta,
 * one process beside one sandbox, serving a TAP link inside its network namespace.
 *
 * HOW IT WORKS
 * The program runs outside, where its sockets are, and opens the link inside. Weir gives
 * it the work and nothing else: it doesn't configure the namespace (the launch child
 * does, once the filter stands), forwards no port, answers no name, maps no address of
 * the host. What is sent to the link was let through by the filter before.
 *
 * It inherits three pipes: one takes its messages, kept for the case that it ends; one
 * says when it is ready; the end of the third ends it. It dies with control besides
 * (PDEATHSIG), and control kills it when the sandbox ends, without waiting. */
#pragma once

#include <sys/types.h>

#include "base/addr.h"
#include "run/program.h"

#define UPLINK_LINK "weir-up"

enum uplink_kind { UPLINK_NONE = 0, UPLINK_SLIRP4NETNS, UPLINK_PASTA, UPLINK_KIND_COUNT };

/* What is needed to start one; found before anything else is started. */
struct uplink_program {
	enum uplink_kind kind;
	char path[PROGRAM_PATH_SIZE];
	bool root; /* started with kernel uid 0 */
	bool ipv6; /* carry IPv6 as well */
};

struct uplink {
	const char *name; /* of the program, for messages */
	pid_t pid;
	int pid_fd;    /* owned; readable when the program has ended */
	int ready_fd;  /* owned; readable when it is ready; -1: its link says so */
	int output_fd; /* owned; its messages */
	int leash_fd;  /* owned; closed, it ends */
};

/* The addresses of both ends, and what the program's own network covers: nothing that a
 * sandbox has business with. */
struct uplink_network {
	struct addr own[2], gateway[2]; /* IPv4, IPv6 */
	bool silent[2]; /* the program takes what is sent to its gateway, but answers
			 * nobody who asks for the link-layer address */
	struct prefix all[2];
};
struct uplink_network uplink_network(enum uplink_kind kind);

/* Find the program, and see whether TAP devices can be had. @ret->kind is set; so are
 * root and ipv6. Return: 0, or -errno with a line that says what to do. */
int uplink_find(struct uplink_program *ret, struct err *err) MUST_CHECK;

/* Start it for the namespaces of the process @sandbox, which is not reaped before. */
int uplink_start(const struct uplink_program *p, pid_t sandbox, struct uplink *ret,
		 struct err *err) MUST_CHECK;
/* "slirp4netns has ended unexpectedly (exit status 1): <what it said last>". After pid_fd
 * was readable. Return: @ret. */
char *uplink_explain(const struct uplink *u, char *ret, size_t size);
/* Kill it, and don't wait. Does nothing to one that was not started (pid 0). */
void uplink_kill(const struct uplink *u);
