// SPDX-License-Identifier: Apache-2.0
/* Of review tasks what needs no store. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

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
	for (size_t i = REVIEW_OPEN; i < REVIEW_STATE_COUNT; i++) {
		if (strcmp(text, state_names[i]) != 0)
			continue;
		*ret = (enum review_state)i;
		return true;
	}
	return false;
}

/* Whoever decides reads the destination: no rule for another one is added. */
static bool is_task_about(const char *advice, const char *destination)
{
	const bool bracket = advice[0] == '[';
	const size_t size = strlen(destination);
	const char *behind = advice + bracket + size;

	return size > 0 && strncmp(advice + bracket, destination, size) == 0 &&
	       (bracket ? *behind == ']' : *behind == ':' || *behind == '\0');
}

bool review_rule(const struct review *t, char *buf)
{
	struct addr a;

	buf[0] = '\0';
	return addr_parse(t->destination, strlen(t->destination), &a) != t->is_name &&
	       is_task_about(t->advice, t->destination) && advice_rule(t->advice, buf);
}

bool review_rule_is(const struct review *t, const json_t *shown)
{
	char text[REVIEW_RULE_SIZE];
	json_t *rule = review_rule(t, text) ? json_loads(text, 0, NULL) : NULL;
	const bool is = rule && json_equal(rule, shown);

	json_decref(rule);
	return is;
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
	json_t *j = text_trim(body).len > 0
			    ? json_loadb(body.ptr, body.len, JSON_REJECT_DUPLICATES, NULL)
			    : json_object();
	const json_t *value = json_object_get(j, "for"),
		     *shown = json_object_get(j, "rule");
	const char *length = value ? json_string_value(value) : "";
	int r = -EINVAL;

	if (json_is_object(j) && json_object_size(j) == !!value + !!shown && length &&
	    (length[0] || !value) && strlen(length) < REVIEW_LENGTH_SIZE &&
	    review_length_is_good(length))
		r = shown && !review_rule_is(t, shown) ? -ESTALE : 0;
	if (r == 0)
		snprintf(ret_length, REVIEW_LENGTH_SIZE, "%s", length);
	json_decref(j);
	return r;
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

static size_t write_json(const struct review *t, bool opened, char *buf)
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

size_t review_json(const struct review *t, char *buf)
{
	return write_json(t, false, buf);
}

size_t review_opened_json(const struct review *t, char *buf)
{
	return write_json(t, true, buf);
}
