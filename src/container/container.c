// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The policy is read first: bad input starts nothing. Then a child is forked that removes
 * both containers when this process ends, however it ends (the watcher). Then the guard's
 * container is started and its filter stands (guard.h). Then the app's container is made,
 * in the guard's network namespace, attached to, and started. From then on this process
 * copies bytes, forwards signals, and waits for the first of both containers to end: with
 * the guard's the app's is ended too. */
#include "container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "container/docker.h"
#include "container/guard.h"
#include "container/options.h"
#include "container/volumes.h"
#include "outputs/client.h"
#include "settings/settings.h"
#include "sys/process.h"

/* === what is left of a run ===
 *
 * Taking containers away, and no other's: a name, or a label, which an image passes on,
 * says little of whose a container is. */

enum { EXPECTED_SIZE = 256 };

static const char *text_in(const json_t *j, const char *key)
{
	return json_string_value(json_object_get(j, key));
}

static const char *run_of(const json_t *found)
{
	return text_in(json_object_get(json_object_get(found, "Config"), "Labels"),
		       "weir.run");
}

/* An image that was made of a sandbox's container has its labels, and passes them on to
 * containers that are nobody's but their owner's. Nothing else tells them apart: a
 * container may be renamed. Return: 1: the run that the labels name has made @found; 0:
 * somebody else has; -errno with @err. */
static int is_made_here(const struct docker *e, const json_t *found, struct err *err)
{
	const char *image = text_in(found, "Image"), *run = run_of(found), *passed_on;
	CLEAN(json) json_t *its_image = NULL;
	char path[EXPECTED_SIZE];
	int r;

	if (!run || !image || strspn(image, TEXT_NAME_LETTERS ":") < strlen(image))
		return 0;
	snprintf(path, sizeof(path), "/images/%.200s/json", image);
	r = docker_ask(e, "GET", path, NULL, &its_image, err);
	if (r < 0)
		return r;
	passed_on = run_of(its_image);
	return !passed_on || strcmp(passed_on, run) != 0;
}

/* Return: 1: it is removed; 0: it, or its image, isn't there, or it is another's; -errno
 * with @err. */
static int remove_made_here(const struct docker *e, const char *id, struct err *err)
{
	CLEAN(json) json_t *found = NULL;
	int r = docker_inspect(e, id, &found, err);

	if (r == 0)
		r = is_made_here(e, found, err);
	if (r > 0) {
		r = docker_remove(e, id, err);
		return r < 0 ? r : 1;
	}
	if (r == -ENOENT) {
		*err = (struct err){ 0 };
		return 0;
	}
	return r;
}

/* -- of one run ---------------------------------------------------------------------- */

static int remove_role(const struct docker *e, const json_t *list, const char *role,
		       struct err *err)
{
	const json_t *one;
	size_t i;
	int r = 0;

	json_array_foreach(list, i, one)
	{
		const char *its = text_in(json_object_get(one, "Labels"), "weir.role");
		const char *id = text_in(one, "Id");

		if (r >= 0 && its && id && strcmp(its, role) == 0)
			r = remove_made_here(e, id, err);
	}
	return r < 0 ? r : 0;
}

/* -- what nobody watches any more ---------------------------------------------------- */

static const char *state_of(const json_t *list, const char *id)
{
	const json_t *one;
	size_t i;

	json_array_foreach(list, i, one)
	{
		const char *found = text_in(one, "Id"), *state = text_in(one, "State");

		if (found && state && strcmp(found, id) == 0)
			return state;
	}
	return "gone";
}

/* The container @id of that run is found by its label, and can be read: an image's own
 * labels can make of both what nobody reads. Return: 0, or -errno with @err. */
static int remains_check(const struct docker *e, const char *nonce, const char *id,
			 struct err *err)
{
	char label[EXPECTED_SIZE];
	CLEAN(json) json_t *list = NULL, *found = NULL;
	int r;

