// SPDX-License-Identifier: Apache-2.0
#include "sys/print.h"

#include <errno.h>

int print_json(json_t *j, size_t flags, FILE *out)
{
	int r = j ? json_dumpf(j, out, flags ? flags : JSON_INDENT(2)) : -1;

	json_decref(j);
	return fputc('\n', out) == EOF || r < 0 ? -EIO : 0;
}

void print_json_row(size_t before, struct text json)
{
	printf("%s%.*s", before > 0 ? ",\n  " : "[\n  ", (int)json.len, json.ptr);
}

void print_json_end(size_t count)
{
	puts(count > 0 ? "\n]" : "[]");
}
