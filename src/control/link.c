// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "control/side.h"

enum {
	HEAR_MAX = 4, /* times SIDE_MESSAGES_MAX: more than a channel holds */
	/* Everybody else waits as long as an engine or a warden that is away is waited
	 * for: at most so long at once, and a tenth of the time in the long run. */
	PATIENCE_MS = 1000,
	PATIENCE_SHARE = 10,
};

static void on_engine(struct loop_source *source, uint32_t events);
static void on_keeper(struct loop_source *source, uint32_t events);

static void init(struct side_link *l, struct side *s)
{
	*l = (struct side_link){ .side = s, .engine = (uint32_t)(l - s->links) };
	l->from_engine = (struct loop_source){ .fd = -1, .on_ready = on_engine };
	l->from_keeper = (struct loop_source){ .fd = -1, .on_ready = on_keeper };
}

void side_link_init(struct side *s)
{
	for (size_t i = 0; i < IPC_ENGINES_MAX; i++)
		init(&s->links[i], s);
	s->link = &s->links[0];
	s->link_count = 1;
}

static int set_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

/* ---- messages ---- */

/* The number here of the sandbox that has @id in the engine of @l. */
static uint32_t id_here(const struct side_link *l, uint32_t id)
{
	id &= IPC_WARDS_MAX;
	return id == 0 ? 0 : id | l->engine << IPC_ENGINE_SHIFT;
}

static int receive(const struct side_link *l, int sock, struct ipc_message *ret,
		   int *ret_fd)
{
	size_t count = 0;
	int fd = -1, r = ipc_receive(sock, ret, &fd, 1, &count);

	*ret_fd = r == 0 && count == 1 ? fd : -1;
	if (r < 0)
		return r;
	ret->sandbox = id_here(l, ret->sandbox);
	if (ret->type == IPC_EVENT)
		ret->event.sandbox = id_here(l, ret->event.sandbox);
	return 0;
}

static int send_to(int sock, const struct ipc_message *m, const int *fds, size_t count)
{
	struct ipc_message there = *m;

	there.sandbox &= IPC_WARDS_MAX;
	return ipc_send(sock, &there, fds, count);
}

static bool is_wanted(const struct side_answer *a, uint32_t type)
{
	return type != IPC_NONE &&
	       (type == a->yes || type == a->no || type == a->neither);
}

/* ---- the engine ---- */

static void lose_engine(struct side_link *l)
{
	if (l->from_engine.fd < 0)
		return;
	loop_remove(l->side->loop, &l->from_engine);
	close(l->from_engine.fd);
	l->from_engine.fd = -1;
	l->heard = false;
	l->stands = false;
}

/* What comes without having been asked for. */
static void on_engine_message(struct side *s, struct ipc_message *m)
{
	switch (m->type) {
	case IPC_EVENT:
		side_on_event(s, &m->event);
		break;
	case IPC_TROUBLE:
		side_on_trouble(s, &m->trouble);
		break;
	case IPC_ANSWERED:
		side_on_answered(s, m->sandbox, &m->answered);
		break;
	case IPC_STANDS:
		if (!s->many)
			side_on_standing(s, &m->standing);
		break;
	default:
		break;
	}
}

/* One that is still there may do later what it was asked to, and nobody would know; and
 * only a new one brings a new channel. */
static void give_up_engine(struct side_link *l, int error)
{
	const struct ipc_message stuck = { .type = IPC_STUCK };

	lose_engine(l);
	if (error != -EPIPE)
		side_tell_warden(l, &stuck);
}

static void on_engine(struct loop_source *source, uint32_t events)
{
	struct side_link *l = CONTAINER_OF(source, struct side_link, from_engine);
	struct ipc_message m;
	int fd, r;

	for (int i = 0; i < SIDE_MESSAGES_MAX; i++) {
		r = receive(l, source->fd, &m, &fd);
		if (r < 0)
			break;
		if (fd >= 0)
			close(fd);
		on_engine_message(l->side, &m);
		if (source->fd < 0)
			return;
	}
	if (r < 0 && r != -EAGAIN)
		give_up_engine(l, r);
}

void side_hear_engine(struct side_link *l)
{
	for (int i = 0; i < HEAR_MAX && l->from_engine.fd >= 0; i++)
		on_engine(&l->from_engine, EPOLLIN);
}

/* Wait until @fd can be read, until @until_ms. */
static int wait_for(int fd, int64_t until_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int64_t left_ms = until_ms - clock_now_ms();
	int n = left_ms > 0 ? poll(&p, 1, (int)left_ms) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 ? -ETIMEDOUT : 0;
}

