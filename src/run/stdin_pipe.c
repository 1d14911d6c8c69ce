// SPDX-License-Identifier: Apache-2.0
#include "run/stdin_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/macros.h"
#include "launch/std_fds.h"

enum {
	LENT_MAX = 1 << 20, /* at a time: more than a buffer of a pipe holds */
	MANY = 64 << 10,    /* bytes: what a pipe holds by default */
	AGAIN_MS = 1, /* until the next look at a pipe; without progress twice as long
			 each time */
	AGAIN_MAX_MS = 64,
};

/* The command's input is at its end. */
static void end_input(struct stdin_pipe *p)
{
	loop_remove(p->loop, &p->from_caller);
	loop_remove(p->loop, &p->to_command);
	loop_timer_stop(p->loop, &p->again);
	fd_close(&p->to_command.fd);
	p->lent = 0;
}

/* Of the two pipes one is watched at a time: a pipe that all writers have left is ready
 * for ever. */
static void watch_one(struct stdin_pipe *p, struct loop_source *s)
{
	if (s->added)
		return;
	loop_remove(p->loop, &p->from_caller);
	loop_remove(p->loop, &p->to_command);
	if (loop_add(p->loop, s, s == &p->to_command ? EPOLLOUT : EPOLLIN) < 0)
		end_input(p);
}

/* Take from the caller's pipe what the command has read. Bytes that the command itself
 * has written into its pipe count as not read. Return: 0; -EAGAIN: somebody else has read
 * them from the caller's pipe; or another -errno. */
static int take_read(struct stdin_pipe *p)
{
	int left = 0;
	size_t rest;

	if (ioctl(p->to_command.fd, FIONREAD, &left) < 0)
		return -errno;
	rest = p->lent - MIN(p->lent, (size_t)left);
	p->lent -= rest;
	while (rest > 0) {
		const ssize_t n = splice(STDIN_FILENO, NULL, p->nowhere, NULL, rest,
					 SPLICE_F_NONBLOCK);

		if (n <= 0)
			return n < 0 ? -errno : -EAGAIN;
		rest -= (size_t)n;
	}
	return 0;
}

/* @otherwise: what is waited for where nothing can be lent now. */
static void lend(struct stdin_pipe *p, struct loop_source *otherwise)
{
	int waiting = 0, size = (int)sysconf(_SC_PAGESIZE);
	ssize_t n;

	/* The command's pipe has no more buffers than wait in the caller's, so that all
	 * of them are filled. The kernel may refuse a size: then the one before does. */
	if (ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0) {
		while (size * 2 <= MIN(waiting, MANY))
			size *= 2;
		if (size != p->size && fcntl(p->to_command.fd, F_SETPIPE_SZ, size) >= 0)
			p->size = size;
	}
	n = tee(STDIN_FILENO, p->to_command.fd, LENT_MAX, SPLICE_F_NONBLOCK);
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		end_input(p);
		return;
	}
	p->lent = n > 0 ? (size_t)n : 0;
	watch_one(p, n > 0 ? &p->to_command : otherwise);
}

/* Something waits there. Nothing can be lent where the command has filled its own pipe.
 */
static void on_caller(struct loop_source *s, uint32_t events)
{
	struct stdin_pipe *p = CONTAINER_OF(s, struct stdin_pipe, from_caller);

	lend(p, &p->to_command);
}

/* There is room. Nothing can be lent where nothing waits. */
static void on_command(struct loop_source *s, uint32_t events)
{
	struct stdin_pipe *p = CONTAINER_OF(s, struct stdin_pipe, to_command);
	const size_t lent = p->lent;
	const int r = take_read(p);

	if (r < 0 && r != -EAGAIN) {
		end_input(p);
	} else if (p->lent == 0) {
		lend(p, &p->from_caller);
	} else {
		/* Many buffers: the command has read some of them. */
		loop_remove(p->loop, s);
		p->again_ms = p->lent < lent ? AGAIN_MS
					     : MIN(p->again_ms * 2, AGAIN_MAX_MS);
		if (loop_timer_in(p->loop, &p->again, p->again_ms) < 0)
			end_input(p);
	}
}

static void on_again(struct loop_timer *t)
{
	struct stdin_pipe *p = CONTAINER_OF(t, struct stdin_pipe, again);

	watch_one(p, &p->to_command);
}

/* --- from the start to the end --- */

void stdin_pipe_init(struct stdin_pipe *p)
{
	*p = (struct stdin_pipe){ .given = -1, .nowhere = -1, .again_ms = AGAIN_MS };
	p->from_caller =
		(struct loop_source){ .fd = STDIN_FILENO, .on_ready = on_caller };
	p->to_command = (struct loop_source){ .fd = -1, .on_ready = on_command };
	p->again.on_fire = on_again;
}

int stdin_pipe_open(struct stdin_pipe *p, bool root, struct err *err)
{
	int ends[2];

	if (!std_fds_has_changeable_pipe(root))
		return 0;
	if (pipe2(ends, O_CLOEXEC) < 0)
		return err_sys(err, -errno, "cannot make the command's standard input");
	p->given = ends[0];
	p->to_command.fd = ends[1];
	p->nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	p->size = (int)sysconf(_SC_PAGESIZE);
	if (p->nowhere < 0 || fcntl(ends[1], F_SETPIPE_SZ, p->size) < 0)
		return err_sys(err, -errno, "cannot make the command's standard input");
	return 0;
}

int stdin_pipe_serve(struct stdin_pipe *p, struct loop *loop)
{
	if (p->to_command.fd < 0)
		return 0;
	p->loop = loop;
	return loop_add(loop, &p->from_caller, EPOLLIN);
}

void stdin_pipe_close(struct stdin_pipe *p)
{
	if (p->to_command.fd >= 0)
		(void)!take_read(p);
	if (p->loop)
		end_input(p);
	fd_close(&p->to_command.fd);
	fd_close(&p->given);
	fd_close(&p->nowhere);
}
