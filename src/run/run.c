// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * One loop over three descriptors: the channel to the engine, the channel to the launch
 * child (which weir-init inherits), and a signalfd.
 *
 *   weir-init:    LAUNCH_TESTED   -> engine: IPC_RUN
 *   engine:       IPC_RUNNING     -> the command's process: LAUNCH_GO
 *   engine:       IPC_EVENT       -> the ring
 *   weir-init:    LAUNCH_EXITED   -> engine: IPC_FINISH
 *   engine:       IPC_COUNTERS    -> the end: report, exit status
 *
 * Whatever else ends one of the two channels is a failure: the sandbox is killed, status
 * 125. Should this process be killed, PDEATHSIG and the channels' end take all along.
 *
 * Signals: the command is in our process group, so what the terminal sends (si_code
 * SI_KERNEL) it gets by itself; only what was sent to us alone is forwarded, and SIGHUP,
 * which a terminal that closes sends to the session's leader alone. */
#include "run/run.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "events/jsonl.h"
#include "launch/hide.h"
#include "launch/launch.h"
#include "launch/startup_files.h"
#include "launch/startup_report.h"
#include "launch/std_fds.h"
#include "policy/advice.h"
#include "run/asking.h"
#include "run/learn.h"
#include "run/live.h"
#include "run/needs.h"
#include "run/network.h"
#include "run/options.h"
#include "run/policies.h"
#include "run/report.h"
#include "run/stdin_pipe.h"
#include "sandbox/plan_file.h"
#include "sandbox/sandbox.h"
#include "supervisor/probe.h"
#include "sys/process.h"

enum {
	EVENTS_KEPT = 512, /* distinct ones; older ones are only counted */
	USED_KEPT = 8192,  /* the same of what has passed while learning */
	/* The engine has nothing left to do but to send its counters. */
	FINISH_MS = 10 * 1000,
	/* For a command that on_denies ends, between SIGTERM and SIGKILL. */
	STOP_MS = 2000,
	/* Longer than a self-test can take by its own limits. */
	LAUNCH_MS = 60 * 1000,
	/* Of the heap: larger than what opendir() and the writer of the ruleset take. */
	LARGE_BLOCK = 40 * 1024,
};

enum control_state {
	CONTROL_STARTING = 0, /* a signal is for us, and ends the start */
	CONTROL_TESTED,	      /* the self-test has passed; the uplink may not be ready */
	CONTROL_ASKED,	  /* the uplink is ready too, and the engine was sent IPC_RUN */
	CONTROL_RELEASED, /* the engine has agreed, and the command was sent LAUNCH_GO */
	CONTROL_RUNNING,  /* the command runs; a signal is for it */
	CONTROL_EXITED,	  /* wait_status is set; the engine gives its counters */
	CONTROL_COUNTED,  /* it has: its end is no failure any more */
};

struct control {
	struct run_spec *spec; /* borrowed */
	struct loop *loop;
	struct run_policy *policy; /* in force, and those before it; owned */
	struct live socket;	   /* by which the policy is changed */
	struct asking asking;	   /* --ask tty */
	struct stdin_pipe input;   /* where the caller's isn't the command's */
	int plan_fd;
	struct path agent_socket; /* until the launch; or fd -1 */
	struct event_ring *ring, *failures;
	struct event_ring *would; /* of an audit; NULL: none */
	struct event_ring *used;  /* of `weir learn`; NULL: not that */
	struct run_store store;
	uint64_t counters[SANDBOX_COUNTER_COUNT];
	pid_t engine, launch;
	pid_t builder;		   /* launch.h; until the self-test has passed */
	int engine_fd, engine_end; /* SOCK_SEQPACKET: ours, the engine's */
	int launch_fd, launch_end; /* ours, weir-init's */
	int hand_fd, hand_end;	   /* the launch child's to the engine, the engine's */
	int outer_mounts;	   /* launch.h; until the command runs */
	struct launch_machine machine;
	struct launch_probe probe;
	bool is_bad_path; /* nothing was started, for a path that an option names */
	struct startup_files *startup; /* owned */
	const char **hidden, **held;   /* the arena's: what the command doesn't get */
	size_t hidden_count, held_count;
	struct uplink uplink;
	struct loop_source from_engine, from_launch, signals;
	struct loop_source parent; /* --end-with; fd -1: nobody is watched */
	struct loop_timer patience, finish, kill, live;
	struct report_live first; /* that are refused or fail */
	enum control_state state;
	bool is_ended;	/* on_denies says so */
	bool stopped;	/* the command is, by the last report of this turn */
	bool continued; /* SIGCONT came in this turn */
	int wait_status;
	int64_t started_ms; /* wall clock */
	int failure;	    /* exit status when Weir failed, 0: it did not */
	struct err why;	    /* it failed, if that is to be said at the end */
};

