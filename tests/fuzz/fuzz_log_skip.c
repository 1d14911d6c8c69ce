// SPDX-License-Identifier: Apache-2.0
/* Any text as log_skip.always, and its last line as a name: it is refused with a line, or
 * it has the name exactly when one of its lines does, judged one by one. */
#include <string.h>

#include "opensandbox/static_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool good)
{
	if (!good)
		__builtin_trap();
}

static bool line_has(struct text line, const char *name)
{
	struct log_skip_names *n = NULL;
	bool has;

	require(log_skip_names_parse(line, "f", &n, NULL) == 0);
	has = log_skip_names_has(n, name);
	log_skip_names_free(n);
	return has;
}

static bool any_line_has(struct text text, const char *name)
{
	struct text line;

	while (text_split(&text, '\n', &line)) {
		if (line_has(line, name))
			return true;
	}
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct text text = { (const char *)data, size };
	struct log_skip_names *n = NULL;
	struct err err = { 0 };
	char name[300] = "";
	const char *last;

	if (size == 0)
		return 0;
	last = memrchr(data, '\n', size);
	last = last ? last + 1 : text.ptr;
	memcpy(name, last, MIN((size_t)(text.ptr + size - last), sizeof(name) - 1));
	if (log_skip_names_parse(text, "f", &n, &err) < 0) {
		require(strncmp(err.text, "f: line ", 8) == 0);
		return 0;
	}
	require(log_skip_names_has(n, name) == any_line_has(text, name));
	log_skip_names_free(n);
	return 0;
}
