// SPDX-License-Identifier: Apache-2.0
#include "events/draft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "event/json.h"
#include "events/jsonl.h"
#include "policy/advice.h"
#include "policy/explain.h"
#include "policy/names.h"
#include "policy/policy.h"

enum {
	SIBLINGS_MIN = 3,   /* names that speak for a wildcard */
	SIBLINGS_SHOWN = 8, /* "and N more" */
	NOTES_MAX = 50,	    /* of each kind; "and N more" */
};

/* A note that names share an address has no port. */
static bool is_flow(const struct event *e)
{
	return e->action == EVENT_ALLOW && e->layer != EVENT_DNS && e->port > 0 &&
	       e->packets > 0;
}

/* ---- what was used, by destination ---- */

/* Sorted, so that all that is about one destination stands together. */
struct draft_use {
	const char *destination; /* the name, or the address of what has none */
	const struct event *event;
};

static int compare_uses(const void *a, const void *b)
{
	const struct draft_use *x = a, *y = b;
	int r = strcmp(x->destination, y->destination);

	if (r == 0)
		r = (x->event->action > y->event->action) -
		    (x->event->action < y->event->action);
	/* Of one ring, whose order stays. */
	return r != 0 ? r : (x->event > y->event) - (x->event < y->event);
}

static int add_uses(struct draft *d, const struct event_ring *ring)
{
	for (size_t i = 0; i < event_ring_count(ring); i++) {
		const struct event *e = event_ring_at(ring, i);
		struct draft_use *use = &d->uses[d->use_count];

		if (!e->name[0] && e->remote.family == ADDR_NONE)
			continue;
		*use = (struct draft_use){ e->name, e };
		if (!e->name[0])
			use->destination =
				arena_text(&d->arena, text_of(ADDR_SHOWN(&e->remote)));
		if (!use->destination)
			return -ENOMEM;
		d->use_count++;
	}
	return 0;
}

/* Those of one destination. */
struct group {
	const struct draft_use *uses;
	size_t count;
};

static struct group group_at(const struct draft *d, size_t first)
{
	struct group g = { &d->uses[first], 0 };

	while (first + g.count < d->use_count &&
	       strcmp(g.uses[g.count].destination, g.uses->destination) == 0)
		g.count++;
	return g;
}

static struct group find_group(const struct draft *d, const char *destination)
{
	size_t low = 0, high = d->use_count;

