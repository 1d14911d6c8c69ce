// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"
#include "proto/audit.h"

enum {
	STATS_FRESH_MS = 500,		/* asked for again after this time */
	POSTGRES_SILENT_MS = 60 * 1000, /* it speaks every ten seconds */
};

static enum api_mode mode_of(const struct control *s)
{
	switch (s->standing.enforced) {
	case ENFORCED_REDIRECT:
		return API_MODE_DNS;
	case ENFORCED_FILTER:
		return s->spec.mode == SIDECAR_MODE_DNS_NFT_TLS ? API_MODE_DNS_NFT_TLS
								: API_MODE_DNS_NFT;
	default:
		return API_MODE_DISABLED;
	}
}

static void add(const struct control *s, struct api_status *ret, const char *what,
		const char *reason)
{
	if (ret->degradation_count < API_DEGRADATIONS_MAX)
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = what, .reason = reason, .since_ms = s->since_ms
		};
}

static bool add_raw_sockets(const struct control *s, struct api_status *ret)
{
	struct ipc_look look = look_for_raw_sockets();

	if (look.packet)
		add(s, ret, "packet-sockets",
		    "the app has packet sockets open: with NET_RAW it can send past the "
		    "filter");
	if (look.raw)
		add(s, ret, "raw-sockets",
		    "the app has raw sockets open: it has NET_RAW");
	if (!look.known)
		add(s, ret, "unknown-sockets", CONTROL_SOCKETS_UNKNOWN);
	return look.packet || look.raw || !look.known;
}

static void add_jsonl(struct control *s, struct api_status *ret)
{
	jsonl_writer_state(s->jsonl, &s->jsonl_state);
	if (s->jsonl_state.trouble[0])
		add(s, ret, "jsonl", s->jsonl_state.trouble);
	ret->store_lost_rows += s->jsonl_state.lost_rows;
	ret->store_lost_packets += s->jsonl_state.lost_packets;
}

/* It says something every ten seconds, or is dead, or hangs. */
static void add_postgres(struct control *s, struct api_status *ret)
{
	struct postgres_state *p = &s->postgres;
	const char *reason = p->trouble;
	int64_t silent_ms;

	if (!s->spec.postgres || !s->spec.state_dir)
		return;
	if (postgres_state_read(s->spec.state_dir, p) < 0)
		*p = (struct postgres_state){ .told_ms = s->since_ms ?: clock_wall_ms() };
	silent_ms = clock_wall_ms() - p->told_ms;
	if (!reason[0] && silent_ms > POSTGRES_SILENT_MS)
		reason = "weir-postgres has said nothing for a minute: events wait in "
			 "the store";
	if (reason[0])
		add(s, ret, "postgres", reason);
	ret->has_postgres = true;
	ret->postgres_waiting = p->waiting;
	ret->postgres_missed = p->missed;
	ret->postgres_refused = p->refused;
}

void control_closed_status(const struct document *d, struct control_closing *c,
			   int64_t since_ms, struct api_status *ret)
{
	if (!document_closed(d) || ret->degradation_count == API_DEGRADATIONS_MAX)
		return;
	snprintf(c->shown, sizeof(c->shown), "the sandbox is closed: %.80s",
		 document_closed(d));
	ret->degradations[ret->degradation_count++] = (struct api_degradation){
		.what = "policy", .reason = c->shown, .since_ms = since_ms
	};
}

void control_store_status(struct control *s, struct api_status *ret)
{
	const char *log = loglines_lacks(s->log);

	add_postgres(s, ret);
	if (s->untrusted[0])
		add(s, ret, "store", s->untrusted);
	if (s->store) {
		sqlite_writer_state(s->store, &s->store_state);
		if (s->store_state.trouble[0])
			add(s, ret, "store", s->store_state.trouble);
		ret->store_lost_rows += s->store_state.lost_rows;
		ret->store_lost_packets += s->store_state.lost_packets;
	}
	if (s->jsonl)
		add_jsonl(s, ret);
	if (log) {
		snprintf(s->log_shown, sizeof(s->log_shown),
			 "the log '%.200s' can't be opened: its lines are lost", log);
		add(s, ret, "log", s->log_shown);
	}
}

static void add_degradations(struct control *s, struct api_status *ret)
{
	if (s->standing.weaker[0])
		add(s, ret, "filter", s->standing.weaker);
	if (!s->link->stands)
		add(s, ret, "engine",
		    "the engine is being started again; the rules stand");
	else if (!s->standing.nflog && s->standing.enforced == ENFORCED_FILTER)
		add(s, ret, "nflog", "refused packets are not reported");
	if (s->stats.snapshot_full)
		add(s, ret, "snapshot", CONTROL_SNAPSHOT_FULL);
	if (s->standing.lacking[0])
		add(s, ret, "confinement", s->standing.lacking);
	if (s->lacking[0])
		add(s, ret, "confinement", s->lacking);
	control_closed_status(s->document, &s->closing, s->since_ms, ret);
	control_store_status(s, ret);
	for (size_t i = 0; i < s->policy_note_count; i++)
		add(s, ret, "policy", s->policy_notes[i]);
	if (s->dns_inner)
		add(s, ret, "dns",
		    "127.0.0.11 asks on from inside this sandbox: name the servers "
		    "behind it (OPENSANDBOX_EGRESS_DNS_UPSTREAM)");
}

static void refresh_stats(struct control *s)
{
	const struct control_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS };
	int64_t now_ms = loop_now_ms(s->loop);
	struct ipc_message m;

	if (s->stats_at_ms != 0 && now_ms - s->stats_at_ms < STATS_FRESH_MS)
		return;
	s->stats_at_ms = now_ms;
	if (s->link->from_engine.fd >= 0 &&
	    control_ask_engine(s->link, &ask, -1, &answer, &m, NULL) == 0)
		s->stats = m.stats;
}

void control_status(void *data, struct api_status *ret)
{
	struct control *s = data;

	refresh_stats(s);
	ret->mode = mode_of(s);
	ret->enforcement_mode = sidecar_mode_name(s->spec.mode);
	ret->sandbox_id = s->spec.sandbox_id;
	ret->since_ms = s->since_ms;
	add_degradations(s, ret);
	/* What else is degraded (a store, a log) lets nothing out. */
	ret->full_isolation = !add_raw_sockets(s, ret) && s->link->stands &&
			      s->standing.enforced == ENFORCED_FILTER;
	ret->generation = s->standing.generation;
	ret->engine_restarts = s->standing.restarts;
	ret->learned_names = s->stats.names;
	ret->learned_addresses = s->stats.addresses;
	ret->rule_count = document_rule_count(s->document);
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		s->counters[i] = (struct api_counter){
			.name = sandbox_counter_name((enum sandbox_counter)i),
			.value = s->stats.counters[i],
		};
	ret->counters = s->counters;
	ret->counter_count = SANDBOX_COUNTER_COUNT;
	control_webhook_count(s, ret);
	ret->log_dropped = loglines_dropped(s->log);
	ret->policy_updates = s->updates;
	ret->policy_failures = s->failures;
}

bool control_healthy(void *data)
{
	const struct control *s = data;

	return s->many ? control_engines_stand(s) && control_sandboxes_are_known(s) &&
				 !control_lacking(s)[0]
		       : s->link->stands;
}
