// SPDX-License-Identifier: Apache-2.0
/* Any text as a webhook's URL: what is taken has a scheme, and names a host and a port
 * that read the same when they are written alone; libcurl takes the URL from its user, so
 * nothing in it may be read in two ways. */
#include <stdio.h>
#include <string.h>

#include "outputs/webhook.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static void check_host(const struct webhook_url *u)
{
	size_t n = strnlen(u->host, sizeof(u->host));

	require(n > 0 && n < sizeof(u->host) && u->port > 0);
	for (size_t i = 0; i < n; i++)
		require(u->host[i] > 0x20 && u->host[i] < 0x7f &&
			!strchr("/?#@\\[]%", u->host[i]) &&
			(u->host[i] < 'A' || u->host[i] > 'Z'));
	require((strchr(u->host, ':') != NULL) == (u->addr.family == ADDR_V6));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct text text = { (const char *)data, size };
	char plain[WEBHOOK_HOST_SIZE + 32];
	struct webhook_url u, again;
	struct err err;
	bool is_v6;

	memset(&u, 0xa5, sizeof(u));
	again = u;
	if (webhook_url_parse(text, &u, &err) < 0) {
		require(memcmp(&u, &again, sizeof(u)) == 0);
		require(strstr(err.text, "is not an http or https URL") != NULL);
		return 0;
	}
	require(size < WEBHOOK_URL_SIZE && memchr(data, '\0', size) == NULL);
	check_host(&u);
	is_v6 = u.addr.family == ADDR_V6;
	snprintf(plain, sizeof(plain), "%s://%s%s%s:%u", u.tls ? "https" : "http",
		 is_v6 ? "[" : "", u.host, is_v6 ? "]" : "", u.port);
	require(webhook_url_parse(text_of(plain), &again, &err) == 0);
	require(strcmp(u.host, again.host) == 0 && u.port == again.port);
	require(u.tls == again.tls && addr_equal(&u.addr, &again.addr));
	return 0;
}
