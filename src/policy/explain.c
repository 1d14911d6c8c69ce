// SPDX-License-Identifier: Apache-2.0
#include "policy/explain.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/jansson.h"
#include "base/log.h"
#include "base/special.h"
#include "dns/message.h"
#include "event/json.h"
#include "policy/advice.h"
#include "policy/limits.h"
#include "policy/rule.h"
#include "sys/print.h"

char *policy_explain_ports(const struct plan *p, uint8_t list, char *buf, size_t size)
{
	const struct plan_port_range *ranges;
	size_t count;

	if (list == 0) {
		snprintf(buf, size, "all but 53 and 853%s",
			 plan_verify(p) == POLICY_VERIFY_TLS ? " (and udp/443)" : "");
		return buf;
	}
	ranges = plan_port_list(p, list, &count);
	return rule_ports_format(ranges, count, buf, size);
}

char *policy_explain_rule(const struct plan *p, uint32_t rule, char *buf, size_t size)
{
	char ports[128], place[16] = "", until[JTEXT_TIME_SIZE + 8] = "";
	const char *target, *file;
	struct rule_ports named;
	char time[JTEXT_TIME_SIZE];
	struct plan_rule r;

	if (rule >= plan_rule_count(p)) {
		snprintf(buf, size, "the default action (%s)",
			 policy_action_name(plan_default_action(p)));
		return buf;
	}
	r = plan_rule(p, rule);
	/* As the rule's `ports` has them. */
	named.with_default = r.named_list != r.port_list;
	named.ranges = plan_port_list(p, r.named_list, &named.count);
	target = SHOWN(r.target);
	file = SHOWN(r.file);
	if (r.line > 0)
		snprintf(place, sizeof(place), ":%u", r.line);
	if (r.until_ms != 0)
		snprintf(until, sizeof(until), " until %s",
			 jtext_time(r.until_ms, false, time));
	if (r.action != POLICY_DENY && r.flags & PLAN_PORTS_LISTED)
		snprintf(buf, size, "%s %s ports %s%s (%s%s)",
			 policy_action_name(r.action), target,
			 rule_ports_text(&named, ports, sizeof(ports)), until, file,
			 place);
	else
		snprintf(buf, size, "%s %s%s (%s%s)", policy_action_name(r.action),
			 target, until, file, place);
	return buf;
}

/* -- the whole policy --------------------------------------------------------------- */

/* The effective policy: one tree of JSON values, printed as JSON, or as YAML whose rules
 * are written on a line each. Both can be read back and mean the same. */

json_t *policy_grants_json(const struct plan *p, int64_t wall_ms)
{
	json_t *list = json_array();
	char until[JTEXT_TIME_SIZE];

	for (size_t i = 0; plan_end_count(p) > 0 && i < plan_rule_count(p); i++) {
		const struct plan_rule r = plan_rule(p, i);

		if (r.until_ms > wall_ms)
			json_array_append_new(
				list,
				json_pack("{s:s, s:s, s:I}", "target", r.target, "until",
					  jtext_time(r.until_ms, true, until),
					  "secondsLeft",
					  (json_int_t)((r.until_ms - wall_ms + 999) /
						       1000)));
	}
	return list;
}

