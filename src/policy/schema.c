// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Every mapping has a table of its keys; walk_map() looks each key up, keeps the path
 * for messages ("egress[3].target"), and calls the key's reader. A reader that meets a
 * fault adds it and goes on, so one walk finds them all. */
#include "policy/schema.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "policy/faults.h"
#include "policy/limits.h"

enum { PATH_SIZE = 256 };

struct walk {
	struct document *document;
	char path[PATH_SIZE];
	bool out_of_memory;
	const struct node *root;
	bool is_wrapped; /* below `network_policy` */
};

struct schema_key {
	const char *name;
	void (*read)(struct walk *w, const struct node *n, void *data);
};

static void fault(struct walk *w, const struct node *n, enum fault_level level,
		  const char *fmt, ...) PRINTF_LIKE(4, 5);

static void fault(struct walk *w, const struct node *n, enum fault_level level,
		  const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	faults_add(w->document->faults, level, w->document->file, n->line, n->column,
		   w->path, "%s", text);
}

/* "'text' is not <what>", for a value of the wrong kind or outside its range. */
static void fault_is_not(struct walk *w, const struct node *n, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	if (n->kind == NODE_LIST || n->kind == NODE_MAP || n->kind == NODE_NULL)
		fault(w, n, FAULT_ERROR, "%s stands here, not %s",
		      node_kind_name(n->kind), what);
	else
		fault(w, n, FAULT_ERROR, "'%s' is not %s",
		      text_escape(n->text, shown, sizeof(shown)), what);
}

/* Make the path longer. Return: its length before, for path_pop(). */
static size_t path_push(struct walk *w, const char *fmt, ...) PRINTF_LIKE(2, 3);

static size_t path_push(struct walk *w, const char *fmt, ...)
{
	size_t used = strlen(w->path);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->path + used, sizeof(w->path) - used, fmt, ap);
	va_end(ap);
	return used;
}

static void path_pop(struct walk *w, size_t used)
{
	w->path[used] = '\0';
}

static void fault_unknown_key(struct walk *w, const struct node *n,
			      const struct schema_key *keys, size_t count)
{
	char known[256] = "", shown[TEXT_ESCAPED_SIZE];
	struct node at = *n;

	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(known);

		snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
			 keys[i].name);
	}
	at.line = n->key_line;
	at.column = n->key_column;
	fault(w, &at, FAULT_ERROR, "'%s' is not a key that is known here: there are %s",
	      text_escape(n->key, shown, sizeof(shown)), known);
}

static void walk_map(struct walk *w, const struct node *map,
		     const struct schema_key *keys, size_t count, void *data)
{
	if (map->kind != NODE_MAP) {
		fault_is_not(w, map, "a mapping");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		size_t i = 0, used;

		while (i < count && !text_equal(n->key, keys[i].name))
			i++;
		if (i == count) {
			fault_unknown_key(w, n, keys, count);
			continue;
		}
		used = path_push(w, "%s%s", w->path[0] ? "." : "", keys[i].name);
		keys[i].read(w, n, data);
		path_pop(w, used);
	}
}

/* Call @read for every item of a list. */
static void walk_list(struct walk *w, const struct node *list,
		      void (*read)(struct walk *w, const struct node *n, void *data),
		      void *data)
{
	size_t i = 0;

	if (list->kind != NODE_LIST) {
		fault_is_not(w, list, "a list: write [ ] around it");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next) {
		size_t used = path_push(w, "[%zu]", i++);

		read(w, n, data);
		path_pop(w, used);
	}
}

static const char *keep_text(struct walk *w, struct text t)
{
	const char *copy = t.len > 0 ? arena_text(w->document->arena, t) : "";

	if (!copy)
		w->out_of_memory = true;
	return copy ? copy : "";
}

/* One word of a few. Return: its index, or -1 with a fault. */
static int read_word(struct walk *w, const struct node *n, const char *const *words,
		     size_t count, const char *what)
{
	for (size_t i = 0; n->kind == NODE_TEXT && i < count; i++) {
		if (text_equal(n->text, words[i]))
			return (int)i;
	}
	fault_is_not(w, n, what);
	return -1;
}

static bool read_bool(struct walk *w, const struct node *n)
{
	if (n->kind == NODE_BOOL)
		return text_equal(n->text, "true");
	fault_is_not(w, n, "true or false");
	return false;
}