	snprintf(label, sizeof(label), "weir.run=%s", nonce);
	r = docker_list(e, label, &list, err);
	if (r == 0 && strcmp(state_of(list, id), "gone") == 0)
		r = err_set(err, -EBADMSG, "the engine doesn't list the container");
	if (r == 0)
		r = docker_inspect(e, id, &found, err);
	return r < 0 ? err_context(err, "the container could not be removed later") : 0;
}

/* Has its guard ended, or, when it is one itself, has it? A guard that is paused, or
 * started again, isn't gone, and its run looks after it. */
static bool is_abandoned(const json_t *list, const json_t *container, bool is_app)
{
	static const char *const ended[] = { "gone", "exited", "stopped", "dead" };
	const char *guard = text_in(json_object_get(container, "Labels"), "weir.guard");
	const char *id = text_in(container, "Id");

	if (!id || is_app != (guard != NULL))
		return false;
	return text_is_one_of(state_of(list, guard ? guard : id), ended,
			      ARRAY_SIZE(ended));
}

static void remove_abandoned(const struct docker *e, const json_t *container)
{
	const json_t *names = json_object_get(container, "Names");
	const char *name = json_string_value(json_array_get(names, 0));
	const char *id = text_in(container, "Id");
	const char *shown = SHOWN(name ? name + (name[0] == '/') : id);
	struct err err = { 0 };
	int r = remove_made_here(e, id, &err);

	if (r < 0)
		log_warning("cannot remove the container '%s', which a run has left: %s",
			    shown, err.text);
	else if (r > 0)
		log_warning("removed the container '%s', which a run has left", shown);
}

/* What runs have left that were killed together with their watchers: the app's container,
 * and the guard's, which has ended by itself. An engine removes the app's first. */
static void remains_sweep(const struct docker *e)
{
	struct err ignored = { 0 };
	CLEAN(json) json_t *list = NULL;
	const json_t *one;
	size_t i;

	if (docker_list(e, "weir.sandbox", &list, &ignored) < 0)
		return;
	for (int is_app = 1; is_app >= 0; is_app--)
		json_array_foreach(list, i, one) if (is_abandoned(list, one, is_app))
			remove_abandoned(e, one);
}

/* === the watcher ===
 *
 * HOW IT WORKS
 * A child in a session of its own holds one end of a pipe and waits for the pipe's end.
 * That comes when watcher_finish() is called, and when `weir container run` is killed. So
 * the containers are removed in one place, and nothing but this child knows how. It takes
 * no signal but SIGKILL; one that was killed is replaced (on_watcher_end()). Both
 * containers have a label, weir.run, whose value nobody else knows before they are made:
 * the child asks for containers with that label and removes those alone. So it has to be
 * told nothing more than whether a request that makes one may still be on its way. */

struct watcher {
	const struct docker *engine;
	const char *nonce; /* the label's value */
	const char *app;   /* the app's container by name, for messages */
	pid_t pid;	   /* 0: none */
	int pipe, process; /* the pipe's other end; a pidfd, readable at its end */
};

enum {
	PIPE_FD = 3,
	AGAIN_MS = 100,
	SETTLE_MS = 3000,  /* a request of somebody who is gone may take that long */
	ENGINE_MS = 60000, /* an engine that is started again may be away that long */
};

/* -- in the child -------------------------------------------------------------------- */

/* Remove both containers of the run, the app's first. Return: 0 also where there is none;
 * -errno, which was logged. */
static int clean_up(const struct watcher *w, bool settled)
{
	const int64_t began_ms = clock_now_ms();
	char label[EXPECTED_SIZE];
	struct err err = { 0 };
	int r;

	snprintf(label, sizeof(label), "weir.run=%s", w->nonce);
	do {
		CLEAN(json) json_t *list = NULL;

		r = docker_list(w->engine, label, &list, &err);
		if (r == 0)
			r = remove_role(w->engine, list, "app", &err);
		if (r == 0)
			r = remove_role(w->engine, list, "guard", &err);
		if (r == 0 && (settled || clock_now_ms() > began_ms + SETTLE_MS))
			return 0;
		(void)!poll(NULL, 0, AGAIN_MS);
	} while (clock_now_ms() < began_ms + ENGINE_MS);
	log_error("cannot remove the containers '%s' and '%s-weir': %s", w->app, w->app,
		  err.text);
	return r;
}

