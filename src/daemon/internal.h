// SPDX-License-Identifier: Apache-2.0
/* daemon/internal - what the daemon's files share.
 *
 *   daemon.c     start and end; what the engine and control say; where the API listens
 *   lifecycle.c  the states of a sandbox
 *   sandboxes.c  a sandbox is attached, active, refused, detached; plans; the queues
 *   child.c      the short-lived children that do something in a sandbox
 *   gone.c       namespaces that are gone
 *   host.c       what sandboxes of the host's own namespace share, and who they are
 *   cgroup.c     cgroups that go and come again; what is above them
 *   ended.c      cgroups of sandboxes that are gone, and whose sockets may not be
 *   state.c      what outlives the daemon, in /run/weir
 *   engines.c    more engines, each with a daemon of its own; who has which sandboxes */
#pragma once

#include <dirent.h>
#include <sys/queue.h>

#include "base/index.h"
#include "daemon/daemon.h"
#include "daemon/lifecycle.h"
#include "proto/launch.h"
#include "resolver/resolver.h"
#include "supervisor/spawner.h"
#include "supervisor/supervisor.h"

enum {
	SANDBOXES_MAX = IPC_SANDBOXES_MAX, /* over it: refused */
	DAEMON_SANDBOX_TEST_MS = 5000,
	DAEMON_SANDBOX_PIN_MS = RESOLVER_PIN_MS + 2000,
	DAEMON_TARGET_KEY_SIZE = 48,
};

/* What control knows of a sandbox. */
enum control_knows {
	CONTROL_UNAWARE = 0, /* nothing yet: it hears when the sandbox is ACTIVE */
	CONTROL_ASKS,	     /* control waits for an answer, to its question @ask */
	CONTROL_INFORMED,
};

/* A policy's plan, which several sandboxes may have (sandboxes.c). */
struct daemon_plan {
	struct index_entry entry;
	char key[20]; /* its id */
	int fd;	      /* owned */
	size_t users;
};

/* The self-test's process, as one of the cgroup's or the user's. */
struct join {
	bool is_ordered; /* and the spawner's answer not taken yet */
	pid_t pid;	 /* 0: none */
	int process;	 /* pidfd, -1: none */
	char *below;	 /* a cgroup that was made for it, owned; or NULL */
};

struct daemon_sandbox {
	struct daemon *daemon;
	uint32_t id;
	struct lifecycle life;
	enum control_knows control;
	uint32_t ask; /* 0: nobody has asked */
	struct ipc_sandbox spec;
	struct sandbox_fds fds; /* in its namespace */
	size_t fd_count;	/* as fd_count_of() had it */
	int route_fd;
	struct daemon_plan *plan;
	int text_fd;		   /* its policy, until that is in its folder; then -1 */
	int snapshot_fd;	   /* until the engine has it; then -1 */
	struct launch_probe probe; /* allowed_name "": no self-test */
	struct loop_source from_child; /* the self-test, inside; fd -1: none */
	struct loop_timer late;
	/* Is the namespace still there? */
	dev_t ns_dev;
	ino_t ns_ino;
	uint64_t ns_cookie;	    /* 0: this kernel has none */
	ino_t ns_proc_ino;	    /* see struct tasks_network */
	struct loop_source process; /* a pidfd, -1: none */
	/* ATTACH_HOST */
	struct member member;
	uint64_t above;		  /* the cgroup above that; 0: not known */
	uint64_t attached_cgroup; /* the cgroup of @member when the engine got it */
	char *dir; /* of its cgroup, through host.hierarchy; owned, NULL: a user */
	int watch; /* of inotify, on the directory above; -1: none */
	bool is_cgroup_gone; /* the cgroup is gone; its parent isn't */
	bool is_unseen;	     /* whether the target is gone could not be seen, and this was
				reported */
	bool guards_parent;  /* its parent is guarded */
	char *refused;	     /* why, for when the engine has let go of it; owned */
	const char *gone;    /* likewise, of one whose target is gone; a literal */
	size_t ended;	     /* connections from before that were ended */
	struct join join;
	struct loop_deferred freed;
	/* With all others. */
	struct index_entry in_names; /* until it is LIFECYCLE_RESERVED */
	struct index_entry in_targets;
	char target_key[DAEMON_TARGET_KEY_SIZE]; /* what no two sandboxes can be: a
					namespace, a cgroup, a user id */
	struct index_entry in_watched;
	char *watch_key; /* watch and name; owned */
	TAILQ_ENTRY(daemon_sandbox) in_queue;
	struct attach_queue *queue; /* while it is LIFECYCLE_QUEUED, or NULL */
};
TAILQ_HEAD(attach_queue, daemon_sandbox);

