// SPDX-License-Identifier: Apache-2.0
#include "api/request.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/addr.h"
#include "base/clock.h"

/* ---- the target ---- */

/* In place; @end is where to stop. Return: 0 or -EBADMSG. */
static int unescape(char *s, const char *end)
{
	char *to = s;

	for (const char *from = s; from < end; from++) {
		int high, low;

		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		if (end - from < 3)
			return -EBADMSG;
		high = text_hex_value(from[1]);
		low = text_hex_value(from[2]);
		if (high < 0 || low < 0 || high + low == 0)
			return -EBADMSG;
		*to++ = (char)(high << 4 | low);
		from += 2;
	}
	*to = '\0';
	return 0;
}

int request_target(char *target, char **ret_query)
{
	char *query, *slash;

	/* "http://host/path" as a proxy asks: the path alone counts. */
	if (strncasecmp(target, "http://", 7) == 0) {
		slash = strchr(target + 7, '/');
		if (slash)
			memmove(target, slash, strlen(slash) + 1);
		else
			memcpy(target, "/", 2);
	}
	if (target[0] != '/' && strcmp(target, "*") != 0)
		return -EBADMSG;
	for (const char *s = target; *s; s++)
		if ((unsigned char)*s <= ' ' || *s == 0x7f)
			return -EBADMSG;
	query = strchr(target, '?');
	if (query)
		*query = '\0';
	if (unescape(target, target + strlen(target)) < 0)
		return -EBADMSG;
	*ret_query = query ? query + 1 : NULL;
	return 0;
}

void request_path_clean(const char *path, char *ret)
{
	struct text rest = text_of(path), part;
	bool slash = path[0] && path[strlen(path) - 1] == '/';
	size_t used = 0;

	while (text_split(&rest, '/', &part)) {
		if (part.len == 0 || text_equal(part, "."))
			continue;
		if (text_equal(part, "..")) {
			/* "/a/b" becomes "/a" */
			while (used > 0 && ret[--used] != '/')
				;
			continue;
		}
		ret[used++] = '/';
		memcpy(ret + used, part.ptr, part.len);
		used += part.len;
	}
	if (slash || used == 0)
		ret[used++] = '/';
	ret[used] = '\0';
}

void request_path_encode(const char *path, FILE *out)
{
	for (; *path; path++) {
		unsigned char c = (unsigned char)*path;

		if ((c < 0x80 && isalnum(c)) || strchr("-_.~$&+,/:;=@", c))
			fputc(c, out);
		else
			fprintf(out, "%%%02X", c);
	}
}

void request_html(const char *text, FILE *out)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", out);
			break;
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '"':
			fputs("&#34;", out);
			break;
		case '\'':
			fputs("&#39;", out);
			break;
		default:
			fputc(*text, out);
		}
	}
}

int request_query(const char *query, const char *name, char *ret, size_t size)
{
	struct text rest = text_of(query ? query : ""), part, key;

	while (text_split(&rest, '&', &part)) {
		struct text value = part;

		if (!text_split(&value, '=', &key) || !text_equal(key, name))
			continue;
		if (value.len >= size)
			return -EBADMSG;
		if (value.len > 0)
			memcpy(ret, value.ptr, value.len);
		ret[value.len] = '\0';
		return unescape(ret, ret + value.len) < 0 ? -EBADMSG : 1;
	}
	return 0;
}

/* ---- where it ends ---- */

void request_framing_line(struct request_framing *f, struct text name, struct text value)
{
	f->is_unclear |= !text_is_token(name);
	if (text_equal_nocase(name, "Content-Length")) {
		f->lengths++;
	} else if (text_equal_nocase(name, "Host")) {
		f->hosts++;
	} else if (text_equal_nocase(name, "Transfer-Encoding")) {
		f->encodings++;
		f->is_odd |= !text_equal_nocase(text_trim(value), "chunked");
	}
}

const char *request_framing_fault(const struct request_framing *f)
{
	if (f->hosts != 1 && !(f->is_old && f->hosts == 0))
		return f->hosts ? "400 Bad Request: too many Host headers"
				: "400 Bad Request: missing required Host header";
	if (f->is_unclear)
		return "400 Bad Request: a header's name has other letters than a name";
	if (f->is_odd || f->lengths + f->encodings > 1)
		return "400 Bad Request: unclear length of the body";
	return NULL;
}

/* ---- the token ---- */

