// SPDX-License-Identifier: Apache-2.0
/* tools/events - the options of `weir events`, `denies` and `review`. What they do is
 * done by a program of its own, weir-events, which carries SQLite: `weir run` doesn't
 * wait for a library that it has no use for. */
#pragma once

#include <stdio.h>

#include "sys/options.h"

#define CLI_REVIEW_WORDS "list|show|accept|dismiss"

struct events_spec {
	const char *state_dir; /* NULL: the default */
	const char *sandbox, *name, *address, *action, *since, *until, *by; /* or NULL */
	uint32_t limit;							    /* 0: none */
	const char *format; /* text, json, ocsf; NULL: as `json` says */
	bool follow, json, collect;
	const char *from, *diff; /* of `weir learn`, or NULL */
	/* of `weir review` */
	const char *state, *policy, *who, *socket; /* or NULL */
	bool yes, live;
	int64_t for_ms;	  /* 0: the rule doesn't end */
	const char *word; /* list, show, accept, dismiss */
	uint32_t id;	  /* of a task; 0: none was given */
};

extern const struct cli_options cli_events_options, cli_denies_options,
	cli_review_options;
/* `weir learn` begins with "--from": it reads a store, and runs nothing. */
bool cli_learn_is_from(int argc, char **argv);

/* @argv[0] is "events", "denies", "review" or "learn". Return: 0, or -EINVAL with @err.
 */
int cli_events_parse(int argc, char **argv, struct events_spec *ret,
		     struct err *err) MUST_CHECK;

/* Where the store is: @given, or WEIR_STATE_DIR, or for root /var/lib/weir and for
 * others $XDG_STATE_HOME/weir or ~/.local/state/weir. Return: a path in @arena, or NULL
 * with @err. */
const char *cli_state_dir(const char *given, struct arena *arena,
			  struct err *err) MUST_CHECK;
