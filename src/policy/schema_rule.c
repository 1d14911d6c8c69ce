// SPDX-License-Identifier: Apache-2.0
/* The keys of one rule, and what no single key can see. */
#include <stdio.h>
#include <string.h>

#include "policy/faults.h"
#include "policy/walk.h"

struct rule_walk {
	struct rule rule;
	const struct node *action, *target, *ports, *types, *private, *raw, *required,
		*unmetered;
};

const char *const schema_actions[2] = { "deny", "allow" };

static void on_action(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;
	int i = walk_word(w, n, schema_actions, ARRAY_SIZE(schema_actions),
			  "an action: write allow or deny");

	rw->action = n;
	rw->rule.action = i == POLICY_ALLOW ? POLICY_ALLOW : POLICY_DENY;
}

static void on_target(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;
	struct err err = { 0 };

	rw->target = n;
	if (n->kind == NODE_LIST || n->kind == NODE_MAP || n->kind == NODE_NULL)
		walk_is_not(w, n, "a name or an address");
	else if (rule_target_parse(n->text, &rw->rule, &err) < 0)
		walk_fault(w, n, FAULT_ERROR, "%s", err.text);
	rw->rule.target = walk_text(w, n->text);
}

/* Gathers the parts of a list of ports: "443,8000-8100". */
struct ports_walk {
	char *text;
	size_t used, size;
	bool faulty;
};

static void on_port(struct walk *w, const struct node *n, void *data)
{
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX];
	struct ports_walk *pw = data;
	struct err err = { 0 };

	if (n->kind != NODE_TEXT && n->kind != NODE_NUMBER)
		walk_is_not(w, n, "a port");
	else if (rule_ports_parse(n->text, ranges, &err) < 0)
		walk_fault(w, n, FAULT_ERROR, "%s", err.text);
	else if (pw->used + n->text.len + 1 <= pw->size)
		pw->used += (size_t)snprintf(pw->text + pw->used, pw->size - pw->used,
					     "%s%.*s", pw->used > 0 ? "," : "",
					     (int)n->text.len, n->text.ptr);
}

static size_t list_text_size(const struct node *list)
{
	size_t size = 2;

	for (const struct node *n = list->first; n; n = n->next)
		size += n->text.len + 1;
	return size;
}

static void on_ports(struct walk *w, const struct node *n, void *data)
{
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX], *kept;
	struct ports_walk pw = { .size = list_text_size(n) };
	size_t errors = w->document->faults->errors;
	struct rule_walk *rw = data;
	struct err err = { 0 };
	int count;

	rw->ports = n;
	pw.text = arena_alloc(w->document->arena, pw.size);
	if (!pw.text) {
		w->out_of_memory = true;
		return;
	}
	if (n->kind == NODE_LIST && n->count == 0)
		walk_fault(w, n, FAULT_ERROR,
			   "an empty list opens nothing; without `ports` the rule "
			   "opens every port but 53 and 853");
	walk_list(w, n, on_port, &pw);
	if (w->document->faults->errors > errors)
		return;
	count = rule_ports_parse((struct text){ pw.text, pw.used }, ranges, &err);
	if (count < 0) {
		walk_fault(w, n, FAULT_ERROR, "%s", err.text);
		return;
	}
	kept = arena_array(w->document->arena, (size_t)count, sizeof(*kept));
	if (!kept) {
		w->out_of_memory = true;
		return;
	}
	memcpy(kept, ranges, (size_t)count * sizeof(*kept));
	rw->rule.ports = (struct rule_ports){ kept, (size_t)count };
}

static void on_type(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "PTR", "SRV", "TXT", "MX" };
	struct rule_walk *rw = data;
	int i = walk_word(
		w, n, words, ARRAY_SIZE(words),
		"a type that a rule can add: there are PTR, SRV, TXT and MX (A and AAAA "
		"are always served)");

	if (i >= 0)
		rw->rule.types |= (uint8_t)(1 << i);
}

static void on_types(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	rw->types = n;
	walk_list(w, n, on_type, data);
}

static void set_flag(struct walk *w, const struct node *n, struct rule *r, uint8_t flag)
{
	if (walk_bool(w, n))
		r->flags |= flag;
}

