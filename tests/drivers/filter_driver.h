// SPDX-License-Identifier: Apache-2.0
/* What the two halves of filter_driver share: filter_driver.c has the protocol and what
 * owned namespaces need, filter_driver_shared.c the commands for shared ones,
 * filter_driver_host.c those for the table of a host. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "common.h"
#include "filter/filter.h"
#include "policy/policy.h"

enum { RULES_MAX = 5000 };

struct driver {
	struct filter_conn conn;
	int nflog;
	int held; /* of hold and udphold */
	bool ipv6;
	struct policy policy;
	struct rule rules[RULES_MAX];
	char *text;	    /* where rulesets go as text, too; NULL: nowhere */
	struct arena arena; /* of the policy's texts and port ranges */
	uint8_t *plan_bytes;
	struct shared_state *shared; /* see filter_driver_shared.c */
};

struct command {
	const char *word;
	int words; /* with the command itself */
	void (*run)(struct driver *d, char **words);
};
extern const struct command shared_commands[], host_commands[];

void answer(int r, const struct err *err);
/* As `text` said. */
int write_text(const struct driver *d, const struct ruleset *rs);
/* Compile the driver's policy. */
int build_plan(struct driver *d, struct plan *ret, struct err *err);
/* Sorts @times; "ok p50 max" in microseconds. */
void print_times(int64_t *times, int count);
