// SPDX-License-Identifier: Apache-2.0
/* Of review tasks what needs no store. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/jansson.h"
#include "event/json.h"
#include "events/review.h"

static const char *const state_names[] = {
	[REVIEW_OPEN] = "open",
	[REVIEW_ACCEPTED] = "accepted",
	[REVIEW_DISMISSED] = "dismissed",
};
static_assert(ARRAY_SIZE(state_names) == REVIEW_STATE_COUNT, "every state has a name");

const char *review_state_name(enum review_state s)
{
	return s < REVIEW_STATE_COUNT && state_names[s] ? state_names[s] : "";
}

bool review_state_parse(const char *text, enum review_state *ret)
{
	const char *const *known = TEXT_FIND(text_of(text), state_names);

	if (known)
		*ret = (enum review_state)(known - state_names);
	return known != NULL;
}

bool review_rule(const struct review *t, char *buf)
{
	const bool bracket = t->advice[0] == '[';
	const size_t size = strlen(t->destination);
	const char *behind = t->advice + bracket + size;
	struct addr a;

	buf[0] = '\0';
	/* Whoever decides reads the destination: no rule for another one is added. */
	if (size == 0 || strncmp(t->advice + bracket, t->destination, size) != 0 ||
	    (bracket ? *behind != ']' : *behind != ':' && *behind != '\0'))
		return false;
	return addr_parse(t->destination, size, &a) != t->is_name &&
	       advice_rule(t->advice, buf);
}

bool review_rule_until(const struct review *t, const char *key, const char *end,
		       char *buf)
{
	struct jtext j = { .buf = buf, .size = REVIEW_ENDED_SIZE - 1 };

	if (!review_rule(t, buf))
		return false;
	j.used = strlen(buf) - 1; /* without the brace */
	if (end[0])
		jtext_member(&j, key, end);
	jtext_close(&j, '}');
	buf[j.used] = '\0';
	return !j.full;
}

bool review_grant(const struct review *t, const char *length, char *buf)
{
	char rule[REVIEW_ENDED_SIZE];

	if (!review_rule_until(t, "for", length, rule))
		return false;
	snprintf(buf, REVIEW_GRANT_SIZE, "[%s]", rule);
	return true;
}

bool review_length_is_good(const char *length)
{
	int64_t ms;

	return !length[0] || (text_to_duration_ms(text_of(length), &ms) &&
			      ms >= RULE_FOR_MIN_MS && ms <= RULE_FOR_MAX_MS);
}

int review_read_accept(struct text body, const struct review *t, char *ret_length)
{
	CLEAN(json)
	json_t *j = text_trim(body).len > 0
			    ? json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, NULL)
			    : json_object();
	const json_t *value = json_object_get(j, "for"),
		     *shown = json_object_get(j, "rule");
	const char *length = value ? json_string_value(value) : "";
	char text[REVIEW_RULE_SIZE];
	CLEAN(json) json_t *rule = NULL;

	if (!json_is_object(j) || json_object_size(j) != !!value + !!shown || !length ||
	    (value && !length[0]) || strlen(length) >= REVIEW_LENGTH_SIZE ||
	    !review_length_is_good(length))
		return -EINVAL;
	/* A sandbox changes its tasks while somebody reads them. */
	rule = shown && review_rule(t, text) ? json_loads(text, 0, NULL) : NULL;
	if (shown && (!rule || !json_equal(rule, shown)))
		return -ESTALE;
	snprintf(ret_length, REVIEW_LENGTH_SIZE, "%s", length);
	return 0;
}

void review_put(struct jtext *j, const struct review *t)
{
	char rule[REVIEW_RULE_SIZE], protocol[8];

	jtext_number(j, "id", true, t->id);
	jtext_text(j, "state", review_state_name(t->state), 16);
	jtext_text(j, "sandbox", t->sandbox, ROW_SANDBOX_SIZE);
	jtext_text(j, "destination", t->destination, EVENT_NAME_SIZE);
	jtext_text(j, "looks_like", t->looks_like, EVENT_NAME_SIZE);
	jtext_number(j, "port", t->port > 0, t->port);
	jtext_text(j, "protocol", event_protocol_name(t->protocol, protocol), 8);
	jtext_count(j, "packets", t->packets);
	jtext_count(j, "events", t->rows);
	jtext_when(j, "first", t->first_ms);
	jtext_when(j, "last", t->last_ms);
	jtext_text(j, "who", t->who, REVIEW_WHO_SIZE);
	if (t->decided_ms > 0)
		jtext_when(j, "decided", t->decided_ms);
	else
		jtext_number(j, "decided", false, 0);
	jtext_raw(j, "rule", review_rule(t, rule) ? rule : "null");
}

size_t review_json(const struct review *t, bool opened, char *buf)
{
	struct jtext j;

	jtext_init(&j, buf, REVIEW_JSON_SIZE - 1);
	jtext_open(&j, NULL, '{');
	if (opened)
		jtext_put(&j, text_of("\"source\":\"weir\","
				      "\"event\":\"review.opened\""));
	review_put(&j, t);
	jtext_close(&j, '}');
	buf[j.used] = '\0';
	return j.used;
}

/* ---- links that decide ---- */

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
