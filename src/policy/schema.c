// SPDX-License-Identifier: Apache-2.0
#include "policy/schema.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "policy/limits.h"

/* -- walking a document by tables of keys ------------------------------------------- */

/* A reader of a value that meets a fault adds the fault and goes on, so that one walk
 * finds them all; with each goes the path of its value ("egress[3].target"). */
struct walk {
	struct schema_document *document;
	const char *base; /* the path of the whole: "egress[3]" */
	bool out_of_memory;
	const struct node *root;
	bool is_wrapped; /* below `network_policy` */
};

/* Faults that are only counted need no path. */
static const char *walk_path(const struct walk *w, const struct node *n,
			     char buf[NODE_PATH_SIZE])
{
	char below[NODE_PATH_SIZE] = "";

	if (w->document->faults->count < POLICY_FAULTS_MAX)
		node_path(n, below);
	snprintf(buf, NODE_PATH_SIZE, "%s%s%s", w->base,
		 w->base[0] && below[0] ? "." : "", below);
	return buf;
}

/* Add a fault at @n. */
PRINTF_LIKE(3, 4)
static void walk_fault(struct walk *w, const struct node *n, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE], path[NODE_PATH_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	faults_add(w->document->faults, FAULT_ERROR, w->document->file, n->line,
		   n->column, walk_path(w, n, path), "%s", text);
}

/* "'text' is not <what>", for a value of the wrong kind or outside its range. */
static void walk_is_not(struct walk *w, const struct node *n, const char *what)
{
	if (n->kind == NODE_LIST || n->kind == NODE_MAP || n->kind == NODE_NULL)
		walk_fault(w, n, "%s stands here, not %s", node_kind_name(n->kind), what);
	else
		walk_fault(w, n, "'%s' is not %s", TEXT_SHOWN(n->text), what);
}

static void unknown_key(struct walk *w, const struct node *n,
			const struct schema_key *keys, size_t count)
{
	/* What a configuration file of `weir run` may have, and a policy can't. */
	static const char *const words[] = { "env",	    "pass_env",	   "set_env",
					     "rw",	    "rw_preset",   "ro",
					     "hide",	    "hide_preset", "home",
					     "uplink",	    "upstream",	   "self_test",
					     "fail_on_deny" };
	char known[256] = "", path[NODE_PATH_SIZE];
	const bool of_run = walk_path(w, n->parent, path)[0] == '\0' &&
			    TEXT_FIND(n->key, words);

	for (size_t i = 0; i < count; i++) {
		size_t used = strlen(known);

		snprintf(known + used, sizeof(known) - used, "%s%s", i > 0 ? ", " : "",
			 keys[i].name);
	}
	faults_add(w->document->faults, FAULT_ERROR, w->document->file, n->key_line,
		   n->key_column, path, "'%s' is %s%s", TEXT_SHOWN(n->key),
		   of_run ? "no part of a policy but an option of weir run, which a run "
			    "keeps until it ends"
			  : "not a key that is known here: there are ",
		   of_run ? "" : known);
}

/* Call @read for every item of a list. */
static void walk_list(struct walk *w, const struct node *list,
		      void (*read)(struct walk *w, const struct node *n, void *data),
		      void *data)
{
	if (list->kind != NODE_LIST) {
		walk_is_not(w, list, "a list: write [ ] around it");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next)
		read(w, n, data);
}

/* Call the reader of every key of a mapping; other keys are faults. */
static void walk_map(struct walk *w, const struct node *map,
		     const struct schema_key *keys, size_t count, void *data)
{
	if (map->kind != NODE_MAP) {
		walk_is_not(w, map, "a mapping");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		const struct schema_key *known =
			text_find(n->key, keys, count, sizeof(*keys));

		if (!known)
			unknown_key(w, n, keys, count);
		else if (known->is_list)
			walk_list(w, n, known->read, data);
		else
			known->read(w, n, data);
	}
}

/* A copy that lives as long as the rules; "" when memory is out. */
static const char *walk_text(struct walk *w, struct text t)
{
	const char *copy = t.len > 0 ? arena_text(w->document->arena, t) : "";

	if (!copy)
		w->out_of_memory = true;
	return copy ? copy : "";
}

