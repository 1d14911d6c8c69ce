// SPDX-License-Identifier: Apache-2.0
/* The API without a library, while the kernel lets this user watch nothing more. */
#include "api/api.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "unit.h"

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e);

static bool is_full;

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *e)
{
	if (is_full && op == EPOLL_CTL_ADD) {
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll, op, fd, e);
}

static int admitted;

static bool admits(void *data, int fd)
{
	admitted++;
	return true;
}

static int dial(const struct sockaddr_un *to, socklen_t size)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(connect(fd, (const struct sockaddr *)to, size), 0);
	return fd;
}

TEST(a_client_is_served_after_one_that_left_while_nothing_more_could_be_watched)
{
	struct api_config config = { .loop = loop_new(), .sandboxes.admits = admits };
	struct sockaddr_un here = { .sun_family = AF_UNIX };
	socklen_t size = sizeof(here);
	struct err err = { 0 };
	struct api_plain *p;
	int client;

	config.listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* The kernel chooses an abstract name. */
	assert_int_equal(bind(config.listen_fd, (const struct sockaddr *)&here,
			      sizeof(here.sun_family)),
			 0);
	assert_int_equal(getsockname(config.listen_fd, (struct sockaddr *)&here, &size),
			 0);
	assert_int_equal(listen(config.listen_fd, 4), 0);
	p = api_plain_new(&config, &err);
	assert_non_null(p);
	client = dial(&here, size);
	assert_int_equal(loop_turn(config.loop, 0), 0);
	is_full = true;
	close(client);
	assert_int_equal(loop_turn(config.loop, 0), 0);
	is_full = false;
	client = dial(&here, size);
	assert_int_equal(loop_turn(config.loop, 0), 0);
	assert_int_equal(admitted, 2);
	close(client);
	api_plain_free(p);
	loop_free(config.loop);
}
