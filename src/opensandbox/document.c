// SPDX-License-Identifier: Apache-2.0
/* Documents: read, written, compared. */
#include "opensandbox/document.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/sha256.h"
#include "event/json.h"
#include "opensandbox/document_internal.h"

/* --- JSON as Go writes it --- */

enum { ESCAPE_SIZE = 8 };

/* What @t begins with, escaped where Go does that, to @buf of ESCAPE_SIZE bytes. Return:
 * how many bytes of @t that is. */
static size_t escape_go(struct text t, char *buf)
{
	static const char names[] = "\"\"\\\\b\bf\fn\nr\rt\t";
	const unsigned char c = (unsigned char)t.ptr[0];

	/* U+2028 and U+2029 end a line in JavaScript. */
	if (t.len >= 3 && (memcmp(t.ptr, "\xe2\x80\xa8", 3) == 0 ||
			   memcmp(t.ptr, "\xe2\x80\xa9", 3) == 0)) {
		snprintf(buf, ESCAPE_SIZE, "\\u202%c", t.ptr[2] == '\xa8' ? '8' : '9');
		return 3;
	}
	for (size_t i = 0; i + 1 < sizeof(names); i += 2) {
		if (t.ptr[0] == names[i + 1]) {
			snprintf(buf, ESCAPE_SIZE, "\\%c", names[i]);
			return 1;
		}
	}
	buf[0] = t.ptr[0];
	buf[1] = '\0';
	if (c < 0x20 || strchr("<>&", c))
		snprintf(buf, ESCAPE_SIZE, "\\u%04x", c);
	return 1;
}

/* With Go's escapes. */
static void put_escaped(struct jtext *o, struct text t)
{
	static const bool may_be_escaped[UINT8_MAX + 1] = {
		[0 ... 0x1f] = true, ['"'] = true, ['\\'] = true, ['<'] = true,
		['>'] = true,	     ['&'] = true, [0xe2] = true,
	};
	char escape[ESCAPE_SIZE];

	while (t.len > 0) {
		size_t size = 0;

		while (size < t.len && !may_be_escaped[(uint8_t)t.ptr[size]])
			size++;
		jtext_put(o, (struct text){ t.ptr, size });
		t = (struct text){ t.ptr + size, t.len - size };
		if (t.len == 0)
			break;
		size = escape_go(t, escape);
		jtext_put(o, text_of(escape));
		t = (struct text){ t.ptr + size, t.len - size };
	}
}

static void put_string(struct jtext *o, struct text t)
{
	jtext_put(o, text_of("\""));
	put_escaped(o, t);
	jtext_put(o, text_of("\""));
}

/* Behind the string that begins at @t. */
static size_t string_size(struct text t)
{
	size_t i = 1;

	while (i < t.len && t.ptr[i] != '"')
		i += t.ptr[i] == '\\' ? 2 : 1;
	return MIN(i + 1, t.len);
}

/* A value that was let pass, compact and with Go's escapes. Return: 0 or -ENOMEM. */
static int put_value(struct jtext *o, struct text value)
{
	int r = 0;

	while (r == 0 && value.len > 0) {
		size_t size = 0;

		while (size < value.len && value.ptr[size] != '"' &&
		       !text_is_blank(value.ptr[size]))
			size++;
		jtext_put(o, (struct text){ value.ptr, size });
		value = (struct text){ value.ptr + size, value.len - size };
		if (value.len == 0)
			break;
		size = *value.ptr == '"' ? string_size(value) : 1;
		if (*value.ptr == '"') {
			CLEAN(arena) struct arena arena = { 0 };
			struct text t;
			bool lost;

			r = node_json_string((struct text){ value.ptr, size }, &arena, &t,
					     &lost);
			if (r == 0)
				put_string(o, t);
		}
		value = (struct text){ value.ptr + size, value.len - size };
	}
	return r < 0 ? r : o->full ? -ENOMEM : 0;
}

/* --- whole documents --- */

static void put_own(struct jtext *o, struct text own)
{
	if (own.len == 0)
		return;
	jtext_put(o, text_of(","));
	jtext_put(o, (struct text){ own.ptr + 1, own.len - 2 });
}

