// SPDX-License-Identifier: Apache-2.0
/* events/jsonl - an event with everything that is known of it, as every store takes it,
 * and as one JSON object: what /events, the log and the JSON lines say. */
#pragma once

#include <stdbool.h>

#include "event/event.h"
#include "event/json.h"
#include "policy/plan.h"

enum {
	ROW_SANDBOX_SIZE = 128, /* longer ids are cut */
	ROW_RULE_SIZE = 280,
	ROW_FILE_SIZE = 256,
	EVENT_JSON_SIZE = 10240, /* holds any row */
};

/* No pointers: it can be copied to another thread. */
struct event_row {
	struct event event;
	char sandbox[ROW_SANDBOX_SIZE]; /* "" when it has no name */
	char rule[ROW_RULE_SIZE]; /* "deny gist.github.com"; "": the default action */
	char rule_file[ROW_FILE_SIZE];	  /* "" when there is none */
	uint32_t rule_line;		  /* 0 when there is none */
	char looks_like[EVENT_NAME_SIZE]; /* set by event_row_compare() */
};

/* @e of @sandbox; the rule's text is @plan's, which may be NULL. */
void event_row_fill(struct event_row *ret, const struct event *e, const char *sandbox,
		    const struct plan *plan);
/* Of a row that another process wrote: its texts end, and a flag is true or false. */
void event_row_check(struct event_row *row);
/* Of a denied name that a rule could allow: the name that @plan allows and that it could
 * be taken for. */
void event_row_compare(struct event_row *row, const struct plan *plan);

/* "tcp", "udp", "icmp", "icmpv6", or the number; "" for 0. @buf holds 8. */
const char *event_protocol_name(uint8_t protocol, char *buf);
/* The protocol that has that name; 0: none has. */
uint8_t event_protocol_find(const char *name);

/* The members of an event, between an object's brackets:
 * "ts":"2026-11-20T10:06:43.424Z","sandbox":…,"action":"deny","layer":"dns",
 * "remote_ip":…,"remote_port":…,"protocol":"tcp","name":…,"rule":…,"rule_file":…,
 * "rule_line":…,"packets":1,"bytes":60,"reason":…,"query_type":…,"limit":…,"uid":…,
 * "pid":…,"command":…,"allow":…: every key is there, null where nothing is known. */
void event_put(struct jtext *j, const struct event_row *row);
/* That as one object. No line end; NUL behind it. @buf holds EVENT_JSON_SIZE. Return: the
 * length. */
size_t event_json(const struct event_row *row, char *buf);

/* ---- in words, the same in every form of the report ---- */

enum {
	REPORT_WHAT_SIZE = EVENT_NAME_SIZE + ENDPOINT_TEXT_SIZE + 32,
	REPORT_WHY_SIZE = 704,
};

/* A denial or a limit that was reached. */
bool report_is_refusal(const struct event *e);
/* Something that is allowed did not work. */
bool report_is_failure(const struct event *e);

/* "api.evil.example", "93.184.216.34 tcp/443", "pypi.org (151.101.0.223) tcp/80".
 * Return: @buf, of REPORT_WHAT_SIZE. */
const char *report_what(const struct event *e, char *buf);
/* The reason, or the deciding rule and where it stands; "" when neither is known.
 * Return: @buf, of REPORT_WHY_SIZE. */
const char *report_why(const struct plan *plan, const struct event *e, char *buf);
/* "tcp", "udp", "icmp", "ip". */
const char *report_protocol(uint8_t protocol);
/* The limit that was reached, "on_denies" too; "": none. */
const char *report_limit(const struct event *e);
