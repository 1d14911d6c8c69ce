// SPDX-License-Identifier: Apache-2.0
/* /metrics: what /status says, in Prometheus' text format, version 0.0.4. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "api/internal.h"
#include "event/traffic.h"

enum { LABELS_SIZE = 4096, LABEL_NAME_SIZE = 64 };

struct metrics {
	FILE *out;
	char labels[LABELS_SIZE]; /* "a=\"b\",c=\"d\"", or "" */
	size_t used;
};

/* ---- labels ---- */

static size_t escape_value(struct text value, char *ret, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; i < value.len && used + 2 < size; i++) {
		const char c = value.ptr[i];

		if (c == '\\' || c == '"' || c == '\n')
			ret[used++] = '\\';
		ret[used++] = c == '\n' ? 'n' : c;
		if ((unsigned char)ret[used - 1] < ' ' || (c & 0x80))
			ret[used - 1] = '?';
	}
	ret[used] = '\0';
	return used;
}

/* Labels that samples have themselves. */
static const char *const labels_of_samples[] = { "version", "mode", "what", "code",
						 "destination" };

/* Name and value as the format has them; what doesn't fit is left out whole. */
static void add_label(struct metrics *m, struct text key, struct text value)
{
	char name[LABEL_NAME_SIZE], begin[LABEL_NAME_SIZE + 4], escaped[512];
	size_t room = sizeof(m->labels) - m->used;
	int n;

	if (key.len == 0 || key.len >= LABEL_NAME_SIZE)
		return;
	for (size_t i = 0; i < key.len; i++) {
		const unsigned char c = (unsigned char)key.ptr[i];

		name[i] = c < 0x80 && isalnum(c) ? (char)c : '_';
	}
	name[key.len] = '\0';
	if (isdigit((unsigned char)name[0]))
		name[0] = '_';
	snprintf(begin, sizeof(begin), ",%s=\"", name);
	/* The prefix "__" is Prometheus' own; a label stands once. */
	if (strncmp(name, "__", 2) == 0 || TEXT_FIND(text_of(name), labels_of_samples) ||
	    strstr(m->labels, begin) ||
	    strncmp(m->labels, begin + 1, strlen(begin + 1)) == 0)
		return;
	escape_value(value, escaped, sizeof(escaped));
	n = snprintf(m->labels + m->used, room, "%s%s=\"%s\"", m->used > 0 ? "," : "",
		     name, escaped);
	if (n < 0 || (size_t)n >= room)
		m->labels[m->used] = '\0';
	else
		m->used += (size_t)n;
}

/* ---- samples ---- */

static void head(struct metrics *m, const char *name, const char *type, const char *help)
{
	fprintf(m->out, "# HELP weir_%s %s\n# TYPE weir_%s %s\n", name, help, name, type);
}

/* @extra: another label, "key=\"value\"", or NULL. */
static void sample(struct metrics *m, const char *name, const char *extra, uint64_t value)
{
	const bool both = extra && m->used > 0;

	fprintf(m->out, "weir_%s", name);
	if (extra || m->used > 0)
		fprintf(m->out, "{%s%s%s}", m->labels, both ? "," : "",
			extra ? extra : "");
	fprintf(m->out, " %" PRIu64 "\n", value);
}

/* Samples that have no label of their own. */
static void write_values(struct metrics *m, const char *type,
			 const struct api_counter *values, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		head(m, values[i].name, type, values[i].help);
		sample(m, values[i].name, NULL, values[i].value);
	}
}

static void write_gauges(struct metrics *m, const struct api_status *s)
{
	const struct api_counter gauges[] = {
		{ "full_isolation", "1 while the whole filter stands.",
		  s->full_isolation },
		{ "generation", "Generation of the policy in the kernel.",
		  s->generation },
		{ "rules", "Rules in force, always-rules among them.", s->rule_count },
		{ "learned_names", "Names whose addresses are open now.",
		  s->learned_names },
		{ "learned_addresses", "Learned addresses that are open now.",
		  s->learned_addresses },
		{ "postgres_waiting_rows", "Rows in the store that are to be copied.",
		  s->postgres_waiting },
	};

	/* The last one only with PostgreSQL. */
	write_values(m, "gauge", gauges,
		     s->has_postgres ? ARRAY_SIZE(gauges) : ARRAY_SIZE(gauges) - 1);
}

static void write_counters(struct metrics *m, const struct api_status *s)
{
	const struct api_counter own[] = {
		{ "engine_restarts_total", "Engines that had to be replaced.",
		  s->engine_restarts },
		{ "policy_updates_total", "Policies put in force.", s->policy_updates },
		{ "policy_failures_total", "Policies that were refused or failed.",
		  s->policy_failures },
		{ "webhook_sent_total", "Denied names sent to webhooks.",
		  s->webhook_sent },
		{ "webhook_dropped_total", "Denied names that webhooks never got.",
		  s->webhook_dropped },
		{ "log_dropped_total", "Log lines that were not written.",
		  s->log_dropped },
		{ "store_lost_rows_total", "Rows of events that could not be stored.",
		  s->store_lost_rows },
		{ "store_lost_packets_total",
		  "Packets and lookups of events that could not be stored.",
		  s->store_lost_packets },
	};
	const struct api_counter postgres[] = {
		{ "postgres_missed_rows_total",
		  "Rows that were let go before they could be copied.",
		  s->postgres_missed },
		{ "postgres_refused_rows_total", "Rows that PostgreSQL would not take.",
		  s->postgres_refused },
	};

	for (size_t i = 0; i < s->counter_count; i++) {
		struct api_counter of_sandbox = s->counters[i];
		char name[128];

		snprintf(name, sizeof(name), "%s_total", of_sandbox.name);
		of_sandbox.name = name;
		write_values(m, "counter", &of_sandbox, 1);
	}
	write_values(m, "counter", own, ARRAY_SIZE(own));
	if (s->has_postgres)
		write_values(m, "counter", postgres, ARRAY_SIZE(postgres));
}

