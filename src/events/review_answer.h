// SPDX-License-Identifier: Apache-2.0
/* events/review_answer - links by which one task is decided once, in one way, by whoever
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
#pragma once

#include "base/sha256.h"
#include "base/text.h"
#include "events/review.h"

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