/* Everything but the rules. */
static json_t *settings_json(const struct policy *p)
{
	char window[POLICY_WINDOW_SIZE], size[RULE_SIZE_SIZE];
	CLEAN(json) json_t *limits = json_object();
	json_t *o = json_pack("{s:s, s:s, s:s}", "defaultAction",
			      policy_action_name(p->default_action), "verify",
			      p->verify == POLICY_VERIFY_TLS ? "tls" : "dns", "dns",
			      p->dns == POLICY_DNS_PINNED ? "pinned" : "live");

	if (o && p->require_full_isolation)
		json_object_set_new(o, "require_full_isolation", json_true());
	if (o && p->denied_names == POLICY_DENIED_REFUSE)
		json_object_set_new(o, "deniedNames", json_string("refuse"));
	if (o && p->repin_ms > 0)
		json_object_set_new(o, "repin",
				    json_string(policy_window_text(
					    (uint32_t)(p->repin_ms / 1000), window)));
	if (o && p->on_denies.count > 0)
		json_object_set_new(
			o, "on_denies",
			json_pack("{s:i, s:s, s:s}", "count", (int)p->on_denies.count,
				  "window",
				  policy_window_text(p->on_denies.window_sec, window),
				  "action", policy_on_denies_name(p->on_denies.action)));
	for (size_t i = 0; limits && i < LIMIT_COUNT; i++)
		if (p->limits[i] != 0)
			json_object_set_new(limits, limit_info(i)->name,
					    p->limits[i] == LIMIT_UNLIMITED
						    ? json_string("unlimited")
						    : json_integer(p->limits[i]));
	if (limits && p->budget.sent > 0)
		json_object_set_new(limits, "sent_total",
				    json_string(rule_size_text(p->budget.sent, size)));
	if (o && json_object_size(limits) > 0)
		json_object_set(o, "limits", limits);
	return o;
}

static int show_json(const struct policy *p, FILE *out)
{
	CLEAN(json) json_t *o = settings_json(p), *rules = json_array();
	int r = o && rules ? 0 : -ENOMEM;

	for (size_t i = 0; r == 0 && i < p->count; i++) {
		CLEAN(mem) char *text = rule_text(&p->rules[i], true);

		if (!text || json_array_append_new(rules, json_loads(text, 0, NULL)) < 0)
			r = -ENOMEM;
	}
	if (r == 0)
		r = json_object_set(o, "egress", rules) < 0 ? -ENOMEM : 0;
	if (r == 0 && json_dumpf(o, out, JSON_INDENT(2)) < 0)
		r = -ENOMEM;
	if (r == 0)
		fputc('\n', out);
	return r;
}

/* All of the same kind and profile as the need @first, unless an earlier one was. */
static void explain_needs_like(const struct policy *p, size_t first, const char *prefix,
			       FILE *out)
{
	static const char *const texts[NEED_KIND_COUNT] = {
		[NEED_OWN] = "directories of the sandboxes' own for",
		[NEED_PASS_ENV] = "is passed, where it is set,",
		[NEED_SET_ENV] = "is set, where the caller doesn't set it,",
		[NEED_RW_PRESET] = "what --rw-preset makes writable for",
	};
	const struct policy_need *like = &p->needs[first];

	for (size_t i = 0; i < p->need_count; i++) {
		const struct policy_need *n = &p->needs[i];

		if (!n->profile || strcmp(n->profile, like->profile) != 0 ||
		    n->kind != like->kind)
			continue;
		if (i < first)
			return;
		if (i == first)
			fprintf(out, "%sthe profile %s gives `weir run`: %s", prefix,
				n->profile, texts[n->kind]);
		fprintf(out, " %s", SHOWN(n->value));
	}
	fputc('\n', out);
}

void policy_explain_needs(const struct policy *policy, const char *prefix, FILE *out)
{
	for (size_t i = 0; i < policy->need_count; i++) {
		if (policy->needs[i].profile)
			explain_needs_like(policy, i, prefix, out);
	}
}

/* "key: value" lines; values of JSON are values of YAML. */
static int show_settings(const struct policy *p, FILE *out)
{
	CLEAN(json) json_t *o = settings_json(p);
	const char *key;
	json_t *value;

	if (!o)
		return -ENOMEM;
	json_object_foreach(o, key, value)
	{
		fprintf(out, "%s: ", key);
		if (json_is_string(value))
			fputs(json_string_value(value), out); /* one of our own words */
		else
			json_dumpf(value, out, JSON_ENCODE_ANY);
		fputc('\n', out);
	}
	return 0;
}

