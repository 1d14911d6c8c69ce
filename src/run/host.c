// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The place is found or made, the daemon attaches it and answers when its filter was
 * tested, and only then is there a child. It joins, and becomes the command. Whatever
 * fails before that ends with failed_safety_setup, and takes back what was done.
 *
 * Nobody is set free: the daemon lets go of the place when nobody is left in it. A cgroup
 * that was made here is emptied for that; elsewhere who is left stays guarded, and is
 * told. If this process is killed the command dies with it, and its children stay guarded
 * where they are. */
#include "run/host.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "launch/std_fds.h"
#include "outputs/client.h"
#include "run/environment.h"
#include "run/host_attach.h"
#include "run/host_child.h"
#include "run/report.h"
#include "sandbox/sandbox.h"
#include "sys/process.h"

enum {
	EVENTS_KEPT = 512,
	STOP_MS = 2000,	  /* for a command that on_denies ends, until SIGKILL */
	LOOK_MS = 500,	  /* at what was denied, and at whether on_denies ends it */
	SETTLE_MS = 5000, /* the engine folds what is equal, for a second or two */
	SETTLE_EVERY_MS = 50,
};

struct host_run {
	struct run_spec *spec;
	struct run_place place;
	struct run_daemon daemon;
	struct run_member member;
	struct run_policy policy;
	struct event_ring *ring;
	struct environment environment;
	struct report_live first; /* that are denied */
	uint64_t counters[SANDBOX_COUNTER_COUNT];
	int64_t started_ms;
	sigset_t waited, before;
	pid_t child;
	int wait_status;
	int failure;	 /* the exit status, if Weir failed; 0: it didn't */
	int parent_fd;	 /* --end-with; -1: nobody is watched */
	bool is_closed;	 /* by on_denies, and with it the command is over */
	bool is_ending;	 /* for that, or because the parent has ended */
	int64_t kill_ms; /* it had the time to end by itself */
};

/* ---- signals ---- */

