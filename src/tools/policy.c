// SPDX-License-Identifier: Apache-2.0
#include "tools/tools.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/jansson.h"
#include "base/log.h"
#include "event/json.h"
#include "policy/explain.h"
#include "policy/limits.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "policy/rule.h"
#include "sys/options.h"
#include "sys/print.h"

/* === `weir policy diff` ===
 *
 * HOW IT WORKS
 * What a policy decides can only change at a target of one of its rules, the built-in
 * ones included. So the targets of both policies are gathered, each name once for itself
 * and once for what is below it, and both plans are asked about every one of them: order,
 * overlap and `extends` then need no thought. A name below another is asked by a label
 * that no rule has, an address range is asked by an address of it that lies in no smaller
 * target; where smaller ones fill it, they say all. Likewise the ports of an address are
 * decided alike between two that a rule of either policy begins or ends with. */

struct cli_policy_side {
	struct policy policy;
	struct plan plan;
};

enum {
	PORT_TEXT_SIZE = 24, /* of a range, "tcp/60000-60001," */
	MARKS_SIZE = 384,    /* what a rule says besides its ports */
};

enum part { PART_NAME = 0, PART_BELOW, PART_PREFIX };

struct target {
	enum part part;
	const struct rule *rule; /* borrowed */
	const char *text;	 /* in the arena */
};

struct targets {
	struct arena arena;
	struct target *items; /* in the arena; names by their text, then addresses */
	size_t count;
	/* In the arena: at each of them another range may begin, the first is 1. */
	uint16_t *ports;
	size_t port_count;
	struct plan_verdict *verdicts;	/* in the arena: TCP's and UDP's of each port */
	struct plan_port_range *ranges; /* in the arena: room for as many */
	char *ranges_text;		/* in the arena: room for all ranges */
	size_t ranges_text_size;
	bool out_of_memory;
};

/* What a plan says of a target. */
struct state {
	enum policy_action action; /* of addresses: what a port is at best */
	/* "443, raw; ask 22"; "": denied. In the arena of the targets, and whole: two of
	 * them are compared by it. */
	const char *text;
};

static const char *const changes[] = { "gains", "loses", "changes" };

/* --- the targets --- */

static void add_target(struct targets *list, enum part part, const struct rule *rule)
{
	char text[DNS_NAME_TEXT_SIZE]; /* longer than any prefix */
	struct target *t = &list->items[list->count++];

	t->part = part;
	t->rule = rule;
	if (part == PART_PREFIX)
		prefix_format(&rule->prefix, text);
	else
		dns_name_format(&rule->name, text);
	t->text =
		arena_printf(&list->arena, "%s%s", part == PART_BELOW ? "*." : "", text);
	if (!t->text)
		list->out_of_memory = true;
}

static void add_targets_of(struct targets *list, const struct rule *r)
{
	if (r->kind == TARGET_PREFIX)
		add_target(list, PART_PREFIX, r);
	if (r->kind == TARGET_NAME || r->kind == TARGET_WITHIN)
		add_target(list, PART_NAME, r);
	if (r->kind == TARGET_BELOW || r->kind == TARGET_WITHIN)
		add_target(list, PART_BELOW, r);
}

static void add_targets(struct targets *list, const struct cli_policy_side *side)
{
	const size_t written = side->policy.count, all = plan_rule_count(&side->plan);
	struct rule *rules = arena_array(&list->arena, all - written + 1, sizeof(*rules));
	struct err ignored = { 0 };

	for (size_t i = 0; i < written; i++)
		add_targets_of(list, &side->policy.rules[i]);
	for (size_t i = written; rules && i < all; i++) {
		struct rule *r = &rules[i - written];

		*r = (struct rule){ 0 };
		if (rule_target_parse(text_of(plan_rule(&side->plan, i).target), r,
				      &ignored) == 0)
			add_targets_of(list, r);
	}
	list->out_of_memory |= !rules;
}

/* A range before the smaller ones in it. */
static int target_compare(const void *a, const void *b)
{
	const struct target *x = a, *y = b;
	const struct prefix *p = &x->rule->prefix, *q = &y->rule->prefix;
	int c;

	if (x->part != PART_PREFIX || y->part != PART_PREFIX)
		return (x->part == PART_PREFIX) - (y->part == PART_PREFIX)
			       ?: strcmp(x->text, y->text);
	c = addr_compare(&p->addr, &q->addr);
	return c != 0 ? c : (int)p->bits - (int)q->bits;
}

