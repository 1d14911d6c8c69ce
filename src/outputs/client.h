// SPDX-License-Identifier: Apache-2.0
/* outputs/client - one request to the daemon's API over its unix socket. */
#pragma once

#include "base/arena.h"
#include "base/err.h"

struct client_reply {
	unsigned int status;
	struct text body; /* in the caller's arena */
};

/* @socket NULL: WEIR_SOCKET's, or /run/weir/weir.sock. @path is not escaped: ids have no
 * letter that would have to be. @body may be empty. Return: 0 with an answer, whatever
 * its status; or -errno with @err. */
int client_ask(const char *socket, const char *method, const char *path, struct text body,
	       struct arena *arena, struct client_reply *ret, struct err *err) MUST_CHECK;
/* What went wrong, as a person reads it: a "reason" of JSON, or the text. */
const char *client_reason(const struct client_reply *reply, struct arena *arena);
