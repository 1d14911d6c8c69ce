// SPDX-License-Identifier: Apache-2.0
/* api/internal - what the files of this folder share. Which of them a program is made of
 * is its own: `weir` has reply.c, route.c, plain.c and the answers of a run;
 * weir-control has all but plain.c. */
#pragma once

#include <jansson.h>
#include <sys/queue.h>

#include "api/api.h"
#include "api/conns.h"
#include "api/request.h"
#include "event/json.h"

struct MHD_Connection;
struct MHD_Daemon;
struct api_stream;
struct api_reply;
struct api_request;

enum { API_ID_MAX = 63 }; /* of a sandbox of many; a longer one is 404 */

/* Streams that were dropped keep their place until the library has closed them. */
enum { API_STREAM_PLACES = API_STREAMS_MAX + 4 };

struct api_counts {
	uint64_t answers[6]; /* by the first digit of the status; [0] is unused */
	uint64_t unauthorized, forbidden;
	uint64_t streams_dropped; /* too slow, or to make room */
};

/* Who reads requests and writes answers: libmicrohttpd (http.c), or plain.c. */
struct api_transport {
	/* The value of the first header @name as it came; .ptr NULL: there is none. */
	struct text (*header)(const struct api_request *r, const char *name);
	/* @a is taken. Return: false when it can't be sent. */
	bool (*send)(struct api_request *r, const struct api_reply *a);
};

struct api {
	struct api_config config;
	const struct api_transport *transport;
	struct api_counts counts;
	struct failures *failures;    /* with config.limits_failures; owned */
	const char *enforcement_mode; /* once it was asked for: /policy tells no more
				       * of the status, which may be costly to know */
};

/* An API that libmicrohttpd serves. */
struct api_http {
	struct api api;
	struct MHD_Daemon *daemon;
	struct loop_source listening, polled;
	struct loop_timer run_timer;	    /* when the library wants to run */
	struct loop_timer tick_timer;	    /* every second while anybody is connected */
	struct loop_timer trim_timer;	    /* a large body was there */
	struct loop_timer search_timer;	    /* runs: one was made in this turn */
	TAILQ_HEAD(, api_request) searches; /* that wait for theirs */
	struct prefix searched_for;	    /* the network that had the last turn */
	bool is_ending;
	struct conns conns;
	/* The newest events, for streams: number n is in slot n % API_EVENTS_KEPT. */
	struct event_row *rows;
	uint64_t row_next; /* the number of the next one */
	uint64_t epoch;	   /* of this start, in the ids */
	struct api_stream *streams[API_STREAM_PLACES];
	uint64_t streams_begun;
};
static inline struct api_http *http_of(struct api *a)
{
	return CONTAINER_OF(a, struct api_http, api);
}

/* A method is one bit, so that a route lists what it takes; route.c has their names. */
enum {
	METHOD_OTHER = 0,
	METHOD_GET = 1 << 0,
	METHOD_HEAD = 1 << 1,
	METHOD_POST = 1 << 2,
	METHOD_PUT = 1 << 3,
	METHOD_PATCH = 1 << 4,
	METHOD_DELETE = 1 << 5,
	METHOD_ANY = 0xff,
};

struct api_request {
	struct api *api;
	struct MHD_Connection *mhd; /* NULL: plain.c has it */
	struct conn *conn;	    /* NULL: none is known */
	char *target;		    /* owned; the path once it is read */
	const char *query;	    /* in @target, or NULL */
	char *clean;		    /* owned: the path as it should be */
	const struct api_route *route;
	const struct api_ops *ops; /* of what it is about */
	struct api_ops own_ops;	   /* those of one sandbox of many */
	uint32_t sandbox;	   /* its number, with own_ops */
	bool is_about_one;
	char id[API_ID_MAX + 1];	       /* below /sandboxes/; "": the top */
	unsigned int method;		       /* METHOD_… */
	void (*answer)(struct api_request *r); /* once the body is there */
	bool started, keeps_body, answered;
	char tag[DOCUMENT_TAG_SIZE];	  /* of what a 200 answers with; "": none */
	const char *fault;		  /* why its end is unclear, or NULL */
	uint32_t announced;		  /* bytes of the body; UINT32_MAX: more */
	size_t seen;			  /* the same, so far */
	TAILQ_ENTRY(api_request) in_turn; /* while it is_waiting */
	bool is_waiting, has_turn;	  /* a search: see turns.c */
	char *body;			  /* owned */
	size_t body_size, body_capacity, body_max; /* more is 413 */
};

