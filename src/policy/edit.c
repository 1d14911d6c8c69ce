// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * What comes of the text with the rules in it is read again and held against the policy
 * before: these rules more, each at its place, and nothing else may differ, and each rule
 * has to decide what it says. Where that can't be had the text stays as it is, and the
 * rule is for a person to add. The text is read once for all rules together, so the time
 * grows with their number and not with its square. */
#include "policy/edit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/index.h"
#include "event/json.h"
#include "policy/load.h"
#include "policy/node.h"

/* A policy as it is read from a text. */
struct reading {
	struct faults faults;
	struct policy policy;
	struct plan plan;
	uint8_t *bytes; /* of it, owned */
};

static void clean_reading(struct reading *r)
{
	faults_done(&r->faults);
	free(r->bytes);
}

/* @now_ms: one edit reads all its texts at the same time, so that `for: 10m` is the same
 * end in each. */
static int read_policy(const char *path, struct text text, int64_t now_ms,
		       struct arena *arena, struct reading *ret, struct err *err)
{
	const struct policy_args args = { .file = path, .now_ms = now_ms };
	size_t size;
	int r = cli_policy_load_text(&args, &text, arena, &ret->faults, &ret->policy,
				     &ret->bytes, &size);

	if (r == -EINVAL && faults_first_error(&ret->faults, err) < 0)
		return r;
	if (r < 0)
		return err_sys(err, r, "cannot read the policy");
	r = plan_open(ret->bytes, size, &ret->plan, err);
	if (r == 0)
		plan_set_time(&ret->plan, now_ms);
	return r;
}

static bool same_budget(const struct plan_budget *a, const struct plan_budget *b)
{
	return a->sent == b->sent && a->received == b->received &&
	       a->per_sec == b->per_sec && a->action == b->action;
}

static bool same_rule(const struct rule *a, const struct rule *b)
{
	return a->action == b->action && rule_same_target(a, b) &&
	       rule_ports_equal(&a->ports, &b->ports) && a->flags == b->flags &&
	       a->types == b->types && a->until_ms == b->until_ms &&
	       same_budget(&a->budget, &b->budget) && strcmp(a->target, b->target) == 0 &&
	       strcmp(a->comment, b->comment) == 0;
}

static bool same_settings(const struct policy *a, const struct policy *b)
{
	return a->default_action == b->default_action && a->verify == b->verify &&
	       a->dns == b->dns && a->denied_names == b->denied_names &&
	       a->repin_ms == b->repin_ms &&
	       a->require_full_isolation == b->require_full_isolation &&
	       a->on_denies.count == b->on_denies.count &&
	       a->on_denies.window_sec == b->on_denies.window_sec &&
	       a->on_denies.action == b->on_denies.action &&
	       a->source_count == b->source_count && a->open_doh == b->open_doh &&
	       same_budget(&a->budget, &b->budget) &&
	       memcmp(a->limits, b->limits, sizeof(a->limits)) == 0;
}

/* A rule that is to be added. */
struct addition {
	const struct rule *rule;
	const char *text;  /* as it stands in the list */
	size_t at, offset; /* before which rule of the policy; where in the text */
	size_t number;	   /* of the rule in the policy that comes of it */
};

/* Exactly @additions are more, each as number @number. */
static bool are_more(const struct policy *before, const struct policy *after,
		     const struct addition *additions, size_t count)
{
	size_t added = 0;

	if (after->count != before->count + count || !same_settings(before, after))
		return false;
	for (size_t i = 0; i < after->count; i++) {
		const struct rule *a, *b = &after->rules[i];

		if (added < count && additions[added].number == i) {
			if (!same_rule(b, additions[added++].rule))
				return false;
			continue;
		}
		a = &before->rules[i - added];
		if (!same_rule(a, b) || strcmp(a->file, b->file) != 0)
			return false;
	}
	return added == count;
}

/* A deny of an address counts in whatever order. */
static bool opens(const struct plan *plan, const struct rule *r)
{
	const struct plan_port_range *port = r->ports.count > 0 ? r->ports.ranges : NULL;
	struct plan_verdict v = r->kind == TARGET_PREFIX
					? plan_match_addr(plan, &r->prefix.addr,
							  port ? port->protocol : 0,
							  port ? port->from : 0)
					: plan_match_name(plan, &r->name);

	return v.action == POLICY_ALLOW;
}

