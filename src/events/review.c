// SPDX-License-Identifier: Apache-2.0
#include "events/review.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "event/json.h"
#include "policy/rule.h"

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

/* ---- as JSON ---- */

/* Nothing but what the policy's own reader takes for a name or an address: the text
 * came from a sandbox. */
static bool is_target(const struct review *t)
{
	struct err ignored = { 0 };
	struct rule rule = { 0 };
	struct addr a;

	if (!t->is_name)
		return addr_parse(t->destination, strlen(t->destination), &a);
	return rule_target_parse(text_of(t->destination), &rule, &ignored) == 0 &&
	       rule.kind == TARGET_NAME;
}

bool review_rule(const struct review *t, char *buf)
{
	struct jtext j;

	if (!is_target(t) || (!t->is_name && t->port == 0))
		return false;
	jtext_init(&j, buf, REVIEW_RULE_SIZE - 1);
	jtext_put(&j, text_of("{\"action\":\"allow\""));
	jtext_member_text(&j, "target", text_of(t->destination), EVENT_NAME_SIZE);
	if (!t->is_name) {
		char port[32];

		snprintf(port, sizeof(port), ",\"ports\":[\"%s/%u\"]",
			 t->protocol == IPPROTO_UDP ? "udp" : "tcp", t->port);
		jtext_put(&j, text_of(port));
	}
	jtext_put(&j, text_of("}"));
	buf[j.used] = '\0';
	return !j.full;
}

/* @begin: members, or "". */
static size_t write_json(const struct review *t, const char *begin, char *buf)
{
	char rule[REVIEW_RULE_SIZE], protocol[8];
	struct jtext j;

	jtext_init(&j, buf, REVIEW_JSON_SIZE - 1);
	jtext_put(&j, text_of("{"));
	jtext_put(&j, text_of(begin));
	jtext_member_number(&j, "id", true, t->id);
	jtext_member_text(&j, "state", text_of(review_state_name(t->state)), 16);
	jtext_member_text(&j, "sandbox", text_of(t->sandbox), ROW_SANDBOX_SIZE);
	jtext_member_text(&j, "destination", text_of(t->destination), EVENT_NAME_SIZE);
	jtext_member_number(&j, "port", t->port > 0, t->port);
	jtext_member_text(&j, "protocol",
			  text_of(event_protocol_name(t->protocol, protocol)), 8);
	jtext_member_number(&j, "packets", true, (int64_t)t->packets);
	jtext_member_number(&j, "events", true, (int64_t)t->rows);
	jtext_member_time(&j, "first", t->first_ms);
	jtext_member_time(&j, "last", t->last_ms);
	jtext_member_text(&j, "who", text_of(t->who), REVIEW_WHO_SIZE);
	if (t->decided_ms > 0)
		jtext_member_time(&j, "decided", t->decided_ms);
	else
		jtext_member_number(&j, "decided", false, 0);
	jtext_key(&j, "rule");
	jtext_put(&j, text_of(review_rule(t, rule) ? rule : "null"));
	jtext_put(&j, text_of("}"));
	buf[j.used] = '\0';
	return j.used;
}

size_t review_json(const struct review *t, char *buf)
{
	return write_json(t, "", buf);
}

size_t review_opened_json(const struct review *t, char *buf)
{
	return write_json(t, "\"source\":\"weir\",\"event\":\"review.opened\"", buf);
}
