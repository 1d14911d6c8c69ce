// SPDX-License-Identifier: Apache-2.0
/* weir-events store DIRECTORY: rows come over descriptor 3, a socket, and go into the
 * store. Started by `weir run --state-dir`, which it tells first whether there is a
 * store, and ends when that closes the socket. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "events/review.h"
#include "events/sqlite.h"
#include "events/sqlite_file.h"
#include "settings/settings.h"
#include "settings/state_dir.h"
#include "sys/confine.h"
#include "sys/process.h"
#include "sys/sock.h"
#include "tools/events_show.h"

enum { CHANNEL = 3, STORE_BYTES = 256 << 20 };

/* "" when all is well, or why not. */
static void answer(const char *text)
{
	(void)!send(CHANNEL, text, strlen(text) + 1, MSG_NOSIGNAL);
}

int events_store(int argc, char **argv)
{
	static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP };
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	struct sqlite_config config = { .directory = argc == 2 ? argv[1] : NULL,
					.max_bytes = STORE_BYTES };
	struct sqlite_writer *w = NULL;
	struct sqlite_state state;
	struct event_row row;
	struct err err = { 0 };
	sqlite3 *db = NULL;
	ssize_t n;
	bool all;
	int r;

	if (!config.directory || !sock_is_channel(CHANNEL))
		return log_end(RUN_STATUS_BAD_INPUT,
			       "this is started by `weir run`, not by hand");
	prctl(PR_SET_NAME, "weir-store");
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	/* What ends or stops the command is not for us: its last events are still to be
	 * written. */
	for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
		sigaction(ignored[i], &ignore, NULL);
	/* The run starts its command only once there is a store. One that is broken is
	 * moved aside by the writer, and one that another writer has is waited for. */
	r = sqlite_file_open(&config, &db, &err);
	sqlite3_close(db);
	if ((r < 0 && r != -EBADMSG && r != -EBUSY) ||
	    sqlite_writer_new(&config, &w, &err) < 0) {
		answer(err.text);
		return RUN_STATUS_FAILED;
	}
	answer("");
	do { /* until the other end is gone */
		n = recv(CHANNEL, &row, sizeof(row), 0);
		if (n == sizeof(row)) {
			event_row_check(&row);
			sqlite_writer_add(w, &row);
		}
	} while (n == sizeof(row) || (n < 0 && errno == EINTR));
	all = sqlite_writer_drain(w, 2000);
	sqlite_writer_state(w, &state);
	if (state.trouble[0])
		log_warning("the store: %s", state.trouble);
	sqlite_writer_free(w);
	return !all || state.lost_rows > 0 ? RUN_STATUS_FAILED : 0;
}

/* weir-events review-command: for each review task that opens, run the operator's
 * command, with the task as JSON on its standard input. It takes the options of `weir
 * sidecar` or `weir daemon`, whose supervisor starts it, ends it, and starts it again.
 *
 * HOW IT WORKS
 * The store knows who was told, and is the queue: tasks are taken from it as there is
 * room for another command, RUNS_MAX of them at a time and STARTS_MAX in a minute. A
 * command that fails is run again, later each time, until it succeeds or the task is
 * decided. What ran when this process was killed is run again. Nothing that a sandbox
 * chose stands in an argument or in the environment: both are fixed, and the JSON is
 * plain ASCII. No capability is left, for this process and for commands. */

enum {
	RUNS_MAX = 4,
	STARTS_MAX = 60, /* in a minute */
	MINUTE_MS = 60 * 1000,
	TIME_LIMIT_MS = 30 * 1000, /* then it and its children are killed */
	LOOK_MS = 500,
	NOTED_MS = 10 * 1000, /* after that, in which what came of it is noted */
};

struct run {
	int64_t task;  /* its number */
	pid_t pid;     /* 0: free */
	int64_t at_ms; /* when it has to be over */
};

struct notifier {
	const char *command, *directory;
	struct run runs[RUNS_MAX];
	int64_t minute_ms;
	unsigned int starts; /* since then */
};

/* ---- one command ---- */

/* In the child. */
static void become(const char *command, int input)
{
	char path[] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	char lang[] = "LANG=C.UTF-8";
	char *const environment[] = { path, lang, NULL };
	const char *const argv[] = { command, NULL };
	const struct sigaction by_default = { .sa_handler = SIG_DFL };

	sigaction(SIGPIPE, &by_default, NULL);
	if (setpgid(0, 0) < 0 || process_forbid_cores() < 0 || chdir("/") < 0 ||
	    dup3(input, STDIN_FILENO, 0) < 0 || dup3(STDERR_FILENO, STDOUT_FILENO, 0) < 0)
		return;
	execve(command, (char *const *)(uintptr_t)argv, environment);
}