/* While the command runs its caller's terminal may be raw, with a question on it. Return:
 * false when Weir would have had to wait. */
static bool say(struct control *c, const char *text)
{
	bool said = c->state < CONTROL_RELEASED;

	terminal_pause(&c->asking.terminal);
	if (said)
		log_write("%s", text);
	else
		said = report_say_now(text);
	terminal_resume(&c->asking.terminal);
	return said;
}

/* Weir failed: say why, end everything. The first reason counts. */
static void fail(struct control *c, int status, const char *text)
{
	if (c->failure == 0) {
		c->failure = status;
		if (text[0] && !say(c, text))
			err_set(&c->why, status, "%s", text);
	}
	loop_stop(c->loop);
}

static void notify_launch(struct control *c, enum launch_report_type type, int value)
{
	struct launch_report m = { .type = type, .value = value };

	/* When nobody is there any more, the end of the channel says so. */
	(void)!send(c->launch_fd, &m, sizeof(m), MSG_NOSIGNAL);
}

static void notify_engine(struct control *c, uint32_t type)
{
	struct ipc_message m = { .type = type };

	if (ipc_send(c->engine_fd, &m, NULL, 0) < 0)
		fail(c, RUN_STATUS_FAILED, "the engine has ended unexpectedly");
}

/* -- the engine --------------------------------------------------------------------- */

static void on_exited(struct control *c, int wait_status);

static void on_kill(struct loop_timer *t)
{
	on_exited(CONTAINER_OF(t, struct control, kill), W_EXITCODE(0, SIGKILL));
}

static void end_command(struct control *c)
{
	notify_launch(c, LAUNCH_SIGNAL, SIGTERM);
	if (loop_timer_in(c->loop, &c->kill, STOP_MS) < 0)
		on_kill(&c->kill);
}

static void on_live(struct loop_timer *t)
{
	struct control *c = CONTAINER_OF(t, struct control, live);

	terminal_pause(&c->asking.terminal);
	report_live_say(&c->first, c->policy);
	terminal_resume(&c->asking.terminal);
}

static void on_event(struct control *c, struct event *e)
{
	struct event_ring *ring = report_is_failure(e) ? c->failures : c->ring;

	if (c->spec->mode != RUN_ENFORCE && e->advice[0])
		advice_write(&run_policy_of(c->policy, e)->asked, e, e->advice);
	report_check_advice(e);
	run_store_look(&c->store, e);
	if (e->action == EVENT_CHANGE) { /* the report is about refusals */
		run_store_add(&c->store, e, &run_policy_of(c->policy, e)->plan);
		return;
	}
	/* Once it is on its way to its end nobody needs to be told again. */
	if (e->limit == EVENT_LIMIT_DENIES && c->is_ended)
		return;
	if (!c->spec->quiet && report_live_note(&c->first, ring, e) && c->live.slot == 0)
		(void)!loop_timer_in(c->loop, &c->live, REPORT_LIVE_MS);
	/* The report is about refusals: what asks is told again when it is refused. */
	if (e->action != EVENT_ALLOW && (e->action != EVENT_ASK || event_is_refusal(e)))
		event_ring_add(ring, e);
	if (e->action == EVENT_ASK)
		asking_note(&c->asking, live_note(&c->socket, e), e->command);
	if (e->action == EVENT_ALLOW && c->would)
		report_would_note(c->would, c->policy, e);
	if (e->action == EVENT_ALLOW && c->used)
		learn_note(c->used, e);
	run_store_add(&c->store, e, &run_policy_of(c->policy, e)->plan);
	if (e->action == EVENT_LIMIT && e->limit == EVENT_LIMIT_DENIES &&
	    plan_on_denies(&c->policy->plan).action == ON_DENIES_STOP &&
	    c->state < CONTROL_EXITED) {
		c->is_ended = true;
		end_command(c);
	}
}