int cli_policy_show(const struct policy *policy, const struct plan *plan, bool json,
		    FILE *out)
{
	int r;

	if (json)
		return show_json(policy, out);
	fputs("# The effective policy. Read from:", out);
	for (size_t i = 0; i < policy->source_count; i++)
		fprintf(out, "%s %s", i > 0 ? "," : "", SHOWN(policy->sources[i]));
	fputs(policy->source_count > 0 ? "\n" : " the command line\n", out);
	fprintf(out,
		"# Enforced: names by their first rule, addresses by any deny, then any "
		"allow;\n"
		"# everything else is %s. Without `ports` a rule opens all but 53 and "
		"853.\n",
		policy->default_action == POLICY_ALLOW ? "allowed"
		: policy->default_action == POLICY_ASK ? "asked for"
						       : "denied");
	if (plan_rule_count(plan) > policy->count)
		fprintf(out, "# Besides, %zu built-in denies: cloud metadata%s.\n",
			plan_rule_count(plan) - policy->count,
			policy->default_action != POLICY_DENY
				? " and public DoH resolvers"
				: "");
	policy_explain_needs(policy, "# Besides, ", out);
	r = show_settings(policy, out);
	if (r < 0)
		return r;
	fputs(policy->count > 0 ? "egress:\n" : "egress: []\n", out);
	for (size_t i = 0; i < policy->count; i++) {
		const struct rule *rule = &policy->rules[i];
		CLEAN(mem) char *text = rule_text(rule, false);

		if (!text)
			return -ENOMEM;
		fprintf(out, "  - %s # %s", text, SHOWN(rule->file));
		if (rule->line > 0)
			fprintf(out, ":%u", rule->line);
		fputc('\n', out);
	}
	return 0;
}

/* ---- one name or address ---- */

enum { PROTOCOL_COUNT = 2 };

static const struct {
	uint8_t number;
	const char *name;
} protocols[PROTOCOL_COUNT] = { { IPPROTO_TCP, "tcp" }, { IPPROTO_UDP, "udp" } };

struct query {
	const char *text; /* as asked */
	bool is_addr;
	struct addr addr;
	struct dns_name name;
	struct text name_text; /* the part of @text that names it */
	uint16_t port;	       /* 0: not asked */
	enum {
		SHOWS_ANYTHING = 0, /* what isn't a URL */
		SHOWS_HOST,	    /* TLS or HTTP, with the host if that is a name */
		SHOWS_BYTES,	    /* neither */
	} shows;
};

struct answer {
	struct plan_verdict verdict;
	bool open[PROTOCOL_COUNT]; /* the port; with no port: the rule */
	bool limited;		   /* over TCP to TLS and HTTP */
	bool needs_name;	   /* where these show one */
	bool is_local;		   /* a name of the loopback */
	bool may_stand;		   /* an address, for a name that isn't open */
};

static int bad_query(const char *text, struct err *err)
{
	return err_set(
		err, -EINVAL,
		"'%s' is not a name or an address, with or without a port, or a URL",
		SHOWN(text));
}

static int host_and_port(struct text t, struct query *ret, struct err *err)
{
	struct text host = t, port;
	const char *colon = memrchr(t.ptr, ':', t.len);
	struct endpoint e;
	uint32_t number;
	struct rule rule = { 0 };
	int r;

	if (endpoint_parse(t.ptr, t.len, ret->port, &e)) {
		ret->is_addr = true;
		ret->addr = e.addr;
		ret->port = e.port;
		return 0;
	}
	if (colon) {
		host.len = (size_t)(colon - t.ptr);
		port = (struct text){ colon + 1, t.len - host.len - 1 };
		if (!text_to_u32(port, UINT16_MAX, &number) || number == 0)
			return bad_query(ret->text, err);
		ret->port = (uint16_t)number;
	}
	/* A name goes the way of a rule's target, so that IDN names can be asked as
	 * written. */
	r = rule_target_parse(host, &rule, err);
	if (r < 0)
		return r;
	if (rule.kind != TARGET_NAME)
		return bad_query(ret->text, err);
	ret->name = rule.name;
	ret->name_text = host;
	return 0;
}

