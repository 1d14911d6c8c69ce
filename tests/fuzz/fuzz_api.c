// SPDX-License-Identifier: Apache-2.0
/* What the HTTP API reads by itself: targets, queries, tokens, times, ids. A clean path
 * stays as it is when it is cleaned again, no Location ends a line, and only the token
 * itself is equal to the token. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* strndup() looks for an end that isn't there. */
static char *text_copy(const uint8_t *data, size_t size)
{
	char *text = calloc(1, size + 1);

	assert(text);
	memcpy(text, data, size);
	return text;
}

static void try_target(const uint8_t *data, size_t size)
{
	CLEAN(mem) char *target = text_copy(data, size);
	CLEAN(mem) char *clean = NULL;
	CLEAN(mem) char *again = NULL;
	CLEAN(mem) char *location = NULL;
	char value[32], *query = NULL;
	size_t used = 0;
	FILE *out;

	if (request_target(target, &query) < 0)
		return;
	assert(target[0] == '/' || strcmp(target, "*") == 0);
	clean = malloc(strlen(target) + 2);
	request_path_clean(target, clean);
	again = malloc(strlen(clean) + 2);
	request_path_clean(clean, again);
	assert(clean[0] == '/' && !strstr(clean, "//") && strcmp(clean, again) == 0);
	out = open_memstream(&location, &used);
	request_path_encode(clean, out);
	fclose(out);
	for (size_t i = 0; i < used; i++)
		assert(location[i] > ' ' && location[i] < 0x7f);
	if (request_query(query, "a", value, sizeof(value)) > 0)
		assert(strlen(value) < sizeof(value));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text t = { (const char *)data, size }, bearer;
	struct request_event_id id;
	CLEAN(mem) char *name = text_copy(data, size);
	int64_t ms;

	try_target(data, size);
	if (request_time(t, 1763719871500, &ms))
		assert(ms > -86400000LL && ms < 253402387200000LL);
	(void)request_event_id(t, &id);
	bearer = request_bearer(t);
	assert(bearer.len <= size);
	if (request_token_equal(t, "token"))
		assert(size == 5 && memcmp(data, "token", 5) == 0);
	(void)request_name_matches(name, "a.example.test");
	assert(size == 0 || request_name_matches(name, name) ||
	       strncmp(name, "*.", 2) == 0);
	return 0;
}