static void on_engine_message(struct control *c, struct ipc_message *m)
{
	switch (m->type) {
	case IPC_READY:
	case IPC_WARNING:
		ipc_sanitize(m->text, sizeof(m->text));
		if (m->text[0] && !c->spec->quiet)
			say(c, m->text);
		break;
	case IPC_RUNNING:
		/* The command's process hears LAUNCH_GO at once, whatever weir-init still
		 * has to test: so no engine may begin that by itself. */
		if (c->state != CONTROL_ASKED) {
			fail(c, RUN_STATUS_FAILED,
			     "the engine says that the command may run, and was not "
			     "asked");
			break;
		}
		c->state = CONTROL_RELEASED;
		notify_launch(c, LAUNCH_GO, 0);
		break;
	case IPC_EVENT:
		on_event(c, &m->event);
		break;
	case IPC_COUNTERS:
		memcpy(c->counters, m->counters, sizeof(c->counters));
		c->state = CONTROL_COUNTED;
		loop_stop(c->loop);
		break;
	case IPC_FAILED:
		ipc_sanitize(m->text, sizeof(m->text));
		fail(c, RUN_STATUS_FAILED, m->text);
		break;
	default:
		fail(c, RUN_STATUS_FAILED, "the engine sent what is no message");
	}
}

enum { LAST_STEPS_MS = 100 }; /* from the end of its channel to its own */

static void on_engine(struct loop_source *source, uint32_t events)
{
	struct control *c = CONTAINER_OF(source, struct control, from_engine);
	char how[PROCESS_END_SIZE], text[ERR_TEXT_SIZE];
	struct ipc_message m;
	size_t count;
	int r = 0, status = 0;
	pid_t ended;

	for (int i = 0; r == 0 && i < IPC_TURN_MAX; i++) {
		r = ipc_receive(source->fd, &m, NULL, 0, &count);
		if (r == 0)
			on_engine_message(c, &m);
	}
	if (r == 0 || r == -EAGAIN)
		return;
	loop_remove(c->loop, source);
	if (c->state == CONTROL_COUNTED)
		return;
	/* The sandbox ends first. An engine that lives on is killed. */
	kill(c->launch, SIGKILL);
	for (int ms = 0;
	     (ended = waitpid(c->engine, &status, WNOHANG)) == 0 && ms < LAST_STEPS_MS;
	     ms += 10)
		poll(NULL, 0, 10);
	process_reap(ended == 0 ? c->engine : 0, true);
	c->engine = 0;
	snprintf(text, sizeof(text), "the engine %s; the sandbox is closed",
		 ended == 0 ? "has closed its channel" : process_end_text(status, how));
	fail(c, RUN_STATUS_FAILED, text);
}

/* -- the launch child and weir-init ------------------------------------------------- */

static void read_signals(struct control *c);

/* Stop or continue the engine and the uplink's program. A process of the sandbox that
 * has itself continued, by a timer say, finds no name server, no relay and no uplink
 * while both are stopped. Both end with this process, stopped or not. */
static void signal_ways_out(const struct control *c, int number)
{
	if (c->engine > 0)
		kill(c->engine, number);
	uplink_signal(&c->uplink, number);
}

/* Of all that was reported the last word counts. A command that was stopped by the
 * terminal was so together with us, and the SIGCONT that woke us is for it as well; one
 * that was stopped alone takes us along, so that the shell sees a stopped job. weir-init
 * holds the other processes meanwhile, when nobody can give the run another policy. Not
 * where it is ours to end it for what its other processes go on to do. */
static void stop_along(struct control *c)
{
	const struct plan_on_denies on = plan_on_denies(&c->policy->plan);

	if (!c->stopped)
		return;
	c->stopped = false;
	if ((on.count > 0 && on.action == ON_DENIES_STOP) || c->parent.fd >= 0)
		return;
	read_signals(c);
	/* Not SIGSTOP: where no shell is left that could continue us, SIGTSTP does
	 * nothing. */
	if (c->continued)
		return;
	terminal_pause(&c->asking.terminal);
	notify_launch(c, LAUNCH_HOLD, 0);
	signal_ways_out(c, SIGSTOP);
	kill(getpid(), SIGTSTP);
	signal_ways_out(c, SIGCONT);
	notify_launch(c, LAUNCH_GO_ON, 0);
	terminal_resume(&c->asking.terminal);
}

static void on_exited(struct control *c, int wait_status)
{
	if (c->state >= CONTROL_EXITED)
		return;
	loop_timer_stop(c->loop, &c->kill);
	c->state = CONTROL_EXITED;
	c->wait_status = wait_status;
	/* The launch child takes all that is left in its namespaces along, while the
	 * engine counts. */
	kill(c->launch, SIGKILL);
	notify_engine(c, IPC_FINISH);
	if (loop_timer_in(c->loop, &c->finish, FINISH_MS) < 0)
		fail(c, RUN_STATUS_FAILED, "out of memory");
}

