// SPDX-License-Identifier: Apache-2.0
/* sys/print - what verbs print for programs: one JSON value, or a list whose rows come
 * one by one. */
#pragma once

#include <jansson.h>
#include <stdio.h>

#include "base/text.h"

/* @j, which is taken, and a newline; @flags are of json_dumpf(), 0: indented. NULL is a
 * value for which there was no memory. Return: 0 or -EIO. */
int print_json(json_t *j, size_t flags, FILE *out) MUST_CHECK;

/* One row of a list on standard output; @before of them were printed. */
void print_json_row(size_t before, struct text json);
/* The end of a list of @count rows. */
void print_json_end(size_t count);
