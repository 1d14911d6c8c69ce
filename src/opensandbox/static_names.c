// SPDX-License-Identifier: Apache-2.0
/* The names of log_skip.always: sorted, each asked for by bisection, a name's suffixes
 * one by one. */
#include <errno.h>
#include <string.h>

#include "base/addr.h"
#include "opensandbox/static_rules.h"

enum { ITSELF = 1, BELOW = 2 };

struct entry {
	const char *name; /* lower case, no trailing dot; in .text */
	size_t len;
	unsigned int covers; /* ITSELF, BELOW */
};

struct always_names {
	char *text; /* a copy of the file, owned */
	struct entry *entries;
	size_t count;
};

static void clean_names(struct always_names **n)
{
	always_names_free(*n);
}

void always_names_free(struct always_names *n)
{
	if (!n)
		return;
	free(n->text);
	free(n->entries);
	free(n);
}

static int compare(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = memcmp(x->name, y->name, MIN(x->len, y->len));

	return c != 0 ? c : x->len < y->len ? -1 : x->len > y->len;
}

static bool entry_parse(struct text t, struct entry *ret)
{
	struct dns_name name;
	struct prefix address;

	ret->covers = ITSELF;
	if (prefix_parse(t.ptr, t.len, true, &address))
		return false;
	if (t.len > 3 && memcmp(t.ptr, "**.", 3) == 0) {
		ret->covers = ITSELF | BELOW;
		t = (struct text){ t.ptr + 3, t.len - 3 };
	} else if (t.len > 2 && memcmp(t.ptr, "*.", 2) == 0) {
		ret->covers = BELOW;
		t = (struct text){ t.ptr + 2, t.len - 2 };
	}
	if (dns_name_parse(t, &name) < 0 || name.labels == 0)
		return false;
	t.len -= t.ptr[t.len - 1] == '.';
	ret->name = t.ptr;
	ret->len = t.len;
	return true;
}

/* The same name twice becomes one entry, which covers what both do. */
static void sort(struct always_names *n)
{
	size_t kept = 0;

	if (n->count > 1)
		qsort(n->entries, n->count, sizeof(*n->entries), compare);
	for (size_t i = 0; i < n->count; i++) {
		if (kept > 0 && compare(&n->entries[kept - 1], &n->entries[i]) == 0)
			n->entries[kept - 1].covers |= n->entries[i].covers;
		else
			n->entries[kept++] = n->entries[i];
	}
	n->count = kept;
}

static struct always_names *names_new(struct text text)
{
	CLEAN(names) struct always_names *n = calloc(1, sizeof(*n));
	size_t lines = 1;

	for (size_t i = 0; i < text.len; i++)
		lines += text.ptr[i] == '\n';
	if (n) {
		n->text = malloc(text.len + 1);
		n->entries = calloc(lines, sizeof(*n->entries));
	}
	if (!n || !n->text || !n->entries)
		return NULL;
	for (size_t i = 0; i < text.len; i++)
		n->text[i] = text_lower(text.ptr[i]);
	return TAKE_PTR(n);
}

int always_names_parse(struct text text, const char *path, struct always_names **ret,
		       struct err *err)
{
	CLEAN(names) struct always_names *n = names_new(text);
	struct text rest, line;
	size_t number = 0;

	if (!n)
		return err_set(err, -ENOMEM, "out of memory");
	rest = (struct text){ n->text, text.len };
	while (text_split(&rest, '\n', &line)) {
		number++;
		line = text_without_spaced_comment(line);
		if (line.len == 0)
			continue;
		if (!entry_parse(line, &n->entries[n->count]))
			return err_set(err, -EINVAL,
				       "%s: line %zu: '%s' is not a domain pattern; only "
				       "host/domain entries are supported",
				       SHOWN(path), number, TEXT_SHOWN(line));
		n->count++;
	}
	sort(n);
	*ret = TAKE_PTR(n);
	return 0;
}

static bool covers(const struct always_names *n, const char *name, size_t len,
		   unsigned int how)
{
	const struct entry key = { .name = name, .len = len };
	const struct entry *e = NULL;

	if (n->count > 0)
		e = bsearch(&key, n->entries, n->count, sizeof(key), compare);
	return e && (e->covers & how) != 0;
}

bool always_names_has(const struct always_names *n, const char *name)
{
	char copy[DNS_NAME_TEXT_SIZE];
	size_t len = strlen(name);

	if (!n || n->count == 0 || len == 0 || len >= sizeof(copy))
		return false;
	for (size_t i = 0; i < len; i++)
		copy[i] = text_lower(name[i]);
	len -= copy[len - 1] == '.';
	if (covers(n, copy, len, ITSELF))
		return true;
	for (size_t i = 0; i < len; i++) {
		if (copy[i] == '.' && covers(n, copy + i + 1, len - i - 1, BELOW))
			return true;
	}
	return false;
}