static const struct {
	const char *name;
	uint16_t port;
	uint8_t shows;
} schemes[] = { { "https", 443, SHOWS_HOST }, { "http", 80, SHOWS_HOST },
		{ "wss", 443, SHOWS_HOST },   { "ws", 80, SHOWS_HOST },
		{ "ssh", 22, SHOWS_BYTES },   { "git", 9418, SHOWS_BYTES },
		{ "ftp", 21, SHOWS_BYTES } };

/* A name or an address with or without a port, or "scheme://user@host:port/path": the
 * host and the port, which the scheme gives when the URL doesn't. */
static int query_parse(const char *text, struct query *ret, struct err *err)
{
	const char *separator = strstr(text, "://"), *at;
	struct text scheme, rest;
	size_t len = 0;

	*ret = (struct query){ .text = text };
	if (!separator)
		return host_and_port(text_of(text), ret, err);
	scheme = (struct text){ text, (size_t)(separator - text) };
	rest = text_of(separator + 3);
	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++)
		if (text_equal_nocase(scheme, schemes[i].name)) {
			ret->port = schemes[i].port;
			ret->shows = schemes[i].shows;
		}
	if (ret->port == 0)
		return err_set(err, -EINVAL, "'%s' is not a scheme with a known port",
			       TEXT_SHOWN(scheme));
	while (len < rest.len && !strchr("/?#", rest.ptr[len]))
		len++;
	rest.len = len;
	at = memrchr(rest.ptr, '@', rest.len);
	if (at)
		rest = (struct text){ at + 1, rest.len - (size_t)(at + 1 - rest.ptr) };
	/* An IPv6 address is in brackets, with or without a port behind. */
	if (rest.len > 2 && rest.ptr[0] == '[' && rest.ptr[rest.len - 1] == ']')
		rest = (struct text){ rest.ptr + 1, rest.len - 2 };
	return host_and_port(rest, ret, err);
}

/* What --allow would open it. "": it is open, or no --allow could. */
static const char *advise(const struct plan *p, const struct query *q,
			  const struct answer *a, char *buf)
{
	/* On ports of the web listing the port isn't enough, and --allow has no `raw`. */
	const bool is_web = plan_is_web_port(q->port);
	struct event e = { .layer = EVENT_DNS, .port = q->port, .protocol = IPPROTO_TCP };

	buf[0] = '\0';
	if (a->limited ? is_web : a->open[0] || a->open[1])
		return buf;
	if (q->is_addr || q->port != 0)
		e.layer = EVENT_ADDRESS;
	if (q->is_addr)
		e.remote = q->addr;
	else
		dns_name_format(&q->name, e.name);
	return advice_write(p, &e, buf);
}

/* Does @q pass? @layer is what a connection shows. EVENT_NAME: the name, and to an
 * address none; EVENT_ADDRESS: bytes that are neither TLS nor HTTP; EVENT_DNS: whatever
 * it is. */
static bool passes(const struct plan *p, const struct query *q, enum event_layer layer,
		   uint8_t protocol)
{
	struct event e = event_make(EVENT_ALLOW, layer);

	e.protocol = protocol;
	e.port = q->port;
	e.query_type = DNS_TYPE_A;
	if (q->is_addr)
		e.remote = q->addr;
	else
		dns_name_format(&q->name, e.name);
	return !policy_refuses(p, &e);
}

/* Of an address with a port, by the rule that decides this port. */
static struct plan_verdict verdict_of(const struct plan *p, const struct query *q,
				      const struct answer *a)
{
	const size_t by = a->open[1] && !a->open[0];
	struct plan_verdict v =
		q->is_addr ? plan_match_addr(p, &q->addr, protocols[by].number, q->port)
			   : plan_match_query(p, &q->name);

	/* A name that asks waits at an address of its own, on the rule's ports. */
	if (v.action == POLICY_ASK && !q->is_addr &&
	    (!a->may_stand ||
	     (q->port != 0 && !plan_port_list_has(p, v.port_list, IPPROTO_TCP, q->port) &&
	      !plan_port_list_has(p, v.port_list, IPPROTO_UDP, q->port))))
		v.action = POLICY_DENY;
	/* The default allows, but no address of this kind. */
	if (v.action == POLICY_ALLOW && q->is_addr && !a->open[0] && !a->open[1])
		v.action = POLICY_DENY;
	return v;
}

