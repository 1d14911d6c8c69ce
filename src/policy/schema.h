// SPDX-License-Identifier: Apache-2.0
/* policy/schema - what the keys of a policy mean: a tree of nodes becomes rules and
 * settings. The same walk for YAML and JSON, for files and what the API is sent. */
#pragma once

#include "policy/node.h"

/* In the order in which a document of the API shows them. */
enum rule_key {
	RULE_KEY_ACTION = 0,
	RULE_KEY_TARGET,
	RULE_KEY_PORTS, /* the first that OpenSandbox's policies don't have */
	RULE_KEY_TYPES,
	RULE_KEY_PRIVATE,
	RULE_KEY_RAW,
	RULE_KEY_REQUIRED,
	RULE_KEY_UNMETERED,
	RULE_KEY_COMMENT,
	RULE_KEY_BUDGET,
	RULE_KEY_UNTIL,
	RULE_KEY_FOR,
	RULE_KEY_COUNT
};

enum policy_key {
	POLICY_KEY_EXTENDS = 0,
	POLICY_KEY_DEFAULT_ACTION,
	POLICY_KEY_EGRESS,
	POLICY_KEY_ALLOW_LIST,
	POLICY_KEY_VERIFY, /* from here to deniedNames a document of the API keeps them */
	POLICY_KEY_DNS,
	POLICY_KEY_REPIN,
	POLICY_KEY_LIMITS,
	POLICY_KEY_ON_DENIES,
	POLICY_KEY_FULL_ISOLATION,
	POLICY_KEY_DENIED_NAMES,
	POLICY_KEY_RUN,
	POLICY_KEY_NETWORK_POLICY,
	POLICY_KEY_COUNT
};

struct walk; /* of schema.c */
struct schema_key {
	const char *name;
	void (*read)(struct walk *w, const struct node *n, void *data);
	bool is_list; /* @read reads each item */
};
extern const struct schema_key schema_rule_keys[];
extern const struct schema_key schema_policy_keys[];

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

/* One rule, which is appended: @rule has its action and target, @map its further keys;
 * @path is its place in messages. Return: as schema_read(). */
int schema_read_own(struct schema_document *d, const struct node *map, const char *path,
		    struct rule *rule) MUST_CHECK;
