// SPDX-License-Identifier: Apache-2.0
#include "proto/settings.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "proto/settings_internal.h"

static struct sidecar_spec *spec_of(void *target)
{
	return target;
}

int sidecar_set_path(struct sidecar_spec *spec, const char *value, const char **ret,
		     struct err *err)
{
	CLEAN(mem) char *here = NULL;

	if (value[0] == '\0')
		return err_set(err, -EINVAL, "a path is needed");
	if (value[0] == '/') {
		*ret = value;
		return 0;
	}
	here = get_current_dir_name();
	*ret = here ? arena_printf(&spec->arena, "%s/%s", here, value) : NULL;
	return *ret ? 0 : err_sys(err, -errno, "cannot find the current directory");
}

static int set_policy_file(void *target, const char *value, struct err *err)
{
	return sidecar_set_path(target, value, &spec_of(target)->policy_file, err);
}

static int set_always_dir(void *target, const char *value, struct err *err)
{
	return sidecar_set_path(target, value, &spec_of(target)->always_dir, err);
}

static int set_resolv_conf(void *target, const char *value, struct err *err)
{
	return sidecar_set_path(target, value, &spec_of(target)->resolv_conf, err);
}

static int set_state_dir(void *target, const char *value, struct err *err)
{
	return sidecar_set_path(target, value, &spec_of(target)->state_dir, err);
}

int sidecar_set_jsonl(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = spec_of(target);

	if (strcmp(value, "stdout") != 0)
		return sidecar_set_path(spec, value, &spec->jsonl, err);
	spec->jsonl = value;
	return 0;
}

int sidecar_set_postgres(void *target, const char *value, struct err *err)
{
	spec_of(target)->postgres = value[0] ? value : NULL;
	return 0;
}