static int port_compare(const void *a, const void *b)
{
	return *(const uint16_t *)a - *(const uint16_t *)b;
}

static void add_ports(struct targets *list, const struct plan *p)
{
	for (size_t i = 0; i < plan_port_list_count(p); i++) {
		size_t count;
		const struct plan_port_range *r = plan_port_list(p, i, &count);

		for (size_t n = 0; n < count; n++) {
			list->ports[list->port_count++] = r[n].from;
			if (r[n].to < UINT16_MAX)
				list->ports[list->port_count++] = r[n].to + 1;
		}
	}
}

static int gather_ports(struct targets *list, const struct plan *a, const struct plan *b)
{
	const size_t most = 4 * PLAN_PORT_LISTS_MAX * PLAN_PORT_RANGES_MAX + 1;
	size_t kept = 0;

	list->ports = arena_array(&list->arena, most, sizeof(*list->ports));
	if (!list->ports)
		return -ENOMEM;
	list->ports[list->port_count++] = 1;
	add_ports(list, a);
	add_ports(list, b);
	qsort(list->ports, list->port_count, sizeof(*list->ports), port_compare);
	for (size_t i = 0; i < list->port_count; i++)
		if (kept == 0 || list->ports[kept - 1] != list->ports[i])
			list->ports[kept++] = list->ports[i];
	list->port_count = kept;
	list->verdicts = arena_array(&list->arena, 2 * kept, sizeof(*list->verdicts));
	list->ranges = arena_array(&list->arena, 2 * kept, sizeof(*list->ranges));
	list->ranges_text_size = 2 * kept * PORT_TEXT_SIZE;
	list->ranges_text = arena_alloc(&list->arena, list->ranges_text_size);
	return list->verdicts && list->ranges && list->ranges_text ? 0 : -ENOMEM;
}

/* Both sides have at most two targets a rule. */
static int gather_targets(struct targets *list, const struct cli_policy_side *a,
			  const struct cli_policy_side *b)
{
	size_t kept = 0;

	list->items = arena_array(
		&list->arena,
		2 * (plan_rule_count(&a->plan) + plan_rule_count(&b->plan)) + 1,
		sizeof(*list->items));
	if (!list->items)
		return -ENOMEM;
	add_targets(list, a);
	add_targets(list, b);
	if (list->out_of_memory)
		return -ENOMEM;
	qsort(list->items, list->count, sizeof(*list->items), target_compare);
	for (size_t i = 0; i < list->count; i++)
		if (kept == 0 ||
		    strcmp(list->items[kept - 1].text, list->items[i].text) != 0)
			list->items[kept++] = list->items[i];
	list->count = kept;
	return gather_ports(list, &a->plan, &b->plan);
}

/* --- what a plan says --- */

/* ", budget 1M sent, 20M received in 1h"; "" where the rule has none. */
static const char *budget_text(const struct plan *plan, uint32_t rule, char *buf,
			       size_t size)
{
	const int at = plan_budget_of(plan, rule);
	const struct plan_budget b = at < 0 ? (struct plan_budget){ 0 }
					    : plan_budget(plan, (size_t)at);
	char sent[RULE_SIZE_SIZE], received[RULE_SIZE_SIZE], per[POLICY_WINDOW_SIZE];

	buf[0] = '\0';
	if (b.sent > 0 || b.received > 0)
		snprintf(buf, size, ", budget %s sent, %s received in %s%s",
			 b.sent > 0 ? rule_size_text(b.sent, sent) : "any",
			 b.received > 0 ? rule_size_text(b.received, received) : "any",
			 b.per_sec > 0 ? policy_window_text(b.per_sec, per) : "all",
			 b.action == BUDGET_EVENT ? ", reported alone" : "");
	return buf;
}

