// SPDX-License-Identifier: Apache-2.0
/* outputs/webhook/hook - the URLs, a queue for each, and the POSTs under way.
 *
 * A URL has one POST at a time. Its life: libcurl tries with a connection that it still
 * has; without one the parent is asked for a socket, which is waited for until it is
 * connected, and libcurl tries again. A status under 300 is done; 5xx and a failed
 * connection (of a job with an id also 408, 425 and 429) are tried three times more,
 * after 1, 2 and 4 seconds; any other status is final, and so is a redirect: it would
 * lead to where the operator didn't point. An attempt takes five seconds at most. */
#pragma once

#include <curl/curl.h>

#include "outputs/webhook.h"

enum {
	HOOK_ATTEMPT_MS = 5000,
	HOOK_RETRIES = 3,
	HOOK_PAUSE_MS = 1000, /* doubles */
	HOOK_POLL_MAX = WEBHOOK_URLS_MAX + 1,
};

struct hooks;
/* @channel: to the parent, borrowed. @ca: certificates as PEM, or NULL: then no https
 * server can be verified. */
struct hooks *hooks_new(int channel, struct text ca);

/* Take what the parent said. Return: 0, or -errno: leave. */
int hooks_receive(struct hooks *h) MUST_CHECK;
/* Whatever can be done now. Return: 0, or -errno: leave. */
int hooks_work(struct hooks *h, int64_t now_ms) MUST_CHECK;
/* Wait for something to do. Return: 0 or -errno. */
int hooks_wait(struct hooks *h, int64_t now_ms) MUST_CHECK;