static void on_private(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	rw->private = n;
	set_flag(w, n, &rw->rule, PLAN_PRIVATE);
}

static void on_raw(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	rw->raw = n;
	set_flag(w, n, &rw->rule, PLAN_RAW);
}

static void on_required(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	rw->required = n;
	set_flag(w, n, &rw->rule, PLAN_REQUIRED);
}

static void on_unmetered(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	rw->unmetered = n;
	set_flag(w, n, &rw->rule, PLAN_UNMETERED);
}

static void on_comment(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	if (n->kind != NODE_TEXT)
		walk_is_not(w, n, "text: write quotes around it");
	else
		rw->rule.comment = walk_text(w, n->text);
}

static const struct schema_key rule_keys[] = {
	{ "action", on_action },     { "target", on_target },
	{ "ports", on_ports },	     { "types", on_types },
	{ "private", on_private },   { "raw", on_raw },
	{ "required", on_required }, { "unmetered", on_unmetered },
	{ "comment", on_comment },
};

static bool ports_have(const struct rule_ports *ports, uint16_t port)
{
	for (size_t i = 0; i < ports->count; i++) {
		if (port >= ports->ranges[i].from && port <= ports->ranges[i].to)
			return true;
	}
	return false;
}

/* A key that says nothing together with the rule's action or target. */
static void useless(struct walk *w, const struct node *n, const char *key,
		    const char *why)
{
	size_t used;

	if (!n || (n->kind == NODE_BOOL && text_equal(n->text, "false")))
		return;
	used = walk_push(w, ".%s", key);
	walk_fault(w, n, FAULT_ERROR, "%s", why);
	walk_pop(w, used);
}

/* What no single key can see. */
static void check_rule(struct walk *w, const struct node *n, const struct rule_walk *rw)
{
	const struct rule *r = &rw->rule;

	if (!rw->action)
		walk_fault(w, n, FAULT_ERROR,
			   "the rule has no `action`: write allow or deny");
	if (!rw->target)
		walk_fault(w, n, FAULT_ERROR,
			   "the rule has no `target`: a name or an address");
	if (!rw->action || !rw->target || r->kind == TARGET_NONE)
		return;
	if (r->action == POLICY_DENY) {
		useless(w, rw->ports, "ports",
			"a deny refuses every port; to refuse some, allow the "
			"others before it");
		useless(w, rw->types, "types", "a deny answers no type");
		useless(w, rw->private, "private", "a deny teaches no address");
		useless(w, rw->raw, "raw", "a deny lets no bytes pass");
		useless(w, rw->required, "required",
			"a name can't be denied and required");
		useless(w, rw->unmetered, "unmetered", "a deny has no new names");
		return;
	}
	if (r->target[0] != '*')
		useless(w, rw->unmetered, "unmetered",
			"only the names below a wildcard are metered");
	if (r->kind == TARGET_PREFIX) {
		useless(w, rw->types, "types",
			"an address has no DNS types; name a name");
		useless(w, rw->private, "private",
			"an address rule opens what it names; "
			"`private` is for names");
		useless(w, rw->required, "required", "only a name can be required");
	} else if (ports_have(&r->ports, 53)) {
		useless(w, rw->ports, "ports",
			"port 53 of a name can't be opened, because Weir answers "
			"DNS itself; "
			"name the address of the server");
	}
}

void schema_read_rule(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk rw = { .rule = { .target = "",
					  .comment = "",
					  .file = w->document->file,
					  .line = n->line,
					  .column = n->column } };
	size_t errors = w->document->faults->errors;

	if (n->kind != NODE_MAP) {
		walk_is_not(w, n, "a rule: write {action: allow, target: …}");
		return;
	}
	walk_map(w, n, rule_keys, ARRAY_SIZE(rule_keys), &rw);
	check_rule(w, n, &rw);
	if (rw.rule.ports.count > 0)
		rw.rule.flags |= PLAN_PORTS_LISTED;
	if (w->document->faults->errors == errors &&
	    policy_add_rule(w->document->policy, w->document->arena, &rw.rule) < 0)
		w->out_of_memory = true;
}