/* A text, and where each of its lines begins. */
struct lines {
	struct text text;
	const size_t *start;
	size_t count;
};

static bool find_lines(struct text t, struct arena *arena, struct lines *ret)
{
	size_t count = 1, *start;

	for (size_t i = 0; i < t.len; i++)
		count += t.ptr[i] == '\n';
	start = arena_array(arena, count, sizeof(*start));
	if (!start)
		return false;
	*ret = (struct lines){ t, start, 1 };
	start[0] = 0;
	for (size_t i = 0; i < t.len; i++)
		if (t.ptr[i] == '\n')
			start[ret->count++] = i + 1;
	return true;
}

/* Where that line begins; the text's end when there is none. */
static size_t line_start(const struct lines *l, uint32_t line)
{
	return line <= l->count ? l->start[line > 0 ? line - 1 : 0] : l->text.len;
}

static struct text line_at(const struct lines *l, uint32_t line)
{
	const size_t from = line_start(l, line);

	return text_trim(
		(struct text){ l->text.ptr + from, line_start(l, line + 1) - from });
}

/* A position in a text, and what stands around the rules that are inserted there. */
struct position {
	size_t at;
	const char *before, *between, *after;
};

/* The offset of @n, or the text's end. */
static size_t offset_of(const struct lines *l, const struct node *n)
{
	const struct text t = l->text;
	size_t at = line_start(l, n->line);

	for (uint32_t i = 1; i < n->column && at < t.len; i++)
		do
			at++;
		while (at < t.len && (t.ptr[at] & 0xc0) == 0x80);
	return at;
}

static bool is_at(const struct lines *l, const struct node *n, char byte)
{
	size_t at = offset_of(l, n);

	return at < l->text.len && l->text.ptr[at] == byte;
}

/* @before, @after: of a list that isn't there yet. */
static void into_brackets(const struct lines *l, const struct node *n, const char *before,
			  const char *after, struct arena *arena, struct position *ret)
{
	ret->at = offset_of(l, n) + 1;
	ret->before = before;
	ret->between = ", ";
	ret->after = arena_printf(arena, "%s%s", after, n->count > 0 ? ", " : "");
}

static bool is_json(const char *path, struct text t)
{
	return policy_format_guess(path, t) == POLICY_FORMAT_JSON;
}

/* The text with @additions in it, the first @front of them at @position. */
static struct text insert(struct text t, const struct position *position,
			  const struct addition *additions, size_t count, size_t front,
			  struct arena *arena)
{
	const size_t around = strlen(position->before) + strlen(position->between) +
			      strlen(position->after);
	size_t size = t.len + 1, from = 0;
	struct jtext all;
	char *buf;

	for (size_t i = 0; i < count; i++)
		size += strlen(additions[i].text) + around;
	buf = arena_alloc(arena, size);
	if (!buf)
		return (struct text){ 0 };
	jtext_init(&all, buf, size);
	for (size_t i = 0; i < count; i++) {
		const struct addition *a = &additions[i];
		const bool first = i == 0 || i >= front, last = i + 1 >= front;

		jtext_put(&all, (struct text){ t.ptr + from, a->offset - from });
		from = a->offset;
		jtext_put(&all, text_of(first ? position->before : position->between));
		jtext_put(&all, text_of(a->text));
		jtext_put(&all, text_of(last ? position->after : ""));
	}
	jtext_put(&all, (struct text){ t.ptr + from, t.len - from });
	return (struct text){ buf, all.used };
}

/* The line @line begins a rule of a list, with comments above it. Return: the first of
 * these lines; 0: that isn't so. */
static uint32_t item_start(const struct lines *l, uint32_t line)
{
	const struct text one = line_at(l, line);

	if (line == 0 || one.len < 2 || one.ptr[0] != '-' || one.ptr[1] != ' ')
		return 0;
	while (line > 1 && line_at(l, line - 1).len > 0 &&
	       line_at(l, line - 1).ptr[0] == '#')
		line--;
	return line;
}

/* Where a rule that comes before the rule @at of the policy belongs. Return: the line;
 * 0: in front of all. */
