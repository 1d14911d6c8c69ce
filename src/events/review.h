// SPDX-License-Identifier: Apache-2.0
/* events/review - what a sandbox was denied and a rule could allow, waiting for somebody
 * who decides. The writer of the store (events/sqlite) opens the tasks: one for each
 * sandbox and destination, folded as more denials come. A denial after it was accepted
 * opens a task again: the rule didn't do. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/sha256.h"
#include "base/text.h"
#include "event/event.h"
#include "events/jsonl.h"
#include "policy/advice.h"
#include "policy/rule.h"

enum review_state {
	REVIEW_NONE = 0, /* any, in a question */
	REVIEW_OPEN,
	REVIEW_ACCEPTED,
	REVIEW_DISMISSED,
	REVIEW_STATE_COUNT
};

enum {
	REVIEW_WHO_SIZE = 128,
	REVIEW_PER_SANDBOX = 500, /* what is beyond is one task without a destination */
	REVIEW_RULE_SIZE = ADVICE_RULE_SIZE,
	REVIEW_JSON_SIZE = 8192, /* much more than any has */
	REVIEW_LIST_MAX = 1000,
	REVIEW_LENGTH_SIZE = 16,		   /* of a grant: "10m" */
	REVIEW_ENDED_SIZE = REVIEW_RULE_SIZE + 64, /* a rule with its end */
	REVIEW_GRANT_SIZE = REVIEW_ENDED_SIZE + 2, /* that in a list */
};

struct review {
	int64_t id;
	char sandbox[ROW_SANDBOX_SIZE];
	char destination[EVENT_NAME_SIZE]; /* "": more than REVIEW_PER_SANDBOX */
	bool is_name;
	uint16_t port; /* 0: none */
	uint8_t protocol;
	char advice[EVENT_ADVICE_SIZE];	  /* of its last denial; "": no rule could */
	char looks_like[EVENT_NAME_SIZE]; /* an allowed name, at its last denial; "" */
	uint64_t packets, rows;
	int64_t first_ms, last_ms;
	enum review_state state;
	char who[REVIEW_WHO_SIZE]; /* "" while it is open */
	int64_t decided_ms;
	int64_t change; /* number of its last change, as read from the store */
};

/* "open", "accepted", "dismissed" */
const char *review_state_name(enum review_state s);
bool review_state_parse(const char *text, enum review_state *ret);

/* The rule that accepting adds: {"action":"allow","target":"api.test"}, made of the
 * advice. @buf holds REVIEW_RULE_SIZE. Return: false where no rule could, or the advice
 * is about another name. */
bool review_rule(const struct review *t, char *buf);
/* That rule, with the member @key, `for` or `until`, that ends it, or, with @end "",
 * without. @buf holds REVIEW_ENDED_SIZE. */
bool review_rule_until(const struct review *t, const char *key, const char *end,
		       char *buf);
/* What document_grant() takes to grant @t for @length, or, with "", for good: "[rule]".
 * @buf holds REVIEW_GRANT_SIZE. Return: false where no rule could. */
bool review_grant(const struct review *t, const char *length, char *buf);
/* "" or what a rule's `for` takes. */
bool review_length_is_good(const char *length);
/* What accepting @t is asked with: nothing, or {"for": "10m"}, the "rule" that was shown,
 * or both. @ret_length holds REVIEW_LENGTH_SIZE. Return: 0; -EINVAL: it is something
 * else; -ESTALE: another rule was shown. */
int review_read_accept(struct text body, const struct review *t,
		       char *ret_length) MUST_CHECK;
#define REVIEW_ACCEPT_WORDS                                                              \
	"invalid body: it is nothing, or {\"for\": \"10m\"} with " RULE_FOR_WORDS        \
	", and the \"rule\" that was shown"
#define REVIEW_CHANGED "the task is about another rule by now; read it again"
/* The members of @t, the rule included, between an object's brackets. */
void review_put(struct jtext *j, const struct review *t);
/* @t as one object. @opened: as webhooks and the command are told of it, with
 * "source":"weir" and "event":"review.opened" in front. NUL behind it. @buf holds
 * REVIEW_JSON_SIZE. Return: the length. */
size_t review_json(const struct review *t, bool opened, char *buf);

struct review_store;
/* Return: 0; -ENOENT: there is no store; or another -errno. */
int review_open(const char *directory, struct review_store **ret,
		struct err *err) MUST_CHECK;
void review_close(struct review_store *r);
DEFINE_CLEAN(review, struct review_store *, review_close)
typedef bool review_task_fn(void *data, const struct review *t);
/* The one that was denied last first. @sandbox NULL: any; of more than REVIEW_LIST_MAX as
 * many of each. @on_task says whether to go on. */