static void put_rules(struct jtext *o, const struct document *d)
{
	jtext_put(o, text_of("["));
	for (size_t i = 0; i < d->count; i++) {
		const struct document_rule *r = &d->rules[i];

		jtext_put(o, text_of(i > 0 ? ",{\"action\":\"" : "{\"action\":\""));
		jtext_put(o, text_of(policy_action_name(r->action)));
		jtext_put(o, text_of("\",\"target\":\""));
		put_escaped(o, r->target);
		jtext_put(o, text_of("\""));
		put_own(o, r->own);
		jtext_put(o, text_of("}"));
	}
	jtext_put(o, text_of("]"));
}

static void put_line(struct jtext *o, size_t depth)
{
	static const char blanks[] = "\n                ";

	jtext_put(o, (struct text){ blanks, 1 + MIN(2 * depth, sizeof(blanks) - 2) });
	for (size_t i = (sizeof(blanks) - 2) / 2; i < depth; i++)
		jtext_put(o, text_of("  "));
}

/* Compact JSON with line ends and blanks. */
static void put_pretty(struct jtext *o, struct text t)
{
	size_t depth = 0;

	for (size_t i = 0, size; i < t.len; i += size) {
		const char byte = t.ptr[i];
		const bool opens = byte == '{' || byte == '[';
		const bool closes = byte == '}' || byte == ']';
		const bool is_empty = closes &&
				      (t.ptr[i - 1] == '{' || t.ptr[i - 1] == '[');

		size = byte == '"' ? string_size((struct text){ t.ptr + i, t.len - i })
				   : 1;
		depth += opens;
		depth -= closes;
		if (closes && !is_empty)
			put_line(o, depth);
		jtext_put(o, (struct text){ t.ptr + i, size });
		if ((opens && t.ptr[i + 1] != '}' && t.ptr[i + 1] != ']') || byte == ',')
			put_line(o, depth);
		else if (byte == ':')
			jtext_put(o, text_of(" "));
	}
	jtext_put(o, text_of("\n"));
}

char *document_json(const struct document *d, bool pretty)
{
	CLEAN(jtext) struct jtext out = { .grows = true }, indented = { .grows = true };

	jtext_put(&out, text_of("{\"egress\":"));
	put_rules(&out, d);
	jtext_put(&out, text_of(",\"defaultAction\":\""));
	jtext_put(&out, text_of(policy_action_name(d->default_action)));
	jtext_put(&out, text_of("\""));
	put_own(&out, d->own);
	if (d->closed.ptr) {
		jtext_put(&out, text_of(",\"closed\":"));
		put_string(&out, d->closed);
	}
	jtext_put(&out, text_of("}"));
	if (!pretty || out.full)
		return jtext_take(&out);
	put_pretty(&indented, (struct text){ out.buf, out.used });
	return jtext_take(&indented);
}

void document_tag(const char *json, char ret[DOCUMENT_TAG_SIZE])
{
	uint8_t digest[SHA256_SIZE];
	struct sha256 s;
	size_t used = 1;

	sha256_init(&s);
	sha256_add(&s, json, strlen(json));
	sha256_end(&s, digest);
	ret[0] = '"';
	for (size_t i = 0; used < DOCUMENT_TAG_SIZE - 2; i++, used += 2)
		snprintf(ret + used, DOCUMENT_TAG_SIZE - used, "%02x", digest[i]);
	snprintf(ret + used, DOCUMENT_TAG_SIZE - used, "\"");
}

bool document_is_named(const struct document *d, struct text list)
{
	CLEAN(mem) char *json = list.len > 0 ? document_json(d, false) : NULL;
	char tag[DOCUMENT_TAG_SIZE];
	struct text part;

	if (!json)
		return false;
	document_tag(json, tag);
	while (text_split(&list, ',', &part))
		if (text_equal(text_trim(part), "*") || text_equal(text_trim(part), tag))
			return true;
	return false;
}

char *document_rules_json(const struct document *d)
{
	CLEAN(jtext) struct jtext out = { .grows = true };

	put_rules(&out, d);
	return jtext_take(&out);
}

/* --- white space --- */

