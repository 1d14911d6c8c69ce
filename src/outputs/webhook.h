// SPDX-License-Identifier: Apache-2.0
/* outputs/webhook - denied names, told to URLs by a program of its own (weir-webhook).
 *
 * The program holds libcurl and nothing else: it can open no file and no socket. What it
 * needs comes over one SOCK_SEQPACKET, its descriptor 3, from its parent:
 *
 *     parent                                    weir-webhook
 *       WEBHOOK_URL, one for each         -->     (before the first job)
 *       WEBHOOK_JOB: a payload            -->     to the queues of its URLs
 *                                         <--   WEBHOOK_WANT: a connection to that URL
 *       WEBHOOK_SOCKET and a descriptor   -->     waits until it is connected, sends
 *                                         <--   WEBHOOK_CLOSED: it is done with it
 *                                         <--   WEBHOOK_STATE: counters
 *                                         <--   WEBHOOK_DONE: what came of a job
 *
 * The parent resolves the URL's host by Weir's own resolver, makes a socket whose packets
 * are exempt (sys/sock), starts connect() without waiting, and keeps a duplicate
 * until WEBHOOK_CLOSED, when it lets the port go. So the program reaches its URLs alone,
 * and its own traffic is never an event that feeds it.
 *
 * This file is the parent's end: a bounded queue towards the program, never waiting. It
 * has no loop: the caller watches what it attached, calls webhook_receive() when it can
 * be read, and webhook_flush() when it can be written and there is something to send. */
#pragma once

#include "base/addr.h"
#include "base/err.h"
#include "base/text.h"

enum {
	WEBHOOK_FD = 3, /* in the program */
	WEBHOOK_URLS_MAX = 8,
	WEBHOOK_URL_SIZE = 2048,
	WEBHOOK_HOST_SIZE = 256,
	WEBHOOK_PAYLOAD_SIZE = 3072, /* holds any */
	WEBHOOK_QUEUE_MAX = 256,  /* jobs here, and per URL there; one more is dropped */
	WEBHOOK_SOCKETS_MAX = 16, /* at a time; one more is refused */
};

enum webhook_type {
	WEBHOOK_NONE = 0,
	/* to the program */
	WEBHOOK_URL,	/* @url: its index; text */
	WEBHOOK_JOB,	/* @url: bits, to which of them; text: the body of a POST; @id 0:
			 * nobody asks what came of it */
	WEBHOOK_SOCKET, /* @id of the request; @error 0 and a descriptor, or -errno */
	/* from the program */
	WEBHOOK_WANT,	/* @id: new; @url; @attempt: which of its addresses, from 0; past
			 * the   last the answer is -EHOSTUNREACH */
	WEBHOOK_CLOSED, /* @id */
	WEBHOOK_STATE,
	WEBHOOK_DONE, /* @id of a job that had one, @url; @error: 0: it was taken;
		       * -EREMOTEIO: it will never be; -EAGAIN: not now */
};

enum webhook_counter {
	WEBHOOK_SENT = 0, /* answered with a 2xx */
	WEBHOOK_FAILED,	  /* given up: another status, or nobody to be reached */
	WEBHOOK_DROPPED,  /* a full queue */
	WEBHOOK_RETRIED,
	WEBHOOK_COUNTER_COUNT
};

struct webhook_message {
	uint32_t type; /* enum webhook_type */
	uint32_t id, url, attempt;
	int32_t error;
	uint32_t size; /* of what follows; text has no NUL */
	union {
		uint64_t counters[WEBHOOK_COUNTER_COUNT];
		char text[WEBHOOK_PAYLOAD_SIZE];
	};
};

/* One message, and a descriptor when @fd isn't -1; whole or not at all. Neither waits on
 * a socket that doesn't.
 * Return: 0 or -errno; -EPIPE when the other end is gone; -EBADMSG for what is no
 * message. */
int webhook_message_send(int sock, const struct webhook_message *m, int fd) MUST_CHECK;
int webhook_message_receive(int sock, struct webhook_message *ret,
			    int *ret_fd) MUST_CHECK;

struct webhook_url {
	char host[WEBHOOK_HOST_SIZE]; /* lower case; an address without brackets */
	struct addr addr;	      /* ADDR_NONE: the host is a name */
	uint16_t port;
	bool tls;
};

/* http or https, a host, perhaps a port; no space or control byte anywhere.
 * Return: 0 or -EINVAL. */
int webhook_url_parse(struct text url, struct webhook_url *ret,
		      struct err *err) MUST_CHECK;

/* {"hostname":"evil.test","timestamp":"2026-11-20T10:10:56Z",
 *  "source":"opensandbox-egress","sandboxId":"sb-1"}; the name in lower case, without
 * a dot at the end. @buf holds WEBHOOK_PAYLOAD_SIZE; no NUL. Return: the length. */
size_t webhook_payload(const char *name, int64_t wall_ms, const char *sandbox_id,
		       char *buf);

/* ---- the parent's end ---- */

struct webhook;
/* @urls are copied. Return: 0, -EINVAL for a URL that is none, or another -errno. */
int webhook_new(const char *const *urls, size_t count, const char *sandbox_id,
		struct webhook **ret, struct err *err) MUST_CHECK;
void webhook_free(struct webhook *w);

/* A program was started (again): @fd, owned from then on and non-blocking, leads to it.
 * What the one before had not sent is counted as dropped; what waits here goes on, but
 * for jobs with an id: no WEBHOOK_DONE comes for any that were posted before. */
void webhook_attach(struct webhook *w, int fd);
const struct webhook_url *webhook_url_at(const struct webhook *w, size_t i);
size_t webhook_url_count(const struct webhook *w);

/* One POST to each of these URLs (bits). Never waits: the job is dropped when the queue
 * is full, and false then. @size is at most WEBHOOK_PAYLOAD_SIZE. @id: what comes of it
 * is told by a WEBHOOK_DONE for each URL, unless the program dies before; 0: by nothing.
 */
bool webhook_post(struct webhook *w, uint32_t id, uint32_t urls, const char *body,
		  size_t size);
/* The same with what webhook_payload() says of a name. */
void webhook_denied(struct webhook *w, uint32_t urls, const char *name, int64_t wall_ms);
/* Send what waits. Return: 0 when nothing waits any more, -EAGAIN when the rest wants
 * EPOLLOUT, another -errno (-EPIPE: the program is gone): start it again. */
int webhook_flush(struct webhook *w) MUST_CHECK;

/* Jobs and counters are taken care of; WEBHOOK_WANT, WEBHOOK_CLOSED and WEBHOOK_DONE are
 * for the caller, their @url and @id checked: the id of a WANT isn't in use, that of a
 * CLOSED is. Return: 1 with one of those, 0 when nothing (more) is there, or when so much
 * was that the next call is for another turn of the loop; or -errno: -EPIPE when the
 * program is gone, -EBADMSG when it says what it may not: end it. */
int webhook_receive(struct webhook *w, struct webhook_message *ret) MUST_CHECK;
/* The answer to a WEBHOOK_WANT: @fd >= 0, borrowed, or -errno. The caller closes its
 * own duplicate at WEBHOOK_CLOSED, when this fails, or when the program is gone. */
int webhook_answer(struct webhook *w, uint32_t id, int fd) MUST_CHECK;

/* One job to one URL is one. */
struct webhook_state {
	uint64_t counters[WEBHOOK_COUNTER_COUNT];
};
struct webhook_state webhook_state(const struct webhook *w);
