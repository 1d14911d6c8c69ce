// SPDX-License-Identifier: Apache-2.0

#include "api/request.h"
#include "unit.h"

static struct text line(const char *s)
{
	return s ? text_of(s) : (struct text){ NULL, 0 };
}

TEST(near_hosts)
{
	static const struct {
		const char *host;
		bool is_near;
	} rows[] = {
		{ "localhost", true },
		{ "LOCALHOST:18080", true },
		{ "127.0.0.1:18080", true },
		{ "10.1.2.3", true },
		{ "[::1]:18080", true },
		{ "[2a01:5110::2]", true },
		{ "my-host:8080", true },
		{ "My-Host", true },
		{ "weir.svc.local:8080", true },
		{ "side", false },
		{ "wpad", false },
		{ "my-side_1:8080", false },
		{ "x.my-host", false },
		{ "my-host.", false },
		{ "my-host.evil.test", false },
		{ "svc.local", false },
		{ "side:evil.test", false },
		{ "[::1]evil.test", false },
		{ "localhost:", false },
		{ "", false },
		{ ":18080", false },
		{ "evil.test", false },
		{ "evil.test:18080", false },
		{ "localhost.evil.test", false },
		{ "localhost.", false },
		{ "127.0.0.1.evil.test", false },
		{ "127.0.0.1.:80", false },
		{ "side.local", false },
		{ "[::1", false },
		{ "[evil.test]:1", false },
		{ "a b", false },
		{ "user@localhost", false },
		{ "\xd0\xb0", false },
	};

	static const char *const mine[] = { "my-host", "weir.svc.local" };
	static const struct browser_names names = { mine, ARRAY_SIZE(mine) };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (browser_host_is_near(text_of(rows[i].host), &names) !=
		    rows[i].is_near)
			fail_msg("%s", rows[i].host);
}

TEST(who_may_ask)
{
	static const struct {
		const char *what, *host, *origin, *site;
		bool is_browser, passes;
	} rows[] = {
		{ "a program", "evil.test", NULL, NULL, false, true },
		{ "a program without a Host", "", NULL, NULL, false, true },
		{ "an address that was typed", "127.0.0.1:1", NULL, "none", true, true },
		{ "the page reads", "localhost:1", NULL, "same-origin", true, true },
		{ "the page posts", "localhost:1", "http://localhost:1", "same-origin",
		  true, true },
		{ "the page behind TLS", "10.0.0.1", "https://10.0.0.1", "same-origin",
		  true, true },
		{ "case", "LocalHost:1", "http://localhost:1", " same-origin ", true,
		  true },
		{ "an older browser reads", "localhost:1", NULL, NULL, true, true },
		{ "another site", "127.0.0.1:1", NULL, "cross-site", true, false },
		{ "another port of it", "127.0.0.1:1", NULL, "same-site", true, false },
		{ "a word that nobody knows", "127.0.0.1:1", NULL, "x", true, false },
		{ "nothing said", "127.0.0.1:1", NULL, "", true, false },
		{ "another origin", "127.0.0.1:1", "http://evil.test", NULL, true,
		  false },
		{ "another port's origin", "127.0.0.1:1", "http://127.0.0.1:2", NULL,
		  true, false },
		{ "a longer origin", "127.0.0.1:1", "http://127.0.0.1:11", NULL, true,
		  false },
		{ "no origin to show", "127.0.0.1:1", "null", NULL, true, false },
		{ "an empty one", "127.0.0.1:1", "", NULL, true, false },
		{ "another scheme", "127.0.0.1:1", "file://127.0.0.1:1", NULL, true,
		  false },
		{ "a name that was pointed here", "evil.test:1", NULL, NULL, true,
		  false },
		{ "that posts", "evil.test:1", "http://evil.test:1", "same-origin", true,
		  false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct browser_head head = { line(rows[i].host),
						   line(rows[i].origin),
						   line(rows[i].site),
						   rows[i].is_browser };

		if ((browser_fault(&head) == NULL) != rows[i].passes)
			fail_msg("%s", rows[i].what);
	}
}
