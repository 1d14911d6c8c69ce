// SPDX-License-Identifier: Apache-2.0
/* container/stream - the bytes between the run's standard streams and the container's.
 * Nothing here blocks: the caller polls, and says what is ready. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "container/docker.h"

enum { STREAM_BUFFER_SIZE = 32768 };

struct stream_buffer {
	size_t at, size; /* what is in there: from at to size */
	char bytes[STREAM_BUFFER_SIZE];
};

struct stream {
	int fd;		/* to the engine; -1: it has ended */
	bool tty;	/* nothing is parted */
	bool has_input; /* standard input is open, and the container's */
	struct stream_buffer in, out;
	/* Of the part that is being read. */
	uint8_t header[DOCKER_STREAM_HEADER];
	size_t header_size, left;
	bool is_raw; /* the terminal */
	struct termios before;
};

enum { STREAM_POLLS = 3 };
/* What to wait for; fd -1: nothing. */
void stream_polls(const struct stream *s, struct pollfd polls[STREAM_POLLS]);
/* After poll(). Return: 0; -EPIPE: nobody reads the output any more; -errno: the same for
 * the caller. */
int stream_turn(struct stream *s, const struct pollfd polls[STREAM_POLLS]) MUST_CHECK;
/* Everything that the container has written is written. */
bool stream_has_ended(const struct stream *s);

/* Keys go to the container as they are, where standard input is a terminal. */
void stream_make_raw(struct stream *s);
void stream_done(struct stream *s);
