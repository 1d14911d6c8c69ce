// SPDX-License-Identifier: Apache-2.0
#include "relay/first.h"

#include <string.h>

#include "base/text.h"
#include "relay/tls.h"

static const char *const methods[] = {
	"GET",	   "HEAD",    "POST",  "PUT",	"DELETE",
	"CONNECT", "OPTIONS", "TRACE", "PATCH", "PRI",
};

static const char hidden[] = "white space before TLS or HTTP";
static const char proxy_header[] = "a PROXY header";

/* @word, in whatever case, is a known method or, when it may still grow, begins one. */
static bool is_known(struct text word, bool may_grow)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		size_t size = strlen(methods[i]), n = 0;

		while (n < word.len && n < size &&
		       text_lower(word.ptr[n]) == text_lower(methods[i][n]))
			n++;
		if (n == word.len && (n == size || may_grow))
			return true;
	}
	return false;
}

/* A word that only a request would begin with: upper case, as methods are; '-' and '_'
 * stand in a few. */
static bool looks_like_method(struct text word)
{
	if (word.len == 0 || word.len > FIRST_METHOD_MAX)
		return false;
	for (size_t i = 0; i < word.len; i++) {
		char c = word.ptr[i];

		if (!(c >= 'A' && c <= 'Z') && (i == 0 || (c != '-' && c != '_')))
			return false;
	}
	return true;
}

/* "… HTTP/" in whatever case: no reader of HTTP takes a line without it, but for
 * HTTP/0.9. */
static bool names_http(struct text line)
{
	static const char mark[] = "HTTP/";
	const size_t size = sizeof(mark) - 1;

	for (size_t i = 1; i + size <= line.len; i++) {
		if (text_is_blank(line.ptr[i - 1]) &&
		    text_equal_nocase((struct text){ line.ptr + i, size }, mark))
			return true;
	}
	return false;
}

static enum first_kind text_kind(struct text t, const char **ret_reason)
{
	static const char proxy[] = "PROXY";
	const char *end = t.len > 0 ? memchr(t.ptr, '\n', t.len) : NULL;
	struct text word = { t.ptr, 0 };
	bool known, like_method;

	while (word.len < t.len && !text_is_blank(t.ptr[word.len]))
		word.len++;
	like_method = looks_like_method(word);
	if (word.len == t.len) {
		if (is_known(word, true) ||
		    (word.len < sizeof(proxy) && memcmp(word.ptr, proxy, word.len) == 0))
			return FIRST_NEED_MORE;
		return like_method ? FIRST_WORD : FIRST_NEITHER;
	}
	if (text_equal(word, proxy)) {
		*ret_reason = proxy_header;
		return FIRST_BAD;
	}
	known = is_known(word, false);
	if (known && like_method)
		return FIRST_HTTP;
	if (end) /* the first line is whole */
		t.len = (size_t)(end - t.ptr);
	if (end || t.ptr[word.len] == '\r' || (!like_method && !known))
		return names_http(t) ? FIRST_HTTP : FIRST_NEITHER;
	return known ? FIRST_NEED_MORE : FIRST_WORD;
}

enum first_kind first_kind(const uint8_t *bytes, size_t size, const char **ret_reason)
{
	/* Version 2 of the PROXY header begins with line ends and goes on like nothing
	 * else. */
	static const char proxy_v2[] = { '\r', '\n', '\r', '\n', '\0' };
	struct text t = { (const char *)bytes, size };
	struct tls_hello hello;
	enum first_kind kind;

	while (t.len > 0 && text_is_blank(t.ptr[0])) {
		t.ptr++;
		t.len--;
	}
	if (size >= sizeof(proxy_v2) && memcmp(bytes, proxy_v2, sizeof(proxy_v2)) == 0) {
		*ret_reason = proxy_header;
		return FIRST_BAD;
	}
	/* Only the kind counts here: more than a few bytes needn't be read. */
	bytes = (const uint8_t *)t.ptr;
	switch (tls_hello_read(bytes, MIN(t.len, (size_t)8), &hello)) {
	case TLS_NOT:
		kind = text_kind(t, ret_reason);
		break;
	case TLS_NEED_MORE:
		kind = t.len < 2 || bytes[1] != TLS_MAJOR || bytes[0] & 0x80
			       ? FIRST_NEED_MORE
			       : FIRST_TLS;
		break;
	default:
		kind = FIRST_TLS;
	}
	if (kind == FIRST_WORD && t.len < size)
		kind = FIRST_NEED_MORE;
	if (kind == FIRST_NEED_MORE || kind == FIRST_WORD) {
		if (size < FIRST_LINE_MAX)
			return kind;
		*ret_reason = "a first line over 16 KiB";
		return FIRST_BAD;
	}
	if (t.len == size || (kind != FIRST_TLS && kind != FIRST_HTTP))
		return kind;
	*ret_reason = hidden;
	return FIRST_BAD;
}
