// SPDX-License-Identifier: Apache-2.0
/* Documents: read, patched, compared. */
#include "policy/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/timestamp.h"
#include "event/json.h"
#include "policy/document_internal.h"

enum { UNKNOWN_MAX = 32 /* more aren't reported */ };

/* One body that is being read. Of the faults of each sort the first one is reported,
 * and a value of the wrong type before a value that means nothing. */
struct go_reading {
	struct arena tree; /* of the body's nodes */
	struct document *d;
	struct err wrong_type, wrong;
	document_unknown_fn *unknown;
	void *unknown_data;
	struct text reported[UNKNOWN_MAX];
	size_t reported_count;
	bool in_list; /* the rules are the whole body: a patch */
	int r;	      /* -ENOMEM */
};

static void clean_go_reading(struct go_reading *r)
{
	arena_done(&r->tree);
}

struct document *document_deny_all(void)
{
	return calloc(1, sizeof(struct document));
}

static int set_closed(struct document *d, struct text why)
{
	const char *copy = arena_text(&d->arena, why);

	if (!copy)
		return -ENOMEM;
	d->closed = text_of(copy);
	return 0;
}

struct document *document_close(const char *why)
{
	struct document *d = document_deny_all();

	if (d && set_closed(d, text_of(why)) == 0)
		return d;
	document_free(d);
	return NULL;
}

const char *document_closed(const struct document *d)
{
	return d->closed.ptr;
}

int document_check_open(const struct document *d, struct err *err)
{
	if (!d->closed.ptr)
		return 0;
	return err_set(err, -EPERM,
		       "the sandbox is closed (%s): only another policy opens it",
		       TEXT_SHOWN(d->closed));
}

void document_free(struct document *d)
{
	if (!d)
		return;
	arena_done(&d->arena);
	free(d->rules);
	free(d);
}

/* --- faults --- */

/* @n isn't of @type. @field: "NetworkPolicy.egress", as the reference's program names it;
 * NULL: the body itself. Return: -EINVAL, or 0 for null, which is absent. */
static int wrong_type(const struct node *n, const char *field, const char *type,
		      struct err *err)
{
	static const char *const names[] = {
		[NODE_BOOL] = "bool",	[NODE_NUMBER] = "number", [NODE_REAL] = "number",
		[NODE_TEXT] = "string", [NODE_LIST] = "array",	  [NODE_MAP] = "object",
	};

	if (!n || n->kind == NODE_NULL)
		return 0;
	if (field)
		return err_set(
			err, -EINVAL,
			"json: cannot unmarshal %s into Go struct field %s of type %s",
			names[n->kind], field, type);
	return err_set(err, -EINVAL, "json: cannot unmarshal %s into Go value of type %s",
		       names[n->kind], type);
}

static void note_type(struct go_reading *r, const struct node *n, const char *field,
		      const char *type)
{
	if (r->wrong_type.code == 0)
		(void)!wrong_type(n, field, type, &r->wrong_type);
}

static void unsupported(struct go_reading *r, const char *what, struct text value)
{
	char shown[300];

	if (r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL, "unsupported %s %s", what,
			document_quote(value, shown, sizeof(shown)));
}

static void report_unknown(struct go_reading *r, const char *where, struct text key)
{
	char name[TEXT_ESCAPED_SIZE], shown[128];

	if (!r->unknown || r->reported_count == UNKNOWN_MAX)
		return;
	snprintf(name, sizeof(name), "%s%s", where,
		 text_escape(key, shown, sizeof(shown)));
	for (size_t i = 0; i < r->reported_count; i++) {
		if (text_equal(r->reported[i], name))
			return;
	}
	r->reported[r->reported_count].ptr = arena_text(&r->d->arena, text_of(name));
	if (!r->reported[r->reported_count].ptr)
		return;
	r->reported[r->reported_count++].len = strlen(name);
	r->unknown(r->unknown_data, name);
}

/* --- keys and values --- */

/* Upper case means lower case, and so do, for Go, U+017F (s) and U+212A (k). */
static bool key_is(struct text key, const char *name)
{
	while (*name && key.len > 0) {
		char c = key.ptr[0];
		size_t size = 1;

		if (*name == 's' && key.len >= 2 && memcmp(key.ptr, "\xc5\xbf", 2) == 0)
			size = 2;
		else if (*name == 'k' && key.len >= 3 &&
			 memcmp(key.ptr, "\xe2\x84\xaa", 3) == 0)
			size = 3;
		else if (text_lower(c) != text_lower(*name))
			return false;
		key = (struct text){ key.ptr + size, key.len - size };
		name++;
	}
	return !*name && key.len == 0;
}

