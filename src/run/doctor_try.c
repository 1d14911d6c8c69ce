// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "launch/enter.h"
#include "run/doctor_probe.h"
#include "sys/id_map.h"
#include "sys/process.h"
#include "sys/program_path.h"

struct
try {
	doctor_try_fn *fn;
	const struct launch_machine *maps; /* root: whose id maps; NULL: map itself */
	bool inside;
	uid_t uid;
	gid_t gid;
	int fd;	  /* the child's end */
	int proc; /* /proc */
};

/* --- the child --- */

/* Wait until the parent has written the maps, and become uid 0 of them. */
static int take_maps(const struct try *t, struct err *err)
{
	char go;

	if (recv(t->fd, &go, 1, 0) != 1)
		return err_set(err, -ECANCELED, "the id maps could not be written");
	if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot become the sandbox's user");
	return 0;
}

static _Noreturn void attempt_main(const struct try *t)
{
	struct doctor_attempt a = { 0 };
	struct err err = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (t->inside)
		a.code = t->maps ? take_maps(t, &err)
				 : id_map_self(t->proc, t->uid, t->gid, &err);
	if (a.code == 0)
		a.code = t->fn(&a.value, &err);
	memcpy(a.text, err.text, sizeof(a.text));
	(void)!send(t->fd, &a, sizeof(a), MSG_NOSIGNAL);
	_exit(0);
}

/* --- the parent --- */

static void failed(struct doctor_attempt *ret, int code, const char *what)
{
	struct err err = { 0 };

	ret->code = err_sys(&err, code, "%s", what);
	memcpy(ret->text, err.text, sizeof(ret->text));
}

static void wait_for(int fd, struct doctor_attempt *ret)
{
	const int64_t until = clock_now_ms() + DOCTOR_TRY_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left;
	int r = -1;

	while (r < 0 && (left = until - clock_now_ms()) > 0) {
		r = poll(&p, 1, (int)left);
		if (r < 0 && errno != EINTR)
			break;
	}
	if (r != 1)
		failed(ret, -ETIMEDOUT, "cannot finish the probe");
	else if (recv(fd, ret, sizeof(*ret), MSG_DONTWAIT) != sizeof(*ret))
		failed(ret, -EPIPE, "cannot finish the probe: its process died");
	ret->text[sizeof(ret->text) - 1] = '\0';
}

static void try_child(struct try *t, struct doctor_attempt *ret)
{
	unsigned long flags = (t->inside ? enter_namespaces() : 0) | SIGCHLD;
	struct err err = { 0 };
	CLEAN(fd) int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int fds[2], r = 0;
	long pid;

	*ret = (struct doctor_attempt){ 0 };
	fflush(NULL);
	t->proc = proc;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
		failed(ret, -errno, "cannot make a socket pair");
		return;
	}
	t->fd = fds[1];
	pid = syscall(SYS_clone, flags, NULL, NULL, NULL, 0);
	if (pid == 0)
		attempt_main(t);
	if (pid < 0)
		failed(ret, -errno, "cannot create the namespaces");
	close(fds[1]);
	if (pid > 0 && t->inside && t->maps)
		r = launch_write_maps(t->maps, (pid_t)pid, &err);
	if (pid > 0 && t->inside && t->maps && r == 0 &&
	    send(fds[0], "", 1, MSG_NOSIGNAL) != 1)
		r = err_sys(&err, -errno, "cannot start the probe");
	if (r < 0) {
		ret->code = r;
		memcpy(ret->text, err.text, sizeof(ret->text));
	} else if (pid > 0) {
		wait_for(fds[0], ret);
	}
	close(fds[0]);
	process_reap((pid_t)pid, true);
}

void doctor_try(doctor_try_fn *fn, struct doctor_attempt *ret)
{
	struct try t = { .fn = fn };

	try_child(&t, ret);
}

void doctor_try_inside(const struct doctor *d, doctor_try_fn *fn,
		       struct doctor_attempt *ret)
{
	struct try t = { .fn = fn,
			 .maps = d->has_machine && d->machine.root ? &d->machine : NULL,
			 .inside = true,
			 .uid = geteuid(),
			 .gid = getegid() };

