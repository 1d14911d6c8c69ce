// SPDX-License-Identifier: Apache-2.0
/* opensandbox/document - a policy as OpenSandbox's API and files have it: a list of rules
 * that is shown as it was given, patched by target, and handed on to the reader.
 *
 * Reads as leniently as Go's encoding/json does (names of keys in any case, unknown keys
 * ignored, the last of equal keys counts, null is absent) and says what is wrong in its
 * words, because clients compare them. What it understands of Weir's own keys (ports,
 * types, private, raw, comment …) is kept and shown again. A document never changes: each
 * change makes a new one. */
#pragma once

#include "policy/policy.h"

struct document;

/* defaultAction deny and no rules. NULL: out of memory. */
struct document *document_deny_all(void) MUST_CHECK;
void document_free(struct document *d);
DEFINE_CLEAN(document, struct document *, document_free)
/* A document that denies all and is closed: the files beside it open nothing, and it
 * can be replaced, but not patched. @why is shown. NULL: out of memory. */
struct document *document_close(const char *why) MUST_CHECK;
/* Why it is closed, ended by NUL; NULL: it isn't. */
const char *document_closed(const struct document *d);
/* What is said to whoever would change a part of a closed policy, with the reason. */
#define DOCUMENT_IS_CLOSED "the sandbox is closed (%s): only another policy opens it"

/* Before it is put in force: write `until` in place of each `for` of its rules, counted
 * from @now_ms of the wall clock, and leave out the allows that have ended. What is no
 * such time stays, and is a fault when a policy is made of it. Return: 0, or -ENOMEM. */
int document_settle_ends(struct document *d, int64_t now_ms) MUST_CHECK;

/* A whole policy. Empty text, {}, null: deny all. Unknown keys are reported to
 * @unknown (may be NULL), once each. Return: 0; -EINVAL with what goes behind
 * "invalid policy: "; -ENOMEM. */
typedef void document_unknown_fn(void *data, const char *key);
int document_parse(struct text body, document_unknown_fn *unknown, void *data,
		   struct document **ret, struct err *err) MUST_CHECK;
/* A whole policy, of a caller that is no client of OpenSandbox's: an unknown key is
 * -EINVAL. A rule with a misspelt `until` would otherwise act for ever without a word. */
int document_parse_strict(struct text body, struct document **ret,
			  struct err *err) MUST_CHECK;
/* Patch: the rules of the JSON array @body come first; of rules with the same target
 * (case ignored, as text) the first stays, and behind one that ends the first that
 * doesn't. The default action stays. -EINVAL: @err is
 * the whole message ("empty body", "invalid patch rules: …", "invalid merged policy: …").
 * -EPERM: @old is closed. Unknown keys are reported as document_parse() says. */
int document_merge(const struct document *old, struct text body,
		   document_unknown_fn *unknown, void *data, struct document **ret,
		   struct err *err) MUST_CHECK;
/* A grant: the one rule of the JSON array @body, which allows one name or one address for
 * a time (`for`, `until`) or for good, beside what @old opens for it, each until its own
 * end: no grant shortens another. A name has one rule at a time, so `private`, `raw` and
 * `types` of one are those of the other as well while both last. What has ended by
 * @now_ms is left out. Return: 0; -EINVAL: @body is no such rule; -EPERM: @old is closed,
 * or the rule that opens the name has a budget, which one in front would lift, or
 * defaultAction opens it on other ports, or a rule denies the address; each with @err. */
int document_grant(const struct document *old, struct text body, int64_t now_ms,
		   struct document **ret, struct err *err) MUST_CHECK;
/* Without the rules for the targets of the JSON array @body; *@ret is NULL when none was
 * there. -EINVAL: @err is the whole message; -EPERM: @old is closed. */
int document_remove(const struct document *old, struct text body, struct document **ret,
		    struct err *err) MUST_CHECK;
/* document_merge(), document_grant() or document_remove() made @d of another policy: it
 * is no whole one that somebody gave. */
bool document_is_derived(const struct document *d);

size_t document_rule_count(const struct document *d);
/* Every way in from outside: -E2BIG, @d has more rules than @max; 0 is no limit. */
int document_check_rule_count(const struct document *d, size_t max,
			      struct err *err) MUST_CHECK;
/* "allow_all", "deny_all", "enforcing". */
const char *document_mode(const struct document *d);
/* {"egress":[…],"defaultAction":"deny"}: compact with Go's escapes, or @pretty for files
 * (two spaces, a newline at the end). malloc'ed, owned by the caller; NULL: no memory. */
char *document_json(const struct document *d, bool pretty) MUST_CHECK;
enum { DOCUMENT_TAG_SIZE = 35 }; /* 32 hexadecimal digits in quotes, and NUL */
/* An ETag (RFC 9110) of the document whose compact text is @json. */
void document_tag(const char *json, char ret[DOCUMENT_TAG_SIZE]);
/* To a client whose If-Match doesn't name it. */
#define DOCUMENT_IS_ANOTHER                                                              \
	"the policy in force is another one than If-Match names; read it again"
/* Does @list, the value of an If-Match, name @d? An empty list names nothing, and neither
 * does a tag that isn't strong. False: no memory, too. */
bool document_is_named(const struct document *d, struct text list);
/* Only the rules, compact, as in the log's `rules`. */
char *document_rules_json(const struct document *d) MUST_CHECK;
bool document_equal(const struct document *a, const struct document *b);
