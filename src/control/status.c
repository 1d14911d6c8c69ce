// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "control/control.h"
#include "proto/audit.h"

enum { POSTGRES_SILENT_MS = 60 * 1000 }; /* it speaks every ten seconds */

#define SNAPSHOT_FULL                                                                    \
	"not all that was learned can be kept for a restart: there is no room for it"

static enum api_mode mode_of(const struct control_sandbox *w)
{
	const struct control *s = w->side;

	if (s->many)
		return !w->plan_bytes || plan_verify(&w->plan) == POLICY_VERIFY_TLS
			       ? API_MODE_DNS_NFT_TLS
			       : API_MODE_DNS_NFT;
	switch (s->status.enforced) {
	case ENFORCED_REDIRECT:
		return API_MODE_DNS;
	case ENFORCED_FILTER:
		return s->spec.mode == SIDECAR_MODE_DNS_NFT_TLS ? API_MODE_DNS_NFT_TLS
								: API_MODE_DNS_NFT;
	default:
		return API_MODE_DISABLED;
	}
}

/* A degradation, unless @reason is "". */
static void add(const struct control_sandbox *w, struct api_status *ret, const char *what,
		const char *reason)
{
	if (reason[0] && ret->degradation_count < API_DEGRADATIONS_MAX)
		ret->degradations[ret->degradation_count++] = (struct api_degradation){
			.what = what, .reason = reason, .since_ms = w->since_ms
		};
}

static void add_sockets(const struct control_sandbox *w, const struct ipc_audit *audit,
			struct api_status *ret)
{
	if (audit->packet)
		add(w, ret, "packet-sockets",
		    "the sandbox has packet sockets open: with NET_RAW it can send past "
		    "the filter");
	if (audit->raw)
		add(w, ret, "raw-sockets",
		    "the sandbox has raw sockets open: it has NET_RAW");
	if (!audit->known)
		add(w, ret, "unknown-sockets",
		    "whether sockets are open that go round the filter can't be seen, or "
		    "not in time");
}

static void add_closed(struct control_sandbox *w, struct api_status *ret)
{
	const char *why = document_closed(w->document);

	if (!why)
		return;
	snprintf(w->closing.shown, sizeof(w->closing.shown),
		 "the sandbox is closed: %.80s", why);
	add(w, ret, "policy", w->closing.shown);
}

/* What is said of the stores, which let nothing out: degradations and counts. */
static void add_stores(struct control *s, struct api_status *ret)
{
	const char *log = loglines_lacks(s->log);
	struct postgres_state *p = &s->postgres;

	if (s->spec.postgres && s->spec.state_dir) {
		const char *reason = p->trouble;

		if (postgres_state_read(s->spec.state_dir, p) < 0)
			*p = (struct postgres_state){
				.written_ms = s->own.since_ms ?: clock_wall_ms()
			};
		/* weir-postgres says something every ten seconds, or is dead, or hangs.
		 */
		if (!reason[0] && clock_wall_ms() - p->written_ms > POSTGRES_SILENT_MS)
			reason = "weir-postgres has said nothing for a minute: events "
				 "wait in the store";
		add(&s->own, ret, "postgres", reason);
		ret->has_postgres = true;
		ret->postgres_waiting = p->waiting;
		ret->postgres_missed = p->missed;
		ret->postgres_refused = p->refused;
	}
	add(&s->own, ret, "store", s->untrusted);
	if (s->store) {
		sqlite_writer_state(s->store, &s->store_state);
		add(&s->own, ret, "store", s->store_state.trouble);
		ret->store_lost_rows += s->store_state.lost_rows;
		ret->store_lost_packets += s->store_state.lost_packets;
	}
	if (s->jsonl) {
		jsonl_writer_state(s->jsonl, &s->jsonl_state);
		add(&s->own, ret, "jsonl", s->jsonl_state.trouble);
		ret->store_lost_rows += s->jsonl_state.lost_rows;
		ret->store_lost_packets += s->jsonl_state.lost_packets;
	}
	if (log) {
		snprintf(s->log_shown, sizeof(s->log_shown),
			 "the log '%.200s' can't be written: its lines are lost", log);
		add(&s->own, ret, "log", s->log_shown);
	}
}

/* -- a sidecar's -------------------------------------------------------------------- */

static void fill_sidecar(struct control_sandbox *w, struct api_status *ret)
{
	const struct control *s = w->side;
	const struct ipc_audit audit = audit_raw_sockets();
	const int64_t now_ms = loop_now_ms(s->loop);

	if (w->stats_at_ms == 0 || now_ms - w->stats_at_ms >= CONTROL_STATS_AGE_MS) {
		w->stats_at_ms = now_ms;
		(void)!control_sandbox_stats(w);
	}
	ret->enforcement_mode = sidecar_mode_name(s->spec.mode);
	ret->sandbox_id = s->spec.sandbox_id;
	add(w, ret, "filter", s->status.weaker);
	if (!s->link->is_active)
		add(w, ret, "engine",
		    "the engine is being started again; the rules stand");
	else if (!s->status.nflog && s->status.enforced == ENFORCED_FILTER)
		add(w, ret, "nflog", "refused packets are not reported");
	if (w->stats.snapshot_full)
		add(w, ret, "snapshot", SNAPSHOT_FULL);
	add(w, ret, "confinement", s->status.lacking);
	add(w, ret, "confinement", s->lacking);
	add_closed(w, ret);
	add_stores(w->side, ret);
	for (size_t i = 0; i < s->policy_note_count; i++)
		add(w, ret, "policy", s->policy_notes[i]);
	if (s->dns_inner)
		add(w, ret, "dns",
		    "127.0.0.11 asks on from inside this sandbox: name the servers "
		    "behind it (OPENSANDBOX_EGRESS_DNS_UPSTREAM)");
	add_sockets(w, &audit, ret);
	/* What else is degraded (a store, a log) lets nothing out. */
	ret->full_isolation = !audit.packet && !audit.raw && audit.known &&
			      s->link->is_active && s->status.enforced == ENFORCED_FILTER;
	ret->generation = s->status.generation;
	ret->engine_restarts = s->status.restarts;
	control_webhook_count(s, ret);
}

