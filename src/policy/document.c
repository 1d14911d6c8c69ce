// SPDX-License-Identifier: Apache-2.0
/* Documents: read, patched, compared. */
#include "policy/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/document_internal.h"

enum { RULE_KEYS = 7, TOP_KEYS = 6, UNKNOWN_MAX = 32 /* more aren't told */ };

static const char *const rule_keys[RULE_KEYS] = {
	"ports", "types", "private", "raw", "required", "unmetered", "comment",
};
static const char *const top_keys[TOP_KEYS] = {
	"verify", "dns", "repin", "limits", "on_denies", "require_full_isolation",
};

/* One body that is being read. Of what is wrong with it the first of each sort is kept:
 * a value of the wrong type is told before a value that means nothing. */
struct reading {
	struct json_cursor c;
	struct document *d;
	struct err wrong_type, wrong;
	document_unknown_fn *unknown;
	void *unknown_data;
	struct text told[UNKNOWN_MAX];
	size_t told_count;
	bool in_list; /* the rules are the whole body: a patch */
	int r;	      /* -ENOMEM */
};

static bool out_of_memory(struct reading *r)
{
	r->r = -ENOMEM;
	return false;
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
	char shown[TEXT_ESCAPED_SIZE];

	if (!d->closed.ptr)
		return 0;
	return err_set(err, -EPERM,
		       "the sandbox is closed (%s): only another policy opens it",
		       text_escape(d->closed, shown, sizeof(shown)));
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

/* "NetworkPolicy.egress" and its type, as the reference's program names them. */
static void wrong_type(struct reading *r, enum json_kind k, const char *field,
		       const char *type)
{
	if (r->wrong_type.code != 0)
		return;
	if (field)
		err_set(&r->wrong_type, -EINVAL,
			"json: cannot unmarshal %s into Go struct field %s of type %s",
			json_kind_name(k), field, type);
	else
		err_set(&r->wrong_type, -EINVAL,
			"json: cannot unmarshal %s into Go value of type %s",
			json_kind_name(k), type);
}

static void unsupported(struct reading *r, const char *what, struct text value)
{
	char shown[300];

	if (r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL, "unsupported %s %s", what,
			document_quote(value, shown, sizeof(shown)));
}

static void tell_unknown(struct reading *r, const char *where, struct text key)
{
	char name[TEXT_ESCAPED_SIZE], shown[128];

	if (!r->unknown || r->told_count == UNKNOWN_MAX)
		return;
	snprintf(name, sizeof(name), "%s%s", where,
		 text_escape(key, shown, sizeof(shown)));
	for (size_t i = 0; i < r->told_count; i++) {
		if (text_equal(r->told[i], name))
			return;
	}
	r->told[r->told_count].ptr = arena_text(&r->d->arena, text_of(name));
	if (!r->told[r->told_count].ptr)
		return;
	r->told[r->told_count++].len = strlen(name);
	r->unknown(r->unknown_data, name);
}

/* --- keys and values --- */

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

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
		else if (lower(c) != lower(*name))
			return false;
		key = (struct text){ key.ptr + size, key.len - size };
		name++;
	}
	return !*name && key.len == 0;
}

static size_t key_find(struct text key, const char *const *names, size_t count)
{
	size_t i = 0;

	while (i < count && !key_is(key, names[i]))
		i++;
	return i;
}

/* A string; null leaves @ret as it is. */
static void read_string(struct reading *r, const char *field, struct text *ret)
{
	enum json_kind k = json_cursor_peek(&r->c);

	if (k != JSON_KIND_STRING) {
		if (k != JSON_KIND_NULL)
			wrong_type(r, k, field, "string");
		json_cursor_skip(&r->c);
	} else if (json_cursor_string(&r->c, &r->d->arena, ret) < 0) {
		out_of_memory(r);
	}
}

/* A value that is kept as it is; null takes it away. */
static void read_own(struct reading *r, struct text *ret)
{
	bool absent = json_cursor_peek(&r->c) == JSON_KIND_NULL;
	struct text value = json_cursor_skip(&r->c);

	*ret = absent ? (struct text){ 0 } : value;
}