/* No name has brackets. */
#define OTHERS "(other)"

static void write_destination(struct metrics *m, const char *name,
			      const struct traffic_row *row, uint64_t bytes)
{
	char label[EVENT_NAME_SIZE * 2 + 16], value[EVENT_NAME_SIZE * 2];

	escape_value(text_of(row->destination ?: OTHERS), value, sizeof(value));
	snprintf(label, sizeof(label), "destination=\"%s\"", value);
	sample(m, name, label, bytes);
}

/* event/traffic.h says how many there can be. */
static void write_traffic(struct metrics *m, const struct traffic *t)
{
	static const char sent[] = "destination_sent_bytes_total";
	static const char received[] = "destination_received_bytes_total";
	const struct traffic_row others = t ? traffic_others(t)
					    : (struct traffic_row){ 0 };
	struct traffic_row row;

	head(m, sent, "counter", "Bytes sent to a destination.");
	for (size_t i = 0; t && traffic_row(t, i, &row); i++)
		write_destination(m, sent, &row, row.sent);
	write_destination(m, sent, &others, others.sent);
	head(m, received, "counter", "Bytes received from a destination.");
	for (size_t i = 0; t && traffic_row(t, i, &row); i++)
		write_destination(m, received, &row, row.received);
	write_destination(m, received, &others, others.received);
}

static void write_modes(struct metrics *m, const struct api_status *s)
{
	char label[64];

	head(m, "mode", "gauge", "1 for the mode that is enforced.");
	for (int i = 0; i < API_MODE_COUNT; i++) {
		snprintf(label, sizeof(label), "mode=\"%s\"",
			 api_mode_name((enum api_mode)i));
		sample(m, "mode", label, (int)s->mode == i);
	}
	head(m, "degraded", "gauge", "1 for each thing that is weaker than it could be.");
	for (size_t i = 0; i < MIN(s->degradation_count, (size_t)API_DEGRADATIONS_MAX);
	     i++) {
		char what[48];

		escape_value(text_of(s->degradations[i].what), what, sizeof(what));
		snprintf(label, sizeof(label), "what=\"%s\"", what);
		sample(m, "degraded", label, 1);
	}
}

static void write_api(struct metrics *m, struct api *a)
{
	const struct api_http *h = http_of(a);
	const struct api_counter counters[] = {
		{ "api_unauthorized_total", "Requests without the token.",
		  a->counts.unauthorized },
		{ "api_forbidden_total",
		  "Requests for what is refused to everybody here.",
		  a->counts.forbidden },
		{ "api_evicted_total", "Silent connections that made room for others.",
		  h->conns.evicted },
		{ "api_timed_out_total", "Requests that took too long.",
		  h->conns.timed_out },
		{ "api_streams_dropped_total", "Readers of /events that were too slow.",
		  a->counts.streams_dropped },
	};
	const struct api_counter gauges[] = {
		{ "api_connections", "Connections to the HTTP API.", h->conns.count },
		{ "api_streams", "Readers of /events.", streams_count(h) },
	};
	char label[32];

	head(m, "api_answers_total", "counter", "Answers of the HTTP API.");
	for (int i = 2; i <= 5; i++) {
		snprintf(label, sizeof(label), "code=\"%dxx\"", i);
		sample(m, "api_answers_total", label, a->counts.answers[i]);
	}
	write_values(m, "counter", counters, ARRAY_SIZE(counters));
	write_values(m, "gauge", gauges, ARRAY_SIZE(gauges));
}

void answer_metrics(struct api_request *r)
{
	const struct api_config *config = &r->api->config;
	struct metrics m = { 0 };
	struct api_status s = { 0 };
	struct reply_stream out;

	if (!reply_open(r, &out))
		return;
	r->ops->status(r->ops->data, &s);
	m.out = out.out;
	if (s.sandbox_id && s.sandbox_id[0])
		add_label(&m, text_of("sandbox_id"), text_of(s.sandbox_id));
	for (size_t i = 0; i < config->label_count; i++)
		add_label(&m, config->labels[i].key, config->labels[i].value);
	head(&m, "info", "gauge", "Which Weir this is.");
	sample(&m, "info", "version=\"" WEIR_VERSION "\"", 1);
	write_modes(&m, &s);
	head(&m, "closed", "gauge", "1 when on_denies has closed the sandbox.");
	sample(&m, "closed", NULL, document_closed(r->ops->policy(r->ops->data)) != NULL);
	write_gauges(&m, &s);
	write_counters(&m, &s);
	write_traffic(&m, s.traffic);
	write_api(&m, r->api);
	if (reply_end(r, &out))
		reply_taken(r, HTTP_OK, "text/plain; version=0.0.4; charset=utf-8",
			    out.body, out.size);
}
