// SPDX-License-Identifier: Apache-2.0
#include "events/review_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What is signed begins so, and nothing else that a key may sign ever will. */
#define LINK_PURPOSE  "weir review answer 2"
#define ABOUT_PURPOSE "weir review answer 2, about"

static const char *verb_of(bool accepts)
{
	return accepts ? "accept" : "deny";
}

/* Each with its NUL, so that no two lists are the same bytes. */
static void add_texts(struct hmac *h, const char *const *texts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		hmac_add(h, texts[i], strlen(texts[i]) + 1);
}

static void write_about(const struct review_key *key, const struct review *t,
			uint8_t ret[REVIEW_ABOUT_SIZE])
{
	const char *const texts[] = { ABOUT_PURPOSE, t->sandbox, t->destination,
				      t->advice };
	uint8_t all[SHA256_SIZE];
	char numbers[64];
	struct hmac h;

	hmac_init(&h, key->bytes, sizeof(key->bytes));
	add_texts(&h, texts, ARRAY_SIZE(texts));
	snprintf(numbers, sizeof(numbers), "%" PRId64 " %" PRId64, t->id, t->decided_ms);
	hmac_add(&h, numbers, strlen(numbers) + 1);
	hmac_end(&h, all);
	memcpy(ret, all, REVIEW_ABOUT_SIZE);
}

static void sign(const struct review_key *key, const struct review_answer *a,
		 uint8_t ret[SHA256_SIZE])
{
	const char *const texts[] = { LINK_PURPOSE, verb_of(a->accepts) };
	char numbers[64];
	struct hmac h;

	hmac_init(&h, key->bytes, sizeof(key->bytes));
	add_texts(&h, texts, ARRAY_SIZE(texts));
	snprintf(numbers, sizeof(numbers), "%" PRIu32 " %" PRIu32, a->id, a->until_sec);
	hmac_add(&h, numbers, strlen(numbers) + 1);
	hmac_add(&h, a->about, sizeof(a->about));
	hmac_end(&h, ret);
}

static void put_digits(char *buf, size_t *used, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++, *used += 2)
		snprintf(buf + *used, REVIEW_ANSWER_SIZE - *used, "%02x", bytes[i]);
}

char *review_answer_write(const struct review_key *key, const struct review *t,
			  bool accepts, uint32_t until_sec, char *buf)
{
	struct review_answer a = { .id = (uint32_t)t->id,
				   .accepts = accepts,
				   .until_sec = until_sec };
	uint8_t mac[SHA256_SIZE];
	size_t used;

	write_about(key, t, a.about);
	sign(key, &a, mac);
	used = (size_t)snprintf(buf, REVIEW_ANSWER_SIZE, "%" PRIu32 ".%s.%" PRIu32 ".",
				a.id, verb_of(accepts), until_sec);
	put_digits(buf, &used, a.about, sizeof(a.about));
	put_digits(buf, &used, mac, sizeof(mac));
	return buf;
}

/* Cut the digits of @size bytes off @t. */
static bool read_digits(struct text *t, uint8_t *ret, size_t size)
{
	if (t->len < 2 * size)
		return false;
	for (size_t i = 0; i < size; i++) {
		const int high = text_hex_value(t->ptr[2 * i]);
		const int low = text_hex_value(t->ptr[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		ret[i] = (uint8_t)(high << 4 | low);
	}
	t->ptr += 2 * size;
	t->len -= 2 * size;
	return true;
}

bool review_answer_read(const struct review_key *key, struct text t, int64_t wall_ms,
			struct review_answer *ret)
{
	const int64_t now_sec = wall_ms / 1000;
	uint8_t mac[SHA256_SIZE], right[SHA256_SIZE];
	struct review_answer a = { 0 };
	struct text id, verb, until;

	if (!text_split(&t, '.', &id) || !text_split(&t, '.', &verb) ||
	    !text_split(&t, '.', &until) || !t.ptr ||
	    !text_to_u32(id, INT32_MAX, &a.id) ||
	    !text_to_u32(until, UINT32_MAX, &a.until_sec) || a.until_sec <= now_sec ||
	    a.until_sec > now_sec + REVIEW_ANSWER_VALID_SEC ||
	    !read_digits(&t, a.about, sizeof(a.about)) ||
	    !read_digits(&t, mac, sizeof(mac)) || t.len > 0)
		return false;
	a.accepts = text_equal(verb, verb_of(true));
	if (!a.accepts && !text_equal(verb, verb_of(false)))
		return false;
	sign(key, &a, right);
	if (!hmac_equal(mac, right))
		return false;
	*ret = a;
	return true;
}

bool review_answer_holds(const struct review_key *key, const struct review_answer *a,
			 const struct review *t)
{
	uint8_t about[REVIEW_ABOUT_SIZE];

	write_about(key, t, about);
	return memcmp(about, a->about, sizeof(about)) == 0 && t->id == a->id &&
	       t->state == REVIEW_OPEN;
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