/* ", raw, budget 1M sent, any received in 1h, TXT, until 2030-01-01T00:00:00Z" */
static void write_marks(const struct plan *plan, const struct plan_verdict *v,
			char buf[MARKS_SIZE])
{
	const struct plan_rule rule = plan_rule(plan, v->rule);
	char time[JTEXT_TIME_SIZE], budget[128];
	size_t used = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < RULE_FLAG_COUNT; i++)
		if (v->flags & rule_flag_words[i].flag)
			used += (size_t)snprintf(buf + used, MARKS_SIZE - used, ", %s",
						 rule_flag_words[i].key);
	used += (size_t)snprintf(buf + used, MARKS_SIZE - used, "%s",
				 budget_text(plan, v->rule, budget, sizeof(budget)));
	for (size_t i = 0; i < RULE_TYPE_COUNT; i++)
		if (rule.types >> i & 1)
			used += (size_t)snprintf(buf + used, MARKS_SIZE - used, ", %s",
						 rule_type_words[i]);
	if (rule.until_ms != 0)
		snprintf(buf + used, MARKS_SIZE - used, ", until %s",
			 jtext_time(rule.until_ms, true, time));
}

/* Add what @v says of @ports, behind what @ret says of other ports. */
static void describe(struct targets *list, const struct plan *plan,
		     const struct plan_verdict *v, const char *ports, struct state *ret)
{
	char marks[MARKS_SIZE];
	const char *text;

	if (v->action == POLICY_DENY)
		return;
	if (ret->action != POLICY_ALLOW)
		ret->action = (enum policy_action)v->action;
	write_marks(plan, v, marks);
	text = arena_printf(&list->arena, "%s%s%s%s%s", ret->text,
			    ret->text[0] ? "; " : "",
			    v->action == POLICY_ASK ? "ask " : "", ports, marks);
	if (text)
		ret->text = text;
	else
		list->out_of_memory = true;
}

static void ask_name(struct targets *list, const struct plan *plan,
		     const struct target *t, struct state *ret)
{
	const struct dns_name *name = &t->rule->name;
	const struct plan_verdict v = t->part == PART_BELOW ? plan_match_below(plan, name)
							    : plan_match_name(plan, name);

	*ret = (struct state){ .text = "" };
	describe(list, plan, &v,
		 policy_explain_ports(plan, v.port_list, list->ranges_text,
				      list->ranges_text_size),
		 ret);
}

/* Move @a behind the end of @p. Return: false when there is nothing behind it. */
static bool step_over(struct addr *a, const struct prefix *p)
{
	size_t size = addr_size(a);
	unsigned int bits = p->bits;

	memcpy(a->bytes, p->addr.bytes, sizeof(a->bytes));
	while (bits > 0) {
		uint8_t bit = (uint8_t)(0x80 >> ((bits - 1) % 8));
		uint8_t *byte = &a->bytes[(bits - 1) / 8];

		*byte ^= bit;
		if (*byte & bit)
			return (bits - 1) / 8 < size;
		bits--;
	}
	return false;
}

/* Find the first address of the range @at that is in no smaller target; smaller targets
 * come behind the range. Return: false when there is none. */
static bool own_address(const struct targets *list, size_t at, struct addr *ret)
{
	const struct prefix *whole = &list->items[at].rule->prefix;

	*ret = whole->addr;
	for (size_t i = at + 1; i < list->count; i++) {
		const struct prefix *p = &list->items[i].rule->prefix;

		if (addr_compare(&p->addr, ret) > 0)
			break;
		if (prefix_contains(p, ret) &&
		    (!step_over(ret, p) || !prefix_contains(whole, ret)))
			return false;
	}
	return true;
}

/* Do @a and @b say the same, of whatever port? */
static bool is_alike(const struct plan *plan, const struct plan_verdict *a,
		     const struct plan_verdict *b)
{
	const struct plan_rule x = plan_rule(plan, a->rule), y = plan_rule(plan, b->rule);

	return a->action == b->action &&
	       (a->rule == b->rule ||
		((a->rule == PLAN_NO_RULE) == (b->rule == PLAN_NO_RULE) &&
		 ((a->flags ^ b->flags) & PLAN_RAW) == 0 && x.types == y.types &&
		 x.until_ms == y.until_ms &&
		 plan_budget_of(plan, a->rule) == plan_budget_of(plan, b->rule)));
}

