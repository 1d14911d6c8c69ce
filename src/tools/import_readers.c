// SPDX-License-Identifier: Apache-2.0
#include "tools/import.h"

#include <netinet/in.h>
#include <string.h>

/* === lists of names ===
 *
 * In the settings of sandbox-runtime, Claude Code, Codex and
 * harden-runner.
 *
 * A key beside the lists that isn't known may narrow what they open, so that it is an
 * error unless it says nothing. */

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

static void read_other_key(struct import *im, const struct node *n,
			   const struct known_key *known, size_t count)
{
	const struct known_key *key = text_find(n->key, known, count, sizeof(*known));

	if (is_idle(n))
		return;
	if (!key)
		import_fault(im, n, IMPORT_CANNOT_BE_SAID);
	else if (key->left_out)
		import_left_out(im, n, key->left_out);
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

/* None of these tools knows blocks of addresses, and Codex alone "**.". What they let
 * pass is TCP alone: a rule without ports would open UDP, too. */
static void add_name(struct import *im, enum policy_action action, struct text t,
		     const struct import_ports *ports, bool two_stars,
		     const struct node *at)
{
	struct import_ports own = *ports;

	if (action == POLICY_ALLOW)
		import_ports_tcp(&own);
	if (memchr(t.ptr, '/', t.len) ||
	    (!two_stars && t.len > 1 && memcmp(t.ptr, "**", 2) == 0))
		import_fault_text(im, at, t, "is not a name");
	else
		import_add(im, action, t, &own, at);
}

/* "host:port" or, unless @needs_port, "host" as these tools mean it. */
static void read_target(struct import *im, enum policy_action action, struct text t,
			bool needs_port, const struct node *at)
{
	struct import_ports ports = { 0 };
	struct text host;
	uint32_t port;

	if (!split_port(t, &host, &port) || (needs_port && port == 0)) {
		import_fault_text(im, at, t, "is not host:port");
		return;
	}
	ports.all = port == 0;
	if (port > 0)
		import_ports_add(im, &ports,
				 (struct plan_port_range){ .protocol = IPPROTO_TCP,
							   .from = (uint16_t)port,
							   .to = (uint16_t)port },
				 at);
	if (action == POLICY_DENY && text_equal(host, "*"))
		import_deny_all(im, &ports, at);
	else
		add_name(im, action, host, &ports, false, at);
}

static void read_list(struct import *im, const struct node *list,
		      enum policy_action action)
{
	if (list->kind == NODE_NULL)
		return;
	if (list->kind != NODE_LIST) {
		import_fault(im, list, "this is not a list");
		return;
	}
	for (const struct node *n = list->first; n; n = n->next) {
		if (n->kind == NODE_TEXT)
			read_target(im, action, n->text, false, n);
		else
			import_fault(im, n, "this is not a name");
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

static void read_network(struct import *im, const struct node *map)
{
	for (const struct node *n = map->first; n; n = n->next) {
		if (text_equal(n->key, "deniedDomains"))
			read_list(im, n, POLICY_DENY);
		else if (text_equal(n->key, "allowedDomains"))
			read_list(im, n, POLICY_ALLOW);
		else
			read_other_key(im, n, network_keys, ARRAY_SIZE(network_keys));
	}
}

/* "WebFetch(domain:NAME)" allows or denies NAME to commands as well; what else stands in
 * these lists is not about the network. */
static void read_permission(struct import *im, const struct node *n, const char *key)
{
	static const char start[] = "WebFetch(domain:";
	const size_t len = sizeof(start) - 1;
	struct text t = n->text;

	if (n->kind != NODE_TEXT || t.len < strlen("WebFetch") ||
	    memcmp(t.ptr, start, strlen("WebFetch")) != 0)
		return;
	if (t.len <= len + 1 || memcmp(t.ptr, start, len) != 0 ||
	    t.ptr[t.len - 1] != ')') {
		import_left_out(im, n, "this names no domain");
		return;
	}
	t = (struct text){ t.ptr + len, t.len - len - 1 };
	if (strcmp(key, "ask") == 0)
		import_left_out(im, n, "a person is asked for it, as action: ask does");
	else
		read_target(im, strcmp(key, "deny") == 0 ? POLICY_DENY : POLICY_ALLOW, t,
			    false, n);
}

static void read_permissions(struct import *im, const struct node *root)
{
	static const char *const keys[] = { "allow", "deny", "ask" };
	const struct node *permissions = node_find(root, text_of("permissions"));
	const struct node *sandbox = node_find(root, text_of("sandbox"));
	const struct node *network = node_find(sandbox, text_of("network"));

	/* --at names another place, and these are not narrowed by its lists. */
	if (im->place && !im->found)
		return;
	for (size_t i = 0; permissions && i < ARRAY_SIZE(keys); i++) {
		const struct node *list = node_find(permissions, text_of(keys[i]));
		for (const struct node *n = list && list->kind == NODE_LIST ? list->first
									    : NULL;
		     n; n = n->next) {
			const size_t count = im->count;

			read_permission(im, n, keys[i]);
			if (im->count > count && !im->found)
				im->found = "permissions";
		}
	}
	/* Without lists of its own it may narrow these. */
	if (im->found && network && !is_network(network))
		read_network(im, network);
}

/* --- harden-runner --- */

/* Words between white space, the way a block of lines comes. */
static void read_endpoints(struct import *im, const struct node *n)
{
	const char *p = n->text.ptr, *end = p + n->text.len;

	if (n->kind == NODE_LIST) {
		for (const struct node *i = n->first; i; i = i->next)
			read_endpoints(im, i);
		return;
	}
	if (n->kind == NODE_NULL)
		return;
	if (n->kind != NODE_TEXT) {
		import_fault(im, n, "this is not host:port");
		return;
	}
	while (p < end) {
		const char *word = p;

		while (p < end && !strchr(" \t\r\n", *p))
			p++;
		if (p > word)
			read_target(im, POLICY_ALLOW,
				    (struct text){ word, (size_t)(p - word) }, true, n);
		else
			p++;
	}
}

/* Depth is NODE_DEPTH_MAX at most. */
static void search(struct import *im, const struct node *parent, unsigned int lists)
{
	for (const struct node *n = parent->first; n; n = n->next) {
		if (lists & IMPORT_NETWORK && is_network(n)) {
			if (import_claim(im, n, NULL))
				read_network(im, n);
		} else if (lists & IMPORT_ENDPOINTS && parent->kind == NODE_MAP &&
			   text_equal(n->key, "allowed-endpoints")) {
			if (import_claim(im, n, NULL))
				read_endpoints(im, n);
		} else if (n->kind == NODE_MAP || n->kind == NODE_LIST) {
			search(im, n, lists);
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
static void read_domains(struct import *im, const struct node *map)
{
	if (map->kind != NODE_MAP) {
		import_fault(im, map, "this is not a table of names");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		const bool allow = text_equal(n->text, "allow");

		if (n->kind != NODE_TEXT || (!allow && !text_equal(n->text, "deny")))
			import_fault_text(im, n, n->text, "is not allow or deny");
		else
			add_name(im, allow ? POLICY_ALLOW : POLICY_DENY, n->key,
				 &all_ports, true, n);
	}
}

/* allowed_domains = ["pattern"] */
static void read_patterns(struct import *im, const struct node *list,
			  enum policy_action action)
{
	if (list->kind != NODE_LIST)
		import_fault(im, list, "this is not a list");
	for (const struct node *n = list->first; n; n = n->next) {
		if (n->kind == NODE_TEXT)
			add_name(im, action, n->text, &all_ports, true, n);
		else
			import_fault(im, n, "this is not a name");
	}
}

static void read_codex_key(struct import *im, const struct node *n)
{
	if (text_equal(n->key, "domains"))
		read_domains(im, n);
	else if (text_equal(n->key, "allowed_domains"))
		read_patterns(im, n, POLICY_ALLOW);
	else if (text_equal(n->key, "denied_domains"))
		read_patterns(im, n, POLICY_DENY);
	else if (text_equal(n->key, "mode") && text_equal(n->text, "limited"))
		import_fault(im, n,
			     "'limited' lets only some HTTP methods pass, which can't be "
			     "said in a policy; take it out to import the rest");
	else if (text_equal(n->key, "mode") && !text_equal(n->text, "full"))
		import_fault_text(im, n, n->text, "is not limited or full");
	else if (!text_equal(n->key, "enabled") && !text_equal(n->key, "mode"))
		read_other_key(im, n, codex_keys, ARRAY_SIZE(codex_keys));
}

/* What isn't said to be on is off, and opens nothing. */
static void read_codex_network(struct import *im, const struct node *map)
{
	const struct node *enabled = node_find(map, text_of("enabled"));

	if (!enabled || !text_equal(enabled->text, "true")) {
		import_left_out(im, map, "it is not enabled");
		return;
	}
	for (const struct node *n = map->first; n; n = n->next) {
		if (!text_equal(n->key, "policy") || n->kind != NODE_MAP) {
			read_codex_key(im, n);
			continue;
		}
		for (const struct node *p = n->first; p; p = p->next)
			read_codex_key(im, p);
	}
}

static void import_codex(struct import *im, const struct node *root)
{
	static const char *const tables[] = { "network_proxy", "experimental_network" };
	const struct node *profiles = node_find(root, text_of("permissions"));
	const struct node *chosen = node_find(root, text_of("default_permissions"));
	const struct node *legacy = node_find(root, text_of("sandbox_workspace_write"));
	const struct node *access = node_find(legacy, text_of("network_access"));

	for (const struct node *p = profiles ? profiles->first : NULL; p; p = p->next) {
		const struct node *network = node_find(p, text_of("network")), *parent;

		/* The profile in force, unless --at names another. */
		if (!network || network->kind != NODE_MAP ||
		    (!im->place && chosen && !text_same(chosen->text, p->key)))
			continue;
		if (!import_claim(im, network, NULL))
			continue;
		/* A profile that builds on another one of the file's may get more from
		 * it, or less. */
		parent = node_find(p, text_of("extends"));
		if (parent && (parent->text.len == 0 || parent->text.ptr[0] != ':'))
			import_fault(im, parent, "what another profile says isn't read");
		read_codex_network(im, network);
	}
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		const struct node *n = node_find(root, text_of(tables[i]));

		if (n && n->kind == NODE_MAP && import_claim(im, n, NULL))
			read_codex_network(im, n);
	}
	if (im->found || !access || im->place)
		return;
	im->found = "sandbox_workspace_write.network_access";
	if (!is_idle(access))
		import_fault(im, access,
			     "this opens everything; a policy lists what is open");
}

/* --- all of them --- */

void import_lists(struct import *im, const struct node *root, unsigned int lists)
{
	if (lists & (IMPORT_NETWORK | IMPORT_ENDPOINTS))
		search(im, root, lists);
	if (lists & IMPORT_WEB_FETCH && root->kind == NODE_MAP)
		read_permissions(im, root);
	if (lists & IMPORT_CODEX && root->kind == NODE_MAP)
		import_codex(im, root);
}

/* === Kubernetes ===
 *
 * The egress rules of Kubernetes' NetworkPolicy and of Cilium's policies.
 *
 * HOW IT WORKS
 * One policy is imported; which pods it is about is not asked. Both languages allow the
 * union of their rules. A block with exceptions becomes the blocks that are left, since
 * a deny of Weir's would hold for the other rules as well. Who is named by labels
 * (pods, namespaces, services) can't be named in a policy, and is left out.
 *
 * In Cilium's patterns a star stands for part of a label, so that "*.x" is fewer names
 * than Weir's: an error, unless --any-depth says that all of them are meant. */

static const char by_labels[] = "pods, namespaces, services and entities can't be named";
static const char own_dns[] = "Weir answers DNS itself";

static struct text scalar(const struct node *map, const char *key)
{
	const struct node *n = node_find(map, text_of(key));

	return n && n->kind != NODE_MAP && n->kind != NODE_LIST ? n->text
								: (struct text){ 0 };
}

static const struct node *list_of(struct import *im, const struct node *map,
				  const char *key)
{
	const struct node *n = node_find(map, text_of(key));

	if (!n || n->kind == NODE_NULL)
		return NULL;
	if (n->kind != NODE_LIST)
		import_fault(im, n, "this is not a list");
	return n->kind == NODE_LIST ? n : NULL;
}

/* What a rule has that isn't known may narrow it. */
static void check_keys(struct import *im, const struct node *map,
		       const char *const *known, size_t count)
{
	for (const struct node *n = map->first; n; n = n->next)
		if (!text_find(n->key, known, count, sizeof(*known)))
			import_fault(im, n, IMPORT_CANNOT_BE_SAID);
}

/* --- ports --- */

/* One {port, endPort, protocol}. A port that can't be said is left out. */
static void read_port(struct import *im, const struct node *n, const char *protocol,
		      struct import_ports *ports)
{
	const struct node *port_node = node_find(n, text_of("port"));
	const struct node *end_node = node_find(n, text_of("endPort"));
	struct text port = scalar(n, "port"), t = scalar(n, "protocol");
	static const char *const known[] = { "port", "endPort", "protocol" };
	const struct text said = t.len > 0 ? t : text_of(protocol);
	const bool any = text_equal_nocase(said, "any");
	uint8_t protocols[2];
	uint32_t from = 0, to = UINT16_MAX;
	size_t count = 0;

	check_keys(im, n, known, ARRAY_SIZE(known));
	if (any || text_equal_nocase(said, "tcp"))
		protocols[count++] = IPPROTO_TCP;
	if (any || text_equal_nocase(said, "udp"))
		protocols[count++] = IPPROTO_UDP;
	if (count == 0) {
		import_left_out(im, n, "only TCP and UDP can be said");
		return;
	}
	if (port_node && !text_to_u32(port, UINT16_MAX, &from)) {
		import_left_out(im, n, "a port of a name can't be said");
		return;
	}
	/* Cilium writes 0 for all of them. */
	if (port_node && from == 0 && strcmp(protocol, "any") != 0) {
		import_fault_text(im, port_node, port, "is not a port");
		return;
	}
	if (from > 0)
		to = from;
	if (end_node &&
	    (from == 0 || !text_to_u32(end_node->text, UINT16_MAX, &to) || to < from)) {
		import_fault_text(im, end_node, end_node->text,
				  "is not the end of the range");
		return;
	}
	for (size_t i = 0; i < count; i++)
		import_ports_add(
			im, ports,
			(struct plan_port_range){ .protocol = protocols[i],
						  .from = (uint16_t)MAX(from, 1U),
						  .to = (uint16_t)to },
			n);
}

/* A list's item that is no mapping would say less, and so allow more. */
static bool is_map(struct import *im, const struct node *n)
{
	if (n->kind != NODE_MAP)
		import_fault(im, n, "this is not a mapping");
	return n->kind == NODE_MAP;
}

/* Return: whether anything of it is left. */
static bool read_ports(struct import *im, const struct node *list, const char *protocol,
		       struct import_ports *ports)
{
	for (const struct node *n = list ? list->first : NULL; n; n = n->next)
		if (is_map(im, n))
			read_port(im, n, protocol, ports);

	return ports->count > 0;
}

static bool is_dns_alone(const struct import_ports *ports)
{
	for (size_t i = 0; i < ports->count; i++)
		if (ports->ranges[i].from != 53 || ports->ranges[i].to != 53)
			return false;
	return !ports->all && ports->count > 0;
}

/* --- addresses --- */

/* A block and what is taken out of it. */
struct block {
	struct import *im;
	enum policy_action action;
	const struct import_ports *ports;
	const struct node *at;
	const struct node *except; /* a list, or NULL */
};

enum overlap { OVERLAP_NONE = 0, OVERLAP_PART, OVERLAP_ALL };

static enum overlap overlap_of(const struct block *b, const struct prefix *p)
{
	enum overlap most = OVERLAP_NONE;
	struct prefix e;

	for (const struct node *n = b->except ? b->except->first : NULL; n; n = n->next) {
		if (!prefix_parse(n->text.ptr, n->text.len, false, &e))
			continue;
		if (e.bits <= p->bits && prefix_contains(&e, &p->addr))
			return OVERLAP_ALL;
		if (prefix_contains(p, &e.addr))
			most = OVERLAP_PART;
	}
	return most;
}

/* What is left of @p, half by half. Depth is 128 at most. */
static void add_rest(const struct block *b, struct prefix p)
{
	const enum overlap overlap = overlap_of(b, &p);
	char *target;

	if (overlap == OVERLAP_ALL || b->im->faults.errors > 0)
		return;
	if (overlap == OVERLAP_NONE) {
		target = arena_text(&b->im->arena, text_of(PREFIX_SHOWN(&p)));
		if (!target)
			b->im->out_of_memory = true;
		else
			import_add(b->im, b->action, text_of(target), b->ports, b->at);
		return;
	}
	add_rest(b, prefix_half(p, false));
	add_rest(b, prefix_half(p, true));
}

static void add_block(const struct block *b, struct text cidr)
{
	struct prefix p, e;

	if (!prefix_parse(cidr.ptr, cidr.len, false, &p)) {
		import_fault_text(b->im, b->at, cidr, "is not a CIDR");
		return;
	}
	for (const struct node *n = b->except ? b->except->first : NULL; n; n = n->next)
		if (!prefix_parse(n->text.ptr, n->text.len, false, &e))
			import_fault_text(b->im, n, n->text, "is not a CIDR");
		else if (!prefix_contains(&p, &e.addr))
			import_fault_text(b->im, n, n->text, "is not within the block");
	add_rest(b, p);
}

static void add_everything(struct import *im, const struct import_ports *ports,
			   const struct node *at)
{
	if (is_dns_alone(ports)) {
		import_left_out(im, at, own_dns);
		return;
	}
	import_add(im, POLICY_ALLOW, text_of("0.0.0.0/0"), ports, at);
	import_add(im, POLICY_ALLOW, text_of("::/0"), ports, at);
}

/* --- NetworkPolicy --- */

static void read_peer(struct import *im, const struct node *peer,
		      const struct import_ports *ports)
{
	static const char *const known[] = { "ipBlock", "podSelector",
					     "namespaceSelector" };
	static const char *const block_keys[] = { "cidr", "except" };
	const struct node *block = node_find(peer, text_of("ipBlock"));

	/* The selectors of pods go with no block. */
	check_keys(im, peer, known, block ? 1 : ARRAY_SIZE(known));
	if (!block) {
		import_left_out(im, peer, by_labels);
		return;
	}

	check_keys(im, block, block_keys, ARRAY_SIZE(block_keys));
	add_block(&(struct block){ .im = im,
				   .action = POLICY_ALLOW,
				   .ports = ports,
				   .at = block,
				   .except = list_of(im, block, "except") },
		  scalar(block, "cidr"));
}

static void read_rule(struct import *im, const struct node *rule)
{
	static const char *const known[] = { "to", "ports" };
	const struct node *to = list_of(im, rule, "to");
	const struct node *list = list_of(im, rule, "ports");
	struct import_ports ports = { .all = !list || list->count == 0 };

	check_keys(im, rule, known, ARRAY_SIZE(known));
	if (!ports.all && !read_ports(im, list, "tcp", &ports))
		return;
	if (!to || to->count == 0)
		add_everything(im, &ports, rule);
	for (const struct node *n = to ? to->first : NULL; n; n = n->next)
		if (is_map(im, n))
			read_peer(im, n, &ports);
}

static void read_network_policy(struct import *im, const struct node *spec)
{
	const struct node *rules = list_of(im, spec, "egress");
	const struct node *types = list_of(im, spec, "policyTypes");
	bool is_egress = rules && !types;

	for (const struct node *n = types ? types->first : NULL; n; n = n->next)
		is_egress = is_egress || text_equal(n->text, "Egress");
	if (!is_egress)
		import_fault(im, spec, "this policy is not about egress");
	for (const struct node *n = rules ? rules->first : NULL; n; n = n->next)
		if (is_map(im, n))
			read_rule(im, n);
}

/* --- CiliumNetworkPolicy --- */

static void read_pattern(struct import *im, const struct node *selector,
			 const struct import_ports *ports)
{
	const struct text t = scalar(selector, "matchPattern");
	const bool deep = t.len > 3 && memcmp(t.ptr, "**.", 3) == 0;
	const bool label = t.len > 2 && memcmp(t.ptr, "*.", 2) == 0;
	const size_t prefix = deep ? 3 : label ? 2 : 0;

	if (memchr(t.ptr + prefix, '*', t.len - prefix))
		import_fault_text(im, selector, t,
				  "has a star that can't be said in a policy; take it "
				  "out to import the rest");
	else if (label && !im->any_depth)
		import_fault_text(im, selector, t,
				  "matches names one label longer, where a policy's "
				  "matches any depth; with --any-depth that is taken");
	else if (deep) /* without the domain itself */
		import_add(im, POLICY_ALLOW, (struct text){ t.ptr + 1, t.len - 1 }, ports,
			   selector);
	else
		import_add(im, POLICY_ALLOW, t, ports, selector);
}

static void read_names(struct import *im, const struct node *list,
		       const struct import_ports *ports)
{
	static const char *const known[] = { "matchName", "matchPattern" };

	for (const struct node *n = list->first; n; n = n->next) {
		if (!is_map(im, n))
			continue;
		check_keys(im, n, known, ARRAY_SIZE(known));
		if (memchr(scalar(n, "matchName").ptr ?: "", '*',
			   scalar(n, "matchName").len))
			import_fault(im, n, "a name has no star");
		else if (scalar(n, "matchName").len > 0)
			import_add(im, POLICY_ALLOW, scalar(n, "matchName"), ports, n);
		if (scalar(n, "matchPattern").len > 0)
			read_pattern(im, n, ports);
	}
}

/* "10.0.0.0/8", or {cidr, except}. */
static void read_blocks(struct import *im, const struct node *list,
			enum policy_action action, const struct import_ports *ports)
{
	static const char *const known[] = { "cidr", "except" };

	for (const struct node *n = list->first; n; n = n->next) {
		struct block b = { .im = im, .action = action, .ports = ports, .at = n };

		if (n->kind == NODE_MAP) {
			check_keys(im, n, known, ARRAY_SIZE(known));
			b.except = list_of(im, n, "except");
		}
		add_block(&b, n->kind == NODE_MAP ? scalar(n, "cidr") : n->text);
	}
}

/* toPorts: what is said of layer 7 narrows a rule. That of DNS goes with the name
 * servers' own rule. */
static bool read_to_ports(struct import *im, const struct node *list,
			  struct import_ports *ports)
{
	static const char *const known[] = { "ports", "rules" };
	static const char *const dns[] = { "dns" };

	ports->all = !list || list->count == 0;
	for (const struct node *n = list ? list->first : NULL; n; n = n->next) {
		const struct node *rules = node_find(n, text_of("rules"));
		const struct node *of = list_of(im, n, "ports");
		struct import_ports own = { 0 };

		if (!is_map(im, n))
			continue;
		if (!of || of->count == 0)
			import_left_out(im, n, "it names no port");
		check_keys(im, n, known, ARRAY_SIZE(known));
		read_ports(im, of, "any", &own);
		if (rules)
			check_keys(im, rules, dns, is_dns_alone(&own));
		for (size_t k = 0; k < own.count; k++)
			import_ports_add(im, ports, own.ranges[k], n);
	}
	return ports->all || ports->count > 0;
}

/* Who can't be named: a rule about them is left out of what is allowed. */
static const char *const unnamed_keys[] = { "toEndpoints", "toEntities", "toServices",
					    "toNodes",	   "toGroups",	 "icmps" };

static void read_cilium_rule(struct import *im, const struct node *rule,
			     enum policy_action action)
{
	const struct node *list = list_of(im, rule, "toPorts");
	struct import_ports ports = { 0 };

	for (const struct node *n = rule->first; n && action == POLICY_ALLOW; n = n->next)
		if (TEXT_FIND(n->key, unnamed_keys)) {
			import_left_out(im, n, by_labels);
			return;
		}
	/* Also where none of the ports can be said: without the deny more is open. */
	if (action == POLICY_DENY && list && list->count > 0) {
		import_fault(im, rule, "a deny of some ports can't be said of addresses");
		return;
	}
	if (!read_to_ports(im, list, &ports))
		return;
	for (const struct node *n = rule->first; n; n = n->next) {
		if (n == list)
			continue;
		if (n->kind == NODE_LIST &&
		    (text_equal(n->key, "toCIDR") || text_equal(n->key, "toCIDRSet")))
			read_blocks(im, n, action, &ports);
		else if (n->kind == NODE_LIST && text_equal(n->key, "toFQDNs") &&
			 action == POLICY_ALLOW)
			read_names(im, n, &ports);
		else
			import_fault(im, n, IMPORT_CANNOT_BE_SAID);
	}
	if (list && rule->count == 1 && action == POLICY_ALLOW)
		add_everything(im, &ports, rule);
}

static void read_cilium(struct import *im, const struct node *spec)
{
	static const struct {
		const char *key;
		enum policy_action action;
	} lists[] = { { "egress", POLICY_ALLOW }, { "egressDeny", POLICY_DENY } };

	if (!node_find(spec, text_of("egress")) &&
	    !node_find(spec, text_of("egressDeny")))
		import_fault(im, spec, "this policy is not about egress");
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		const struct node *rules = list_of(im, spec, lists[i].key);

		for (const struct node *n = rules ? rules->first : NULL; n; n = n->next)
			if (is_map(im, n))
				read_cilium_rule(im, n, lists[i].action);
	}
}

/* --- objects --- */

static void read_spec(struct import *im, const struct node *spec, bool cilium,
		      const char *name)
{
	if (!import_claim(im, spec, name))
		return;
	if (cilium)
		read_cilium(im, spec);
	else
		read_network_policy(im, spec);
}

/* An object is called by its name: there may be several in a file. */
static void read_object(struct import *im, const struct node *root, bool cilium)
{
	const struct node *metadata = node_find(root, text_of("metadata"));
	const struct node *spec = node_find(root, text_of("spec"));
	const struct node *specs = node_find(root, text_of("specs"));
	const struct text name = metadata ? scalar(metadata, "name") : (struct text){ 0 };
	const char *place = arena_printf(
		&im->arena, "%s", TEXT_SHOWN(name.len > 0 ? name : text_of("spec")));
	size_t i = 0;

	if (spec)
		read_spec(im, spec, cilium, place);
	for (const struct node *n = specs ? specs->first : NULL; n; n = n->next, i++)
		read_spec(im, n, cilium,
			  arena_printf(&im->arena, "%s.specs[%zu]", place ?: "", i));
}

bool import_kubernetes(struct import *im, const struct node *root, unsigned int kinds)
{
	const struct text kind = scalar(root, "kind");
	const bool cilium = text_equal(kind, "CiliumNetworkPolicy") ||
			    text_equal(kind, "CiliumClusterwideNetworkPolicy");
	const bool plain = text_equal(kind, "NetworkPolicy");
	const struct node *items = node_find(root, text_of("items"));

	if ((cilium && kinds & IMPORT_CILIUM) || (plain && kinds & IMPORT_NETWORK_POLICY))
		read_object(im, root, cilium);
	for (const struct node *n = text_equal(kind, "List") && items ? items->first
								      : NULL;
	     n; n = n->next)
		import_kubernetes(im, n, kinds);
	return cilium || plain || text_equal(kind, "List");
}
