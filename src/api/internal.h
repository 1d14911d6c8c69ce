// SPDX-License-Identifier: Apache-2.0
/* api/internal - what the files of this folder share. */
#pragma once

#include <jansson.h>
#include <microhttpd.h>

#include "api/api.h"
#include "api/conns.h"
#include "api/request.h"
#include "event/json.h"

struct api_stream;

enum { API_ID_MAX = 63 }; /* of a sandbox of many; a longer one is 404 */

/* Streams that were dropped keep their place until the library has closed them. */
enum { API_STREAM_PLACES = API_STREAMS_MAX + 4 };

struct api_counts {
	uint64_t answers[6]; /* by the first digit of the status; [0] is unused */
	uint64_t unauthorized, forbidden;
	uint64_t streams_dropped; /* too slow, or to make room */
};

struct api {
	struct api_config config;
	struct MHD_Daemon *daemon;
	struct loop_source listening, polled;
	struct loop_timer run_timer;  /* when the library wants to run */
	struct loop_timer tick_timer; /* every second while anybody is connected */
	struct loop_timer trim_timer; /* a large body was there */
	struct conns conns;
	struct api_counts counts;
	struct failures *failures; /* with config.limits_failures; owned */
	struct failures *links;	   /* refused ones, with config.review_key; owned */
	/* The newest events, for streams: number n is in slot n % API_EVENTS_KEPT. */
	struct event_row *rows;
	uint64_t row_next; /* the number of the next one */
	uint64_t epoch;	   /* of this start, in the ids */
	struct api_stream *streams[API_STREAM_PLACES];
	uint64_t streams_begun;
	const char *enforcement_mode; /* once it was asked for: /policy tells no more
				       * of the status, which may be costly to know */
};

/* A method is one bit, so that a route lists what it takes. */
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
	struct MHD_Connection *mhd;
	char *target;	   /* owned; the path once it is read */
	const char *query; /* in @target, or NULL */
	char *clean;	   /* owned: the path as it should be */
	const struct api_route *route;
	const struct api_ops *ops; /* of what it is about */
	struct api_ops own_ops;	   /* those of one sandbox of many */
	uint32_t sandbox;	   /* its number, with own_ops */
	bool is_about_one;
	char id[API_ID_MAX + 1];	       /* below /sandboxes/; "": the top */
	unsigned int method;		       /* METHOD_… */
	void (*answer)(struct api_request *r); /* once the body is there */
	bool started, keeps_body, answered;
	char tag[DOCUMENT_TAG_SIZE]; /* of what a 200 answers with; "": none */
	size_t seen;		     /* bytes of the body */
	char *body;		     /* owned */
	size_t body_size, body_capacity, body_max; /* more is 413 */
};

struct api_route {
	const char *path;
	unsigned int methods;
	const char *allow; /* the header, for other methods */
	void (*answer)(struct api_request *r);
	bool is_prefix;
	bool is_open;	   /* without the token */
	bool is_about_one; /* of a daemon's sandbox, not at the top */
	bool is_below;	   /* there as well as below /sandboxes/ID */
	bool is_sidecars;  /* not of a daemon */
	bool is_change;	   /* POST, PUT, PATCH and DELETE change the policy */
	/* Judged by its answer, without the token: its body is that long at most. */
	size_t own_body_max;
	bool is_page; /* of /ui/, which can be switched off; at the top alone */
};

/* Judge a request by its head: sets answer and keeps_body. */
void route_judge(struct api_request *r, const char *method);
/* The body took its time: the sandbox may have gone meanwhile. */
void route_refresh(struct api_request *r);

/* ---- answers; each request has one ---- */

void reply_text(struct api_request *r, unsigned int status, const char *text);
/* "<text>\n" as an error of the reference: with nosniff. */
void reply_error(struct api_request *r, unsigned int status, const char *fmt, ...)
	PRINTF_LIKE(3, 4);
/* 429, and after how many seconds it is worth asking again. */
void reply_wait(struct api_request *r, uint32_t seconds);
/* Nothing more is read of the connection. */
void reply_last_error(struct api_request *r, unsigned int status, const char *text);
void reply_not_allowed(struct api_request *r);
void reply_moved(struct api_request *r);
/* @response is taken. */
void reply_queue(struct api_request *r, unsigned int status, const char *type,
		 struct MHD_Response *response);
/* Text that grows, for reply_taken(). reply_open() has answered when it fails. */
struct reply_stream {
	FILE *out;
	char *body;
	size_t size;
};
bool reply_open(struct api_request *r, struct reply_stream *s) MUST_CHECK;
void reply_close(struct api_request *r, struct reply_stream *s, const char *type);
/* @j, which has grown and is emptied, and a line end; 500 where it found no memory. */
void reply_json(struct api_request *r, unsigned int status, struct jtext *j);
/* A member of @j, or, with @key NULL, all of it: null where there is no @tree; that is
 * taken. */
void reply_member_tree(struct jtext *j, const char *key, json_t *tree);
void reply_header(struct MHD_Response *response, const char *name, const char *value);

/* ---- routes ---- */

void answer_policy(struct api_request *r);
void answer_policy_check(struct api_request *r);
void answer_explain(struct api_request *r);
void answer_activity(struct api_request *r);
void answer_top(struct api_request *r);
void answer_stored(struct api_request *r);
void answer_status(struct api_request *r);
void answer_metrics(struct api_request *r);
void answer_events(struct api_request *r);
void answer_denies(struct api_request *r);
void answer_denies_count(struct api_request *r);
void answer_reviews(struct api_request *r);
void answer_review(struct api_request *r);
void answer_link(struct api_request *r);
void answer_openapi(struct api_request *r);
void answer_page(struct api_request *r);
void answer_page_moved(struct api_request *r);

/* ---- deciding on a review task ---- */

/* A daemon's task is that of the sandbox of its name, if that is still there. */
void review_go_to_sandbox(struct api_request *r, const struct review *t);
/* The body, {"for": "10m"}, the "rule" that was shown, both, or nothing: @ret is the
 * first, or "". False: it was answered; with "rule" also where @t is about another. */
bool review_read_body(struct api_request *r, const struct review *t,
		      char ret[REVIEW_LENGTH_SIZE]);
/* Put the task's rule in force, for @length, or, with "", for good. *@ret_diff, which may
 * be NULL, is what that changed, owned by the caller. Return: 0; or the status of an
 * answer with @err. */
unsigned int review_accept(struct api_request *r, const struct review *t,
			   const char *length, json_t **ret_diff,
			   struct err *err) MUST_CHECK;

/* ---- streams ---- */

/* The library doesn't notice by itself that a connection was resumed. */
void api_run_soon(struct api *a);
/* Those that have been silent for long say so. */
void streams_tick(struct api *a);
/* So that the library can close them. */
void streams_wake(struct api *a);
/* Those that weren't dropped. */
size_t streams_count(const struct api *a);

/* ---- what is known of a request's connection and head ---- */

/* NULL: none is known. */
struct conn *request_conn(const struct api_request *r);
/* Its network's, in @f; NULL: nothing is counted. */
void request_failures_add(const struct api_request *r, struct failures *f);
uint32_t request_failures_wait(const struct api_request *r, const struct failures *f);
/* The value as it came, empty when there is none; of several lines the first. */
struct text request_header(const struct api_request *r, const char *name);