/* When both the self-test has passed and the uplink is ready, whichever comes last.
 * @data: the struct control. */
static void release_command(void *data)
{
	struct control *c = data;

	if (c->state != CONTROL_TESTED || !c->uplink.ready)
		return;
	c->state = CONTROL_ASKED;
	notify_engine(c, IPC_RUN);
}

/* The filter refuses what the uplink carried, so the command may go on without. */
static void on_uplink_end(void *data, const char *why)
{
	struct control *c = data;
	char text[ERR_TEXT_SIZE];

	if (c->state < CONTROL_RUNNING)
		fail(c, RUN_STATUS_FAILED, why);
	if (c->state != CONTROL_RUNNING)
		return;
	snprintf(text, sizeof(text), "%s; UDP has no way out any more", why);
	say(c, text);
}

/* Before the command may run: the builder has every right over the outer namespaces. What
 * it had to do is done, or the start has failed; it may be stopped, or slow to end. */
static void end_builder(struct control *c)
{
	process_reap(c->builder, true);
	c->builder = 0;
}

/* weir-init says so of a process that has ended before it could become the command, too:
 * weir-init can't see the difference. */
static void on_started(struct control *c)
{
	if (c->state != CONTROL_RELEASED) {
		fail(c, RUN_STATUS_FAILED,
		     "cannot start the command: its process has ended");
		return;
	}
	c->state = CONTROL_RUNNING;
	fd_close(&c->outer_mounts);
	loop_timer_stop(c->loop, &c->patience);
	if (live_serve(&c->socket, c->loop, c->engine_fd) < 0)
		fail(c, RUN_STATUS_FAILED, "cannot watch the run's socket");
	if (asking_serve(&c->asking, &c->socket, c->loop,
			 INT64_C(1000) *
				 plan_limit(&c->policy->plan, LIMIT_ASK_TIMEOUT_SEC)) < 0)
		fail(c, RUN_STATUS_FAILED, "cannot watch the terminal");
	if (stdin_pipe_serve(&c->input, c->loop) < 0)
		fail(c, RUN_STATUS_FAILED, "cannot watch standard input");
}

static void on_launch_message(struct control *c, struct launch_report *m)
{
	m->text[sizeof(m->text) - 1] = '\0';
	switch (m->type) {
	case LAUNCH_FAILED:
		fail(c, m->value, m->text);
		break;
	case LAUNCH_WARNING:
		if (!c->spec->quiet)
			say(c, m->text);
		break;
	case LAUNCH_TESTED:
		end_builder(c);
		c->state = CONTROL_TESTED;
		release_command(c);
		break;
	case LAUNCH_STOPPED:
		c->stopped = true;
		break;
	case LAUNCH_CONTINUED:
		c->stopped = false;
		break;
	case LAUNCH_EXITED:
		on_exited(c, m->value);
		break;
	case LAUNCH_STARTED:
		on_started(c);
		break;
	default:
		break;
	}
}

static void on_launch(struct loop_source *source, uint32_t events)
{
	struct control *c = CONTAINER_OF(source, struct control, from_launch);
	struct launch_report m;
	ssize_t n = sizeof(m);
	size_t count;
	int fd;

	for (int i = 0; n == sizeof(m) && i < IPC_TURN_MAX; i++) {
		n = fds_receive(source->fd, &m, sizeof(m), &fd, 1, &count);
		if (n != sizeof(m))
			break;
		if (count > 0)
			run_store_see(&c->store, fd, c->launch);
		on_launch_message(c, &m);
	}
	if (n == sizeof(m))
		return;
	if (n == -EAGAIN) {
		stop_along(c);
		return;
	}
	loop_remove(c->loop, source);
	if (c->state < CONTROL_EXITED)
		fail(c, RUN_STATUS_FAILED, "the sandbox has ended unexpectedly");
}

static void on_launch_late(struct loop_timer *t)
{
	fail(CONTAINER_OF(t, struct control, patience), RUN_STATUS_FAILED,
	     "the sandbox did not come up in time");
}

/* An engine that hasn't sent its counters by then leaves unknown what it has refused, as
 * one does that has ended before. */
static void on_finish_late(struct loop_timer *t)
{
	struct control *c = CONTAINER_OF(t, struct control, finish);

	if (c->state != CONTROL_COUNTED)
		fail(c, RUN_STATUS_FAILED, "the engine did not say what was refused");
}

/* -- signals ------------------------------------------------------------------------ */