static struct answer ask_plan(const struct plan *p, const struct query *q)
{
	const enum event_layer any = q->is_addr || q->port == 0 ? EVENT_DNS : EVENT_NAME;
	struct answer a = { 0 };

	if (!q->is_addr && dns_name_is_localhost(&q->name))
		return (struct answer){ .verdict = { .action = POLICY_ALLOW,
						     .rule = PLAN_NO_RULE },
					.open = { true, true },
					.is_local = true };
	a.may_stand = !q->is_addr && sinkhole_may_stand(p, &q->name);
	for (size_t i = 0; i < PROTOCOL_COUNT; i++)
		a.open[i] = passes(p, q, any, protocols[i].number);
	a.verdict = verdict_of(p, q, &a);
	a.needs_name = a.open[0] && q->is_addr && !passes(p, q, EVENT_NAME, IPPROTO_TCP);
	/* Of an open TCP port: connections that show no name are reset there. */
	a.limited = a.open[0] && q->port != 0 &&
		    !passes(p, q, EVENT_ADDRESS, IPPROTO_TCP);
	/* What the URL asks for would be reset. */
	if ((q->shows == SHOWS_BYTES && a.limited) ||
	    (q->shows == SHOWS_HOST && a.needs_name))
		a.open[0] = a.open[1] = false;
	/* Who names port 80 or 443, or a URL of TLS or HTTP, asks for nothing else. */
	if (q->shows == SHOWS_HOST ||
	    (q->shows == SHOWS_ANYTHING && (q->port == 80 || q->port == 443)))
		a.limited = false;
	return a;
}

static const char *answer_action(const struct answer *a)
{
	return a->open[0] || a->open[1]		 ? "allow"
	       : a->verdict.action == POLICY_ASK ? "ask"
						 : "deny";
}

/* What a connection has to show so that it may use the ports. */
static const char *wire_text(const struct plan *p, const struct plan_verdict *v)
{
	if (plan_verify(p) == POLICY_VERIFY_DNS)
		return "connections need not show the name (verify: dns)";
	if (v->flags & PLAN_RAW)
		return "connections show the name in TLS or HTTP; other protocols pass "
		       "too (raw)";
	if (v->flags & PLAN_PORTS_LISTED)
		return "connections show the name in TLS or HTTP; on ports that are "
		       "none of the web's, other protocols pass too";
	return "connections show the name in TLS or HTTP";
}

/* What a reader would not expect of "allow". NULL: nothing. */
static const char *note_of(const struct query *q, const struct answer *a)
{
	if (a->is_local || (q->is_addr && addr_special(&q->addr) == SPECIAL_LOOPBACK))
		return "in a sandbox with a network of its own, as that of weir run, "
		       "this is the sandbox's own loopback, which is always open; the "
		       "host's is not reached";
	if (a->verdict.action != POLICY_ALLOW)
		return NULL;
	if (a->needs_name)
		return "TLS and HTTP that show no name, or this address, are refused: "
		       "no rule is about it";
	if (a->verdict.flags & PLAN_COMPLETED)
		return "a name without a dot comes to one of this rule by a search "
		       "domain of "
		       "/etc/resolv.conf";
	if (!q->is_addr && q->name.labels == 1)
		return "programs in weir run ask for it below the search domains of "
		       "/etc/resolv.conf: weir policy show lists what it comes to";
	if (!a->limited)
		return NULL;
	if (plan_is_web_port(q->port))
		return "TLS and HTTP alone pass on this port of the web; to open it to "
		       "others, such as ssh, list the port in a rule with raw: true";
	return "TLS and HTTP alone pass on this port, for they show the name; to open it "
	       "to others, such as ssh, list the port in the rule";
}