/* The first @count of the list's ranges. */
static const char *ports_text(const struct targets *list, const struct plan *plan,
			      size_t count)
{
	struct rule_ports by_default = { 0 };

	count = rule_ports_normalise(list->ranges, count);
	by_default.ranges = plan_port_list(plan, 0, &by_default.count);
	return rule_ports_equal(&by_default,
				&(struct rule_ports){ list->ranges, count, false })
		       ? policy_explain_ports(plan, 0, list->ranges_text,
					      list->ranges_text_size)
		       : rule_ports_format(list->ranges, count, list->ranges_text,
					   list->ranges_text_size);
}

/* The ports that are decided alike, one behind the other; those that ask come last. */
static void ask_addr(struct targets *list, const struct plan *plan, const struct addr *a,
		     struct state *ret)
{
	static const uint8_t protocols[] = { IPPROTO_TCP, IPPROTO_UDP };
	const size_t all = 2 * list->port_count;
	struct plan_verdict *v = list->verdicts;

	*ret = (struct state){ .text = "" };
	for (size_t i = 0; i < all; i++)
		v[i] = plan_match_addr(plan, a, protocols[i % 2], list->ports[i / 2]);
	for (size_t n = 0; n < 2 * all; n++) {
		const size_t i = n % all;
		const struct plan_verdict one = v[i];
		size_t count = 0;

		if (one.action != (n < all ? POLICY_ALLOW : POLICY_ASK))
			continue;
		for (size_t k = i; k < all; k++) {
			if (!is_alike(plan, &one, &v[k]))
				continue;
			v[k].action = POLICY_DENY;
			list->ranges[count++] = (struct plan_port_range){
				.protocol = protocols[k % 2],
				.from = list->ports[k / 2],
				.to = k / 2 + 1 < list->port_count
					      ? list->ports[k / 2 + 1] - 1
					      : UINT16_MAX,
			};
		}
		describe(list, plan, &one,
			 one.rule == PLAN_NO_RULE ? "the default"
						  : ports_text(list, plan, count),
			 ret);
	}
}

/* --- saying it --- */

struct output {
	FILE *out;
	json_t *settings, *targets; /* NULL: words */
	size_t count;
};

static void say_setting(struct output *o, const char *name, const char *before,
			const char *after)
{
	if (strcmp(before, after) == 0)
		return;
	o->count++;
	if (o->settings)
		json_array_append_new(o->settings,
				      json_pack("{s:s, s:s, s:s}", "name", name, "before",
						before, "after", after));
	else
		fprintf(o->out, "  %s: %s, was %s\n", name, after, before);
}

static const char *opening(const struct state *s)
{
	return s->action == POLICY_ALLOW ? "allowed on " : "";
}

static void say_target(struct output *o, const char *target, const struct state *before,
		       const struct state *after)
{
	const char *was = before->text[0] ? before->text : NULL;
	const char *is = after->text[0] ? after->text : NULL;
	int change = !was ? 0 : !is ? 1 : 2;

	if (strcmp(before->text, after->text) == 0)
		return;
	o->count++;
	if (o->targets)
		json_array_append_new(o->targets,
				      json_pack("{s:s, s:s, s:s?, s:s?}", "target",
						target, "change", changes[change],
						"before", was, "after", is));
	else
		fprintf(o->out, "%c %s: %s%s, was %s%s\n", "+-~"[change], target,
			opening(after), is ?: "denied", opening(before), was ?: "denied");
}

static const char *limit_text(enum plan_limit which, uint32_t value, char buf[16])
{
	if (value == LIMIT_UNLIMITED)
		return "unlimited";
	snprintf(buf, 16, "%u", value > 0 ? value : limit_info(which)->value);
	return buf;
}

static const char *repin_text(const struct policy *p, char buf[RULE_SIZE_SIZE])
{
	return p->repin_ms > 0 ? policy_window_text((uint32_t)(p->repin_ms / 1000), buf)
			       : "never";
}