	while (low < high) {
		const size_t middle = low + (high - low) / 2;

		if (strcmp(d->uses[middle].destination, destination) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == d->use_count || strcmp(d->uses[low].destination, destination) != 0)
		return (struct group){ NULL, 0 };
	return group_at(d, low);
}

/* ---- one rule for each name ---- */

static int add_advice(struct draft *d, const char *advice, struct policy *into)
{
	const struct policy_reader reader = { .arena = &d->arena, .faults = &d->faults };
	char rule[ADVICE_RULE_SIZE];
	int r;

	/* A store has advice of older versions, and of others. */
	if (!advice_rule(advice, rule))
		return 0;
	r = policy_read_option(&reader, "learned", POLICY_ALLOW, text_of(advice), into);
	return r == -ENOMEM ? r : 0;
}

/* "812 bytes", "12 kB", "3.4 MB" */
static void put_size(char *buf, size_t size, uint64_t bytes)
{
	static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB" };
	uint64_t rest = 0;
	size_t unit = 0;

	while (bytes >= 1000 && unit + 1 < ARRAY_SIZE(units)) {
		rest = bytes % 1000 / 100;
		bytes /= 1000;
		unit++;
	}
	if (unit > 0 && bytes < 10)
		snprintf(buf, size, "%" PRIu64 ".%" PRIu64 " %s", bytes, rest,
			 units[unit]);
	else
		snprintf(buf, size, "%" PRIu64 " %s", bytes, units[unit]);
}

/* "curl: 3 connections, 1.2 kB sent, 40 kB received" */
static const char *comment_of(struct draft *d, const struct group *g)
{
	uint64_t connections = 0, sent = 0, received = 0, refused = 0;
	char up[32], down[32];
	const char *command = "";

	for (size_t i = 0; i < g->count; i++) {
		const struct event *e = g->uses[i].event;

		refused += e->action == EVENT_DENY ? e->packets : 0;
		if (e->action == EVENT_DENY || e->layer == EVENT_DNS)
			continue;
		connections += e->packets;
		sent += e->bytes;
		received += e->received;
		if (e->command[0] && command[0] && strcmp(command, e->command) != 0)
			command = "several programs";
		else if (e->command[0])
			command = e->command;
	}
	if (connections == 0 && refused > 0)
		return arena_printf(&d->arena, "refused %" PRIu64 " time%s", refused,
				    refused == 1 ? "" : "s");
	put_size(up, sizeof(up), sent);
	put_size(down, sizeof(down), received);
	return arena_printf(&d->arena, "%s%s%" PRIu64 " connection%s, %s sent%s%s%s",
			    SHOWN(command), command[0] ? ": " : "", connections,
			    connections == 1 ? "" : "s", up, received > 0 ? ", " : "",
			    received > 0 ? down : "", received > 0 ? " received" : "");
}

/* The rules of a destination: one of a name, one for each port of an address. A policy of
 * their own, because an option is held against all before it. */
static int add_group(struct draft *d, const struct group *g)
{
	struct policy rules = { 0 };
	const char *comment;
	int r = 0;

	for (size_t i = 0; r == 0 && i < g->count; i++) {
		const struct event *e = g->uses[i].event;
		struct event refusal;

		if (e->action == EVENT_DENY && policy_refuses(d->args->asked, e))
			r = add_advice(d, e->advice, &rules);
		else if (is_flow(e) && policy_would_refuse(d->args->asked, e, &refusal))
			r = add_advice(d, refusal.advice, &rules);
	}
	if (r < 0 || rules.count == 0)
		return r;
	comment = comment_of(d, g);
	for (size_t i = 0; r == 0 && comment && i < rules.count; i++) {
		rules.rules[i].comment = comment;
		r = policy_add_rule(&d->policy, &d->arena, &rules.rules[i]);
	}
	return comment ? r : -ENOMEM;
}

static int by_target(const void *a, const void *b)
{
	const struct rule *x = a, *y = b;
	int r = strcmp(x->target, y->target);

	/* Rules of one address differ in their ports. */
	if (r == 0 && x->ports.count > 0 && y->ports.count > 0)
		r = memcmp(x->ports.ranges, y->ports.ranges, sizeof(*x->ports.ranges));
	return r;
}

static int make_rules(struct draft *d)
{
	struct policy *p = &d->policy;
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->use_count;) {
		const struct group g = group_at(d, i);

		r = add_group(d, &g);
		i += g.count;
	}
	if (r == 0 && p->count > 0)
		qsort(p->rules, p->count, sizeof(*p->rules), by_target);
	/* Two names may have led to one port of an address that needs a rule. */
	for (size_t i = 0; i < p->count; i++)
		if (kept == 0 || by_target(&p->rules[kept - 1], &p->rules[i]) != 0)
			p->rules[kept++] = p->rules[i];
	p->count = kept;
	return r;
}

/* ---- profiles ---- */

/* @used: of as many as @plan has rules; those that something used become true. */
static void mark_used(const struct draft *d, const struct plan *plan, bool *used)
{
	for (size_t i = 0; i < d->use_count; i++) {
		const struct event *e = d->uses[i].event;
		struct plan_verdict by_addr = { .rule = PLAN_NO_RULE },
				    by_name = { .rule = PLAN_NO_RULE };
		struct dns_name name;

		if (!is_flow(e) || policy_refuses(plan, e))
			continue;
		if (e->remote.family != ADDR_NONE)
			by_addr = plan_match_addr(plan, &e->remote, e->protocol, e->port);
		if (e->name[0] && dns_name_parse(text_of(e->name), &name) == 0)
			by_name = plan_match_name(plan, &name);
		if (by_addr.rule != PLAN_NO_RULE)
			used[by_addr.rule] = true;
		if (by_name.rule != PLAN_NO_RULE)
			used[by_name.rule] = true;
	}
}