int review_list(struct review_store *r, enum review_state state, const char *sandbox,
		review_task_fn *on_task, void *data, struct err *err) MUST_CHECK;
/* At most @max, in the order of their last changes, whose numbers are over @above. */
int review_changed(struct review_store *r, int64_t above, size_t max,
		   review_task_fn *on_task, void *data, struct err *err) MUST_CHECK;
/* -ENOENT: there is no such task. */
int review_find(struct review_store *r, int64_t id, struct review *ret,
		struct err *err) MUST_CHECK;
/* -ENOENT: there is no such task. -EALREADY: it was accepted, so its rule stands, and it
 * can't be dismissed. */
int review_decide(struct review_store *r, int64_t id, enum review_state state,
		  const char *who, int64_t wall_ms, struct err *err) MUST_CHECK;

/* ---- who has been told of which open task ----
 *
 * The store is the queue: a try is noted before it begins, with the time before which
 * there is no other one, and that somebody was told when it is known. So whoever is
 * killed in between tells twice rather than never, and an outage may be as long as it
 * likes. A task that was decided is told no more. */

enum {
	REVIEW_COMMAND = 2,
	REVIEW_WEBHOOK = 4, /* and on, one for each URL */
	REVIEW_NOTIFY_MAX = 64,
	REVIEW_PAUSE_MS = 10 * 1000, /* after the first failure; doubles */
	REVIEW_PAUSE_MAX_MS = 10 * 60 * 1000,
};

/* Begin a try of those that @whom is to be told of, @max at most: new ones before those
 * that failed, each sandbox's first before any second. Each has @try_ms, and waits
 * longer after each failure. Return: how many there were, or -errno. */
int review_notify(struct review_store *r, int whom, size_t max, int try_ms,
		  int64_t wall_ms, void (*on_task)(void *data, const struct review *t),
		  void *data, struct err *err) MUST_CHECK;
/* A try has ended: @whom was told of @id; or was not, and waits. */
int review_notified(struct review_store *r, int64_t id, int whom, size_t url_count,
		    struct err *err) MUST_CHECK;
int review_not_notified(struct review_store *r, int64_t id, int whom, int64_t wall_ms,
			struct err *err) MUST_CHECK;
/* Nobody is being told: what was begun (by a process that died) begins again. Of
 * REVIEW_WEBHOOK: all of them. */
int review_notify_again(struct review_store *r, int whom, struct err *err) MUST_CHECK;

/* ---- links that decide ----
 *
 * Links by which one task is decided once, in one way, by whoever
 * has the link.
 *
 * A link ends in "7.accept.1763633203.ABOUT+MAC": the task, what is decided, until when
 * (seconds of the wall clock), and, as hexadecimal digits, what is decided about and an
 * HMAC-SHA-256 of all before. So a link that Weir didn't make is told without a look at
 * the task: who guesses has nobody read the store. ABOUT is an HMAC as well, the half of
 * it, of what the link doesn't say: the sandbox, the destination, the rule that accepting
 * adds, and when the task was decided last. So a link is over once the task was decided,
 * by whatever way; when the rule is another one because something else was denied; and
 * when the task opens again, for which there is a new link. The key never leaves the
 * store's directory. Pure. */

enum {
	REVIEW_ABOUT_SIZE = SHA256_SIZE / 2,
	REVIEW_ANSWER_SIZE = 128, /* holds any, NUL included */
	REVIEW_ANSWER_VALID_SEC = 24 * 3600,
};

struct review_key {
	uint8_t bytes[SHA256_SIZE];
};

struct review_answer {
	uint32_t id;
	bool accepts;
	uint32_t until_sec;
	uint8_t about[REVIEW_ABOUT_SIZE];
};

/* @buf holds REVIEW_ANSWER_SIZE. Return: @buf. */
char *review_answer_write(const struct review_key *key, const struct review *t,
			  bool accepts, uint32_t until_sec, char *buf);
/* A link that was made with @key, whether or not it still decides. Return: false: it is
 * none, is over, or lasts longer than any. */
bool review_answer_read(const struct review_key *key, struct text t, int64_t wall_ms,
			struct review_answer *ret);
/* @t, the task that @a names, may be decided so now. */
bool review_answer_holds(const struct review_key *key, const struct review_answer *a,
			 const struct review *t);

/* Put "accept_url" and "deny_url" at the end of the JSON object @json of @size bytes, NUL
 * behind it, whose buffer holds REVIEW_JSON_SIZE; null where no rule can allow it.
 * @base: what stands in front, without a slash at its end. Return: the new length; @size
 * where they don't fit, and nothing is changed. */
size_t review_answer_add(const struct review_key *key, const char *base,
			 const struct review *t, int64_t wall_ms, char *json,
			 size_t size);
