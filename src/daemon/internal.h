// SPDX-License-Identifier: Apache-2.0
/* daemon/internal - what the daemon's files share.
 *
 *   warden.c         start and end; what the engine and control say
 *   warden_socket.c  where the API listens
 *   warden_wards.c   a sandbox is attached and stands
 *   warden_leave.c   it is refused or detached
 *   warden_plans.c   plans, which sandboxes share
 *   warden_room.c    descriptors for another one
 *   warden_give.c    those that wait for the engine, and the one that it has
 *   warden_inside.c  the short-lived child that enters its namespace
 *   warden_gone.c    namespaces that are gone
 *   warden_user.c    users by name
 *   warden_witness.c the process that finds out whose a denial was
 *   warden_host.c    what those of the host's own namespace share, and who they are
 *   warden_follow.c  cgroups that go and come again
 *   warden_parent.c  what is above those cgroups is closed to whom nobody knows
 *   warden_join.c    the short-lived child that is a cgroup's or a user's
 *   warden_state.c   what outlives the daemon, in /run/weir
 *   warden_deal.c    which engine has which of them, at a start
 *   warden_engines.c more engines, each with a warden of its own */
#pragma once

#include <dirent.h>
#include <sys/queue.h>

#include "base/index.h"
#include "daemon/daemon.h"
#include "proto/launch.h"
#include "resolver/resolver.h"
#include "supervisor/spawner.h"
#include "supervisor/supervisor.h"

enum {
	WARDS_MAX = IPC_WARDS_MAX, /* over it: refused */
	WARD_TEST_MS = 5000,
	WARD_PIN_MS = RESOLVER_PIN_MS + 2000,
	WARD_PLACE_SIZE = 48,
};

enum ward_state {
	WARD_NEW = 0,  /* its descriptors are there; the engine has not got it yet */
	WARD_GIVEN,    /* the engine has it, and has not answered */
	WARD_TESTING,  /* the rules stand; the self-test runs inside */
	WARD_PINNING,  /* dns: pinned: its names are resolved for the first time */
	WARD_STANDING, /* guarded */
	WARD_ENDING,   /* the engine was told to let it go */
	/* Of the host's own: it was refused, but the table may have it under this id,
	 * which nobody else gets. It has no name and is no sandbox. */
	WARD_LEFT,
};

/* The order in which the engine is given what waits. */
enum ward_queue_of {
	QUEUE_AGAIN = 0, /* its cgroup was made again: no time to lose */
	QUEUE_RESTARTED, /* it was guarded before */
	QUEUE_NEW,
	WARD_QUEUE_COUNT
};

/* warden_plans.c */
struct ward_plan;

/* The self-test's process, as one of the cgroup's or the user's. */
struct join {
	bool is_ordered; /* and the porter's answer not taken yet */
	pid_t pid;	 /* 0: none */
	int process;	 /* pidfd, -1: none */
	char *below;	 /* a cgroup that was made for it, owned; or NULL */
};

struct ward {
	struct warden *warden;
	uint32_t id;
	enum ward_state state;
	struct ipc_ward spec;
	struct sandbox_fds fds; /* in its namespace */
	size_t fds_held;	/* as room_fds_of() had it */
	int route_fd;
	struct ward_plan *plan;
	int text_fd;		   /* its policy, until that is in its folder; then -1 */
	int image_fd;		   /* until the engine has it; then -1 */
	bool restarted;		   /* it was guarded before: take over what was learned */
	bool told;		   /* control has heard that it stands */
	bool asked;		   /* control waits for an answer about it */
	bool pins;		   /* dns: pinned */
	struct launch_probe probe; /* allowed_name "": no self-test */
	struct loop_source from_child; /* it is inside for the self-test; fd -1: none */
	struct loop_timer late;
	/* Is the namespace still there? */
	dev_t ns_dev;
	ino_t ns_ino;
	struct loop_source process; /* a pidfd, -1: none */
	/* GUARDED_HOST */
	struct filter_member member;
	char *dir;	 /* of its cgroup, through host.hierarchy; owned, NULL: a user */
	int watch;	 /* of inotify, on the directory above; -1: none */
	bool waiting;	 /* the cgroup is gone; its parent isn't */
	bool unseen;	 /* whether it is gone could not be seen, and that was said */
	bool fresh;	 /* it is another cgroup now: nothing is taken over */
	bool again;	 /* and yet another one, while the engine was being told */
	bool guards;	 /* its parent is guarded */
	char *refused;	 /* why, for when the engine has let go of it; owned */
	size_t ended;	 /* connections from before that were ended */
	bool is_settled; /* what is done once its rules stand was done */
	struct join join;
	struct loop_deferred freed;
	/* With all others. */
	struct roster_entry named; /* while it is one of them, and not WARD_LEFT */
	struct roster_entry placed;
	char place[WARD_PLACE_SIZE]; /* what no two can be: a namespace, a cgroup, a user
					id */
	struct roster_entry followed;
	char *follow_key; /* watch and name; owned */
	TAILQ_ENTRY(ward) in_queue;
	struct ward_queue *queue; /* that of those that wait as WARD_NEW, or NULL */
};
TAILQ_HEAD(ward_queue, ward);

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