/* One word of a few. Return: its index, or -1 with a fault. */
static int walk_word(struct walk *w, const struct node *n, const char *const *words,
		     size_t count, const char *what)
{
	const char *const *known =
		n->kind == NODE_TEXT ? text_find(n->text, words, count, sizeof(*words))
				     : NULL;

	if (known)
		return (int)(known - words);
	walk_is_not(w, n, what);
	return -1;
}

/* False with a fault for anything but true and false. */
static bool walk_bool(struct walk *w, const struct node *n)
{
	if (n->kind == NODE_BOOL)
		return text_equal(n->text, "true");
	walk_is_not(w, n, "true or false");
	return false;
}

/* -- the keys of one rule ----------------------------------------------------------- */

static enum policy_action walk_action(struct walk *w, const struct node *n)
{
	int i = walk_word(w, n, rule_action_words, RULE_ACTION_COUNT,
			  "an action: write allow, ask or deny");

	return i < 0 ? POLICY_DENY : (enum policy_action)i;
}

static void on_action(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;

	r->action = walk_action(w, n);
}

static void on_target(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;
	struct err err = { 0 };

	if (n->kind == NODE_LIST || n->kind == NODE_MAP || n->kind == NODE_NULL)
		walk_is_not(w, n, "a name or an address");
	else if (rule_target_parse(n->text, r, &err) < 0)
		walk_fault(w, n, "%s", err.text);
	r->target = walk_text(w, n->text);
}

/* Gathers the parts of a list of ports: "443,8000-8100". */
struct ports_walk {
	char *text;
	size_t used, size;
};

static void on_port(struct walk *w, const struct node *n, void *data)
{
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX];
	struct ports_walk *pw = data;
	struct err err = { 0 };
	bool with_default;

	if (n->kind != NODE_TEXT && n->kind != NODE_NUMBER)
		walk_is_not(w, n, "a port");
	else if (rule_ports_parse(n->text, ranges, &with_default, &err) < 0)
		walk_fault(w, n, "%s", err.text);
	else if (pw->used + n->text.len + 1 <= pw->size)
		pw->used += (size_t)snprintf(pw->text + pw->used, pw->size - pw->used,
					     "%s%.*s", pw->used > 0 ? "," : "",
					     (int)n->text.len, n->text.ptr);
}

static void on_ports(struct walk *w, const struct node *n, void *data)
{
	struct ports_walk pw = { .size = 2 };
	size_t errors = w->document->faults->errors;
	struct rule *rule = data;
	struct err err = { 0 };
	int r;

	for (const struct node *port = n->first; port; port = port->next)
		pw.size += port->text.len + 1;
	pw.text = arena_alloc(w->document->arena, pw.size);
	if (!pw.text) {
		w->out_of_memory = true;
		return;
	}
	if (n->kind == NODE_LIST && n->count == 0)
		walk_fault(w, n,
			   "an empty list opens nothing; without `ports` the rule "
			   "opens every port but 53 and 853");
	walk_list(w, n, on_port, &pw);
	if (w->document->faults->errors > errors)
		return;
	r = rule_ports_read((struct text){ pw.text, pw.used }, w->document->arena,
			    &rule->ports, &err);
	if (r == -ENOMEM)
		w->out_of_memory = true;
	else if (r < 0)
		walk_fault(w, n, "%s", err.text);
}

static void on_type(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;
	int i = walk_word(
		w, n, rule_type_words, RULE_TYPE_COUNT,
		"a type that a rule can add: there are PTR, SRV, TXT and MX (A and AAAA "
		"are always served)");

	if (i >= 0)
		r->types |= (uint8_t)(1 << i);
}

static void on_flag(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;
	const struct rule_flag_word *word = TEXT_FIND(n->key, rule_flag_words);

	if (walk_bool(w, n) && word)
		r->flags |= word->flag;
}

static void on_comment(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;

	if (n->kind != NODE_TEXT)
		walk_is_not(w, n, "text: write quotes around it");
	else
		r->comment = walk_text(w, n->text);
}

/* The first moment that there is: 0 would mean that there is no end. */
static void on_until(struct walk *w, const struct node *n, void *data)
{
	struct rule *r = data;

	if (n->kind != NODE_TEXT || !timestamp_parse(n->text, &r->until_ms))
		walk_is_not(w, n, "a time: write it like 2026-11-20T13:31:08Z");
	r->until_ms = MAX(r->until_ms, INT64_C(1));
}

