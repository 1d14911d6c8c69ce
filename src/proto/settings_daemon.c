// SPDX-License-Identifier: Apache-2.0
#include "proto/settings_daemon.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "policy/limits.h"
#include "policy/policy.h"
#include "proto/settings_internal.h"

static int set_socket(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->socket, err);
}

static int set_run_dir(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->run_dir, err);
}

/* "auto": as many as there is need for. */
static int set_engines(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	uint32_t engines = 0;

	if (strcmp(value, "auto") != 0 &&
	    (!text_to_u32(text_of(value), CLI_DAEMON_ENGINES_MAX, &engines) ||
	     engines == 0))
		return err_set(err, -EINVAL,
			       "'%.80s' is not auto or a number from 1 to %d", value,
			       CLI_DAEMON_ENGINES_MAX);
	spec->engines = engines;
	return 0;
}

static int set_resolv_conf(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->resolv_conf, err);
}

static int set_state_dir(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	if (strcmp(value, "none") != 0)
		return sidecar_set_path(spec, value, &spec->state_dir, err);
	spec->state_dir = NULL;
	return 0;
}

static int set_tls_cert(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->tls_cert, err);
}

static int set_tls_key(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->tls_key, err);
}

static int set_token_file(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->token_file, err);
}

static const struct cli_option options[] = {
	{ "socket", "PATH", "where the API listens (/run/weir/weir.sock)", set_socket },
	{ "run-dir", "DIR", "what a restart needs is kept there (/run/weir)",
	  set_run_dir },
	{ "engines", "N|auto",
	  "processes that share the namespaces out among them; auto: as they come (auto)",
	  set_engines },
	{ "api-host", "NAME",
	  "a name by which browsers may call the API without a token; may be repeated",
	  sidecar_set_api_host, ',' },
	{ "ui", "on|off", "whether the API has a page for browsers, /ui/ (on)",
	  OPTION_IN(SWITCH, struct sidecar_spec, ui) },
	{ "listen", "ADDR:PORT", "serve the API there, too, over TLS, to who has a token",
	  sidecar_set_http_addr },
	{ "tls-cert", "FILE", "with --listen: the certificate and its chain, PEM",
	  set_tls_cert },
	{ "tls-key", "FILE", "with --listen: its key, PEM", set_tls_key },
	{ "token-file", "FILE", "with --listen: what callers show, 16 letters at least",
	  set_token_file },
	{ "dns-upstream", "ADDR[:PORT]",
	  "name server to ask; may be repeated (resolv.conf)", sidecar_set_upstream,
	  ',' },
	{ "dns-upstream-timeout", "SECONDS", "how long one of them may take (5)",
	  OPTION_IN(NUMBER, struct sidecar_spec, upstream_timeout_sec), .least = 1,
	  .most = SIDECAR_TIMEOUT_MAX },
	{ "repin-interval", "TIME",
	  "how often names are resolved again under dns: pinned, unless the policy says "
	  "(6h)",
	  cli_option_repin, OPTION_IN(CUSTOM, struct sidecar_spec, repin_ms) },
	{ "resolv-conf", "FILE", "where name servers are taken from (/etc/resolv.conf)",
	  set_resolv_conf },
	{ "max-rules", "N", "the most rules that the API takes; 0: no limit (4096)",
	  sidecar_set_max_rules },
	{ "log-level", "debug|info|warn|error|fatal", "the least that is logged (info)",
	  sidecar_set_log_level },
	{ "log-output", "FILE",
	  "stdout, stderr or a file for the log; may be repeated (stdout)",
	  sidecar_set_log_output, ',' },
	{ "metrics-extra-attrs", "KEY=VALUE",
	  "added to metrics and log lines; may be repeated", sidecar_set_attr, ',' },
	{ "state-dir", "DIR", "where events are kept, or none (/var/lib/weir)",
	  set_state_dir },
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
};
static_assert(ARRAY_SIZE(options) <= CLI_OPTIONS_MAX, "every option has a bit");
const struct cli_options cli_daemon_options = { options, ARRAY_SIZE(options) };

void cli_daemon_usage(FILE *out)
{
	fputs("usage: weir daemon [OPTION]...\n\n"
	      "Guard any number of sandboxes of this host; `weir attach` adds one. Rules "
	      "stay\nwhen the daemon ends, and its next start guards the same sandboxes "
	      "again.\n\n",
	      out);
	cli_options_print(out, &cli_daemon_options);
	fputs("\nEach option has a variable: WEIR_SOCKET, WEIR_RUN_DIR; lists are parted "
	      "by\ncommas there, URLs by blanks. Root and members of the group weir may "
	      "use the\nAPI.\n\n"
	      "Exit status: 0 after SIGTERM; 1 the daemon can't start; 2 bad input.\n",
	      out);
}

static void set_defaults(struct sidecar_spec *spec)
{
	*spec = (struct sidecar_spec){
		.mode = SIDECAR_MODE_DNS_NFT_TLS,
		.is_daemon = true,
		.socket = CLI_DAEMON_SOCKET,
		.run_dir = CLI_DAEMON_RUN_DIR,
		.state_dir = "/var/lib/weir",
		.max_rules = SIDECAR_RULES_DEFAULT,
		.ui = true,
		.log_level = SIDECAR_LOG_INFO,
		.sandbox_id = "",
		.upstream_timeout_sec = SIDECAR_TIMEOUT_DEFAULT,
		.repin_ms = POLICY_REPIN_MS,
		.resolv_conf = "/etc/resolv.conf",
	};
}

/* Nobody is served over TCP without both TLS and a token. */
static int check_listen(const struct sidecar_spec *spec, struct err *err)
{
	const struct {
		const char *option, *file;
	} all[] = { { "tls-cert", spec->tls_cert },
		    { "tls-key", spec->tls_key },
		    { "token-file", spec->token_file } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		if (!all[i].file == !spec->http_addr)
			continue;
		return spec->http_addr
			       ? err_set(err, -EINVAL,
					 "--listen: --%s is needed: TCP is served with "
					 "TLS and a token alone",
					 all[i].option)
			       : err_set(err, -EINVAL,
					 "--%s: --listen is needed, which it is for",
					 all[i].option);
	}
	return 0;
}

int cli_daemon_parse(int argc, char **argv, struct sidecar_spec *ret, struct err *err)
{
	struct err all = { 0 }, one = { 0 };
	char shown[TEXT_ESCAPED_SIZE];
	uint64_t given = 0;
	int first;

	set_defaults(ret);
	ret->argv = argv;
	first = cli_options_parse(&cli_daemon_options, ret, argc, argv, &given, &all);
	if (first >= 0 && first < argc)
		err_set(&all, -EINVAL, "'%s' is one argument too many",
			text_escape(text_of(argv[first]), shown, sizeof(shown)));
	(void)!cli_options_environment(&cli_daemon_options, ret, &ret->arena, &given,
				       &one);
	if (err_also(&all, &one) < 0)
		return err_set(err, all.code, "%s", all.text);
	if (sidecar_check_stores(ret, err) < 0 || check_listen(ret, err) < 0)
		return err->code;
	if (ret->log_output_count == 0)
		ret->log_outputs[ret->log_output_count++] = "stdout";
	return sidecar_resolv_conf(ret, err);
}

int cli_helper_parse(int argc, char **argv, bool *ret_daemon, struct sidecar_spec *ret,
		     struct err *err)
{
	*ret_daemon = argc > 1 && strcmp(argv[1], "daemon") == 0;
	return *ret_daemon ? cli_daemon_parse(argc - 1, argv + 1, ret, err)
			   : cli_sidecar_parse(argc, argv, ret, err);
}
