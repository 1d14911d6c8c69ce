// SPDX-License-Identifier: Apache-2.0
/* What the HTTP API reads by itself: targets, queries, tokens, times, ids. A clean path
 * stays as it is when it is cleaned again, no Location ends a line, only the token
 * itself is equal to the token, and no browser comes by a name that could be anybody's.
 */
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

static void try_browser(struct text t)
{
	const struct browser_head named = { .host = t, .is_browser = true },
				  own = { .host = text_of("localhost"), .origin = t };
	struct text host = t, label;
	size_t digits = 0;

	if (browser_host_is_near(t, &named.names)) {
		assert(!browser_fault(&named));
		/* A name with a dot in it has a letter in some part of it. */
		while (host.len > 0 && host.ptr[0] != '[' &&
		       text_split(&host, '.', &label))
			digits += label.len > 0 && label.ptr[0] >= '0' &&
				  label.ptr[0] <= '9';
		assert(digits > 0 || !memchr(t.ptr, '.', t.len) || t.ptr[0] == '[');
	} else {
		assert(browser_fault(&named));
	}
	assert(browser_fault(&own) ||
	       text_equal_nocase(text_trim(t), "http://localhost") ||
	       text_equal_nocase(text_trim(t), "https://localhost"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text t = { (const char *)data, size }, bearer;
	struct request_event_id id;
	CLEAN(mem) char *name = text_copy(data, size);
	int64_t ms;

	try_target(data, size);
	try_browser(t);
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
