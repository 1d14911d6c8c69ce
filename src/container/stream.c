// SPDX-License-Identifier: Apache-2.0
#include "container/stream.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"

enum {
	/* Into a pipe that poll() calls writable that much goes without blocking. */
	PIECE_SIZE = 4096,
	HEADER_STDERR = 2,
	POLL_ENGINE = 0,
	POLL_INPUT,
	POLL_OUTPUT,
};

static bool is_empty(const struct stream_buffer *b)
{
	return b->at == b->size;
}

/* Headers are taken out of the front of what has come. */
static void read_header(struct stream *s)
{
	while (!s->tty && s->left == 0 && !is_empty(&s->out)) {
		s->header[s->header_size++] = (uint8_t)s->out.bytes[s->out.at++];
		if (s->header_size < DOCKER_STREAM_HEADER)
			continue;
		s->header_size = 0;
		s->left = (size_t)s->header[4] << 24 | (size_t)s->header[5] << 16 |
			  (size_t)s->header[6] << 8 | s->header[7];
	}
}

static int output_of(const struct stream *s)
{
	return !s->tty && s->header[0] == HEADER_STDERR ? STDERR_FILENO : STDOUT_FILENO;
}

void stream_polls(const struct stream *s, struct pollfd polls[STREAM_POLLS])
{
	short events = is_empty(&s->out) ? POLLIN : 0;

	if (!is_empty(&s->in))
		events |= POLLOUT;
	polls[POLL_ENGINE] = (struct pollfd){ events ? s->fd : -1, events, 0 };
	polls[POLL_INPUT] = (struct pollfd){
		s->has_input && is_empty(&s->in) && s->fd >= 0 ? STDIN_FILENO : -1,
		POLLIN, 0
	};
	polls[POLL_OUTPUT] =
		(struct pollfd){ is_empty(&s->out) ? -1 : output_of(s), POLLOUT, 0 };
}

static void read_engine(struct stream *s)
{
	ssize_t n = recv(s->fd, s->out.bytes, sizeof(s->out.bytes), 0);

	if (n < 0 && errno == EAGAIN)
		return;
	s->out.at = 0;
	s->out.size = n > 0 ? (size_t)n : 0;
	if (n <= 0)
		fd_close(&s->fd);
	read_header(s);
}

static void write_engine(struct stream *s)
{
	ssize_t n =
		send(s->fd, s->in.bytes + s->in.at, s->in.size - s->in.at, MSG_NOSIGNAL);

	if (n > 0)
		s->in.at += (size_t)n;
	else if (n < 0 && errno != EAGAIN)
		s->in.at = s->in.size; /* the command has closed its input */
}

static void read_input(struct stream *s)
{
	ssize_t n = read(STDIN_FILENO, s->in.bytes, PIECE_SIZE);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->in.at = 0;
	s->in.size = n > 0 ? (size_t)n : 0;
	if (n > 0)
		return;
	s->has_input = false;
	shutdown(s->fd, SHUT_WR);
}

static int write_output(struct stream *s)
{
	size_t size = MIN(s->out.size - s->out.at, (size_t)PIECE_SIZE);
	ssize_t n;

	if (!s->tty)
		size = MIN(size, s->left);
	n = write(output_of(s), s->out.bytes + s->out.at, size);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	s->out.at += (size_t)n;
	s->left -= s->tty ? 0 : (size_t)n;
	read_header(s);
	return 0;
}

int stream_turn(struct stream *s, const struct pollfd polls[STREAM_POLLS])
{
	int r = 0;

	if (polls[POLL_OUTPUT].revents)
		r = write_output(s);
	if (r == 0 && polls[POLL_ENGINE].revents & (POLLIN | POLLHUP | POLLERR) &&
	    is_empty(&s->out))
		read_engine(s);
	if (s->fd >= 0 && polls[POLL_ENGINE].revents & POLLOUT)
		write_engine(s);
	if (s->fd >= 0 && polls[POLL_INPUT].revents)
		read_input(s);
	return r;
}

bool stream_has_ended(const struct stream *s)
{
	return s->fd < 0 && is_empty(&s->out);
}

void stream_make_raw(struct stream *s)
{
	struct termios raw;

	if (!s->tty || !s->has_input || tcgetattr(STDIN_FILENO, &s->before) < 0)
		return;
	raw = s->before;
	cfmakeraw(&raw);
	s->is_raw = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

void stream_done(struct stream *s)
{
	fd_close(&s->fd);
	if (s->is_raw)
		tcsetattr(STDIN_FILENO, TCSANOW, &s->before);
	s->is_raw = false;
}
