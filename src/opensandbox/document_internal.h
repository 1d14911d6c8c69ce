// SPDX-License-Identifier: Apache-2.0
/* opensandbox/document_internal - the parts of opensandbox/document.
 *
 * HOW IT WORKS
 * A text is read as any JSON (policy/node.h), but leniently. Values of Weir's own keys
 * aren't looked at but kept as compact JSON, which is what is shown, compared and, when a
 * policy is made of the document, read by the same schema as any policy file. */
#pragma once

#include "opensandbox/document.h"
#include "policy/schema.h"

struct document_rule {
	enum policy_action action;
	struct text target;    /* trimmed, as given; a NUL is behind it */
	struct text own;       /* {"ports":[443],"raw":true}; empty: none */
	uint32_t line, column; /* in the text that was read; 0: changed since */
};

struct document {
	struct arena arena; /* every text */
	enum policy_action default_action;
	struct document_rule *rules; /* malloc'ed */
	size_t count, capacity;
	struct text own; /* members of the top, as those of a rule */
	/* Why it is closed, ended by NUL; ptr NULL: it isn't. */
	struct text closed;
	bool is_derived;
};

/* --- document.c --- */

/* The values of @rule's own keys as JSON, borrowed from it; ptr NULL: it hasn't that
 * key. Return: 0 or -ENOMEM. */
int document_read_own(const struct document_rule *rule,
		      struct text ret[RULE_KEY_COUNT]) MUST_CHECK;
/* The values of @keys, @count, as an object; ptr NULL: that key isn't there. Without any
 * *@ret is empty. Return: 0 or -ENOMEM. */
int document_write_own(struct document *d, const struct schema_key *keys,
		       const struct text *values, size_t count,
		       struct text *ret) MUST_CHECK;
/* The rules of a patch for @old. -EINVAL: @err is the whole message; -EPERM: @old is
 * closed. */
int document_read_patch(const struct document *old, struct text body,
			document_unknown_fn *unknown, void *data, struct document **ret,
			struct err *err) MUST_CHECK;
/* -EPERM with @err when @d is closed. */
int document_check_open(const struct document *d, struct err *err) MUST_CHECK;
/* One with the settings of @old, and no rules yet. NULL: no memory. */
struct document *document_copy_settings(const struct document *old) MUST_CHECK;
/* The copy has no position: it comes from another text than the document's. Return: 0 or
 * -ENOMEM. */
int document_copy_rule(struct document *d, const struct document_rule *rule) MUST_CHECK;
/* @rule has `until` or `for`. */
bool document_ends(const struct document_rule *rule);
/* The values of JSON from @body, trimmed, whose first byte is at @start; NULL: it is
 * null. Return: 0; -EINVAL with what Go's encoding/json says of it; -ENOMEM, with @err.
 */
int document_parse_body(struct text body, struct policy_place start, struct arena *tree,
			struct node **ret, struct err *err) MUST_CHECK;
/* @n isn't of @type. @field: "NetworkPolicy.egress", as the reference's program names it;
 * NULL: the body itself. Return: -EINVAL, or 0 for null, which is absent. */
int document_wrong_type(const struct node *n, const char *field, const char *type,
			struct err *err) MUST_CHECK;
/* Without the white space at both ends, as Go's strings.TrimSpace(). */
struct text document_trim(struct text t);

/* --- policy.c --- */

/* The target of @rule, whose action is set, as leniently as the reference reads it.
 * *@ret_says: the rule says something. Return: 0, or -EINVAL with @err. */
int document_read_target(struct text t, struct rule *rule, bool *ret_says,
			 struct err *err) MUST_CHECK;
