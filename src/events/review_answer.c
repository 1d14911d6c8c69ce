// SPDX-License-Identifier: Apache-2.0
#include "events/review_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is signed begins so, and nothing else that a key may sign ever will. */
#define PURPOSE "weir review answer 1"

static const char *verb_of(bool accepts)
{
	return accepts ? "accept" : "deny";
}

static void sign(const struct review_key *key, const struct review *t, bool accepts,
		 uint32_t until_sec, uint8_t ret[SHA256_SIZE])
{
	const char *const texts[] = { PURPOSE, verb_of(accepts), t->sandbox,
				      t->destination, t->advice };
	char numbers[80];
	struct hmac h;

	hmac_init(&h, key->bytes, sizeof(key->bytes));
	/* Each with its NUL, so that no two lists are the same bytes. */
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		hmac_add(&h, texts[i], strlen(texts[i]) + 1);
	snprintf(numbers, sizeof(numbers), "%" PRId64 " %" PRIu32 " %" PRId64, t->id,
		 until_sec, t->decided_ms);
	hmac_add(&h, numbers, strlen(numbers) + 1);
	hmac_end(&h, ret);
}

char *review_answer_write(const struct review_key *key, const struct review *t,
			  bool accepts, uint32_t until_sec, char *buf)
{
	uint8_t mac[SHA256_SIZE];
	size_t used;

	sign(key, t, accepts, until_sec, mac);
	used = (size_t)snprintf(buf, REVIEW_ANSWER_SIZE, "%" PRId64 ".%s.%" PRIu32 ".",
				t->id, verb_of(accepts), until_sec);
	for (size_t i = 0; i < sizeof(mac); i++, used += 2)
		snprintf(buf + used, REVIEW_ANSWER_SIZE - used, "%02x", mac[i]);
	return buf;
}

static bool read_mac(struct text t, uint8_t ret[SHA256_SIZE])
{
	if (t.len != 2 * SHA256_SIZE)
		return false;
	for (size_t i = 0; i < SHA256_SIZE; i++) {
		const int high = text_hex_value(t.ptr[2 * i]);
		const int low = text_hex_value(t.ptr[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

bool review_answer_read(struct text t, int64_t wall_ms, struct review_answer *ret)
{
	const int64_t now_sec = wall_ms / 1000;
	struct review_answer a = { 0 };
	struct text id, verb, until;

	if (!text_split(&t, '.', &id) || !text_split(&t, '.', &verb) ||
	    !text_split(&t, '.', &until) || !t.ptr ||
	    !text_to_u32(id, INT32_MAX, &a.id) ||
	    !text_to_u32(until, UINT32_MAX, &a.until_sec) || a.until_sec <= now_sec ||
	    a.until_sec > now_sec + REVIEW_ANSWER_VALID_SEC || !read_mac(t, a.mac))
		return false;
	a.accepts = text_equal(verb, verb_of(true));
	if (!a.accepts && !text_equal(verb, verb_of(false)))
		return false;
	*ret = a;
	return true;
}

bool review_answer_holds(const struct review_key *key, const struct review_answer *a,
			 const struct review *t)
{
	uint8_t mac[SHA256_SIZE];

	sign(key, t, a->accepts, a->until_sec, mac);
	return hmac_equal(mac, a->mac) && t->id == a->id && t->state == REVIEW_OPEN;
}

bool review_answer_is_used(const struct review_key *key, const struct review_answer *a,
			   const struct review *t)
{
	struct review open = *t;

	open.state = REVIEW_OPEN;
	open.decided_ms = 0;
	return t->state != REVIEW_OPEN && review_answer_holds(key, a, &open);
}

size_t review_answer_add(const struct review_key *key, const char *base,
			 const struct review *t, int64_t wall_ms, char *json, size_t size)
{
	const uint32_t until_sec = (uint32_t)(wall_ms / 1000) + REVIEW_ANSWER_VALID_SEC;
	char rule[REVIEW_RULE_SIZE], link[REVIEW_ANSWER_SIZE], url[REVIEW_JSON_SIZE] = "";
	struct jtext j = { .buf = json, .size = REVIEW_JSON_SIZE - 1, .used = size - 1 };

	/* A URL that is cut doesn't fit either. */
	if (review_rule(t, rule))
		snprintf(url, sizeof(url), "%s/answer/%s", base,
			 review_answer_write(key, t, true, until_sec, link));
	jtext_text(&j, "accept_url", url, sizeof(url));
	snprintf(url, sizeof(url), "%s/answer/%s", base,
		 review_answer_write(key, t, false, until_sec, link));
	jtext_text(&j, "deny_url", url, sizeof(url));
	jtext_close(&j, '}');
	if (j.full) {
		json[size - 1] = '}';
		j.used = size;
	}
	json[j.used] = '\0';
	return j.used;
}
