// SPDX-License-Identifier: Apache-2.0
/* launch/launch - from a fork to a command behind a filter.
 *
 * HOW IT WORKS
 *   control ──fork──> launch child: new user, network, mount and other namespaces
 *                       maps (written by control when it is root)
 *                       spec->prepare(): stub link, ruleset, sockets, hand-over to the
 *                         engine (run/network.c; not this folder's)
 *   control meanwhile runs spec->beside(), which forks the engine, and plans the file
 *   system view
 *           ──fork──> builder: joins the launch child's namespaces, builds the view, ends
 *                     launch child: enters the view (below): nested user
 *                       namespace, seccomp; the engine reads the ruleset back meanwhile
 *                       spec->confirm(): the engine's "it stands"
 *                       becomes weir-init, PID 1: self-test, "go" from control, then
 *                         the command; forwards signals, reports stops, reaps
 *
 * Weir-init dies with its parent (PDEATHSIG), and besides leaves as soon as its channel
 * to control is closed, whoever closed it.
 *
 * ENTERING THE VIEW
 *   The launch child has the namespaces of enter_namespaces(): the outer user
 *   namespace owns all of them. In the outer one it makes what nobody inside may ever
 *   change:
 *
 *     enter_proc()   /proc of the new process id namespace; the limit of one more user
 *                    namespace
 *     enter_root()   that /proc in the view, its /proc/sys read-only; the view becomes
 *                    the root, and the host's mounts are let go
 *     enter_user()   that one user namespace, with a mount namespace of its own: the
 *                    kernel copies the mounts from the outer, more privileged one, and
 *                    so locks each of them and its flags. All capabilities go.
 *     enter_filter() the seccomp list
 *     enter_init()   weir-init, PID 1
 *
 *   Even uid 0 with every capability in the inner user namespace has none over the
 *   network, the process ids, the mounts that it finds, or what else the outer one owns.
 *   It can't unmount a mask, make one writable, mount another /proc, or make one more
 *   user namespace.
 *
 * All of it in one process, which is single-threaded and PID 1. What fails ends it. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/addr.h"
#include "base/err.h"
#include "proto/launch.h"

struct path;
struct startup_files;

struct launch_spec {
	char *const *argv;	  /* the command; NULL-ended */
	char *const *environment; /* the command's; NULL-ended */
	const char *cwd;	  /* its name; writable inside */
	const char *const *rw;	  /* more writable paths */
	size_t rw_count;
	const char *const *own; /* of these, what only sandboxes use; canonical names */
	size_t own_count;
	const char *const
		*shown; /* paths that are shown, read-only, whatever hides them */
	size_t shown_count;
	const char *search;	 /* domains for its resolv.conf; NULL: none */
	const char *const *hide; /* paths that aren't seen */
	size_t hide_count;
	bool hide_credentials; /* and those of profiles/credentials.txt */
	const char *store;     /* the directory of a store of events that Weir writes to
				* meanwhile, which is one of @ro; or NULL */
	/* The unix socket of the host that the command reaches; or NULL. */
	const struct path *agent_socket;
	/* Called for each path that is hidden, before anything is started; or NULL. */
	void (*on_hidden)(void *data, const char *path);
	void *hidden_data;
	bool home_tmp;	       /* ROOTFS_HOME is made */
	const char *const *ro; /* files that stay read-only though below a writable
				* path: the policy and what it extends */
	size_t ro_count;
	/* The directory of the user's defaults and profiles, read-only where it lies
	 * below a writable path. It is made if the command could make it. NULL: none. */
	const char *settings;
	/* Filled: what else is read-only in writable paths. The caller's to end. */
	struct startup_files *startup;
	enum launch_self_test self_test;
	struct launch_probe probe;
	/* Run in the new namespaces, with every capability over them, before anything
	 * of the command's exists. Not 0: nothing is started, @err is reported. */
	int (*prepare)(void *data, struct err *err);
	/* Run when the view has been entered, without a right and under the seccomp list;
	 * or before, with every capability over the namespaces, where @confirm_has_rights
	 * says so. Not 0: nothing is started, @err is reported. */
	int (*confirm)(void *data, struct err *err);
	bool confirm_has_rights;
	void *prepare_data; /* for both */
	/* Run in control while the launch child makes its namespaces, before the view is
	 * planned; or NULL. Not 0: nothing is started, @err is reported. */
	int (*beside)(void *data, struct err *err);
	void *beside_data;
	/* Written: the mount namespace that the command's is a copy of, or -1; the
	 * caller's to close. Where the launch child lets go of the last reference, the
	 * kernel has it wait for every processor. Or NULL. */
	int *outer_mounts;
	/* Written: the process that builds the view, which ends when the view stands. The
	 * caller's to reap, and 0 before. */
	pid_t *builder;
	/* Written: whether the launch fails for a path that was named. Or NULL. */
	bool *is_bad_path;
	int control_fd;	 /* SOCK_SEQPACKET: weir-init's end of its channel */
	int input_fd;	 /* the command's standard input; 0 or less: the caller's */
	int terminal_fd; /* of the command's own; 0 or less: it has the caller's */
};

/* What decides how to launch. All but the ids is known before anything is started. */
struct launch_machine {
	bool root;	   /* started with kernel uid 0 and the right to copy mounts */
	uint32_t base_uid; /* root: the unused kernel uid range that is mapped; 0: not
			    * chosen */
};
struct launch_machine launch_machine_probe(void);
/* Root: choose the ids, which launch_start() does by itself. -errno with a line that says
 * what to do: none are unused. */
int launch_choose_ids(struct launch_machine *m, struct err *err) MUST_CHECK;

/* Fork the launch child and the builder of its view; for root, write the id maps and copy
 * the mounts with them. Control keeps its ends of the sockets and answers LAUNCH_TESTED
 * with LAUNCH_GO. Descriptors 0 to 2 must be open, and none of control's own. Return: the
 * child's pid, or -errno. */
pid_t launch_start(const struct launch_machine *m, const struct launch_spec *spec,
		   struct err *err) MUST_CHECK;
int launch_write_maps(const struct launch_machine *m, pid_t child,
		      struct err *err) MUST_CHECK;

/* In the launch child: weir-init, which links nothing of ours, has its
 * own. Send one report, the text formatted and cut to fit. Failure is not reported: when
 * control is gone there is nobody to tell, and the caller is about to die. A warning for
 * which the socket has no room is left out. */
void launch_send_report(int fd, enum launch_report_type type, int value, const char *fmt,
			...) PRINTF_LIKE(4, 5);

/* What the launch child gets: a user, network, mount, process id, IPC and UTS
 * namespace, and one of control groups where the kernel has those. */
unsigned long enter_namespaces(void);
/* Why they, or those of enter_user(), could not be made: @code is the -errno. Return:
 * @code. */
int enter_explain(int code, struct err *err);

/* No new privileges, and the calls of seccomp_list.c are refused. */
int enter_filter(struct err *err) MUST_CHECK;