static uint32_t line_before(const struct lines *l, const struct policy *p,
			    const char *path, size_t at)
{
	struct text last;

	if (at == 0)
		return 0;
	if (at < p->count && strcmp(p->rules[at].file, path) == 0)
		return item_start(l, p->rules[at].line);
	if (item_start(l, p->rules[at - 1].line) == 0)
		return 0;
	/* Behind the last one, where that is one line. */
	last = text_without_comment(line_at(l, p->rules[at - 1].line));
	return last.len > 0 && last.ptr[last.len - 1] == '}' ? p->rules[at - 1].line + 1
							     : 0;
}

static int compare_additions(const void *a, const void *b)
{
	const struct addition *x = a, *y = b;

	return strcmp(x->rule->target, y->rule->target);
}

static int by_place(const void *a, const void *b)
{
	const struct addition *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	return compare_additions(a, b);
}

/* What one call works on. */
struct edit {
	const char *path;
	int64_t now_ms; /* wall clock */
	struct lines lines;
	struct reading before;
	struct position position; /* in front of all rules */
	struct addition *additions;
	size_t count, front; /* so many of them stand at @position */
	struct arena arena;  /* of this call alone */
};

static void clean_edit(struct edit *e)
{
	clean_reading(&e->before);
	arena_done(&e->arena);
}

/* Each before the first rule of the file whose target is a greater text, unless another
 * rule would decide there; @front: all before the first rule. */
static void place(struct edit *e, bool front)
{
	const struct policy *p = &e->before.policy;
	size_t at = 0;

	if (!front)
		qsort(e->additions, e->count, sizeof(*e->additions), compare_additions);
	for (size_t i = 0; i < e->count; i++) {
		struct addition *a = &e->additions[i];
		uint32_t line;

		while (!front && at < p->count &&
		       strcmp(p->rules[at].file, e->path) == 0 &&
		       strcmp(p->rules[at].target, a->rule->target) < 0)
			at++;
		line = line_before(&e->lines, p, e->path, at);
		if (a->rule->kind == TARGET_NAME &&
		    plan_match_name(&e->before.plan, &a->rule->name).rule < at)
			line = 0;
		a->at = line > 0 ? at : 0;
		a->offset = line > 0 ? line_start(&e->lines, line) : e->position.at;
	}
	if (!front)
		qsort(e->additions, e->count, sizeof(*e->additions), by_place);
	for (e->front = 0; e->front < e->count && e->additions[e->front].at == 0;)
		e->front++;
	for (size_t i = 0; i < e->count; i++)
		e->additions[i].number = e->additions[i].at + i;
}

static int by_hand(struct err *err, const char *why, const char *rule)
{
	return err_set(err, -EINVAL,
		       "the file is left as it is: %s; add this by hand, first under "
		       "egress: - %s",
		       why, rule);
}

/* In front of the rule that decides about @name now the new one would lift its budget, or
 * would close what is open for a time: a proposal doesn't name that. Return: why; NULL.
 */
static const char *would_end(const struct plan *before, const struct plan *after,
			     const struct dns_name *name)
{
	const struct plan_verdict old = plan_match_name(before, name),
				  new = plan_match_name(after, name);
	const struct plan_port_range *ranges;
	size_t count;

	if (old.action != POLICY_ALLOW || old.rule == PLAN_NO_RULE)
		return NULL;
	if (plan_budget_of(before, old.rule) >= 0)
		return "the rule for this name has a budget, which would not count";
	if (plan_rule(before, old.rule).until_ms == 0)
		return NULL;
	ranges = plan_port_list(before, old.port_list, &count);
	for (size_t i = 0; i < count; i++)
		for (uint32_t port = ranges[i].from; port <= ranges[i].to; port++)
			if (!plan_port_list_has(after, new.port_list, ranges[i].protocol,
						(uint16_t)port))
				return "it would close what is open for a time";
	return NULL;
}

/* Each opens what it names, and a name is decided by its rule alone. */
static int check_additions(const struct edit *e, const struct reading *after,
			   struct err *err)
{
	for (size_t i = 0; i < e->count; i++) {
		const struct addition *a = &e->additions[i];
		const char *why =
			a->rule->kind == TARGET_NAME
				? would_end(&e->before.plan, &after->plan, &a->rule->name)
				: NULL;

		if (why)
			return by_hand(err, why, a->text);
		if (!opens(&after->plan, a->rule))
			return by_hand(err, "a deny of this address counts all the same",
				       a->text);
		if (a->at > 0 && a->rule->kind == TARGET_NAME &&
		    plan_match_name(&after->plan, &a->rule->name).rule != a->number)
			return by_hand(err, "another rule decides", a->text);
	}
	return 0;
}

