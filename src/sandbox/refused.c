// SPDX-License-Identifier: Apache-2.0
#include "sandbox/refused.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "filter/ruleset.h"
#include "sandbox/accounts.h"
#include "sandbox/learned.h"

enum { DNS_PORT = 53 };

static void set_reason(struct event *e, const char *reason)
{
	snprintf(e->reason, sizeof(e->reason), "%s", reason);
}

/* The policy allows it, and yet there is no way. */
static const char *no_way_out(const struct sandbox *s, uint8_t protocol, uint16_t port)
{
	bool not_ours = s->shared || s->host; /* it has a way out of its own */

	if (not_ours && protocol != IPPROTO_UDP && protocol != IPPROTO_TCP)
		return "this protocol has no way out";
	if (not_ours && port == DNS_PORT)
		return "name servers are asked by Weir alone";
	if (not_ours)
		return "its time was over, or the packet is not of an open connection";
	if (!s->relay)
		return "--uplink none carries nothing";
	if (protocol != IPPROTO_UDP)
		return "this protocol has no way out";
	if (!s->direct_udp)
		return "UDP needs --uplink slirp4netns (or pasta)";
	return "an address of this machine, or the uplink has ended";
}

/* The address goes by a name that is allowed, but not on this port or not by this way. */
static bool explain_by_name(const struct sandbox *s, struct event *e, int64_t now_ms)
{
	char text[DNS_NAME_TEXT_SIZE];
	struct learned_use use;
	bool is_listed;

	if (learned_find(s->learned, &e->remote, now_ms, &use, 1) == 0)
		return false;
	snprintf(e->name, sizeof(e->name), "%s", dns_name_format(&use.name, text));
	e->rule = use.rule;
	is_listed = plan_port_list_has(&s->plan, use.port_list, e->protocol, e->port);
	/* Another rule would open no way. */
	e->allowable = e->allowable && !is_listed;
	set_reason(e, is_listed ? no_way_out(s, e->protocol, e->port)
				: "the rule does not list this port");
	return true;
}

static void explain(const struct sandbox *s, struct event *e, int64_t now_ms)
{
	struct plan_verdict v =
		plan_match_addr(&s->plan, &e->remote, e->protocol, e->port);
	enum addr_special special = addr_special(&e->remote);

	e->rule = v.rule;
	/* Nobody is led to open the host's own or a metadata service by accident. */
	e->allowable = v.action == POLICY_DENY && v.rule == PLAN_NO_RULE &&
		       (special == SPECIAL_NOT || special == SPECIAL_PRIVATE);
	if (v.action == POLICY_ALLOW) {
		set_reason(e, no_way_out(s, e->protocol, e->port));
	} else if (v.rule != PLAN_NO_RULE) {
		set_reason(e, "denied by a rule");
	} else if (explain_by_name(s, e, now_ms)) {
		return;
	} else if (plan_names_addr(&s->plan, &e->remote)) {
		set_reason(e, "the rule does not list this port");
	} else if (special > SPECIAL_NOT) {
		set_reason(e, addr_special_name(special));
	} else {
		set_reason(e, "no rule allows it");
	}
}

void refused_packet(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms)
{
	struct event e = {
		.action = EVENT_DENY,
		.layer = EVENT_ADDRESS,
		.protocol = p->protocol,
		.remote = p->destination,
		.port = p->destination_port,
		.packets = 1,
		.bytes = p->length,
		.uid = p->uid,
		.from = { p->source, p->source_port },
		.to = { p->destination, p->destination_port },
	};

	s->counters[COUNT_PACKETS_DENIED]++;
	if (strcmp(p->prefix, FILTER_PREFIX_IMITATES) == 0) {
		e.rule = PLAN_NO_RULE;
		set_reason(&e, "imitates Weir's own packets");
	} else {
		explain(s, &e, now_ms);
		accounts_logged(s, p, now_ms);
	}
	sandbox_event(s, &e, now_ms);
}

static struct event event_of(const struct filter_count *c, enum event_action action)
{
	return (struct event){
		.action = (uint8_t)action,
		.layer = EVENT_ADDRESS,
		.protocol = c->protocol,
		.remote = c->addr,
		.port = c->port,
		.packets = c->packets,
		.bytes = c->bytes,
		.uid = UINT32_MAX,
	};
}

void refused_count(struct sandbox *s, const struct filter_count *c, uint32_t uid,
		   int64_t now_ms)
{
	struct event e = event_of(c, EVENT_DENY);

	e.uid = uid;
	s->counters[COUNT_PACKETS_DENIED] += c->packets;
	explain(s, &e, now_ms);
	sandbox_event(s, &e, now_ms);
}

void passed_count(struct sandbox *s, const struct filter_count *c, int64_t now_ms)
{
	struct event e = event_of(c, EVENT_ALLOW);
	char text[DNS_NAME_TEXT_SIZE];
	struct learned_use use;

	e.rule = plan_match_addr(&s->plan, &e.remote, e.protocol, e.port).rule;
	if (learned_find(s->learned, &e.remote, now_ms, &use, 1) > 0) {
		snprintf(e.name, sizeof(e.name), "%s", dns_name_format(&use.name, text));
		e.rule = e.rule == PLAN_NO_RULE ? use.rule : e.rule;
	}
	sandbox_passed(s, &e, now_ms);
}