	try_child(&t, ret);
}

/* --- programs --- */

/* What runs in the child, its output caught. Return: the exit status. */
typedef int output_fn(const void *what);

static int exec_program(const void *what)
{
	const char *const *argv = what;
	char path[PROGRAM_PATH_SIZE];

	if (argv[0][0] == '/')
		execv(argv[0], (char *const *)(uintptr_t)argv);
	else if (program_path(argv[0], path, NULL) == 0)
		execv(path, (char *const *)(uintptr_t)argv);
	return 127;
}

struct sandbox_call {
	int (*run)(struct run_spec *spec);
	struct run_spec *spec;
};

static int call_sandbox(const void *what)
{
	const struct sandbox_call *c = what;

	return c->run(c->spec);
}

static _Noreturn void output_main(output_fn *fn, const void *what, int output)
{
	int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
	int status = 127;

	if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
	    dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
		status = fn(what);
	_exit(status);
}

/* Everything that comes until the end, or until it takes too long. */
static int gather(int fd, char *buf, size_t size)
{
	const int64_t until = clock_now_ms() + DOCTOR_TRY_MS;
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t used = 0;
	int64_t left;

	while ((left = until - clock_now_ms()) > 0) {
		char more[512];
		ssize_t n;
		size_t kept;

		if (poll(&p, 1, (int)left) != 1)
			continue;
		n = read(fd, more, sizeof(more));
		if (n <= 0)
			break;
		kept = MIN((size_t)n, size - 1 - used);
		memcpy(buf + used, more, kept);
		used += kept;
	}
	buf[used] = '\0';
	return left > 0 ? 0 : -ETIMEDOUT;
}

static int wait_status(pid_t pid, int r)
{
	int status;

	if (r < 0)
		kill(pid, SIGKILL);
	status = process_wait(pid);
	if (r < 0 || status < 0)
		return MIN(r, status);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int catch_output(output_fn *fn, const void *what, char *buf, size_t size)
{
	int fds[2], r;
	pid_t pid;

	buf[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	fflush(NULL);
	pid = process_fork(NULL);
	if (pid == 0)
		output_main(fn, what, fds[1]);
	r = MIN(pid, 0);
	close(fds[1]);
	if (pid > 0) {
		r = gather(fds[0], buf, size);
		r = wait_status(pid, r);
	}
	close(fds[0]);
	return r;
}

int doctor_run_program(const char *const *argv, char *buf, size_t size)
{
	return catch_output(exec_program, argv, buf, size);
}

int doctor_run_sandbox(int (*run)(struct run_spec *spec), struct run_spec *spec,
		       char *buf, size_t size)
{
	const struct sandbox_call c = { run, spec };

	return catch_output(call_sandbox, &c, buf, size);
}

/* --- rows --- */

static const char *keep_bytes(struct doctor *d, const char *fmt, va_list args)
{
	char text[1024];
	const char *kept;

	vsnprintf(text, sizeof(text), fmt, args);
	kept = arena_text(&d->arena, text_of(text));
	return kept ? kept : "(out of memory)";
}

const char *doctor_text(struct doctor *d, const char *fmt, ...)
{
	const char *kept;
	va_list args;

	va_start(args, fmt);
	kept = keep_bytes(d, fmt, args);
	va_end(args);
	return kept;
}

void doctor_found(struct doctor *d, struct doctor_row *row, enum doctor_state state,
		  const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	row->found = keep_bytes(d, fmt, args);
	va_end(args);
	row->state = state;
}

void doctor_mend(struct doctor_row *row, const char *command)
{
	doctor_mend_each(row, command, command, command);
}

void doctor_mend_each(struct doctor_row *row, const char *debian, const char *ubuntu,
		      const char *fedora)
{
	row->mend[DOCTOR_DEBIAN] = debian;
	row->mend[DOCTOR_UBUNTU] = ubuntu;
	row->mend[DOCTOR_FEDORA] = fedora;
}