static void print_name(const struct plan *p, const struct query *q,
		       const struct answer *a, FILE *out)
{
	char ports[256], name[DNS_NAME_TEXT_SIZE];

	if (!text_equal(q->name_text, dns_name_format(&q->name, name)))
		fprintf(out, "  name: %s\n", name);
	if (a->is_local) {
		fputs("  answer: 127.0.0.1 or ::1, whatever the rules say\n", out);
		return;
	}
	if (a->verdict.action == POLICY_ASK) {
		fprintf(out, "  ports: %s\n",
			policy_explain_ports(p, a->verdict.port_list, ports,
					     sizeof(ports)));
		fputs("  answer: waits until it is granted, and no name server is asked "
		      "before that\n",
		      out);
		return;
	}
	if (a->verdict.action == POLICY_DENY) {
		fputs(plan_denied_names(p) == POLICY_DENIED_REFUSE && a->may_stand
			      ? "  answer: an address where connections are refused, and "
				"no name server is asked\n"
			      : "  answer: NXDOMAIN, and no name server is asked\n",
		      out);
		return;
	}
	fprintf(out, "  ports: %s%s\n",
		policy_explain_ports(p, a->verdict.port_list, ports, sizeof(ports)),
		a->open[0] || a->open[1] || a->limited ? ""
						       : "; this one is not among them");
	fprintf(out, "  wire: %s\n", wire_text(p, &a->verdict));
	fputs("  types: A, AAAA", out);
	for (size_t i = 0; i < RULE_TYPE_COUNT; i++)
		if (a->verdict.types & 1 << i)
			fprintf(out, ", %s", rule_type_words[i]);
	fputc('\n', out);
	fputs(a->verdict.flags & PLAN_PRIVATE
		      ? "  addresses: ordinary and special ones; cloud metadata only if "
			"a "
			"rule names it\n"
		      : "  addresses: ordinary ones; private, loopback and other special "
			"ones only if an address rule allows them, on its ports\n",
	      out);
}

static void print_addr(const struct plan *p, const struct query *q,
		       const struct answer *a, FILE *out)
{
	const char *names = "none opens it; a rule has to name this very address";
	enum addr_special kind = addr_special(&q->addr);
	char ports[256];

	/* What rebinding_fault() lets a name teach. */
	if (plan_leads_to(0, kind))
		names = "it is open while an allowed name resolves to it";
	else if (plan_leads_to(PLAN_PRIVATE, kind) && kind != SPECIAL_UNSPECIFIED &&
		 kind != SPECIAL_MULTICAST && kind != SPECIAL_BROADCAST)
		names = "it is open while a name whose rule says private: true resolves "
			"to it";
	if (kind != SPECIAL_NOT)
		fprintf(out, "  address: %s\n", addr_special_name(kind));
	if (a->verdict.action == POLICY_ALLOW)
		fprintf(out, "  ports: %s\n",
			policy_explain_ports(p, a->verdict.port_list, ports,
					     sizeof(ports)));
	else if (a->verdict.rule == PLAN_NO_RULE)
		fprintf(out, "  names: %s\n", names);
	if (a->verdict.action == POLICY_ASK)
		fputs("  ask: the packet is refused; one that comes after the grant "
		      "passes\n",
		      out);
}

static void print_text(const struct plan *p, const struct query *q,
		       const struct answer *a, FILE *out)
{
	const struct plan_on_denies denies = plan_on_denies(p);
	const char *note = note_of(q, a);
	char rule[POLICY_EXPLAIN_SIZE];
	char counted[POLICY_ON_DENIES_SIZE], advice[EVENT_ADVICE_SIZE];

	fprintf(out, "%s: %s", SHOWN(q->text), answer_action(a));
	if (q->port != 0 && a->open[0] != a->open[1])
		fprintf(out, " (%s only)", protocols[a->open[0] ? 0 : 1].name);
	else if (a->limited && a->open[0])
		fputs(" (over TCP to TLS and HTTP only)", out);
	fputc('\n', out);
	if (a->verdict.rule == PLAN_NO_RULE && !a->is_local)
		fprintf(out, "  rule: no rule matches; the default is %s\n",
			policy_action_name(plan_default_action(p)));
	else if (!a->is_local)
		fprintf(out, "  rule: %s\n",
			policy_explain_rule(p, a->verdict.rule, rule, sizeof(rule)));
	if (q->is_addr)
		print_addr(p, q, a, out);
	else
		print_name(p, q, a, out);
	if (note)
		fprintf(out, "  note: %s\n", note);
	if (advise(p, q, a, advice)[0])
		fprintf(out, "  to open it: --allow %s\n", advice);
	if (denies.count > 0 && !a->open[0] && !a->open[1])
		fprintf(out, "  on_denies: it counts: %s\n",
			policy_on_denies_text(&denies, counted));
}

