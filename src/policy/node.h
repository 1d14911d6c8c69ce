// SPDX-License-Identifier: Apache-2.0
/* policy/node - a document as a tree, the same for YAML, JSON and TOML, with the place of
 * every value. The readers add faults for what is wrong with the form; what the values
 * mean is the schema's business (policy/schema.c). */
#pragma once

#include "base/arena.h"
#include "policy/policy.h"

enum {
	NODE_DEPTH_MAX = 16, /* deeper documents are refused; the schema needs five */
	NODE_KEYS_MAX = 64,  /* keys of one mapping; more are refused */
	NODE_FOREIGN_KEYS_MAX = 4096, /* the same of other programs' settings */
};

enum node_kind {
	NODE_NULL = 0,
	NODE_BOOL,
	NODE_NUMBER, /* without a fraction */
	NODE_REAL,
	NODE_TEXT,
	NODE_LIST,
	NODE_MAP,
};

struct node {
	enum node_kind kind;
	uint32_t line, column;	       /* from 1 */
	struct text text;	       /* a scalar as written, unquoted */
	struct text raw;	       /* of JSON: all of it as written */
	struct text key;	       /* inside a mapping */
	uint32_t key_line, key_column; /* inside a mapping */
	const struct node *parent;     /* the list or mapping; NULL: the whole */
	struct node *first, *last;     /* items of a list, values of a mapping */
	struct node *next;
	size_t count;
};

/* Where a reader puts what it finds. */
struct node_source {
	struct arena *arena;
	struct faults *faults;
	const char *file;
	struct text text; /* nodes borrow from it */
	/* JSON is read as leniently as Go does, keys that come twice and values of any
	 * depth included; what is no JSON is said here, and there are no faults. */
	struct err *err;
	const char *path;      /* of faults; NULL: none */
	uint32_t line, column; /* where a text of JSON begins; 0: 1 */
	bool one_place;	       /* every node stands there */
	/* Another program's settings: values, not keys, may have line ends and tabs, and
	 * a mapping as many keys as NODE_FOREIGN_KEYS_MAX says. */
	bool foreign;
};

/* Control characters, carriage returns within a line, bad UTF-8 and characters that show
 * text in another order than it is written in are faults, each with its place. Return:
 * true when there was none. */
bool node_check_text(const struct node_source *s);

/* Return: 0 with *@ret (NULL for an empty document), -EINVAL with faults, -ENOMEM. */
int node_read_yaml(const struct node_source *s, struct node **ret) MUST_CHECK;
int node_read_json(const struct node_source *s, struct node **ret) MUST_CHECK;
int node_read_toml(const struct node_source *s, struct node **ret) MUST_CHECK;
/* A string of JSON with its quotes, decoded; what is no Unicode becomes U+FFFD, and
 * *@ret_lost true. It borrows from @quoted where it can, and is in @arena where it
 * can't. */
int node_json_string(struct text quoted, struct arena *arena, struct text *ret,
		     bool *ret_lost) MUST_CHECK;

/* The character @t as Go's %q shows it between @quote: some outside ASCII by their
 * number, the others as they are. Return: @buf. */
char *node_go_quoted(struct text t, char quote, char *buf, size_t size);

/* A new node at that place, or NULL. */
struct node *node_new(const struct node_source *s, enum node_kind kind, uint32_t line,
		      uint32_t column) MUST_CHECK;
/* Append @child to a list or mapping. For a mapping the key is set before: a second
 * time the same key, an overlong mapping and a key with control characters are
 * faults. */
void node_append(const struct node_source *s, struct node *parent, struct node *child);
/* A scalar's text has characters that no value may have: add a fault. */
void node_check_scalar(const struct node_source *s, struct text t, uint32_t line,
		       uint32_t column);
/* The value of @key; NULL: @map, which may be NULL, has none, or is no mapping. */
struct node *node_find(const struct node *map, struct text key);
/* Where @n stands in its document: "egress[3].ports"; "" for the whole. It costs a walk
 * over the items in front of it. Return: @buf, of NODE_PATH_SIZE. */
enum { NODE_PATH_SIZE = 256 /* a longer path is cut */ };
char *node_path(const struct node *n, char *buf);
/* "a list", "text" … */
const char *node_kind_name(enum node_kind kind);