/* No command is there yet that it could be for: it is for us. */
static void end_early(struct control *c, int sig)
{
	if (sig == SIGWINCH)
		return;
	c->wait_status = W_EXITCODE(0, sig);
	loop_stop(c->loop);
}

static bool has_terminal(const struct control *c)
{
	return c->asking.terminal.master >= 0;
}

static void read_signals(struct control *c)
{
	struct signalfd_siginfo info;

	while (read(c->signals.fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCONT) {
			c->continued = true;
			/* A command with its own terminal isn't in our process group. */
			if (has_terminal(c) && c->state == CONTROL_RUNNING)
				notify_launch(c, LAUNCH_SIGNAL, SIGCONT);
		} else if (info.ssi_signo == SIGWINCH && has_terminal(c))
			terminal_resize(&c->asking.terminal);
		else if (c->state < CONTROL_RUNNING)
			end_early(c, (int)info.ssi_signo);
		else if (info.ssi_code != SI_KERNEL || info.ssi_signo == SIGHUP)
			notify_launch(c, LAUNCH_SIGNAL, (int)info.ssi_signo);
	}
}

static void on_signal(struct loop_source *source, uint32_t events)
{
	read_signals(CONTAINER_OF(source, struct control, signals));
}

static void on_parent_end(struct loop_source *source, uint32_t events)
{
	struct control *c = CONTAINER_OF(source, struct control, parent);

	loop_remove(c->loop, source);
	if (c->state < CONTROL_RUNNING)
		end_early(c, SIGTERM);
	else if (c->state == CONTROL_RUNNING)
		end_command(c);
}

static void on_turn_end(void *data)
{
	struct control *c = data;

	c->continued = false;
	asking_turn(&c->asking);
}

/* -- another policy ------------------------------------------------------------------ */

/* Something that the report will say was decided by the policy @number. */
static bool is_reported(const void *data, uint32_t number)
{
	const struct control *c = data;
	const struct event_ring *const rings[] = { c->ring, c->failures, c->would };

	for (size_t i = 0; i < c->first.count; i++)
		if (c->first.events[i].sandbox == number)
			return true;
	for (size_t r = 0; r < ARRAY_SIZE(rings); r++)
		for (size_t i = 0; rings[r] && i < event_ring_count(rings[r]); i++)
			if (event_ring_at(rings[r], i)->sandbox == number)
				return true;
	return false;
}

static bool is_asked(struct live *l, int64_t id)
{
	return asking_has(&CONTAINER_OF(l, struct control, socket)->asking, id);
}

static void on_policy(struct live *l, struct run_policy *next)
{
	struct control *c = CONTAINER_OF(l, struct control, socket);
	struct event e = event_make(EVENT_CHANGE, EVENT_LAUNCH);

	e.ts_ms = clock_wall_ms();
	e.sandbox = next->number;
	event_set_reason(&e, "the policy was changed");
	next->before = c->policy;
	c->policy = next;
	run_policy_forget(next, is_reported, c);
	run_store_add(&c->store, &e, &next->plan);
}

/* -- starting ----------------------------------------------------------------------- */

/* What the launch child can do without while it makes its namespaces: the engine, which
 * is ready long before the child hands anything over, and the run's socket. That is there
 * before the view is planned: in a path that the command may write to it is masked. */
static int start_beside(void *data, struct err *err)
{
	struct control *c = data;
	const struct launch_probe *probe = &c->probe;
	struct engine_config config = {
		.supervisor_fd = c->engine_end,
		.attach_fd = c->hand_end,
		.attach = { .kind = ATTACH_OWNED,
			    .ipv6 = c->uplink.ipv6_out,
			    .probe_addr = probe->allowed.addr,
			    .probe_port = probe->allowed.port },
		.enforce = ENFORCED_FILTER,
		.owned_filter = c->uplink.filter,
		.upstreams = c->spec->upstreams.items,
		.upstream_count = c->spec->upstreams.count,
		.repin_ms = c->spec->repin_ms,
		.evaluated_ms = c->policy->evaluated_ms,
	};

	snprintf(config.attach.probe_name, sizeof(config.attach.probe_name), "%.*s",
		 (int)sizeof(config.attach.probe_name) - 1, probe->allowed_name);
	ipc_fds_init(&config.fds, NULL);
	config.fds.fd[IPC_FD_PLAN] = c->plan_fd;
	c->engine = engine_start(&config, err);
	if (c->engine < 0)
		return (int)c->engine;
	live_open_unnamed(&c->socket);
	return 0;
}