struct filter_parents;
struct parent;
struct ended;

/* What all sandboxes of the host's own namespace share. */
enum host_state {
	HOST_NONE = 0, /* there is no such sandbox: nothing is open */
	HOST_OPEN,     /* the descriptors are there; this engine doesn't have them */
	HOST_SENT,     /* it has them, and no table yet */
	HOST_LOADING,  /* it has not answered */
	HOST_FAILED,   /* the table from before is active; loading is tried again */
	HOST_ACTIVE,
	HOST_STATE_COUNT
};

/* What changes it: host_change() in host.c has the table. */
enum host_event {
	HOST_ON_OPENED = 0,
	HOST_ON_SENT,
	HOST_ON_ORDERED,
	HOST_ON_INSTALLED,
	HOST_ON_NOT_INSTALLED,
	HOST_ON_RETRY,
	HOST_ON_ENGINE_END,
	HOST_EVENT_COUNT
};

struct host {
	enum host_state state;
	struct sandbox_fds fds;
	int conntrack_fd;
	/* Of cgroups; its number stays the same, as paths lead through it. -1: none was
	 * asked for. While there is no hierarchy here it is something else. */
	int hierarchy;
	bool has_hierarchy;
	struct loop_source inotify;   /* fd -1: no cgroup is followed */
	struct filter_parents *guard; /* owned; NULL: there was no table yet */
	struct parent *parents;	      /* owned */
	struct ended
		*ended; /* owned; NULL: ended_start() has failed, or is yet to come */
	char *sibling;	/* a directory that was no sandbox's when last seen; owned */
};

struct further;

struct daemon {
	struct supervisor supervisor;
	/* engines.c */
	uint32_t engine;     /* its number; the first daemon has 0 and all of these: */
	size_t engine_count; /* with its own */
	struct further *engines[IPC_ENGINES_MAX]; /* from 1 on; owned */
	struct loop_source parent; /* of the others: to the first; else fd -1 */
	struct spawner spawner;
	int inside; /* channel to the child that goes into namespaces; -1: none */
	struct host host;
	struct daemon_sandbox *sandboxes[SANDBOXES_MAX + 1]; /* by id, from 1 on; owned */
	struct index names, targets, plans, watched, watches;
	struct attach_queue queues[LIFECYCLE_ORIGIN_COUNT];
	size_t count;
	size_t fd_count;    /* descriptors of all sandboxes, but for */
	size_t plan_count;  /* of their plans */
	uint32_t last_id;   /* ids go round, so that messages under way don't meet a new
			       sandbox */
	uint32_t attaching; /* the sandbox that the engine has not answered about, or 0 */
	bool engine_ready;
	int home;	/* network namespace of the daemon */
	int state_dir;	/* /run/weir/sandboxes, or in it that of this engine */
	int state_root; /* /run/weir/sandboxes */
	struct loop_timer audit_timer, watchdog;
	unsigned int audits;
	DIR *restoring; /* state_dir, as far as it is read; or NULL */
	struct loop_deferred restore_turn;
	struct loop_timer restore_again;
	unsigned int patience;
	bool restored;	/* state_dir was read once: the engine gets new sandboxes */
	bool lacks;	/* something in state_dir is not guarded: it is tried again */
	bool lacks_now; /* as far as state_dir is read this time; then it is @lacks */
	char lacking[ERR_TEXT_SIZE]; /* which one, and why */
	int64_t watchdog_ms;	     /* 0: systemd asks for none */
	bool is_ready_notified;
};

/* -- daemon.c ----------------------------------------------------------------------- */