struct api_route {
	const char *path; /* with a slash at its end: and all below */
	unsigned int methods;
	void (*answer)(struct api_request *r); /* NULL: not in this program */
	unsigned int where;		       /* IN_… */
	bool is_open;			       /* without the token */
	bool is_change; /* POST, PUT, PATCH and DELETE change the policy */
	/* Judged by its answer, without the token: its body is that long at most. */
	size_t own_body_max;
	bool is_page;	/* of /ui/, which can be switched off */
	bool is_search; /* reads the store, or much else: it may take its time */
};

/* Where a route is: at the top of a sidecar's API, of a daemon's and of a run's; below
 * /sandboxes/ID of a daemon and of a run, which shows itself as a daemon's one sandbox.
 */
enum {
	IN_SIDECAR = 1 << 0,
	IN_DAEMON = 1 << 1,
	IN_SANDBOX = 1 << 2,
	IN_RUN = 1 << 3,
	IN_RUN_TOP = 1 << 4,
};

/* Judge a request by its head: sets answer and keeps_body; with @fault, why its end is
 * unclear, it is answered at once, whatever follows. */
void route_check(struct api_request *r, const char *method, const char *fault);
void answer_too_large(struct api_request *r);
void answer_bad_method(struct api_request *r);
/* The body took its time: the sandbox may have gone meanwhile. */
void route_refresh(struct api_request *r);

/* ---- answers; each request has one ---- */

/* A copy of @text, with one more header, or, with @name NULL, without; @value lives as
 * long as the call. "Connection: close": nothing more is read of the connection. */
void reply_text(struct api_request *r, unsigned int status, const char *text,
		const char *name, const char *value);
