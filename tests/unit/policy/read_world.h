// SPDX-License-Identifier: Apache-2.0
/* Reading policies in a test: documents that lie in a table instead of on a disk. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "unit.h"

/* The documents that `extends` and `allow-list` can name. */
struct file {
	const char *name, *text;
};

struct world {
	struct arena arena;
	struct faults faults;
	struct policy policy;
	const struct file *files;
	size_t file_count;
	int result;
};

static inline int load(void *data, const char *name, const char *from,
		       struct text *ret_text, const char **ret_path, struct err *err)
{
	const struct world *w = data;

	for (size_t i = 0; i < w->file_count; i++) {
		if (strcmp(w->files[i].name, name) != 0)
			continue;
		*ret_text = text_of(w->files[i].text);
		*ret_path = w->files[i].name;
		return 0;
	}
	return err_set(err, -ENOENT, "there is no such file");
}

static inline struct policy_reader reader(struct world *w)
{
	return (struct policy_reader){ &w->arena, &w->faults, load, w };
}

static inline void world_read(struct world *w, const char *file, const char *text)
{
	struct policy_reader r = reader(w);

	w->result = policy_read(&r, file, text_of(text), POLICY_FORMAT_GUESS, &w->policy);
}

static inline void world_done(struct world *w)
{
	arena_done(&w->arena);
	faults_done(&w->faults);
}

/* All faults, a line each. */
static inline const char *faults_text(const struct world *w)
{
	static char all[16384];
	char line[FAULT_TEXT_SIZE];

	all[0] = '\0';
	for (size_t i = 0; i < w->faults.count; i++)
		snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s\n",
			 fault_format(&w->faults.items[i], line, sizeof(line)));
	return all;
}

static inline void expect_good(const struct world *w)
{
	if (w->result != 0 || w->faults.errors != 0)
		fail_msg("%s", faults_text(w));
}