_Noreturn static void watch(const struct watcher *w, int pipe)
{
	bool settled = false; /* nothing is being made any more */
	sigset_t all;
	char byte;
	ssize_t n;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	setsid();
	close(STDIN_FILENO);
	close(STDOUT_FILENO);
	/* What reads the run's output sees its end when the run ends. */
	if (open("/dev/null", O_RDONLY) != STDIN_FILENO ||
	    open("/dev/null", O_WRONLY) != STDOUT_FILENO ||
	    process_place_fds(&pipe, 1, PIPE_FD, O_CLOEXEC) < 0)
		_exit(1);
	/* Until everybody has closed the other end. */
	while ((n = read(PIPE_FD, &byte, 1)) > 0 || (n < 0 && errno == EINTR))
		settled |= n > 0;
	_exit(clean_up(w, settled) < 0);
}

/* -- in the run ---------------------------------------------------------------------- */

/* Return: 0 or -errno with @err. */
static int watcher_start(struct watcher *w, struct err *err)
{
	int ends[2];
	pid_t pid;

	w->pipe = w->process = -1;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make a pipe");
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		watch(w, ends[0]);
	}
	close(ends[0]);
	w->pid = pid;
	w->pipe = ends[1];
	if (pid > 0)
		w->process = (int)syscall(SYS_pidfd_open, pid, 0);
	return w->process < 0 ? err_sys(err, -errno, "cannot watch over the containers")
			      : 0;
}

/* No request is on its way any more that makes a container. */
static void watcher_settle(const struct watcher *w)
{
	(void)!write(w->pipe, "s", 1);
}

static int end(struct watcher *w)
{
	int status;

	fd_close(&w->pipe);
	fd_close(&w->process);
	status = process_wait(w->pid);
	w->pid = 0;
	return status;
}

/* Have both containers removed, the app's first, and wait until they are gone. Return: 0,
 * or -errno when they are not; that was logged. */
static int watcher_finish(struct watcher *w)
{
	int status;

	/* None could be started in its place. */
	if (w->pid <= 0)
		return w->engine ? clean_up(w, true) : 0;
	watcher_settle(w);
	status = end(w);
	if (WIFEXITED(status))
		return WEXITSTATUS(status) == 0 ? 0 : -EIO;
	/* The watcher was killed: the run removes the containers. */
	return clean_up(w, true);
}

/* === the run === */

enum {
	STATUS_BY_SIGNAL = 128,
	LOOK_MS = 200,
	LOOKS_MAX = 10, /* after the end: the engine has no status by then */
	NAME_SIZE = IPC_SANDBOX_NAME_MAX + sizeof("-weir"),
};

struct run {
	struct container_spec *spec;
	struct docker engine;
	struct arena arena;
	struct option_list volumes; /* what is bound, each path without links */
	struct guard guard;
	struct watcher watcher;
	struct stream stream;
	struct docker_wait app_end;
	struct container_process process; /* the app's */
	bool has_ended;			  /* its first process */
	int looks; /* at what the engine says of it, since its monitor has ended, too */
	const char *app; /* the app's container, by id */
	char guard_name[NAME_SIZE];
	char nonce[GUARD_RANDOM_SIZE]; /* of both containers' label: this run made them */
	int signals;
	bool is_over;
	int status; /* the exit status; -1: not known yet */
};

/* -- before anything is made --------------------------------------------------------- */

/* Does the daemon guard it? */
static bool asks_daemon(const struct container_spec *s)
{
	const char *variable = getenv("WEIR_SOCKET");

	if (s->guard != CONTAINER_GUARD_AUTO)
		return s->guard == CONTAINER_GUARD_DAEMON;
	return s->socket || (variable && variable[0]) ||
	       access(CLI_DAEMON_SOCKET, R_OK | W_OK) == 0;
}