static void compare_settings(struct output *o, const struct policy *a,
			     const struct policy *b)
{
	static const char *const verify[] = { "dns", "tls" };
	static const char *const dns[] = { "live", "pinned" };
	static const char *const denied[] = { "nxdomain", "refuse" };
	char was[POLICY_ON_DENIES_SIZE], is[POLICY_ON_DENIES_SIZE];
	char was_size[RULE_SIZE_SIZE], is_size[RULE_SIZE_SIZE];

	policy_on_denies_text(&a->on_denies, was);
	policy_on_denies_text(&b->on_denies, is);
	say_setting(o, "defaultAction", policy_action_name(a->default_action),
		    policy_action_name(b->default_action));
	say_setting(o, "verify", verify[a->verify], verify[b->verify]);
	say_setting(o, "dns", dns[a->dns], dns[b->dns]);
	say_setting(o, "repin", repin_text(a, was_size), repin_text(b, is_size));
	say_setting(o, "deniedNames", denied[a->denied_names], denied[b->denied_names]);
	say_setting(o, "on_denies", was[0] ? was : "nothing", is[0] ? is : "nothing");
	say_setting(o, "require_full_isolation",
		    a->require_full_isolation ? "true" : "false",
		    b->require_full_isolation ? "true" : "false");
	for (enum plan_limit i = 0; i < LIMIT_COUNT; i++) {
		char name[64], old[16], new[16];

		snprintf(name, sizeof(name), "limits.%s", limit_info(i)->name);
		say_setting(o, name, limit_text(i, a->limits[i], old),
			    limit_text(i, b->limits[i], new));
	}
	say_setting(o, "limits.sent_total",
		    a->budget.sent > 0 ? rule_size_text(a->budget.sent, was_size)
				       : "unlimited",
		    b->budget.sent > 0 ? rule_size_text(b->budget.sent, is_size)
				       : "unlimited");
}

static int compare_targets(struct output *o, const struct cli_policy_side *before,
			   const struct cli_policy_side *after)
{
	struct targets list = { 0 };
	int r = gather_targets(&list, before, after);

	for (size_t i = 0; r == 0 && i < list.count; i++) {
		const struct target *t = &list.items[i];
		struct state was, is;
		struct addr a;

		if (t->part != PART_PREFIX) {
			ask_name(&list, &before->plan, t, &was);
			ask_name(&list, &after->plan, t, &is);
		} else if (own_address(&list, i, &a)) {
			ask_addr(&list, &before->plan, &a, &was);
			ask_addr(&list, &after->plan, &a, &is);
		} else {
			continue;
		}
		if (list.out_of_memory)
			r = -ENOMEM;
		else
			say_target(o, t->text, &was, &is);
	}
	arena_done(&list.arena);
	return r;
}

/* === `weir policy` === */

enum { POLICIES_DIFFER = 1 };

struct spec {
	struct policy_args policy;
	const char *questions;	  /* --file of explain */
	const char *id, *socket;  /* of a sandbox of the daemon's */
	const char *from, *place; /* of import */
	bool json, any_depth;
	int rest; /* index of the first argument that is no option */
};

#define IMPORT_WORDS "sandbox-runtime|claude-code|codex|harden-runner|kubernetes|cilium"

#define IN(KIND, field) OPTION_IN(KIND, struct spec, field)

static const struct cli_option options[] = {
	POLICY_ARGS_ROWS(struct spec, policy),
	{ "file", "FILE", "explain: read what is asked from FILE, one a line",
	  IN(TEXT, questions) },
	{ "id", "NAME",
	  "show: the policy of a run, or of a sandbox that the daemon guards",
	  IN(TEXT, id) },
	{ "socket", "PATH",
	  "set, patch, show: where the daemon's API is (/run/weir/weir.sock); its alone",
	  IN(TEXT, socket) },
	POLICY_FOR_ROW(
		struct spec, policy.for_ms,
		"set, patch: what the file allows ends that long from now: 10m, 1h"),
	{ "from", IMPORT_WORDS, "import: whose settings FILE has (by what is in it)",
	  IN(WORD_TEXT, from) },
	{ "at", "PLACE", "import: of several places in FILE that one", IN(TEXT, place) },
	{ "any-depth", NULL,
	  "import: take Cilium's *.NAME, one label more, for names of any depth",
	  IN(FLAG, any_depth) },
	{ "json", NULL, "print JSON", IN(FLAG, json) },
};
static void print_words(FILE *out);

const struct cli_options cli_policy_options = {
	OPTION_ROWS(options),
	.usage = "usage: weir policy VERB [OPTION]... [ARGUMENT]...\n",
	.words = print_words,
};

/* What every verb works on. */
struct context {
	const struct spec *spec;
	struct policy policy;
	struct plan plan;
	char *const *arguments; /* behind the options */
	size_t argument_count;
};

