// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include "relay/relay_internal.h"

static struct relay_pipe *pipe_open(struct relay *r)
{
	struct relay_pipe *p;

	if (r->pipe_count >= r->pipes_max)
		return NULL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	if (pipe2(p->fd, O_NONBLOCK | O_CLOEXEC) < 0) {
		free(p);
		return NULL;
	}
	r->pipe_count++;
	return p;
}

static void pipe_close(struct relay *r, struct relay_pipe *p)
{
	close(p->fd[0]);
	close(p->fd[1]);
	free(p);
	r->pipe_count--;
}

static bool pipe_borrow(struct relay_guest *g, struct relay_way *way)
{
	struct relay *r = g->relay;
	struct relay_pipe *p = SLIST_FIRST(&r->pipes);

	if (way->pipe)
		return true;
	if (g->pipe_count >= RELAY_PIPES_PER_SANDBOX)
		return false;
	if (p)
		SLIST_REMOVE_HEAD(&r->pipes, link);
	else
		p = pipe_open(r);
	if (!p)
		return false;
	g->pipe_count++;
	way->pipe = p;
	return true;
}

void relay_way_done(struct relay_guest *g, struct relay_way *way)
{
	struct relay_pipe *p = way->pipe;

	if (!p)
		return;
	way->pipe = NULL;
	g->pipe_count--;
	if (way->waiting > 0)
		pipe_close(g->relay, p);
	else
		SLIST_INSERT_HEAD(&g->relay->pipes, p, link);
	way->waiting = 0;
}

void relay_pipes_free(struct relay *r)
{
	struct relay_pipe *p;

	while ((p = SLIST_FIRST(&r->pipes))) {
		SLIST_REMOVE_HEAD(&r->pipes, link);
		pipe_close(r, p);
	}
}

/* What came of one system call on a socket. */
enum step { STEP_BLOCKED, STEP_MOVED, STEP_EOF, STEP_FAILED };

static enum step step_of(ssize_t n, bool *ready)
{
	if (n > 0)
		return STEP_MOVED;
	if (n == 0)
		return STEP_EOF;
	if (errno == EINTR)
		return STEP_MOVED;
	if (errno != EAGAIN)
		return STEP_FAILED;
	*ready = false;
	return STEP_BLOCKED;
}

static void use_up(struct relay_way *way, size_t n)
{
	if (way->allowed != RELAY_ALL)
		way->allowed -= n;
}

/* Plain copies keep nothing between calls: bytes are looked at, sent as far as they
 * can be, and only then taken. */
static enum step copy_once(struct relay *r, struct relay_way *way,
			   struct relay_side *from, struct relay_side *to, size_t *moved)
{
	size_t room = (size_t)MIN((uint64_t)RELAY_COPY_BYTES, way->allowed);
	ssize_t seen = recv(from->source.fd, r->copy_buffer, room, MSG_PEEK);
	enum step step = step_of(seen, &from->readable);
	ssize_t sent;

	if (step != STEP_MOVED || seen < 0)
		return step;
	sent = send(to->source.fd, r->copy_buffer, (size_t)seen, MSG_NOSIGNAL);
	step = step_of(sent, &to->writable);
	if (step == STEP_EOF)
		return STEP_FAILED;
	if (step != STEP_MOVED || sent < 0)
		return step;
	*moved += (size_t)sent;
	use_up(way, (size_t)sent);
	/* TCP: MSG_TRUNC throws the bytes away without copying them. */
	if (recv(from->source.fd, NULL, (size_t)sent, MSG_TRUNC) != sent)
		return STEP_FAILED;
	return STEP_MOVED;
}

/* splice() also says 0 in front of urgent data once the peer has finished: only recv()
 * can tell that from the end. */
static bool is_at_end(const struct relay_side *from)
{
	char byte;

	return recv(from->source.fd, &byte, 1, MSG_PEEK) == 0;
}

static enum step fill(struct relay_way *way, struct relay_side *from)
{
	size_t most = (size_t)MIN((uint64_t)RELAY_SPLICE_BYTES, way->allowed);
	ssize_t n = splice(from->source.fd, NULL, way->pipe->fd[1], NULL, most,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	enum step step = step_of(n, &from->readable);

	if (step == STEP_EOF && !is_at_end(from)) {
		from->urgent = true;
		return STEP_MOVED;
	}
	if (n > 0) {
		way->waiting = (uint32_t)n;
		use_up(way, (size_t)n);
	}
	return step;
}

static enum step drain(struct relay_way *way, struct relay_side *to, size_t *moved)
{
	ssize_t n = splice(way->pipe->fd[0], NULL, to->source.fd, NULL, way->waiting,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	enum step step = step_of(n, &to->writable);

	if (step == STEP_EOF)
		return STEP_FAILED;
	if (n > 0) {
		way->waiting -= (uint32_t)n;
		*moved += (size_t)n;
	}
	return step;
}

static enum step move_once(struct relay_flow *f, struct relay_way *way,
			   struct relay_side *from, struct relay_side *to, size_t *moved)
{
	if (!to->writable)
		return STEP_BLOCKED;
	if (way->waiting > 0)
		return drain(way, to, moved);
	if (!from->readable || way->allowed == 0)
		return STEP_BLOCKED;
	if (from->urgent || !pipe_borrow(f->guest, way))
		return copy_once(f->guest->relay, way, from, to, moved);
	return fill(way, from);
}

static enum relay_moved pass_end_on(struct relay_way *way, const struct relay_side *to)
{
	way->ended = true;
	if (!way->keep_open && shutdown(to->source.fd, SHUT_WR) < 0)
		return MOVE_FAILED;
	return MOVE_END;
}

bool relay_has_unsent(const struct relay_side *side)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	return getsockopt(side->source.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
	       info.tcpi_notsent_bytes > 0;
}

enum relay_moved relay_move(struct relay_flow *f, struct relay_way *way,
			    struct relay_side *from, struct relay_side *to, size_t *cost)
{
	enum step step = STEP_MOVED;
	size_t moved = 0, steps = 0;

	if (way->ended)
		return MOVE_END;
	while (step == STEP_MOVED && moved < RELAY_FLOW_QUANTUM &&
	       steps++ < RELAY_FLOW_STEPS)
		step = move_once(f, way, from, to, &moved);
	if (way->waiting == 0)
		relay_way_done(f->guest, way);
	if (way == &f->up)
		f->sent += moved;
	else
		f->answered = f->answered || moved > 0;
	*cost += moved + steps * RELAY_STEP_COST;
	switch (step) {
	case STEP_BLOCKED:
		return MOVE_WAIT;
	case STEP_MOVED:
		return MOVE_MORE;
	case STEP_EOF:
		return pass_end_on(way, to);
	default:
		return MOVE_FAILED;
	}
}