/* How many bytes of white space @t begins with: 0 to 3. */
static size_t space_ahead(struct text t)
{
	static const char *const wide[] = {
		"\xc2\x85",	"\xc2\xa0",	"\xe1\x9a\x80", "\xe2\x80\xa8",
		"\xe2\x80\xa9", "\xe2\x80\xaf", "\xe2\x81\x9f", "\xe3\x80\x80",
	};

	if (t.len == 0)
		return 0;
	if ((uint8_t)t.ptr[0] < 0x80)
		return t.ptr[0] == ' ' || (t.ptr[0] >= '\t' && t.ptr[0] <= '\r');
	for (size_t i = 0; i < ARRAY_SIZE(wide); i++) {
		size_t size = strlen(wide[i]);

		if (t.len >= size && memcmp(t.ptr, wide[i], size) == 0)
			return size;
	}
	/* U+2000 to U+200A */
	if (t.len >= 3 && memcmp(t.ptr, "\xe2\x80", 2) == 0 &&
	    (uint8_t)t.ptr[2] >= 0x80 && (uint8_t)t.ptr[2] <= 0x8a)
		return 3;
	return 0;
}

static size_t space_behind(struct text t)
{
	if (t.len > 0 && (uint8_t)t.ptr[t.len - 1] < 0x80)
		return space_ahead((struct text){ t.ptr + t.len - 1, 1 });
	for (size_t size = 1; size <= 3 && size <= t.len; size++) {
		struct text last = { t.ptr + t.len - size, size };

		if (space_ahead(last) == size)
			return size;
	}
	return 0;
}

struct text document_trim(struct text t)
{
	size_t n;

	/* No white space begins or ends with such a byte. */
	if (t.len > 0 && t.ptr[0] > ' ' && t.ptr[0] < 0x7f && t.ptr[t.len - 1] > ' ' &&
	    t.ptr[t.len - 1] < 0x7f)
		return t;
	while ((n = space_ahead(t)) > 0)
		t = (struct text){ t.ptr + n, t.len - n };
	while ((n = space_behind(t)) > 0)
		t.len -= n;
	return t;
}

/* --- reading --- */

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
	return err_set(err, -EPERM, DOCUMENT_IS_CLOSED, TEXT_SHOWN(d->closed));
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

int document_wrong_type(const struct node *n, const char *field, const char *type,
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
		(void)!document_wrong_type(n, field, type, &r->wrong_type);
}