/* There are at most HIDDEN_MAX. */
static void on_hidden(void *data, const char *path)
{
	struct control *c = data;
	const char *copy = arena_text(&c->spec->arena, text_of(path));

	if (!c->hidden)
		c->hidden = arena_array(&c->spec->arena, HIDDEN_MAX, sizeof(*c->hidden));
	if (c->hidden && copy)
		c->hidden[c->hidden_count++] = copy;
}

/* The host's search domains, where a rule's name was completed by one; NULL: nothing was,
 * and the sandbox has none: they would only make more denials. */
static const char *search_of(struct control *c)
{
	struct search_domains search;
	bool completed = false;
	const char *all = "";

	for (size_t i = 0; i < c->policy->policy.count; i++)
		completed = completed ||
			    c->policy->policy.rules[i].flags & PLAN_COMPLETED;
	if (!completed)
		return NULL;
	search_domains_read(&search);
	for (size_t i = 0; all && i < search.count; i++)
		all = arena_printf(&c->spec->arena, "%s%s%s", all, i > 0 ? " " : "",
				   search.items[i]);
	return all;
}

static int start_launch(struct control *c, char *cwd, struct err *err)
{
	struct environment environment = { 0 };
	size_t file_count = 0;
	const char **files = NULL;
	int r = config_kept_files(c->spec, &c->policy->policy, &c->spec->arena, &files,
				  &file_count);
	struct inside inside = {
		.plan = &c->policy->plan,
		.engine_fd = c->hand_fd,
		.far_ends = { c->engine_end, c->hand_end },
		.report_fd = c->store.pid > 0 || c->used || has_terminal(c)
				     ? c->launch_end
				     : -1,
		.filter = c->uplink.filter,
		.uplink = c->uplink.program.kind,
		.uplink_ipv6 = c->uplink.ipv6_out,
	};
	struct launch_spec spec = {
		.argv = c->spec->argv,
		.cwd = cwd,
		.rw = c->spec->rw.items,
		.rw_count = c->spec->rw.count,
		.own = c->spec->own.items,
		.own_count = c->spec->own.count,
		.shown = c->spec->ro.items,
		.shown_count = c->spec->ro.count,
		.search = search_of(c),
		.hide = c->spec->hide.items,
		.hide_count = c->spec->hide.count,
		.store = c->spec->state_dir,
		.agent_socket = c->agent_socket.fd >= 0 ? &c->agent_socket : NULL,
		.on_hidden = on_hidden,
		.hidden_data = c,
		.home_tmp = c->spec->home == RUN_HOME_TMP,
		.hide_credentials = c->spec->hide_preset == RUN_HIDE_CREDENTIALS,
		.ro = files,
		.ro_count = file_count,
		.settings = c->spec->settings,
		.startup = c->startup,
		.self_test =
			(enum launch_self_test)(SELF_TEST_DENY + (int)c->spec->self_test),
		.probe = c->probe,
		.prepare = inside_prepare,
		.confirm = inside_confirm,
		/* It gives the uplink's link its addresses. */
		.confirm_has_rights = inside.uplink != UPLINK_NONE,
		.prepare_data = &inside,
		.beside = start_beside,
		.beside_data = c,
		.outer_mounts = &c->outer_mounts,
		.builder = &c->builder,
		.is_bad_path = &c->is_bad_path,
		.control_fd = c->launch_end,
		.input_fd = c->input.given,
		.terminal_fd = c->asking.terminal.slave,
	};

	if (r < 0)
		return err_set(err, r, "out of memory");
	r = environment_choose(c->spec, &environment, err);
	if (r == 0)
		r = environment_enter(c->spec, &environment, cwd, c->socket.id, err);
	if (r < 0)
		return r;
	c->held = environment.held;
	c->held_count = environment.held_count;
	spec.environment = environment.list;
	agent_socket_report(&c->agent_socket, c->machine.root);
	c->launch = launch_start(&c->machine, &spec, err);
	path_done(&c->agent_socket);
	return c->launch < 0 ? (int)c->launch : 0;
}

static int start_children(struct control *c, struct err *err)
{
	char cwd[PATH_MAX];
	int r;

	if (!getcwd(cwd, sizeof(cwd)))
		return err_sys(err, -errno, "cannot find the current directory");
	r = probe_choose(&c->policy->plan, &c->policy->policy, c->uplink.filter.relay,
			 &c->probe, err);
	if (r == 0)
		r = process_pair(&c->engine_fd, &c->engine_end, err);
	if (r == 0)
		r = process_pair(&c->launch_fd, &c->launch_end, err);
	if (r == 0)
		r = process_pair(&c->hand_fd, &c->hand_end, err);
	if (r == 0)
		r = start_launch(c, cwd, err);
	if (r == 0)
		r = uplink_open(&c->uplink, c->loop, c->launch, err);
	/* What the children hold we let go, so that the end of a channel can be seen. */
	fd_close(&c->engine_end);
	fd_close(&c->launch_end);
	fd_close(&c->hand_fd);
	fd_close(&c->hand_end);
	return r;
}