static pid_t start(const struct notifier *t, const struct review *task)
{
	char json[REVIEW_JSON_SIZE + 1];
	size_t size = review_json(task, true, json);
	CLEAN(fd) int input = memfd_create("weir-review", MFD_CLOEXEC);
	pid_t pid = -1;

	json[size++] = '\n';
	if (input >= 0 && write(input, json, size) == (ssize_t)size &&
	    lseek(input, 0, SEEK_SET) == 0)
		pid = process_fork(NULL);
	if (pid == 0) {
		become(t->command, input);
		log_error("cannot run the review command: %s", strerror(errno));
		_exit(RUN_STATUS_NOT_FOUND);
	}
	if (pid > 0)
		(void)setpgid(pid, pid);
	return pid;
}

/* ---- all of them ---- */

static struct run *find_free(struct notifier *t)
{
	for (size_t i = 0; i < RUNS_MAX; i++)
		if (t->runs[i].pid == 0)
			return &t->runs[i];
	return NULL;
}

/* What can't be noted is tried again when its time is over. */
static void note(const struct notifier *t, int64_t task, const char *fault)
{
	CLEAN(review) struct review_store *store = NULL;
	struct err err = { 0 };
	int r = review_open(t->directory, &store, &err);

	if (fault)
		log_warning("the review command %s for task %" PRId64 ", trying again",
			    fault, task);
	if (r == 0 && fault)
		r = review_not_notified(store, task, REVIEW_COMMAND, clock_wall_ms(),
					&err);
	else if (r == 0)
		r = review_notified(store, task, REVIEW_COMMAND, 0, &err);
	if (r < 0)
		log_warning("the review command ran for task %" PRId64 ": %s", task,
			    err.text);
}

static bool may_start(struct notifier *t)
{
	int64_t now_ms = clock_now_ms();

	if (now_ms - t->minute_ms >= MINUTE_MS) {
		t->minute_ms = now_ms;
		t->starts = 0;
	}
	return t->starts < STARTS_MAX && find_free(t);
}

static void reap(struct notifier *t)
{
	int64_t now_ms = clock_now_ms();

	for (size_t i = 0; i < RUNS_MAX; i++) {
		struct run *r = &t->runs[i];
		char why[PROCESS_END_SIZE];
		int status;

		if (r->pid == 0)
			continue;
		if (now_ms >= r->at_ms)
			(void)!kill(-r->pid, SIGKILL);
		if (waitpid(r->pid, &status, WNOHANG) != r->pid)
			continue;
		/* The command's children, if any are left. */
		(void)!kill(-r->pid, SIGKILL);
		note(t, r->task, status != 0 ? process_end_text(status, why) : NULL);
		r->pid = 0;
	}
}

/* ---- the store ---- */

/* Called only while another command may run. */
static void on_task(void *data, const struct review *task)
{
	struct notifier *t = data;
	struct run *r = find_free(t);

	t->starts++;
	*r = (struct run){ .task = task->id,
			   .pid = start(t, task),
			   .at_ms = clock_now_ms() + TIME_LIMIT_MS };
	if (r->pid > 0)
		return;
	r->pid = 0;
	note(t, task->id, "can't be started");
}

static void take_tasks(struct notifier *t)
{
	CLEAN(review) struct review_store *store = NULL;

	/* Where there is no store yet, or it is being changed: another time. */
	if (!may_start(t) || review_open(t->directory, &store, NULL) < 0)
		return;
	while (may_start(t) &&
	       review_notify(store, REVIEW_COMMAND, 1, TIME_LIMIT_MS + NOTED_MS,
			     clock_wall_ms(), on_task, t, NULL) == 1)
		;
}

int review_command(int argc, char **argv)
{
	static struct sidecar_spec spec;
	bool is_daemon;
	static struct notifier t;
	struct review_store *store = NULL;
	struct err err = { 0 };

	if (cli_helper_parse(argc, argv, &is_daemon, &spec, &err) < 0 ||
	    !spec.review_command)
		return log_end(RUN_STATUS_BAD_INPUT, "%s",
			       err.text[0] ? err.text
					   : "this is started by Weir, not by hand");
	settings_wipe_token(&spec);
	prctl(PR_SET_NAME, "weir-review");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || capabilities_keep(0, &err) < 0)
		return log_end(RUN_STATUS_FAILED,
			       "the review command: cannot give up capabilities");
	if (state_dir_take(&spec, NULL, &err) < 0 || !spec.state_dir)
		return log_end(RUN_STATUS_FAILED, "the review command: %s", err.text);
	t.command = spec.review_command;
	t.directory = spec.state_dir;
	/* What ran for the process before this one runs again. */
	if (review_open(t.directory, &store, &err) == 0)
		(void)!review_notify_again(store, REVIEW_COMMAND, &err);
	review_close(store);
	for (;;) {
		reap(&t);
		take_tasks(&t);
		poll(NULL, 0, LOOK_MS);
	}
}
