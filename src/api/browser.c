// SPDX-License-Identifier: Apache-2.0
#include "api/browser.h"

#include <string.h>

#include "base/addr.h"

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
