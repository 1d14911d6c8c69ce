// SPDX-License-Identifier: Apache-2.0
/* api/request - what a request's text means: target, token, times, ids, and whether some
 * page made a browser send it. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/macros.h"
#include "base/text.h"

/* Cut @target ("/path?query", "http://host/path", "*") into its decoded path and its raw
 * query, in place: @target is overwritten with the path, the query stays behind it.
 * *@ret_query is NULL when there is no '?'. Return: 0, or -EBADMSG: a bad escape, a NUL
 * byte, a space or control byte that isn't escaped, no path. */
int request_target(char *target, char **ret_query) MUST_CHECK;

/* @path without empty, "." and ".." parts; a slash at the end stays. @ret holds
 * strlen(path) + 2. */
void request_path_clean(const char *path, char *ret);
/* @path as it stands in a Location header: no byte of it ends a line. */
void request_path_encode(const char *path, FILE *out);
/* Text for a place in HTML. */
void request_html(const char *text, FILE *out);

/* The value of @name in a query, decoded into @ret of @size. Return: 1; 0 when it isn't
 * there; -EBADMSG when it can't be decoded or doesn't fit. */
int request_query(const char *query, const char *name, char *ret, size_t size) MUST_CHECK;

/* The header lines that say where a request ends, and whom it is for. */
struct request_framing {
	unsigned int lengths, encodings, hosts;
	bool is_odd;	 /* an encoding that isn't "chunked" */
	bool is_unclear; /* a name that isn't one: "Content-Length " */
	bool is_old;	 /* before HTTP/1.1: the request need not name a host */
};
void request_framing_line(struct request_framing *f, struct text name, struct text value);
/* What two readers could read as two different requests is read by nobody. Return:
 * what is wrong, or NULL. */
const char *request_framing_fault(const struct request_framing *f);

/* In a time that tells nothing but whether the lengths are equal. */
bool request_token_equal(struct text given, const char *token);
/* What stands behind "Bearer "; empty when it is another scheme. */
struct text request_bearer(struct text header);

/* "2026-11-20T13:31:08Z", with fraction or offset, or "10m": that long before @now_ms.
 * Return: false when it is neither. */
bool request_time(struct text t, int64_t now_ms, int64_t *ret_ms);

/* The id of an event: of which start of the API, and its number there. */
struct request_event_id {
	uint64_t epoch, number;
};
/* "<hexadecimal>-<decimal>". Return: false when it isn't one. */
bool request_event_id(struct text t, struct request_event_id *ret);

/* @name is @pattern, or below it when that starts with "*."; case and a dot at the end
 * don't count. */
bool request_name_matches(const char *pattern, const char *name);

/* -- requests that a browser sends because some page told it to ---------------------- */

/* Where no token is asked for, whoever reaches the API may use it, and a browser reaches
 * what the pages that it shows can't: theirs are cross-site requests, and names that
 * were pointed at this API's address after their page was loaded (DNS rebinding). Both
 * are refused. Programs that aren't browsers are not judged: they can say anything. Where
 * a token is asked for, no page knows it, and none of this is needed. */

/* What the operator and the host call this API; borrowed. */
struct browser_names {
	const char *const *name;
	size_t count;
};

/* What matters of a request's head; .ptr NULL: there is no such line. */
struct browser_head {
	struct text host, origin, site; /* Host, Origin, Sec-Fetch-Site */
	bool is_browser;		/* by these or other lines of it */
	struct browser_names names;
};

/* Return: NULL, or why it is refused. */
const char *browser_fault(const struct browser_head *head);

/* A Host that no stranger can own: an address, "localhost" or one of @names; with or
 * without a port. Another name without dots may be somebody's in the local network. */
bool browser_host_is_near(struct text host, const struct browser_names *names);