/* What our caller ignores (nohup) stays ignored. */
static void block_signals(struct host_run *h)
{
	static const int forwarded[] = { SIGTERM, SIGINT,  SIGHUP,  SIGQUIT,
					 SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH };
	const struct sigaction by_default = { .sa_handler = SIG_DFL };
	struct sigaction old;

	sigaction(SIGCHLD, &by_default, NULL);
	sigemptyset(&h->waited);
	sigaddset(&h->waited, SIGCHLD);
	sigaddset(&h->waited, SIGCONT);
	for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
		if (sigaction(forwarded[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaddset(&h->waited, forwarded[i]);
	sigprocmask(SIG_BLOCK, &h->waited, &h->before);
}

/* A signal that came before there was a command is for us. */
static int early_signal(const struct host_run *h)
{
	sigset_t pending;

	sigpending(&pending);
	for (int sig = 1; sig < SIGRTMIN; sig++)
		if (sig != SIGCHLD && sig != SIGCONT && sig != SIGWINCH &&
		    sigismember(&h->waited, sig) && sigismember(&pending, sig))
			return sig;
	return 0;
}

/* Return: whether the command has ended. One that was stopped takes us along, so that
 * the shell sees a stopped job. */
static bool look_after(struct host_run *h)
{
	int status;

	while (waitpid(h->child, &status, WNOHANG | WUNTRACED) > 0) {
		if (!WIFSTOPPED(status)) {
			h->wait_status = status;
			return true;
		}
		if (h->parent_fd < 0)
			kill(getpid(), SIGTSTP);
	}
	return false;
}

/* The daemon kills what is in a cgroup that it has closed, and of a user nothing: the
 * command is ended as everywhere. */
static void look_at_closing(struct host_run *h, bool may_close)
{
	const int64_t now_ms = clock_now_ms();
	struct pollfd parent = { .fd = h->parent_fd, .events = POLLIN };

	if (may_close && !h->is_closed)
		h->is_closed = run_daemon_is_closed(&h->daemon);
	if (!h->is_ending && (h->is_closed || poll(&parent, 1, 0) == 1)) {
		h->is_ending = true;
		h->kill_ms = now_ms + STOP_MS;
		kill(h->child, SIGTERM);
	} else if (h->is_ending && now_ms >= h->kill_ms) {
		kill(h->child, SIGKILL);
	}
}

/* The first denials are said while the command runs. */
static void look_at_denials(struct host_run *h)
{
	struct event_ring *newest = h->first.more ? NULL : event_ring_new(EVENTS_KEPT);

	/* Nothing more is said one by one. */
	if (!newest) {
		report_live_say(&h->first, &h->policy);
		return;
	}
	run_daemon_look(&h->daemon, &h->policy.plan, newest);
	for (size_t i = 0; i < event_ring_count(newest); i++) {
		const struct event *e = event_ring_at(newest, i);

		if (report_live_note(&h->first, h->ring, e))
			event_ring_add(h->ring, e);
	}
	event_ring_free(newest);
	report_live_say(&h->first, &h->policy);
}

/* The terminal's the command gets by itself: it is in our process group. */
static void wait_for_command(struct host_run *h)
{
	const struct plan_on_denies on = plan_on_denies(&h->policy.plan);
	const bool may_close = on.count > 0 && on.action == ON_DENIES_STOP;
	const bool ends = may_close || h->parent_fd >= 0;
	const struct timespec look = { .tv_nsec = LOOK_MS * 1000000 };
	siginfo_t info;

	while (!look_after(h)) {
		const bool tells = !h->spec->quiet && !h->first.more_said;
		int sig = ends || tells ? sigtimedwait(&h->waited, &info, &look)
					: sigwaitinfo(&h->waited, &info);

		if (sig > 0 && sig != SIGCHLD &&
		    (info.si_code != SI_KERNEL || sig == SIGHUP))
			kill(h->child, sig);
		if (ends)
			look_at_closing(h, may_close);
		if (tells && sig < 0)
			look_at_denials(h);
	}
	h->is_closed = may_close && (h->is_closed || run_daemon_is_closed(&h->daemon));
	h->child = 0;
}

/* ---- the start ---- */

/* Return: 0 when the command runs, or the exit status. */
static int start_guarded(struct host_run *h, struct err *err)
{
	uint32_t uid = geteuid();
	int r = run_policy_build(h->spec, &h->policy, err);
	/* Whatever the policy is: all faults are told at once. */
	int user = h->spec->uid ? daemon_find_user(h->spec->uid, &uid) : 0;
	struct stat api;
	int sig;

	if (r != 0 || user != 0)
		return r != 0 ? r : user;
	h->ring = event_ring_new(EVENTS_KEPT);
	if (!h->ring)
		return err_set(err, -ENOMEM, "out of memory"), RUN_STATUS_FAILED;
	if (stat(client_socket(h->spec->socket), &api) < 0)
		api.st_gid = 0;
	if (process_watch_parent((pid_t)h->spec->parent, &h->parent_fd, err) < 0 ||
	    std_fds_check(-1, err) < 0 ||
	    run_place_open(h->spec, uid, &h->place, err) < 0 ||
	    run_member_find(h->spec, &h->place, api.st_gid, &h->member, err) < 0 ||
	    run_daemon_attach(&h->daemon, h->spec->id,
			      h->place.cgroup.path[0] ? h->place.cgroup.path : NULL,
			      h->place.uid, &h->policy, err) < 0)
		return RUN_STATUS_FAILED;
	if (environment_choose(h->spec, &h->environment, err) < 0)
		return RUN_STATUS_FAILED;
	h->member.environment = h->environment.list;
	sig = early_signal(h);
	if (sig != 0) {
		h->wait_status = W_EXITCODE(0, sig);
		return 0;
	}
	h->child = run_member_start(&h->member, &h->before, err);
	return h->child < 0 ? RUN_STATUS_FAILED : 0;
}

/* ---- the end ---- */

static int report_guarded(struct host_run *h)
{
	struct report report = {
		.spec = h->spec,
		.policy = &h->policy,
		.ring = h->ring,
		.failures = h->ring, /* the daemon is asked for none */
		.counters = h->counters,
		.started_ms = h->started_ms,
		.held = h->environment.held,
		.held_count = h->environment.held_count,
		.stopped = h->is_closed,
	};

	return report_end(&report, h->failure, h->wait_status);
}

/* What was denied is asked for while there is somebody to be asked. Where something was,
 * the last of it may take a moment. */
static int ask_what_was_denied(struct host_run *h, struct err *err)
{
	const struct timespec wait = { .tv_nsec = SETTLE_EVERY_MS * 1000000 };
	const int64_t end_ms = clock_now_ms() + SETTLE_MS;
	int r;

	for (;;) {
		struct event_ring *all = event_ring_new(EVENTS_KEPT);

		if (!all)
			return err_set(err, -ENOMEM, "out of memory");
		r = run_daemon_read(&h->daemon, &h->policy.plan, all, h->counters, err);
		/* What was told while the command ran stays where nobody answers. */
		if (r < 0) {
			event_ring_free(all);
			return r;
		}
		event_ring_free(h->ring);
		h->ring = all;
		if (run_daemon_is_settled(all, h->counters) ||
		    event_ring_count(all) == EVENTS_KEPT || clock_now_ms() > end_ms)
			return 0;
		nanosleep(&wait, NULL);
	}
}

static void leave(struct host_run *h)
{
	bool clear = run_place_clear(&h->place);
	struct err err = { 0 };

	if (h->daemon.id[0] && h->failure == 0 && ask_what_was_denied(h, &err) < 0) {
		log_warning("cannot ask what was denied: %s", err.text);
		/* Nobody can say that nothing was. */
		if (h->spec->fail_on_deny)
			h->failure = RUN_STATUS_FAILED;
	}
	/* A cgroup that is gone when it is detached leaves no socket that is free. */
	if (clear)
		run_place_close(&h->place);
	err = (struct err){ 0 };
	if (h->daemon.id[0] && !clear)
		log_warning("processes are left: they stay guarded, until `weir detach "
			    "%s`",
			    h->daemon.id);
	else if (run_daemon_detach(&h->daemon, &err) < 0)
		log_warning("cannot detach '%s': %s", h->daemon.id, err.text);
}

int run_host(struct run_spec *spec)
{
	struct host_run h = { .spec = spec,
			      .daemon.socket = spec->socket,
			      .parent_fd = -1,
			      .started_ms = clock_wall_ms() };
	struct err err = { 0 };
	struct std_flags flags;
	int status;

	std_flags_read(&flags);
	block_signals(&h);
	h.failure = start_guarded(&h, &err);
	if (h.failure == RUN_STATUS_FAILED)
		log_error("failed_safety_setup: %s", err.text);
	else if (h.child > 0)
		wait_for_command(&h);
	std_flags_restore(&flags);
	leave(&h);
	status = report_guarded(&h);
	if (WIFSIGNALED(h.wait_status) && status == 128 + WTERMSIG(h.wait_status))
		process_die_by(WTERMSIG(h.wait_status));
	run_member_done(&h.member);
	event_ring_free(h.ring);
	run_policy_done(&h.policy);
	return status;
}
