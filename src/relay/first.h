// SPDX-License-Identifier: Apache-2.0
/* relay/first - what a connection's first bytes are: TLS, HTTP, or neither.
 *
 * What could still become TLS, or HTTP with a known method, is not called "neither",
 * however slowly it comes: the caller waits for more and refuses when none comes in time.
 * A word of upper-case letters could be a method that nobody knows, or a word of another
 * protocol: where bytes without a name may pass, the caller may stop waiting for the rest
 * of the line sooner. A method is such a word, or a known one in whatever case; a line
 * that says HTTP/ is HTTP whatever it begins with, if it comes in one piece. White space
 * or a PROXY header in front doesn't hide anything. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	FIRST_METHOD_MAX = 32,	    /* longer words are no method */
	FIRST_LINE_MAX = 16 * 1024, /* a line that could be HTTP and is longer is bad */
};

enum first_kind {
	FIRST_NEED_MORE = 0,
	FIRST_WORD, /* the same, but no known method can come of it */
	FIRST_TLS,  /* to be read with tls_hello_read() */
	FIRST_HTTP,
	FIRST_NEITHER,
	FIRST_BAD, /* made to look like neither: see @ret_reason */
};

/* @ret_reason: a constant text, set for FIRST_BAD. */
enum first_kind first_kind(const uint8_t *bytes, size_t size, const char **ret_reason);
