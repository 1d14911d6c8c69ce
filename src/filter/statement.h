// SPDX-License-Identifier: Apache-2.0
/* filter/statement - what a rule says and what the key of a set is made of: the tables
 * from which rules are written for the kernel, compared with what it gives back, and
 * printed for nft(8). */
#pragma once

#include <stdio.h>

#include "filter/message.h"
#include "filter/ruleset_internal.h"

/* A rule's expressions as one attribute. A statement that says nothing makes @w fail. */
void statement_write_rule(struct nl_writer *w, const struct filter_rule *rule);
/* One line for nft. false: there is no text for one of its statements. */
bool statement_print_rule(FILE *out, const struct filter_rule *rule);

/* nft's number for the type of a key; 0: it has none. */
uint32_t statement_key_type(enum filter_key key);
/* Its name. false: there is no text for it. */
bool statement_print_key_type(FILE *out, enum filter_key key);
/* nft's number for the type of what a map gives; 0 for a set. */
uint32_t statement_value_type(enum filter_value value);