static const char *const levels[] = {
	[FAULT_ERROR] = "error",
	[FAULT_WARNING] = "warning",
	[FAULT_HINT] = "hint",
};

static void count_rules(const struct policy *p, size_t *ret_names, size_t *ret_addresses)
{
	size_t addresses = 0;

	for (size_t i = 0; i < p->count; i++)
		addresses += p->rules[i].kind == TARGET_PREFIX;
	*ret_addresses = addresses;
	*ret_names = p->count - addresses;
}

/* Every fault of a policy. Return: the exit status. */
static int check_as_json(const struct policy_args *args)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct faults faults = { 0 };
	struct policy policy = { 0 };
	int r = cli_policy_load(args, &arena, &faults, &policy);
	json_t *list = r == -ENOMEM ? NULL : json_array(), *all = NULL;
	size_t names, addresses;
	bool printed;

	for (size_t i = 0; list && i < faults.count; i++) {
		const struct fault *f = &faults.items[i];
		json_t *file = json_string(f->file);

		/* A path that is no text is left out. */
		json_array_append_new(list,
				      json_pack("{s:s, s:o, s:i, s:i, s:s, s:s}", "level",
						levels[f->level], "file",
						file ? file : json_null(), "line",
						(int)f->line, "column", (int)f->column,
						"path", f->path, "text", f->text));
	}
	count_rules(&policy, &names, &addresses);
	if (list)
		all = json_pack("{s:b, s:I, s:I, s:o, s:I}", "valid", r == 0, "names",
				(json_int_t)names, "addresses", (json_int_t)addresses,
				"faults", list, "more", (json_int_t)faults.dropped);
	printed = r != -ENOMEM && print_json(all, 0, stdout) == 0 && fflush(stdout) == 0;
	faults_done(&faults);
	if (!printed)
		return log_end(RUN_STATUS_FAILED, "cannot print the faults as JSON");
	return r < 0 ? RUN_STATUS_BAD_INPUT : 0;
}

static int verb_check(const struct context *c)
{
	size_t names, addresses;

	count_rules(&c->policy, &names, &addresses);
	printf("the policy is valid; rules for names: %zu, for addresses: %zu\n", names,
	       addresses);
	return 0;
}

/* The lines of a file, without comments. Everything lives in @arena. */
static int read_questions(const char *path, struct arena *arena, char ***ret,
			  size_t *ret_count, struct err *err)
{
	struct text text, line;
	char **lines;
	size_t n = 0;
	int r = cli_read_file(path, arena, &text, err);

	if (r < 0)
		return r;
	for (size_t i = 0; i < text.len; i++)
		n += text.ptr[i] == '\n';
	lines = arena_array(arena, n + 1, sizeof(*lines));
	n = 0;
	while (lines && text_split(&text, '\n', &line)) {
		line = text_without_comment(line);
		if (line.len > 0 && !(lines[n++] = arena_text(arena, line)))
			return err_set(err, -ENOMEM, "out of memory");
	}
	if (!lines)
		return err_set(err, -ENOMEM, "out of memory");
	*ret = lines;
	*ret_count = n;
	return 0;
}

static int verb_explain(const struct context *c)
{
	CLEAN(arena) struct arena arena = { 0 };
	char **questions = NULL;
	size_t count = 0;
	struct err err = { 0 };
	int r = 0;

	if (c->spec->questions)
		r = read_questions(c->spec->questions, &arena, &questions, &count, &err);
	else
		count = c->argument_count;
	if (r == 0)
		r = cli_policy_explain(&c->plan, questions ? questions : c->arguments,
				       count, c->spec->json, stdout, &err);
	if (r == 0 && !c->spec->json)
		policy_explain_needs(&c->policy, "", stdout);
	if (r < 0)
		log_error("%s", err.text);
	return run_status_of(r);
}

static int verb_show(const struct context *c)
{
	if (cli_policy_show(&c->policy, &c->plan, c->spec->json, stdout) == 0)
		return 0;
	return log_end(RUN_STATUS_FAILED, "cannot show the policy: out of memory");
}

