// SPDX-License-Identifier: Apache-2.0
/* api/request - what a request's text means: target, token, times, ids. Pure. */
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
