// SPDX-License-Identifier: Apache-2.0
#include "container/watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "container/remains.h"
#include "sys/process.h"

enum {
	PIPE_FD = 3,
	AGAIN_MS = 100,
	SETTLE_MS = 3000,  /* a request of somebody who is gone may take that long */
	ENGINE_MS = 60000, /* an engine that is started again may be away that long */
};

/* -- in the child -------------------------------------------------------------------- */

/* Until everybody has closed the other end. Return: nothing is being made any more. */
static bool wait_for_end(int pipe)
{
	bool settled = false;
	char byte;
	ssize_t n;

	while ((n = read(pipe, &byte, 1)) > 0 || (n < 0 && errno == EINTR))
		settled |= n > 0;
	return settled;
}

static int clean_up(const struct watcher *w, bool settled)
{
	const int64_t began_ms = clock_now_ms();
	struct err err = { 0 };
	int r;

	do {
		r = remains_remove(w->engine, w->nonce, &err);
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
	sigset_t all;

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
	_exit(clean_up(w, wait_for_end(PIPE_FD)) < 0);
}

/* -- in the run ---------------------------------------------------------------------- */

int watcher_start(struct watcher *w, struct err *err)
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

void watcher_settle(const struct watcher *w)
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

int watcher_replace(struct watcher *w, bool settled, struct err *err)
{
	int r;

	(void)end(w);
	r = watcher_start(w, err);
	if (r == 0 && settled)
		watcher_settle(w);
	return r;
}

int watcher_finish(struct watcher *w)
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
