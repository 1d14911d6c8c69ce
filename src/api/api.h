// SPDX-License-Identifier: Apache-2.0
/* api/api - the HTTP API: policy, health, status, metrics, events. Of a sidecar, of a
 * daemon, and, over its own socket, of a run.
 *
 * libmicrohttpd, or plain.c, reads and writes; this folder routes, authorises and
 * answers. It runs on the caller's loop, in one thread, and has no right that a caller of
 * it could want. A caller that is slow, silent or hostile costs one connection and delays
 * nobody: when all are taken, the one that has been silent longest, of the network that
 * holds most, makes room. */
#pragma once

#include "base/err.h"
#include "base/http_status.h"
#include "base/text.h"
#include "event/event.h"
#include "events/jsonl.h"
#include "events/review.h"
#include "events/sqlite.h"
#include "opensandbox/document.h"
#include "opensandbox/policy.h"
#include "sys/loop.h"

enum {
	API_BODY_MAX = 1 << 20,	 /* bytes; more is 413 */
	API_DRAIN_MAX = 8 << 20, /* bytes of a body that is read to be able to refuse it;
				  * then the connection is closed */
	/* Streams apart; one more closes the one that was silent longest. */
	API_CONNECTIONS_MAX = 64,
	API_STREAMS_MAX = 256,	/* of /events; one more is 503, unless another network
				 * has more than its share of them */
	API_HEAD_SIZE = 32768,	/* request line and header lines, with what it takes to
				 * keep them apart; more is 414 or 431 */
	API_TARGET_MAX = 4096,	/* path and query; more is 404 */
	API_IDLE_SEC = 10,	/* no byte either way: closed */
	API_REQUEST_SEC = 30,	/* from request to request, so a slow one as well */
	API_HEARTBEAT_SEC = 15, /* of a stream without events */
	API_EVENTS_KEPT = 256,	/* for streams that come back; the oldest go */
	API_DENIES_MAX = 1000,	/* of one answer of /denies */
};

/* How strong the enforcement is; the zero value is the weakest that can be. */
enum api_mode {
	API_MODE_DISABLED = 0, /* no rule stands */
	API_MODE_DNS,
	API_MODE_DNS_NFT,
	API_MODE_DNS_NFT_TLS,
	API_MODE_COUNT
};
/* "disabled", "dns-only", "dns+nftables", "dns+nftables+tls" */
const char *api_mode_name(enum api_mode m);

enum { API_DEGRADATIONS_MAX = 16 };
struct api_degradation {
	const char *what; /* "filter", "landlock" … */
	const char *reason;
	int64_t since_ms; /* wall clock */
};

struct api_counter {
	const char *name, *help; /* as sandbox_counter_name(), sandbox_counter_help() */
	uint64_t value;
};

struct api_status {
	enum api_mode mode;
	const char *enforcement_mode; /* "dns", "dns+nft", "dns+nft+tls", as asked for:
				       * static text that never changes */
	const char *sandbox_id;	      /* "" when none */
	bool full_isolation;
	int64_t since_ms; /* wall clock: when this mode was reached */
	struct api_degradation degradations[API_DEGRADATIONS_MAX];
	size_t degradation_count;
	uint32_t generation;
	uint32_t engine_restarts;
	size_t engine_count; /* of a daemon; 0: a sidecar or a sandbox */
	size_t learned_names, learned_addresses, rule_count;
	const struct api_counter *counters; /* borrowed until the next turn */
	size_t counter_count;
	uint64_t webhook_sent, webhook_dropped, log_dropped;
	uint64_t store_lost_rows, store_lost_packets;
	bool has_postgres; /* events are copied there; of its rows */
	uint64_t postgres_waiting, postgres_missed, postgres_refused;
	uint64_t policy_updates, policy_failures;
	const struct plan *plan;       /* borrowed until the next turn; NULL: none */
	const struct traffic *traffic; /* the same */
};

/* Which step of a change failed. */
enum api_failure {
	API_FAILED_NOT = 0,
	API_FAILED_POLICY,  /* 400: @err says what is wrong with it */
	API_FAILED_CLOSED,  /* 409: only a whole policy may be put in force */
	API_FAILED_PERSIST, /* 500 failed to persist policy: … */
	API_FAILED_APPLY,   /* 500 failed to apply nftables policy: … */
};

static inline unsigned int api_failure_status(enum api_failure f)
{
	return f == API_FAILED_NOT	? HTTP_OK
	       : f == API_FAILED_POLICY ? HTTP_BAD_REQUEST
	       : f == API_FAILED_CLOSED ? HTTP_CONFLICT
					: HTTP_FAILED;
}

/* The SANDBOX_COUNTER_COUNT counters @values by name, in @room of as many. */
void api_status_count(struct api_status *s, const uint64_t *values,
		      struct api_counter *room);