static int watch(struct control *c, int signal_fd, struct err *err)
{
	int r = process_dont_wait(c->engine_fd);

	if (r == 0)
		r = process_dont_wait(c->launch_fd);
	c->signals = (struct loop_source){ .fd = signal_fd, .on_ready = on_signal };
	c->from_engine =
		(struct loop_source){ .fd = c->engine_fd, .on_ready = on_engine };
	c->from_launch =
		(struct loop_source){ .fd = c->launch_fd, .on_ready = on_launch };
	c->parent.on_ready = on_parent_end;
	c->finish.on_fire = on_finish_late;
	c->patience.on_fire = on_launch_late;
	c->kill.on_fire = on_kill;
	c->live.on_fire = on_live;
	loop_on_turn_end(c->loop, on_turn_end, c);
	if (r == 0)
		r = loop_add(c->loop, &c->signals, EPOLLIN);
	if (r == 0)
		r = loop_add(c->loop, &c->from_engine, EPOLLIN);
	if (r == 0)
		r = loop_add(c->loop, &c->from_launch, EPOLLIN);
	if (r == 0 && c->parent.fd >= 0)
		r = loop_add(c->loop, &c->parent, EPOLLIN);
	if (r == 0)
		r = loop_timer_in(c->loop, &c->patience, LAUNCH_MS);
	return r < 0 ? err_sys(err, r, "cannot watch the sandbox") : 0;
}

/* -- ending ------------------------------------------------------------------------- */

static int report_run(struct control *c)
{
	struct report report = {
		.spec = c->spec,
		.policy = c->policy,
		.ring = c->ring,
		.failures = c->failures,
		.counters = c->counters,
		.started_ms = c->started_ms,
		.hidden = c->hidden,
		.hidden_count = c->hidden_count,
		.held = c->held,
		.held_count = c->held_count,
		.stopped = c->is_ended,
	};
	struct err err = { 0 };
	int status;

	if (c->would)
		report.would_lost = report_would_settle(&c->would);
	report.would = c->would;
	status = report_end(&report, c->failure, c->wait_status);
	if (!c->used || c->failure != 0)
		return status;
	if (learn_end(c->spec, c->used, c->ring, c->counters[COUNT_PASSED_DROPPED],
		      &c->policy->asked, &err) == 0)
		return status;
	return log_end(RUN_STATUS_FAILED, "%s", err.text);
}

static int control_start(struct control *c, struct err *err)
{
	struct err ignored = { 0 };
	int signal_fd, status;
	bool needs_servers;

	c->loop = loop_new();
	c->ring = event_ring_new(EVENTS_KEPT);
	c->failures = event_ring_new(EVENTS_KEPT);
	if (c->spec->mode == RUN_AUDIT)
		c->would = event_ring_new(EVENTS_KEPT);
	if (c->spec->mode == RUN_LEARN)
		c->used = event_ring_new(USED_KEPT);
	c->startup = calloc(1, sizeof(*c->startup));
	if ((!c->would && c->spec->mode == RUN_AUDIT) ||
	    (!c->used && c->spec->mode == RUN_LEARN) || !c->loop || !c->ring ||
	    !c->failures || !c->startup) {
		err_set(err, -ENOMEM, "out of memory");
		return RUN_STATUS_FAILED;
	}
	status = run_policy_build(c->spec, c->policy, err);
	if (status != 0)
		return status;
	c->plan_fd = plan_file_make(c->policy->plan.bytes, c->policy->plan.size, err);
	if (c->plan_fd < 0)
		return RUN_STATUS_FAILED;
	if (c->spec->ask == RUN_ASK_TTY && asking_open(&c->asking, err) < 0)
		return RUN_STATUS_BAD_INPUT;
	if (process_watch_parent((pid_t)c->spec->parent, &c->parent.fd, err) < 0)
		return RUN_STATUS_FAILED;
	if (needs_apply(c->spec, &c->policy->policy, err) < 0 ||
	    needs_check_paths(c->spec, err) < 0)
		return RUN_STATUS_BAD_INPUT;
	needs_report(c->spec);
	if (agent_socket_open(c->spec, &c->agent_socket, err) < 0)
		return RUN_STATUS_BAD_INPUT;
	/* Where this policy has no names another one may. */
	needs_servers = run_policy_asks_names(c->spec, c->policy);
	if (name_servers_complete(&c->spec->upstreams, needs_servers ? err : &ignored) <
		    0 &&
	    needs_servers)
		return RUN_STATUS_FAILED;
	if (live_open(&c->socket, c->spec, err) < 0)
		return RUN_STATUS_FAILED;
	c->machine = launch_machine_probe();
	if (uplink_choose(&c->uplink, c->spec->uplink, c->machine.root, err) < 0 ||
	    stdin_pipe_open(&c->input, c->machine.root, err) < 0)
		return RUN_STATUS_FAILED;
	if (run_store_open(&c->store, c->spec->state_dir, c->socket.id, err) < 0)
		return RUN_STATUS_FAILED;
	if (c->spec->state_dir)
		c->spec->kept[c->spec->kept_count++] = c->spec->state_dir;
	signal_fd = process_open_signals(err);
	if (signal_fd < 0 || start_children(c, err) < 0 || watch(c, signal_fd, err) < 0)
		return c->is_bad_path ? RUN_STATUS_BAD_INPUT : RUN_STATUS_FAILED;
	/* Opened while the children start. */
	if (run_store_wait(&c->store, err) < 0)
		return RUN_STATUS_FAILED;
	return 0;
}

