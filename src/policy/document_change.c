// SPDX-License-Identifier: Apache-2.0
/* Documents made of others: patched, or with rules taken away. */
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "policy/document_internal.h"

static int copy_text(struct document *d, struct text t, struct text *ret)
{
	*ret = (struct text){ t.len > 0 ? arena_text(&d->arena, t) : NULL, t.len };
	return t.len == 0 || ret->ptr ? 0 : -ENOMEM;
}

/* The copy stands nowhere: what it came from isn't the text that is kept. */
static int copy_rule(struct document *d, const struct document_rule *rule)
{
	struct document_rule copy = { .action = rule->action };
	int r = copy_text(d, rule->target, &copy.target);

	if (r == 0)
		r = copy_text(d, rule->own, &copy.own);
	return r == 0 ? document_append(d, &copy) : r;
}

/* One with the settings of @old, and no rules yet. NULL: no memory. */
static struct document *copy_settings(const struct document *old)
{
	struct document *d = document_deny_all();

	if (!d)
		return NULL;
	d->default_action = old->default_action;
	if (copy_text(d, old->own, &d->own) == 0)
		return d;
	document_free(d);
	return NULL;
}

/* A target among others, and where it stands. */
struct entry {
	struct text target;
	const struct document_rule *rule; /* NULL: a target alone */
	size_t order;
	bool is_new, dropped;
};

static int compare_targets(struct text a, struct text b)
{
	int c = strncasecmp(a.ptr, b.ptr, MIN(a.len, b.len));

	return c != 0 ? c : a.len < b.len ? -1 : a.len > b.len;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = compare_targets(x->target, y->target);

	return c != 0 ? c : x->order < y->order ? -1 : x->order > y->order;
}

static int compare_order(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

static bool is_address(struct text t)
{
	const char *zone = memchr(t.ptr, '%', t.len);
	struct prefix p;

	return prefix_parse(t.ptr, zone ? (size_t)(zone - t.ptr) : t.len, true, &p);
}

/* @first and @other have the same target. A deny of an address counts wherever it
 * stands, so a change of other rules must not take one away. */
static bool is_superseded(const struct entry *first, const struct entry *other)
{
	return first->is_new || first->rule->action == POLICY_DENY ||
	       other->rule->action == POLICY_ALLOW || !is_address(other->target);
}

static void drop_superseded(struct entry *entries, size_t count)
{
	qsort(entries, count, sizeof(*entries), compare_entries);
	for (size_t i = 0, first = 0; i < count; i++) {
		if (compare_targets(entries[first].target, entries[i].target) != 0)
			first = i;
		if (i != first)
			entries[i].dropped = is_superseded(&entries[first], &entries[i]);
	}
	qsort(entries, count, sizeof(*entries), compare_order);
}

static void add_entries(struct entry *entries, size_t *count, const struct document *d,
			bool is_new)
{
	for (size_t i = 0; i < d->count; i++, ++*count)
		entries[*count] = (struct entry){ .target = d->rules[i].target,
						  .rule = &d->rules[i],
						  .order = *count,
						  .is_new = is_new };
}

int document_merge(const struct document *old, struct text body, struct document **ret,
		   struct err *err)
{
	CLEAN(document) struct document *patch = NULL, *d = NULL;
	CLEAN(mem) struct entry *entries = NULL;
	size_t count = 0;
	int r = document_check_open(old, err);

	if (r == 0)
		r = document_read_patch(body, &patch, err);
	if (r < 0)
		return r;
	d = copy_settings(old);
	entries = calloc(patch->count + old->count, sizeof(*entries));
	if (!d || !entries)
		return err_set(err, -ENOMEM, "out of memory");
	add_entries(entries, &count, patch, true);
	add_entries(entries, &count, old, false);
	drop_superseded(entries, count);
	for (size_t i = 0; i < count; i++) {
		if (!entries[i].dropped && copy_rule(d, entries[i].rule) < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = TAKE_PTR(d);
	return 0;
}

/* --- targets to remove --- */

struct targets {
	struct arena arena;
	struct entry *items; /* malloc'ed */
	size_t count, capacity;
	bool any; /* blank ones included, which aren't kept */
};

static void clean_targets(struct targets *t)
{
	arena_done(&t->arena);
	free(t->items);
}

static int keep_target(struct targets *t, struct text text, struct err *err)
{
	t->any = true;
	if (text.len == 0)
		return 0;
	if (t->count == t->capacity) {
		size_t capacity = MAX(2 * t->capacity, (size_t)16);
		struct entry *more = reallocarray(t->items, capacity, sizeof(*more));

		if (!more)
			return err_set(err, -ENOMEM, "out of memory");
		t->items = more;
		t->capacity = capacity;
	}
	t->items[t->count++] = (struct entry){ .target = text };
	return 0;
}

static int read_target(struct json_cursor *c, struct targets *t, struct err *err)
{
	enum json_kind k = json_cursor_peek(c);
	struct text text = { 0 };

	if (k == JSON_KIND_NULL)
		json_cursor_skip(c);
	else if (k != JSON_KIND_STRING)
		return err_set(err, -EINVAL,
			       "json: cannot unmarshal %s into Go value of type string",
			       json_kind_name(k));
	else if (json_cursor_string(c, &t->arena, &text) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	return keep_target(t, document_trim(text), err);
}

static int read_targets(struct text body, struct targets *t, struct err *err)
{
	struct json_cursor c = { body.ptr, body.ptr + body.len, 1, 1 };
	enum json_kind k;
	int r = document_scan(body, err);

	if (r < 0)
		return r;
	k = json_cursor_peek(&c);
	if (k != JSON_KIND_ARRAY && k != JSON_KIND_NULL)
		return err_set(err, -EINVAL,
			       "json: cannot unmarshal %s into Go value of type []string",
			       json_kind_name(k));
	if (k == JSON_KIND_ARRAY)
		json_cursor_enter(&c);
	while (k == JSON_KIND_ARRAY && r == 0 && json_cursor_next(&c))
		r = read_target(&c, t, err);
	if (r == 0 && !t->any)
		return err_set(err, -EINVAL, "empty array");
	return r;
}

static int compare_only_targets(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return compare_targets(x->target, y->target);
}

int document_remove(const struct document *old, struct text body, struct document **ret,
		    struct err *err)
{
	CLEAN(targets) struct targets t = { 0 };
	CLEAN(document) struct document *d = copy_settings(old);
	int r = document_check_open(old, err);

	if (r < 0)
		return r;
	body = document_trim(body);
	if (body.len == 0)
		return err_set(err, -EINVAL, "empty body");
	r = read_targets(body, &t, err);
	if (r == -EINVAL)
		return err_context(err, "invalid delete targets");
	if (r < 0 || !d)
		return err_set(err, -ENOMEM, "out of memory");
	if (t.count > 0)
		qsort(t.items, t.count, sizeof(*t.items), compare_only_targets);
	for (size_t i = 0; i < old->count; i++) {
		const struct entry key = { .target = old->rules[i].target };

		if ((t.count == 0 || !bsearch(&key, t.items, t.count, sizeof(key),
					      compare_only_targets)) &&
		    copy_rule(d, &old->rules[i]) < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = d->count < old->count ? TAKE_PTR(d) : NULL;
	return 0;
}
