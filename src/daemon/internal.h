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
	DAEMON_SANDBOX_PLACE_SIZE = 48,
};

/* What control knows of a sandbox. */
enum control_knows {
	CONTROL_UNAWARE = 0, /* nothing yet: it hears when the sandbox is ACTIVE */
	CONTROL_ASKS,	     /* control waits for an answer */
	CONTROL_INFORMED,
};

/* sandboxes.c */
struct daemon_plan;

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
	struct ipc_sandbox spec;
	struct sandbox_fds fds; /* in its namespace */
	size_t fds_held;	/* as room_fds_of() had it */
	int route_fd;
	struct daemon_plan *plan;
	int text_fd;		   /* its policy, until that is in its folder; then -1 */
	int snapshot_fd;	   /* until the engine has it; then -1 */
	struct launch_probe probe; /* allowed_name "": no self-test */
	struct loop_source from_child; /* it is inside for the self-test; fd -1: none */
	struct loop_timer late;
	/* Is the namespace still there? */
	dev_t ns_dev;
	ino_t ns_ino;
	struct loop_source process; /* a pidfd, -1: none */
	/* ATTACH_HOST */
	struct filter_member member;
	uint64_t attached_cgroup; /* the cgroup of @member when the engine got it */
	char *dir;     /* of its cgroup, through host.hierarchy; owned, NULL: a user */
	int watch;     /* of inotify, on the directory above; -1: none */
	bool waiting;  /* the cgroup is gone; its parent isn't */
	bool unseen;   /* whether it is gone could not be seen, and that was said */
	bool guards;   /* its parent is guarded */
	char *refused; /* why, for when the engine has let go of it; owned */
	size_t ended;  /* connections from before that were ended */
	struct join join;
	struct loop_deferred freed;
	/* With all others. */
	struct index_entry named; /* until it is LIFECYCLE_RESERVED */
	struct index_entry placed;
	char place[DAEMON_SANDBOX_PLACE_SIZE]; /* what no two can be: a namespace, a
					cgroup, a user id */
	struct index_entry followed;
	char *follow_key; /* watch and name; owned */
	TAILQ_ENTRY(daemon_sandbox) in_queue;
	struct attach_queue *queue; /* while it is LIFECYCLE_QUEUED, or NULL */
};
TAILQ_HEAD(attach_queue, daemon_sandbox);

struct filter_parents;
struct parent;

/* What all sandboxes of the host's own namespace share. */
enum host_state {
	HOST_NONE = 0, /* there is no such sandbox: nothing is open */
	HOST_OPEN,     /* the descriptors are there; this engine doesn't have them */
	HOST_GIVEN,    /* it has them, and no table yet */
	HOST_LOADING,  /* it has not answered */
	HOST_FAILED,   /* what stood before stands; it is tried again */
	HOST_STANDS,
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
	char *sibling; /* a directory that was no sandbox's when last seen; owned */
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
	struct host host;
	struct daemon_sandbox *sandboxes[SANDBOXES_MAX + 1]; /* by id, from 1 on; owned */
	struct index names, places, plans, followed, watches;
	struct attach_queue queues[LIFECYCLE_ORIGIN_COUNT];
	size_t count;
	size_t fds_held;   /* descriptors of all sandboxes, but for */
	size_t plan_count; /* of their plans */
	uint32_t last_id;  /* ids are given in turn: what is under way is the old one's */
	uint32_t giving;   /* the sandbox that the engine has not answered about, or 0 */
	bool engine_ready;
	int home;	/* network namespace of the daemon */
	int state_dir;	/* /run/weir/sandboxes, or in it that of this engine */
	int state_root; /* /run/weir/sandboxes */
	struct loop_timer look, watchdog;
	unsigned int looks;
	DIR *restoring; /* state_dir, as far as it is read; or NULL */
	struct loop_deferred restore_turn;
	struct loop_timer restore_again;
	unsigned int patience;
	bool restored; /* it was read once: the engine is given new ones */
	bool lacks;    /* something in state_dir is not guarded: it is tried again */
	char lacking[ERR_TEXT_SIZE]; /* which one, and why */
	int64_t watchdog_ms;	     /* 0: nobody asks for it */
	bool told_ready;
};

/* -- daemon.c ----------------------------------------------------------------------- */

/* The daemon of engine @number, the first one's child: until @channel to that ends. */
int daemon_run_further(struct sidecar_spec *spec, uint32_t number, int channel);
/* Tell systemd that all engines serve, if they do and it hasn't heard. */
void daemon_tell_ready(struct daemon *w);
/* @name was guarded before, and can't be now: it is tried again. */
void daemon_lacks(struct daemon *w, const char *name, const char *why);
/* Tell control what isn't served, if that has changed. */
void daemon_tell_lacking(struct daemon *w);
/* An engine has everything that was guarded before: from now on it is served. */
void daemon_on_all_given(struct daemon *w);
/* Control may be away: then nobody is told. */
void daemon_tell_control(const struct daemon *w, const struct ipc_message *m,
			 const int *fd);