/* The text with all of them in it. Return: -EINVAL: one of them can't be where it is. */
static int try_places(struct edit *e, struct arena *arena, struct policy_edited *ret,
		      struct err *err)
{
	CLEAN(reading) struct reading after = { 0 };
	struct err why = { 0 };
	struct text text;
	int r;
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 1; i < e->count; i++)
		if (e->additions[i].offset < e->additions[i - 1].offset)
			return by_hand(err, "it would mean something else",
				       e->additions[i].text);
	text = insert(e->lines.text, &e->position, e->additions, e->count, e->front,
		      arena);
	if (!text.ptr)
		return err_set(err, -ENOMEM, "out of memory");
	r = read_policy(e->path, text, e->now_ms, &e->arena, &after, &why);
	if (r == -ENOMEM)
		return err_set(err, r, "out of memory");
	if (r < 0 || !are_more(&e->before.policy, &after.policy, e->additions, e->count))
		return by_hand(err, "it would mean something else", e->additions[0].text);
	r = check_additions(e, &after, err);
	if (r < 0)
		return r;
	for (size_t i = 0; i < after.faults.count; i++) {
		const struct fault *f = &after.faults.items[i];

		for (size_t n = 0; f->level == FAULT_WARNING && n < e->count; n++)
			if (f->line == after.policy.rules[e->additions[n].number].line)
				fprintf(stderr, "%s\n",
					fault_format(f, line, sizeof(line)));
	}
	*ret = (struct policy_edited){
		.text = text,
		.rule = arena_text(arena, text_of(e->additions[0].text)),
		.line = after.policy.rules[e->additions[0].number].line,
		.count = e->count,
	};
	return ret->rule ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* ---- which of the rules are new ---- */

static char *document_of(const char *const *rules, size_t count, struct arena *arena)
{
	static const char begin[] = "{\"egress\":[", end[] = "]}";
	size_t size = sizeof(begin) + sizeof(end);
	struct jtext all;
	char *buf;

	for (size_t i = 0; i < count; i++)
		size += strlen(rules[i]) + 1;
	buf = arena_alloc(arena, size);
	if (!buf)
		return NULL;
	jtext_init(&all, buf, size);
	jtext_put(&all, text_of(begin));
	for (size_t i = 0; i < count; i++) {
		jtext_put(&all, text_of(i > 0 ? "," : ""));
		jtext_put(&all, text_of(rules[i]));
	}
	jtext_put(&all, text_of(end));
	buf[all.used] = '\0';
	return buf;
}

struct rule_entry {
	struct index_entry entry;
	const struct rule *rule;
};

static void clean_index(struct index *i)
{
	free(i->heads);
}

static bool has_rule(const struct index *by_target, const struct rule *wanted)
{
	struct index_entry *i = index_find(by_target, wanted->target);

	while (i && !same_rule(CONTAINER_OF(i, struct rule_entry, entry)->rule, wanted))
		i = index_next(i);
	return i;
}

/* Those of @wanted that the policy hasn't. */
static int find_new(struct edit *e, const struct policy *wanted, const char *const *json,
		    struct err *err)
{
	const struct policy *p = &e->before.policy;
	struct rule_entry *entries =
		arena_array(&e->arena, p->count + 1, sizeof(*entries));
	CLEAN(index) struct index by_target = { 0 };
	const bool as_json = is_json(e->path, e->lines.text);

