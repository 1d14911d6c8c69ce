// SPDX-License-Identifier: Apache-2.0
#include "policy/faults.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

void faults_add(struct faults *f, enum fault_level level, const char *file, uint32_t line,
		uint32_t column, const char *path, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE * 2];
	struct fault fault = {
		.level = level, .file = file, .line = line, .column = column
	};
	va_list ap;

	if (level == FAULT_ERROR)
		f->errors++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f->count < POLICY_FAULTS_MAX) {
		fault.text = arena_text(&f->arena, text_of(text));
		fault.path = arena_text(&f->arena, text_of(path ? path : ""));
		fault.file = arena_text(&f->arena, text_of(file ? file : ""));
	}
	if (!fault.text || !fault.path || !fault.file) {
		f->dropped++;
		return;
	}
	f->items[f->count++] = fault;
}

void faults_done(struct faults *f)
{
	arena_done(&f->arena);
	f->count = 0;
}

void faults_print(const struct faults *f, bool hints)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < f->count; i++)
		if (hints || f->items[i].level != FAULT_HINT)
			fprintf(stderr, "%s\n",
				fault_format(&f->items[i], line, sizeof(line)));
	if (f->dropped > 0)
		fprintf(stderr, "… and %zu more\n", f->dropped);
}

int faults_worse(int a, int b)
{
	if (a == -ENOMEM || b == -ENOMEM)
		return -ENOMEM;
	return a < 0 ? a : b;
}

char *fault_format(const struct fault *f, char *buf, size_t size)
{
	static const char *const words[] = {
		[FAULT_ERROR] = "",
		[FAULT_WARNING] = "warning: ",
		[FAULT_HINT] = "hint: ",
	};
	char place[32] = "", file[TEXT_ESCAPED_SIZE];

	if (f->line > 0)
		snprintf(place, sizeof(place), "%u:%u:", f->line, f->column);
	text_escape(text_of(f->file), file, sizeof(file));
	snprintf(buf, size, "%s:%s %s%s%s%s", file, place, words[f->level], f->path,
		 f->path[0] ? ": " : "", f->text);
	return buf;
}