/* -- sandboxes.c -------------------------------------------------------------------- */

struct daemon_sandbox *daemon_sandbox_find(const struct daemon *w, uint32_t id);
struct daemon_sandbox *daemon_sandbox_find_name(const struct daemon *w, const char *name);
/* Control may ask which namespace it is. */
struct ipc_sandbox daemon_sandbox_as_told(const struct daemon_sandbox *d);
/* What is asked for can be meant: a name of letters, digits, '-', '_', '.'. */
int daemon_sandbox_check(const struct ipc_sandbox *spec, struct err *err) MUST_CHECK;
/* @plan_fd and @text_fd are taken, whatever comes of it; @text_fd is -1 when its folder
 * has it. @id 0: any. On success the sandbox is on its way to the engine. */
int daemon_sandbox_attach(struct daemon *w, const struct daemon_sandbox *given,
			  int plan_fd, int text_fd, struct err *err) MUST_CHECK;
/* Its cgroup was made again, and @d->member is the new one: the engine gets it. */
void daemon_sandbox_on_remade(struct daemon_sandbox *d);
/* The engine has the sandbox as the cgroup that it was before. */
bool daemon_sandbox_is_outdated(const struct daemon_sandbox *d);
/* The engine is gone. */
void daemon_sandbox_on_engine_end(struct daemon_sandbox *d);
void daemon_sandbox_on_engine(struct daemon *w, const struct ipc_message *m);
/* A new plan and text are in force; they are taken, whatever comes of it. On failure the
 * old ones are kept. */
int daemon_sandbox_keep(struct daemon_sandbox *d, int plan_fd, int text_fd,
			struct err *err) MUST_CHECK;

/* -- engines.c: descriptors --------------------------------------------------------- */