struct warden {
	struct keeper keeper;
	/* warden_engines.c */
	uint32_t engine;     /* its number; the first warden has 0 and all of these: */
	size_t engine_count; /* with its own */
	struct further *engines[IPC_ENGINES_MAX]; /* from 1 on; owned */
	struct loop_source parent; /* of the others: to the first; else fd -1 */
	struct porter porter;
	struct host host;
	struct ward *wards[WARDS_MAX + 1]; /* by id, from 1 on; owned */
	struct roster names, places, plans, followed, watches;
	struct ward_queue queues[WARD_QUEUE_COUNT];
	size_t count;
	size_t fds_held;   /* descriptors of all sandboxes, but for */
	size_t plan_count; /* of their plans */
	uint32_t last_id;  /* ids are given in turn: what is under way is the old one's */
	uint32_t giving;   /* the ward that the engine has not answered about, or 0 */
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

/* -- warden.c ----------------------------------------------------------------------- */

/* The warden of engine @number, the first one's child: until @channel to that ends. */
int warden_run_further(struct sidecar_spec *spec, uint32_t number, int channel);
/* Tell systemd that all engines serve, if they do and it hasn't heard. */
void warden_tell_ready(struct warden *w);
struct shared_config warden_engine_config(const struct warden *w, int channel);
void warden_on_engine(struct warden *w, struct ipc_message *m);
void warden_on_engine_end(struct warden *w);
/* @name was guarded before, and can't be now: it is tried again. */
void warden_lacks(struct warden *w, const char *name, const char *why);
/* Tell control what isn't served, if that has changed. */
void warden_tell_lacking(struct warden *w);
/* An engine has everything that was guarded before: from now on it is served. */
void warden_on_all_given(struct warden *w);
/* @fds are the callee's. */
void warden_on_control(struct warden *w, const struct ipc_message *m, int *fds,
		       size_t count);
/* Control may be away: then nobody is told. */
void warden_tell_control(struct warden *w, const struct ipc_message *m, const int *fd);

/* -- warden_socket.c ---------------------------------------------------------------- */

/* The API's, at @path, bound as keeper_open_http() does. -EADDRINUSE: another daemon has
 * it. */
int warden_open_socket(const char *path, int *ret, struct err *err) MUST_CHECK;

/* -- warden_wards.c ----------------------------------------------------------------- */

struct ward *ward_find(const struct warden *w, uint32_t id);
struct ward *ward_find_name(const struct warden *w, const char *name);
/* Control may ask which namespace it is. */
struct ipc_ward ward_as_told(const struct ward *d);
/* What is asked for can be meant: a name of letters, digits, '-', '_', '.'. */
int ward_check(const struct ipc_ward *spec, struct err *err) MUST_CHECK;
/* @plan_fd and @text_fd are taken, whatever comes of it; @text_fd is -1 when its folder
 * has it. @id 0: any. On success the ward is on its way to the engine. */
int ward_attach(struct warden *w, const struct ward *given, int plan_fd, int text_fd,
		struct err *err) MUST_CHECK;
/* Of the host's own: it is another member now; the engine is told. */
void ward_enter_again(struct ward *d);
void ward_free(struct ward *d);
/* The engine is gone. */
void ward_on_engine_end(struct ward *d);
void ward_on_engine(struct warden *w, const struct ipc_message *m);
/* A new plan and text are in force; they are taken, whatever comes of it. On failure the
 * old ones are kept. */
int ward_keep(struct ward *d, int plan_fd, int text_fd, struct err *err) MUST_CHECK;

/* -- warden_room.c ------------------------------------------------------------------ */

/* -EMFILE: the daemon has no descriptors for @d. Nothing was opened. */
int room_check(const struct ward *d, struct err *err) MUST_CHECK;
/* The same, with all there is to be opened. */
int room_check_opened(const struct ward *d, struct err *err) MUST_CHECK;
/* How many namespaces there is room for, according to what they are. */
void room_namespaces(size_t *ret_least, size_t *ret_most);
/* That it has, but for its plan. */
size_t room_fds_of(const struct ward *d);

/* -- warden_give.c ------------------------------------------------------------------ */

void give_init(struct warden *w);
/* It is WARD_NEW from now on. */
void ward_wait(struct ward *d);
void ward_leave_queue(struct ward *d);
/* Give the engine the next one that waits. */
void ward_give_next(struct warden *w);

/* -- warden_leave.c ----------------------------------------------------------------- */

/* It is not guarded, and whoever asked hears why. Not freed by it. */
void ward_refuse(struct ward *d, const char *text);
/* Those of the host's own that wait for their table are told why there is none. */
void ward_refuse_host(struct warden *w, const char *text);
/* The rules go with @forget false. */
void ward_detach(struct ward *d, bool forget);
/* What the engine said to that; @text "": it went well. @d is freed, or WARD_LEFT. */
void ward_on_detached(struct ward *d, const char *text);
/* The engine has it, and it won't stand: it is refused when the engine has let go. */
void ward_fail(struct ward *d, const char *text);
/* The engine has none of it any more. @d is freed, or WARD_LEFT. */
void ward_leave(struct ward *d);

/* -- warden_plans.c ----------------------------------------------------------------- */

/* @fd, a sealed memfd, is taken, whatever comes of it. */
int ward_plan_take(struct warden *w, int fd, struct ward_plan **ret,
		   struct err *err) MUST_CHECK;
/* NULL is none. */
void ward_plan_drop(struct warden *w, struct ward_plan *p);
/* Borrowed. */
int ward_plan_fd(const struct ward_plan *p);

/* -- warden_inside.c ---------------------------------------------------------------- */

/* Which namespace is meant: sets ns_dev and ns_ino. *@ret_ns is the caller's. */
int inside_find(struct ward *d, int *ret_ns, struct err *err) MUST_CHECK;
/* Enter it, @ns, and open what the engine serves there. With d->probe a child stays
 * inside, at d->from_child. */
int inside_open(struct ward *d, int ns, struct err *err) MUST_CHECK;
/* What the child says: 0, the self-test has passed; or -errno with @err. */
int inside_result(struct ward *d, struct err *err) MUST_CHECK;
int inside_begin_test(struct ward *d) MUST_CHECK;
/* It has said what it had to. */
void inside_hear_no_more(struct ward *d);
void inside_end(struct ward *d);
/* Which sockets that go round the filter are open in there. Takes milliseconds. */
struct ipc_look inside_look(const struct ward *d);

/* -- warden_host.c ------------------------------------------------------------------ */

void host_init(struct warden *w);
/* @d->spec says who is meant: find out, and write it there as it is to be shown. For the
 * first one, open what is served. */
int host_find(struct ward *d, struct err *err) MUST_CHECK;
/* Is @asked, which is to be guarded again, what @d guards? Control is answered when @d
 * stands. */
int host_again(struct ward *d, const struct ipc_ward *asked, struct err *err) MUST_CHECK;
/* The engine has the descriptors after it; it may have to be given them. */
int host_give(struct warden *w) MUST_CHECK;
/* The table is to be installed. */
int host_load(struct warden *w) MUST_CHECK;
void host_on_engine(struct warden *w, const struct ipc_message *m);
void host_on_engine_end(struct warden *w);
/* The table could not be installed: try again. */
void host_try_again(struct warden *w);
/* It stands for the first time: end what the filter can't judge of the connections that
 * were there. */
int host_settle(struct ward *d, struct err *err) MUST_CHECK;
/* How many those were, and which sockets the filter doesn't take for its own. */
void host_tell_settled(const struct ward *d);
struct ipc_look host_look(const struct ward *d);
/* Which is its cgroup now? Return: 0; -ENOENT: it is gone; every other error: that can't
 * be known. */
int host_cgroup_id(const struct ward *d, uint64_t *ret) MUST_CHECK;
/* What is above its cgroup is gone. False as well if that can't be known. */
bool host_is_parent_gone(const struct ward *d);
/* follow_start(), once there is a hierarchy. */
int host_follow(struct ward *d, struct err *err) MUST_CHECK;
/* An event of the sandbox's. */
void host_tell(const struct ward *d, const char *text);

/* -- warden_follow.c ---------------------------------------------------------------- */

/* From now on @d->dir is followed; before its id is read. */
int follow_start(struct ward *d, struct err *err) MUST_CHECK;
void follow_stop(struct ward *d);
/* Whose cgroup has that name below what is watched, and the next one. NULL: nobody's. */
struct ward *follow_find(const struct warden *w, int watch, const char *name);
struct ward *follow_next(const struct ward *d);
/* Is it still that one? */
void follow_look(struct ward *d);

/* -- warden_parent.c ---------------------------------------------------------------- */

/* @d stands: its parent is guarded from now on, if it is to be, and @d let through. */
int parent_guard(struct ward *d, struct err *err) MUST_CHECK;
/* Its rules stand: it may go on to them, if its parent is guarded. */
void parent_let_through(const struct ward *d);
/* The cgroup that @d was is shut out. */
void parent_shut(const struct ward *d, uint64_t cgroup);
/* No sandbox is below the directory of @watch any more. */
void parent_leave(struct warden *w, int watch);
/* Something has happened to @name below it that is no sandbox's. */
void parent_on_event(struct warden *w, int watch, const char *name);
/* Events were lost. */
void parents_look_again(struct warden *w);
/* The host's table stands now. */
void parents_load(struct warden *w);
/* All that were guarded before are back, and none is of the host's own: the same. */
void parents_leave_behind(struct warden *w);
/* Put back what others have removed. */
void parents_look(struct warden *w);

/* -- warden_join.c ------------------------------------------------------------------ */

/* A process that is one of those that are meant is ordered; */
int join_start(struct ward *d, struct err *err) MUST_CHECK;
/* and is there, if it was: it waits at d->from_child for IPC_RUN, and then tests. What is
 * in the way of that is told. Before anybody else orders one. */
int join_wait(struct ward *d, struct err *err) MUST_CHECK;
/* Nothing is left of it. */
void join_end(struct ward *d);

/* -- warden_gone.c ------------------------------------------------------------------ */

/* From now on it is looked after. */
int gone_watch(struct ward *d, struct err *err) MUST_CHECK;
void gone_unwatch(struct ward *d);
int gone_start(struct warden *w) MUST_CHECK;
/* The number, if that is what @where is; 0: a path. */
pid_t gone_pid_of(const char *where);

/* -- warden_witness.c --------------------------------------------------------------- */

/* Control gets a channel to a new one, which ends with that; then control asks for the
 * next one. */
void warden_start_witness(struct warden *w);

/* -- warden_user.c ------------------------------------------------------------------ */

/* A user who was named gets the number. */
int ward_user(struct ipc_ward *spec, struct err *err) MUST_CHECK;

/* -- warden_state.c ----------------------------------------------------------------- */

int state_open(struct warden *w, const char *run_dir, struct err *err) MUST_CHECK;
/* Of the sandboxes of @engine, below state_root. Those of the first are beside the
 * others' folders: no sandbox has a name with a dot in front. */
enum { STATE_FOLDER_SIZE = 16 };
void state_folder_name(uint32_t engine, char ret[STATE_FOLDER_SIZE]);
/* Return: a descriptor, or -errno. */
int state_folder_open(int dir, const char *path) MUST_CHECK;
/* What sandbox @name is, whose folder @dir is. */
int state_read(int dir, const char *name, struct ward *ret) MUST_CHECK;
/* No other engine below @engines has something under the name of @d. */
void state_claim(const struct ward *d, uint32_t engines);
/* The image of @d: the one that is there, or a fresh one. */
int state_image(struct ward *d, struct err *err) MUST_CHECK;
int state_keep(const struct ward *d, struct err *err) MUST_CHECK;
/* The policy of @d, to be read. Return: a descriptor, owned by the caller, or -errno. */
int state_text(const struct ward *d) MUST_CHECK;
/* The policy alone has changed, to this. */
int state_keep_text(const struct ward *d, int text_fd, struct err *err) MUST_CHECK;
void state_forget(const struct ward *d);
/* Attach again what was there before and isn't now, one in each turn of the loop. What
 * can't be is told the first time, and forgotten if its namespace is gone. */
void state_restore(struct warden *w);
/* At the start: again for a second, before something is told and new ones are taken. */
void state_restore_first(struct warden *w);

/* -- warden_deal.c ------------------------------------------------------------------ */

/* Which engines there have to be, @wanted or as many as had sandboxes (0); what others
 * had is theirs from now on, and so is what one of them has no room for. Of the first
 * warden, before there are others. Return: how many. */
size_t deal_out(struct warden *w, size_t wanted);

/* -- warden_engines.c --------------------------------------------------------------- */

/* Start those that are missing, up to @count with the first. */
int engines_start(struct warden *w, size_t count, struct err *err) MUST_CHECK;
/* One more; control is told. */
int engines_more(struct warden *w, struct err *err) MUST_CHECK;
/* Control is another one: it gets a channel to each warden. */
void engines_introduce(struct warden *w);
/* A child that may be one of them has ended. */
void engines_on_end(struct warden *w, pid_t pid, int wait_status);
/* Its warden does not answer: another one takes its place. */
void engines_kill(struct warden *w, uint32_t number);
/* All of them had everything, once. */
bool engines_stand(const struct warden *w);
/* All of them have said that they serve since this was asked last; ask again. */
bool engines_alive(struct warden *w);
/* In another warden: hear the first one, and tell it that this one stands. */
int engines_hear_first(struct warden *w, int channel, struct err *err) MUST_CHECK;
void engines_tell_first(struct warden *w);