static size_t key_find(struct text key, const struct schema_key *keys, size_t count)
{
	size_t i = 0;

	while (i < count && !key_is(key, keys[i].name))
		i++;
	return i;
}

/* A string; null leaves @ret as it is. */
static void read_string(struct go_reading *r, const struct node *n, const char *field,
			struct text *ret)
{
	if (n->kind == NODE_TEXT)
		*ret = n->text;
	else
		note_type(r, n, field, "string");
}

/* A value of Weir's own, as text; null means that there is none. */
static struct text own_of(const struct node *n)
{
	return n->kind == NODE_NULL ? (struct text){ 0 } : n->raw;
}

/* The values of @keys as an object. */
static int keep_own(struct document *d, const struct schema_key *keys,
		    const struct text *values, size_t count, struct text *ret)
{
	CLEAN(document_out) struct document_out out = { 0 };

	*ret = (struct text){ 0 };
	for (size_t i = 0; i < count; i++) {
		if (!values[i].ptr)
			continue;
		document_put_text(&out, out.used > 0 ? ",\"" : "{\"");
		document_put_text(&out, keys[i].name);
		document_put_text(&out, "\":");
		if (document_put_value(&out, values[i]) < 0)
			return -ENOMEM;
	}
	if (out.used == 0 && !out.failed)
		return 0;
	document_put_text(&out, "}");
	*ret = (struct text){ arena_text(&d->arena, (struct text){ out.bytes, out.used }),
			      out.used };
	return out.failed || !ret->ptr ? -ENOMEM : 0;
}

/* --- rules --- */

/* @rule is copied, its texts are not. Return: 0 or -ENOMEM. */
static int append_rule(struct document *d, const struct document_rule *rule)
{
	if (!ARRAY_GROW(d->rules, d->count, d->capacity))
		return -ENOMEM;
	d->rules[d->count++] = *rule;
	return 0;
}

/* No text means deny. */
static bool action_of(struct text t, enum policy_action *ret)
{
	t = document_trim(t);
	*ret = text_equal_nocase(t, "allow") ? POLICY_ALLOW
	       : text_equal_nocase(t, "ask") ? POLICY_ASK
					     : POLICY_DENY;
	return t.len == 0 || *ret != POLICY_DENY || text_equal_nocase(t, "deny");
}

/* What was read of a rule becomes one, unless something was wrong before. */
static void finish_rule(struct go_reading *r, struct document_rule *rule,
			struct text action)
{
	rule->target = document_trim(rule->target);
	if (!action_of(action, &rule->action))
		unsupported(r, "action", action);
	else if (rule->target.len == 0 && r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL, "egress target cannot be empty");
	if (r->wrong.code != 0 || r->wrong_type.code != 0)
		return;
	rule->target.ptr = arena_text(&r->d->arena, rule->target);
	if (!rule->target.ptr || append_rule(r->d, rule) < 0)
		r->r = -ENOMEM;
}

static void read_rule(struct go_reading *r, const struct node *n)
{
	struct document_rule rule = { .line = n->line, .column = n->column };
	struct text action = { 0 }, own[RULE_KEY_COUNT] = { 0 };

	if (n->kind != NODE_MAP)
		note_type(r, n, r->in_list ? NULL : "NetworkPolicy.egress",
			  "policy.EgressRule");
	for (const struct node *m = n->kind == NODE_MAP ? n->first : NULL; m;
	     m = m->next) {
		size_t i = key_find(m->key, schema_rule_keys, RULE_KEY_COUNT);

		if (i == RULE_KEY_ACTION)
			read_string(r, m,
				    r->in_list ? "EgressRule.action"
					       : "EgressRule.egress.action",
				    &action);
		else if (i == RULE_KEY_TARGET)
			read_string(r, m,
				    r->in_list ? "EgressRule.target"
					       : "EgressRule.egress.target",
				    &rule.target);
		else if (i < RULE_KEY_COUNT)
			own[i] = own_of(m);
		else
			report_unknown(r, "egress[].", m->key);
	}
	if (keep_own(r->d, schema_rule_keys, own, RULE_KEY_COUNT, &rule.own) < 0)
		r->r = -ENOMEM;
	else
		finish_rule(r, &rule, action);
}

/* An array of rules; of several the last counts, and null is an empty one. */
static void read_rules(struct go_reading *r, const struct node *n)
{
	if (!n || n->kind == NODE_NULL || n->kind == NODE_LIST)
		r->d->count = 0;
	else
		note_type(r, n, r->in_list ? NULL : "NetworkPolicy.egress",
			  "[]policy.EgressRule");
	n = n && n->kind == NODE_LIST ? n->first : NULL;
	for (; n && r->r == 0; n = n->next)
		read_rule(r, n);
}

