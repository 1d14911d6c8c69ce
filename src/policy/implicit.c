// SPDX-License-Identifier: Apache-2.0
#include "policy/implicit.h"

#include <errno.h>
#include <string.h>

#include "base/special.h"
#include "policy/embedded.h"

static const char *const metadata_names[] = { "metadata.google.internal",
					      "metadata.goog" };
static const char *const link_local[] = { "169.254.0.0/16", "fe80::/10" };

struct builder {
	const struct policy *policy;
	struct arena *arena;
	struct rule *rules;
	size_t count, capacity;
};

static size_t bits_of(const struct addr *a)
{
	return 8 * addr_size(a);
}

/* A rule allows exactly this address. */
static bool is_named(const struct policy *p, const struct addr *a)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind == TARGET_PREFIX && r->action == POLICY_ALLOW &&
		    r->prefix.bits == bits_of(a) && addr_equal(&r->prefix.addr, a))
			return true;
	}
	return false;
}

/* Something would open this address: the default, or an allow around it, or around where
 * it stands behind a translator. */
static bool is_open(const struct policy *p, const struct addr *a)
{
	const struct prefix self = prefix_of(a, (unsigned int)bits_of(a));
	const struct addr other = a->family == ADDR_V4 ? prefix_translated(&self).addr
						       : *a;

	if (p->default_action == POLICY_ALLOW)
		return true;
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->kind == TARGET_PREFIX && r->action == POLICY_ALLOW &&
		    (prefix_contains(&r->prefix, a) ||
		     prefix_contains(&r->prefix, &other)))
			return true;
	}
	return false;
}

static int add_rule(struct builder *b, const struct rule *r)
{
	if (b->count == b->capacity) {
		size_t capacity = MAX(b->capacity * 2, (size_t)64);
		struct rule *grown = arena_array(b->arena, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		if (b->count > 0)
			memcpy(grown, b->rules, b->count * sizeof(*grown));
		b->rules = grown;
		b->capacity = capacity;
	}
	b->rules[b->count++] = *r;
	return 0;
}

/* A deny of something yet to be named. */
static struct rule deny_of(enum rule_target kind, const char *file, const char *why)
{
	return (struct rule){ .action = POLICY_DENY,
			      .kind = kind,
			      .flags = PLAN_IMPLICIT,
			      .file = file,
			      .comment = why };
}

/* Deny @p but for what rules allow in it, half by half. */
static int add_range(struct builder *b, struct prefix p, const char *why)
{
	struct rule rule = deny_of(TARGET_PREFIX, "built in", why);
	char text[ADDR_TEXT_SIZE];
	bool split = false;
	int r;

	for (size_t i = 0; i < b->policy->count; i++) {
		const struct rule *a = &b->policy->rules[i];

		if (a->kind != TARGET_PREFIX || a->action != POLICY_ALLOW)
			continue;
		if (a->prefix.bits <= p.bits && prefix_contains(&a->prefix, &p.addr))
			return 0;
		split |= prefix_contains(&p, &a->prefix.addr) && a->prefix.bits > p.bits;
	}
	if (split) {
		p.bits++;
		r = add_range(b, p, why);
		p.addr.bytes[(p.bits - 1) / 8] |= (uint8_t)(0x80 >> (p.bits - 1) % 8);
		return r < 0 ? r : add_range(b, p, why);
	}
	rule.prefix = p;
	rule.target = arena_printf(b->arena, "%s/%u", addr_format(&p.addr, text), p.bits);
	return rule.target ? add_rule(b, &rule) : -ENOMEM;
}

static int add_addr(struct builder *b, const struct addr *a, const char *file,
		    const char *why)
{
	struct rule r = deny_of(TARGET_PREFIX, file, why);
	char text[ADDR_TEXT_SIZE];

	if (is_named(b->policy, a))
		return 0;
	r.prefix = prefix_of(a, (unsigned int)bits_of(a));
	r.target = arena_text(b->arena, text_of(addr_format(a, text)));
	return r.target ? add_rule(b, &r) : -ENOMEM;
}

/* Implicit rules come last, so a rule that names the name decides before them. */
static int add_name(struct builder *b, struct text name, const char *file,
		    const char *why)
{
	struct rule r = deny_of(TARGET_WITHIN, file, why);

	if (dns_name_parse(name, &r.name) < 0)
		return 0;
	r.target = arena_printf(b->arena, "**.%.*s", (int)name.len, name.ptr);
	return r.target ? add_rule(b, &r) : -ENOMEM;
}

static int add_metadata(struct builder *b)
{
	static const char why[] =
		"a cloud's metadata is open only to a rule that names it";
	static const char link[] = "a link-local address is open only to a rule";
	struct addr a;
	int r = 0;

	for (size_t i = 0; r == 0 && addr_metadata(i, &a); i++) {
		if (is_open(b->policy, &a))
			r = add_addr(b, &a, "built in", why);
	}
	if (b->policy->default_action != POLICY_ALLOW)
		return r;
	/* Clouds put other services there as well: resolvers, time, host agents. */
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(link_local); i++) {
		struct prefix p;

		if (prefix_parse(link_local[i], strlen(link_local[i]), true, &p))
			r = add_range(b, p, link);
	}
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(metadata_names); i++)
		r = add_name(b, text_of(metadata_names[i]), "built in", why);
	return r;
}

static int add_doh(struct builder *b)
{
	static const char why[] =
		"a public DoH resolver is open only to a rule that names it";
	struct text list = policy_embedded_doh(), line;
	struct addr a;
	int r = 0;

	while (r == 0 && text_split(&list, '\n', &line)) {
		struct text entry;

		text_split(&line, '#', &entry);
		entry = text_trim(entry);
		if (entry.len == 0)
			continue;
		if (addr_parse(entry.ptr, entry.len, &a))
			r = add_addr(b, &a, "doh.txt", why);
		else
			r = add_name(b, entry, "doh.txt", why);
	}
	return r;
}

int policy_implicit(const struct policy *policy, struct arena *arena, struct rule **ret,
		    size_t *ret_count)
{
	struct builder b = { .policy = policy, .arena = arena };
	int r = add_metadata(&b);

	if (r == 0 && policy->default_action == POLICY_ALLOW && !policy->open_doh)
		r = add_doh(&b);
	if (r < 0)
		return r;
	*ret = b.rules;
	*ret_count = b.count;
	return 0;
}
