// SPDX-License-Identifier: Apache-2.0
/* Lists of names, in the settings of sandbox-runtime, Claude Code, Codex and
 * harden-runner.
 *
 * A key beside the lists that isn't known may narrow what they open, so that it is an
 * error unless it says nothing. */
#include <string.h>

#include "tools/import.h"

static const struct import_ports all_ports = { .all = true };

/* What a key beside the lists is. */
struct known_key {
	const char *key;
	const char *left_out; /* why; NULL: it says nothing about what is reached */
};

/* false, null, or empty */
static bool is_idle(const struct node *n)
{
	switch (n->kind) {
	case NODE_NULL:
		return true;
	case NODE_BOOL:
		return text_equal(n->text, "false");
	case NODE_TEXT:
		return n->text.len == 0;
	case NODE_LIST:
	case NODE_MAP:
		return n->count == 0;
	default:
		return false;
	}
}

static void read_other_key(struct import *im, const struct node *n, const char *path,
			   const struct known_key *known, size_t count)
{
	if (is_idle(n))
		return;
	for (size_t i = 0; i < count; i++)
		if (text_equal(n->key, known[i].key)) {
			if (known[i].left_out)
				import_left_out(im, n, path, known[i].left_out);
			return;
		}
	import_fault(im, n, path, IMPORT_CANNOT_BE_SAID);
}

/* --- names with ports --- */

/* "host", "host:443", "[::1]:443"; port 0: there is none. */
static bool split_port(struct text t, struct text *ret_host, uint32_t *ret_port)
{
	const bool bracket = t.len > 0 && t.ptr[0] == '[';
	const char *host_end = bracket ? memchr(t.ptr, ']', t.len) : NULL;
	const char *rest = host_end ? host_end + 1 : memchr(t.ptr, ':', t.len);
	const char *end = t.ptr + t.len;

	*ret_host = t;
	*ret_port = 0;
	if (bracket && !host_end)
		return false;
	if (!bracket && rest && memchr(rest + 1, ':', (size_t)(end - rest - 1)))
		return true; /* an IPv6 address without a port */
	if (bracket)
		*ret_host = (struct text){ t.ptr + 1, (size_t)(host_end - t.ptr - 1) };
	if (!rest || rest == end)
		return true;
	if (!bracket)
		ret_host->len = (size_t)(rest - t.ptr);
	return *rest == ':' &&
	       text_to_u32((struct text){ rest + 1, (size_t)(end - rest - 1) },
			   UINT16_MAX, ret_port) &&
	       *ret_port > 0;
}

/* None of these tools knows blocks of addresses, and Codex alone "**.". */
static void add_name(struct import *im, enum policy_action action, struct text t,
		     const struct import_ports *ports, bool two_stars,
		     const struct node *at, const char *path)
{
	if (memchr(t.ptr, '/', t.len) ||
	    (!two_stars && t.len > 1 && memcmp(t.ptr, "**", 2) == 0))
		import_fault_text(im, at, path, t, "is not a name");
	else
		import_add(im, action, t, ports, at, path);
}

/* "host:port" or, unless @needs_port, "host" as these tools mean it. */
static void read_target(struct import *im, enum policy_action action, struct text t,
			bool needs_port, const struct node *at, const char *path)
{
	struct import_ports ports = { 0 };
	struct text host;
	struct addr a;
	uint32_t port;

	if (!split_port(t, &host, &port) || (needs_port && port == 0)) {
		import_fault_text(im, at, path, t, "is not host:port");
		return;
	}
	ports.all = port == 0;
	/* Of an address "all" has UDP, too, which a name's rule has not. */
	if (ports.all && action == POLICY_ALLOW && addr_parse(host.ptr, host.len, &a))
		import_ports_tcp(&ports);
	if (port > 0)
		import_ports_add(im, &ports,
				 (struct plan_port_range){ .protocol = IPPROTO_TCP,
							   .from = (uint16_t)port,
							   .to = (uint16_t)port },
				 at);
	if (action == POLICY_DENY && text_equal(host, "*"))
		import_deny_all(im, &ports, at);
	else
		add_name(im, action, host, &ports, false, at, path);
}

static void read_list(struct import *im, const struct node *list,
		      enum policy_action action, const char *path)
{
	if (list->kind == NODE_NULL)
		return;
	if (list->kind != NODE_LIST) {
		import_fault(im, list, path, "this is not a list");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next) {
		if (n->kind == NODE_TEXT)
			read_target(im, action, n->text, false, n, path);
		else
			import_fault(im, n, path, "this is not a name");
	}
}

/* --- sandbox-runtime, and Claude Code, which uses it --- */

static const struct known_key network_keys[] = {
	{ "strictAllowlist", NULL },
	{ "deniedDomainReasons", NULL },
	{ "allowMachLookup", NULL },
	{ "allowLocalBinding", "a sandbox listens on a loopback of its own anyway" },
	{ "allowUnixSockets", "unix sockets of the host stay out of reach" },
	{ "allowAllUnixSockets", "unix sockets of the host stay out of reach" },
};

