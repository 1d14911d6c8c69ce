// SPDX-License-Identifier: Apache-2.0
/* policy/schema - what the keys of a policy mean: a tree of nodes becomes rules and
 * settings. The same walk for YAML and JSON. */
#pragma once

#include "policy/node.h"

/* What one document says; `extends` is followed by the caller. */
struct schema_document {
	struct policy *policy; /* rules are appended, settings that are not set are set */
	struct arena *arena;   /* for what the rules keep */
	struct faults *faults;
	const char *file;	     /* lives as long as the rules */
	int64_t now_ms;		     /* as in struct policy_reader */
	const struct node **extends; /* the texts under `extends`, in order; in @arena */
	size_t extends_count;
	const struct node **lists; /* the texts under `allow-list`, in order; in @arena */
	size_t list_count;
};

/* Return: 0, -EINVAL when faults were added, -ENOMEM. */
int schema_read(struct schema_document *d, const struct node *root) MUST_CHECK;

/* One rule, which is appended; @path is its place in messages. Return: as schema_read().
 */
int schema_read_rule(struct schema_document *d, const struct node *n,
		     const char *path) MUST_CHECK;

/* Reserve memory for @more rules, so that adding them copies nothing. */
int policy_reserve_rules(struct policy *p, struct arena *arena, size_t more) MUST_CHECK;
/* Append @r to @p. The array grows in @arena. */
int policy_add_rule(struct policy *p, struct arena *arena,
		    const struct rule *r) MUST_CHECK;