static const struct verb {
	const char *name, *arguments, *help;
	int (*run)(const struct context *c);
	enum {
		ONE_FILE = 0,
		QUESTIONS,
		TWO_POLICIES,
		FOREIGN_FILE,
		SANDBOX,
		SANDBOX_PATCH
	} takes;
} verbs[] = {
	{ "check", "[FILE]",
	  "report every fault of a policy, and what looks like a mistake", verb_check,
	  ONE_FILE },
	{ "explain", "NAME|ADDRESS[:PORT]|URL...",
	  "say what the policy decides, and which rule does", verb_explain, QUESTIONS },
	{ "show", "[FILE]", "print the policy with everything that it extends", verb_show,
	  ONE_FILE },
	{ "show", "--id NAME",
	  "print the policy of a run, or of a sandbox that the daemon guards" },
	{ "diff", "A B", "say what two files or profiles decide differently", NULL,
	  TWO_POLICIES },
	{ "import", "FILE", "print the lists of another tool's settings as a policy",
	  NULL, FOREIGN_FILE },
	{ "set", "ID FILE",
	  "replace the policy of a run, or of a sandbox that the daemon guards", NULL,
	  SANDBOX },
	{ "patch", "ID FILE", "put the file's rules in front of that sandbox's", NULL,
	  SANDBOX_PATCH },
};

static void print_words(FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		fprintf(out, "  %s %s\n%*s%s\n", verbs[i].name, verbs[i].arguments, 10,
			"", verbs[i].help);
}

static bool has_policy(const struct spec *s)
{
	const struct policy_args *p = &s->policy;

	return p->file || p->profiles.count > 0 || p->allow.count > 0 ||
	       p->deny.count > 0;
}

/* Arguments behind the options: one file, or the questions. */
static int check_arguments(const struct verb *v, struct spec *s, int argc, char **argv,
			   struct err *err)
{
	int count = argc - s->rest;

	if (s->id && v->run != verb_show)
		return err_set(err, -EINVAL, "--id goes with show alone");
	if (s->socket && v->takes < SANDBOX && !s->id)
		return err_set(err, -EINVAL, "--socket goes with set, patch, show --id");
	if (s->id && (count > 0 || has_policy(s)))
		return err_set(err, -EINVAL, "--id shows what that sandbox has, alone");

	if ((s->from || s->place || s->any_depth) && v->takes != FOREIGN_FILE)
		return err_set(err, -EINVAL, "--%s goes with import alone",
			       s->from	  ? "from"
			       : s->place ? "at"
					  : "any-depth");
	if (s->policy.for_ms > 0 && v->takes < SANDBOX)
		return err_set(err, -EINVAL, "--for goes with set and patch alone");
	if (v->takes == TWO_POLICIES)
		return count == 2 ? 0 : err_set(err, -EINVAL, "name two policies");
	if (v->takes == FOREIGN_FILE)
		return count == 1 ? 0 : err_set(err, -EINVAL, "name one file");
	if (v->takes >= SANDBOX)
		return count == 2 ? 0
				  : err_set(err, -EINVAL, "name a sandbox and a file");
	if (v->takes == QUESTIONS)
		return (count > 0) != (s->questions != NULL)
			       ? 0
			       : err_set(err, -EINVAL,
					 "name what is to be explained, or "
					 "--file");
	/* An empty variable in somebody's script is no valid policy. */
	if (count == 0 && v->run == verb_check && !has_policy(s))
		return err_set(err, -EINVAL, "name the file that is to be checked");
	if (count == 0)
		return 0;
	if (count > 1)
		return err_set(err, -EINVAL, "one file, not %d", count);
	if (s->policy.file)
		return err_set(err, -EINVAL, "a second file; let one extend the other");
	s->policy.file = argv[s->rest];
	return 0;
}

/* A file or a profile, as `extends` names them. */
static int build_side(const char *name, struct arena *arena, struct cli_policy_side *ret,
		      uint8_t **ret_bytes)
{
	const struct policy_args args = { .profiles = { { name }, 1 },
					  .verify = POLICY_VERIFY_TLS };
	struct err err = { 0 };
	size_t size;
	int r = cli_policy_build(&args, arena, true, &ret->policy, ret_bytes, &size);

	if (r == 0) {
		r = plan_open(*ret_bytes, size, &ret->plan, &err);
		if (r < 0)
			log_error("%s", err.text);
		else
			plan_set_time(&ret->plan, clock_wall_ms());
	}
	return r;
}