/* -- the app's container ------------------------------------------------------------- */

static json_t *environment(const struct container_spec *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < s->pass_env.count; i++) {
		const char *value = getenv(s->pass_env.items[i]);

		if (value)
			json_array_append_new(
				list, json_sprintf("%s=%s", s->pass_env.items[i], value));
	}
	for (size_t i = 0; i < s->set_env.count; i++)
		json_array_append_new(list, json_string(s->set_env.items[i]));
	return list;
}

static json_t *listed(const struct option_list *list)
{
	json_t *all = json_array();

	for (size_t i = 0; i < list->count; i++)
		json_array_append_new(all, json_string(list->items[i]));
	return all;
}

static json_t *describe_app(const struct run *r)
{
	const struct container_spec *s = r->spec;
	json_t *host = json_pack("{s:o, s:[s, s], s:o, s:o, s:I}", "NetworkMode",
				 json_sprintf("container:%s", r->guard.id), "CapDrop",
				 "NET_ADMIN", "NET_RAW", "CapAdd", listed(&s->caps),
				 "Binds", listed(&r->volumes), "PidsLimit",
				 (json_int_t)s->pids_limit);
	json_t *j = json_pack("{s:s, s:o, s:o, s:o, s:s*, s:s*, s:b, s:b, s:b, s:b, s:b, "
			      "s:b}",
			      "Image", s->image, "HostConfig", host, "Labels",
			      guard_labels(&r->guard, "app"), "Env", environment(s),
			      "WorkingDir", s->workdir, "User", s->user, "Tty", s->tty,
			      "OpenStdin", s->interactive, "StdinOnce", s->interactive,
			      "AttachStdin", s->interactive, "AttachStdout", true,
			      "AttachStderr", true);

	if (s->argv[0])
		json_object_set_new(j, "Cmd", json_array());
	for (size_t i = 0; s->argv[i]; i++)
		json_array_append_new(json_object_get(j, "Cmd"), json_string(s->argv[i]));
	if (s->entrypoint)
		json_object_set_new(j, "Entrypoint", json_pack("[s]", s->entrypoint));
	return j;
}

/* As `docker run` has them. */
static int status_of_start(const struct err *err)
{
	static const char *const missing[] = { "executable file not found",
					       "no such file or directory" };

	for (size_t i = 0; i < ARRAY_SIZE(missing); i++)
		if (strstr(err->text, missing[i]))
			return RUN_STATUS_NOT_FOUND;
	return strstr(err->text, "permission denied") ? RUN_STATUS_NOT_EXECUTABLE
						      : RUN_STATUS_FAILED;
}

static void resize(const struct run *r)
{
	struct winsize size;
	struct err ignored = { 0 };
	char what[64];

	if (!r->spec->tty || ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0)
		return;
	snprintf(what, sizeof(what), "resize?h=%u&w=%u", size.ws_row, size.ws_col);
	(void)!docker_post(&r->engine, r->app, what, &ignored);
}

/* -- who asked for it, by --info-fd -------------------------------------------------- */

static int announce(struct run *r, struct err *err)
{
	const struct guard *g = &r->guard;
	CLEAN(mem) char *text = NULL;
	CLEAN(json) json_t *j = NULL;
	const char *line;

	if (r->spec->info_fd == 0)
		return 0;
	j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "id", r->spec->id, "engine",
		      r->engine.name, "engineSocket", r->engine.socket, "container",
		      r->app, "guard", g->is_daemon ? "daemon" : "sidecar",
		      "guardContainer", g->id);
	if (g->is_daemon) {
		json_object_set_new(
			j, "api",
			json_sprintf("unix://%s", client_socket(r->spec->socket)));
		json_object_set_new(j, "path",
				    json_sprintf("/sandboxes/%s", r->spec->id));
	} else {
		json_object_set_new(j, "api",
				    json_sprintf("http://127.0.0.1:%u", g->port));
		json_object_set_new(j, "path", json_string(""));
		json_object_set_new(j, "token", json_string(g->token));
	}
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	line = text ? arena_printf(&r->arena, "%s\n", text) : NULL;
	if (!line)
		return err_set(err, -ENOMEM, "out of memory");
	if (write((int)r->spec->info_fd, line, strlen(line)) != (ssize_t)strlen(line))
		return err_sys(err, errno ? -errno : -EIO, "cannot write to --info-fd");
	return 0;
}

