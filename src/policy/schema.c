// SPDX-License-Identifier: Apache-2.0
/* The keys at the top of a policy. */
#include "policy/schema.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/limits.h"
#include "policy/walk.h"

static void on_extends_item(struct walk *w, const struct node *n, void *data)
{
	struct schema_document *d = w->document;

	if (n->kind != NODE_TEXT || n->text.len == 0)
		walk_is_not(w, n, "the name of a profile or a file");
	else
		d->extends[d->extends_count++] = n;
}

static void on_extends(struct walk *w, const struct node *n, void *data)
{
	struct schema_document *d = w->document;

	d->extends = arena_array(d->arena, n->count + 1, sizeof(const struct node *));
	if (!d->extends)
		w->out_of_memory = true;
	else
		walk_list(w, n, on_extends_item, data);
}

static void add_list(struct walk *w, const struct node *n, void *data)
{
	struct schema_document *d = w->document;

	if (n->kind != NODE_TEXT || (!memchr(n->text.ptr, '.', n->text.len) &&
				     !memchr(n->text.ptr, '/', n->text.len)))
		walk_is_not(w, n, "the name of a file, which has a dot or a slash");
	else
		d->lists[d->list_count++] = n;
}

/* One file, or a list of them. */
static void on_allow_list(struct walk *w, const struct node *n, void *data)
{
	struct schema_document *d = w->document;

	d->lists = arena_array(d->arena, n->count + 1, sizeof(const struct node *));
	if (!d->lists)
		w->out_of_memory = true;
	else if (n->kind == NODE_LIST)
		walk_list(w, n, add_list, data);
	else
		add_list(w, n, data);
}

static void on_default_action(struct walk *w, const struct node *n, void *data)
{
	struct policy *p = w->document->policy;
	int i = walk_word(w, n, schema_actions, ARRAY_SIZE(schema_actions),
			  "an action: write allow or deny");

	if (p->has_default_action)
		return;
	p->has_default_action = true;
	p->default_action = i == POLICY_ALLOW ? POLICY_ALLOW : POLICY_DENY;
}

static void on_egress(struct walk *w, const struct node *n, void *data)
{
	walk_list(w, n, schema_read_rule, data);
}

static struct policy_place place_of(const struct walk *w, const struct node *n)
{
	return (struct policy_place){ w->document->file, n->line, n->column };
}

static void on_verify(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "dns", "tls" };
	struct policy *p = w->document->policy;
	int i = walk_word(w, n, words, ARRAY_SIZE(words),
			  "a way to verify: write dns or tls");

	if (i < 0 || p->has_verify)
		return;
	p->has_verify = true;
	p->verify = (enum policy_verify)i;
	p->verify_at = place_of(w, n);
}

static void on_dns(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "live", "pinned" };
	struct policy *p = w->document->policy;
	int i = walk_word(w, n, words, ARRAY_SIZE(words),
			  "a way to resolve: write live or pinned");

	if (i < 0 || p->has_dns)
		return;
	p->has_dns = true;
	p->dns = (enum policy_dns)i;
	p->dns_at = place_of(w, n);
}

static void on_repin(struct walk *w, const struct node *n, void *data)
{
	struct policy *p = w->document->policy;
	int64_t ms;

	if (n->kind != NODE_TEXT || !text_to_duration_ms(n->text, &ms) ||
	    ms < POLICY_REPIN_MIN_MS || ms > POLICY_REPIN_MAX_MS) {
		walk_is_not(w, n, "a time from 10s to 30d, like 6h");
	} else if (p->repin_ms == 0) {
		p->repin_ms = ms;
		p->repin_at = place_of(w, n);
	}
}

static void on_full_isolation(struct walk *w, const struct node *n, void *data)
{
	if (walk_bool(w, n))
		w->document->policy->require_full_isolation = true;
}

/* A number, a time for limits in seconds, or `unlimited` where that is possible. */
static bool limit_read(const struct node *n, const struct limit_info *info, uint32_t *ret)
{
	bool seconds = strcmp(info->unit, "seconds") == 0;
	int64_t ms;

	if (n->kind == NODE_NUMBER)
		return text_to_u32(n->text, UINT32_MAX - 1, ret);
	if (n->kind != NODE_TEXT)
		return false;
	if (info->unlimited && text_equal(n->text, "unlimited")) {
		*ret = LIMIT_UNLIMITED;
		return true;
	}
	if (!seconds || !text_to_duration_ms(n->text, &ms) || ms % 1000 != 0 ||
	    ms / 1000 > UINT32_MAX - 1)
		return false;
	*ret = (uint32_t)(ms / 1000);
	return true;
}

static void on_limit(struct walk *w, const struct node *n, enum plan_limit which)
{
	const struct limit_info *info = limit_info(which);
	struct policy *p = w->document->policy;
	uint32_t value;
	char what[128];

	if (!limit_read(n, info, &value) || !limit_is_valid(which, value)) {
		snprintf(what, sizeof(what), "a value for this limit: %u to %u%s%s%s",
			 info->minimum, info->ceiling, info->unit[0] ? " " : "",
			 info->unit, info->unlimited ? ", or unlimited" : "");
		walk_is_not(w, n, what);
	} else if (p->limits[which] == 0) {
		p->limits[which] = value;
	}
}

