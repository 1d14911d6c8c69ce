// SPDX-License-Identifier: Apache-2.0
/* Documents made of others: patched, with targets taken away, with a grant. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "event/json.h"
#include "opensandbox/document_internal.h"

/* -- patches ------------------------------------------------------------------------ */

/* A target among others, and its position. */
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

/* Behind a rule that ends its target is decided by the next one that doesn't. */
static void drop_superseded(struct entry *entries, size_t count)
{
	qsort(entries, count, sizeof(*entries), compare_entries);
	for (size_t i = 0, first = 0; i < count; i++) {
		if (compare_targets(entries[first].target, entries[i].target) != 0 ||
		    (document_ends(entries[first].rule) &&
		     !document_ends(entries[i].rule)))
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

int document_merge(const struct document *old, struct text body,
		   document_unknown_fn *unknown, void *data, struct document **ret,
		   struct err *err)
{
	CLEAN(document) struct document *patch = NULL, *d = NULL;
	CLEAN(mem) struct entry *entries = NULL;
	size_t count = 0;
	int r = document_read_patch(old, body, unknown, data, &patch, err);

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

static int read_targets(struct text body, struct targets *t, struct err *err)
{
	struct node *root;
	int r = document_parse_body(body, (struct policy_place){ 0 }, &t->arena, &root,
				    err);

	if (r < 0)
		return r;
	if (root && root->kind != NODE_LIST)
		return document_wrong_type(root, NULL, "[]string", err);
	for (const struct node *n = root ? root->first : NULL; n && r == 0; n = n->next) {
		struct text target = { 0 };

		if (n->kind == NODE_TEXT)
			target = document_trim(n->text);
		else
			r = document_wrong_type(n, NULL, "string", err);
		t->any |= r == 0;
		if (r < 0 || target.len == 0)
			continue;
		if (!ARRAY_GROW(t->items, t->count, t->capacity))
			return err_set(err, -ENOMEM, "out of memory");
		t->items[t->count++] = (struct entry){ .target = target };
	}
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

/* -- grants ------------------------------------------------------------------------- */

/* Grants that stand side by side.
 *
 * HOW IT WORKS
 * Of the rules for one name the first that hasn't ended decides alone. So two grants of a
 * name, of port 443 until ten and of port 22 until twelve, are two rules like this:
 *
 *     {"target":"a.test","ports":["22","443"],"until":"10:00"}
 *     {"target":"a.test","ports":["22"],"until":"12:00"}
 *
 * The rules that decide for the target one after the other, each until its end, are what
 * is there: its own, patterns that cover it, and behind them defaultAction: allow. The
 * new one is added to each of them as long as it lasts, which makes rules in front; what
 * decides later is left as it is, and so are patterns.
 *
 * Rules for an address add up by themselves. */

/* A rule with what it says. */
struct part {
	const struct document_rule *rule;
	struct text own[RULE_KEY_COUNT];
	int64_t end_ms; /* wall clock; INT64_MAX: it has none */
};

struct granting {
	struct document *d; /* that is made: the rules in front come first */
	struct part grant;
	struct rule target; /* of the grant */
	int64_t from_ms;    /* the rules that were looked at decide until then */
	bool is_done;	    /* @grant has all its time */
};

static int read_part(const struct document_rule *rule, struct part *ret)
{
	int r = document_read_own(rule, ret->own);
	const struct text until = ret->own[RULE_KEY_UNTIL];

	ret->rule = rule;
	ret->end_ms = INT64_MAX;
	/* What is no time is a fault when a policy is made of it. */
	if (r == 0 && until.len > 2 && until.ptr[0] == '"')
		(void)!timestamp_parse((struct text){ until.ptr + 1, until.len - 2 },
				       &ret->end_ms);
	return r;
}

/* The items of the list @value behind those in @out, "443,tcp/22"; @once: those that
 * aren't there yet, of the few that can be. */
static int put_items(struct arena *arena, struct text value, bool once, struct jtext *out)
{
	struct err ignored;
	const struct node_source source = { .arena = arena,
					    .text = value,
					    .err = &ignored };
	struct node *list = NULL;
	int r = value.ptr ? node_read_json(&source, &list) : 0;

	if (r < 0)
		return r;
	for (const struct node *n = list && list->kind == NODE_LIST ? list->first : NULL;
	     n; n = n->next) {
		const struct text item = n->kind == NODE_TEXT ? n->text : n->raw;
		struct text before = { out->buf, out->used }, had;
		bool is_new = true;

		while (once && is_new && text_split(&before, ',', &had))
			is_new = !text_same(had, item);
		if (!is_new)
			continue;
		jtext_put(out, text_of(out->used > 0 ? "," : ""));
		jtext_put(out, item);
	}
	return out->full ? -ENOMEM : 0;
}

/* "a,b" as ["a","b"]. */
static int write_list(struct arena *arena, struct text items, struct text *ret)
{
	CLEAN(jtext) struct jtext out = { .grows = true };
	struct text item;

	jtext_open(&out, NULL, '[');
	while (text_split(&items, ',', &item)) {
		jtext_key(&out, NULL);
		jtext_string(&out, item, SIZE_MAX);
	}
	jtext_close(&out, ']');
	*ret = (struct text){ arena_text(arena, (struct text){ out.buf, out.used }),
			      out.used };
	return out.full || !ret->ptr ? -ENOMEM : 0;
}

/* The ports of @a and, unless it is NULL, of @b as one list. A rule without has the
 * default list. */
static int join_ports(struct arena *arena, struct text a, const struct text *b,
		      struct text *ret, struct err *err)
{
	CLEAN(jtext) struct jtext out = { .grows = true };
	char text[PLAN_PORT_RANGES_MAX * 24];
	struct rule_ports ports;
	int r;

	*ret = (struct text){ 0 };
	if (!a.ptr && (!b || !b->ptr))
		return 0;
	jtext_put(&out, text_of(!a.ptr || (b && !b->ptr) ? "default" : ""));
	r = put_items(arena, a, false, &out);
	if (r == 0 && b)
		r = put_items(arena, *b, false, &out);
	if (r == 0)
		r = rule_ports_read((struct text){ out.buf, out.used }, arena, &ports,
				    err);
	if (r == 0 && ports.count > 0)
		r = write_list(arena,
			       text_of(rule_ports_text(&ports, text, sizeof(text))), ret);
	return r;
}

/* What @has and the grant say together, until the sooner of both ends. *@ret_adds: it is
 * more than @has. */
static int join(struct granting *g, const struct part *has, struct part *ret,
		bool *ret_adds, struct err *err)
{
	const struct text *own = g->grant.own;
	struct arena *arena = &g->d->arena;
	struct text alone;
	int r = join_ports(arena, has->own[RULE_KEY_PORTS], NULL, &alone, err);

	*ret = *has;
	if (r == 0)
		r = join_ports(arena, has->own[RULE_KEY_PORTS], &own[RULE_KEY_PORTS],
			       &ret->own[RULE_KEY_PORTS], err);
	if (r < 0)
		return r;
	*ret_adds = !text_same(alone, ret->own[RULE_KEY_PORTS]);
	for (enum rule_key k = RULE_KEY_TYPES; k <= RULE_KEY_UNMETERED; k++) {
		CLEAN(jtext) struct jtext words = { .grows = true };

		if (!own[k].ptr || text_same(own[k], has->own[k]))
			continue;
		*ret_adds = true;
		ret->own[k] = own[k];
		if (k != RULE_KEY_TYPES)
			continue;
		r = put_items(arena, has->own[k], true, &words);
		if (r == 0)
			r = put_items(arena, own[k], true, &words);
		if (r == 0)
			r = write_list(arena, (struct text){ words.buf, words.used },
				       &ret->own[k]);
		if (r < 0)
			return r;
	}
	if (g->grant.end_ms < has->end_ms)
		ret->own[RULE_KEY_UNTIL] = own[RULE_KEY_UNTIL];
	return 0;
}

static int put_in_front(struct granting *g, const struct part *part)
{
	struct document_rule rule = { .action = POLICY_ALLOW,
				      .target = g->grant.rule->target };
	int r = document_write_own(g->d, schema_rule_keys, part->own, RULE_KEY_COUNT,
				   &rule.own);

	return r == 0 ? document_copy_rule(g->d, &rule) : r;
}

/* A budget counts for one rule: another one in front of it would lift it. */
static int leave_to_person(const struct document_rule *rule, const char *why,
			   struct err *err)
{
	return err_set(err, -EPERM, "the rule for '%s' %s: change it by hand",
		       TEXT_SHOWN(rule->target), why);
}

/* @has decides for the granted name from g->from_ms until its end. *@ret_gone: what is
 * put in front takes its place, if it is about no other name. */
static int add_to(struct granting *g, const struct part *has, bool *ret_gone,
		  struct err *err)
{
	struct part joined;
	bool adds;
	int r;

	/* What asks, or is denied, does so again when the grant ends. */
	if (has->rule->action != POLICY_ALLOW) {
		*ret_gone = g->grant.end_ms == INT64_MAX;
		g->is_done = true;
		return put_in_front(g, &g->grant);
	}
	if (has->own[RULE_KEY_BUDGET].ptr)
		return leave_to_person(has->rule, "has a budget", err);
	r = join(g, has, &joined, &adds, err);
	if (r < 0)
		return r;
	*ret_gone = g->grant.end_ms >= has->end_ms &&
		    (adds || g->d->count > 0 || has->end_ms < INT64_MAX);
	g->is_done = g->grant.end_ms <= has->end_ms;
	g->from_ms = has->end_ms;
	return adds || *ret_gone ? put_in_front(g, &joined) : 0;
}

/* What @rule is to the granted target. */
enum relation { IS_OTHER = 0, IS_COVERING, IS_SAME };

static enum relation relation_of(const struct granting *g,
				 const struct document_rule *rule)
{
	const struct rule *target = &g->target;
	struct rule r = { .action = rule->action };
	bool says;

	if (document_read_target(rule->target, &r, &says, NULL) < 0 || !says ||
	    (r.kind == TARGET_PREFIX) != (target->kind == TARGET_PREFIX))
		return IS_OTHER;
	if (r.kind == TARGET_PREFIX) {
		if (r.prefix.bits > target->prefix.bits ||
		    !prefix_contains(&r.prefix, &target->prefix.addr))
			return IS_OTHER;
		return r.prefix.bits == target->prefix.bits ? IS_SAME : IS_COVERING;
	}
	if (!rule_covers(&r, &target->name))
		return IS_OTHER;
	return r.kind == TARGET_NAME ? IS_SAME : IS_COVERING;
}

/* @rule is about the granted target, or, of a name, covers it. */
static int add_beside(struct granting *g, const struct document_rule *rule, bool is_same,
		      bool *ret_gone, struct err *err)
{
	struct part has, joined;
	bool ignored, adds = true;
	int r = read_part(rule, &has);

	if (r < 0)
		return r;
	if (has.end_ms <= g->from_ms && rule->action == POLICY_ALLOW) {
		*ret_gone = is_same;
		return 0;
	}
	if (g->target.kind == TARGET_PREFIX) {
		/* The grant is put in front unless @rule opens as much, as long. */
		if (rule->action != POLICY_ALLOW)
			return 0;
		r = join(g, &has, &joined, &adds, err);
		g->is_done = r == 0 && !adds && g->grant.end_ms <= has.end_ms &&
			     !has.own[RULE_KEY_BUDGET].ptr;
		return r;
	}
	if (is_same)
		return add_to(g, &has, ret_gone, err);
	/* What is said of the names below a pattern, or of it. */
	has.own[RULE_KEY_REQUIRED] = has.own[RULE_KEY_UNMETERED] =
		has.own[RULE_KEY_COMMENT] = (struct text){ 0 };
	return add_to(g, &has, &ignored, err);
}

static int add_rules(struct granting *g, const struct document *old, int64_t now_ms,
		     bool *gone, struct err *err)
{
	const struct document_rule by_default = { .action = old->default_action };
	const struct text ports = g->grant.own[RULE_KEY_PORTS], none = { 0 };
	struct text alone, both;
	bool ignored;
	int r = 0;

	/* The deny of an address counts wherever it stands, and without it whatever else
	 * opens the address would count. */
	for (size_t i = 0; i < old->count && g->target.kind == TARGET_PREFIX; i++)
		if (old->rules[i].action == POLICY_DENY &&
		    relation_of(g, &old->rules[i]) != IS_OTHER)
			return leave_to_person(&old->rules[i], "denies it", err);
	g->from_ms = now_ms;
	for (size_t i = 0; r == 0 && i < old->count && !g->is_done; i++) {
		const enum relation is = gone[i] ? IS_OTHER
						 : relation_of(g, &old->rules[i]);

		if (is == IS_SAME || (is == IS_COVERING && g->target.kind == TARGET_NAME))
			r = add_beside(g, &old->rules[i], is == IS_SAME, &gone[i], err);
	}
	if (r < 0 || g->is_done)
		return r;
	if (g->target.kind == TARGET_PREFIX)
		return put_in_front(g, &g->grant);
	/* defaultAction opens the default ports of the name, unless Weir itself denies
	 * it. Where no rule of a person's opens the name, only a grant that names these
	 * ports is known to be of what is open. */
	if (old->default_action == POLICY_ALLOW) {
		r = join_ports(&g->d->arena, ports, NULL, &alone, err);
		if (r == 0)
			r = join_ports(&g->d->arena, ports, &none, &both, err);
		if (r == 0 && g->d->count == 0 && !text_same(alone, both))
			return err_set(
				err, -EPERM,
				"defaultAction is allow, and a rule for some ports "
				"would close the others: change it by hand");
	}
	return r < 0 ? r : add_beside(g, &by_default, false, &ignored, err);
}

int document_grant(const struct document *old, struct text body, int64_t now_ms,
		   struct document **ret, struct err *err)
{
	CLEAN(document) struct document *patch = NULL, *d = NULL;
	CLEAN(mem) bool *gone = calloc(old->count + 1, sizeof(*gone));
	struct granting g = { 0 };
	int r = document_read_patch(old, body, NULL, NULL, &patch, err);

	if (r < 0)
		return r;
	d = g.d = document_copy_settings(old);
	if (!gone || !d || document_settle_ends(patch, now_ms) < 0)
		return err_set(err, -ENOMEM, "out of memory");
	if (patch->count > 0) {
		const struct document_rule *rule = &patch->rules[0];

		if (patch->count > 1 || rule->action != POLICY_ALLOW ||
		    rule_target_parse(rule->target, &g.target, err) < 0 ||
		    (g.target.kind != TARGET_NAME && g.target.kind != TARGET_PREFIX))
			return err_set(err, -EINVAL,
				       "a grant allows one name or one address");
		r = read_part(rule, &g.grant);
		if (r == 0 &&
		    (g.grant.own[RULE_KEY_FOR].ptr ||
		     (g.grant.own[RULE_KEY_UNTIL].ptr && g.grant.end_ms == INT64_MAX)))
			return err_set(err, -EINVAL, "a grant ends at a time, or never");
		if (r == 0)
			r = add_rules(&g, old, now_ms, gone, err);
	}
	for (size_t i = 0; r == 0 && i < old->count; i++)
		if (!gone[i])
			r = document_copy_rule(d, &old->rules[i]);
	if (r == 0)
		r = document_settle_ends(d, now_ms);
	if (r < 0)
		return r == -ENOMEM ? err_set(err, -ENOMEM, "out of memory") : r;
	*ret = TAKE_PTR(d);
	return 0;
}
