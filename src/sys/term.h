// SPDX-License-Identifier: Apache-2.0
/* sys/term - what the terminal that we write to can show. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

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
