// SPDX-License-Identifier: Apache-2.0
#include "events/draft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "event/json.h"
#include "events/report_event.h"
#include "policy/advice.h"
#include "policy/embedded.h"
#include "policy/explain.h"
#include "policy/name_libraries.h"
#include "policy/open.h"

enum {
	COMMENT_SIZE = 256,
	SIBLINGS_MIN = 3,
	SIBLINGS_SHOWN = 8, /* names that speak for a wildcard */
	NOTES_MAX = 50,	    /* of each kind; "and N more" */
};

/* A note that names share an address has no port. */
static bool is_flow(const struct event *e)
{
	return e->action == EVENT_ALLOW && e->layer != EVENT_DNS && e->port > 0 &&
	       e->packets > 0;
}

/* ---- one rule for each name ---- */

static int add_advice(struct draft *d, const char *advice)
{
	const struct policy_reader reader = { .arena = &d->arena, .faults = &d->faults };
	char rule[ADVICE_RULE_SIZE];
	int r;

	/* A store has advice of older versions, and of others. */
	if (!advice_rule(advice, rule))
		return 0;
	r = policy_read_option(&reader, "learned", POLICY_ALLOW, text_of(advice),
			       &d->policy);
	return r == -ENOMEM ? r : 0;
}

static int add_use(struct draft *d, const struct event *e)
{
	struct event refusal;

	return policy_would_refuse(d->args->asked, e, &refusal)
		       ? add_advice(d, refusal.advice)
		       : 0;
}