/* Of each host of the profile something was used that the profile allows. Without the
 * memory to know that it wasn't. */
static bool is_whole(const struct draft *d, const struct draft_profile *p)
{
	const size_t count = plan_rule_count(p->plan);
	CLEAN(mem) bool *used = calloc(count + 1, sizeof(*used));
	bool all = used && p->policy->count > 0;

	if (all)
		mark_used(d, p->plan, used);
	for (size_t i = 0; i < count && all; i++)
		all = used[i] || plan_rule(p->plan, i).flags & PLAN_IMPLICIT;
	return all;
}

static bool covers(const struct draft *d, const struct draft_profile *p,
		   const struct rule *r)
{
	const struct group g = find_group(d, r->target);

	for (size_t i = 0; i < g.count; i++)
		if (is_flow(g.uses[i].event) && policy_refuses(p->plan, g.uses[i].event))
			return false;
	return g.count > 0;
}

static int take_profiles(struct draft *d)
{
	const struct draft_args *a = d->args;

	d->extends = arena_array(&d->arena, a->extend_count + a->profile_count + 1,
				 sizeof(*d->extends));
	if (!d->extends)
		return -ENOMEM;
	for (size_t i = 0; i < a->extend_count; i++)
		d->extends[d->extend_count++] = a->extends[i];
	/* A profile stands for the rules that it covers, unless it covers none or all of
	 * its hosts weren't used: so it opens nothing that wasn't used. */
	for (size_t i = 0; i < a->profile_count; i++) {
		size_t kept = 0;

		if (!is_whole(d, &a->profiles[i]))
			continue;
		for (size_t k = 0; k < d->policy.count; k++)
			if (!covers(d, &a->profiles[i], &d->policy.rules[k]))
				d->policy.rules[kept++] = d->policy.rules[k];
		if (kept < d->policy.count)
			d->extends[d->extend_count++] = a->profiles[i].name;
		d->policy.count = kept;
	}
	return 0;
}

/* ---- what a person decides ---- */

static int propose(struct draft *d, const struct rule *rule, const char *why)
{
	if (d->proposal_count == d->proposal_capacity) {
		const size_t capacity = MAX(d->proposal_capacity * 2, (size_t)16);
		struct draft_proposal *grown =
			arena_array(&d->arena, capacity, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		if (d->proposal_count > 0)
			memcpy(grown, d->proposals, d->proposal_count * sizeof(*grown));
		d->proposals = grown;
		d->proposal_capacity = capacity;
	}
	d->proposals[d->proposal_count++] = (struct draft_proposal){ *rule, why };
	return why ? 0 : -ENOMEM;
}

/* "sentry.io  # Sentry: https://..." of profiles/telemetry.txt: that name and those
 * below. Return: what stands behind it; ptr NULL: none. */
static struct text telemetry_of(const struct dns_name *name)
{
	struct text list = policy_embedded_telemetry(), line;
	struct dns_name listed;

	while (text_split(&list, '\n', &line)) {
		const struct text entry = text_without_comment(line);

		if (entry.len == 0 || dns_name_parse(entry, &listed) < 0 ||
		    !dns_name_is_within(name, &listed))
			continue;
		line.len -= (size_t)(entry.ptr + entry.len - line.ptr);
		line.ptr = entry.ptr + entry.len;
		while (line.len > 0 && strchr(" \t#", line.ptr[0])) {
			line.ptr++;
			line.len--;
		}
		return line;
	}
	return (struct text){ 0 };
}

static int mark_telemetry(struct draft *d)
{
	size_t kept = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->policy.count; i++) {
		const struct rule *rule = &d->policy.rules[i];
		const struct text why = rule->kind == TARGET_NAME
						? telemetry_of(&rule->name)
						: (struct text){ 0 };

		if (why.ptr)
			r = propose(d, rule,
				    arena_printf(&d->arena, "telemetry of %.*s",
						 (int)why.len, why.ptr));
		else
			d->policy.rules[kept++] = *rule;
	}
	d->policy.count = kept;
	return r;
}