static const struct cli_option options[] = {
	{ "mode", "dns|dns+nft|dns+nft+tls", "what is enforced (dns+nft)",
	  sidecar_set_mode },
	{ "rules", "JSON", "the first policy; without it everything is denied",
	  OPTION_IN(TEXT, struct sidecar_spec, rules) },
	{ "policy-file", "FILE",
	  "the policy, before --rules; changes by the API are kept in it",
	  set_policy_file },
	{ "always-dir", "DIR",
	  "where deny.always, allow.always and log_skip.always are "
	  "(/var/egress/rules)",
	  set_always_dir },
	{ "max-rules", "N", "the most rules that the API takes; 0: no limit (4096)",
	  sidecar_set_max_rules },
	{ "http-addr", "[ADDR]:PORT", "where the API listens (:18080)",
	  sidecar_set_http_addr },
	{ "token", "TEXT", "what callers of the API show; better given as a variable",
	  OPTION_IN(TEXT, struct sidecar_spec, token) },
	{ "api-open", NULL,
	  "without a token, let whoever reaches the API change the policy",
	  OPTION_IN(FLAG, struct sidecar_spec, api_open) },
	{ "api-host", "NAME",
	  "a name by which browsers may call the API without a token; may be repeated",
	  sidecar_set_api_host, ',' },
	{ "ui", "on|off", "whether the API has a page for browsers, /ui/ (on)",
	  OPTION_IN(SWITCH, struct sidecar_spec, ui) },
	{ "dns-upstream", "ADDR[:PORT]",
	  "name server to ask; may be repeated (resolv.conf)", sidecar_set_upstream,
	  ',' },
	{ "dns-upstream-timeout", "SECONDS", "how long one of them may take (5)",
	  OPTION_IN(NUMBER, struct sidecar_spec, upstream_timeout_sec), .least = 1,
	  .most = SIDECAR_TIMEOUT_MAX },
	{ "dns-upstream-probe", "NAME",
	  "the name that probes ask for (the root's servers)", sidecar_set_probe },
	{ "dns-upstream-probe-interval", "SECONDS", "how often each is probed (30)",
	  OPTION_IN(NUMBER, struct sidecar_spec, probe_every_sec), .least = 1,
	  .most = SIDECAR_PROBE_EVERY_MAX },
	{ "nameserver-exempt", "ADDR",
	  "an address whose port 53 the app may ask by itself; may be repeated",
	  sidecar_set_exempt, ',' },
	{ "resolv-conf", "FILE", "where name servers are taken from (/etc/resolv.conf)",
	  set_resolv_conf },
	{ "block-doh-443", NULL,
	  "refuse port 443 of --doh-blocklist's addresses, or of all when it is empty",
	  OPTION_IN(FLAG, struct sidecar_spec, block_doh_443) },
	{ "doh-blocklist", "CIDR", "an address or prefix of that list; may be repeated",
	  sidecar_set_doh, ',' },
	{ "log-level", "debug|info|warn|error|fatal", "the least that is logged (info)",
	  sidecar_set_log_level },
	{ "log-output", "FILE",
	  "stdout, stderr or a file for the log; may be repeated (stdout)",
	  sidecar_set_log_output, ',' },
	{ "deny-webhook", "URL", "where denied names are sent; may be repeated",
	  sidecar_set_webhook, ' ' },
	{ "sandbox-id", "ID", "how this sandbox is named in logs, metrics and webhooks",
	  OPTION_IN(TEXT, struct sidecar_spec, sandbox_id) },
	{ "metrics-extra-attrs", "KEY=VALUE",
	  "added to metrics and log lines; may be repeated", sidecar_set_attr, ',' },
	{ "state-dir", "DIR", "where events are kept (in memory alone)", set_state_dir },
	{ "jsonl", "FILE", "stdout, or a file for events, each a line of JSON",
	  sidecar_set_jsonl },
	{ "postgres", "CONNINFO",
	  "the PostgreSQL that events are copied to; better given as a variable",
	  sidecar_set_postgres },
	{ "review-webhook", "URL",
	  "where review tasks are sent as they open; may be repeated",
	  sidecar_set_review_webhook, ' ' },
	{ "review-command", "PATH",
	  "a program that is run for each, with the task as JSON on its input",
	  sidecar_set_review_command },
	{ "on-unenforceable", "fail|dns|open",
	  "what happens where the filter can't be installed (fail)",
	  OPTION_IN(WORD, struct sidecar_spec, on_unenforceable) },
	{ "host-network-check", "on|off",
	  "whether the host's own network namespace is refused (on)",
	  OPTION_IN(SWITCH, struct sidecar_spec, host_network_check) },
	{ "healthy", NULL, "ask the sidecar that runs here whether it is, and leave",
	  OPTION_IN(FLAG, struct sidecar_spec, healthy) },
	{ "remove", NULL, "take every rule away, and leave",
	  OPTION_IN(FLAG, struct sidecar_spec, remove) },
};
static_assert(ARRAY_SIZE(options) <= CLI_OPTIONS_MAX, "every option has a bit");
const struct cli_options cli_sidecar_options = { options, ARRAY_SIZE(options) };

void cli_sidecar_usage(FILE *out)
{
	fputs("usage: weir sidecar [OPTION]...\n\n"
	      "Guard the network namespace that this runs in, as OpenSandbox's egress "
	      "sidecar\ndoes, with its variables, files and API.\n\n",
	      out);
	cli_options_print(out, &cli_sidecar_options);
	fputs("\nEach option has a variable: WEIR_MODE, WEIR_API_OPEN=1; lists are "
	      "parted "
	      "by\ncommas there, URLs by blanks. OPENSANDBOX_EGRESS_… count behind "
	      "both.\n"
	      "Rules stay when the sidecar ends, however it ends: only --remove, on the\n"
	      "command line, takes them away.\n\n"
	      "Exit status: 0 after SIGTERM and after --remove; 1 not --healthy; 2 bad "
	      "input;\n125 Weir could not do what was asked.\n",
	      out);
}

/* --- reading --- */

/* One option and its value at a time, so that each fault is told. */
static void read_arguments(struct sidecar_spec *spec, int argc, char **argv,
			   struct sidecar_faults *faults)
{
	char shown[TEXT_ESCAPED_SIZE];
	int i = 1;