/* -EMFILE: the daemon has no descriptors for @d. Nothing was opened. */
int room_check(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* The same, with all there is to be opened. */
int room_check_opened(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* That it has, but for its plan. */
size_t room_fds_of(const struct daemon_sandbox *d);

/* -- sandboxes.c: the queues -------------------------------------------------------- */

void give_init(struct daemon *w);
/* Give the engine the next one that waits. */
void attach_queue_next(struct daemon *w);

/* Those of the host's own that wait for their table are told why there is none. */
void daemon_sandbox_refuse_host(struct daemon *w, const char *text);
/* The rules go with @forget false. */
void daemon_sandbox_detach(struct daemon_sandbox *d, bool forget);

/* Borrowed. */
int daemon_plan_fd(const struct daemon_plan *p);

/* -- child.c: in a namespace -------------------------------------------------------- */

/* Which namespace is meant: sets ns_dev and ns_ino. *@ret_ns is the caller's. */
int inside_find(struct daemon_sandbox *d, int *ret_ns, struct err *err) MUST_CHECK;
/* Enter it, @ns, and open what the engine serves there. With d->probe a child stays
 * inside, at d->from_child. */
int inside_open(struct daemon_sandbox *d, int ns, struct err *err) MUST_CHECK;
/* What the child says: 0, the self-test has passed; or -errno with @err. */
int inside_result(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
int inside_begin_test(struct daemon_sandbox *d) MUST_CHECK;
/* It has said what it had to. */
void inside_hear_no_more(struct daemon_sandbox *d);
void inside_end(struct daemon_sandbox *d);

/* -- child.c: sockets --------------------------------------------------------------- */

/* Which sockets that go round the filter are open, in a namespace; in a cgroup, or by a
 * user. Takes milliseconds, and no more than a second. */
struct ipc_look inside_look(const struct daemon_sandbox *d);
struct ipc_look host_look(const struct daemon_sandbox *d);

/* -- host.c ------------------------------------------------------------------------- */

void host_init(struct daemon *w);
/* @d->spec says who is meant: find out, and write it there as it is to be shown. For the
 * first one, open what is served. */
int host_find(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Is @asked, which is to be guarded again, what @d guards? Control is answered when @d
 * stands. */
int host_again(struct daemon_sandbox *d, const struct ipc_sandbox *asked,
	       struct err *err) MUST_CHECK;
/* The engine has the descriptors after it; it may have to be given them. */
int host_give(struct daemon *w) MUST_CHECK;
/* The table is to be installed. */
int host_load(struct daemon *w) MUST_CHECK;
void host_on_engine(struct daemon *w, const struct ipc_message *m);
void host_on_engine_end(struct daemon *w);
/* The table could not be installed: try again. */
void host_try_again(struct daemon *w);
/* It stands for the first time: end what the filter can't judge of the connections that
 * were there. */
int host_settle(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* How many those were, and which sockets the filter doesn't take for its own. */
void host_tell_settled(const struct daemon_sandbox *d);
/* Which is its cgroup now? Return: 0; -ENOENT: it is gone; every other error: that can't
 * be known. */
int host_cgroup_id(const struct daemon_sandbox *d, uint64_t *ret) MUST_CHECK;
/* What is above its cgroup is gone. False as well if that can't be known. */
bool host_is_parent_gone(const struct daemon_sandbox *d);
/* follow_start(), once there is a hierarchy. */
int host_follow(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* An event of the sandbox's. */
void host_tell(const struct daemon_sandbox *d, const char *text);

/* -- cgroup.c: the sandbox ---------------------------------------------------------- */

/* From now on @d->dir is followed; before its id is read. */
int follow_start(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
void follow_stop(struct daemon_sandbox *d);
/* Is it still that one? */
void follow_look(struct daemon_sandbox *d);

/* -- cgroup.c: its parent ----------------------------------------------------------- */

/* @d stands: its parent is guarded from now on, if it is to be, and @d let through. */
int parent_guard(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Its rules stand: it may go on to them, if its parent is guarded. */
void parent_let_through(const struct daemon_sandbox *d);
/* The host's table stands now. */
void parents_load(struct daemon *w);
/* All that were guarded before are back, and none is of the host's own: the same. */
void parents_leave_behind(struct daemon *w);
/* Put back what others have removed. */
void parents_look(struct daemon *w);

/* -- child.c: in a cgroup, or as a user --------------------------------------------- */

/* A process that is one of those that are meant is ordered; */
int join_start(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* and is there, if it was: it waits at d->from_child for IPC_RUN, and then tests. What is
 * in the way of that is told. Before anybody else orders one. */
int join_wait(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* Nothing is left of it. */
void join_end(struct daemon_sandbox *d);

/* -- gone.c ------------------------------------------------------------------------- */

/* From now on it is looked after. */
int gone_watch(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
void gone_unwatch(struct daemon_sandbox *d);
int gone_start(struct daemon *w) MUST_CHECK;
/* The number, if that is what @where is; 0: a path. */
pid_t gone_pid_of(const char *where);

/* -- host.c: users by name ---------------------------------------------------------- */

/* A user who was named gets the number. */
int daemon_sandbox_user(struct ipc_sandbox *spec, struct err *err) MUST_CHECK;

/* -- state.c ------------------------------------------------------------------------ */

int state_open(struct daemon *w, const char *run_dir, struct err *err) MUST_CHECK;
/* Of the sandboxes of @engine, below state_root. Those of the first are beside the
 * others' folders: no sandbox has a name with a dot in front. */
enum { STATE_FOLDER_SIZE = 16 };
void state_folder_name(uint32_t engine, char ret[STATE_FOLDER_SIZE]);
/* Return: a descriptor, or -errno. */
int state_folder_open(int dir, const char *path) MUST_CHECK;
/* What sandbox @name is, whose folder @dir is. */
int state_read(int dir, const char *name, struct daemon_sandbox *ret) MUST_CHECK;
/* No other engine below @engines has something under the name of @d. */
void state_claim(const struct daemon_sandbox *d, uint32_t engines);
/* The image of @d: the one that is there, or a fresh one. */
int state_image(struct daemon_sandbox *d, struct err *err) MUST_CHECK;
int state_keep(const struct daemon_sandbox *d, struct err *err) MUST_CHECK;
/* The policy of @d, to be read. Return: a descriptor, owned by the caller, or -errno. */
int state_text(const struct daemon_sandbox *d) MUST_CHECK;
/* The policy alone has changed, to this. */
int state_keep_text(const struct daemon_sandbox *d, int text_fd,
		    struct err *err) MUST_CHECK;
void state_forget(const struct daemon_sandbox *d);
/* Attach again what was there before and isn't now, one in each turn of the loop. What
 * can't be is told the first time, and forgotten if its namespace is gone. */
void state_restore(struct daemon *w);
/* At the start: again for a second, before something is told and new ones are taken. */
void state_restore_first(struct daemon *w);

/* -- engines.c: at a start ---------------------------------------------------------- */

/* Which engines there have to be, @wanted or as many as had sandboxes (0); what others
 * had is theirs from now on, and so is what one of them has no room for. Of the first
 * daemon, before there are others. Return: how many. */
size_t deal_out(struct daemon *w, size_t wanted);

/* -- engines.c ---------------------------------------------------------------------- */

/* Start those that are missing, up to @count with the first. */
int engines_start(struct daemon *w, size_t count, struct err *err) MUST_CHECK;
/* One more; control is told. */
int engines_more(struct daemon *w, struct err *err) MUST_CHECK;
/* Control is another one: it gets a channel to each daemon. */
void engines_introduce(struct supervisor *k);
/* Its daemon does not answer: another one takes its place. */
void engines_kill(struct daemon *w, uint32_t number);
/* All of them have everything. */
bool engines_stand(const struct daemon *w);
/* In another daemon: hear the first one, and tell it that this one stands. */
int engines_hear_first(struct daemon *w, int channel, struct err *err) MUST_CHECK;
void engines_tell_first(struct daemon *w);