static void on_limits(struct walk *w, const struct node *map, void *data)
{
	if (map->kind != NODE_MAP) {
		walk_is_not(w, map, "a mapping of limits");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		enum plan_limit which;
		char shown[64];
		size_t used;

		text_escape(n->key, shown, sizeof(shown));
		used = walk_push(w, ".%s", shown);
		if (limit_find(n->key, &which))
			on_limit(w, n, which);
		else
			walk_fault(w, n, FAULT_ERROR,
				   "'%s' is not the name of a limit; weir-policy(5) "
				   "lists them",
				   shown);
		walk_pop(w, used);
	}
}

/* ---- on_denies ---- */

/* What was read of it; each of its keys has to be there. */
struct denies_reading {
	struct plan_on_denies value;
	bool has_count, has_window, has_action;
};

static void on_denies_count(struct walk *w, const struct node *n, void *data)
{
	struct denies_reading *d = data;
	char what[64];

	d->has_count = true;
	if (n->kind == NODE_NUMBER &&
	    text_to_u32(n->text, ON_DENIES_COUNT_MAX, &d->value.count) &&
	    d->value.count > 0)
		return;
	snprintf(what, sizeof(what), "a number of packets from 1 to %d",
		 ON_DENIES_COUNT_MAX);
	walk_is_not(w, n, what);
}

static void on_denies_window(struct walk *w, const struct node *n, void *data)
{
	struct denies_reading *d = data;
	int64_t ms;

	d->has_window = true;
	if (n->kind == NODE_TEXT && text_to_duration_ms(n->text, &ms) && ms >= 1000 &&
	    ms % 1000 == 0 && ms / 1000 <= ON_DENIES_WINDOW_MAX_SEC)
		d->value.window_sec = (uint32_t)(ms / 1000);
	else
		walk_is_not(w, n, "a time from 1s to 1d in whole seconds, like 10m");
}

static void on_denies_action(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "event", "stop" };
	struct denies_reading *d = data;
	int i = walk_word(w, n, words, ARRAY_SIZE(words),
			  "what to do then: write event or stop");

	d->has_action = true;
	d->value.action = i == ON_DENIES_STOP ? ON_DENIES_STOP : ON_DENIES_EVENT;
}

static void on_denies(struct walk *w, const struct node *n, void *data)
{
	static const struct schema_key keys[] = {
		{ "count", on_denies_count },
		{ "window", on_denies_window },
		{ "action", on_denies_action },
	};
	struct policy *p = w->document->policy;
	struct denies_reading d = { 0 };
	size_t errors = w->document->faults->errors;

	walk_map(w, n, keys, ARRAY_SIZE(keys), &d);
	if (n->kind == NODE_MAP && !(d.has_count && d.has_window && d.has_action))
		walk_fault(w, n, FAULT_ERROR,
			   "%s is missing: it needs count, window and "
			   "action",
			   !d.has_count	   ? "count"
			   : !d.has_window ? "window"
					   : "action");
	if (w->document->faults->errors > errors || p->on_denies.count > 0)
		return;
	p->on_denies = d.value;
	p->on_denies_at = place_of(w, n);
}

static void on_network_policy(struct walk *w, const struct node *n, void *data);

static const struct schema_key top_keys[] = {
	{ "extends", on_extends },
	{ "defaultAction", on_default_action },
	{ "egress", on_egress },
	{ "allow-list", on_allow_list },
	{ "verify", on_verify },
	{ "dns", on_dns },
	{ "repin", on_repin },
	{ "limits", on_limits },
	{ "on_denies", on_denies },
	{ "require_full_isolation", on_full_isolation },
	{ "network_policy", on_network_policy },
};

/* The wrapper stands around the whole: nothing beside it, nothing like it inside. */
static void on_network_policy(struct walk *w, const struct node *n, void *data)
{
	if (w->is_wrapped) {
		walk_fault(w, n, FAULT_ERROR, "network_policy can't stand inside itself");
		return;
	}
	if (w->root->count != 1) {
		walk_fault(w, n, FAULT_ERROR,
			   "network_policy stands alone: move the other keys into it");
		return;
	}
	w->is_wrapped = true;
	walk_map(w, n, top_keys, ARRAY_SIZE(top_keys), NULL);
}

int schema_read(struct schema_document *d, const struct node *root)
{
	struct walk w = { .document = d, .root = root };
	size_t errors = d->faults->errors;

	walk_map(&w, root, top_keys, ARRAY_SIZE(top_keys), NULL);
	if (w.out_of_memory)
		return -ENOMEM;
	return d->faults->errors > errors ? -EINVAL : 0;
}

int policy_reserve_rules(struct policy *p, struct arena *arena, size_t more)
{
	struct rule *grown;

	if (more <= p->capacity - p->count)
		return 0;
	grown = arena_array(arena, p->count + more, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	if (p->count > 0)
		memcpy(grown, p->rules, p->count * sizeof(*grown));
	p->rules = grown;
	p->capacity = p->count + more;
	return 0;
}

int policy_add_rule(struct policy *p, struct arena *arena, const struct rule *r)
{
	if (p->count == p->capacity &&
	    policy_reserve_rules(p, arena, MAX(p->count, (size_t)32)) < 0)
		return -ENOMEM;
	p->rules[p->count++] = *r;
	return 0;
}