struct api_ops {
	void *data;
	/* Borrowed until the next change. Never NULL. */
	const struct document *(*policy)(void *data);
	/* Put @next (taken, whatever comes of it) in force: checked, in the kernel, in
	 * memory, in the file; or nothing of it. */
	enum api_failure (*change)(void *data, struct document *next, struct err *err);
	bool (*healthy)(void *data); /* NULL: it is */
	/* @ret is zeroed before. */
	void (*status)(void *data, struct api_status *ret);
	/* Optional: the members that /status has besides. */
	void (*put)(void *data, struct jtext *j);
	const struct event_ring *(*events)(void *data);
	/* An event of that ring with the rule that decided it. */
	void (*row)(void *data, const struct event *e, struct event_row *ret);
	/* Optional: put the policy @body in force as change() does, read as strictly as a
	 * file of Weir's own is. Else a body is read as the reference reads it. */
	enum api_failure (*replace)(void *data, struct text body, struct err *err);
	/* For the log: egress.updated (@error is NULL) and egress.update_failed.
	 * @rules_json is what the request brought, or what a DELETE took away; "[]" for
	 * a reset; NULL where it couldn't be read. */
	void (*log_change)(void *data, const char *rules_json, const char *error,
			   bool callers_fault);
	/* Optional: log_change() makes use of @rules_json. Else it may be NULL. */
	bool (*logs_rules)(void *data);
	/* Optional: a key of a policy that means nothing here; printable. */
	void (*log_unknown_key)(void *data, const char *key);
	/* What is wrong with @d, which stays the caller's; nothing changes. Return: 0,
	 * -EINVAL, -ENOMEM. */
	int (*check)(void *data, const struct document *d, sidecar_fault_fn *on_fault,
		     void *to, struct err *err);
	/* What is in force, borrowed until the next turn; NULL: nothing yet. */
	const struct plan *(*plan)(void *data);
	/* Optional: the store, to be closed by the caller, and of whose events it is
	 * asked (NULL: all). Return: 0, or -errno: it can't be read now. */
	int (*store)(void *data, struct sqlite_reader **ret, const char **ret_sandbox,
		     struct err *err);
	/* Review tasks; all three, or none where events aren't stored. -ENOENT: there is
	 * no such task; other errors: not now. */
	int (*reviews)(void *data, enum review_state state,
		       bool (*on_task)(void *to, const struct review *t), void *to,
		       struct err *err);
	int (*review)(void *data, int64_t id, struct review *ret, struct err *err);
	int (*decide)(void *data, int64_t id, enum review_state state, const char *who,
		      struct err *err);
};

/* Of `weir daemon`, whose API is about many sandboxes: GET /sandboxes lists them, PUT
 * /sandboxes/ID attaches one, DELETE detaches it, and below /sandboxes/ID/ is what a
 * sidecar has at the top. */
struct api_sandboxes {
	void *data;
	/* Optional; false: there may be others, none is attached yet. */
	bool (*knows_all)(void *data);
	/* The one of this id, and its number, which events have. False: there is none. */
	bool (*find)(void *data, const char *id, struct api_ops *ret,
		     uint32_t *ret_number);
	/* Put an object with all of them, or that of one; false: there is none. */
	void (*list)(void *data, struct jtext *j);
	bool (*show)(void *data, const char *id, struct jtext *j);
	/* Both, or none: a run's sandbox neither comes nor goes by its API.
	 *
	 * Return: the HTTP status: 201; 400, 409, 413, 500 with @err. */
	unsigned int (*attach)(void *data, const char *id, struct text body,
			       struct err *err);
	/* 200, 404, 500 */
	unsigned int (*detach)(void *data, const char *id, struct err *err);
	/* Who may ask at all, by the connection. */
	bool (*admits)(void *data, int fd);
};

/* Of every metric, besides sandbox_id. */
struct api_label {
	struct text key, value;
};

struct api_config {
	struct loop *loop;
	bool is_run;	   /* `sandboxes` is about a run alone */
	int listen_fd;	   /* bound; owned by the API from then on, even if api_new()
			    * fails. If it doesn't listen yet, api_listen() */
	const char *token; /* NULL or "": none is asked for, and changes are 403 */
	/* PEM: the API speaks TLS, 1.2 at least. NULL: it doesn't. */
	const char *tls_cert, *tls_key;
	/* For an API that a network can reach: whoever has shown wrong tokens is answered
	 * 429 for a while, whatever token comes then. */
	bool limits_failures;
	bool open; /* without a token changes are let through */
	/* Names by which a browser may call it without a token, besides localhost. */
	const char *const *hosts;
	size_t host_count;
	bool ui;			     /* /ui/ is there */
	size_t body_max;		     /* bytes; 0: API_BODY_MAX */
	size_t max_rules;		     /* of a policy from outside; 0: no limit */
	const struct review_key *review_key; /* of links that decide; NULL: none do */
	const struct api_label *labels;
	size_t label_count;
	/* 0: as above. Tests shorten them. */
	uint32_t idle_sec, request_sec, heartbeat_sec;
	struct api_ops ops;
	struct api_sandboxes sandboxes; /* all zero in a sidecar */
};

struct api;
/* What @config points to is borrowed as long as the API lives. NULL with @err. */
struct api *api_new(const struct api_config *config, struct err *err) MUST_CHECK;
void api_free(struct api *a);
/* Its socket may listen now: serve who comes there. */
int api_listen(struct api *a) MUST_CHECK;
/* An event happened: the streams of /events get it. */
void api_on_event(struct api *a, const struct event_row *row);

/* ---- without a library ----
 *
 * Over a unix socket, of a program that carries no HTTP library: HTTP/1.1, one request a
 * connection, one connection at a time; others wait. Whoever is slower than
 * API_PLAIN_PATIENCE_MS is hung up on, and so is, without a word, whoever isn't admitted.
 */
enum {
	API_PLAIN_HEAD_MAX = 8192,    /* bytes; more is 431 */
	API_PLAIN_PATIENCE_MS = 5000, /* for a request, and for who reads its answer */
};

struct api_plain;
/* What @config points to is borrowed, and its socket is owned, as api_new() says; TLS and
 * tokens aren't served. NULL with @err. */
struct api_plain *api_plain_new(const struct api_config *config,
				struct err *err) MUST_CHECK;
void api_plain_free(struct api_plain *p);