static void on_for(struct walk *w, const struct node *n, void *data)
{
	const int64_t now_ms = w->document->now_ms;
	struct rule *r = data;
	int64_t ms = 0;

	if (n->kind != NODE_TEXT || !text_to_duration_ms(n->text, &ms) ||
	    ms < RULE_FOR_MIN_MS || ms > RULE_FOR_MAX_MS)
		walk_is_not(w, n, RULE_FOR_WORDS);
	else if (now_ms <= 0)
		walk_fault(w, n,
			   "a time from now on would begin anew each time this text is "
			   "read: write `until` and the time of the end");
	r->until_ms = MAX(now_ms + ms, INT64_C(1));
}

/* -- the budget of a rule -- */

/* "10m": whole seconds. */
static bool seconds_read(const struct node *n, int64_t most_sec, uint32_t *ret)
{
	int64_t ms;

	if (n->kind != NODE_TEXT || !text_to_duration_ms(n->text, &ms) ||
	    ms % 1000 != 0 || ms / 1000 > most_sec)
		return false;
	*ret = (uint32_t)(ms / 1000);
	return true;
}

static bool size_read(const struct node *n, uint64_t *ret)
{
	return (n->kind == NODE_TEXT || n->kind == NODE_NUMBER) &&
	       text_to_size(n->text, ret) && *ret > 0;
}

static void on_budget_bytes(struct walk *w, const struct node *n, void *data)
{
	struct plan_budget *b = data;

	if (!size_read(n, text_equal(n->key, "sent") ? &b->sent : &b->received))
		walk_is_not(w, n, POLICY_SIZE_WORDS);
}

static void on_budget_per(struct walk *w, const struct node *n, void *data)
{
	struct plan_budget *b = data;
	uint32_t seconds = 0;

	if (seconds_read(n, RULE_FOR_MAX_MS / 1000, &seconds) && seconds > 0)
		b->per_sec = seconds;
	else
		walk_is_not(w, n, "a time from 1s to 366d in whole seconds, like 1h");
}

static void on_budget_action(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "cut", "event" };
	struct plan_budget *b = data;
	int i = walk_word(w, n, words, ARRAY_SIZE(words),
			  "what to do when it is used up: write cut or event");

	b->action = i == BUDGET_EVENT ? BUDGET_EVENT : BUDGET_CUT;
}

static void on_budget(struct walk *w, const struct node *n, void *data)
{
	static const struct schema_key keys[] = {
		{ "sent", on_budget_bytes },
		{ "received", on_budget_bytes },
		{ "per", on_budget_per },
		{ "action", on_budget_action },
	};
	size_t errors = w->document->faults->errors;
	struct rule *r = data;

	walk_map(w, n, keys, ARRAY_SIZE(keys), &r->budget);
	if (w->document->faults->errors == errors && r->budget.sent == 0 &&
	    r->budget.received == 0)
		walk_fault(w, n, "a budget needs sent or received");
}

const struct schema_key schema_rule_keys[] = {
	[RULE_KEY_ACTION] = { "action", on_action },
	[RULE_KEY_TARGET] = { "target", on_target },
	[RULE_KEY_PORTS] = { "ports", on_ports },
	[RULE_KEY_TYPES] = { "types", on_type, true },
	[RULE_KEY_PRIVATE] = { "private", on_flag },
	[RULE_KEY_RAW] = { "raw", on_flag },
	[RULE_KEY_REQUIRED] = { "required", on_flag },
	[RULE_KEY_UNMETERED] = { "unmetered", on_flag },
	[RULE_KEY_COMMENT] = { "comment", on_comment },
	[RULE_KEY_BUDGET] = { "budget", on_budget },
	[RULE_KEY_UNTIL] = { "until", on_until },
	[RULE_KEY_FOR] = { "for", on_for },
};
static_assert(ARRAY_SIZE(schema_rule_keys) == RULE_KEY_COUNT, "every key of a rule");

/* A key of the rule @map that says nothing together with its action or target. */
static void useless(struct walk *w, const struct node *map, const char *key,
		    const char *why)
{
	const struct node *n = node_find(map, text_of(key));

	if (n && !(n->kind == NODE_BOOL && text_equal(n->text, "false")))
		walk_fault(w, n, "%s", why);
}

#define NO_DENY_ENDS "a deny that ends would open what it denies by itself"

