// SPDX-License-Identifier: Apache-2.0
/* verbs - the table of verbs: what `weir help` shows and what main() calls. */
#pragma once

#include <stdio.h>

#include "proto/settings.h"
#include "run/options.h"
#include "tools/render.h"

/* What the verbs need from main/, which this folder can't know. */
struct cli_hooks {
	int (*run)(struct run_spec *spec);
	render_resolve_fn *resolve;
	int (*sidecar)(struct sidecar_spec *spec); /* says what spec->warnings has */
	/* Become another of Weir's programs, with @argv behind its name. Return: -errno,
	 * it could not be started. */
	int (*become)(const char *program, char *const *argv, struct err *err);
	int (*daemon)(struct sidecar_spec *spec);
};

struct cli_verb {
	const char *name;
	const char *help; /* one line */
	int (*main)(int argc, char **argv, const struct cli_hooks *hooks);
	void (*usage)(FILE *out);
	const struct cli_options *options; /* NULL: none */
	const char *words; /* what may follow, "a|b"; NULL: nothing fixed */
};

/* In the order of `weir help`; NULL behind the last. */
const struct cli_verb *cli_verb_at(size_t i);

/* Return: the exit status. */
int cli_main(int argc, char **argv, const struct cli_hooks *hooks);