/* The daemon of engine @number, the first one's child: until @channel to that ends. */
int daemon_run_further(struct sidecar_spec *spec, uint32_t number, int channel);
/* Notify systemd once that all engines serve. */
void daemon_notify_ready(struct daemon *w);
/* Report to control what isn't guarded, if that has changed. */
void daemon_report_lacking(struct daemon *w);
/* The engine has all sandboxes from before: serve from now on. */
void daemon_on_all_attached(struct daemon *w);
/* Where control is away, the message is dropped. */
void daemon_send_control(struct daemon *w, const struct ipc_message *m, const int *fd);
/* @ask: control's question that this answers; 0: none. */
void daemon_send_text(struct daemon *w, uint32_t ask, uint32_t type, uint32_t sandbox,
		      const char *text);

/* -- sandboxes.c -------------------------------------------------------------------- */

struct daemon_sandbox *daemon_sandbox_find(const struct daemon *w, uint32_t id);
struct daemon_sandbox *daemon_sandbox_find_name(const struct daemon *w, const char *name);
/* @d->spec with its namespace, for control. */
struct ipc_sandbox daemon_sandbox_as_reported(const struct daemon_sandbox *d);
/* Check what is asked for: a name of letters, digits, '-', '_', '.'; a kind; a place. */
int daemon_sandbox_check(const struct ipc_sandbox *spec, struct err *err) MUST_CHECK;
/* @plan_fd and @text_fd are taken, also on failure; @text_fd is -1 when the sandbox's
 * folder has the text. given->id 0: any. On success the sandbox is LIFECYCLE_QUEUED. */
int daemon_sandbox_attach(struct daemon *w, const struct daemon_sandbox *given,
			  int plan_fd, int text_fd, struct err *err) MUST_CHECK;
/* Its cgroup was made again, and @d->member is the new one: the engine gets it. */
void daemon_sandbox_on_remade(struct daemon_sandbox *d);
/* The engine has the sandbox as the cgroup that it was before. */
bool daemon_sandbox_is_outdated(const struct daemon_sandbox *d);
/* Its target is gone: control is notified, and the engine lets go of @d. */
void daemon_sandbox_on_gone(struct daemon_sandbox *d, const char *seen, const char *text,
			    bool forget);
/* The engine has ended. */
void daemon_sandbox_on_engine_end(struct daemon_sandbox *d);
void daemon_sandbox_on_engine(struct daemon *w, const struct ipc_message *m);
/* A new plan and text are in force. Both descriptors are taken, also on failure, when
 * the old ones stay. */
int daemon_sandbox_replace_policy(struct daemon_sandbox *d, int plan_fd, int text_fd,
				  struct err *err) MUST_CHECK;

/* -- engines.c: descriptors --------------------------------------------------------- */

