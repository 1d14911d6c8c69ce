// SPDX-License-Identifier: Apache-2.0
#include "settings/settings.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "policy/limits.h"
#include "policy/policy.h"
#include "sys/resolv_conf.h"

enum {
	OWN_DNS_PORT = 15353,
	HOST_NAME_SIZE_MAX = 253,
	TIMEOUT_DEFAULT = 5, /* seconds */
	TIMEOUT_MAX = 120,
	PROBE_EVERY_DEFAULT = 30,
	PROBE_EVERY_MAX = 3600,
	RESOLV_CONF_MAX = 10, /* of its servers; more are left out */
};

void sidecar_warn(struct sidecar_spec *spec, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE];
	char *copy;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	copy = arena_text(&spec->arena, text_of(text));
	if (copy && spec->warning_count < ARRAY_SIZE(spec->warnings))
		spec->warnings[spec->warning_count++] = copy;
}

static int is_not(struct err *err, const char *value, const char *what)
{
	return err_set(err, -EINVAL, "'%s' is not %s", SHOWN(value), what);
}

static int too_many(struct err *err, unsigned int most)
{
	return err_set(err, -EINVAL, "more than %u are given", most);
}

/* --- mode --- */

static const char *const mode_names[SIDECAR_MODE_COUNT] = {
	[SIDECAR_MODE_NONE] = "none",
	[SIDECAR_MODE_DNS] = "dns",
	[SIDECAR_MODE_DNS_NFT] = "dns+nft",
	[SIDECAR_MODE_DNS_NFT_TLS] = "dns+nft+tls",
};

const char *sidecar_mode_name(enum sidecar_mode m)
{
	return m < SIDECAR_MODE_COUNT ? mode_names[m] : mode_names[SIDECAR_MODE_NONE];
}

/* The parts in any order and case, with blanks around them. */
static int set_mode(void *target, const char *value, struct err *err)
{
	static const char *const parts[] = { "dns", "nft", "tls" };
	static const enum sidecar_mode modes[] = {
		[1] = SIDECAR_MODE_DNS,
		[3] = SIDECAR_MODE_DNS_NFT,
		[7] = SIDECAR_MODE_DNS_NFT_TLS,
	};
	struct text rest = text_of(value), part;
	unsigned int has = 0;

	while (text_split(&rest, '+', &part)) {
		size_t i = 0;

		part = text_trim(part);
		while (i < ARRAY_SIZE(parts) && !text_equal_nocase(part, parts[i]))
			i++;
		if (i == ARRAY_SIZE(parts))
			return is_not(err, value,
				      "a mode: there are dns, dns+nft and dns+nft+tls");
		has |= 1u << i;
	}
	if (has >= ARRAY_SIZE(modes) || modes[has] == SIDECAR_MODE_NONE)
		return is_not(err, value,
			      "a mode: there are dns, dns+nft and dns+nft+tls");
	((struct sidecar_spec *)target)->mode = modes[has];
	return 0;
}

/* --- the API --- */

/* ":18080" is every address of both families, and so is "[::]:18080", as in Go. */
static int set_http_addr(void *target, const char *value, struct err *err)
{
	static const struct addr any6 = { .family = ADDR_V6 };
	struct sidecar_spec *spec = target;
	struct text t = text_trim(text_of(value));
	struct endpoint e = { 0 };
	uint32_t port = 0;
	bool good;

	if (t.len > 1 && t.ptr[0] == ':') {
		good = text_to_u32((struct text){ t.ptr + 1, t.len - 1 }, UINT16_MAX,
				   &port);
		e.port = (uint16_t)port;
	} else {
		good = t.len > 0 && endpoint_parse(t.ptr, t.len, 0, &e);
	}
	if (!good || e.port == 0)
		return is_not(err, value,
			      "an address to listen on: write :PORT, ADDR:PORT or "
			      "[IPV6]:PORT");
	if (addr_equal(&e.addr, &any6))
		e.addr = (struct addr){ 0 };
	spec->http = e;
	spec->http_addr = value;
	return 0;
}