static json_t *answer_json(const struct plan *p, const struct query *q,
			   const struct answer *a)
{
	const struct plan_rule r = plan_rule(p, a->verdict.rule);
	char ports[256], advice[EVENT_ADVICE_SIZE];
	json_t *open = json_array(), *rule = json_null();

	if (a->verdict.rule != PLAN_NO_RULE)
		rule = json_pack("{s:s, s:s, s:s, s:i, s:i, s:s}", "action",
				 policy_action_name(r.action), "target", r.target, "file",
				 r.file, "line", (int)r.line, "column", (int)r.column,
				 "comment", r.comment);
	for (size_t i = 0; open && i < PROTOCOL_COUNT; i++) {
		if (a->open[i])
			json_array_append_new(open, json_string(protocols[i].name));
	}
	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:s?, s:s?}", "query", q->text,
			 "kind", q->is_addr ? "address" : "name", "action",
			 answer_action(a), "protocols", open, "rule", rule, "ports",
			 a->verdict.action == POLICY_ALLOW && !a->is_local
				 ? policy_explain_ports(p, a->verdict.port_list, ports,
							sizeof(ports))
				 : "",
			 "note", note_of(q, a), "allow",
			 advise(p, q, a, advice)[0] ? advice : NULL);
}

json_t *policy_explain_json(const struct plan *plan, const char *text, struct err *err)
{
	struct query q;
	struct answer a;
	char *lines = NULL;
	size_t size = 0;
	FILE *out;
	json_t *j;

	if (query_parse(text, &q, err) < 0)
		return NULL;
	out = open_memstream(&lines, &size);
	if (!out) {
		err_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	a = ask_plan(plan, &q);
	print_text(plan, &q, &a, out);
	j = fclose(out) == 0 ? answer_json(plan, &q, &a) : NULL;
	if (!j || json_object_set_new(j, "text", json_string(lines)) < 0) {
		json_decref(j);
		j = NULL;
		err_set(err, -ENOMEM, "out of memory");
	}
	free(lines);
	return j;
}

int cli_policy_explain(const struct plan *plan, char *const *texts, size_t count,
		       bool json, FILE *out, struct err *err)
{
	CLEAN(mem) struct query *queries = calloc(count, sizeof(*queries));
	bool bad = false;
	json_t *all;
	int r;

	if (!queries)
		return err_set(err, -ENOMEM, "out of memory");
	/* Every fault is reported, the last one by the caller. */
	for (size_t i = 0; i < count; i++) {
		struct err fault = { 0 };

		if (query_parse(texts[i], &queries[i], &fault) == 0)
			continue;
		if (bad)
			log_error("%s", err->text);
		*err = fault;
		bad = true;
	}
	if (bad)
		return -EINVAL;
	all = json ? json_array() : NULL;
	r = json && !all ? -ENOMEM : 0;
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct answer a = ask_plan(plan, &queries[i]);

		if (!json)
			print_text(plan, &queries[i], &a, out);
		else if (json_array_append_new(all, answer_json(plan, &queries[i], &a)) <
			 0)
			r = -ENOMEM;
	}
	if (json && r == 0)
		r = print_json(all, 0, out);
	else
		json_decref(all);
	return r < 0 ? err_set(err, -EIO, "cannot print the answer as JSON") : 0;
}
