// SPDX-License-Identifier: Apache-2.0
/* container/docker - the API of Docker and podman, which speaks Docker's, on a unix
 * socket of this machine; and what of a container is had from the machine itself. */
#pragma once

#include <jansson.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "container/options.h"
#include "outputs/request.h"

struct docker {
	const char *name;   /* "docker" or "podman", for messages and their commands */
	const char *socket; /* in the arena it was found with */
};

/* The engine's socket: DOCKER_HOST's or CONTAINER_HOST's, or where it is by default.
 * Return: 0; -ENOENT: there is none; -errno, with @err. */
int docker_find(enum container_engine which, struct arena *arena, struct docker *ret,
		struct err *err) MUST_CHECK;

/* One request; @body is stolen, NULL: none. An answer of 300 or more is a failure, with
 * the engine's reason. *@ret, NULL: not asked for, is the answer's JSON, owned by the
 * caller. Return: 0; -ENOENT: 404; -EREMOTEIO: another status; -errno, with @err. */
int docker_ask(const struct docker *e, const char *method, const char *path, json_t *body,
	       json_t **ret, struct err *err) MUST_CHECK;

/* A container that is made and not started. @ret_id: in @arena. Return as above. */
int docker_create(const struct docker *e, const char *name, json_t *body,
		  struct arena *arena, const char **ret_id, struct err *err) MUST_CHECK;
/* POST @what of the container @id: "start", "kill?signal=15". Return as above. */
int docker_post(const struct docker *e, const char *id, const char *what,
		struct err *err) MUST_CHECK;
/* Its end, and what it made, at once; also of what is not there. */
int docker_remove(const struct docker *e, const char *id, struct err *err) MUST_CHECK;
/* What `inspect` says of it. */
int docker_inspect(const struct docker *e, const char *id, json_t **ret,
		   struct err *err) MUST_CHECK;
/* Containers, ended ones too, with @label: "NAME" or "NAME=VALUE", neither with a letter
 * that a URL can't have. */
int docker_list(const struct docker *e, const char *label, json_t **ret,
		struct err *err) MUST_CHECK;

/* A container's end. */
struct docker_wait {
	int fd; /* readable when there is something to be read; -1: nobody waits */
	size_t size;
	char bytes[4096]; /* of the answer */
};
/* Return: 0 or -errno, with @err; @ret->fd is the caller's to close in any case. */
int docker_wait_open(const struct docker *e, const char *id, struct docker_wait *ret,
		     struct err *err) MUST_CHECK;
/* Read what there is. Return: 0 with the container's exit status; -EAGAIN: it runs;
 * -errno, with @err. */
int docker_wait_read(struct docker_wait *w, int *ret_status, struct err *err) MUST_CHECK;

/* The container's standard streams, parted by headers of DOCKER_STREAM_HEADER bytes
 * unless it has a terminal. Return: 0 or -errno, with @err. */
enum { DOCKER_STREAM_HEADER = 8 };
int docker_attach(const struct docker *e, const char *id, bool input, int *ret_fd,
		  struct err *err) MUST_CHECK;
/* The last line that it wrote, in @arena, for a message. */
const char *docker_last_words(const struct docker *e, const char *id,
			      struct arena *arena);

/* The first process of a container, as this machine has it: an engine may tell of its end
 * late, and podman tells nothing of it whose monitor was killed. */
struct container_process {
	int first;   /* a pidfd; -1: not of this machine, or nobody waits any more */
	int monitor; /* of its parent, which tells the engine of the end; -1: likewise */
};

/* Does /proc here show the process @pid that the engine means? The engine may live in a
 * machine of its own. */
bool container_process_is_of(const char *pid, const char *container);
/* Of a container that was started. What can't be had is -1. */
void container_process_open(const struct docker *e, const char *container,
			    struct container_process *ret);
/* Both have ended: what the engine doesn't know by now it won't hear. */
bool container_process_is_gone(const struct container_process *p);

/* The bytes between the run's standard streams and the container's. Nothing here blocks:
 * the caller polls, and says what is ready. */
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
