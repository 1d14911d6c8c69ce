// SPDX-License-Identifier: Apache-2.0
/* What the values of the sidecar's options mean. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "proto/settings_internal.h"
#include "sys/resolv_conf.h"

enum { OWN_DNS_PORT = 15353, HOST_NAME_SIZE_MAX = 253 };

static int is_not(struct err *err, const char *value, const char *what)
{
	char shown[TEXT_ESCAPED_SIZE];

	return err_set(err, -EINVAL, "'%s' is not %s",
		       text_escape(text_of(value), shown, sizeof(shown)), what);
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
int sidecar_set_mode(void *target, const char *value, struct err *err)
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
int sidecar_set_http_addr(void *target, const char *value, struct err *err)
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

int sidecar_set_max_rules(void *target, const char *value, struct err *err)
{
	uint32_t n;

	if (!text_to_u32(text_of(value), UINT32_MAX, &n))
		return is_not(err, value, "a number of rules: 0 is no limit");
	((struct sidecar_spec *)target)->max_rules = n;
	return 0;
}

/* --- logs --- */

int sidecar_set_log_level(void *target, const char *value, struct err *err)
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

int sidecar_set_log_output(void *target, const char *value, struct err *err)
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

int sidecar_set_webhook(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return add_webhook(value, spec->webhooks, &spec->webhook_count, err);
}

int sidecar_set_review_webhook(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return add_webhook(value, spec->review_webhooks, &spec->review_webhook_count,
			   err);
}

int sidecar_set_review_command(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;

	return sidecar_set_path(spec, value, &spec->review_command, err);
}

int sidecar_check_stores(const struct sidecar_spec *spec, struct err *err)
{
	if (spec->state_dir)
		return 0;
	if (spec->postgres)
		return err_set(err, -EINVAL,
			       "--postgres: --state-dir is needed, which events are "
			       "copied from");
	if (spec->review_webhook_count > 0 || spec->review_command)
		return err_set(err, -EINVAL,
			       "--review-webhook and --review-command: --state-dir is "
			       "needed, where tasks are kept");
	return 0;
}

/* The first '=' parts key and value; a second value of a key replaces the first. */
int sidecar_set_attr(void *target, const char *value, struct err *err)
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
	while (i < spec->attr_count &&
	       !(spec->attrs[i].key.len == a.key.len &&
		 memcmp(spec->attrs[i].key.ptr, a.key.ptr, a.key.len) == 0))
		i++;
	if (i == SIDECAR_ATTRS_MAX)
		return too_many(err, SIDECAR_ATTRS_MAX);
	spec->attrs[i] = a;
	spec->attr_count = MAX(spec->attr_count, i + 1);
	return 0;
}

/* --- name servers --- */

int sidecar_set_exempt(void *target, const char *value, struct err *err)
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

int sidecar_set_api_host(void *target, const char *value, struct err *err)
{
	static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "abcdefghijklmnopqrstuvwxyz0123456789-_.";
	struct sidecar_spec *spec = target;
	size_t size = strlen(value);

	if (size == 0 || size > HOST_NAME_SIZE_MAX || strspn(value, letters) != size)
		return is_not(err, value, "a host name without a port");
	if (spec->api_host_count == SIDECAR_HOSTS_MAX)
		return too_many(err, SIDECAR_HOSTS_MAX);
	spec->api_hosts[spec->api_host_count++] = value;
	return 0;
}

static bool is_usable(const struct endpoint *e)
{
	switch (addr_special(&e->addr)) {
	case SPECIAL_INVALID:
	case SPECIAL_UNSPECIFIED:
	case SPECIAL_MULTICAST:
	case SPECIAL_BROADCAST:
		return false;
	case SPECIAL_LINK_LOCAL: /* needs a zone, which is not taken */
		return e->addr.family == ADDR_V4;
	case SPECIAL_LOOPBACK:
		return e->port != OWN_DNS_PORT;
	default:
		return e->port != 0;
	}
}

static bool same_endpoint(const struct endpoint *a, const struct endpoint *b)
{
	return addr_equal(&a->addr, &b->addr) && a->port == b->port;
}

static bool has_upstream(const struct sidecar_spec *spec, const struct endpoint *e)
{
	for (size_t i = 0; i < spec->upstream_count; i++) {
		if (same_endpoint(&spec->upstreams[i], e))
			return true;
	}
	return false;
}

/* Docker's resolver is told apart: Weir keeps its address to itself. */
static bool is_docker(const struct addr *a)
{
	const struct addr docker = addr_v4(127, 0, 0, 11);

	return addr_equal(a, &docker);
}

/* "[2001:db8::1]" without a port is taken too. */
static bool read_upstream(struct text t, struct endpoint *ret)
{
	if (t.len > 2 && t.ptr[0] == '[' && t.ptr[t.len - 1] == ']') {
		ret->port = 53;
		return addr_parse(t.ptr + 1, t.len - 2, &ret->addr) &&
		       ret->addr.family == ADDR_V6;
	}
	return endpoint_parse(t.ptr, t.len, 53, ret);
}

/* A server on a loopback address would be the app's to play; Docker's own isn't, nor is a
 * host's. */
static bool is_the_apps(const struct sidecar_spec *spec, const struct addr *a)
{
	return !spec->is_daemon && addr_special(a) == SPECIAL_LOOPBACK && !is_docker(a);
}

int sidecar_set_upstream(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct endpoint e;

	if (!read_upstream(text_trim(text_of(value)), &e) || e.port == 0 ||
	    !is_usable(&e))
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

static void on_server(void *data, const struct endpoint *server)
{
	struct sidecar_spec *spec = data;

	if (is_usable(server) && !is_the_apps(spec, &server->addr) &&
	    !has_upstream(spec, server) && spec->upstream_count < SIDECAR_RESOLV_CONF_MAX)
		spec->upstreams[spec->upstream_count++] = *server;
}

int sidecar_resolv_conf(struct sidecar_spec *spec, struct err *err)
{
	const char *path = spec->resolv_conf;
	char shown[TEXT_ESCAPED_SIZE];
	struct err why = { 0 };
	int r;

	if (spec->upstream_count > 0)
		return 0;
	r = resolv_conf_read(path, on_server, spec, &why);
	if (r < 0 && r != -ENOENT)
		return err_set(err, r, "%s; --dns-upstream names a name server",
			       why.text);
	/* Nobody on the Internet is asked for a host that names nobody. */
	if (spec->upstream_count > 0 || spec->is_daemon)
		return 0;
	sidecar_warn(spec,
		     "%s names no usable name server: asking 8.8.8.8; --dns-upstream "
		     "names another",
		     text_escape(text_of(path), shown, sizeof(shown)));
	return sidecar_set_upstream(spec, "8.8.8.8", err);
}

/* "." is the name servers of the root: a probe without a name. */
int sidecar_set_probe(void *target, const char *value, struct err *err)
{
	struct sidecar_spec *spec = target;
	struct dns_name n = { 0 };

	if (dns_name_parse(text_trim(text_of(value)), &n) < 0)
		return is_not(err, value, "a domain name");
	spec->probe_name = n.labels > 0 ? n : (struct dns_name){ 0 };
	return 0;
}

/* --- the rest --- */

int sidecar_set_doh(void *target, const char *value, struct err *err)
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