/* --- the top --- */

/* A text, or null: not closed. */
static void read_closed(struct go_reading *r, const struct node *n)
{
	struct text why = { 0 };

	read_string(r, n, "NetworkPolicy.closed", &why);
	r->d->closed = (struct text){ 0 };
	if (why.ptr && set_closed(r->d, why) < 0)
		r->r = -ENOMEM;
}

static void read_member(struct go_reading *r, const struct node *n,
			struct text *default_action, struct text *own)
{
	const size_t i = key_find(n->key, schema_policy_keys, POLICY_KEY_COUNT);

	if (i == POLICY_KEY_DEFAULT_ACTION) {
		read_string(r, n, "NetworkPolicy.defaultAction", default_action);
	} else if (i == POLICY_KEY_EGRESS) {
		read_rules(r, n);
	} else if (i >= POLICY_KEY_VERIFY && i <= POLICY_KEY_DENIED_NAMES) {
		own[i] = own_of(n);
	} else if (key_is(n->key, "closed")) {
		read_closed(r, n);
	} else if (i == POLICY_KEY_EXTENDS || i == POLICY_KEY_ALLOW_LIST) {
		if (n->kind != NODE_NULL && r->wrong.code == 0)
			err_set(&r->wrong, -EINVAL,
				"'%s' can't be used here: write the rules themselves",
				schema_policy_keys[i].name);
	} else {
		report_unknown(r, "", n->key);
	}
}

static void read_go_policy(struct go_reading *r, const struct node *root)
{
	struct text default_action = { 0 }, own[POLICY_KEY_COUNT] = { 0 };

	if (!root || root->kind != NODE_MAP) {
		note_type(r, root, NULL, "policy.NetworkPolicy");
		return;
	}
	for (const struct node *n = root->first; n && r->r == 0; n = n->next)
		read_member(r, n, &default_action, own);
	if (keep_own(r->d, schema_policy_keys, own, POLICY_KEY_COUNT, &r->d->own) < 0)
		r->r = -ENOMEM;
	if (!action_of(default_action, &r->d->default_action))
		unsupported(r, "defaultAction", default_action);
}

/* @body is trimmed; NULL: it is null. */
static int parse_body(struct text body, struct policy_place start, struct arena *tree,
		      struct node **ret, struct err *err)
{
	struct err why = { 0 };
	const struct node_source source = { .arena = tree,
					    .text = body,
					    .err = &why,
					    .line = start.line,
					    .column = start.column };
	int r = node_read_json(&source, ret);

	return r < 0 ? err_set(err, r, "%s", r == -ENOMEM ? "out of memory" : why.text)
		     : 0;
}

int document_parse(struct text body, document_unknown_fn *unknown, void *data,
		   struct document **ret, struct err *err)
{
	CLEAN(document) struct document *d = document_deny_all();
	CLEAN(go_reading)
	struct go_reading r = { .d = d, .unknown = unknown, .unknown_data = data };
	const struct text trimmed = document_trim(body);
	struct policy_place start = { .line = 1, .column = 1 };
	struct node *root = NULL;
	int e;

	if (!d)
		return err_set(err, -ENOMEM, "out of memory");
	/* Faults count lines from where the white space begins. */
	for (const char *p = body.ptr; trimmed.len > 0 && p < trimmed.ptr; p++) {
		start.line += *p == '\n';
		start.column = *p == '\n' ? 1 : start.column + ((*p & 0xc0) != 0x80);
	}
	e = trimmed.len > 0 ? parse_body(trimmed, start, &r.tree, &root, err) : 0;
	if (e < 0)
		return e;
	read_go_policy(&r, root);
	if (r.r < 0)
		return err_set(err, r.r, "out of memory");
	if (r.wrong_type.code != 0)
		return err_set(err, -EINVAL, "%s", r.wrong_type.text);
	if (r.wrong.code != 0)
		return err_set(err, -EINVAL, "%s", r.wrong.text);
	*ret = TAKE_PTR(d);
	return 0;
}