/* What no single key can see. */
static void check_rule(struct walk *w, const struct node *n, const struct rule *r)
{
	/* All that is said of what passes is said by the rule that grants it. */
	static const char *const not_asked[] = { "types",    "private",	  "raw",
						 "required", "unmetered", "budget",
						 "until",    "for" };

	if (r->action == POLICY_DENY) {
		useless(w, n, "ports",
			"a deny refuses every port; to refuse some, allow the "
			"others before it");
		useless(w, n, "types", "a deny answers no type");
		useless(w, n, "private", "a deny teaches no address");
		useless(w, n, "raw", "a deny lets no bytes pass");
		useless(w, n, "required", "a name can't be denied and required");
		useless(w, n, "unmetered", "a deny has no new names");
		useless(w, n, "budget", "a deny lets no bytes pass");
		useless(w, n, "until", NO_DENY_ENDS);
		useless(w, n, "for", NO_DENY_ENDS);
		return;
	}
	for (size_t i = 0; r->action == POLICY_ASK && i < ARRAY_SIZE(not_asked); i++)
		useless(w, n, not_asked[i],
			"a rule that asks lets nothing pass; the rule that grants it may "
			"say this");
	if (node_find(n, text_of("until")))
		useless(w, n, "for", "the rule says `until` as well: write one of them");
	if (r->target[0] != '*')
		useless(w, n, "unmetered", "only the names below a wildcard are metered");
	if (r->kind == TARGET_PREFIX) {
		useless(w, n, "types", "an address has no DNS types; name a name");
		useless(w, n, "private",
			"an address rule opens what it names; "
			"`private` is for names");
		useless(w, n, "required", "only a name can be required");
	} else if (rule_ports_have(&r->ports, 53)) {
		useless(w, n, "ports", RULE_NO_DNS_PORT);
	}
}

/* Add @rule, which the keys of @map have made, unless there are more faults than
 * @errors. */
static void add_read_rule(struct walk *w, const struct node *map, struct rule *rule,
			  size_t errors)
{
	if (rule->kind != TARGET_NONE)
		check_rule(w, map, rule);
	if (rule->ports.count > 0)
		rule->flags |= PLAN_PORTS_LISTED;
	if (w->document->faults->errors == errors &&
	    policy_add_rule(w->document->policy, w->document->arena, rule) < 0)
		w->out_of_memory = true;
}

static void on_rule(struct walk *w, const struct node *n, void *data)
{
	struct rule rule = { .target = "",
			     .comment = "",
			     .file = w->document->file,
			     .line = n->line,
			     .column = n->column };
	const bool has_action = node_find(n, text_of("action"));
	const bool has_target = node_find(n, text_of("target"));
	const size_t errors = w->document->faults->errors;

	if (n->kind != NODE_MAP) {
		walk_is_not(w, n, "a rule: write {action: allow, target: …}");
		return;
	}
	walk_map(w, n, schema_rule_keys, RULE_KEY_COUNT, &rule);
	if (!has_action)
		walk_fault(w, n, "the rule has no `action`: write allow, ask or deny");
	if (!has_target)
		walk_fault(w, n, "the rule has no `target`: a name or an address");
	if (has_action && has_target)
		add_read_rule(w, n, &rule, errors);
}

/* -- the keys at the top of a policy ------------------------------------------------ */

static const struct node **new_nodes(struct walk *w, size_t count)
{
	const struct node **nodes =
		arena_array(w->document->arena, count + 1, sizeof(*nodes));

	w->out_of_memory |= !nodes;
	return nodes;
}

static void on_extends(struct walk *w, const struct node *n, void *data)
{
	struct schema_document *d = w->document;

	if (n == n->parent->first) {
		d->extends = new_nodes(w, n->parent->count);
		d->extends_count = 0;
	}
	if (n->kind != NODE_TEXT || n->text.len == 0)
		walk_is_not(w, n, "the name of a profile or a file");
	else if (d->extends)
		d->extends[d->extends_count++] = n;
}

static void on_list_item(struct walk *w, const struct node *n, void *data)
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
	w->document->lists = new_nodes(w, n->count);
	w->document->list_count = 0;
	if (w->document->lists && n->kind == NODE_LIST)
		walk_list(w, n, on_list_item, data);
	else if (w->document->lists)
		on_list_item(w, n, data);
}

static void on_default_action(struct walk *w, const struct node *n, void *data)
{
	struct policy *p = w->document->policy;
	const enum policy_action action = walk_action(w, n);

	if (p->has_default_action)
		return;
	p->has_default_action = true;
	p->default_action = action;
}