/* Whatever --quiet says: nobody shall take it for a sandbox. */
static void warn_of_mode(const struct run_spec *spec)
{
	if (spec->mode == RUN_AUDIT)
		log_warning("AUDIT: THIS IS NO FENCE: the command reaches everything "
			    "public, whatever the policy says; only special addresses "
			    "and DNS over TLS are refused");
	if (spec->mode == RUN_LEARN)
		log_warning("LEARNING: THIS IS NO FENCE: the command reaches every "
			    "public name on %s; what it can read it can send",
			    spec->learn.any_port ? "every port" : "web ports");
}

int control_run(struct run_spec *spec)
{
	struct control c = { .spec = spec,
			     .plan_fd = -1,
			     .outer_mounts = -1,
			     .engine_end = -1,
			     .launch_end = -1,
			     .hand_fd = -1,
			     .hand_end = -1,
			     .agent_socket = { .fd = -1 },
			     .parent = { .fd = -1 },
			     .socket = { .fd = -1 },
			     .started_ms = clock_wall_ms(),
			     .policy = calloc(1, sizeof(*c.policy)),
			     .uplink = { .on_ready = release_command,
					 .on_end = on_uplink_end,
					 .data = &c } };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct std_state streams;
	struct err err = { 0 };
	int status;

	if (!c.policy)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	/* The command can close what Weir writes to: no write may end Weir, whose work is
	 * not done. */
	sigaction(SIGPIPE, &ignore, NULL);
	/* What a launch is planned with is large, little of it is used, and it is freed
	 * before the command runs. At the end of the heap it would be cleared for
	 * whoever gets it next, each page a fault. */
	mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK);
	mallopt(M_TOP_PAD, LARGE_BLOCK);
	c.socket.on_policy = on_policy;
	c.socket.is_asked = is_asked;
	asking_init(&c.asking);
	stdin_pipe_init(&c.input);
	c.socket.started_ms = c.started_ms;
	c.socket.newest = &c.policy;
	c.socket.ring = &c.ring;
	std_state_read(&streams);
	warn_of_mode(spec);
	status = control_start(&c, &err);
	if (status == 0) {
		int r = loop_run(c.loop);

		if (r < 0)
			fail(&c, RUN_STATUS_FAILED, strerror(-r));
	} else {
		c.failure = status;
		c.why = err;
	}
	/* First the sandbox, then who guards it. Where the command has ended weir-init
	 * leaves by itself. */
	live_close(&c.socket);
	uplink_close(&c.uplink);
	end_builder(&c);
	process_reap(c.launch, c.state < CONTROL_EXITED);
	process_reap(c.engine, true);
	asking_close(&c.asking);
	stdin_pipe_close(&c.input);
	std_state_restore(&streams);
	log_hold();
	if (c.startup && !startup_report_new(c.startup, spec->quiet) && c.failure == 0)
		c.failure = RUN_STATUS_FAILED;
	if (c.why.text[0])
		log_error("%s", c.why.text);
	if (c.startup)
		startup_files_done(c.startup);
	free(c.startup);
	run_store_close(&c.store);
	return report_leave(report_run(&c), c.wait_status);
}
