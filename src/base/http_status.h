// SPDX-License-Identifier: Apache-2.0
/* http_status - the answers of HTTP that Weir gives and understands (RFC 9110). */
#pragma once

enum http_status {
	HTTP_OK = 200,
	HTTP_CREATED = 201,
	HTTP_MULTIPLE = 300, /* what is below has succeeded */
	HTTP_MOVED = 301,
	HTTP_NOT_MODIFIED = 304,
	HTTP_BAD_REQUEST = 400,
	HTTP_UNAUTHORIZED = 401,
	HTTP_FORBIDDEN = 403,
	HTTP_NOT_FOUND = 404,
	HTTP_BAD_METHOD = 405,
	HTTP_CONFLICT = 409,
	HTTP_PRECONDITION_FAILED = 412,
	HTTP_TOO_LARGE = 413,
	HTTP_TOO_MANY = 429,
	HTTP_HEAD_TOO_LARGE = 431,
	HTTP_FAILED = 500,
	HTTP_UNAVAILABLE = 503,
};