static bool is_network(const struct node *n)
{
	return n->kind == NODE_MAP && text_equal(n->key, "network") &&
	       (node_find(n, text_of("allowedDomains")) ||
		node_find(n, text_of("deniedDomains")));
}

static void read_network(struct import *im, const struct node *map, const char *path)
{
	for (const struct node *n = map->first; n; n = n->next) {
		const char *at = import_path(im, path, n->key);

		if (text_equal(n->key, "deniedDomains"))
			read_list(im, n, POLICY_DENY, at);
		else if (text_equal(n->key, "allowedDomains"))
			read_list(im, n, POLICY_ALLOW, at);
		else
			read_other_key(im, n, at, network_keys, ARRAY_SIZE(network_keys));
	}
}

/* "WebFetch(domain:NAME)" allows or denies NAME to commands as well; what else stands in
 * these lists is not about the network. */
static void read_permission(struct import *im, const struct node *n, const char *key,
			    const char *path)
{
	static const char start[] = "WebFetch(domain:";
	const size_t len = sizeof(start) - 1;
	struct text t = n->text;

	if (n->kind != NODE_TEXT || t.len < strlen("WebFetch") ||
	    memcmp(t.ptr, start, strlen("WebFetch")) != 0)
		return;
	if (t.len <= len + 1 || memcmp(t.ptr, start, len) != 0 ||
	    t.ptr[t.len - 1] != ')') {
		import_left_out(im, n, path, "this names no domain");
		return;
	}
	t = (struct text){ t.ptr + len, t.len - len - 1 };
	if (strcmp(key, "ask") == 0)
		import_left_out(im, n, path, "a policy has no rule that asks a person");
	else
		read_target(im, strcmp(key, "deny") == 0 ? POLICY_DENY : POLICY_ALLOW, t,
			    false, n, path);
}

static void read_permissions(struct import *im, const struct node *root)
{
	static const char *const keys[] = { "allow", "deny", "ask" };
	const struct node *permissions = node_find(root, text_of("permissions"));
	const struct node *sandbox = node_find(root, text_of("sandbox"));
	const struct node *network = sandbox ? node_find(sandbox, text_of("network"))
					     : NULL;

	/* --at names another place, and these are not narrowed by its lists. */
	if (im->place && !im->found)
		return;
	for (size_t i = 0; permissions && i < ARRAY_SIZE(keys); i++) {
		const struct node *list = node_find(permissions, text_of(keys[i]));
		const char *path = import_path(im, "permissions", text_of(keys[i]));

		for (const struct node *n = list && list->kind == NODE_LIST ? list->first
									    : NULL;
		     n; n = n->next) {
			const size_t count = im->count;

			read_permission(im, n, keys[i], path);
			if (im->count > count && !im->found)
				im->found = "permissions";
		}
	}
	/* Without lists of its own it may narrow these. */
	if (im->found && network && !is_network(network))
		read_network(im, network, "sandbox.network");
}

/* --- harden-runner --- */

/* Words between white space, the way a block of lines comes. */
static void read_endpoints(struct import *im, const struct node *n, const char *path)
{
	const char *p = n->text.ptr, *end = p + n->text.len;

	if (n->kind == NODE_LIST) {
		for (const struct node *i = n->first; i; i = i->next)
			read_endpoints(im, i, path);
		return;
	}
	if (n->kind == NODE_NULL)
		return;
	if (n->kind != NODE_TEXT) {
		import_fault(im, n, path, "this is not host:port");
		return;
	}
	while (p < end) {
		const char *word = p;

		while (p < end && !strchr(" \t\r\n", *p))
			p++;
		if (p > word)
			read_target(im, POLICY_ALLOW,
				    (struct text){ word, (size_t)(p - word) }, true, n,
				    path);
		else
			p++;
	}
}

/* Depth is NODE_DEPTH_MAX at most. */
static void search(struct import *im, const struct node *parent, const char *path,
		   unsigned int lists)
{
	size_t i = 0;

	for (const struct node *n = parent->first; n; n = n->next, i++) {
		const char *at = parent->kind == NODE_LIST
					 ? import_item_path(im, path, i)
					 : import_path(im, path, n->key);

		if (lists & IMPORT_NETWORK && is_network(n)) {
			if (import_claim(im, n, at))
				read_network(im, n, at);
		} else if (lists & IMPORT_ENDPOINTS && parent->kind == NODE_MAP &&
			   text_equal(n->key, "allowed-endpoints")) {
			if (import_claim(im, n, at))
				read_endpoints(im, n, at);
		} else if (n->kind == NODE_MAP || n->kind == NODE_LIST) {
			search(im, n, at, lists);
		}
	}
}

/* --- Codex --- */

static const struct known_key codex_keys[] = {
	{ "proxy_url", NULL },
	{ "admin_url", NULL },
	{ "socks_url", NULL },
	{ "enable_socks5", NULL },
	{ "enable_socks5_udp", NULL },
	{ "dangerously_allow_non_loopback_proxy", NULL },
	{ "dangerously_allow_non_loopback_admin", NULL },
	{ "allow_local_binding",
	  "names teach private addresses only with `private: true` in their rule" },
	{ "allow_unix_sockets", "unix sockets of the host stay out of reach" },
	{ "unix_sockets", "unix sockets of the host stay out of reach" },
	{ "dangerously_allow_all_unix_sockets",
	  "unix sockets of the host stay out of reach" },
};