/* -- while it runs ------------------------------------------------------------------- */

/* Nothing is waited for any more: the app's container is removed as it is. */
static void give_up(struct run *r, int status)
{
	if (r->status < 0)
		r->status = status;
	r->is_over = true;
}

static void on_signal(struct run *r)
{
	struct signalfd_siginfo info;
	struct err ignored = { 0 };
	char what[32];

	if (read(r->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGWINCH) {
		resize(r);
	} else if (info.ssi_signo != SIGCONT) {
		snprintf(what, sizeof(what), "kill?signal=%d", (int)info.ssi_signo);
		(void)!docker_post(&r->engine, r->app, what, &ignored);
	}
}

static void on_app_end(struct run *r)
{
	struct err err = { 0 };
	int status = 0;
	int code = docker_wait_read(&r->app_end, &status, &err);

	if (code == -EAGAIN)
		return;
	fd_close(&r->app_end.fd);
	if (code < 0)
		log_error("%s", err.text);
	if (r->status < 0)
		r->status = code < 0 ? RUN_STATUS_FAILED : status;
}

static void on_guard(struct run *r)
{
	if (!guard_has_ended(&r->guard))
		return;
	fd_close(&r->guard.control);
	if (r->status >= 0)
		return;
	log_error("the container '%s', which guarded this one, has ended: ending '%s'",
		  r->guard_name, r->spec->id);
	give_up(r, RUN_STATUS_FAILED);
}

/* Another one takes its place. Nothing is being made by then. */
static void on_watcher_end(struct run *r)
{
	struct err err = { 0 };

	(void)end(&r->watcher);
	if (watcher_start(&r->watcher, &err) == 0) {
		watcher_settle(&r->watcher);
		return;
	}
	log_error("%s", err.text);
	give_up(r, RUN_STATUS_FAILED);
}

enum {
	POLL_SIGNALS = STREAM_POLLS,
	POLL_APP,
	POLL_PROCESS,
	POLL_GUARD,
	POLL_WATCHER,
	POLL_INFO,
	POLLS
};

static void turn(struct run *r, const struct pollfd polls[POLLS])
{
	if (stream_turn(&r->stream, polls) < 0) {
		/* As if the command had written to the closed pipe itself. */
		give_up(r, STATUS_BY_SIGNAL + SIGPIPE);
	}
	if (polls[POLL_SIGNALS].revents)
		on_signal(r);
	if (polls[POLL_APP].revents)
		on_app_end(r);
	r->has_ended |= polls[POLL_PROCESS].revents != 0;
	if (polls[POLL_GUARD].revents)
		on_guard(r);
	if (polls[POLL_WATCHER].revents)
		on_watcher_end(r);
	if (polls[POLL_INFO].revents & (POLLERR | POLLHUP | POLLNVAL))
		give_up(r, STATUS_BY_SIGNAL + SIGHUP);
}

/* podman tells of a short-lived container's end late, or where its clean-up fails, and
 * nothing true where its monitor was killed. */
static void look_after_end(struct run *r)
{
	struct err ignored = { 0 };
	CLEAN(json) json_t *found = NULL;
	const json_t *state;

	if (docker_inspect(&r->engine, r->app, &found, &ignored) < 0)
		return;
	r->looks += container_process_is_gone(&r->process);
	state = json_object_get(found, "State");
	if (json_is_false(json_object_get(state, "Running"))) {
		fd_close(&r->app_end.fd);
		if (r->status < 0)
			r->status = (int)json_integer_value(
				json_object_get(state, "ExitCode"));
	} else if (r->looks >= LOOKS_MAX) {
		log_error("%s does not know how the container '%s' has ended",
			  r->engine.name, r->spec->id);
		give_up(r, RUN_STATUS_FAILED);
	}
}

static void follow(struct run *r)
{
	struct pollfd polls[POLLS];

	while (!r->is_over && (r->app_end.fd >= 0 || !stream_has_ended(&r->stream))) {
		const bool is_silent = r->has_ended || stream_has_ended(&r->stream);
		const int fds[POLLS] = {
			[POLL_SIGNALS] = r->signals,
			[POLL_APP] = r->app_end.fd,
			[POLL_PROCESS] = r->has_ended ? -1 : r->process.first,
			[POLL_GUARD] = r->guard.control,
			[POLL_WATCHER] = r->watcher.process,
			[POLL_INFO] = r->spec->info_fd > 0 ? (int)r->spec->info_fd : -1,
		};

		stream_polls(&r->stream, polls);
		for (size_t i = STREAM_POLLS; i < POLLS; i++)
			polls[i] =
				(struct pollfd){ fds[i], i == POLL_INFO ? 0 : POLLIN, 0 };
		if (poll(polls, POLLS, is_silent ? LOOK_MS : -1) > 0)
			turn(r, polls);
		else if (is_silent)
			look_after_end(r);
	}
}

/* -- from top to bottom -------------------------------------------------------------- */

/* podman makes the process ready already when it is attached to: from then on it is in
 * the guard's namespace, whose filter stays, also when podman starts a guard that has
 * ended again, in a new namespace. The volumes are bound then, too, and Docker's at the
 * start. */
static int look_again(struct run *r, struct err *err)
{
	return volumes_check_again(&r->volumes, &r->engine,
				   client_socket(r->spec->socket), &r->arena, err);
}

static int start_app(struct run *r, struct err *err)
{
	struct err ignored = { 0 };
	int code = docker_create(&r->engine, r->spec->id, describe_app(r), &r->arena,
				 &r->app, err);

	if (code == -ENOENT && strstr(err->text, r->spec->image))
		err_set(err, code, "%s has no image '%.200s': `%s pull` it",
			r->engine.name, r->spec->image, r->engine.name);
	if (code == 0) {
		code = remains_check(&r->engine, r->nonce, r->app, err);
		if (code < 0)
			(void)!docker_remove(&r->engine, r->app, &ignored);
	}
	if (code == 0)
		code = look_again(r, err);
	if (code == 0)
		code = docker_attach(&r->engine, r->app, r->spec->interactive,
				     &r->stream.fd, err);
	if (code == 0)
		code = announce(r, err);
	watcher_settle(&r->watcher);
	if (code == 0)
		code = look_again(r, err);
	if (code == 0)
		code = docker_post(&r->engine, r->app, "start", err);
	if (code == 0)
		code = docker_wait_open(&r->engine, r->app, &r->app_end, err);
	if (code < 0 && code != -EINVAL)
		r->status = status_of_start(err);
	if (code < 0)
		return code;
	container_process_open(&r->engine, r->app, &r->process);
	resize(r);
	return code;
}

static int prepare(struct run *r, struct err *err)
{
	const struct sigaction ignore = { .sa_handler = SIG_IGN };
	int code = docker_find(r->spec->engine, &r->arena, &r->engine, err);

	if (code == 0)
		code = volumes_check(&r->spec->volumes, &r->engine,
				     client_socket(r->spec->socket), &r->arena,
				     &r->volumes, err);
	if (code == 0)
		code = docker_ask(&r->engine, "GET", "/_ping", NULL, NULL, err);
	if (code == 0)
		code = guard_random(r->nonce, err);
	if (code < 0)
		return code;
	snprintf(r->guard_name, sizeof(r->guard_name), "%s-weir", r->spec->id);
	r->watcher = (struct watcher){ .engine = &r->engine,
				       .nonce = r->nonce,
				       .app = r->spec->id };
	r->guard = (struct guard){ .engine = &r->engine,
				   .spec = r->spec,
				   .name = r->guard_name,
				   .nonce = r->nonce,
				   .is_daemon = asks_daemon(r->spec),
				   .daemon_socket = r->spec->socket,
				   .control = -1,
				   .arena = &r->arena };
	remains_sweep(&r->engine);
	sigaction(SIGPIPE, &ignore, NULL);
	r->signals = process_open_signals(err);
	return r->signals < 0 ? r->signals : watcher_start(&r->watcher, err);
}

static int run(struct run *r, const char *policy)
{
	struct err err = { 0 };
	int code = prepare(r, &err);

	if (code == 0)
		code = guard_start(&r->guard, policy, r->signals, &err);
	if (code == 0)
		code = start_app(r, &err);
	if (code == 0) {
		stream_make_raw(&r->stream);
		follow(r);
	}
	stream_done(&r->stream);
	if (err.code < 0)
		log_error("%s", err.text);
	if (watcher_finish(&r->watcher) < 0 && r->status < 0)
		r->status = RUN_STATUS_FAILED;
	if (r->status >= 0)
		return r->status;
	if (r->guard.signal > 0)
		return STATUS_BY_SIGNAL + r->guard.signal;
	if (err.code == -EINVAL)
		return RUN_STATUS_BAD_INPUT;
	return RUN_STATUS_FAILED;
}

static int word_run(int argc, char **argv)
{
	CLEAN(mem) struct container_spec *spec = calloc(1, sizeof(*spec));
	CLEAN(mem) struct run *r = calloc(1, sizeof(*r));
	CLEAN(mem) char *policy = NULL;
	struct err err = { 0 };
	int status;

	if (!spec || !r)
		return log_end(RUN_STATUS_FAILED, "out of memory");
	if (container_parse(argc, argv, spec, &err) == 0)
		(void)!container_check(spec, &err);
	if (err.code < 0)
		log_error("container run: %s", err.text);
	status = daemon_policy_text(&spec->policy, &policy);
	if (err.code < 0 || status != 0)
		return err.code < 0 ? RUN_STATUS_BAD_INPUT : status;
	*r = (struct run){ .spec = spec, .signals = -1, .status = -1 };
	r->stream.fd = r->app_end.fd = -1;
	r->process = (struct container_process){ -1, -1 };
	r->stream.tty = spec->tty;
	r->stream.has_input = spec->interactive;
	status = run(r, policy);
	guard_done(&r->guard);
	fd_close(&r->app_end.fd);
	fd_close(&r->process.first);
	fd_close(&r->process.monitor);
	arena_done(&r->arena);
	return status;
}

/* Until SIGTERM, or until standard input ends: its network namespace is another
 * container's, too. */
static int word_hold(void)
{
	struct err err = { 0 };
	char ignored[512];
	CLEAN(fd) int signals = process_open_signals(&err);
	struct pollfd polls[] = { { .fd = signals, .events = POLLIN },
				  { .fd = STDIN_FILENO, .events = POLLIN } };

	if (signals < 0)
		return log_end(RUN_STATUS_FAILED, "%s", err.text);
	while (poll(polls, ARRAY_SIZE(polls), -1) < 0 ||
	       (!polls[0].revents && read(STDIN_FILENO, ignored, sizeof(ignored)) > 0))
		;
	return 0;
}

int cli_container(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "run") == 0)
		return word_run(argc - 1, argv + 1);
	if (argc == 2 && strcmp(argv[1], "hold") == 0)
		return word_hold();
	if (argc > 1)
		log_error("container: '%s' is not " CLI_CONTAINER_WORDS, SHOWN(argv[1]));
	else
		cli_usage_print(stderr, &cli_container_options);
	return RUN_STATUS_BAD_INPUT;
}