/* A rule, and the name below which its name is. */
struct sibling {
	const char *parent;
	const struct rule *rule;
};

/* NULL: no wildcard above @r's name can be meant. */
static const char *parent_of(const struct rule *r)
{
	const char *dot = r->kind == TARGET_NAME ? strchr(r->target, '.') : NULL;

	return dot && strchr(dot + 1, '.') &&
			       name_is_public_suffix(dot + 1, false) == 0 &&
			       name_is_public_suffix(dot + 1, true) == 0
		       ? dot + 1
		       : NULL;
}

static int by_parent(const void *a, const void *b)
{
	const struct sibling *x = a, *y = b;
	int r = strcmp(x->parent, y->parent);

	return r != 0 ? r : (x->rule > y->rule) - (x->rule < y->rule);
}

/* In place of @count siblings, the first of them at @s. */
static int propose_wildcard(struct draft *d, const struct sibling *s, size_t count)
{
	const struct policy_reader reader = { .arena = &d->arena, .faults = &d->faults };
	const size_t named = count > SIBLINGS_SHOWN ? SIBLINGS_SHOWN : count;
	struct policy wildcard = { 0 };
	const char *why = "instead of";
	char ports[PLAN_PORT_RANGES_MAX * 24];

	for (size_t i = 0; i < count; i++) {
		const char *value;

		rule_ports_text(&s[i].rule->ports, ports, sizeof(ports));
		value = arena_printf(&d->arena, "*.%s:%s", s->parent,
				     ports[0] ? ports : "default");
		if (!value || policy_read_option(&reader, "learned", POLICY_ALLOW,
						 text_of(value), &wildcard) == -ENOMEM)
			return -ENOMEM;
	}
	for (size_t i = 0; i < named && why; i++)
		why = arena_printf(&d->arena, "%s%s %s", why, i > 0 ? "," : "",
				   s[i].rule->target);
	if (why && named < count)
		why = arena_printf(&d->arena, "%s and %zu more", why, count - named);
	return wildcard.count == 1 ? propose(d, &wildcard.rules[0], why) : 0;
}

static int propose_wildcards(struct draft *d)
{
	struct sibling *all = arena_array(&d->arena, d->policy.count + 1, sizeof(*all));
	size_t count = 0, same;
	int r = all ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < d->policy.count; i++) {
		all[count] = (struct sibling){ parent_of(&d->policy.rules[i]),
					       &d->policy.rules[i] };
		count += all[count].parent != NULL;
	}
	if (r == 0 && count > 0)
		qsort(all, count, sizeof(*all), by_parent);
	for (size_t i = 0; r == 0 && i < count; i += same) {
		for (same = 1; i + same < count &&
			       strcmp(all[i].parent, all[i + same].parent) == 0;)
			same++;
		if (same >= SIBLINGS_MIN)
			r = propose_wildcard(d, &all[i], same);
	}
	return r;
}

int draft_make(struct draft *ret, const struct draft_args *args)
{
	const struct event_ring *refused = args->refused_too ? args->refused : NULL;
	size_t count = event_ring_count(args->used);
	struct draft *d = ret;
	int r;

	*d = (struct draft){ .args = args };
	count += refused ? event_ring_count(refused) : 0;
	d->uses = arena_array(&d->arena, count + 1, sizeof(*d->uses));
	r = d->uses ? add_uses(d, args->used) : -ENOMEM;
	if (r == 0 && refused)
		r = add_uses(d, refused);
	if (r == 0 && d->use_count > 0)
		qsort(d->uses, d->use_count, sizeof(*d->uses), compare_uses);
	if (r == 0)
		r = make_rules(d);
	if (r == 0)
		r = take_profiles(d);
	if (r == 0)
		r = mark_telemetry(d);
	if (r == 0)
		r = propose_wildcards(d);
	if (r < 0)
		draft_done(d);
	return r;
}

