// SPDX-License-Identifier: Apache-2.0
#include "events/ocsf.h"

#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>

#include "dns/message.h"
#include "event/json.h"
#include "events/jsonl.h"

/* The numbers of the schema that Weir has a use for. */
enum {
	CATEGORY_NETWORK = 4,
	CLASS_NETWORK = 4001,
	CLASS_DNS = 4003,

	NETWORK_FAIL = 4,
	NETWORK_REFUSE = 5,
	NETWORK_TRAFFIC = 6,
	DNS_QUERY = 1,
	ACTIVITY_OTHER = 99,

	ACTION_ALLOWED = 1, /* dispositions 1 and 2 say the same */
	ACTION_DENIED = 2,

	QUERY_TYPE_SIZE = 16, /* the text of a query's type */

	SEVERITY_INFORMATIONAL = 1,
	SEVERITY_LOW = 2,
	SEVERITY_MEDIUM = 3,
	SEVERITY_HIGH = 4,

	STATUS_SUCCESS = 1,
	STATUS_FAILURE = 2,

	OUTBOUND = 2,
	DNS_PORT = 53,
};

/* What the classes make of an action. */
static const struct outcome {
	uint8_t severity, status;
	uint8_t action; /* 0: no decision about traffic */
	uint8_t network, dns;
	const char *verb;
} outcomes[EVENT_ACTION_COUNT] = {
	[EVENT_NONE] = { SEVERITY_INFORMATIONAL, 0, 0, 0, 0, "unknown" },
	[EVENT_ALLOW] = { SEVERITY_INFORMATIONAL, STATUS_SUCCESS, ACTION_ALLOWED,
			  NETWORK_TRAFFIC, DNS_QUERY, "allowed" },
	[EVENT_DENY] = { SEVERITY_LOW, STATUS_FAILURE, ACTION_DENIED, NETWORK_REFUSE,
			 DNS_QUERY, "denied" },
	[EVENT_PANIC] = { SEVERITY_HIGH, STATUS_FAILURE, 0, 0, 0, "ended for safety" },
	[EVENT_CHANGE] = { SEVERITY_INFORMATIONAL, STATUS_SUCCESS, 0, 0, 0, "changed" },
	[EVENT_LIMIT] = { SEVERITY_MEDIUM, STATUS_FAILURE, ACTION_DENIED, NETWORK_REFUSE,
			  DNS_QUERY, "limited" },
	[EVENT_FAIL] = { SEVERITY_INFORMATIONAL, STATUS_FAILURE, ACTION_ALLOWED,
			 NETWORK_FAIL, DNS_QUERY, "failed" },
	[EVENT_ASK] = { SEVERITY_LOW, STATUS_FAILURE, ACTION_DENIED, NETWORK_REFUSE,
			DNS_QUERY, "asked for" },
};

static const struct outcome *outcome_of(const struct event *e)
{
	return &outcomes[e->action < EVENT_ACTION_COUNT ? e->action : EVENT_NONE];
}

/* Without text there is no key. */
static void text(struct jtext *j, const char *key, const char *value)
{
	if (value[0])
		jtext_member(j, key, value);
}

static void put_class(struct jtext *j, const struct event *e)
{
	static const char *const network_names[] = { [NETWORK_FAIL] = "Fail",
						     [NETWORK_REFUSE] = "Refuse",
						     [NETWORK_TRAFFIC] = "Traffic" };
	const struct outcome *o = outcome_of(e);
	const int class = o->action == 0	  ? 0
			  : e->layer == EVENT_DNS ? CLASS_DNS
						  : CLASS_NETWORK;
	const int activity = class == 0		  ? ACTIVITY_OTHER
			     : class == CLASS_DNS ? o->dns
						  : o->network;
	const char *name = "Query";

	if (class == 0)
		name = event_action_name((enum event_action)e->action);
	else if (class == CLASS_NETWORK)
		name = network_names[activity] ?: "";
	jtext_count(j, "category_uid", class == 0 ? 0 : CATEGORY_NETWORK);
	jtext_count(j, "class_uid", class);
	jtext_count(j, "activity_id", activity);
	text(j, "activity_name", name);
	jtext_count(j, "type_uid", (int64_t) class * 100 + activity);
	jtext_count(j, "severity_id", o->severity);
	jtext_count(j, "status_id", o->status);
	text(j, "status_detail", e->reason);
	jtext_count(j, "time", e->ts_ms);
	jtext_count(j, "count", e->packets);
}

static void put_decision(struct jtext *j, const struct event_row *row)
{
	const struct outcome *o = outcome_of(&row->event);
	char place[ROW_FILE_SIZE + 16];

	if (o->action == 0)
		return;
	jtext_count(j, "action_id", o->action);
	text(j, "action", o->action == ACTION_ALLOWED ? "Allowed" : "Denied");
	jtext_count(j, "disposition_id", o->action);
	text(j, "disposition", o->action == ACTION_ALLOWED ? "Allowed" : "Blocked");
	if (!row->rule[0])
		return;
	jtext_open(j, "firewall_rule", '{');
	text(j, "name", row->rule);
	snprintf(place, sizeof(place), "%s:%u", row->rule_file, row->rule_line);
	text(j, "uid", row->rule_file[0] ? place : "");
	jtext_close(j, '}');
}

