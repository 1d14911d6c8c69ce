// SPDX-License-Identifier: Apache-2.0
/* outputs/request - one HTTP request over a connection of its own, to a program of this
 * machine. The version is 1.0, so an answer ends where the connection does, and has no
 * chunks. */
#pragma once

#include "base/addr.h"
#include "base/arena.h"
#include "base/err.h"

struct request_place {
	const char *socket; /* a unix socket's path; NULL: the endpoint */
	struct endpoint at; /* TCP; of 127.0.0.1, where that is no address */
};

struct request {
	const char *method, *path; /* @path is not escaped */
	const char *headers;	   /* whole lines, each with its CR LF; NULL: none */
	struct text body;	   /* may be empty */
	int wait_sec;		   /* at most, for each read and write; 0: for ever */
};

struct client_reply {
	unsigned int status;
	struct text body; /* in the caller's arena */
};

/* Connect, and send @q; *@ret_fd is then owned by the caller. What can't be sent whole,
 * because it was answered before, is sent. Return: 0 or -errno with @err, which is left
 * to the caller for what happens after the connection was made. */
int request_send(const struct request_place *to, const struct request *q, int *ret_fd,
		 struct err *err) MUST_CHECK;
/* The whole answer. Return: 0; -ECONNRESET: the connection ended without a byte;
 * -ETIMEDOUT; -E2BIG; -EBADMSG; -errno. */
int request_receive(int fd, struct arena *arena, struct client_reply *ret) MUST_CHECK;
/* An answer that is there, in @all. Return: 0 or -EBADMSG. */
int request_read(struct text all, struct client_reply *ret) MUST_CHECK;
/* The answer's head alone, and not one byte of what follows. Return as
 * request_receive(). */
int request_receive_head(int fd, unsigned int *ret_status) MUST_CHECK;

/* What is in the answer besides the status, for a person: its member @key where it is
 * JSON and has one, or the text. */
const char *request_reason(const struct client_reply *reply, const char *key,
			   struct arena *arena);