static bool is_about(const struct rule *r, const struct event *e)
{
	char text[ADDR_TEXT_SIZE];

	if (r->kind == TARGET_PREFIX)
		return !e->name[0] && e->remote.family != ADDR_NONE &&
		       strcmp(addr_format(&e->remote, text), r->target) == 0;
	return strcmp(e->name, r->target) == 0;
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

/* "curl: 3 connections, 1.2 kB sent" */
static const char *comment_of(struct draft *d, const struct rule *r)
{
	uint64_t connections = 0, bytes = 0, refused = 0;
	char size[32], shown[TEXT_ESCAPED_SIZE];
	const char *command = "";

	for (size_t i = 0; i < event_ring_count(d->args->used); i++) {
		const struct event *e = event_ring_at(d->args->used, i);

		if (e->layer == EVENT_DNS || !is_about(r, e))
			continue;
		connections += e->packets;
		bytes += e->bytes;
		if (e->command[0] && command[0] && strcmp(command, e->command) != 0)
			command = "several programs";
		else if (e->command[0])
			command = e->command;
	}
	for (size_t i = 0; d->args->refused_too && i < event_ring_count(d->args->refused);
	     i++)
		if (is_about(r, event_ring_at(d->args->refused, i)))
			refused += event_ring_at(d->args->refused, i)->packets;
	if (connections == 0 && refused > 0)
		return arena_printf(&d->arena, "refused %" PRIu64 " time%s", refused,
				    refused == 1 ? "" : "s");
	put_size(size, sizeof(size), bytes);
	return arena_printf(&d->arena, "%s%s%" PRIu64 " connection%s, %s sent",
			    text_escape(text_of(command), shown, sizeof(shown)),
			    command[0] ? ": " : "", connections,
			    connections == 1 ? "" : "s", size);
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

static void remove_rule(struct policy *p, size_t i)
{
	memmove(&p->rules[i], &p->rules[i + 1], (p->count - i - 1) * sizeof(*p->rules));
	p->count--;
}

/* ---- profiles ---- */

/* Of each host of the profile something was used that the profile allows. */
static bool is_whole(const struct draft *d, const struct draft_profile *p)
{
	const size_t count = plan_rule_count(p->plan);

	for (size_t i = 0; i < count; i++) {
		bool used = false;

		if (plan_rule(p->plan, i).flags & PLAN_IMPLICIT)
			continue;
		for (size_t n = 0; n < event_ring_count(d->args->used) && !used; n++) {
			const struct event *e = event_ring_at(d->args->used, n);
			struct dns_name name;

			used = is_flow(e) && e->name[0] && !policy_refuses(p->plan, e) &&
			       dns_name_parse(text_of(e->name), &name) == 0 &&
			       plan_match_name(p->plan, &name).rule == i;
		}
		if (!used)
			return false;
	}
	return p->policy->count > 0;
}

static bool covers(const struct draft *d, const struct draft_profile *p,
		   const struct rule *r)
{
	for (size_t i = 0; i < event_ring_count(d->args->used); i++) {
		const struct event *e = event_ring_at(d->args->used, i);

		if (is_flow(e) && is_about(r, e) && policy_refuses(p->plan, e))
			return false;
	}
	return true;
}

/* It stands for the rules that it covers, unless it covers none or all of its hosts
 * weren't used: so it opens nothing that wasn't used. */
static void take_profile(struct draft *d, const struct draft_profile *p)
{
	size_t covered = 0;

	if (!is_whole(d, p))
		return;
	for (size_t i = d->policy.count; i-- > 0;)
		if (covers(d, p, &d->policy.rules[i])) {
			remove_rule(&d->policy, i);
			covered++;
		}
	if (covered > 0)
		d->extends[d->extend_count++] = p->name;
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
	for (size_t i = 0; i < a->profile_count; i++)
		take_profile(d, &a->profiles[i]);
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
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->policy.count;) {
		const struct rule *rule = &d->policy.rules[i];
		const struct text why = rule->kind == TARGET_NAME
						? telemetry_of(&rule->name)
						: (struct text){ 0 };

		if (!why.ptr) {
			i++;
			continue;
		}
		r = propose(d, rule,
			    arena_printf(&d->arena, "telemetry of %.*s", (int)why.len,
					 why.ptr));
		remove_rule(&d->policy, i);
	}
	return r;
}

/* The name below which @name is, if a wildcard below it can be meant. */
static const char *parent_of(const struct rule *r)
{
	const char *dot = r->kind == TARGET_NAME ? strchr(r->target, '.') : NULL;

	return dot && strchr(dot + 1, '.') &&
			       name_is_public_suffix(dot + 1, false) == 0 &&
			       name_is_public_suffix(dot + 1, true) == 0
		       ? dot + 1
		       : NULL;
}

static bool is_sibling(const struct rule *r, const char *parent)
{
	const char *of = parent_of(r);

	return of && strcmp(of, parent) == 0;
}

static int propose_wildcard(struct draft *d, size_t first, const char *parent)
{
	const struct policy_reader reader = { .arena = &d->arena, .faults = &d->faults };
	struct policy wildcard = { 0 };
	const char *why = "instead of";
	char ports[PLAN_PORT_RANGES_MAX * 24];
	size_t siblings = 0;

	for (size_t i = first; i < d->policy.count && why; i++) {
		const struct rule *rule = &d->policy.rules[i];
		const char *value;

		if (!is_sibling(rule, parent))
			continue;
		rule_ports_text(&rule->ports, ports, sizeof(ports));
		value = arena_printf(&d->arena, "*.%s:%s", parent,
				     ports[0] ? ports : "default");
		if (!value || policy_read_option(&reader, "learned", POLICY_ALLOW,
						 text_of(value), &wildcard) == -ENOMEM)
			return -ENOMEM;
		if (siblings++ < SIBLINGS_SHOWN)
			why = arena_printf(&d->arena, "%s%s %s", why,
					   siblings > 1 ? "," : "", rule->target);
	}
	if (why && siblings > SIBLINGS_SHOWN)
		why = arena_printf(&d->arena, "%s and %zu more", why,
				   siblings - SIBLINGS_SHOWN);
	if (!why)
		return -ENOMEM;
	return wildcard.count == 1 ? propose(d, &wildcard.rules[0], why) : 0;
}

static int propose_wildcards(struct draft *d)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < d->policy.count; i++) {
		const char *parent = parent_of(&d->policy.rules[i]);
		size_t siblings = 0;
		bool seen = false;

		for (size_t n = 0; parent && n < d->policy.count; n++) {
			siblings += is_sibling(&d->policy.rules[n], parent);
			seen |= n < i && is_sibling(&d->policy.rules[n], parent);
		}
		if (!seen && siblings >= SIBLINGS_MIN)
			r = propose_wildcard(d, i, parent);
	}
	return r;
}

int draft_make(struct draft *ret, const struct draft_args *args)
{
	struct draft *d = ret;
	int r = 0;

	*d = (struct draft){ .args = args };
	for (size_t i = 0; r == 0 && i < event_ring_count(args->used); i++)
		if (is_flow(event_ring_at(args->used, i)))
			r = add_use(d, event_ring_at(args->used, i));
	for (size_t i = 0;
	     r == 0 && args->refused_too && i < event_ring_count(args->refused); i++)
		if (policy_refuses(args->asked, event_ring_at(args->refused, i)))
			r = add_advice(d, event_ring_at(args->refused, i)->advice);
	if (r == 0 && d->policy.count > 0)
		qsort(d->policy.rules, d->policy.count, sizeof(*d->policy.rules),
		      by_target);
	for (size_t i = 0; r == 0 && i < d->policy.count; i++) {
		d->policy.rules[i].comment = comment_of(d, &d->policy.rules[i]);
		r = d->policy.rules[i].comment ? 0 : -ENOMEM;
	}
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

	if (rule_write_yaml(r, text, sizeof(text)))
		fprintf(out, "- %s\n", text);
	else
		fputs("# a rule that is too long\n", out);
}