/* "pattern" = "allow" */
static void read_domains(struct import *im, const struct node *map, const char *path)
{
	if (map->kind != NODE_MAP) {
		import_fault(im, map, path, "this is not a table of names");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		const bool allow = text_equal(n->text, "allow");

		if (n->kind != NODE_TEXT || (!allow && !text_equal(n->text, "deny")))
			import_fault_text(im, n, path, n->text, "is not allow or deny");
		else
			add_name(im, allow ? POLICY_ALLOW : POLICY_DENY, n->key,
				 &all_ports, true, n, path);
	}
}

/* allowed_domains = ["pattern"] */
static void read_patterns(struct import *im, const struct node *list,
			  enum policy_action action, const char *path)
{
	if (list->kind != NODE_LIST)
		import_fault(im, list, path, "this is not a list");
	for (const struct node *n = list->first; n; n = n->next) {
		if (n->kind == NODE_TEXT)
			add_name(im, action, n->text, &all_ports, true, n, path);
		else
			import_fault(im, n, path, "this is not a name");
	}
}

static void read_codex_key(struct import *im, const struct node *n, const char *path)
{
	if (text_equal(n->key, "domains"))
		read_domains(im, n, path);
	else if (text_equal(n->key, "allowed_domains"))
		read_patterns(im, n, POLICY_ALLOW, path);
	else if (text_equal(n->key, "denied_domains"))
		read_patterns(im, n, POLICY_DENY, path);
	else if (text_equal(n->key, "mode") && text_equal(n->text, "limited"))
		import_fault(im, n, path,
			     "'limited' lets only some HTTP methods pass, which can't be "
			     "said in a policy; take it out to import the rest");
	else if (!text_equal(n->key, "enabled") && !text_equal(n->key, "mode"))
		read_other_key(im, n, path, codex_keys, ARRAY_SIZE(codex_keys));
}

/* What isn't said to be on is off, and opens nothing. */
static void read_codex_network(struct import *im, const struct node *map,
			       const char *path)
{
	const struct node *enabled = node_find(map, text_of("enabled"));

	if (!enabled || !text_equal(enabled->text, "true")) {
		import_left_out(im, map, path, "it is not enabled");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		const char *at = import_path(im, path, n->key);

		if (!text_equal(n->key, "policy") || n->kind != NODE_MAP) {
			read_codex_key(im, n, at);
			continue;
		}
		for (const struct node *p = n->first; p; p = p->next)
			read_codex_key(im, p, import_path(im, at, p->key));
	}
}

/* A profile that builds on another one of the file's may get more from it, or less. */
static void read_profile(struct import *im, const struct node *profile,
			 const struct node *network, const char *path)
{
	const struct node *parent = node_find(profile, text_of("extends"));

	if (!import_claim(im, network, path))
		return;
	if (parent && (parent->text.len == 0 || parent->text.ptr[0] != ':'))
		import_fault(im, parent, path, "what another profile says isn't read");
	read_codex_network(im, network, path);
}

static void import_codex(struct import *im, const struct node *root)
{
	static const char *const tables[] = { "network_proxy", "experimental_network" };
	const struct node *profiles = node_find(root, text_of("permissions"));
	const struct node *chosen = node_find(root, text_of("default_permissions"));
	const struct node *legacy = node_find(root, text_of("sandbox_workspace_write"));
	const struct node *access = legacy ? node_find(legacy, text_of("network_access"))
					   : NULL;

	for (const struct node *p = profiles ? profiles->first : NULL; p; p = p->next) {
		const struct node *network = node_find(p, text_of("network"));
		const char *path = import_path(im, "permissions", p->key);

		/* The profile in force, unless --at names another. */
		if (!network || network->kind != NODE_MAP ||
		    (!im->place && chosen &&
		     (chosen->text.len != p->key.len ||
		      memcmp(chosen->text.ptr, p->key.ptr, p->key.len) != 0)))
			continue;
		read_profile(im, p, network, import_path(im, path, text_of("network")));
	}
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		const struct node *n = node_find(root, text_of(tables[i]));

		if (n && n->kind == NODE_MAP && import_claim(im, n, tables[i]))
			read_codex_network(im, n, tables[i]);
	}
	if (im->found || !access || im->place)
		return;
	im->found = "sandbox_workspace_write.network_access";
	if (!is_idle(access))
		import_fault(im, access, im->found,
			     "this opens everything; a policy lists what is open");
}

/* --- all of them --- */

void import_lists(struct import *im, const struct node *root, unsigned int lists)
{
	if (lists & (IMPORT_NETWORK | IMPORT_ENDPOINTS))
		search(im, root, "", lists);
	if (lists & IMPORT_WEB_FETCH && root->kind == NODE_MAP)
		read_permissions(im, root);
	if (lists & IMPORT_CODEX && root->kind == NODE_MAP)
		import_codex(im, root);
}