/* "<text>\n" as an error of the reference: with nosniff. */
bool reply_error(struct api_request *r, unsigned int status, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
void reply_moved(struct api_request *r);
/* An answer as the transports send it. */
enum { REPLY_HEADERS_MAX = 6 };
struct api_reply {
	unsigned int status;
	const char *type; /* NULL: none */
	/* They live as long as the program, or, with @owned, are malloc'ed. */
	const char *bytes;
	size_t size;
	char *owned; /* NULL, or @bytes */
	struct reply_header {
		const char *name, *value;
	} headers[REPLY_HEADERS_MAX]; /* up to the first without a name */
};
void reply_send(struct api_request *r, const struct api_reply *a);
/* Header @i of @a, with those that each answer has. Return: false: there are no more. */
bool reply_header_at(const struct api_reply *a, size_t i, struct reply_header *ret);
/* Note that @r was answered with @status, and count that. */
void reply_sent(struct api_request *r, unsigned int status);
/* @body is malloc'ed, taken; NULL is 500. */
void reply_taken(struct api_request *r, unsigned int status, const char *type, char *body,
		 size_t size);
/* @j, which has grown and is emptied, and a line end; 500 where it found no memory. */
void reply_json(struct api_request *r, unsigned int status, struct jtext *j);
/* A member of @j, or, with @key NULL, all of it: null where there is no @tree; that is
 * taken. */
void reply_member_tree(struct jtext *j, const char *key, json_t *tree);
/* Text that grows, for reply_taken(). reply_open() has answered when it fails. */
struct reply_stream {
	FILE *out;
	char *body;
	size_t size;
};
bool reply_open(struct api_request *r, struct reply_stream *s) MUST_CHECK;
/* Return: false without memory for all of it; that was answered. */
bool reply_end(struct api_request *r, struct reply_stream *s) MUST_CHECK;

/* ---- routes ---- */

void answer_policy(struct api_request *r);
void answer_policy_check(struct api_request *r);
void answer_explain(struct api_request *r);
void answer_status(struct api_request *r);
void answer_denies(struct api_request *r);
void answer_reviews(struct api_request *r);
void answer_review(struct api_request *r);

/* In weir-control alone: elsewhere they are NULL, and no route leads there. */
#define CONTROLS_OWN __attribute__((weak, visibility("hidden")))
void answer_activity(struct api_request *r) CONTROLS_OWN;
void answer_top(struct api_request *r) CONTROLS_OWN;
void answer_stored(struct api_request *r) CONTROLS_OWN;
void answer_metrics(struct api_request *r) CONTROLS_OWN;
void answer_events(struct api_request *r) CONTROLS_OWN;
void answer_denies_count(struct api_request *r) CONTROLS_OWN;
void answer_link(struct api_request *r) CONTROLS_OWN;
void answer_openapi(struct api_request *r) CONTROLS_OWN;
void answer_page(struct api_request *r) CONTROLS_OWN;
void answer_page_moved(struct api_request *r) CONTROLS_OWN;

/* ---- deciding on a review task ---- */

/* A daemon's task is that of the sandbox of its name, if that is still there. */
void review_go_to_sandbox(struct api_request *r, const struct review *t);
/* The body, {"for": "10m"}, the "rule" that was shown, both, or nothing: @ret is the
 * first, or "". False: it was answered; with "rule" also where @t is about another. */
bool review_read_body(struct api_request *r, const struct review *t,
		      char ret[REVIEW_LENGTH_SIZE]);
/* Note that @who has accepted the task, and put its rule in force, for @length, or, with
 * "", for good. *@ret_diff, which may be NULL, is what that changed, owned by the caller.
 * Return: 0; or the status of an answer with @err, and nothing is in force. */
unsigned int review_accept(struct api_request *r, const struct review *t, const char *who,
			   const char *length, json_t **ret_diff,
			   struct err *err) MUST_CHECK;

/* ---- searches: one in a turn of the loop ---- */

enum turn { TURN_NOW = 0, TURN_LATER, TURN_NEVER };
void turns_init(struct api_http *h);
/* @r is one, and not refused. */
bool turns_is_search(const struct api_request *r);
/* Before @r is answered. TURN_LATER: it was suspended, and is asked about again.
 * TURN_NEVER: its connection has to end. */
enum turn turns_take(struct api_http *h, struct api_request *r) MUST_CHECK;
/* @r is done with. */
void turns_leave(struct api_http *h, struct api_request *r);
/* Let go on, and end, those whose connection had to make room; once h->is_ending is set,
 * all. */
void turns_drop(struct api_http *h);
void turns_tick(struct api_http *h);

/* ---- streams ---- */

/* The library doesn't notice by itself that a connection was resumed. */
void api_run_soon(struct api_http *h);
/* Those that have been silent for long say so. */
void streams_tick(struct api_http *h);
/* So that the library can close them. */
void streams_wake(struct api_http *h);
/* Those that weren't dropped. */
size_t streams_count(const struct api_http *h);

/* ---- what is known of a request's connection and head ---- */

/* Seconds for which its network isn't listened to, after wrong tokens; 0: it is. */
uint32_t request_failures_wait(const struct api_request *r);
/* The value as it came, empty when there is none; of several lines the first. */
struct text request_header(const struct api_request *r, const char *name);
/* Trimmed; empty where there is none. */
struct text request_body(const struct api_request *r);
/* Of a daemon, what is about no sandbox has no policy. */
bool request_has_policy(const struct api_request *r);
/* @e is an event of what the request is about. */
bool request_is_about(const struct api_request *r, const struct event *e);
void request_done(struct api_request *r);