/* The values of the keys @names, as members in the order of the names. */
static void keep_own(struct reading *r, const char *const *names,
		     const struct text *values, size_t count, struct text *ret)
{
	CLEAN(document_out) struct document_out out = { 0 };

	for (size_t i = 0; i < count; i++) {
		if (!values[i].ptr)
			continue;
		document_put_text(&out, out.used > 0 ? ",\"" : "\"");
		document_put_text(&out, names[i]);
		document_put_text(&out, "\":");
		if (document_put_value(&out, values[i]) < 0)
			r->r = -ENOMEM;
	}
	if (out.used == 0 && !out.failed)
		return;
	*ret = (struct text){
		arena_text(&r->d->arena, (struct text){ out.bytes, out.used }), out.used
	};
	if (out.failed || !ret->ptr)
		out_of_memory(r);
}

/* --- rules --- */

int document_append(struct document *d, const struct document_rule *rule)
{
	if (d->count == d->capacity) {
		size_t capacity = MAX(2 * d->capacity, (size_t)16);
		struct document_rule *more =
			reallocarray(d->rules, capacity, sizeof(*more));

		if (!more)
			return -ENOMEM;
		d->rules = more;
		d->capacity = capacity;
	}
	d->rules[d->count++] = *rule;
	return 0;
}

/* No text means deny. */
static bool action_of(struct text t, enum policy_action *ret)
{
	t = document_trim(t);
	*ret = text_equal_nocase(t, "allow") ? POLICY_ALLOW : POLICY_DENY;
	return t.len == 0 || *ret == POLICY_ALLOW || text_equal_nocase(t, "deny");
}

/* What was read of a rule becomes one, unless something was wrong before. */
static void finish_rule(struct reading *r, struct document_rule *rule, struct text action)
{
	rule->target = document_trim(rule->target);
	if (!action_of(action, &rule->action))
		unsupported(r, "action", action);
	else if (rule->target.len == 0 && r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL, "egress target cannot be empty");
	if (r->wrong.code != 0 || r->wrong_type.code != 0)
		return;
	rule->target.ptr = arena_text(&r->d->arena, rule->target);
	if (!rule->target.ptr || document_append(r->d, rule) < 0)
		out_of_memory(r);
}

static void read_rule_member(struct reading *r, struct document_rule *rule,
			     struct text *action, struct text *own)
{
	struct text key;
	size_t i;

	if (json_cursor_string(&r->c, &r->d->arena, &key) < 0) {
		out_of_memory(r);
		return;
	}
	if (key_is(key, "action")) {
		read_string(r,
			    r->in_list ? "EgressRule.action" : "EgressRule.egress.action",
			    action);
	} else if (key_is(key, "target")) {
		read_string(r,
			    r->in_list ? "EgressRule.target" : "EgressRule.egress.target",
			    &rule->target);
	} else if ((i = key_find(key, rule_keys, RULE_KEYS)) < RULE_KEYS) {
		read_own(r, &own[i]);
	} else {
		tell_unknown(r, "egress[].", key);
		json_cursor_skip(&r->c);
	}
}

static void read_rule(struct reading *r)
{
	enum json_kind k = json_cursor_peek(&r->c);
	struct document_rule rule = { .line = r->c.line, .column = r->c.column };
	struct text action = { 0 }, own[RULE_KEYS] = { 0 };

	if (k != JSON_KIND_OBJECT) {
		if (k != JSON_KIND_NULL)
			wrong_type(r, k, r->in_list ? NULL : "NetworkPolicy.egress",
				   "policy.EgressRule");
		json_cursor_skip(&r->c);
	} else {
		json_cursor_enter(&r->c);
		while (r->r == 0 && json_cursor_next(&r->c))
			read_rule_member(r, &rule, &action, own);
		keep_own(r, rule_keys, own, RULE_KEYS, &rule.own);
	}
	if (r->r == 0)
		finish_rule(r, &rule, action);
}

/* An array of rules; of several the last counts, and null is an empty one. */
static void read_rules(struct reading *r)
{
	enum json_kind k = json_cursor_peek(&r->c);

	if (k != JSON_KIND_ARRAY) {
		if (k != JSON_KIND_NULL)
			wrong_type(r, k, r->in_list ? NULL : "NetworkPolicy.egress",
				   "[]policy.EgressRule");
		else
			r->d->count = 0;
		json_cursor_skip(&r->c);
		return;
	}
	r->d->count = 0;
	json_cursor_enter(&r->c);
	while (r->r == 0 && json_cursor_next(&r->c))
		read_rule(r);
}

/* --- the top --- */

static void refuse_key(struct reading *r, const char *key)
{
	if (json_cursor_peek(&r->c) != JSON_KIND_NULL && r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL,
			"'%s' can't be used here: write the rules themselves", key);
	json_cursor_skip(&r->c);
}