/* "AAAA", or as RFC 3597 writes a type without a name. @buf holds QUERY_TYPE_SIZE. */
static const char *query_type_name(uint16_t type, char *buf)
{
	static const struct {
		uint16_t type;
		const char *name;
	} names[] = {
		{ DNS_TYPE_A, "A" },	     { DNS_TYPE_AAAA, "AAAA" },
		{ DNS_TYPE_NS, "NS" },	     { DNS_TYPE_CNAME, "CNAME" },
		{ DNS_TYPE_SOA, "SOA" },     { DNS_TYPE_PTR, "PTR" },
		{ DNS_TYPE_MX, "MX" },	     { DNS_TYPE_TXT, "TXT" },
		{ DNS_TYPE_SRV, "SRV" },     { DNS_TYPE_SVCB, "SVCB" },
		{ DNS_TYPE_HTTPS, "HTTPS" }, { DNS_TYPE_ANY, "ANY" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (names[i].type == type)
			return names[i].name;
	buf[0] = '\0';
	if (type > 0)
		snprintf(buf, QUERY_TYPE_SIZE, "TYPE%u", type);
	return buf;
}

/* Lookups end at Weir, which answers them. */
static void put_lookup(struct jtext *j, const struct event *e)
{
	char type[QUERY_TYPE_SIZE];

	/* A query has a name; of a limit that was reached it may not be known. */
	if (e->name[0]) {
		jtext_open(j, "query", '{');
		text(j, "hostname", e->name);
		text(j, "type", query_type_name(e->query_type, type));
		jtext_close(j, '}');
	}
	jtext_open(j, "dst_endpoint", '{');
	text(j, "name", "weir");
	text(j, "svc_name", "dns");
	jtext_count(j, "port", DNS_PORT);
	jtext_close(j, '}');
}

static void put_connection(struct jtext *j, const struct event *e)
{
	const int version = e->remote.family == ADDR_V6 ? 6 : 4;
	char protocol[8];

	jtext_open(j, "connection_info", '{');
	jtext_count(j, "direction_id", OUTBOUND);
	text(j, "direction", "Outbound");
	if (e->protocol > 0) {
		jtext_count(j, "protocol_num", e->protocol);
		text(j, "protocol_name", event_protocol_name(e->protocol, protocol));
	}
	if (e->remote.family != ADDR_NONE)
		jtext_count(j, "protocol_ver_id", version);
	jtext_close(j, '}');
	if (e->remote.family != ADDR_NONE || e->name[0]) {
		jtext_open(j, "dst_endpoint", '{');
		if (e->remote.family != ADDR_NONE)
			text(j, "ip", ADDR_SHOWN(&e->remote));
		text(j, "hostname", e->name);
		if (e->port > 0)
			jtext_count(j, "port", e->port);
		jtext_close(j, '}');
	}
	if (e->bytes > 0) {
		jtext_open(j, "traffic", '{');
		jtext_count(j, "bytes_out", e->bytes);
		jtext_close(j, '}');
	}
}

static void put_sender(struct jtext *j, const struct event_row *row)
{
	char uid[16] = "";

	jtext_open(j, "src_endpoint", '{');
	text(j, "name", row->sandbox[0] ? row->sandbox : "sandbox");
	text(j, "uid", row->sandbox);
	jtext_close(j, '}');
	if (row->event.uid != UINT32_MAX)
		snprintf(uid, sizeof(uid), "%u", row->event.uid);
	if (row->event.pid == 0 && !row->event.command[0] && !uid[0])
		return;
	jtext_open(j, "actor", '{');
	if (row->event.pid > 0 || row->event.command[0]) {
		jtext_open(j, "process", '{');
		if (row->event.pid > 0)
			jtext_count(j, "pid", row->event.pid);
		text(j, "name", row->event.command);
		jtext_close(j, '}');
	}
	if (uid[0]) {
		jtext_open(j, "user", '{');
		text(j, "uid", uid);
		jtext_close(j, '}');
	}
	jtext_close(j, '}');
}

size_t event_ocsf(const struct event_row *row, char *buf)
{
	const struct event *e = &row->event;
	struct jtext j;
	char what[REPORT_WHAT_SIZE], message[REPORT_WHAT_SIZE + EVENT_REASON_SIZE + 32];

	jtext_init(&j, buf, EVENT_OCSF_SIZE - 1);
	jtext_open(&j, NULL, '{');
	put_class(&j, e);
	snprintf(message, sizeof(message), "%s: %s%s%s", outcome_of(e)->verb,
		 report_what(e, what), e->reason[0] ? ": " : "", e->reason);
	text(&j, "message", message);
	jtext_open(&j, "metadata", '{');
	text(&j, "version", "1.3.0");
	jtext_open(&j, "product", '{');
	text(&j, "name", "Weir");
	text(&j, "vendor_name", "Weir");
	text(&j, "version", WEIR_VERSION);
	jtext_close(&j, '}');
	jtext_raw(&j, "profiles", "[\"host\",\"security_control\"]");
	jtext_close(&j, '}');
	put_decision(&j, row);
	if (outcome_of(e)->action != 0) {
		if (e->layer == EVENT_DNS)
			put_lookup(&j, e);
		else
			put_connection(&j, e);
		put_sender(&j, row);
	}
	/* What the schema has no place for. */
	jtext_open(&j, "unmapped", '{');
	text(&j, "sandbox", row->sandbox);
	text(&j, "action", event_action_name((enum event_action)e->action));
	text(&j, "layer", event_layer_name((enum event_layer)e->layer));
	text(&j, "limit", report_limit(e));
	jtext_close(&j, '}');
	jtext_close(&j, '}');
	assert(!j.full);
	buf[j.used] = '\0';
	return j.used;
}
