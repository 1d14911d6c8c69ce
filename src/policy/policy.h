// SPDX-License-Identifier: Apache-2.0
/* policy/policy - a policy as people write it: rules in order, and where each stands.
 *
 * Reading never stops at the first fault: all of them are gathered in struct faults
 * and the caller prints them. Everything lives in the caller's arena. No file is
 * opened here: `extends` and list files come through a callback. */
#pragma once

#include <string.h>

#include "base/arena.h"
#include "base/err.h"
#include "policy/plan.h"
#include "policy/rule.h"

enum {
	POLICY_EXTENDS_MAX = 8,		    /* depth */
	POLICY_FAULTS_MAX = 100,	    /* then "and N more" */
	POLICY_TEXT_MAX = 16 * 1024 * 1024, /* bytes of one file */
};

enum fault_level {
	FAULT_ERROR = 0, /* the policy is not used */
	FAULT_WARNING,	 /* it is used, but a person should check it */
	FAULT_HINT,
};

/* "policy.yaml:3:14: egress[1].target: 'a..b' is not a domain name, …" */
struct fault {
	enum fault_level level;
	const char *file;
	uint32_t line, column; /* from 1; 0 when there is no place */
	const char *path;      /* "egress[1].target"; "" for the whole */
	const char *text;
};

struct faults {
	struct arena arena;
	struct fault items[POLICY_FAULTS_MAX];
	size_t count;	/* in items */
	size_t dropped; /* over the maximum */
	size_t errors;	/* of level FAULT_ERROR, the dropped ones included */
};

/* Add one. @file is borrowed and must live as long as @f; @path is copied. Texts from
 * outside must be escaped by the caller. When the memory is out, or the list full,
 * the fault is only counted. */
void faults_add(struct faults *f, enum fault_level level, const char *file, uint32_t line,
		uint32_t column, const char *path, const char *fmt, ...)
	PRINTF_LIKE(7, 8);

/* One line for each on stderr, hints only when @hints. */
void faults_print(const struct faults *f, bool hints);

/* Of two results the one that is reported: -ENOMEM before another error, and that before
 * 0. */
int faults_worse(int a, int b) MUST_CHECK;
void faults_done(struct faults *f);
/* One line without the newline; the text is already escaped. Return: @buf. */
enum { FAULT_TEXT_SIZE = 2048 };
char *fault_format(const struct fault *f, char *buf, size_t size);
/* Say the first error of @f in @err. Return: -EINVAL; 0: none of @f is an error. */
int faults_first_error(const struct faults *f, struct err *err);

/* The position of a value in its document; line 0: none. */
struct policy_place {
	const char *file;
	uint32_t line, column;
};

/* What a profile's programs need of `weir run` besides hosts: the key `run`. */
enum policy_need_kind {
	NEED_OWN = 0,  /* a variable that names a directory: one of the sandboxes' own */
	NEED_PASS_ENV, /* a variable that is passed though it looks like a secret */
	NEED_SET_ENV,  /* NAME=VALUE */
	NEED_RW_PRESET,
	NEED_KIND_COUNT
};
extern const char *const policy_need_words[NEED_KIND_COUNT]; /* the keys below `run` */

struct policy_need {
	enum policy_need_kind kind;
	const char *value;
	const char *profile; /* NULL: no profile that --profile names has it, and it
			      * counts for nothing */
	struct policy_place at;
};

enum {
	POLICY_REPIN_MS = 6 * 3600 * 1000, /* when no policy says */
	POLICY_REPIN_MIN_MS = 10 * 1000,
	POLICY_REPIN_MAX_MS = 30 * 24 * 3600 * 1000u, /* 30 days */
};

struct policy {
	struct rule *rules; /* first to last: own rules, then those of `extends` */
	size_t count, capacity;
	enum policy_action default_action;
	enum policy_verify verify;
	enum policy_dns dns;
	enum policy_denied_names denied_names;
	/* Set by a document. */
	bool has_default_action, has_verify, has_dns, has_denied_names;
	bool require_full_isolation;
	bool open_doh; /* the public DoH resolvers are open where the rest is */
	/* What decides a name that no rule is about, behind all of them: see
	 * policy/advice.h. No document can say it. NULL: the default action. */
	const struct rule *every_name;
	int64_t repin_ms;		 /* 0: not set */
	struct plan_on_denies on_denies; /* count 0: not set */
	struct policy_place verify_at, dns_at, repin_at, on_denies_at, denied_names_at;
	uint32_t limits[LIMIT_COUNT]; /* 0: not set */
	struct plan_budget budget;    /* limits.sent_total; sent 0: not set */
	struct policy_need *needs;
	size_t need_count;
	const char **sources; /* documents read, in order, for `show` */
	size_t source_count;
};

enum { POLICY_NEEDS_MAX = 256 /* of all documents together */ };

#define POLICY_SIZE_WORDS "a number of bytes, like 512K, 20M or 4G"