/* -- one of a daemon's -------------------------------------------------------------- */

static void fill_sandbox(struct control_sandbox *w, struct api_status *ret)
{
	(void)!control_sandbox_stats(w);
	control_sandbox_audit(w);
	ret->enforcement_mode = "dns+nft+tls";
	ret->sandbox_id = w->spec.name;
	if (!w->link->is_active)
		add(w, ret, "engine",
		    "the engine is being started again; the rules stand");
	else if (!w->stats.nflog)
		add(w, ret, "nflog", "refused packets are not reported");
	if (w->restore_failures > 0)
		add(w, ret, "filter",
		    "the engine enforces another policy, and is given "
		    "this one again");
	add(w, ret, "confinement", w->side->lacking);
	add_sockets(w, &w->audit, ret);
	if (w->audit.waiting)
		add(w, ret, "cgroup",
		    "the cgroup is gone; it is guarded when it comes again");
	if (w->audit.unseen)
		add(w, ret, "unseen",
		    "whether what is guarded is gone can't be seen; its rules stay");
	snprintf(w->strays, sizeof(w->strays),
		 "%u sockets of its processes are from outside of the cgroup, such as "
		 "of process %d",
		 w->audit.strays, w->audit.stray_of);
	if (w->audit.strays > 0)
		add(w, ret, "outside-sockets", w->strays);
	ret->full_isolation = ret->degradation_count == 0;
	/* That lets nothing out. */
	add_closed(w, ret);
	if (w->stats.snapshot_full)
		add(w, ret, "snapshot", SNAPSHOT_FULL);
	/* What is read of the stores is of all sandboxes. */
	add_stores(w->side, ret);
	ret->generation = w->stats.generation;
	ret->engine_restarts = w->link->restarts + w->link->daemon_restarts;
}

/* -- all of a daemon's -------------------------------------------------------------- */

/* Whether each of them is guarded in full is said of each. */
static void fill_all(struct control *s, struct api_status *ret)
{
	const struct control_answer answer = { IPC_STATS, IPC_STATS };
	const struct ipc_message ask = { .type = IPC_STATS };
	const struct control_sandbox *w;
	struct ipc_stats all = { 0 };
	struct ipc_message m;
	size_t heard = 0;

	/* The counts of all engines, as they were when all of them were there. */
	for (size_t i = 0; i < s->link_count; i++) {
		if (!s->links[i].is_active ||
		    control_ask_engine(&s->links[i], &ask, -1, &answer, &m, NULL) < 0)
			continue;
		for (size_t c = 0; c < SANDBOX_COUNTER_COUNT; c++)
			all.counters[c] += m.stats.counters[c];
		all.names += m.stats.names;
		all.addresses += m.stats.addresses;
		heard++;
	}
	if (heard == s->link_count)
		s->own.stats = all;
	ret->enforcement_mode = "dns+nft+tls";
	ret->sandbox_id = "";
	if (!control_engines_are_active(s))
		add(&s->own, ret, "engine",
		    "the engine is being started, or takes its sandboxes over; the rules "
		    "stand");
	add(&s->own, ret, "sandboxes", control_lacking(s));
	add(&s->own, ret, "confinement", s->lacking);
	ret->full_isolation = ret->degradation_count == 0;
	add_stores(s, ret);
	/* No sandbox is guarded less by it. */
	add(&s->own, ret, "tls", control_secure_trouble(s));
	ret->engine_count = s->link_count;
	for (size_t i = 0; i < s->link_count; i++)
		ret->engine_restarts +=
			s->links[i].restarts + s->links[i].daemon_restarts;
	for (uint32_t id = 0; (w = control_sandbox_after(s, id)); id = w->id) {
		if (w->gone[0])
			continue;
		ret->rule_count += document_rule_count(w->document);
		ret->policy_updates += w->updates;
		ret->policy_failures += w->failures;
	}
}

/* -- any ---------------------------------------------------------------------------- */

void control_status(void *data, struct api_status *ret)
{
	struct control_sandbox *w = data;

	if (!w->side->many)
		fill_sidecar(w, ret);
	else if (w->id != 0)
		fill_sandbox(w, ret);
	else
		fill_all(w->side, ret);
	ret->mode = mode_of(w);
	ret->since_ms = w->since_ms;
	ret->rule_count += document_rule_count(w->document);
	ret->policy_updates += w->updates;
	ret->policy_failures += w->failures;
	api_status_count(ret, w->stats.counters, w->counters);
	ret->learned_names = w->stats.names;
	ret->learned_addresses = w->stats.addresses;
	ret->log_dropped = loglines_dropped(w->side->log);
	ret->traffic = w->traffic;
	ret->plan = w->plan.bytes ? &w->plan : NULL;
}

bool control_healthy(void *data)
{
	const struct control_sandbox *w = data;
	const struct control *s = w->side;

	return s->many && w->id == 0
		       ? control_engines_are_active(s) &&
				 control_sandboxes_are_known(s) && !control_lacking(s)[0]
		       : w->link->is_active;
}
