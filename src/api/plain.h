// SPDX-License-Identifier: Apache-2.0
/* api/plain - the HTTP API over a unix socket, of a program that carries no HTTP library:
 * HTTP/1.1, one request a connection, one connection at a time; others wait. Whoever is
 * slower than API_PLAIN_PATIENCE_MS is hung up on, and so is, without a word, whoever
 * isn't admitted. */
#pragma once

#include "api/api.h"

enum {
	API_PLAIN_HEAD_MAX = 8192,    /* bytes; more is 431 */
	API_PLAIN_PATIENCE_MS = 5000, /* for a request, and for who reads its answer */
};

struct api_plain;
/* What @config points to is borrowed, and its socket is owned, as api_new() says; TLS and
 * tokens aren't served. NULL with @err. */
struct api_plain *api_plain_new(const struct api_config *config,
				struct err *err) MUST_CHECK;
void api_plain_free(struct api_plain *p);