/* -EMFILE: the descriptor budget has none left for @d. Nothing was opened. */
int fd_budget_check(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* The same, once everything of @d is open. */
int fd_budget_check_opened(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* How many descriptors @d has, without its plan. */
size_t fd_count_of(const struct daemon_sandbox *d);

/* -- sandboxes.c: the queues -------------------------------------------------------- */

/* Send the engine the next sandbox that waits. */
void attach_queue_next(struct daemon *w);

/* Refuse the new sandboxes of the host's own, whose table can't be loaded. */
void daemon_sandbox_refuse_host(struct daemon *w, const char *text);
/* Have the engine let go of @d; unless @forget, its rules are removed. */
void daemon_sandbox_detach(struct daemon_sandbox *d, bool forget);

/* -- child.c: in a namespace -------------------------------------------------------- */

/* Open the network namespace that @d names: sets ns_dev and ns_ino. The caller owns
 * *@ret_ns. */
int netns_child_find(struct daemon_sandbox *d, int *ret_ns, struct err *err) MUST_CHECK;
/* Have a child enter @ns and open what the engine serves there. With d->probe it leaves
 * a self-test inside, at d->from_child. -ESTALE: @ns is not what @d was attached as. */
int netns_child_open(struct daemon_sandbox *d, int ns, struct err *err) MUST_CHECK;
/* Close the channel to the child. */
void netns_child_close(struct daemon_sandbox *d);
void netns_child_end(struct daemon_sandbox *d);

/* -- child.c: sockets --------------------------------------------------------------- */

/* Which sockets that bypass the filter are open in a namespace; in a cgroup, or by a
 * user. Takes milliseconds, and no more than a second. */
struct ipc_audit netns_audit(const struct daemon_sandbox *d);
struct ipc_audit host_audit(const struct daemon_sandbox *d);

/* -- host.c ------------------------------------------------------------------------- */

/* The one function that changes h->state. Return: false: @event means nothing now. */
bool host_change(struct host *h, enum host_event event);
/* Find the cgroup or user that @d->spec names, and write it there as it is shown. For
 * the first sandbox, open what is served. */
int host_find(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Is @asked, which is to be guarded again, what @d guards? Control's question @ask is
 * answered when @d is active. */
int host_again(struct daemon_sandbox *d, const struct ipc_sandbox *asked, uint32_t ask,
	       struct err *err) MUST_CHECK;
/* Send the engine the descriptors of the host, unless it has them. */
int host_send(struct daemon *w) MUST_CHECK;
/* Have the engine install the host's table. */
int host_load(struct daemon *w) MUST_CHECK;
void host_on_engine(struct daemon *w, struct ipc_message *m);
/* @d's rules are active for the first time: end the older connections that the filter
 * can't judge. */
int host_settle(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Report how many connections were ended, and which sockets the filter doesn't count
 * as the sandbox's. */
void host_report_settled(const struct daemon_sandbox *d);
/* The id of the sandbox's cgroup now. Return: 0; -ENOENT: the cgroup is gone; any
 * other error: that can't be known. */
int host_cgroup_id(const struct daemon_sandbox *d, uint64_t *ret) MUST_CHECK;
/* The path above that of a cgroup, which begins with '/'. The caller frees it; NULL: out
 * of memory. */
char *host_path_above(const char *path);
/* The directory above the sandbox's cgroup is gone. False as well if that can't be
 * known. */
bool host_is_parent_gone(const struct daemon_sandbox *d);
/* Hold the hierarchy of cgroups from now on. */
int host_hold_hierarchy(struct host *h, struct err *err) MUST_CHECK;
/* The id of the cgroup above @d's; 0: that can't be known. */
uint64_t host_above(const struct daemon_sandbox *d);
/* Watch the cgroup of @d, once there is a hierarchy. */
int host_watch_cgroup(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Report an event of the sandbox. */
void host_report(const struct daemon_sandbox *d, const char *text);

/* -- cgroup.c: the sandbox ---------------------------------------------------------- */

/* Watch @d->dir from now on. Called before the cgroup's id is read. */
int cgroup_watch_start(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
void cgroup_watch_stop(struct daemon_sandbox *d);
/* Compare the cgroup that is there with the one that the sandbox was. */
void cgroup_watch_check(struct daemon_sandbox *d);

/* -- cgroup.c: its parent ----------------------------------------------------------- */

/* @d is active: guard the parent of its cgroup from now on, if that is wanted, and
 * admit @d. */
int cgroup_guard_start(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* @d's rules are active: a guarded parent admits its packets to them. */
void cgroup_guard_admit(const struct daemon_sandbox *d);
/* The host's table is active now: install what guards parents. */
void cgroup_guard_load(struct daemon *w);
/* All sandboxes from before are back, and none is of the host's own: remove what an
 * earlier daemon installed to guard parents. */
void cgroup_guard_clear(struct daemon *w);
/* Put back a parent's guard that somebody has removed. */
void cgroup_guard_check(struct daemon *w);

/* -- ended.c ------------------------------------------------------------------------ */

/* Refuse what an earlier daemon has noted. Called once, before the engine has anything.
 */
void ended_start(struct daemon *w);
/* @cgroup, which was @d's, is gone: refuse what is sent from its sockets. Called before
 * the engine hears of that. */
void ended_note(struct daemon_sandbox *d, uint64_t cgroup);
/* Refuse what is sent from the sockets of @d's cgroup, if that cgroup is gone. */
void ended_note_if_gone(struct daemon_sandbox *d);
/* Put back what somebody has removed; forget cgroups that the kernel has no rest of. */
void ended_check(struct daemon *w);

/* -- child.c: in a cgroup, or as a user --------------------------------------------- */

/* Order the child of @d's self-test, in the cgroup with the directory @dir; NULL: of the
 * user, who has no cgroup. */
int join_start(struct daemon_sandbox *d, const char *dir, struct err *err) MUST_CHECK;
/* Wait until the child that was ordered is there: it waits at d->from_child for IPC_RUN,
 * and then tests. Called before another order goes to the spawner. */
int join_wait(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Kill the child, and remove the cgroup that was made for it. */
void join_end(struct daemon_sandbox *d);

/* -- gone.c ------------------------------------------------------------------------- */

/* Open the network namespace that @d was attached as: where it is named, or by a process
 * that is in there; netns_child_open() compares the cookie. Return: a descriptor, which
 * the caller owns; -ESTALE: it is gone; -EAGAIN: that can't be seen. */
int gone_find(struct daemon_sandbox *d) MUST_CHECK;
/* Watch the process that names the namespace; none where that has ended. */
int gone_watch(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
void gone_unwatch(struct daemon_sandbox *d);
int gone_start(struct daemon *w) MUST_CHECK;
/* The process id that @where is; 0: @where is a path. */
pid_t gone_pid_of(const char *where);

/* -- host.c: users by name ---------------------------------------------------------- */

/* Replace the name of a user by the number. */
int daemon_sandbox_user(struct ipc_sandbox *spec, struct err *err) MUST_CHECK;

/* -- state.c ------------------------------------------------------------------------ */

int state_open(struct daemon *w, const char *run_dir, struct err *err) MUST_CHECK;
/* The folder of the sandboxes of @engine, below state_root. Those of the first engine
 * are beside the other engines' folders: no sandbox's name begins with a dot. */
enum { STATE_FOLDER_SIZE = 16 };
void state_folder_name(uint32_t engine, char ret[STATE_FOLDER_SIZE]);
/* Return: a descriptor, or -errno. */
int state_folder_open(int dir, const char *path) MUST_CHECK;
/* Read what sandbox @name is from its folder @dir. */
int state_read(int dir, const char *name, struct daemon_sandbox *ret) MUST_CHECK;
/* Remove the folders that other engines below @engines have under the name of @d. */
void state_claim(const struct daemon_sandbox *d, uint32_t engines);
/* Open the snapshot of @d: the file that is there, or a fresh one. */
int state_snapshot(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
int state_save(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Open the policy of @d. Return: a descriptor, owned by the caller, or -errno. */
int state_text(const struct daemon_sandbox *d) MUST_CHECK;
/* Write the new policy of @d alone. */
int state_save_text(const struct daemon_sandbox *d, int text_fd,
		    struct err *err) MUST_CHECK;
void state_forget(const struct daemon_sandbox *d);
/* Attach the sandboxes of the state directory that aren't attached, one in each turn
 * of the loop. One that can't be attached is reported the first time, and forgotten
 * if its namespace is gone. */
void state_restore(struct daemon *w);
/* Note that @name was guarded before and can't be now; it is tried again. NULL: which
 * sandboxes there were can't be read. */
void state_note_lacking(struct daemon *w, const char *name, const char *why);
/* At the start: try again for a second, before anything is reported and new sandboxes
 * are taken. */
void state_restore_first(struct daemon *w);

/* -- engines.c: at a start ---------------------------------------------------------- */

/* Decide how many engines there are: @wanted, or (0) as many as had sandboxes. Move
 * the folders of engines that there won't be, and of engines over their descriptor
 * budget. Called by the first daemon, before it starts others. -errno: a folder can't be
 * read, and what is in it would be left out. */
int engines_rebalance(struct daemon *w, size_t wanted, size_t *ret,
		      struct err *err) MUST_CHECK;

/* -- engines.c ---------------------------------------------------------------------- */

/* In the first daemon: start one more engine; control is notified. */
int engines_add(struct daemon *w, struct err *err) MUST_CHECK;
/* A new control process gets a channel to each daemon. */
void engines_introduce(struct supervisor *k);
/* Kill the daemon of engine @number, which does not answer; it is started again. */
void engines_kill(struct daemon *w, uint32_t number);
/* All engines have all sandboxes from before. */
bool engines_are_active(const struct daemon *w);
/* In another daemon: listen to the first daemon. */
int engines_listen_to_first(struct daemon *w, int channel, struct err *err) MUST_CHECK;