enum policy_format { POLICY_FORMAT_GUESS = 0, POLICY_FORMAT_YAML, POLICY_FORMAT_JSON };

/* Give the text of what `extends` or a list file names. @from is the document that
 * names it. The text must live as long as the arena. Return: 0 with the text and
 * the path to show, or -errno with @err. */
typedef int policy_load_fn(void *data, const char *name, const char *from,
			   struct text *ret_text, const char **ret_path, struct err *err);

struct policy_reader {
	struct arena *arena;   /* borrowed */
	struct faults *faults; /* borrowed */
	policy_load_fn *load;  /* NULL: `extends` is an error */
	void *load_data;
	int64_t now_ms; /* wall clock, from which the key `for` counts; 0: the text is
			 * read again later, and `for` is a fault */
	bool hints_of_profiles; /* of documents that ship with Weir, too */
};

/* Reserve memory for @more rules, so that adding them copies nothing. */
int policy_reserve_rules(struct policy *p, struct arena *arena, size_t more) MUST_CHECK;
/* Append @r to @p. The array grows in @arena. */
int policy_add_rule(struct policy *p, struct arena *arena,
		    const struct rule *r) MUST_CHECK;
/* Append the name of a document that is read, borrowed. */
int policy_add_source(struct policy *p, struct arena *arena, const char *file) MUST_CHECK;

/* What POLICY_FORMAT_GUESS comes to: by the name, or by the first byte. */
enum policy_format policy_format_guess(const char *file, struct text text);
/* Read one document and what it extends; append its rules to @policy and set what is
 * not set yet. Return: 0, -EINVAL when faults were added, -ENOMEM. */
int policy_read(const struct policy_reader *r, const char *file, struct text text,
		enum policy_format format, struct policy *policy) MUST_CHECK;

/* How a file is read that has a target a line. */
struct policy_targets {
	enum policy_action action;
	struct text (*cut)(struct text line); /* without its comment, trimmed */
	/* Set kind, name or prefix of @rule. Return: 1; 0: it says nothing; -EINVAL after
	 * a fault. */
	int (*parse)(const struct policy_reader *r, struct text target,
		     struct rule *rule);
};
/* Append a rule for each line of such a file. @file lives as long as the rules. Return:
 * as policy_read(). */
int policy_read_targets(const struct policy_reader *r, const char *file, struct text text,
			const struct policy_targets *how,
			struct policy *policy) MUST_CHECK;

/* One rule of the command line: "TARGET[:PORTS]" for allow, "TARGET" for deny. The
 * file of the rule is @option ("--allow"). Appends. */
int policy_read_option(const struct policy_reader *r, const char *option,
		       enum policy_action action, struct text value,
		       struct policy *policy) MUST_CHECK;

/* Documents whose name starts so ship with Weir: their rules are meant, and known ways
 * out among them are hints, no warnings. */
#define POLICY_BUILT_IN "built-in:"
static inline bool policy_is_built_in(const char *document)
{
	return strncmp(document, POLICY_BUILT_IN, sizeof(POLICY_BUILT_IN) - 1) == 0;
}
/* A file of profiles/, which is a part of the program. */
struct policy_embedded {
	const char *name; /* "default" */
	struct text text;
};

/* The shipped profiles by number; NULL behind the last. */
const struct policy_embedded *policy_embedded_at(size_t i);
/* profiles/doh.txt: a name or an address a line. */
struct text policy_embedded_doh(void);
/* profiles/telemetry.txt: a name a line, and behind it whose it is. */
struct text policy_embedded_telemetry(void);

/* `dns: pinned` resolves every name before the start and answers nothing else: an error
 * for each rule that it can't hold to (a wildcard, `types`), for `defaultAction: allow`,
 * and for more names than may be learned. `repin` without it is a warning.
 * Return: 0 or -EINVAL. */
int policy_check_pinned(const struct policy_reader *r,
			const struct policy *policy) MUST_CHECK;
/* The plan of a policy, and what can only be seen over the whole: rules that can't be
 * reached, wildcards over public suffixes, `*.x` without `x`, too many port lists, known
 * ways out. *@ret is malloc'ed, owned by the caller; @ret NULL: nothing but the faults is
 * asked for. */
int policy_build(const struct policy_reader *r, const struct policy *policy,
		 uint8_t **ret, size_t *ret_size) MUST_CHECK;

/* Some name is asked for: the default action or a rule does. */
bool policy_asks(const struct policy *policy);
/* Of what is never asked for: the name of a cloud's metadata, or a wildcard over it. */
bool policy_is_metadata(const struct rule *r);
/* Some name can be allowed, so a name server has to be asked. */
bool policy_asks_names(const struct policy *policy);

/* Compile. *ret is malloc'ed, owned by the caller. -ENOMEM, or -E2BIG with @err. */
int policy_compile(const struct policy *policy, uint8_t **ret, size_t *ret_size,
		   struct err *err) MUST_CHECK;