/* --- logs --- */

static int set_log_level(void *target, const char *value, struct err *err)
{
	static const struct {
		const char *name;
		enum sidecar_log_level level;
	} names[] = {
		{ "debug", SIDECAR_LOG_DEBUG }, { "info", SIDECAR_LOG_INFO },
		{ "warn", SIDECAR_LOG_WARN },	{ "warning", SIDECAR_LOG_WARN },
		{ "error", SIDECAR_LOG_ERROR }, { "fatal", SIDECAR_LOG_FATAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (!text_equal_nocase(text_trim(text_of(value)), names[i].name))
			continue;
		((struct sidecar_spec *)target)->log_level = names[i].level;
		return 0;
	}
	return is_not(err, value,
		      "a level: there are debug, info, warn, error and fatal");
}

static int set_log_output(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	for (size_t i = 0; i < spec->log_output_count; i++) {
		if (strcmp(spec->log_outputs[i], value) == 0)
			return 0;
	}
	if (spec->log_output_count == SIDECAR_OUTPUTS_MAX)
		return too_many(err, SIDECAR_OUTPUTS_MAX);
	if (value[0] == '\0')
		return is_not(err, value, "stdout, stderr or a file");
	spec->log_outputs[spec->log_output_count++] = value;
	return 0;
}

static bool begins_with(const char *text, const char *start)
{
	return text_equal_nocase((struct text){ text, MIN(strlen(text), strlen(start)) },
				 start);
}

static int add_webhook(const char *value, const char **list, size_t *count,
		       struct err *err)
{
	if (!begins_with(value, "http://") && !begins_with(value, "https://"))
		return is_not(err, value, "a URL: write http:// or https://");
	if (*count == SIDECAR_WEBHOOKS_MAX)
		return too_many(err, SIDECAR_WEBHOOKS_MAX);
	list[(*count)++] = value;
	return 0;
}

static int set_webhook(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return add_webhook(value, spec->webhooks, &spec->webhook_count, err);
}

static int set_review_webhook(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return add_webhook(value, spec->review_webhooks, &spec->review_webhook_count,
			   err);
}

enum { REVIEW_URL_MAX = 256 };

/* As it stands in JSON and in front of a path. */
static int set_review_url(void *target, const char *value, struct err *err)
{
	static const char letters[] = TEXT_NAME_LETTERS ":/[]~%";
	struct sidecar_spec *spec = target;
	const size_t size = strlen(value);

	if (!begins_with(value, "https://") || strspn(value, letters) != size ||
	    size <= strlen("https://") || size > REVIEW_URL_MAX || value[size - 1] == '/')
		return is_not(err, value,
			      "a URL: write https://, a host, perhaps a port and a path, "
			      "and no slash at the end");
	spec->review_url = value;
	return 0;
}

static int set_postgres(void *target, const char *value, struct err *err)
{
	((struct sidecar_spec *)target)->postgres = value[0] ? value : NULL;
	return 0;
}

/* The first '=' parts key and value; a second value of a key replaces the first. */
static int set_attr(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct sidecar_attr a;
	struct text rest = text_of(value);
	size_t i = 0;

	if (!text_split(&rest, '=', &a.key) || !rest.ptr)
		return is_not(err, value, "KEY=VALUE");
	a.key = text_trim(a.key);
	a.value = text_trim(rest);
	if (a.key.len == 0 || a.value.len == 0)
		return is_not(err, value, "KEY=VALUE");
	while (i < spec->attr_count && !text_same(spec->attrs[i].key, a.key))
		i++;
	if (i == SIDECAR_ATTRS_MAX)
		return too_many(err, SIDECAR_ATTRS_MAX);
	spec->attrs[i] = a;
	spec->attr_count = MAX(spec->attr_count, i + 1);
	return 0;
}

/* --- name servers --- */

static int set_exempt(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct addr a;

	if (!addr_parse(value, strlen(value), &a))
		return is_not(err, value,
			      "an address: prefixes and names can't be exempt");
	for (size_t i = 0; i < spec->exempt_count; i++) {
		if (addr_equal(&spec->exempt[i], &a))
			return 0;
	}
	if (spec->exempt_count == SIDECAR_EXEMPT_MAX)
		return too_many(err, SIDECAR_EXEMPT_MAX);
	spec->exempt[spec->exempt_count++] = a;
	return 0;
}

static int set_api_host(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	if (!text_is_name(value, HOST_NAME_SIZE_MAX))
		return is_not(err, value, "a host name without a port");
	if (spec->api_host_count == SIDECAR_HOSTS_MAX)
		return too_many(err, SIDECAR_HOSTS_MAX);
	spec->api_hosts[spec->api_host_count++] = value;
	return 0;
}

static bool has_upstream(const struct sidecar_spec *spec, const struct endpoint *e)
{
	for (size_t i = 0; i < spec->upstream_count; i++) {
		const struct endpoint *u = &spec->upstreams[i];

		if (addr_equal(&u->addr, &e->addr) && u->port == e->port)
			return true;
	}
	return false;
}

/* Could the app play a server at this address? In a namespace that the app shares, it
 * could on every loopback address but Docker's, which Weir keeps for itself. */
static bool is_the_apps(const struct sidecar_spec *spec, const struct addr *a)
{
	const struct addr docker = addr_v4(127, 0, 0, 11);

	return !spec->is_daemon && addr_special(a) == SPECIAL_LOOPBACK &&
	       !addr_equal(a, &docker);
}

static int set_upstream(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct endpoint e;

	if (!name_server_parse(text_of(value), &e) ||
	    (addr_special(&e.addr) == SPECIAL_LOOPBACK && e.port == OWN_DNS_PORT))
		return is_not(err, value,
			      "a name server's address: ADDR, ADDR:PORT or [IPV6]:PORT");
	if (has_upstream(spec, &e))
		return 0;
	if (spec->upstream_count == SIDECAR_UPSTREAMS_MAX)
		return too_many(err, SIDECAR_UPSTREAMS_MAX);
	if (is_the_apps(spec, &e.addr))
		sidecar_warn(spec,
			     "'%s' is in the app's own namespace: whatever listens there "
			     "decides what allowed names mean",
			     value);
	spec->upstreams[spec->upstream_count++] = e;
	return 0;
}

/* "." is the name servers of the root: a probe without a name. */
static int set_probe(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct dns_name n = { 0 };

	if (dns_name_parse(text_trim(text_of(value)), &n) < 0)
		return is_not(err, value, "a domain name");
	spec->probe_name = n.labels > 0 ? n : (struct dns_name){ 0 };
	return 0;
}

/* --- the rest --- */

static int set_doh(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct prefix p;

	if (!prefix_parse(value, strlen(value), true, &p))
		return is_not(err, value, "an address or a prefix");
	if (spec->doh_count == SIDECAR_DOH_MAX)
		return too_many(err, SIDECAR_DOH_MAX);
	spec->doh[spec->doh_count++] = p;
	return 0;
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

/* --- the options ------------------------------------------------------------------ */

/* Each option once: the sidecar's own, those of both, the daemon's own. */
enum { SIDECAR_ROWS = 18, BOTH_ROWS = 16, DAEMON_ROWS = 9 };

#define IN(KIND, field) OPTION_IN(KIND, struct sidecar_spec, field)

static const struct cli_option options[] = {
	{ "mode", "dns|dns+nft|dns+nft+tls", "what is enforced (dns+nft)", set_mode },
	{ "rules", "JSON", "the first policy; without it everything is denied",
	  IN(TEXT, rules) },
	{ "policy", "FILE",
	  "the policy, before --rules; changes by the API are kept in it",
	  IN(TEXT, policy_file), .was = "policy-file" },
	{ "always-dir", "DIR",
	  "where deny.always, allow.always and log_skip.always are "
	  "(/var/egress/rules)",
	  IN(TEXT, static_rules_dir) },
	{ "http-addr", "[ADDR]:PORT", "where the API listens (:18080)", set_http_addr },
	{ "token", "TEXT", "what callers of the API show; better given as a variable",
	  IN(TEXT, token) },
	{ "api-open", NULL,
	  "without a token, let everybody who reaches the API change the policy",
	  IN(FLAG, api_open) },
	{ "nameserver-exempt", "ADDR",
	  "an address whose port 53 the app may ask by itself; may be repeated",
	  set_exempt, ',' },
	{ "block-doh-443", NULL,
	  "refuse port 443 of --doh-blocklist's addresses, or of all when it is empty",
	  IN(FLAG, block_doh_443) },
	{ "doh-blocklist", "CIDR", "an address or prefix of that list; may be repeated",
	  set_doh, ',' },
	{ "deny-webhook", "URL", "where denied names are sent; may be repeated",
	  set_webhook, ' ' },
	{ "id", "ID", "how this sandbox is named in logs, metrics and webhooks",
	  IN(TEXT, sandbox_id), .was = "sandbox-id" },
	{ "state-dir", "DIR", "where events are kept (in memory alone)",
	  IN(TEXT, state_dir) },
	{ "on-unenforceable", "fail|dns|open",
	  "what happens where the filter can't be installed (fail)",
	  IN(WORD, on_unenforceable) },
	{ "host-network-check", "on|off",
	  "whether the host's own network namespace is refused (on)",
	  IN(SWITCH, host_network_check) },
	{ "end-with-stdin", NULL,
	  "end when standard input ends, whose other end the starter of this holds",
	  IN(FLAG, end_with_stdin) },
	{ "healthy", NULL, "ask the sidecar that runs here whether it is, and leave",
	  IN(FLAG, healthy) },
	{ "remove", NULL, "take every rule away, and leave", IN(FLAG, remove) },

	{ "upstream", "ADDR[:PORT]", "name server to ask; may be repeated (resolv.conf)",
	  set_upstream, ',', .was = "dns-upstream" },
	{ "upstream-timeout", "SECONDS", "how long one of them may take (5)",
	  IN(NUMBER, upstream_timeout_sec), .least = 1, .most = TIMEOUT_MAX,
	  .was = "dns-upstream-timeout" },
	{ "upstream-probe", "NAME", "the name that probes ask for (the root's servers)",
	  set_probe, .was = "dns-upstream-probe" },
	{ "upstream-probe-interval", "SECONDS", "how often each is probed (30)",
	  IN(NUMBER, probe_every_sec), .least = 1, .most = PROBE_EVERY_MAX,
	  .was = "dns-upstream-probe-interval" },
	{ "resolv-conf", "FILE", "where name servers are taken from (/etc/resolv.conf)",
	  IN(TEXT, resolv_conf) },
	{ "max-rules", "N", "the most rules that the API takes; 0: no limit (4096)",
	  IN(NUMBER, max_rules), .most = UINT32_MAX },
	{ "api-host", "NAME",
	  "a name by which browsers may call the API without a token; may be repeated",
	  set_api_host, ',' },
	{ "ui", "on|off", "whether the API has a page for browsers, /ui/ (on)",
	  IN(SWITCH, ui) },
	{ "log-level", "debug|info|warn|error|fatal", "the least that is logged (info)",
	  set_log_level },
	{ "log-output", "FILE",
	  "stdout, stderr or a file for the log; may be repeated (stdout)",
	  set_log_output, ',' },
	{ "metrics-extra-attrs", "KEY=VALUE",
	  "added to metrics and log lines; may be repeated", set_attr, ',' },
	{ "jsonl", "FILE", "stdout, or a file for events, each a line of JSON",
	  IN(TEXT, jsonl) },
	{ "postgres", "CONNINFO",
	  "the PostgreSQL that events are copied to; better given as a variable",
	  set_postgres },
	{ "review-webhook", "URL",
	  "where review tasks are sent as they open; may be repeated", set_review_webhook,
	  ' ' },
	{ "review-url", "URL",
	  "where the API is reached by who decides: webhooks get links that decide",
	  set_review_url },
	{ "review-command", "PATH",
	  "a program that is run for each, with the task as JSON on its input",
	  IN(TEXT, review_command) },

	{ "socket", "PATH", "where the API listens (/run/weir/weir.sock)",
	  IN(TEXT, socket) },
	{ "run-dir", "DIR", "what a restart needs is kept there (/run/weir)",
	  IN(TEXT, run_dir) },
	{ "state-dir", "DIR", "where events are kept, or none (/var/lib/weir)",
	  IN(TEXT, state_dir) },
	{ "engines", "N|auto",
	  "processes that share the namespaces out among them; auto: as they come (auto)",
	  set_engines },
	{ "repin-interval", "TIME",
	  "how often names are resolved again under dns: pinned, unless the policy says "
	  "(6h)",
	  cli_option_repin, IN(CUSTOM, repin_ms) },
	{ "listen", "ADDR:PORT", "serve the API there, too, over TLS, to who has a token",
	  set_http_addr },
	{ "tls-cert", "FILE", "with --listen: the certificate and its chain, PEM",
	  IN(TEXT, tls_cert) },
	{ "tls-key", "FILE", "with --listen: its key, PEM", IN(TEXT, tls_key) },
	{ "token-file", "FILE", "with --listen: what callers show, 16 letters at least",
	  IN(TEXT, token_file) },
};
static_assert(ARRAY_SIZE(options) == SIDECAR_ROWS + BOTH_ROWS + DAEMON_ROWS,
	      "every option belongs to a verb");
static_assert(SIDECAR_ROWS + BOTH_ROWS <= CLI_OPTIONS_MAX, "every option has a bit");
const struct cli_options cli_sidecar_options = {
	.items = options,
	.count = SIDECAR_ROWS + BOTH_ROWS,
	.usage = "usage: weir sidecar [OPTION]...\n\n"
		 "Guard the network namespace that this runs in, as OpenSandbox's egress "
		 "sidecar\ndoes, with its variables, files and API.\n",
	.notes =
		"Each option has a variable: WEIR_MODE, WEIR_API_OPEN=1; lists are "
		"parted "
		"by\ncommas there, URLs by blanks. OPENSANDBOX_EGRESS_… count behind "
		"both.\n"
		"Rules stay when the sidecar ends, however it ends: only --remove, on "
		"the\n"
		"command line, takes them away.\n\n"
		"Exit status: 0 after SIGTERM and after --remove; 1 not --healthy; 2 bad "
		"input;\n125 Weir could not do what was asked.\n",
};
const struct cli_options cli_daemon_options = {
	.items = options + SIDECAR_ROWS,
	.count = BOTH_ROWS + DAEMON_ROWS,
	.usage = "usage: weir daemon [OPTION]...\n\n"
		 "Guard any number of sandboxes of this host; `weir attach` adds one. "
		 "Rules "
		 "stay\nwhen the daemon ends, and its next start guards the same "
		 "sandboxes "
		 "again.\n",
	.notes =
		"Each option has a variable: WEIR_SOCKET, WEIR_RUN_DIR; lists are parted "
		"by\ncommas there, URLs by blanks. Root and members of the group weir "
		"may "
		"use the\nAPI.\n\n"
		"Exit status: 0 after SIGTERM; 1 the daemon can't start; 2 bad input.\n",
};

/* --- reading ---------------------------------------------------------------------- */

/* Paths that mean the same wherever the process will stand. */
static int make_paths_absolute(struct sidecar_spec *spec, struct err *err)
{
	const char **const paths[] = {
		&spec->policy_file, &spec->static_rules_dir,
		&spec->resolv_conf, &spec->state_dir,
		&spec->jsonl,	    &spec->review_command,
		&spec->socket,	    &spec->run_dir,
		&spec->tls_cert,    &spec->tls_key,
		&spec->token_file,
	};

	if (spec->is_daemon && spec->state_dir && strcmp(spec->state_dir, "none") == 0)
		spec->state_dir = NULL;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const char *path = *paths[i];
		CLEAN(mem) char *here = NULL;

		if (!path || path[0] == '/' ||
		    (path == spec->jsonl && strcmp(path, "stdout") == 0))
			continue;
		here = get_current_dir_name();
		*paths[i] = here ? arena_printf(&spec->arena, "%s/%s", here, path) : NULL;
		if (!*paths[i])
			return err_sys(err, -errno, "cannot find the current directory");
	}
	return 0;
}

/* Every option of @table, from the command line and the environment. Adds to @all. */
static void read_options(struct sidecar_spec *spec, const struct cli_options *table,
			 int argc, char **argv, struct err *all)
{
	struct err one = { 0 };
	bool remove, healthy;

	spec->argv = argv;
	(void)!cli_options_only(table, spec, argc, argv, &spec->given, all);
	/* What a call is for is said by the call: a variable that every process of the
	 * container has must not open it, nor end its start. */
	remove = spec->remove;
	healthy = spec->healthy;
	(void)!cli_options_environment(table, spec, &spec->arena, &spec->given, &one);
	err_also(all, &one);
	spec->remove = remove;
	spec->healthy = healthy;
}

/* What events and tasks go out by has a store. Adds to @all. */
static void check_outputs(const struct sidecar_spec *spec, struct err *all)
{
	struct err stores = { 0 }, links = { 0 };

	if (!spec->state_dir && spec->postgres)
		err_set(&stores, -EINVAL,
			"--postgres: --state-dir is needed, which events are "
			"copied from");
	else if (!spec->state_dir &&
		 (spec->review_webhook_count > 0 || spec->review_command))
		err_set(&stores, -EINVAL,
			"--review-webhook and --review-command: --state-dir is "
			"needed, where tasks are kept");
	if (spec->review_url && spec->review_webhook_count == 0)
		err_set(&links, -EINVAL,
			"--review-url: --review-webhook is needed, which its links "
			"are sent to");
	/* Whoever reads a link on its way may use it. */
	for (size_t i = 0; spec->review_url && i < spec->review_webhook_count; i++)
		if (!begins_with(spec->review_webhooks[i], "https://"))
			err_set(&links, -EINVAL,
				"--review-webhook: with --review-url it has to be "
				"https://, for links decide");
	err_also(all, &stores);
	err_also(all, &links);
}

static void on_server(void *data, const struct endpoint *server)
{
	struct sidecar_spec *spec = data;

	if (!is_the_apps(spec, &server->addr) && !has_upstream(spec, server) &&
	    spec->upstream_count < RESOLV_CONF_MAX)
		spec->upstreams[spec->upstream_count++] = *server;
}

static int add_resolv_conf(struct sidecar_spec *spec, struct err *err)
{
	const char *path = spec->resolv_conf;
	struct err why = { 0 };
	int r;

	if (spec->upstream_count > 0)
		return 0;
	r = resolv_conf_read(path, on_server, spec, &why);
	if (r < 0 && r != -ENOENT)
		return err_set(err, r, "%s; --upstream names a name server", why.text);
	/* Nobody on the Internet is asked for a host that names nobody. */
	if (spec->upstream_count > 0 || spec->is_daemon)
		return 0;
	sidecar_warn(spec,
		     "%s names no usable name server: asking 8.8.8.8; --upstream "
		     "names another",
		     SHOWN(path));
	return set_upstream(spec, "8.8.8.8", err);
}

/* What holds for both, once every option has been read. Adds to @all. */
static void check_whole(struct sidecar_spec *spec, struct err *all)
{
	struct err paths = { 0 }, servers = { 0 };

	(void)!make_paths_absolute(spec, &paths);
	err_also(all, &paths);
	check_outputs(spec, all);
	if (!spec->remove && !spec->healthy)
		(void)!add_resolv_conf(spec, &servers);
	err_also(all, &servers);
	if (spec->log_output_count == 0)
		spec->log_outputs[spec->log_output_count++] = "stdout";
}

int cli_sidecar_parse(int argc, char **argv, struct sidecar_spec *ret, struct err *err)
{
	struct err all = { 0 };
	const char *stray;
	struct text token;

	*ret = (struct sidecar_spec){
		.mode = SIDECAR_MODE_DNS_NFT,
		.static_rules_dir = "/var/egress/rules",
		.http_addr = ":18080",
		.http = { .port = 18080 },
		.max_rules = SIDECAR_RULES_DEFAULT,
		.log_level = SIDECAR_LOG_INFO,
		.sandbox_id = "",
		.upstream_timeout_sec = TIMEOUT_DEFAULT,
		.probe_every_sec = PROBE_EVERY_DEFAULT,
		.host_network_check = true,
		.ui = true,
		.resolv_conf = "/etc/resolv.conf",
	};
	read_options(ret, &cli_sidecar_options, argc, argv, &all);
	sidecar_read_opensandbox(ret, &all);
	stray = cli_options_stray_variable(&cli_sidecar_options);
	if (stray)
		sidecar_warn(ret, "%s is a variable of no option, ignoring",
			     TEXT_SHOWN((struct text){ stray, strcspn(stray, "=") }));
	/* A header's value has no white space at its ends. */
	token = text_of(ret->token ?: "");
	if (text_trim(token).len != token.len)
		sidecar_warn(ret, "the token begins or ends with white space, which no "
				  "caller can show: every call of the API is refused");
	if (token.len > 0 && ret->api_open)
		sidecar_warn(ret, "--api-open opens nothing where there is a token");
	if (ret->doh_count > 0 && !ret->block_doh_443)
		sidecar_warn(ret, "--doh-blocklist does nothing without "
				  "--block-doh-443");
	check_whole(ret, &all);
	if (ret->mode == SIDECAR_MODE_DNS)
		sidecar_warn(ret, "mode dns refuses names alone: a program that knows an "
				  "address reaches it");
	return all.code < 0 ? err_set(err, -EINVAL, "%s", all.text) : 0;
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
	struct err all = { 0 }, listen = { 0 };

	*ret = (struct sidecar_spec){
		.mode = SIDECAR_MODE_DNS_NFT_TLS,
		.is_daemon = true,
		.socket = CLI_DAEMON_SOCKET,
		.run_dir = CLI_DAEMON_RUN_DIR,
		.state_dir = "/var/lib/weir",
		.max_rules = SIDECAR_RULES_DEFAULT,
		.ui = true,
		.log_level = SIDECAR_LOG_INFO,
		.sandbox_id = "",
		.upstream_timeout_sec = TIMEOUT_DEFAULT,
		.probe_every_sec = PROBE_EVERY_DEFAULT,
		.repin_ms = POLICY_REPIN_MS,
		.resolv_conf = "/etc/resolv.conf",
	};
	read_options(ret, &cli_daemon_options, argc, argv, &all);
	check_whole(ret, &all);
	(void)!check_listen(ret, &listen);
	err_also(&all, &listen);
	return all.code < 0 ? err_set(err, all.code, "%s", all.text) : 0;
}

int cli_helper_parse(int argc, char **argv, bool *ret_daemon, struct sidecar_spec *ret,
		     struct err *err)
{
	*ret_daemon = argc > 1 && strcmp(argv[1], "daemon") == 0;
	return *ret_daemon ? cli_daemon_parse(argc - 1, argv + 1, ret, err)
			   : cli_sidecar_parse(argc, argv, ret, err);
}

void settings_wipe_token(struct sidecar_spec *spec)
{
	/* An argument or a variable, both of which are this process' own. */
	if (spec->token)
		explicit_bzero((void *)(uintptr_t)spec->token, strlen(spec->token));
	spec->token = NULL;
}