int document_read_patch(struct text body, struct document **ret, struct err *err)
{
	CLEAN(document) struct document *d = document_deny_all();
	CLEAN(go_reading) struct go_reading r = { .d = d, .in_list = true };
	struct node *root;
	int e;

	body = document_trim(body);
	if (!d)
		return err_set(err, -ENOMEM, "out of memory");
	if (body.len == 0)
		return err_set(err, -EINVAL, "empty body");
	e = parse_body(body, (struct policy_place){ 0 }, &r.tree, &root, err);
	if (e < 0)
		return e == -EINVAL ? err_context(err, "invalid patch rules") : e;
	read_rules(&r, root);
	if (r.r < 0)
		return err_set(err, r.r, "out of memory");
	if (r.wrong_type.code != 0)
		return err_set(err, -EINVAL, "invalid patch rules: %s",
			       r.wrong_type.text);
	if (r.wrong.code != 0)
		return err_set(err, -EINVAL, "invalid merged policy: %s", r.wrong.text);
	if (d->count == 0)
		return err_set(err, -EINVAL, "invalid patch rules: empty array");
	*ret = TAKE_PTR(d);
	return 0;
}

/* --- ends of rules --- */

/* "\"10m\"" from @now_ms on, as "\"2026-11-20T13:31:08.000Z\"". Return: false: @value is
 * no such time, or memory is out. */
static bool end_of(struct arena *arena, struct text value, int64_t now_ms,
		   struct text *ret)
{
	char time[JTEXT_TIME_SIZE];
	int64_t ms;

	if (value.len < 2 || value.ptr[0] != '"' ||
	    !text_to_duration_ms((struct text){ value.ptr + 1, value.len - 2 }, &ms) ||
	    ms < RULE_FOR_MIN_MS || ms > RULE_FOR_MAX_MS)
		return false;
	ret->ptr = arena_printf(arena, "\"%s\"", jtext_time(now_ms + ms, true, time));
	ret->len = ret->ptr ? strlen(ret->ptr) : 0;
	return ret->ptr;
}

static bool has_member(const struct document_rule *rule, const char *quoted)
{
	return rule->own.len > 0 &&
	       memmem(rule->own.ptr, rule->own.len, quoted, strlen(quoted));
}

static bool ends(const struct document_rule *rule)
{
	return has_member(rule, "\"until\":") || has_member(rule, "\"for\":");
}

/* @value is the time of an end that is over at @now_ms. */
static bool is_over(struct text value, int64_t now_ms)
{
	int64_t end_ms;

	return value.len > 2 && value.ptr[0] == '"' &&
	       timestamp_parse((struct text){ value.ptr + 1, value.len - 2 }, &end_ms) &&
	       end_ms <= now_ms;
}

int document_read_own(const struct document_rule *rule, struct text ret[RULE_KEY_COUNT])
{
	CLEAN(arena) struct arena tree = { 0 };
	struct node *map = NULL;
	int r = rule->own.len > 0 ? parse_body(rule->own, (struct policy_place){ 0 },
					       &tree, &map, NULL)
				  : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; i < RULE_KEY_COUNT; i++) {
		const struct node *n = node_find(map, text_of(schema_rule_keys[i].name));

		ret[i] = n ? n->raw : (struct text){ 0 };
	}
	return 0;
}

int document_write_own(struct document *d, const struct text own[RULE_KEY_COUNT],
		       struct text *ret)
{
	return keep_own(d, schema_rule_keys, own, RULE_KEY_COUNT, ret);
}

/* Return: 1: the rule has ended; 0; or -ENOMEM. */
static int settle_rule(struct document *d, struct document_rule *rule, int64_t now_ms)
{
	struct text own[RULE_KEY_COUNT], end;
	int r = document_read_own(rule, own);

	if (r < 0)
		return r;
	/* No deny may end: that is refused when a policy is made of it. */
	if (rule->action == POLICY_ALLOW && !own[RULE_KEY_FOR].ptr &&
	    is_over(own[RULE_KEY_UNTIL], now_ms))
		return 1;
	if (!own[RULE_KEY_FOR].ptr || own[RULE_KEY_UNTIL].ptr ||
	    !end_of(&d->arena, own[RULE_KEY_FOR], now_ms, &end))
		return 0;
	own[RULE_KEY_UNTIL] = end;
	own[RULE_KEY_FOR] = (struct text){ 0 };
	return document_write_own(d, own, &rule->own);
}

int document_settle_ends(struct document *d, int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->count; i++) {
		int r = ends(&d->rules[i]) ? settle_rule(d, &d->rules[i], now_ms) : 0;

		if (r < 0)
			return r;
		if (r == 0)
			d->rules[kept++] = d->rules[i];
	}
	d->count = kept;
	return 0;
}

/* --- questions --- */

size_t document_rule_count(const struct document *d)
{
	return d->count;
}

const char *document_mode(const struct document *d)
{
	if (d->closed.ptr)
		return "deny_all";
	if (d->count > 0 || d->default_action == POLICY_ASK)
		return "enforcing";
	return d->default_action == POLICY_ALLOW ? "allow_all" : "deny_all";
}

