// SPDX-License-Identifier: Apache-2.0
/* run/control_socket - the socket by which a run is asked and gets another policy, by the
 * verbs that ask the daemon, in the same words: HTTP/1.1, one request a connection.
 *
 * Who may ask: processes of the caller's user that are in the run's own user namespace,
 * and that no more seccomp filters hold than the caller. No command in a sandbox is:
 * neither that of this run nor that of another one, nor one that the daemon guards on the
 * host. */
#pragma once

#include "base/err.h"
#include "base/text.h"
#include "proto/run_socket.h"
#include "sys/loop.h"

enum {
	CONTROL_HEAD_MAX = 2048,
	CONTROL_BODY_MAX = 16 << 20, /* more: refused */
	CONTROL_PATIENCE_MS = 5000,  /* for a request, and for who reads its answer */
};

struct control_request {
	struct text method, path, body;
	struct text headers; /* the lines behind the first */
};
/* The value of the first header @name, trimmed. Return: false: there is none. */
bool control_request_header(const struct control_request *r, const char *name,
			    struct text *ret);

struct control_socket {
	char path[RUN_SOCKET_PATH_SIZE]; /* "": there is none */
	char id[64];
	uint32_t filters; /* of seccomp, that hold the run itself */
	struct loop *loop;
	struct loop_source listener, client; /* fd -1: none */
	struct loop_timer patience;
	char *bytes; /* what came, then what goes; owned */
	size_t size, done;
	bool is_answering;
	/* To be answered by control_socket_answer(), at once or later. */
	void (*on_request)(struct control_socket *s, const struct control_request *r);
};

/* Make it, in the first place that is fit; the id @id, NULL: run-PID. -EADDRINUSE: a run
 * of that id is under way; else, with @err: there is no place where it would be safe. */
int control_socket_open(struct control_socket *s, const char *id,
			struct err *err) MUST_CHECK;
/* Answer from now on; who came before waits. */
int control_socket_serve(struct control_socket *s, struct loop *loop) MUST_CHECK;
/* @json is malloc'ed, taken; NULL: out of memory. */
void control_socket_answer(struct control_socket *s, unsigned int status, char *json);
/* 200, with @tag as its ETag. */
void control_socket_answer_tagged(struct control_socket *s, const char *tag, char *json);
/* An error: {"reason": …}. */
void control_socket_refuse(struct control_socket *s, unsigned int status,
			   const char *why);
void control_socket_close(struct control_socket *s);