bool request_token_equal(struct text given, const char *token)
{
	volatile unsigned char difference = 0;

	if (given.len == 0 || given.len != strlen(token))
		return false;
	for (size_t i = 0; i < given.len; i++)
		difference |= (unsigned char)(given.ptr[i] ^ token[i]);
	return difference == 0;
}

struct text request_bearer(struct text header)
{
	struct text scheme;

	header = text_trim(header);
	if (!text_split(&header, ' ', &scheme) || !text_equal_nocase(scheme, "Bearer"))
		return (struct text){ "", 0 };
	return text_trim(header);
}

/* ---- times and ids ---- */

bool request_time(struct text t, int64_t now_ms, int64_t *ret_ms)
{
	int64_t duration_ms;

	if (!text_to_duration_ms(t, &duration_ms))
		return timestamp_parse(t, ret_ms);
	*ret_ms = duration_ms < now_ms ? now_ms - duration_ms : 0;
	return true;
}

bool request_event_id(struct text t, struct request_event_id *ret)
{
	struct request_event_id id;
	struct text epoch;

	if (!text_split(&t, '-', &epoch) || !t.ptr ||
	    !text_to_u64(epoch, 16, &id.epoch) || !text_to_u64(t, 10, &id.number))
		return false;
	*ret = id;
	return true;
}

static struct text without_dot(const char *name)
{
	struct text t = text_of(name);

	if (t.len > 0 && t.ptr[t.len - 1] == '.')
		t.len--;
	return t;
}

bool request_name_matches(const char *pattern, const char *name)
{
	const bool below = strncmp(pattern, "*.", 2) == 0;
	struct text p = without_dot(below ? pattern + 1 : pattern), n = without_dot(name);

	if (below && n.len > p.len) {
		n.ptr += n.len - p.len;
		n.len = p.len;
	} else if (below) {
		return false;
	}
	return n.len == p.len && strncasecmp(n.ptr, p.ptr, n.len) == 0;
}

/* ---- requests of browsers ---- */

/* @t without ":PORT"; of "[ADDR]:PORT" what is between the brackets. Empty when it is
 * neither. */
static struct text without_port(struct text t)
{
	const bool is_v6 = t.len > 0 && t.ptr[0] == '[';
	const char *end = t.len > 0 ? memchr(t.ptr, is_v6 ? ']' : ':', t.len) : NULL;
	struct text rest;
	uint32_t port;

	if (!end)
		return is_v6 ? (struct text){ "", 0 } : t;
	rest = (struct text){ end + is_v6, (size_t)(t.ptr + t.len - end) - is_v6 };
	if (rest.len > 0 && (rest.ptr[0] != ':' ||
			     !text_to_u32((struct text){ rest.ptr + 1, rest.len - 1 },
					  UINT16_MAX, &port)))
		return (struct text){ "", 0 };
	return (struct text){ t.ptr + is_v6, (size_t)(end - t.ptr) - is_v6 };
}

bool browser_host_is_near(struct text host, const struct browser_names *names)
{
	const struct text t = without_port(host);
	struct addr addr;

	for (size_t i = 0; i < names->count; i++)
		if (text_equal_nocase(t, names->name[i]))
			return true;
	return text_equal_nocase(t, "localhost") || addr_parse(t.ptr, t.len, &addr);
}

/* "http://HOST" or "https://HOST"; a port that the scheme implies is in neither. */
static bool is_origin_of(struct text origin, struct text host)
{
	static const char *const schemes[] = { "http://", "https://" };

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		const size_t size = strlen(schemes[i]);

		if (origin.len == size + host.len &&
		    strncmp(origin.ptr, schemes[i], size) == 0 &&
		    strncasecmp(origin.ptr + size, host.ptr, host.len) == 0)
			return true;
	}
	return false;
}

const char *browser_fault(const struct browser_head *head)
{
	const struct text site = head->site.ptr ? text_trim(head->site) : head->site;

	/* "none": somebody typed the address. */
	if (site.ptr && !text_equal(site, "same-origin") && !text_equal(site, "none"))
		return "forbidden: a page of another site asks";
	if (head->origin.ptr && !is_origin_of(text_trim(head->origin), head->host))
		return "forbidden: a page of another site asks";
	if (head->is_browser && !browser_host_is_near(head->host, &head->names))
		return "forbidden: without a token a browser has to name this API by its "
		       "address, as localhost, by the host's name or by one of "
		       "--api-host";
	return NULL;
}
