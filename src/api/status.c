// SPDX-License-Identifier: Apache-2.0
/* /status: how strong the enforcement is, and counters. */
#include <assert.h>
#include <string.h>

#include "api/internal.h"
#include "base/clock.h"
#include "policy/explain.h"
#include "sandbox/sandbox.h"

static const char *const mode_names[] = {
	[API_MODE_DISABLED] = "disabled",
	[API_MODE_DNS] = "dns-only",
	[API_MODE_DNS_NFT] = "dns+nftables",
	[API_MODE_DNS_NFT_TLS] = "dns+nftables+tls",
};
static_assert(ARRAY_SIZE(mode_names) == API_MODE_COUNT, "a mode without a name");

const char *api_mode_name(enum api_mode m)
{
	return (unsigned int)m < API_MODE_COUNT ? mode_names[m] : "disabled";
}

void api_status_count(struct api_status *s, const uint64_t *values,
		      struct api_counter *room)
{
	s->counters = room;
	for (size_t i = 0; i < SANDBOX_COUNTER_COUNT; i++)
		room[s->counter_count++] = (struct api_counter){
			.name = sandbox_counter_name((enum sandbox_counter)i),
			.help = sandbox_counter_help((enum sandbox_counter)i),
			.value = values[i],
		};
}

static void put_since(struct jtext *j, int64_t ms)
{
	if (ms > 0)
		jtext_when(j, "since", ms);
	else
		jtext_raw(j, "since", "null");
}

static void put_losses(struct jtext *j, const struct api_status *s)
{
	jtext_count(j, "webhookSent", s->webhook_sent);
	jtext_count(j, "webhookDropped", s->webhook_dropped);
	jtext_count(j, "logDropped", s->log_dropped);
	jtext_count(j, "storeLostRows", s->store_lost_rows);
	jtext_count(j, "storeLostPackets", s->store_lost_packets);
	if (!s->has_postgres)
		return;
	jtext_count(j, "postgresWaitingRows", s->postgres_waiting);
	jtext_count(j, "postgresMissedRows", s->postgres_missed);
	jtext_count(j, "postgresRefusedRows", s->postgres_refused);
}

static void put_status(struct jtext *j, const struct api_status *s,
		       const struct document *policy, bool read_only)
{
	const char *closed = document_closed(policy);

	jtext_open(j, NULL, '{');
	jtext_member(j, "mode", api_mode_name(s->mode));
	jtext_bool(j, "fullIsolation", s->full_isolation);
	put_since(j, s->since_ms);
	jtext_member(j, "enforcementMode", s->enforcement_mode);
	jtext_member(j, "policyMode", document_mode(policy));
	if (closed)
		jtext_member(j, "closed", closed);
	else
		jtext_raw(j, "closed", "null");
	jtext_bool(j, "readOnly", read_only);
	jtext_member(j, "sandboxId", s->sandbox_id);
	jtext_open(j, "degradations", '[');
	for (size_t i = 0; i < MIN(s->degradation_count, (size_t)API_DEGRADATIONS_MAX);
	     i++) {
		const struct api_degradation *d = &s->degradations[i];

		jtext_open(j, NULL, '{');
		jtext_member(j, "what", d->what);
		jtext_member(j, "reason", d->reason);
		put_since(j, d->since_ms);
		jtext_close(j, '}');
	}
	jtext_close(j, ']');
	jtext_count(j, "generation", s->generation);
	jtext_count(j, "engineRestarts", s->engine_restarts);
	if (s->engine_count > 0)
		jtext_count(j, "engines", s->engine_count);
	jtext_count(j, "rules", s->rule_count);
	reply_member_tree(j, "grants",
			  s->plan ? policy_grants_json(s->plan, clock_wall_ms())
				  : json_array());
	jtext_open(j, "learned", '{');
	jtext_count(j, "names", s->learned_names);
	jtext_count(j, "addresses", s->learned_addresses);
	jtext_close(j, '}');
	jtext_count(j, "policyUpdates", s->policy_updates);
	jtext_count(j, "policyFailures", s->policy_failures);
	put_losses(j, s);
	jtext_open(j, "counters", '{');
	for (size_t i = 0; i < s->counter_count; i++)
		jtext_count(j, s->counters[i].name, s->counters[i].value);
	jtext_close(j, '}');
	jtext_member(j, "version", WEIR_VERSION);
}

void answer_status(struct api_request *r)
{
	const struct api_config *config = &r->api->config;
	const struct api_ops *ops = r->ops;
	struct api_status s = { 0 };
	struct jtext j = { .grows = true };

	ops->status(ops->data, &s);
	put_status(&j, &s, ops->policy(ops->data),
		   !config->open && (!config->token || !config->token[0]));
	if (ops->put)
		ops->put(ops->data, &j);
	jtext_close(&j, '}');
	reply_json(r, HTTP_OK, &j);
}
