// SPDX-License-Identifier: Apache-2.0
/* OpenSandbox's variables, read as its sidecar reads them: of most, what means nothing is
 * as good as not set. Here that is said, and what would weaken is refused. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "settings/settings.h"

enum { WORDS = 5 };

static bool is_one_of(struct text t, const char *const words[WORDS])
{
	t = text_trim(t);
	for (size_t i = 0; i < WORDS; i++) {
		if (text_equal_nocase(t, words[i]))
			return true;
	}
	return false;
}

static bool is_truthy(struct text t)
{
	return is_one_of(t, (const char *const[WORDS]){ "1", "true", "yes", "y", "on" });
}

static bool is_falsy(struct text t)
{
	return is_one_of(t, (const char *const[WORDS]){ "0", "false", "no", "n", "off" });
}

struct variable {
	const char *name, *option;
	bool is_clamped; /* a number over the most counts as the most */
	bool is_list;	 /* parted by commas; empty parts are nothing */
	bool is_strict;	 /* what can't be read ends the start */
};

static const struct variable variables[] = {
	{ "OPENSANDBOX_EGRESS_MODE", "mode", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_RULES", "rules", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_POLICY_FILE", "policy", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_HTTP_ADDR", "http-addr", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_TOKEN", "token", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_MAX_RULES", "max-rules" },
	{ "OPENSANDBOX_EGRESS_LOG_LEVEL", "log-level" },
	{ "OPENSANDBOX_LOG_OUTPUT", "log-output", .is_list = true, .is_strict = true },
	{ "OPENSANDBOX_EGRESS_DENY_WEBHOOK", "deny-webhook" },
	{ "OPENSANDBOX_EGRESS_SANDBOX_ID", "id", .is_strict = true },
	{ "OPENSANDBOX_EGRESS_METRICS_EXTRA_ATTRS", "metrics-extra-attrs",
	  .is_list = true },
	{ "OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT", "nameserver-exempt", .is_list = true },
	{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM", "upstream", .is_list = true,
	  .is_strict = true },
	{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT", "upstream-timeout",
	  .is_clamped = true },
	{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE", "upstream-probe" },
	{ "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC", "upstream-probe-interval",
	  .is_clamped = true },
	{ "OPENSANDBOX_EGRESS_BLOCK_DOH_443", "block-doh-443" },
	{ "OPENSANDBOX_EGRESS_DOH_BLOCKLIST", "doh-blocklist", .is_list = true },
};

static void set_one(struct sidecar_spec *spec, struct err *all, const struct variable *v,
		    const struct cli_option *o, const char *value)
{
	char most[16];
	struct err err = { 0 };
	uint32_t n;

	if (v->is_clamped && text_to_u32(text_trim(text_of(value)), UINT32_MAX, &n)) {
		snprintf(most, sizeof(most), "%u", MIN(n, o->most));
		value = most;
	}
	if (cli_option_set(o, spec, value, &err) == 0)
		return;
	err_context(&err, "%s", v->name);
	if (v->is_strict)
		err_also(all, &err);
	else
		sidecar_warn(spec, "%s, ignoring", err.text);
}

static void set_list(struct sidecar_spec *spec, struct err *all, const struct variable *v,
		     const struct cli_option *o, const char *value)
{
	struct text rest = text_of(value), part;
	struct err err = { 0 };
	size_t count = 0;

	while (text_split(&rest, ',', &part)) {
		const char *copy;

		part = text_trim(part);
		if (part.len == 0)
			continue;
		copy = arena_text(&spec->arena, part);
		if (!copy) {
			err_set(&err, -ENOMEM, "out of memory");
			err_also(all, &err);
			return;
		}
		set_one(spec, all, v, o, copy);
		count++;
	}
	if (count == 0 && v->is_strict) {
		err_set(&err, -EINVAL, "%s: the list is empty", v->name);
		err_also(all, &err);
	}
}

/* --- what Weir has no use for --- */

static const struct {
	const char *name, *why;
} unused[] = {
	{ "OPENSANDBOX_NETWORK_POLICY", "is read by no version: the policy stands in "
					"OPENSANDBOX_EGRESS_RULES" },
	{ "OPENSANDBOX_EGRESS_MITMPROXY_PORT", "means nothing without mitmproxy" },
	{ "OPENSANDBOX_EGRESS_MITMPROXY_SCRIPT", "means nothing without mitmproxy" },
	{ "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR",
	  "means nothing without mitmproxy" },
	{ "OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE",
	  "means nothing without mitmproxy" },
	{ "OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS", "means nothing without mitmproxy" },
	{ "OPENSANDBOX_CREDENTIAL_PROXY_SOCKET",
	  "means nothing without a credential vault" },
	{ "OPENSANDBOX_EGRESS_REDIRECT_BACKEND", "chooses nothing: there is nft alone" },
	{ "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS",
	  "means nothing without a credential vault" },
	{ "OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS",
	  "means nothing without a credential vault" },
	{ "OPENSANDBOX_EGRESS_UPSTREAM_PROXY", "is not supported: traffic leaves "
					       "directly" },
	{ "OPENSANDBOX_EGRESS_UPSTREAM_PROXY_AUTH", "is not supported: traffic leaves "
						    "directly" },
	{ "OPENSANDBOX_EGRESS_PROFILE", "is not supported" },
};

static void warn_of_strays(struct sidecar_spec *spec)
{
	static const char prefix[] = "OPENSANDBOX_EGRESS_", otel[] = "OTEL_";
	char **e;

	for (e = environ; e && *e; e++) {
		struct text name = { *e, strcspn(*e, "=") };

		if (strncmp(*e, prefix, strlen(prefix)) == 0 &&
		    !TEXT_FIND(name, variables) && !TEXT_FIND(name, unused) &&
		    !text_equal(name, "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT"))
			sidecar_warn(spec, "%s is not known, ignoring", TEXT_SHOWN(name));
	}
	/* One of these is enough. */
	for (e = environ; e && *e; e++)
		if (strncmp(*e, otel, strlen(otel)) == 0 && strchr(*e, '='))
			break;
	if (e && *e)
		sidecar_warn(spec,
			     "%s: OpenTelemetry is not spoken here, ignoring; /metrics "
			     "has the numbers for Prometheus",
			     TEXT_SHOWN((struct text){ *e, strcspn(*e, "=") }));
}

void sidecar_read_opensandbox(struct sidecar_spec *spec, struct err *all)
{
	const char *mitm = getenv("OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT");
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
		const struct variable *v = &variables[i];
		const struct cli_option *o =
			cli_option_find(&cli_sidecar_options, text_of(v->option));
		uint64_t bit = 1ULL << (o - cli_sidecar_options.items);
		const char *value = getenv(v->name);

		if (!value || value[0] == '\0' || (spec->given & bit) != 0)
			continue;
		if (!o->arg && is_truthy(text_of(value)))
			set_one(spec, all, v, o, NULL);
		else if (!o->arg && !is_falsy(text_of(value)))
			sidecar_warn(spec, "%s: '%s' is neither true nor false, ignoring",
				     v->name, SHOWN(value));
		else if (o->arg && v->is_list)
			set_list(spec, all, v, o, value);
		else if (o->arg)
			set_one(spec, all, v, o, value);
		spec->given |= bit;
	}
	if (mitm && is_truthy(text_of(mitm))) {
		err_set(&err, -EINVAL,
			"OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT: Weir opens no TLS, so "
			"it can't stand in for mitmproxy; unset it");
		err_also(all, &err);
	}
	for (size_t i = 0; i < ARRAY_SIZE(unused); i++) {
		const char *value = getenv(unused[i].name);

		if (value && value[0] != '\0')
			sidecar_warn(spec, "%s %s, ignoring", unused[i].name,
				     unused[i].why);
	}
	warn_of_strays(spec);
}