bool document_same_text(struct text a, struct text b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool document_equal(const struct document *a, const struct document *b)
{
	if (a->default_action != b->default_action || a->count != b->count ||
	    !document_same_text(a->own, b->own) || !a->closed.ptr != !b->closed.ptr ||
	    !document_same_text(a->closed, b->closed))
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct document_rule *x = &a->rules[i], *y = &b->rules[i];

		if (x->action != y->action || !document_same_text(x->target, y->target) ||
		    !document_same_text(x->own, y->own))
			return false;
	}
	return true;
}

/* --- documents made of others: patched, or with rules taken away --- */

static int copy_text(struct document *d, struct text t, struct text *ret)
{
	*ret = (struct text){ t.len > 0 ? arena_text(&d->arena, t) : NULL, t.len };
	return t.len == 0 || ret->ptr ? 0 : -ENOMEM;
}

int document_copy_rule(struct document *d, const struct document_rule *rule)
{
	struct document_rule copy = { .action = rule->action };
	int r = copy_text(d, rule->target, &copy.target);

	if (r == 0)
		r = copy_text(d, rule->own, &copy.own);
	return r == 0 ? append_rule(d, &copy) : r;
}

struct document *document_copy_settings(const struct document *old)
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

/* A target among others, and its position. */
struct entry {
	struct text target;
	const struct document_rule *rule; /* NULL: a target alone */
	size_t order;
	bool is_new, dropped;
};

int document_compare_targets(struct text a, struct text b)
{
	int c = strncasecmp(a.ptr, b.ptr, MIN(a.len, b.len));

	return c != 0 ? c : a.len < b.len ? -1 : a.len > b.len;
}

static int compare_entries(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;
	int c = document_compare_targets(x->target, y->target);

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

/* Behind a rule that ends its target is decided by the next one that doesn't. */
static void drop_superseded(struct entry *entries, size_t count)
{
	qsort(entries, count, sizeof(*entries), compare_entries);
	for (size_t i = 0, first = 0; i < count; i++) {
		if (document_compare_targets(entries[first].target, entries[i].target) !=
			    0 ||
		    (ends(entries[first].rule) && !ends(entries[i].rule)))
			first = i;
		if (i == first)
			continue;
		/* A deny of an address counts wherever it stands, so a change of other
		 * rules must not take one away. */
		entries[i].dropped = entries[first].is_new ||
				     entries[first].rule->action == POLICY_DENY ||
				     entries[i].rule->action != POLICY_DENY ||
				     !is_address(entries[i].target);
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
	d = document_copy_settings(old);
	entries = calloc(patch->count + old->count, sizeof(*entries));
	if (!d || !entries)
		return err_set(err, -ENOMEM, "out of memory");
	add_entries(entries, &count, patch, true);
	add_entries(entries, &count, old, false);
	drop_superseded(entries, count);
	for (size_t i = 0; i < count; i++) {
		if (!entries[i].dropped && document_copy_rule(d, entries[i].rule) < 0)
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
	if (!ARRAY_GROW(t->items, t->count, t->capacity))
		return err_set(err, -ENOMEM, "out of memory");
	t->items[t->count++] = (struct entry){ .target = text };
	return 0;
}

static int read_targets(struct text body, struct targets *t, struct err *err)
{
	struct node *root;
	int r = parse_body(body, (struct policy_place){ 0 }, &t->arena, &root, err);

	if (r < 0)
		return r;
	if (root && root->kind != NODE_LIST)
		return wrong_type(root, NULL, "[]string", err);
	for (const struct node *n = root ? root->first : NULL; n && r == 0; n = n->next) {
		if (n->kind != NODE_TEXT)
			r = wrong_type(n, NULL, "string", err);
		if (r == 0)
			r = keep_target(t,
					n->kind == NODE_TEXT ? document_trim(n->text)
							     : (struct text){ 0 },
					err);
	}
	if (r == 0 && !t->any)
		return err_set(err, -EINVAL, "empty array");
	return r;
}

static int compare_only_targets(const void *a, const void *b)
{
	const struct entry *x = a, *y = b;

	return document_compare_targets(x->target, y->target);
}

int document_remove(const struct document *old, struct text body, struct document **ret,
		    struct err *err)
{
	CLEAN(targets) struct targets t = { 0 };
	CLEAN(document) struct document *d = document_copy_settings(old);
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
		    document_copy_rule(d, &old->rules[i]) < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	*ret = d->count < old->count ? TAKE_PTR(d) : NULL;
	return 0;
}
