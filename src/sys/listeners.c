// SPDX-License-Identifier: Apache-2.0
#include "sys/listeners.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sys/sock.h"

enum { PAUSE_MS = 100 };

/* A kind that the engine may make when it is confined, too. */
int listeners_spare(void)
{
	return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int take_next(int listener)
{
	return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Return: a connection was there and is reset. */
static bool refuse_one(struct listeners *l, int listener)
{
	int fd;

	if (*l->spare_fd < 0)
		return false;
	close(TAKE_FD(*l->spare_fd));
	fd = take_next(listener);
	if (fd >= 0) {
		sock_reset(fd);
		close(fd);
	}
	*l->spare_fd = listeners_spare();
	if (fd >= 0)
		l->on_connection(l, -1);
	return fd >= 0;
}

static int start(struct listeners *l)
{
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(l->at) && r == 0; i++)
		if (l->at[i].source.fd >= 0 && !l->at[i].source.added)
			r = loop_add(l->loop, &l->at[i].source, EPOLLIN);
	return r;
}

static void stop(struct listeners *l)
{
	for (size_t i = 0; i < ARRAY_SIZE(l->at); i++)
		loop_remove(l->loop, &l->at[i].source);
}

static void rest(struct listeners *l)
{
	if (loop_timer_in(l->loop, &l->pause, PAUSE_MS) == 0)
		stop(l);
}

static void on_pause_over(struct loop_timer *t)
{
	struct listeners *l = CONTAINER_OF(t, struct listeners, pause);

	if (*l->spare_fd < 0)
		*l->spare_fd = listeners_spare();
	if (start(l) < 0)
		rest(l);
}

static void on_ready(struct loop_source *source, uint32_t events)
{
	struct listeners *l = CONTAINER_OF(source, struct listener, source)->of;

	for (size_t i = 0; i < l->batch; i++) {
		int fd = take_next(source->fd);

		if (fd >= 0) {
			l->on_connection(l, fd);
			continue;
		}
		switch (errno) {
		case EAGAIN:
			return;
		/* That connection is gone; the listener is as it was. */
		case ECONNABORTED:
		case EINTR:
		case EPROTO:
		case EPERM:
			continue;
		case EMFILE:
		case ENFILE:
		case ENOBUFS:
		case ENOMEM:
			if (refuse_one(l, source->fd))
				continue;
			break;
		default:
			break;
		}
		rest(l);
		return;
	}
}

int listeners_open(struct listeners *l, const int fd[2])
{
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(l->at); i++)
		l->at[i] = (struct listener){
			.source = { .fd = fd[i], .on_ready = on_ready }, .of = l
		};
	l->pause.on_fire = on_pause_over;
	r = start(l);
	if (r < 0)
		stop(l);
	return r;
}

void listeners_close(struct listeners *l)
{
	stop(l);
	loop_timer_stop(l->loop, &l->pause);
}
