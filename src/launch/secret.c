// SPDX-License-Identifier: Apache-2.0
#include "launch/secret.h"

#include <ctype.h>
#include <string.h>

#include "base/macros.h"
#include "launch/secret_lists.h" /* generated: environment_list[] */

enum { TOKEN_MIN = 16 }; /* letters and digits behind the beginning of a token */

static bool has_token(const char *value, const char *beginning)
{
	for (const char *p = value; (p = strstr(p, beginning)); p++) {
		const char *rest = p + strlen(beginning);
		size_t n = 0;

		if (p > value && isalnum((unsigned char)p[-1]))
			continue;
		while (n < TOKEN_MIN && (isalnum((unsigned char)rest[n]) ||
					 rest[n] == '-' || rest[n] == '_'))
			n++;
		if (n == TOKEN_MIN)
			return true;
	}
	return false;
}

/* A password is read generously, for not everybody escapes what is in it; a user alone
 * may be a token where there is no ssh. */
bool secret_has_user_info(const char *value)
{
	size_t first = strcspn(value, ":@/ \t\n");

	for (const char *p = value; (p = strstr(p, "://")); p++) {
		const char *user = p + strlen("://");
		size_t all = strcspn(user, "@ \t\n\"'"),
		       part = strcspn(user, "@/?# \t\n");
		bool web = (p - value >= 4 && strncasecmp(p - 4, "http", 4) == 0) ||
			   (p - value >= 5 && strncasecmp(p - 5, "https", 5) == 0);

		if (user[all] == '@' && (memchr(user, ':', all) || (web && part == all)))
			return true;
	}
	/* Without a scheme, as proxies and databases may be written. */
	return first > 0 && value[first] == ':' &&
	       value[first + 1 + strcspn(value + first + 1, "@/ \t\n")] == '@' &&
	       value[first + 1] != '@';
}

bool secret_is_variable(struct text name, const char *value)
{
	bool harmless = false;

	for (size_t i = 0; !harmless && i < ARRAY_SIZE(environment_list); i++)
		harmless = strcmp(environment_list[i][0], "pass") == 0 &&
			   text_matches(environment_list[i][1], name, true);
	for (size_t i = 0; i < ARRAY_SIZE(environment_list); i++) {
		const char *kind = environment_list[i][0];
		const char *pattern = environment_list[i][1];

		if ((strcmp(kind, "name") == 0 && !harmless &&
		     text_matches(pattern, name, true)) ||
		    (strcmp(kind, "token") == 0 && has_token(value, pattern)) ||
		    (strcmp(kind, "text") == 0 && strcasestr(value, pattern)))
			return true;
	}
	return secret_has_user_info(value);
}