/* @value as Go's %q shows it, cut to fit. */
static void unsupported(struct go_reading *r, const char *what, struct text value)
{
	char quoted[300] = "\"";
	size_t used = 1;

	if (r->wrong.code != 0)
		return;
	for (size_t i = 0; i < value.len;) {
		struct text one = { value.ptr + i, 1 };
		char shown[16];
		const char *s;

		while (one.len < 4 && i + one.len < value.len &&
		       (one.ptr[one.len] & 0xc0) == 0x80)
			one.len++;
		s = node_go_quoted(one, '"', shown, sizeof(shown));
		if (used + strlen(s) + sizeof("...\"") > sizeof(quoted)) {
			memcpy(quoted + used, "...", 3);
			used += 3;
			break;
		}
		memcpy(quoted + used, s, strlen(s));
		used += strlen(s);
		i += one.len;
	}
	quoted[used++] = '"';
	quoted[used] = '\0';
	err_set(&r->wrong, -EINVAL, "unsupported %s %s", what, quoted);
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
	if (text_equal(key, name))
		return true;
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

int document_write_own(struct document *d, const struct schema_key *keys,
		       const struct text *values, size_t count, struct text *ret)
{
	CLEAN(jtext) struct jtext out = { .grows = true };

	*ret = (struct text){ 0 };
	for (size_t i = 0; i < count; i++) {
		if (!values[i].ptr)
			continue;
		jtext_put(&out, text_of(out.used > 0 ? ",\"" : "{\""));
		jtext_put(&out, text_of(keys[i].name));
		jtext_put(&out, text_of("\":"));
		if (put_value(&out, values[i]) < 0)
			return -ENOMEM;
	}
	if (out.used == 0 && !out.full)
		return 0;
	jtext_put(&out, text_of("}"));
	*ret = (struct text){ arena_text(&d->arena, (struct text){ out.buf, out.used }),
			      out.used };
	return out.full || !ret->ptr ? -ENOMEM : 0;
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

static void read_rule(struct go_reading *r, const struct node *n)
{
	struct document_rule rule = { .line = n->line, .column = n->column };
	struct text action = { 0 }, own[RULE_KEY_COUNT] = { 0 };
	bool has_own = false;

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
		has_own |= i < RULE_KEY_COUNT && own[i].ptr;
	}
	if (has_own && document_write_own(r->d, schema_rule_keys, own, RULE_KEY_COUNT,
					  &rule.own) < 0) {
		r->r = -ENOMEM;
		return;
	}
	rule.target = document_trim(rule.target);
	if (!action_of(action, &rule.action))
		unsupported(r, "action", action);
	else if (rule.target.len == 0 && r->wrong.code == 0)
		err_set(&r->wrong, -EINVAL, "egress target cannot be empty");
	/* The entry becomes a rule unless something was wrong, here or before. */
	if (r->wrong.code != 0 || r->wrong_type.code != 0)
		return;
	rule.target.ptr = arena_text(&r->d->arena, rule.target);
	if (!rule.target.ptr || append_rule(r->d, &rule) < 0)
		r->r = -ENOMEM;
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

static void read_go_policy(struct go_reading *r, const struct node *root)
{
	struct text default_action = { 0 }, own[POLICY_KEY_COUNT] = { 0 };

	if (!root || root->kind != NODE_MAP) {
		note_type(r, root, NULL, "policy.NetworkPolicy");
		return;
	}
	for (const struct node *n = root->first; n && r->r == 0; n = n->next) {
		const size_t i = key_find(n->key, schema_policy_keys, POLICY_KEY_COUNT);

		if (i == POLICY_KEY_DEFAULT_ACTION) {
			read_string(r, n, "NetworkPolicy.defaultAction", &default_action);
		} else if (i == POLICY_KEY_EGRESS) {
			read_rules(r, n);
		} else if (i >= POLICY_KEY_VERIFY && i <= POLICY_KEY_DENIED_NAMES) {
			own[i] = own_of(n);
		} else if (key_is(n->key, "closed")) {
			struct text why = { 0 };

			/* A text, or null: not closed. */
			read_string(r, n, "NetworkPolicy.closed", &why);
			r->d->closed = (struct text){ 0 };
			if (why.ptr && set_closed(r->d, why) < 0)
				r->r = -ENOMEM;
		} else if (i == POLICY_KEY_EXTENDS || i == POLICY_KEY_ALLOW_LIST) {
			if (n->kind != NODE_NULL && r->wrong.code == 0)
				err_set(&r->wrong, -EINVAL,
					"'%s' can't be used here: write the rules "
					"themselves",
					schema_policy_keys[i].name);
		} else {
			report_unknown(r, "", n->key);
		}
	}
	if (document_write_own(r->d, schema_policy_keys, own, POLICY_KEY_COUNT,
			       &r->d->own) < 0)
		r->r = -ENOMEM;
	if (!action_of(default_action, &r->d->default_action))
		unsupported(r, "defaultAction", default_action);
}

int document_parse_body(struct text body, struct policy_place start, struct arena *tree,
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
	e = trimmed.len > 0 ? document_parse_body(trimmed, start, &r.tree, &root, err)
			    : 0;
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

static void keep_first_key(void *data, const char *key)
{
	char *first = data;

	if (!first[0])
		snprintf(first, TEXT_ESCAPED_SIZE, "%s", key);
}

int document_parse_strict(struct text body, struct document **ret, struct err *err)
{
	CLEAN(document) struct document *d = NULL;
	char unknown[TEXT_ESCAPED_SIZE] = "";
	int r = document_parse(body, keep_first_key, unknown, &d, err);

	if (r < 0)
		return r;
	if (unknown[0])
		return err_set(err, -EINVAL, "unknown key '%s'", unknown);
	*ret = TAKE_PTR(d);
	return 0;
}

int document_read_patch(const struct document *old, struct text body,
			document_unknown_fn *unknown, void *data, struct document **ret,
			struct err *err)
{
	CLEAN(document) struct document *d = document_deny_all();
	CLEAN(go_reading)
	struct go_reading r = {
		.d = d, .in_list = true, .unknown = unknown, .unknown_data = data
	};
	struct node *root;
	int e = document_check_open(old, err);

	if (e < 0)
		return e;
	body = document_trim(body);
	if (!d)
		return err_set(err, -ENOMEM, "out of memory");
	if (body.len == 0)
		return err_set(err, -EINVAL, "empty body");
	e = document_parse_body(body, (struct policy_place){ 0 }, &r.tree, &root, err);
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

static bool has_member(const struct document_rule *rule, const char *quoted)
{
	return rule->own.len > 0 &&
	       memmem(rule->own.ptr, rule->own.len, quoted, strlen(quoted));
}

bool document_ends(const struct document_rule *rule)
{
	return has_member(rule, "\"until\":") || has_member(rule, "\"for\":");
}

int document_read_own(const struct document_rule *rule, struct text ret[RULE_KEY_COUNT])
{
	CLEAN(arena) struct arena tree = { 0 };
	struct node *map = NULL;
	int r = rule->own.len > 0
			? document_parse_body(rule->own, (struct policy_place){ 0 },
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

/* `for` of the rule, "\"10m\"", becomes `until`, "\"2026-11-20T13:31:08.000Z\"", counted
 * from @now_ms; what is no such time stays. Return: 1: the rule has ended; 0; or -ENOMEM.
 */
static int settle_rule(struct document *d, struct document_rule *rule, int64_t now_ms)
{
	struct text own[RULE_KEY_COUNT], until, lasts, end;
	char time[JTEXT_TIME_SIZE];
	int r = document_read_own(rule, own);
	int64_t ms;

	if (r < 0)
		return r;
	until = own[RULE_KEY_UNTIL];
	lasts = own[RULE_KEY_FOR];
	/* No deny may end: that is refused when a policy is made of it. */
	if (rule->action == POLICY_ALLOW && !lasts.ptr && until.len > 2 &&
	    until.ptr[0] == '"' &&
	    timestamp_parse((struct text){ until.ptr + 1, until.len - 2 }, &ms) &&
	    ms <= now_ms)
		return 1;
	if (until.ptr || lasts.len < 2 || lasts.ptr[0] != '"' ||
	    !text_to_duration_ms((struct text){ lasts.ptr + 1, lasts.len - 2 }, &ms) ||
	    ms < RULE_FOR_MIN_MS || ms > RULE_FOR_MAX_MS)
		return 0;
	end.ptr = arena_printf(&d->arena, "\"%s\"", jtext_time(now_ms + ms, true, time));
	if (!end.ptr)
		return 0;
	end.len = strlen(end.ptr);
	own[RULE_KEY_UNTIL] = end;
	own[RULE_KEY_FOR] = (struct text){ 0 };
	return document_write_own(d, schema_rule_keys, own, RULE_KEY_COUNT, &rule->own);
}

int document_settle_ends(struct document *d, int64_t now_ms)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->count; i++) {
		int r = document_ends(&d->rules[i]) ? settle_rule(d, &d->rules[i], now_ms)
						    : 0;

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

int document_check_rule_count(const struct document *d, size_t max, struct err *err)
{
	if (max == 0 || d->count <= max)
		return 0;
	return err_set(err, -E2BIG, "egress rule total count %zu exceeds limit %zu",
		       d->count, max);
}

const char *document_mode(const struct document *d)
{
	if (d->closed.ptr)
		return "deny_all";
	if (d->count > 0 || d->default_action == POLICY_ASK)
		return "enforcing";
	return d->default_action == POLICY_ALLOW ? "allow_all" : "deny_all";
}

bool document_equal(const struct document *a, const struct document *b)
{
	if (a->default_action != b->default_action || a->count != b->count ||
	    !text_same(a->own, b->own) || !a->closed.ptr != !b->closed.ptr ||
	    !text_same(a->closed, b->closed))
		return false;
	for (size_t i = 0; i < a->count; i++) {
		const struct document_rule *x = &a->rules[i], *y = &b->rules[i];

		if (x->action != y->action || !text_same(x->target, y->target) ||
		    !text_same(x->own, y->own))
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

bool document_is_derived(const struct document *d)
{
	return d->is_derived;
}

struct document *document_copy_settings(const struct document *old)
{
	struct document *d = document_deny_all();

	if (!d)
		return NULL;
	d->default_action = old->default_action;
	d->is_derived = true;
	if (copy_text(d, old->own, &d->own) == 0)
		return d;
	document_free(d);
	return NULL;
}
