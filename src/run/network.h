// SPDX-License-Identifier: Apache-2.0
/* run/network - the network of a run: what the launch child makes in its new namespace
 * before anything of the command's exists (link, sockets, ruleset, the hand-over to the
 * engine), and how bytes leave the sandbox: what the filter lets out directly, and the
 * program that carries what the relay doesn't: slirp4netns or pasta, one process beside
 * one sandbox, serving a TAP link inside its network namespace.
 *
 * HOW IT WORKS
 * The program runs outside, where its sockets are, and opens the link inside. Weir gives
 * it the work and nothing else: it doesn't configure the namespace (the launch child
 * does, once the filter stands), forwards no port, answers no name, maps no address of
 * the host. What is sent to the link was let through by the filter before.
 *
 * It inherits three pipes: one takes its messages, kept for the case that it ends; one
 * says when it is ready; the end of the third ends it. It dies with control besides
 * (PDEATHSIG), and control kills it when the sandbox ends, without waiting.
 *
 * TCP leaves by the relay over every uplink but `none`: names are judged there, it is
 * faster than a TAP, and connections outlive the program. slirp4netns and pasta carry
 * UDP alone. */
#pragma once

#include <sys/types.h>

#include "base/addr.h"
#include "filter/ruleset.h"
#include "policy/plan.h"
#include "run/options.h"
#include "sys/loop.h"
#include "sys/process.h"

#define UPLINK_LINK "weir-up"

enum uplink_kind { UPLINK_NONE = 0, UPLINK_SLIRP4NETNS, UPLINK_PASTA, UPLINK_KIND_COUNT };

/* What is needed to start one; found before anything else is started. */
struct uplink_program {
	enum uplink_kind kind;
	char path[PROGRAM_PATH_SIZE];
	bool root; /* started with kernel uid 0 */
	bool ipv6; /* carry IPv6 as well */
};

struct uplink_process {
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

struct uplink {
	struct filter_params filter;   /* what ipv6 is, the namespace says */
	struct prefix *closed;	       /* filter.closed, owned */
	bool ipv6_out;		       /* the host has a way out for IPv6 */
	struct uplink_program program; /* kind none: the relay alone, or nothing */
	struct uplink_process process;
	bool ready; /* nothing more is to be waited for */
	struct loop *loop;
	struct loop_source from_ready, from_end;
	void (*on_ready)(void *data);
	void (*on_end)(void *data, const char *why);
	void *data;
};

/* Choose by --uplink, and see whether it can be had. @root: kernel uid 0 asks. */
int uplink_choose(struct uplink *w, enum run_uplink uplink, bool root,
		  struct err *err) MUST_CHECK;

/* Start the program, if there is one, for the launch child @sandbox, and watch it:
 * @w->on_ready, on_end and data are the caller's. */
int uplink_open(struct uplink *w, struct loop *loop, pid_t sandbox,
		struct err *err) MUST_CHECK;
/* To the program, if there is one. Nothing happens once the program has ended: another
 * process may have its number by then. */
void uplink_signal(const struct uplink *w, int number);
/* The program ends with the sandbox, and nobody waits for it. */
void uplink_close(struct uplink *w);

struct inside {
	const struct plan *plan;
	int engine_fd; /* SOCK_SEQPACKET to the engine */
	/* The engine's ends of its channels, inherited: held open here they would hide
	 * its death. */
	int far_ends[2];
	int report_fd; /* to control: it hears about the sockets here; -1: nobody asks */
	struct filter_params filter; /* but ipv6 */
	enum uplink_kind uplink;     /* serves a link, or none does */
	bool uplink_ipv6;
};

/* For struct launch_spec.prepare; @data is a struct inside. */
int inside_prepare(void *data, struct err *err) MUST_CHECK;

/* For struct launch_spec.confirm. Returns 0 once the engine has read the filter back and
 * serves the sandbox, and the uplink's link is up. */
int inside_confirm(void *data, struct err *err) MUST_CHECK;