/* A profile's: a word, or a path. */
static void print_name(FILE *out, const char *name)
{
	char text[1024];
	struct jtext j;

	jtext_init(&j, text, sizeof(text));
	if (!text_is_name(name, sizeof(text)))
		jtext_string(&j, text_of(name), strlen(name));
	else
		jtext_put(&j, text_of(name));
	fwrite(text, 1, j.used, out);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Something went there. */
static bool is_connected(const struct event_ring *used, const char *name)
{
	for (size_t i = 0; i < event_ring_count(used); i++)
		if (is_flow(event_ring_at(used, i)) &&
		    strcmp(event_ring_at(used, i)->name, name) == 0)
			return true;
	return false;
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

		if (e->action == EVENT_ALLOW && e->layer == EVENT_DNS &&
		    !is_connected(used, e->name) && policy_refuses(d->args->asked, e))
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

static void print_refused(const struct draft *d, const char *indent, FILE *out)
{
	char what[REPORT_WHAT_SIZE];
	size_t printed = 0;

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

/* As comments: what is proposed, was only looked up, was refused. */
static void write_notes(const struct draft *d, const char *indent, FILE *out)
{
	for (size_t i = 0; i < d->proposal_count; i++) {
		fprintf(out, "%sNot allowed, for you to decide: ", indent);
		print_escaped(out, d->proposals[i].why);
		fprintf(out, "\n%s  ", indent);
		print_rule(out, &d->proposals[i].rule);
	}
	print_lookups(d, indent, out);
	print_refused(d, indent, out);
}

void draft_write(const struct draft *d, FILE *out)
{
	fputs("# Made by `weir learn` of what ", out);
	print_escaped(out, d->args->program);
	fputs(" used. Read it before you use it: whoever may talk to a host\n"
	      "# may send it all that the command can read.\n",
	      out);
	for (size_t i = 0; i < d->extend_count; i++) {
		fputs(i == 0 ? "extends: [" : ", ", out);
		print_name(out, d->extends[i]);
	}
	fputs(d->extend_count > 0 ? "]\n" : "", out);
	fputs(d->policy.count > 0 ? "egress:\n" : "egress: []\n", out);
	for (size_t i = 0; i < d->policy.count; i++) {
		fputs("  ", out);
		print_rule(out, &d->policy.rules[i]);
	}
	write_notes(d, "# ", out);
}

/* ---- beside a policy ---- */

static bool is_rule_used(const struct draft *d, const struct plan *plan, size_t rule)
{
	for (size_t i = 0; i < event_ring_count(d->args->used); i++) {
		const struct event *e = event_ring_at(d->args->used, i);
		struct dns_name name;

		if (!is_flow(e) || policy_refuses(plan, e))
			continue;
		if (e->remote.family != ADDR_NONE &&
		    plan_match_addr(plan, &e->remote, e->protocol, e->port).rule == rule)
			return true;
		if (e->name[0] && dns_name_parse(text_of(e->name), &name) == 0 &&
		    plan_match_name(plan, &name).rule == rule)
			return true;
	}
	return false;
}

void draft_write_difference(const struct draft *d, const struct plan *plan,
			    const char *file, FILE *out)
{
	char text[POLICY_EXPLAIN_SIZE];
	size_t unused = 0;

	fputs("would be needed:\n", out);
	for (size_t i = 0; i < d->policy.count; i++) {
		fputs("  ", out);
		print_rule(out, &d->policy.rules[i]);
	}
	if (d->policy.count == 0)
		fputs("  nothing\n", out);
	fputs("could go, nothing used it:\n", out);
	for (size_t i = 0; i < plan_rule_count(plan); i++) {
		const struct plan_rule r = plan_rule(plan, i);

		if (r.action != POLICY_ALLOW || r.flags & PLAN_IMPLICIT ||
		    strcmp(r.file, file) != 0 || is_rule_used(d, plan, i))
			continue;
		unused++;
		fprintf(out, "  %s\n",
			policy_explain_rule(plan, (uint32_t)i, text, sizeof(text)));
	}
	if (unused == 0)
		fputs("  nothing\n", out);
	write_notes(d, "", out);
}