void draft_done(struct draft *d)
{
	arena_done(&d->arena);
	faults_done(&d->faults);
}

/* ---- as text ---- */

static void print_escaped(FILE *out, const char *text)
{
	char shown[REPORT_WHAT_SIZE * 4];

	fputs(text_escape(text_of(text), shown, sizeof(shown)), out);
}

static void print_rule(FILE *out, const struct rule *r)
{
	char text[POLICY_RULE_SIZE];

	if (rule_write(r, false, text, sizeof(text)))
		fprintf(out, "- %s", text);
	else
		fputs("# a rule that is too long", out);
}

/* Twice @bytes as a budget has it, "300K" or "20M": at least so many. */
static void print_twice(FILE *out, const char *key, uint64_t bytes)
{
	static const char units[] = "KMG";
	uint64_t n = bytes / 512 + 1;
	size_t unit = 0;

	for (; n >= 10000 && unit + 1 < strlen(units); unit++)
		n = n / 1024 + 1;
	fprintf(out, "%s: %" PRIu64 "%c", key, n, units[unit]);
}

/* "  # budget: {sent: 300K, received: 20M}" */
static void print_budget(FILE *out, const struct draft *d, const struct rule *r)
{
	const struct group g = find_group(d, r->target);
	uint64_t sent = 0, received = 0;

	for (size_t i = 0; i < g.count; i++) {
		sent += is_flow(g.uses[i].event) ? g.uses[i].event->bytes : 0;
		received += is_flow(g.uses[i].event) ? g.uses[i].event->received : 0;
	}
	if (sent == 0 && received == 0)
		return;
	fputs("  # budget: {", out);
	if (sent > 0)
		print_twice(out, "sent", sent);
	fputs(sent > 0 && received > 0 ? ", " : "", out);
	if (received > 0)
		print_twice(out, "received", received);
	fputc('}', out);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names that were looked up, that nothing went to and that nothing allows. */
static void print_lookups(const struct draft *d, const char *indent, FILE *out)
{
	const struct event_ring *used = d->args->used;
	const size_t count = event_ring_count(used);
	CLEAN(mem) const char **names = calloc(count + 1, sizeof(*names));
	size_t n = 0, printed = 0;

	for (size_t i = 0; names && i < count; i++) {
		const struct event *e = event_ring_at(used, i);
		bool is_connected = false;
		struct group g;

		if (e->action != EVENT_ALLOW || e->layer != EVENT_DNS)
			continue;
		g = find_group(d, e->name);
		for (size_t k = 0; k < g.count; k++)
			is_connected |= is_flow(g.uses[k].event);
		if (!is_connected && policy_refuses(d->args->asked, e))
			names[n++] = e->name;
	}
	if (n == 0)
		return;
	qsort(names, n, sizeof(*names), compare_names);
	fprintf(out, "%sOnly looked up; nothing went there, and no rule allows it:\n",
		indent);
	for (size_t i = 0; i < n && printed < NOTES_MAX; i++) {
		if (i > 0 && strcmp(names[i], names[i - 1]) == 0)
			continue;
		fprintf(out, "%s  ", indent);
		print_escaped(out, names[i]);
		fputc('\n', out);
		printed++;
	}
	if (printed == NOTES_MAX)
		fprintf(out, "%s  and more\n", indent);
}

/* As comments: what is proposed, was only looked up, was refused. */
static void write_notes(const struct draft *d, const char *indent, FILE *out)
{
	char what[REPORT_WHAT_SIZE];
	size_t printed = 0;

	for (size_t i = 0; i < d->proposal_count; i++) {
		fprintf(out, "%sNot allowed, for you to decide: ", indent);
		print_escaped(out, d->proposals[i].why);
		fprintf(out, "\n%s  ", indent);
		print_rule(out, &d->proposals[i].rule);
		fputc('\n', out);
	}
	print_lookups(d, indent, out);
	for (size_t i = 0; d->args->refused && !d->args->refused_too &&
			   i < event_ring_count(d->args->refused);
	     i++) {
		const struct event *e = event_ring_at(d->args->refused, i);

		if (!report_is_refusal(e) || ++printed > NOTES_MAX)
			continue;
		if (printed == 1)
			fprintf(out, "%sRefused:\n", indent);
		fprintf(out, "%s  ", indent);
		print_escaped(out, report_what(e, what));
		fputs(": ", out);
		print_escaped(out, e->reason);
		if (e->advice[0])
			fputs("; --allow ", out);
		print_escaped(out, e->advice);
		fputc('\n', out);
	}
	if (printed > NOTES_MAX)
		fprintf(out, "%s  and %zu more\n", indent, printed - NOTES_MAX);
}

void draft_write(const struct draft *d, FILE *out)
{
	char text[1024];
	struct jtext j;

	fputs("# Made by `weir learn` of what ", out);
	print_escaped(out, d->args->program);
	fputs(" used. Read it before you use it: a host that is\n"
	      "# allowed may be sent all that the command can read.\n",
	      out);
	if (d->args->unseen > 0)
		fprintf(out,
			"# %" PRIu64
			" connections and lookups more were too many to be seen:\n"
			"# rules may be missing.\n",
			d->args->unseen);
	for (size_t i = 0; i < d->extend_count; i++) {
		fputs(i == 0 ? "extends: [" : ", ", out);
		/* A profile's: a word, or a path. */
		jtext_init(&j, text, sizeof(text));
		if (!text_is_name(d->extends[i], sizeof(text)))
			jtext_string(&j, text_of(d->extends[i]), strlen(d->extends[i]));
		else
			jtext_put(&j, text_of(d->extends[i]));
		fwrite(text, 1, j.used, out);
	}
	fputs(d->extend_count > 0 ? "]\n" : "", out);
	fputs(d->policy.count > 0 ? "egress:\n" : "egress: []\n", out);
	for (size_t i = 0; i < d->policy.count; i++) {
		fputs("  ", out);
		print_rule(out, &d->policy.rules[i]);
		print_budget(out, d, &d->policy.rules[i]);
		fputc('\n', out);
	}
	write_notes(d, "# ", out);
}

/* ---- beside a policy ---- */

void draft_write_difference(const struct draft *d, const struct plan *plan,
			    const char *file, FILE *out)
{
	const size_t count = plan_rule_count(plan);
	CLEAN(mem) bool *used = calloc(count + 1, sizeof(*used));
	char text[POLICY_EXPLAIN_SIZE];
	size_t unused = 0;

	if (used)
		mark_used(d, plan, used);
	fputs("would be needed:\n", out);
	for (size_t i = 0; i < d->policy.count; i++) {
		fputs("  ", out);
		print_rule(out, &d->policy.rules[i]);
		fputc('\n', out);
	}
	if (d->policy.count == 0)
		fputs("  nothing\n", out);
	fputs("could go, nothing used it:\n", out);
	for (size_t i = 0; used && i < count; i++) {
		const struct plan_rule r = plan_rule(plan, i);

		if (r.action != POLICY_ALLOW || r.flags & PLAN_IMPLICIT ||
		    strcmp(r.file, file) != 0 || used[i])
			continue;
		unused++;
		fprintf(out, "  %s\n",
			policy_explain_rule(plan, (uint32_t)i, text, sizeof(text)));
	}
	if (unused == 0)
		fputs("  nothing\n", out);
	write_notes(d, "", out);
}
