// SPDX-License-Identifier: Apache-2.0
/* sys/options - options by table: one row gives the name, the help text and the setter,
 * so that parsing, usage and completion can't differ. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/err.h"

/* What a value is, and what it is kept in: the field at `offset` of the target. */
enum option_kind {
	OPTION_CUSTOM = 0, /* `set` reads it */
	OPTION_FLAG,	   /* bool; there is no value */
	OPTION_TEXT,	   /* const char *, not empty; the last one counts */
	OPTION_TEXT_ONCE,  /* the same; a second one is an error */
	OPTION_LIST,	   /* struct option_list */
	OPTION_WORD,	   /* enum: the place of the word in `arg`, "a|b|c" */
	OPTION_WORD_TEXT,  /* const char *: the word itself */
	OPTION_SWITCH,	   /* bool: "on" or "off" */
	OPTION_NUMBER,	   /* uint32_t, from `least` to `most` */
};

enum { OPTION_LIST_MAX = 256 }; /* one more is an error */

struct option_list {
	const char *items[OPTION_LIST_MAX];
	size_t count;
};

struct cli_option {
	const char *name; /* without the dashes */
	const char *arg; /* "FILE", or the words that there are: "a|b"; NULL for a flag */
	const char *help; /* one line */
	/* Of OPTION_CUSTOM: set the field at `offset`, the whole target without one.
	 * @value is NULL for a flag. Return: 0, or -EINVAL with @err. */
	int (*set)(void *field, const char *value, struct err *err);
	/* May be repeated; what stands between the values in an environment variable.
	 * 0: once. */
	char separator;
	enum option_kind kind;
	size_t offset;
	uint32_t least, most;
	const char *was; /* an older name: taken, and not shown; NULL: none */
	char letter;	 /* "-o" is taken for it, too; 0: none */
};

/* The end of a row: OPTION_IN(TEXT, struct spec, policy_file). */
#define OPTION_IN(KIND, type, field)                                                     \
	.kind = OPTION_##KIND, .offset = offsetof(type, field)

/* What a table begins with: its rows. */
#define OPTION_ROWS(rows) .items = (rows), .count = ARRAY_SIZE(rows)

enum { CLI_OPTIONS_MAX = 64 }; /* in one table; asserted where the tables are */

struct cli_options {
	const struct cli_option *items;
	size_t count;
	/* Its options are taken, too, and have the first bits of what is given. */
	const struct cli_options *also;
	const char *usage;	  /* "usage: weir run …", a blank line, what it does */
	const char *notes;	  /* below the options; NULL: none */
	void (*words)(FILE *out); /* print what stands before the options; or NULL */
};

/* Read options from @argv[1] on: "--name value", "--name=value", never abbreviated;
 * ends behind "--" or before the first argument that is no option. Each option that
 * was there has its bit set in *@given, which may be NULL. All faults are told at once.
 * Return: the index of the first argument that is left, or -EINVAL with @err. */
int cli_options_parse(const struct cli_options *table, void *target, int argc,
		      char **argv, uint64_t *given, struct err *err) MUST_CHECK;

/* The same where nothing but options may be there: an argument that is left is one more
 * fault. Return: 0, or -EINVAL with @err. */
int cli_options_only(const struct cli_options *table, void *target, int argc, char **argv,
		     uint64_t *given, struct err *err) MUST_CHECK;

/* Take the options that aren't in *@given from variables WEIR_NAME (--fail-on-deny:
 * WEIR_FAIL_ON_DENY) and set their bits. A flag's value is 1, 0, true or false; an
 * empty variable counts as not set. What is kept of the values lives in @arena. All
 * faults are told at once.
 * Return: 0, -EINVAL or -ENOMEM with @err. */
int cli_options_environment(const struct cli_options *table, void *target,
			    struct arena *arena, uint64_t *given,
			    struct err *err) MUST_CHECK;
/* Set in each sandbox of weir run's, to the id of the run: no option's. */
#define SANDBOX_VARIABLE "WEIR_SANDBOX"
/* Where the SDKs find the program. */
#define PROGRAM_VARIABLE "WEIR_PROGRAM"
/* A variable that begins with WEIR_ and belongs to no option, or NULL. */
const char *cli_options_stray_variable(const struct cli_options *table);

/* One by one, those of `also` first; NULL behind the last. */
const struct cli_option *cli_option_at(const struct cli_options *table, size_t i);
const struct cli_option *cli_option_find(const struct cli_options *table,
					 struct text name);

/* Return: the place of @value among @words ("a|b|c"), or -EINVAL with @err. */
int cli_option_word(const char *words, const char *value, struct err *err) MUST_CHECK;
/* Keep @value, NULL for a flag, in @target. It is borrowed. Return: 0, or -EINVAL with
 * @err and nothing changed. */
int cli_option_set(const struct cli_option *o, void *target, const char *value,
		   struct err *err) MUST_CHECK;

/* What `weir help VERB` says: the usage, the "  --name ARG   help" lines, the notes. */
void cli_usage_print(FILE *out, const struct cli_options *table);
