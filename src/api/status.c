// SPDX-License-Identifier: Apache-2.0
#include <assert.h>
#include <jansson.h>

#include "api/internal.h"
#include "api/openapi.h" /* made by the build */
#include "event/json.h"

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

/* Text from outside; what isn't UTF-8 is escaped. */
static json_t *text_json(const char *text)
{
	char shown[TEXT_ESCAPED_SIZE];
	json_t *j;

	if (!text)
		return json_string("");
	j = json_string(text);
	return j ? j : json_string(text_escape(text_of(text), shown, sizeof(shown)));
}

static json_t *time_json(int64_t ms)
{
	char text[JTEXT_TIME_SIZE];

	return ms > 0 ? json_string(jtext_time(ms, true, text)) : json_null();
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *degradations_json(const struct api_status *s)
{
	json_t *list = json_array();

	for (size_t i = 0; i < MIN(s->degradation_count, (size_t)API_DEGRADATIONS_MAX);
	     i++) {
		const struct api_degradation *d = &s->degradations[i];

		json_array_append_new(list, json_pack("{s:o, s:o, s:o}", "what",
						      text_json(d->what), "reason",
						      text_json(d->reason), "since",
						      time_json(d->since_ms)));
	}
	return list;
}

static json_t *counters_json(const struct api_status *s)
{
	json_t *j = json_object();

	for (size_t i = 0; i < s->counter_count; i++)
		json_object_set_new(j, s->counters[i].name, number(s->counters[i].value));
	return j;
}

static void postgres_json(const struct api_status *s, json_t *j)
{
	json_object_set_new(j, "postgresWaitingRows", number(s->postgres_waiting));
	json_object_set_new(j, "postgresMissedRows", number(s->postgres_missed));
	json_object_set_new(j, "postgresRefusedRows", number(s->postgres_refused));
}

static json_t *status_json(const struct api_status *s, const struct document *policy,
			   bool read_only)
{
	json_t *j = json_object();

	json_object_set_new(j, "mode", json_string(api_mode_name(s->mode)));
	json_object_set_new(j, "fullIsolation", json_boolean(s->full_isolation));
	json_object_set_new(j, "since", time_json(s->since_ms));
	json_object_set_new(j, "enforcementMode", text_json(s->enforcement_mode));
	json_object_set_new(j, "policyMode", json_string(document_mode(policy)));
	json_object_set_new(j, "closed",
			    document_closed(policy) ? text_json(document_closed(policy))
						    : json_null());
	json_object_set_new(j, "readOnly", json_boolean(read_only));
	json_object_set_new(j, "sandboxId", text_json(s->sandbox_id));
	json_object_set_new(j, "degradations", degradations_json(s));
	json_object_set_new(j, "generation", number(s->generation));
	json_object_set_new(j, "engineRestarts", number(s->engine_restarts));
	if (s->engine_count > 0)
		json_object_set_new(j, "engines", number(s->engine_count));
	json_object_set_new(j, "rules", number(s->rule_count));
	json_object_set_new(j, "learned",
			    json_pack("{s:o, s:o}", "names", number(s->learned_names),
				      "addresses", number(s->learned_addresses)));
	json_object_set_new(j, "policyUpdates", number(s->policy_updates));
	json_object_set_new(j, "policyFailures", number(s->policy_failures));
	json_object_set_new(j, "webhookSent", number(s->webhook_sent));
	json_object_set_new(j, "webhookDropped", number(s->webhook_dropped));
	json_object_set_new(j, "logDropped", number(s->log_dropped));
	json_object_set_new(j, "storeLostRows", number(s->store_lost_rows));
	json_object_set_new(j, "storeLostPackets", number(s->store_lost_packets));
	if (s->has_postgres)
		postgres_json(s, j);
	json_object_set_new(j, "counters", counters_json(s));
	json_object_set_new(j, "version", json_string(WEIR_VERSION));
	return j;
}

void answer_status(struct api_request *r)
{
	const struct api_config *config = &r->api->config;
	const struct api_ops *ops = r->ops;
	struct api_status s = { 0 };
	struct reply_stream out;
	json_t *j;

	if (!reply_open(r, &out))
		return;
	ops->status(ops->data, &s);
	j = status_json(&s, ops->policy(ops->data),
			!config->open && (!config->token || !config->token[0]));
	/* A member that is missing for want of memory fails the dump or is left out. */
	if (json_dumpf(j, out.out, JSON_COMPACT | JSON_ENSURE_ASCII) == 0)
		fputc('\n', out.out);
	json_decref(j);
	reply_close(r, &out, "application/json");
}

void answer_openapi(struct api_request *r)
{
	union {
		const char *in;
		void *out; /* the library only reads it */
	} bytes = { .in = openapi_yaml };

	reply_queue(r, MHD_HTTP_OK, "application/yaml",
		    MHD_create_response_from_buffer(sizeof(openapi_yaml) - 1, bytes.out,
						    MHD_RESPMEM_PERSISTENT));
}
