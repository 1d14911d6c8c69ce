// SPDX-License-Identifier: Apache-2.0
/* settings/settings - the options of `weir sidecar` and `weir daemon`: each a flag and a
 * WEIR_ variable. The sidecar also reads OpenSandbox's OPENSANDBOX_ variables, where
 * there is one (opensandbox.c). A flag counts before WEIR_, and WEIR_ before
 * OPENSANDBOX_.
 */
#pragma once

#include "base/addr.h"
#include "dns/name.h"
#include "sys/options.h"

enum {
	SIDECAR_UPSTREAMS_MAX = 16,
	SIDECAR_EXEMPT_MAX = 64,
	SIDECAR_HOSTS_MAX = 16,
	SIDECAR_DOH_MAX = 1024,
	SIDECAR_ATTRS_MAX = 32,
	SIDECAR_OUTPUTS_MAX = 8,
	SIDECAR_WEBHOOKS_MAX = 4,
	SIDECAR_RULES_DEFAULT = 4096,
};

enum sidecar_mode {
	SIDECAR_MODE_NONE = 0,
	SIDECAR_MODE_DNS,
	SIDECAR_MODE_DNS_NFT, /* what unset means */
	SIDECAR_MODE_DNS_NFT_TLS,
	SIDECAR_MODE_COUNT
};
/* "dns", "dns+nft", "dns+nft+tls" */
const char *sidecar_mode_name(enum sidecar_mode m);

/* What happens where the enforcement that was asked for isn't possible. */
enum sidecar_unenforceable {
	SIDECAR_FAIL = 0, /* the start ends */
	SIDECAR_DNS,	  /* the redirect alone, if that is possible */
	SIDECAR_OPEN,	  /* nothing is enforced, with a warning */
	SIDECAR_UNENFORCEABLE_COUNT
};

enum sidecar_log_level {
	SIDECAR_LOG_DEBUG = 0,
	SIDECAR_LOG_INFO,
	SIDECAR_LOG_WARN,
	SIDECAR_LOG_ERROR,
	SIDECAR_LOG_FATAL,
	SIDECAR_LOG_COUNT
};

struct sidecar_attr {
	struct text key, value;
};

struct sidecar_spec {
	enum sidecar_mode mode;
	enum sidecar_unenforceable on_unenforceable;
	const char *rules;	      /* JSON, or NULL */
	const char *policy_file;      /* or NULL: nothing is kept */
	const char *static_rules_dir; /* deny.always, allow.always, log_skip.always */
	const char *http_addr;	      /* as given, for messages */
	struct endpoint http; /* family ADDR_NONE: all addresses of both families */
	const char *token;    /* NULL or "": none */
	bool api_open;
	const char *api_hosts[SIDECAR_HOSTS_MAX]; /* names of it that browsers may use */
	size_t api_host_count;
	uint32_t max_rules; /* 0: no limit */
	enum sidecar_log_level log_level;
	const char *log_outputs[SIDECAR_OUTPUTS_MAX]; /* "stdout", "stderr", paths */
	size_t log_output_count;
	const char *webhooks[SIDECAR_WEBHOOKS_MAX];
	size_t webhook_count;
	const char *review_webhooks[SIDECAR_WEBHOOKS_MAX];
	size_t review_webhook_count;
	const char *review_url;	    /* of the API, for links; NULL: none are sent */
	const char *review_command; /* a path, or NULL */
	const char *sandbox_id;	    /* "" when none */
	struct sidecar_attr attrs[SIDECAR_ATTRS_MAX];
	size_t attr_count;
	struct addr exempt[SIDECAR_EXEMPT_MAX];
	size_t exempt_count;
	/* resolv.conf's when none was given; where that has none either, the sidecar has
	 * 8.8.8.8, as OpenSandbox's, and the daemon none. */
	struct endpoint upstreams[SIDECAR_UPSTREAMS_MAX];
	size_t upstream_count;
	uint32_t upstream_timeout_sec, probe_every_sec;
	struct dns_name probe_name; /* size 0: NS of the root */
	bool block_doh_443;
	struct prefix doh[SIDECAR_DOH_MAX];
	size_t doh_count;
	const char *state_dir;	 /* NULL: events are in memory alone */
	const char *jsonl;	 /* "stdout" or a file of events; NULL: none */
	const char *postgres;	 /* conninfo of where they are copied; NULL: nowhere */
	bool host_network_check; /* true unless "off" is spelled */
	bool ui;		 /* the API has a page; likewise */
	bool remove;		 /* --remove: take every rule away, and leave */
	bool end_with_stdin;
	bool healthy; /* --healthy: ask the sidecar at @http whether it is, and leave */
	const char *resolv_conf; /* for tests; /etc/resolv.conf */
	/* Of `weir daemon` alone. */
	bool is_daemon; /* loopback is the host's, and no app's */
	const char *socket, *run_dir;
	int64_t repin_ms; /* dns: pinned: how often, where a policy doesn't say */
	uint32_t engines; /* of the daemon; 0: as many as there is need for */
	/* The API over TCP, at @http: all of them, or none. */
	const char *tls_cert, *tls_key, *token_file;
	struct arena arena;
	uint64_t given;
	char **argv; /* as they came, argv[0] is "sidecar"; NULL-ended; borrowed */
	/* What is worth a warning, but no reason not to start; in @arena. */
	const char *warnings[32];
	size_t warning_count;
};

#define CLI_DAEMON_SOCKET  "/run/weir/weir.sock"
#define CLI_DAEMON_RUN_DIR "/run/weir"

enum { CLI_DAEMON_ENGINES_MAX = 64 };

/* Read @argv and the environment; @argv[0] is "sidecar" or "daemon".
 * Return: 0, or -EINVAL with every fault in @err. */
int cli_sidecar_parse(int argc, char **argv, struct sidecar_spec *ret,
		      struct err *err) MUST_CHECK;
int cli_daemon_parse(int argc, char **argv, struct sidecar_spec *ret,
		     struct err *err) MUST_CHECK;
/* The same for weir-control and its like, which are started with the words of the one or
 * the other: a daemon's begin with "daemon". */
int cli_helper_parse(int argc, char **argv, bool *ret_daemon, struct sidecar_spec *ret,
		     struct err *err) MUST_CHECK;
/* Wipe the API's token, in @spec and where that has it from: control alone needs it. */
void settings_wipe_token(struct sidecar_spec *spec);
extern const struct cli_options cli_sidecar_options, cli_daemon_options;

/* Read OpenSandbox's variables for options that neither the command line nor a WEIR_
 * variable set. Faults go to @all; a variable that means nothing here becomes a warning.
 */
void sidecar_read_opensandbox(struct sidecar_spec *spec, struct err *all);
/* Add a warning. What is over the maximum is left out. */
void sidecar_warn(struct sidecar_spec *spec, const char *fmt, ...) PRINTF_LIKE(2, 3);
