// SPDX-License-Identifier: Apache-2.0
/* policy/document_internal - the parts of policy/document.
 *
 * HOW IT WORKS
 * document_scan() decides whether a text is JSON, byte by byte with the states of Go's
 * scanner, so that it says the same of what isn't, and needs no recursion. Everything
 * behind it walks a text that is known to be good (struct json_cursor): no check of
 * the form is repeated there. Values of Weir's own keys aren't read here but kept as
 * compact JSON, member behind member, which is what is shown, compared and, when a policy
 * is made of the document, read by the same schema as any policy file. */
#pragma once

#include "policy/document.h"
#include "policy/json_cursor.h"

/* Bytes that grow. A failed one stays failed, and empty. */
struct document_out {
	char *bytes; /* owned; malloc'ed */
	size_t used, size;
	bool failed;
};

static inline void clean_document_out(struct document_out *o)
{
	free(o->bytes);
}

struct document_rule {
	enum policy_action action;
	struct text target;    /* trimmed, as given */
	struct text own;       /* "\"ports\":[443],\"raw\":true"; empty: none */
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
};

static inline void clean_document(struct document **d)
{
	document_free(*d);
}

/* --- document_text.c: JSON as Go reads it --- */

/* Return: 0, or -EINVAL with what Go's encoding/json says of it. */
int document_scan(struct text body, struct err *err) MUST_CHECK;
/* Without the white space at both ends, as Go's strings.TrimSpace(). */
struct text document_trim(struct text t);

/* --- document_text.c: JSON as Go writes it --- */

void document_put_text(struct document_out *o, const char *s);
/* A value that was let pass, compact and with Go's escapes. Return: 0 or -ENOMEM. */
int document_put_value(struct document_out *o, struct text value) MUST_CHECK;
/* As Go's %q shows it, cut to fit. Return: @buf. */
char *document_quote(struct text t, char *buf, size_t size);