/* --- one rule --- */

struct rule_walk {
	struct rule rule;
	const struct node *action, *target, *ports, *types, *private, *raw, *required;
};

static const char *const actions[] = { "deny", "allow" };

static void on_action(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;
	int i = read_word(w, n, actions, ARRAY_SIZE(actions),
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
		fault_is_not(w, n, "a name or an address");
	else if (rule_target_parse(n->text, &rw->rule, &err) < 0)
		fault(w, n, FAULT_ERROR, "%s", err.text);
	rw->rule.target = keep_text(w, n->text);
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
		fault_is_not(w, n, "a port");
	else if (rule_ports_parse(n->text, ranges, &err) < 0)
		fault(w, n, FAULT_ERROR, "%s", err.text);
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
		fault(w, n, FAULT_ERROR,
		      "an empty list opens nothing; without `ports` the rule "
		      "opens every port but 53 and 853");
	walk_list(w, n, on_port, &pw);
	if (w->document->faults->errors > errors)
		return;
	count = rule_ports_parse((struct text){ pw.text, pw.used }, ranges, &err);
	if (count < 0) {
		fault(w, n, FAULT_ERROR, "%s", err.text);
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
	int i = read_word(
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
	if (read_bool(w, n))
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

static void on_comment(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk *rw = data;

	if (n->kind != NODE_TEXT)
		fault_is_not(w, n, "text: write quotes around it");
	else
		rw->rule.comment = keep_text(w, n->text);
}

static const struct schema_key rule_keys[] = {
	{ "action", on_action },     { "target", on_target },	{ "ports", on_ports },
	{ "types", on_types },	     { "private", on_private }, { "raw", on_raw },
	{ "required", on_required }, { "comment", on_comment },
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
static void fault_useless(struct walk *w, const struct node *n, const char *key,
			  const char *why)
{
	size_t used;

	if (!n || (n->kind == NODE_BOOL && text_equal(n->text, "false")))
		return;
	used = path_push(w, ".%s", key);
	fault(w, n, FAULT_ERROR, "%s", why);
	path_pop(w, used);
}

/* What no single key can see. */
static void check_rule(struct walk *w, const struct node *n, const struct rule_walk *rw)
{
	const struct rule *r = &rw->rule;

	if (!rw->action)
		fault(w, n, FAULT_ERROR, "the rule has no `action`: write allow or deny");
	if (!rw->target)
		fault(w, n, FAULT_ERROR,
		      "the rule has no `target`: a name or an address");
	if (!rw->action || !rw->target || r->kind == TARGET_NONE)
		return;
	if (r->action == POLICY_DENY) {
		fault_useless(w, rw->ports, "ports",
			      "a deny refuses every port; to refuse some, allow the "
			      "others before it");
		fault_useless(w, rw->types, "types", "a deny answers no type");
		fault_useless(w, rw->private, "private", "a deny teaches no address");
		fault_useless(w, rw->raw, "raw", "a deny lets no bytes pass");
		fault_useless(w, rw->required, "required",
			      "a name can't be denied and required");
		return;
	}
	if (r->kind == TARGET_PREFIX) {
		fault_useless(w, rw->types, "types",
			      "an address has no DNS types; name a name");
		fault_useless(w, rw->private, "private",
			      "an address rule opens what it names; "
			      "`private` is for names");
		fault_useless(w, rw->required, "required", "only a name can be required");
	} else if (ports_have(&r->ports, 53)) {
		fault_useless(w, rw->ports, "ports",
			      "port 53 of a name can't be opened, because Weir answers "
			      "DNS itself; "
			      "name the address of the server");
	}
}

static void on_rule(struct walk *w, const struct node *n, void *data)
{
	struct rule_walk rw = { .rule = { .target = "",
					  .comment = "",
					  .file = w->document->file,
					  .line = n->line,
					  .column = n->column } };
	size_t errors = w->document->faults->errors;

	if (n->kind != NODE_MAP) {
		fault_is_not(w, n, "a rule: write {action: allow, target: …}");
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

/* --- the top --- */

static void on_extends_item(struct walk *w, const struct node *n, void *data)
{
	struct document *d = w->document;

	if (n->kind != NODE_TEXT || n->text.len == 0)
		fault_is_not(w, n, "the name of a profile or a file");
	else
		d->extends[d->extends_count++] = n;
}

static void on_extends(struct walk *w, const struct node *n, void *data)
{
	struct document *d = w->document;

	d->extends = arena_array(d->arena, n->count + 1, sizeof(const struct node *));
	if (!d->extends)
		w->out_of_memory = true;
	else
		walk_list(w, n, on_extends_item, data);
}

static void on_default_action(struct walk *w, const struct node *n, void *data)
{
	struct policy *p = w->document->policy;
	int i = read_word(w, n, actions, ARRAY_SIZE(actions),
			  "an action: write allow or deny");

	if (p->has_default_action)
		return;
	p->has_default_action = true;
	p->default_action = i == POLICY_ALLOW ? POLICY_ALLOW : POLICY_DENY;
}

static void on_egress(struct walk *w, const struct node *n, void *data)
{
	walk_list(w, n, on_rule, data);
}

static struct policy_place place_of(const struct walk *w, const struct node *n)
{
	return (struct policy_place){ w->document->file, n->line, n->column };
}

static void on_verify(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "dns", "tls" };
	struct policy *p = w->document->policy;
	int i = read_word(w, n, words, ARRAY_SIZE(words),
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
	int i = read_word(w, n, words, ARRAY_SIZE(words),
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
		fault_is_not(w, n, "a time from 1m to 30d, like 6h");
	} else if (p->repin_ms == 0) {
		p->repin_ms = ms;
		p->repin_at = place_of(w, n);
	}
}

static void on_full_isolation(struct walk *w, const struct node *n, void *data)
{
	if (read_bool(w, n))
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
		fault_is_not(w, n, what);
	} else if (p->limits[which] == 0) {
		p->limits[which] = value;
	}
}

static void on_limits(struct walk *w, const struct node *map, void *data)
{
	if (map->kind != NODE_MAP) {
		fault_is_not(w, map, "a mapping of limits");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		enum plan_limit which;
		char shown[64];
		size_t used;

		text_escape(n->key, shown, sizeof(shown));
		used = path_push(w, ".%s", shown);
		if (limit_find(n->key, &which))
			on_limit(w, n, which);
		else
			fault(w, n, FAULT_ERROR,
			      "'%s' is not the name of a limit; weir-policy(5) "
			      "lists them",
			      shown);
		path_pop(w, used);
	}
}

static void on_network_policy(struct walk *w, const struct node *n, void *data);

static const struct schema_key top_keys[] = {
	{ "extends", on_extends },
	{ "defaultAction", on_default_action },
	{ "egress", on_egress },
	{ "verify", on_verify },
	{ "dns", on_dns },
	{ "repin", on_repin },
	{ "limits", on_limits },
	{ "require_full_isolation", on_full_isolation },
	{ "network_policy", on_network_policy },
};

/* The wrapper stands around the whole: nothing beside it, nothing like it inside. */
static void on_network_policy(struct walk *w, const struct node *n, void *data)
{
	if (w->is_wrapped) {
		fault(w, n, FAULT_ERROR, "network_policy can't stand inside itself");
		return;
	}
	if (w->root->count != 1) {
		fault(w, n, FAULT_ERROR,
		      "network_policy stands alone: move the other keys into it");
		return;
	}
	w->is_wrapped = true;
	walk_map(w, n, top_keys, ARRAY_SIZE(top_keys), NULL);
}

int schema_read(struct document *d, const struct node *root)
{
	struct walk w = { .document = d, .root = root };
	size_t errors = d->faults->errors;

	walk_map(&w, root, top_keys, ARRAY_SIZE(top_keys), NULL);
	if (w.out_of_memory)
		return -ENOMEM;
	return d->faults->errors > errors ? -EINVAL : 0;
}

int policy_add_rule(struct policy *p, struct arena *arena, const struct rule *r)
{
	if (p->count == p->capacity) {
		size_t capacity = MAX(p->capacity * 2, (size_t)32);
		struct rule *grown = arena_array(arena, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		if (p->count > 0)
			memcpy(grown, p->rules, p->count * sizeof(*grown));
		p->rules = grown;
		p->capacity = capacity;
	}
	p->rules[p->count++] = *r;
	return 0;
}