	while (i < argc && strncmp(argv[i], "--", 2) == 0 && argv[i][2] != '\0') {
		struct text name = { argv[i] + 2, strcspn(argv[i] + 2, "=") };
		const struct cli_option *o = cli_option_find(&cli_sidecar_options, name);
		bool two = o && o->arg && argv[i][2 + name.len] == '\0' && i + 1 < argc;
		char *one[] = { argv[0], argv[i], two ? argv[i + 1] : NULL, NULL };
		struct err err = { 0 };

		if (cli_options_parse(&cli_sidecar_options, spec, two ? 3 : 2, one,
				      &spec->given, &err) < 0)
			sidecar_fault(faults, &err);
		i += two ? 2 : 1;
	}
	if (i < argc && strcmp(argv[i], "--") == 0)
		i++;
	if (i < argc) {
		struct err err = { 0 };

		err_set(&err, -EINVAL, "'%s' is one argument too many",
			text_escape(text_of(argv[i]), shown, sizeof(shown)));
		sidecar_fault(faults, &err);
	}
}

static void read_environment(struct sidecar_spec *spec, struct sidecar_faults *faults)
{
	for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
		const struct cli_options one = { &options[i], 1 };
		uint64_t given = spec->given >> i & 1;
		struct err err = { 0 };

		if (cli_options_environment(&one, spec, &spec->arena, &given, &err) < 0)
			sidecar_fault(faults, &err);
		spec->given |= given << i;
	}
}

static void warn_of_stray(struct sidecar_spec *spec)
{
	const char *stray = cli_options_stray_variable(&cli_sidecar_options);
	char shown[TEXT_ESCAPED_SIZE];

	if (stray)
		sidecar_warn(spec, "%s is a variable of no option, ignoring",
			     text_escape((struct text){ stray, strcspn(stray, "=") },
					 shown, sizeof(shown)));
}

/* A header's value has no white space at its ends. */
static void check_token(struct sidecar_spec *spec)
{
	struct text t = text_of(spec->token ?: "");

	if (text_trim(t).len != t.len)
		sidecar_warn(spec, "the token begins or ends with white space, which no "
				   "caller can show: every call of the API is refused");
	if (t.len > 0 && spec->api_open)
		sidecar_warn(spec, "--api-open opens nothing where there is a token");
}

static void check_whole(struct sidecar_spec *spec, struct sidecar_faults *faults)
{
	struct err err = { 0 };

	check_token(spec);
	if (spec->doh_count > 0 && !spec->block_doh_443)
		sidecar_warn(spec, "--doh-blocklist does nothing without "
				   "--block-doh-443");
	if (sidecar_check_stores(spec, &err) < 0)
		sidecar_fault(faults, &err);
	if (!spec->remove && !spec->healthy && sidecar_resolv_conf(spec, &err) < 0)
		sidecar_fault(faults, &err);
	if (spec->log_output_count == 0)
		spec->log_outputs[spec->log_output_count++] = "stdout";
	if (spec->mode == SIDECAR_MODE_DNS)
		sidecar_warn(spec, "mode dns refuses names alone: whoever knows an "
				   "address reaches it");
}

static void set_defaults(struct sidecar_spec *spec)
{
	*spec = (struct sidecar_spec){
		.mode = SIDECAR_MODE_DNS_NFT,
		.always_dir = "/var/egress/rules",
		.http_addr = ":18080",
		.http = { .port = 18080 },
		.max_rules = SIDECAR_RULES_DEFAULT,
		.log_level = SIDECAR_LOG_INFO,
		.sandbox_id = "",
		.upstream_timeout_sec = SIDECAR_TIMEOUT_DEFAULT,
		.probe_every_sec = SIDECAR_PROBE_EVERY_DEFAULT,
		.host_network_check = true,
		.ui = true,
		.resolv_conf = "/etc/resolv.conf",
	};
}

int cli_sidecar_parse(int argc, char **argv, struct sidecar_spec *ret, struct err *err)
{
	struct sidecar_faults faults = { 0 };
	bool remove, healthy;

	set_defaults(ret);
	ret->argv = argv;
	read_arguments(ret, argc, argv, &faults);
	/* What a call is for is said by the call: a variable that every process of the
	 * container has must not open it, nor end its start. */
	remove = ret->remove;
	healthy = ret->healthy;
	read_environment(ret, &faults);
	ret->remove = remove;
	ret->healthy = healthy;
	sidecar_read_opensandbox(ret, &faults);
	warn_of_stray(ret);
	check_whole(ret, &faults);
	if (faults.count == 0)
		return 0;
	*err = faults.last;
	return -EINVAL;
}
