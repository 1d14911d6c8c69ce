// SPDX-License-Identifier: Apache-2.0
/* Any members and elements, in any nesting, of any bytes: what is written is ASCII that
 * HTML and a terminal read as text, and another reader finds in it what was put there; a
 * buffer of any size holds the begin of that and no more. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "event/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { DEPTH_MAX = 12, KEY_SIZE = 40 };

/* A walk through the input, which says what is written. */
struct walk {
	struct text rest;
	struct jtext *j;
	json_t *at[DEPTH_MAX]; /* the open containers: what is expected; owned by the
				* one before */
	size_t depth;
};

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static struct text take(struct walk *w, size_t size)
{
	const struct text t = { w->rest.ptr, MIN(size, w->rest.len) };

	w->rest.ptr += t.len;
	w->rest.len -= t.len;
	return t;
}

static uint8_t take_byte(struct walk *w)
{
	const struct text t = take(w, 1);

	return t.len > 0 ? (uint8_t)t.ptr[0] : 0;
}

/* With U+FFFD for each byte that is part of no character. */
static json_t *expected_string(struct text t)
{
	char out[3 * UINT8_MAX];
	size_t used = 0, n;

	for (; t.len > 0; t.ptr += n, t.len -= n) {
		uint32_t c = 0xfffd;

		n = MAX(text_utf8(t, &c), (size_t)1);
		used += text_put_utf8(c, out + used);
	}
	return json_stringn(out, used);
}

/* The key of the next member, which no other one has; NULL: an element. */
static const char *next_key(struct walk *w, char buf[KEY_SIZE])
{
	const json_t *in = w->at[w->depth - 1];
	const struct text t = json_is_object(in) ? take(w, take_byte(w) % 16)
						 : (struct text){ 0 };

	if (!json_is_object(in))
		return NULL;
	snprintf(buf, KEY_SIZE, "%zu %.*s", json_object_size(in), (int)t.len, t.ptr);
	return buf;
}

/* @value is taken. */
static void expect(struct walk *w, const char *key, json_t *value)
{
	json_t *in = w->at[w->depth - 1], *text = NULL;

	require(value != NULL);
	if (key)
		text = expected_string(text_of(key));
	require((key ? json_object_setn_new(in, json_string_value(text),
					    json_string_length(text), value)
		     : json_array_append_new(in, value)) == 0);
	json_decref(text);
}

static void open_container(struct walk *w, const char *key, bool is_list)
{
	json_t *value = is_list ? json_array() : json_object();

	if (w->depth == DEPTH_MAX) {
		json_decref(value);
		return;
	}
	jtext_open(w->j, key, is_list ? '[' : '{');
	expect(w, key, value);
	w->at[w->depth++] = value;
}

static void close_container(struct walk *w)
{
	const json_t *container = w->at[--w->depth];

	jtext_close(w->j, json_is_array(container) ? ']' : '}');
}

static void write_value(struct walk *w)
{
	const uint8_t what = take_byte(w) % 8;
	char buf[KEY_SIZE], text[UINT8_MAX + 1];
	const char *key = what == 0 ? NULL : next_key(w, buf);
	struct text t;
	int64_t n = 0;

	switch (what) {
	case 0:
		if (w->depth > 1)
			close_container(w);
		return;
	case 1:
	case 2:
		open_container(w, key, what == 1);
		return;
	case 3:
		t = take(w, sizeof(n));
		memcpy(&n, t.ptr, t.len);
		jtext_number(w->j, key, n != 0, n);
		expect(w, key, n != 0 ? json_integer(n) : json_null());
		return;
	case 4:
		jtext_bool(w->j, key, w->rest.len & 1);
		expect(w, key, json_boolean(w->rest.len & 1));
		return;
	case 5:
		t = take(w, take_byte(w));
		snprintf(text, sizeof(text), "%.*s", (int)t.len, t.ptr);
		jtext_text(w->j, key, text, sizeof(text));
		expect(w, key, text[0] ? expected_string(text_of(text)) : json_null());
		return;
	default:
		t = take(w, take_byte(w));
		if (key)
			jtext_key(w->j, key);
		else
			jtext_key(w->j, NULL);
		jtext_string(w->j, t, SIZE_MAX);
		expect(w, key, expected_string(t));
		return;
	}
}

/* Return: what is expected. */
static json_t *write_all(struct text input, struct jtext *j)
{
	struct walk w = { .rest = input, .j = j, .at = { json_object() }, .depth = 1 };

	jtext_open(j, NULL, '{');
	while (w.rest.len > 0)
		write_value(&w);
	while (w.depth > 0)
		close_container(&w);
	return w.at[0];
}

static void says(const char *text, size_t size, const json_t *expected)
{
	json_t *parsed =
		json_loadb(text, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);

	for (size_t i = 0; i < size; i++)
		require(text[i] >= 0x20 && text[i] < 0x7f && !strchr("<>&", text[i]));
	require(json_equal(parsed, expected));
	json_decref(parsed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct text input = { (const char *)data, MIN(size, 4096) };
	const size_t room = size > 1 ? data[0] << 3 | data[1] >> 5 : 0;
	struct jtext grown = { .grows = true }, again = { .grows = true }, fixed;
	char *text, *other, *buf = malloc(room + 1);
	json_t *expected = write_all(input, &grown);
	size_t used = grown.used;

	text = jtext_take(&grown);
	require(text && buf && strlen(text) == used);
	says(text, used, expected);

	jtext_init(&fixed, buf, room);
	json_decref(write_all(input, &fixed));
	require(fixed.used <= room && fixed.full == (room < used));
	require(memcmp(buf, text, fixed.used) == 0);

	other = json_dumps(expected, JSON_INDENT(1));
	jtext_json(&again, text_of(other));
	says(again.buf, again.used, expected);
	clean_jtext(&again);
	json_decref(expected);
	free(other);
	free(text);
	free(buf);
	return 0;
}