int side_ask_engine(struct side_link *l, const struct ipc_message *m, int fd,
		    const struct side_answer *wanted, struct ipc_message *ret,
		    int *ret_fd)
{
	int64_t until_ms = clock_now_ms() + SIDE_ASK_MS;
	int came = -1, r;

	if (l->from_engine.fd < 0)
		return -EPIPE;
	r = send_to(l->from_engine.fd, m, &fd, fd >= 0 ? 1 : 0);
	while (r == 0) {
		/* Dealing with what came in between may have found that it is gone. */
		r = l->from_engine.fd < 0 ? -EPIPE
					  : wait_for(l->from_engine.fd, until_ms);
		if (r == 0)
			r = receive(l, l->from_engine.fd, ret, &came);
		if (r == -EAGAIN)
			r = 0;
		else if (r == 0 && is_wanted(wanted, ret->type))
			break;
		else if (r == 0) {
			if (came >= 0)
				close(came);
			on_engine_message(l->side, ret);
		}
	}
	if (r < 0) {
		give_up_engine(l, r);
		return r;
	}
	if (ret_fd)
		*ret_fd = came;
	else if (came >= 0)
		close(came);
	return 0;
}

bool side_engine_is_same(struct side_link *l)
{
	struct pollfd p = { .fd = l->from_engine.fd, .events = POLLRDHUP };

	if (l->from_engine.fd >= 0 && poll(&p, 1, 0) > 0)
		lose_engine(l);
	return l->heard;
}

void side_tell_engine(struct side_link *l, const struct ipc_message *m)
{
	int r = l->from_engine.fd < 0 ? 0 : send_to(l->from_engine.fd, m, NULL, 0);

	if (r < 0 && r != -EAGAIN)
		give_up_engine(l, r);
}

/* Its warden is gone, and the engine with it; the first one has another started. */
static void lose_keeper(struct side_link *l)
{
	if (l->from_keeper.fd < 0)
		return;
	loop_remove(l->side->loop, &l->from_keeper);
	close(l->from_keeper.fd);
	l->from_keeper.fd = -1;
	lose_engine(l);
}

void side_tell_warden(struct side_link *l, const struct ipc_message *m)
{
	if (l->from_keeper.fd >= 0)
		(void)!send_to(l->from_keeper.fd, m, NULL, 0);
}

int side_borrow_socket(struct side *s, struct ipc_socket *socket)
{
	const struct side_answer answer = { IPC_SOCKET, IPC_SOCKET };
	const struct ipc_message ask = { .type = IPC_SOCKET, .socket = *socket };
	struct ipc_message m;
	int fd = -1;
	int r = side_ask_engine(s->link, &ask, -1, &answer, &m, &fd);

	if (r < 0)
		return r;
	if (fd < 0)
		return m.socket.error < 0 ? m.socket.error : -EBADMSG;
	socket->port = m.socket.port;
	return fd;
}

static void take_engine(struct side_link *l, int fd)
{
	lose_engine(l);
	l->from_engine.fd = fd;
	if (set_nonblocking(fd) < 0 ||
	    loop_add(l->side->loop, &l->from_engine, EPOLLIN) < 0) {
		give_up_engine(l, -ENOMEM);
		return;
	}
	if (l->side->many)
		side_wards_on_engine(l);
}

/* ---- the keeper, or a warden ---- */

static void take_warden(struct side *s, const struct ipc_message *m, int fd)
{
	struct side_link *l = &s->links[m->sandbox % IPC_ENGINES_MAX];

	/* They come in turn. */
	if (l == s->link || l->engine > s->link_count) {
		close(fd);
		return;
	}
	lose_keeper(l);
	l->warden_restarts = m->standing.restarts;
	l->from_keeper.fd = fd;
	if (set_nonblocking(fd) < 0 || loop_add(s->loop, &l->from_keeper, EPOLLIN) < 0 ||
	    side_wards_on_link(l) < 0) {
		loop_stop(s->loop);
		return;
	}
	s->link_count = MAX(s->link_count, (size_t)l->engine + 1);
}

static void on_standing(struct side_link *l, struct ipc_standing *standing)
{
	struct side *s = l->side;

	char *weaker = s->many ? l->lacking : s->standing.weaker;

	l->restarts = standing->restarts;
	s->standing.restarts = standing->restarts;
	side_tame(standing->weaker, sizeof(standing->weaker));
	memcpy(weaker, standing->weaker, sizeof(standing->weaker));
	/* The first rules stand, and the API's sockets listen. */
	side_secure_listen(s);
	if (api_listen(s->api) < 0)
		loop_stop(s->loop);
}

static void on_keeper_message(struct side_link *l, struct ipc_message *m, int fd)
{
	if (m->type == IPC_PEER && fd >= 0) {
		take_engine(l, fd);
		return;
	}
	if (m->type == IPC_ENGINE && fd >= 0 && l->side->many && l == l->side->link) {
		take_warden(l->side, m, fd);
		return;
	}
	if (l->side->many)
		side_wards_on_warden(l, m);
	if (m->type == IPC_WEBHOOK && fd >= 0) {
		side_webhook_attach(l->side, fd);
		return;
	}
	if (m->type == IPC_WITNESS && fd >= 0) {
		side_witness_attach(l->side, fd);
		return;
	}
	if (m->type == IPC_STANDS)
		on_standing(l, &m->standing);
	if (fd >= 0)
		close(fd);
}