	e->additions = arena_array(&e->arena, wanted->count + 1, sizeof(*e->additions));
	if (!entries || !e->additions)
		return err_set(err, -ENOMEM, "out of memory");
	for (size_t i = 0; i < p->count; i++) {
		entries[i] = (struct rule_entry){ .rule = &p->rules[i] };
		if (index_add(&by_target, &entries[i].entry, p->rules[i].target) < 0)
			return err_set(err, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < wanted->count; i++) {
		const struct rule *rule = &wanted->rules[i];
		char yaml[POLICY_RULE_SIZE];
		const char *text = json[i];

		if (has_rule(&by_target, rule) && opens(&e->before.plan, rule))
			continue;
		if (!rule_write(rule, false, yaml, sizeof(yaml)))
			return err_set(err, -EINVAL, "the rule is too long");
		if (!as_json)
			text = arena_text(&e->arena, text_of(yaml));
		if (!text)
			return err_set(err, -ENOMEM, "out of memory");
		e->additions[e->count++] =
			(struct addition){ .rule = rule, .text = text };
	}
	return 0;
}

/* False: there is no place that is certain. */
static bool find_position(struct edit *e, const struct node *root)
{
	struct position *p = &e->position;
	struct arena *arena = &e->arena;
	const struct lines *l = &e->lines;
	const struct text t = l->text;
	const char *first = t.len > 0 ? memchr(t.ptr, '\n', t.len) : NULL;
	const char *end = first && first > t.ptr && first[-1] == '\r' ? "\r\n" : "\n";
	const bool whole = t.len == 0 || t.ptr[t.len - 1] == '\n';
	const struct node *wrapper = node_find(root, text_of("network_policy"));
	const struct node *map = wrapper ?: root;
	const struct node *list = node_find(map, text_of("egress"));
	const bool has_list = list && list->kind == NODE_LIST;

	*p = (struct position){ .after = end };
	if (has_list && is_at(l, list, '[')) {
		into_brackets(l, list, "", "", arena, p);
	} else if (has_list && is_at(l, list, '-') && list->line > list->key_line) {
		/* Behind the line of the key, so that a comment over the first rule stays
		 * with that rule. */
		p->at = line_start(l, list->key_line + 1);
		p->before = arena_printf(arena, "%*s- ", (int)list->column - 1, "");
		p->between = arena_printf(arena, "%s%s", end, p->before ?: "");
	} else if (!list && map && map->kind == NODE_MAP && is_at(l, map, '{')) {
		into_brackets(l, map, "\"egress\": [", "]", arena, p);
	} else if (!list && !wrapper && (!root || root->column == 1)) {
		p->at = t.len;
		p->before = arena_printf(arena, "%segress:%s  - ", whole ? "" : end, end);
		p->between = arena_printf(arena, "%s  - ", end);
	}
	return p->before && p->between && p->after;
}

/* Where the first rule of the list would stand. */
static int find_front(struct edit *e, struct err *err)
{
	struct faults faults = { 0 };
	const struct text t = e->lines.text;
	const struct node_source source = {
		.arena = &e->arena, .faults = &faults, .file = e->path, .text = t
	};
	struct node *root = NULL;
	int r = is_json(e->path, t) ? node_read_json(&source, &root)
				    : node_read_yaml(&source, &root);

	faults_done(&faults);
	if (r == -ENOMEM)
		return err_sys(err, r, "cannot read the policy");
	if (r < 0 || !find_position(e, root)) {
		by_hand(err, "there is no place in it that is certain",
			e->additions[0].text);
		return -ENOTSUP;
	}
	return 0;
}

int policy_edit(const char *path, struct text text, const char *const *rules,
		size_t count, bool sorted, struct arena *arena, struct policy_edited *ret,
		struct err *err)
{
	CLEAN(edit) struct edit e = { .path = path, .now_ms = clock_wall_ms() };
	CLEAN(reading) struct reading alone = { 0 };
	const char *all = document_of(rules, count, &e.arena);
	int r;

	*ret = (struct policy_edited){ .text = text };
	if (!all || !find_lines(text, &e.arena, &e.lines))
		return err_set(err, -ENOMEM, "out of memory");
	r = read_policy(path, text, e.now_ms, &e.arena, &e.before, err);
	if (r == 0)
		r = read_policy("rule.json", text_of(all), e.now_ms, &e.arena, &alone,
				err);
	if (r == 0)
		r = find_new(&e, &alone.policy, rules, err);
	if (r < 0 || e.count == 0)
		return r;
	r = find_front(&e, err);
	if (r < 0)
		return r;
	place(&e, !sorted || is_json(path, text));
	r = try_places(&e, arena, ret, err);
	/* The one rule has another place. */
	if (r == -EINVAL && e.count == 1 && e.additions[0].at > 0) {
		place(&e, true);
		r = try_places(&e, arena, ret, err);
	}
	return r;
}
