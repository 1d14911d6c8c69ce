// SPDX-License-Identifier: Apache-2.0
/* sys/print - what verbs print: for programs one JSON value, or a list whose rows come
 * one by one; for people what their terminal can show. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/text.h"

/* @j, which is taken, and a newline; @flags are of json_dumpf(), 0: indented. NULL is a
 * value for which there was no memory. Return: 0 or -EIO. */
int print_json(json_t *j, size_t flags, FILE *out) MUST_CHECK;

/* One row of a list on standard output; @before of them were printed. */
void print_json_row(size_t before, struct text json);
/* The end of a list of @count rows. */
void print_json_end(size_t count);

/* ---- for people: what the terminal that we write to can show ---- */

enum { TERM_WIDTH_DEFAULT = 80, TERM_WIDTH_MIN = 40, TERM_WIDTH_MAX = 120 };

/* A terminal, and NO_COLOR is unset or empty, and TERM isn't "dumb". */
bool term_has_colour(FILE *out);
/* Columns of the terminal, held between the two limits; TERM_WIDTH_DEFAULT for a file
 * or pipe. */
unsigned int term_width(FILE *out);

/* Print @text word by word from @column on; lines after the first begin at @indent.
 * A word that is longer than a line stands alone and is not cut. Ends with a newline. */
void term_wrap(FILE *out, const char *text, unsigned int column, unsigned int indent,
	       unsigned int width);