/* What two policies decide differently. */
static int run_diff(const struct spec *s, char *const *names)
{
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes_a = NULL, *bytes_b = NULL;
	CLEAN(json)
	json_t *settings = s->json ? json_array() : NULL,
	       *targets = s->json ? json_array() : NULL;
	struct output o = { stdout, settings, targets, 0 };
	struct cli_policy_side a = { 0 }, b = { 0 };
	int r = build_side(names[0], &arena, &a, &bytes_a);

	if (r == 0)
		r = build_side(names[1], &arena, &b, &bytes_b);
	if (r < 0)
		return run_status_of(r);
	compare_settings(&o, &a.policy, &b.policy);
	r = compare_targets(&o, &a, &b);
	if (r == 0 && s->json &&
	    print_json(json_pack("{s:b, s:O, s:O}", "equal", o.count == 0, "settings",
				 settings, "targets", targets),
		       0, stdout) < 0)
		r = -ENOMEM;
	else if (r == 0 && !s->json && o.count == 0)
		puts("the policies decide the same");
	if (r < 0)
		return log_end(RUN_STATUS_FAILED, "cannot compare the policies: %s",
			       strerror(-r));
	return o.count > 0 ? POLICIES_DIFFER : 0;
}

static int run_verb(const struct verb *v, const struct spec *s, int argc, char **argv)
{
	struct context c = { .spec = s,
			     .arguments = argv + s->rest,
			     .argument_count = (size_t)(argc - s->rest) };
	CLEAN(arena) struct arena arena = { 0 };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct err err = { 0 };
	size_t size;
	int r;

	if (v->run == verb_check && s->json)
		return check_as_json(&s->policy);
	r = cli_policy_build(&s->policy, &arena, v->run != verb_check, &c.policy, &bytes,
			     &size);
	if (r < 0)
		return run_status_of(r);
	if (plan_open(bytes, size, &c.plan, &err) < 0)
		return log_end(RUN_STATUS_FAILED, "%s", err.text);
	plan_set_time(&c.plan, clock_wall_ms());
	return v->run(&c);
}

int cli_policy(int argc, char **argv)
{
	static const char there[] = "check, explain, show, diff, import, set or patch";
	const struct verb *v = TEXT_FIND(text_of(argc > 1 ? argv[1] : NULL), verbs);
	/* As weir run. */
	struct spec spec = { .policy = { .verify = POLICY_VERIFY_TLS,
					 .complete = true } };
	struct err err = { 0 };

	if (!v && argc > 1)
		log_error("policy: '%s' is not one of %s", SHOWN(argv[1]), there);
	else if (!v)
		log_error("policy needs one of %s; `weir help policy` lists what "
			  "they do",
			  there);
	if (!v)
		return RUN_STATUS_BAD_INPUT;
	spec.rest = cli_options_parse(&cli_policy_options, &spec, argc - 1, argv + 1,
				      NULL, &err);
	/* Of set and patch options may stand behind the arguments as well. */
	if (spec.rest >= 0 && v->takes >= SANDBOX) {
		const int file = 1 + spec.rest + 1; /* behind the sandbox, in @argv */

		if (argc > file + 1 &&
		    cli_options_only(&cli_policy_options, &spec, argc - file, argv + file,
				     NULL, &err) < 0)
			spec.rest = -1;
		argc = MIN(argc, file + 1);
	}
	if (spec.rest < 0 || check_arguments(v, &spec, argc - 1, argv + 1, &err) < 0)
		return log_end(RUN_STATUS_BAD_INPUT,
			       "%s; `weir help policy` lists what there is", err.text);
	if (v->takes == TWO_POLICIES)
		return run_diff(&spec, argv + 1 + spec.rest);
	if (v->takes == FOREIGN_FILE)
		return run_status_of(cli_policy_import(argv[1 + spec.rest], spec.from,
						       spec.place, spec.any_depth,
						       stdout));
	if (v->takes >= SANDBOX)
		return cli_daemon_policy_change(spec.socket, argv[1 + spec.rest],
						argv[2 + spec.rest], spec.policy.for_ms,
						v->takes == SANDBOX_PATCH);
	if (spec.id)
		return cli_daemon_policy_show(spec.socket, spec.id);
	return run_verb(v, &spec, argc - 1, argv + 1);
}