static void on_keeper(struct loop_source *source, uint32_t events)
{
	struct side_link *l = CONTAINER_OF(source, struct side_link, from_keeper);
	struct ipc_message m;
	int fd, r = receive(l, source->fd, &m, &fd);

	if (r == 0)
		on_keeper_message(l, &m, fd);
	else if (r != -EAGAIN && l == l->side->link)
		loop_stop(l->side->loop);
	else if (r != -EAGAIN)
		lose_keeper(l);
}

/* What @l's warden says, or, while that is away, what the first one does. */
static int hear_keeper(struct side_link *l, int64_t until_ms)
{
	struct side_link *from = l->from_keeper.fd >= 0 ? l : l->side->link;
	struct ipc_message m;
	int fd, r = wait_for(from->from_keeper.fd, until_ms);

	if (r < 0)
		return r;
	r = receive(from, from->from_keeper.fd, &m, &fd);
	if (r == 0)
		on_keeper_message(from, &m, fd);
	else if (r != -EAGAIN && from != from->side->link)
		lose_keeper(from);
	else if (r != -EAGAIN)
		return r;
	return 0;
}

/* Until when @l may be waited for. */
static int64_t wait_until(struct side_link *l)
{
	int64_t now_ms = clock_now_ms();
	int64_t earned_ms = (now_ms - l->waited_at_ms) / PATIENCE_SHARE;

	if (l->patience_ms < PATIENCE_MS)
		l->patience_ms = MIN(l->patience_ms + earned_ms, (int64_t)PATIENCE_MS);
	l->waited_at_ms = now_ms;
	return now_ms + l->patience_ms;
}

/* Wait for @awaited, the channel to @l's engine or warden, which is away. */
static int wait_for_link(struct side_link *l, const struct loop_source *awaited)
{
	int64_t until_ms, now_ms;
	int r = 0;

	if (awaited->fd >= 0)
		return 0;
	until_ms = wait_until(l);
	while (r == 0 && awaited->fd < 0)
		r = hear_keeper(l, until_ms);
	now_ms = clock_now_ms();
	l->patience_ms = MAX(l->patience_ms - (now_ms - l->waited_at_ms), (int64_t)0);
	l->waited_at_ms = now_ms;
	return r;
}

/* One that does not answer gets a successor. The first one's silence is for whoever asked
 * it: without it there is no control. */
static void give_up_keeper(struct side_link *l, int error)
{
	const struct ipc_message stuck = { .type = IPC_STUCK, .sandbox = l->engine };

	if (l == l->side->link)
		return;
	lose_keeper(l);
	if (error == -ETIMEDOUT)
		side_tell_warden(l->side->link, &stuck);
}

int side_ask_keeper(struct side_link *l, const struct ipc_message *m, const int *fds,
		    size_t count, const struct side_answer *wanted,
		    struct ipc_message *ret, int *ret_fd)
{
	bool is_slow = m->type == IPC_WARD || m->type == IPC_AGAIN ||
		       m->type == IPC_DETACH;
	int r = wait_for_link(l, &l->from_keeper), fd = -1;
	int64_t until_ms;

	if (r < 0)
		return r;
	until_ms = clock_now_ms() + (is_slow ? SIDE_ATTACH_MS : SIDE_ASK_MS);
	r = send_to(l->from_keeper.fd, m, fds, count);
	while (r == 0) {
		/* What was heard meanwhile may have been its end. */
		r = l->from_keeper.fd < 0 ? -EPIPE
					  : wait_for(l->from_keeper.fd, until_ms);
		if (r == 0)
			r = receive(l, l->from_keeper.fd, ret, &fd);
		if (r == 0 && is_wanted(wanted, ret->type))
			break;
		if (r == 0)
			on_keeper_message(l, ret, fd);
		else if (r == -EAGAIN)
			r = 0;
	}
	if (r < 0) {
		give_up_keeper(l, r);
		return r;
	}
	if (ret_fd)
		*ret_fd = fd;
	else if (fd >= 0)
		close(fd);
	return 0;
}

int side_tell_keeper(struct side *s, int plan_fd, int text_fd)
{
	const struct ipc_message keep = { .type = IPC_KEEP };
	const struct side_answer kept = { IPC_KEPT, IPC_KEPT };
	const int fds[] = { plan_fd, text_fd };
	struct ipc_message m;

	return side_ask_keeper(s->link, &keep, fds, ARRAY_SIZE(fds), &kept, &m, NULL);
}

bool side_await_engine(struct side_link *l)
{
	return wait_for_link(l, &l->from_engine) == 0;
}

int side_link_open(struct side *s, struct err *err)
{
	int keeper = PLACE_FIRST + PLACE_KEEPER, r = set_nonblocking(keeper);

	s->link->from_keeper.fd = keeper;
	if (r == 0)
		r = loop_add(s->loop, &s->link->from_keeper, EPOLLIN);
	return r < 0 ? err_sys(err, r, "cannot hear the keeper") : 0;
}
