// SPDX-License-Identifier: Apache-2.0
#include "policy/node.h"

#include <string.h>

#include "policy/faults.h"

/* One character of UTF-8, strictly: shortest form, no surrogates, at most U+10FFFF.
 * Return: its bytes, 0 when it isn't one. */
static size_t utf8_read(const unsigned char *p, size_t left, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t size = p[0] < 0x80   ? 1
		      : p[0] < 0xc2 ? 0
		      : p[0] < 0xe0 ? 2
		      : p[0] < 0xf0 ? 3
		      : p[0] < 0xf5 ? 4
				    : 0;
	uint32_t c = size == 1 ? p[0] : p[0] & (0x7f >> size);

	if (size == 0 || size > left)
		return 0;
	for (size_t i = 1; i < size; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (size > 1 && (c < least[size] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)))
		return 0;
	*ret = c;
	return size;
}

/* Why a character can't stand in a policy, or NULL. */
static const char *char_fault(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7f && c < 0xa0))
		return "a control character";
	if (c == 0x2028 || c == 0x2029)
		return "a line separator";
	if ((c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
	    (c >= 0x2066 && c <= 0x2069) || c == 0xfeff)
		return "an invisible character";
	return NULL;
}

bool node_check_text(const struct node_source *s)
{
	const unsigned char *p = (const unsigned char *)s->text.ptr;
	uint32_t line = 1, column = 1;
	bool good = true;

	for (size_t i = 0; i < s->text.len;) {
		uint32_t c = 0;
		size_t size = utf8_read(p + i, s->text.len - i, &c);
		const char *why = size == 0 ? "not UTF-8" : char_fault(c);

		if (size != 0 && (c == '\n' || c == '\r' || c == '\t'))
			why = NULL;
		if (why) {
			faults_add(s->faults, FAULT_ERROR, s->file, line, column, "",
				   "byte 0x%02x is %s, which a policy can't hold", p[i],
				   why);
			good = false;
		}
		i += MAX(size, (size_t)1);
		column = c == '\n' ? 1 : column + 1;
		line += c == '\n';
	}
	return good;
}

void node_check_scalar(const struct node_source *s, struct text t, uint32_t line,
		       uint32_t column)
{
	const unsigned char *p = (const unsigned char *)t.ptr;
	char shown[TEXT_ESCAPED_SIZE];

	for (size_t i = 0; i < t.len;) {
		uint32_t c = 0;
		size_t size = utf8_read(p + i, t.len - i, &c);

		if (s->blocks && (c == '\n' || c == '\t')) {
			i++;
			continue;
		}
		if (size == 0 || char_fault(c)) {
			faults_add(s->faults, FAULT_ERROR, s->file, line, column, "",
				   "'%s' is not plain text: it holds %s",
				   text_escape(t, shown, sizeof(shown)),
				   size == 0 ? "bytes that are not UTF-8"
					     : char_fault(c));
			return;
		}
		i += size;
	}
}

struct node *node_new(const struct node_source *s, enum node_kind kind, uint32_t line,
		      uint32_t column)
{
	struct node *n = arena_alloc(s->arena, sizeof(*n));

	if (n) {
		n->kind = kind;
		n->line = line;
		n->column = column;
	}
	return n;
}

static bool key_is_new(const struct node *parent, struct text key)
{
	for (const struct node *n = parent->first; n; n = n->next) {
		if (n->key.len == key.len && memcmp(n->key.ptr, key.ptr, key.len) == 0)
			return false;
	}
	return true;
}

static void check_key(const struct node_source *s, const struct node *parent,
		      const struct node *child)
{
	struct node_source strict = *s;
	char shown[TEXT_ESCAPED_SIZE];

	strict.blocks = false;
	node_check_scalar(&strict, child->key, child->key_line, child->key_column);
	if (parent->count == NODE_KEYS_MAX) {
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, "", "a mapping has more than %d keys",
			   NODE_KEYS_MAX);
	} else if (parent->count < NODE_KEYS_MAX && !key_is_new(parent, child->key)) {
		faults_add(s->faults, FAULT_ERROR, s->file, child->key_line,
			   child->key_column, "",
			   "'%s' is not the first of its name: a key can stand once",
			   text_escape(child->key, shown, sizeof(shown)));
	}
}

void node_append(const struct node_source *s, struct node *parent, struct node *child)
{
	if (parent->kind == NODE_MAP)
		check_key(s, parent, child);
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
	parent->count++;
}

const char *node_kind_name(enum node_kind kind)
{
	static const char *const names[] = {
		[NODE_NULL] = "nothing",    [NODE_BOOL] = "true or false",
		[NODE_NUMBER] = "a number", [NODE_REAL] = "a number with a fraction",
		[NODE_TEXT] = "text",	    [NODE_LIST] = "a list",
		[NODE_MAP] = "a mapping",
	};

	return names[kind];
}