static struct policy_place place_of(const struct walk *w, const struct node *n)
{
	return (struct policy_place){ w->document->file, n->line, n->column };
}

/* One word of two, unless a document before has said it. Return: its index, or -1. */
static int walk_setting(struct walk *w, const struct node *n, const char *const words[2],
			const char *what, bool *has, struct policy_place *at)
{
	int i = walk_word(w, n, words, 2, what);

	if (i < 0 || *has)
		return -1;
	*has = true;
	*at = place_of(w, n);
	return i;
}

static void on_verify(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "dns", "tls" };
	struct policy *p = w->document->policy;
	int i = walk_setting(w, n, words, "a way to verify: write dns or tls",
			     &p->has_verify, &p->verify_at);

	if (i >= 0)
		p->verify = (enum policy_verify)i;
}

static void on_dns(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "live", "pinned" };
	struct policy *p = w->document->policy;
	int i = walk_setting(w, n, words, "a way to resolve: write live or pinned",
			     &p->has_dns, &p->dns_at);

	if (i >= 0)
		p->dns = (enum policy_dns)i;
}

static void on_denied_names(struct walk *w, const struct node *n, void *data)
{
	static const char *const words[] = { "nxdomain", "refuse" };
	struct policy *p = w->document->policy;
	int i = walk_setting(w, n, words,
			     "an answer for denied names: write nxdomain or refuse",
			     &p->has_denied_names, &p->denied_names_at);

	if (i >= 0)
		p->denied_names = (enum policy_denied_names)i;
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
static void on_limit(struct walk *w, const struct node *n, enum plan_limit which)
{
	const struct limit_info *info = limit_info(which);
	struct policy *p = w->document->policy;
	uint32_t value = LIMIT_UNLIMITED;
	bool good = false;
	char what[128];

	if (n->kind == NODE_NUMBER)
		good = text_to_u32(n->text, UINT32_MAX - 1, &value);
	else if (n->kind == NODE_TEXT && info->unlimited &&
		 text_equal(n->text, "unlimited"))
		good = true;
	else if (strcmp(info->unit, "seconds") == 0)
		good = seconds_read(n, UINT32_MAX - 1, &value);
	if (!good || !limit_is_valid(which, value)) {
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
	struct policy *p = w->document->policy;

	if (map->kind != NODE_MAP) {
		walk_is_not(w, map, "a mapping of limits");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		enum plan_limit which;
		uint64_t bytes;

		if (limit_find(n->key, &which))
			on_limit(w, n, which);
		else if (!text_equal(n->key, "sent_total"))
			walk_fault(w, n,
				   "'%s' is not the name of a limit; weir-policy(5) "
				   "lists them",
				   TEXT_SHOWN(n->key));
		else if (!size_read(n, &bytes))
			walk_is_not(w, n, POLICY_SIZE_WORDS);
		else if (p->budget.sent == 0)
			p->budget.sent = bytes;
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
	uint32_t seconds = 0;

	d->has_window = true;
	if (seconds_read(n, ON_DENIES_WINDOW_MAX_SEC, &seconds) && seconds > 0)
		d->value.window_sec = seconds;
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
		walk_fault(w, n,
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

/* ---- run ---- */

const char *const policy_need_words[] = {
	[NEED_OWN] = "own",
	[NEED_PASS_ENV] = "pass_env",
	[NEED_SET_ENV] = "set_env",
	[NEED_RW_PRESET] = "rw_preset",
};
static_assert(ARRAY_SIZE(policy_need_words) == NEED_KIND_COUNT, "every need has a key");

static bool is_variable(struct text t)
{
	for (size_t i = 0; i < t.len; i++) {
		const char c = t.ptr[i];

		if (!(c == '_' || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
		      (i > 0 && c >= '0' && c <= '9')))
			return false;
	}
	return t.len > 0;
}

/* What @value should be and isn't; NULL: it is one of @kind. */
static const char *need_fault(enum policy_need_kind kind, struct text value)
{
	const char *equals = memchr(value.ptr, '=', value.len);

	if (kind == NEED_RW_PRESET)
		return value.len > 0 ? NULL : "the name of a preset";
	if (kind == NEED_SET_ENV) {
		value.len = equals ? (size_t)(equals - value.ptr) : 0;
		return is_variable(value) ? NULL : "NAME=VALUE";
	}
	return is_variable(value) ? NULL : "the name of a variable";
}

/* @data: which need this is an item of. */
static void on_need(struct walk *w, const struct node *n, void *data)
{
	struct policy *p = w->document->policy;
	const enum policy_need_kind kind = *(const enum policy_need_kind *)data;
	const char *why = n->kind == NODE_TEXT ? need_fault(kind, n->text) : "a text";
	struct policy_need *grown;

	if (why) {
		walk_is_not(w, n, why);
		return;
	}
	if (p->need_count >= POLICY_NEEDS_MAX) {
		walk_fault(w, n, "more than %d entries of `run`", POLICY_NEEDS_MAX);
		return;
	}
	grown = arena_array(w->document->arena, p->need_count + 1, sizeof(*grown));
	if (!grown) {
		w->out_of_memory = true;
		return;
	}
	if (p->need_count > 0)
		memcpy(grown, p->needs, p->need_count * sizeof(*grown));
	grown[p->need_count++] = (struct policy_need){ .kind = kind,
						       .value = walk_text(w, n->text),
						       .at = place_of(w, n) };
	p->needs = grown;
}

static void on_needs(struct walk *w, const struct node *n, void *data)
{
	enum policy_need_kind kind = NEED_OWN;

	while (!text_equal(n->key, policy_need_words[kind]))
		kind++;
	walk_list(w, n, on_need, &kind);
}

static void on_run(struct walk *w, const struct node *n, void *data)
{
	static const struct schema_key keys[] = {
		{ "own", on_needs },
		{ "pass_env", on_needs },
		{ "set_env", on_needs },
		{ "rw_preset", on_needs },
	};

	walk_map(w, n, keys, ARRAY_SIZE(keys), NULL);
}

/* The wrapper is around the whole: no key beside it, and no wrapper inside. */
static void on_network_policy(struct walk *w, const struct node *n, void *data)
{
	if (w->is_wrapped) {
		walk_fault(w, n, "network_policy can't stand inside itself");
		return;
	}
	if (w->root->count != 1) {
		walk_fault(w, n,
			   "network_policy stands alone: move the other keys into it");
		return;
	}
	w->is_wrapped = true;
	walk_map(w, n, schema_policy_keys, POLICY_KEY_COUNT, NULL);
}

const struct schema_key schema_policy_keys[] = {
	[POLICY_KEY_EXTENDS] = { "extends", on_extends, true },
	[POLICY_KEY_DEFAULT_ACTION] = { "defaultAction", on_default_action },
	[POLICY_KEY_EGRESS] = { "egress", on_rule, true },
	[POLICY_KEY_ALLOW_LIST] = { "allow-list", on_allow_list },
	[POLICY_KEY_VERIFY] = { "verify", on_verify },
	[POLICY_KEY_DNS] = { "dns", on_dns },
	[POLICY_KEY_REPIN] = { "repin", on_repin },
	[POLICY_KEY_LIMITS] = { "limits", on_limits },
	[POLICY_KEY_ON_DENIES] = { "on_denies", on_denies },
	[POLICY_KEY_FULL_ISOLATION] = { "require_full_isolation", on_full_isolation },
	[POLICY_KEY_DENIED_NAMES] = { "deniedNames", on_denied_names },
	[POLICY_KEY_RUN] = { "run", on_run },
	[POLICY_KEY_NETWORK_POLICY] = { "network_policy", on_network_policy },
};
static_assert(ARRAY_SIZE(schema_policy_keys) == POLICY_KEY_COUNT,
	      "every key of a policy");

int schema_read(struct schema_document *d, const struct node *root)
{
	struct walk w = { .document = d, .base = "", .root = root };
	size_t errors = d->faults->errors;

	walk_map(&w, root, schema_policy_keys, POLICY_KEY_COUNT, NULL);
	if (w.out_of_memory)
		return -ENOMEM;
	return d->faults->errors > errors ? -EINVAL : 0;
}

int schema_read_own(struct schema_document *d, const struct node *map, const char *path,
		    struct rule *rule)
{
	struct walk w = { .document = d, .base = path };
	const size_t errors = d->faults->errors;

	walk_map(&w, map, schema_rule_keys, RULE_KEY_COUNT, rule);
	add_read_rule(&w, map, rule, errors);
	if (w.out_of_memory)
		return -ENOMEM;
	return d->faults->errors > errors ? -EINVAL : 0;
}
