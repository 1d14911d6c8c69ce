// SPDX-License-Identifier: Apache-2.0
/* Any bytes as an event that an engine sends, which has read hostile bytes: the ring
 * folds it with itself, and what is written of it is one JSON object on one line, in
 * ASCII, with every key. */
#include <jansson.h>
#include <string.h>

#include "events/ocsf.h"
#include "proto/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

/* ASCII on one line that HTML and a terminal read as text, one object, no key twice. */
static json_t *parse(const char *text, size_t n)
{
	json_t *json;

	require(text[n] == '\0' && strlen(text) == n);
	for (size_t i = 0; i < n; i++)
		require(text[i] >= 0x20 && text[i] < 0x7f && !strchr("<>&", text[i]));
	json = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	require(json != NULL);
	return json;
}

static void check_ocsf(const struct event_row *row)
{
	static const char *const keys[] = { "category_uid", "class_uid",   "activity_id",
					    "type_uid",	    "severity_id", "time",
					    "metadata" };
	char text[EVENT_OCSF_SIZE];
	json_t *json = parse(text, event_ocsf(row, text));

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		require(json_object_get(json, keys[i]) != NULL);
	json_decref(json);
}

static void check_json(const struct event_row *row)
{
	static const char *const keys[] = {
		"ts",	       "sandbox",  "action", "layer",	"remote_ip",
		"remote_port", "protocol", "name",   "rule",	"rule_file",
		"rule_line",   "packets",  "bytes",  "reason",	"query_type",
		"limit",       "uid",	   "pid",    "command", "allow"
	};
	char text[EVENT_JSON_SIZE];
	json_t *json = parse(text, event_json(row, text));

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
		require(json_object_get(json, keys[i]) != NULL);
	require(json_object_size(json) == ARRAY_SIZE(keys));
	json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct event_ring *ring = event_ring_new(4);
	struct event e = { 0 };
	struct event_row row;

	require(ring != NULL);
	memcpy(&e, data, MIN(size, sizeof(e)));
	e.allowable = data && size > 0 && data[0] & 1; /* a bool has two values */
	e.claimed = e.allowable;
	event_row_fill(&row, &e, "sb", NULL);
	check_ocsf(&row);
	check_json(&row); /* as the stores have it: nothing was tamed */
	ipc_sanitize(e.name, sizeof(e.name));
	ipc_sanitize(e.reason, sizeof(e.reason));
	ipc_sanitize(e.advice, sizeof(e.advice));
	event_ring_add(ring, &e);
	event_ring_add(ring, &e);
	require(event_ring_count(ring) == 1);
	require(event_ring_at(ring, 0)->packets == e.packets * 2);
	event_row_fill(&row, event_ring_at(ring, 0), "sb", NULL);
	check_json(&row);
	event_ring_free(ring);
	return 0;
}