/* A text, or null: not closed. */
static void read_closed(struct reading *r)
{
	struct text why = { 0 };

	read_string(r, "NetworkPolicy.closed", &why);
	r->d->closed = (struct text){ 0 };
	if (why.ptr && set_closed(r->d, why) < 0)
		out_of_memory(r);
}

static void read_member(struct reading *r, struct text *default_action, struct text *own)
{
	struct text key;
	size_t i;

	if (json_cursor_string(&r->c, &r->d->arena, &key) < 0) {
		out_of_memory(r);
		return;
	}
	i = key_find(key, top_keys, TOP_KEYS);
	if (key_is(key, "defaultAction")) {
		read_string(r, "NetworkPolicy.defaultAction", default_action);
	} else if (key_is(key, "egress")) {
		read_rules(r);
	} else if (i < TOP_KEYS) {
		read_own(r, &own[i]);
	} else if (key_is(key, "closed")) {
		read_closed(r);
	} else if (key_is(key, "extends")) {
		refuse_key(r, "extends");
	} else if (key_is(key, "allow-list")) {
		refuse_key(r, "allow-list");
	} else {
		tell_unknown(r, "", key);
		json_cursor_skip(&r->c);
	}
}

static void read_policy(struct reading *r)
{
	struct text default_action = { 0 }, own[TOP_KEYS] = { 0 };
	enum json_kind k = json_cursor_peek(&r->c);

	if (k != JSON_KIND_OBJECT) {
		if (k != JSON_KIND_NULL)
			wrong_type(r, k, NULL, "policy.NetworkPolicy");
		return;
	}
	json_cursor_enter(&r->c);
	while (r->r == 0 && json_cursor_next(&r->c))
		read_member(r, &default_action, own);
	keep_own(r, top_keys, own, TOP_KEYS, &r->d->own);
	if (!action_of(default_action, &r->d->default_action))
		unsupported(r, "defaultAction", default_action);
}

/* A new document to read @body into; its text is checked. */
static int reading_begin(struct reading *r, struct text body, struct err *err)
{
	int e = document_scan(body, err);

	if (e < 0)
		return e;
	r->c = (struct json_cursor){ body.ptr, body.ptr + body.len, 1, 1 };
	r->d = document_deny_all();
	return r->d ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* Where body of a text with white space around it begins. */
static void place_behind(struct json_cursor *c, struct text whole)
{
	for (const char *p = whole.ptr; p < c->p; p++) {
		c->line += *p == '\n';
		c->column = *p == '\n' ? 1 : c->column + ((*p & 0xc0) != 0x80);
	}
}

int document_parse(struct text body, document_unknown_fn *unknown, void *data,
		   struct document **ret, struct err *err)
{
	struct text trimmed = document_trim(body);
	struct reading r = { .unknown = unknown, .unknown_data = data };
	CLEAN(document) struct document *d = NULL;
	int e;

	if (trimmed.len == 0) {
		*ret = document_deny_all();
		return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
	}
	e = reading_begin(&r, trimmed, err);
	d = r.d;
	if (e < 0)
		return e;
	place_behind(&r.c, body);
	read_policy(&r);
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
	struct reading r = { .in_list = true };
	CLEAN(document) struct document *d = NULL;
	int e;

	body = document_trim(body);
	if (body.len == 0)
		return err_set(err, -EINVAL, "empty body");
	e = reading_begin(&r, body, err);
	d = r.d;
	if (e < 0)
		return e == -EINVAL ? err_context(err, "invalid patch rules") : e;
	read_rules(&r);
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

/* --- questions --- */

size_t document_rule_count(const struct document *d)
{
	return d->count;
}

const char *document_mode(const struct document *d)
{
	if (d->closed.ptr)
		return "deny_all";
	if (d->count > 0)
		return "enforcing";
	return d->default_action == POLICY_ALLOW ? "allow_all" : "deny_all";
}

static bool same_text(struct text a, struct text b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool document_equal(const struct document *a, const struct document *b)
{
	if (a->default_action != b->default_action || a->count != b->count ||
	    !same_text(a->own, b->own) || !a->closed.ptr != !b->closed.ptr ||
	    !same_text(a->closed, b->closed))
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct document_rule *x = &a->rules[i], *y = &b->rules[i];

		if (x->action != y->action || !same_text(x->target, y->target) ||
		    !same_text(x->own, y->own))
			return false;
	}
	return true;
}
