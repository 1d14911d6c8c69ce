// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * Which rule decides is asked of the compiled plan, with names made for the purpose: a
 * rule for one name is never reached when another one decides that name; a wildcard is
 * never reached when another one decides a name below that no rule can spell. So the
 * cost is one look-up a rule, however many rules there are. */
#include "policy/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/special.h"
#include "policy/limits.h"
#include "policy/names.h"

enum { WAYS_MAX = 13 }; /* of one kind, with the NULL */

/* Ways out through hosts that look harmless. */
struct ways_out {
	enum {
		WAY_HOST = 0, /* the host itself */
		WAY_SHARED,   /* anybody can have a name below it: a pattern opens
			       * strangers' names */
		WAY_TREE,     /* the host, and each name below it */
	} scope;
	const char *why;
	const char *names[WAYS_MAX]; /* up to the first NULL */
};

static const char writes[] =
	"a program with a token can write there, and Weir can't see that in TLS; give "
	"the sandbox no token";

static const struct ways_out ways_out[] = {
	{ WAY_SHARED,
	  "anybody can rent a bucket under it, and upload to it",
	  { "s3.amazonaws.com", "amazonaws.com", "blob.core.windows.net",
	    "storage.googleapis.com", "googleapis.com", "r2.dev",
	    "r2.cloudflarestorage.com", "digitaloceanspaces.com", "backblazeb2.com",
	    "wasabisys.com" } },
	{ WAY_SHARED,
	  "anybody can put a server behind it",
	  { "cloudfront.net", "azurewebsites.net", "workers.dev", "pages.dev", "ngrok.io",
	    "ngrok.app", "ngrok-free.app", "trycloudflare.com" } },
	{ WAY_HOST,
	  "anybody can rent a bucket under it, and upload to it",
	  { "storage.googleapis.com", "s3.amazonaws.com" } },
	{ WAY_HOST,
	  "it fetches other sites for anybody",
	  { "translate.google.com", "web.archive.org", "r.jina.ai", "api.allorigins.win",
	    "cors-anywhere.herokuapp.com", "proxy.golang.org" } },
	{ WAY_HOST,
	  "it takes data from anybody",
	  { "webhook.site", "transfer.sh", "pastebin.com", "hooks.slack.com",
	    "discord.com", "api.telegram.org" } },
	{ WAY_TREE,
	  "it takes data with anybody's key",
	  { "sentry.io", "statsig.com", "statsigapi.net", "featuregates.org",
	    "datadoghq.com", "segment.io", "posthog.com", "amplitude.com", "mixpanel.com",
	    "bugsnag.com", "google-analytics.com" } },
	{ WAY_HOST,
	  writes,
	  { "github.com", "api.github.com", "gist.github.com", "gitlab.com",
	    "huggingface.co", "bitbucket.org", "codeberg.org" } },
	{ WAY_HOST,
	  writes,
	  { "registry.npmjs.org", "npm.pkg.github.com", "registry.yarnpkg.com", "ghcr.io",
	    "quay.io", "api.nuget.org", "central.sonatype.com", "test.pypi.org",
	    "upload.pypi.org", "pypi.org", "crates.io", "rubygems.org" } },
	{ WAY_HOST,
	  "anybody can put files there",
	  { "raw.githubusercontent.com", "objects.githubusercontent.com" } },
	{ WAY_TREE, writes, { "docker.io" } },
	{ WAY_HOST,
	  "its file upload takes data with anybody's key",
	  { "api.anthropic.com", "api.openai.com", "api.mistral.ai",
	    "generativelanguage.googleapis.com" } },
};

struct check {
	const struct policy_reader *reader;
	const struct policy *policy;
	struct plan plan;
	bool denies_addr; /* a rule does; most policies have none */
	bool names_once;  /* no rule is about a name that another one is about, too */
};

static void add(const struct policy_reader *r, const struct rule *rule,
		enum fault_level level, const char *what)
{
	if (level == FAULT_HINT && policy_is_built_in(rule->file) &&
	    !r->hints_of_profiles)
		return;
	faults_add(r->faults, level, rule->file, rule->line, rule->column, "", "'%s' %s",
		   SHOWN(rule->target), what);
}

/* Over documents it is how an own rule goes before a profile's: only within one it is
 * likely a mistake. */
static void add_unreached(const struct check *c, uint32_t which, uint32_t by)
{
	const struct rule *rule = &c->policy->rules[which], *first;
	char shown[128], what[300];
	bool same;

	if (by >= c->policy->count || by == which)
		return;
	first = &c->policy->rules[by];
	if (strcmp(first->file, rule->file) != 0 || first->until_ms != 0)
		return;
	same = first->action == rule->action &&
	       rule_ports_equal(&first->ports, &rule->ports) &&
	       first->flags == rule->flags && first->types == rule->types;
	snprintf(what, sizeof(what),
		 "is never reached: '%s' (line %u) decides before it%s",
		 text_escape(text_of(first->target), shown, sizeof(shown)), first->line,
		 same ? ", and says the same" : "");
	add(c->reader, rule, same ? FAULT_HINT : FAULT_WARNING, what);
}

static void check_name(const struct check *c, uint32_t i)
{
	const struct rule *r = &c->policy->rules[i];
	uint32_t exact = c->names_once ? i : plan_match_name(&c->plan, &r->name).rule;
	uint32_t below = PLAN_NO_RULE;

	if (r->kind != TARGET_NAME)
		below = plan_match_below(&c->plan, &r->name).rule;
	if (r->kind == TARGET_NAME)
		add_unreached(c, i, exact);
	else if (r->kind == TARGET_BELOW || exact != i)
		add_unreached(c, i, below);
	if (r->kind == TARGET_BELOW && r->action == POLICY_ALLOW &&
	    exact == PLAN_NO_RULE && c->policy->default_action == POLICY_DENY)
		add(c->reader, r, FAULT_HINT,
		    "covers the names below, not the name itself: '**.' covers both");
	if (dns_name_is_localhost(&r->name))
		add(c->reader, r, FAULT_WARNING,
		    "always means the sandbox's own loopback, whatever a rule says");
}

static void check_prefix(const struct check *c, uint32_t i)
{
	const struct rule *r = &c->policy->rules[i], *by;
	struct plan_verdict v;

	if (r->action != POLICY_ALLOW)
		return;
	if (r->prefix.bits == 0)
		add(c->reader, r, FAULT_WARNING,
		    "opens every address, whatever the rules for names say");
	/* Of IPv4 a look at the first byte says so. */
	if ((r->prefix.addr.family != ADDR_V4 || r->prefix.addr.bytes[0] == 127) &&
	    addr_special(&r->prefix.addr) == SPECIAL_LOOPBACK)
		add(c->reader, r, FAULT_WARNING,
		    "is a sandbox's own loopback where it has a network of its own, as "
		    "that of weir run: no service of the host is reached there");
	if (!c->denies_addr)
		return;
	v = plan_match_addr(&c->plan, &r->prefix.addr, 0, 0);
	if (v.action != POLICY_DENY || v.rule >= c->policy->count)
		return;
	by = &c->policy->rules[v.rule];
	if (by->prefix.bits <= r->prefix.bits &&
	    prefix_contains(&by->prefix, &r->prefix.addr) &&
	    strcmp(by->file, r->file) == 0) {
		char shown[128], what[300];

		snprintf(what, sizeof(what),
			 "is never open: '%s' (line %u) denies it, and a deny "
			 "of an address is absolute",
			 text_escape(text_of(by->target), shown, sizeof(shown)),
			 by->line);
		add(c->reader, r, FAULT_WARNING, what);
	}
}

/* The names of ways_out, and the hashes of the names that a rule for one name can
 * open. Most rules open none, which the hashes say without a comparison. */
struct ways_read {
	struct dns_name names[ARRAY_SIZE(ways_out)][WAYS_MAX];
	uint64_t hosts[16], trees[16];
};

/* Of a name in wire form. */
static unsigned int sieve_of(const uint8_t *bytes, size_t size)
{
	return (bytes[0] * 7u + bytes[1] * 31u + bytes[size / 2] * 131u +
		(unsigned int)size * 17u) %
	       1024;
}

static bool may_be_host(const struct ways_read *w, const struct dns_name *n)
{
	const uint8_t *at = n->bytes, *end = n->bytes + n->size;
	unsigned int bit = sieve_of(at, n->size);

	if (w->hosts[bit / 64] >> bit % 64 & 1)
		return true;
	/* And of each name that it is below of. */
	for (at += 1 + at[0]; at + 1 < end; at += 1 + at[0]) {
		bit = sieve_of(at, (size_t)(end - at));
		if (w->trees[bit / 64] >> bit % 64 & 1)
			return true;
	}
	return false;
}

/* The rule opens @way: its host, or as a pattern the shared suffix or more. */
static bool opens_way_out(const struct rule *r, const struct ways_out *way,
			  const struct dns_name *name)
{
	if (way->scope == WAY_TREE && dns_name_is_within(&r->name, name))
		return true;
	if (way->scope == WAY_SHARED)
		return r->kind != TARGET_NAME && dns_name_is_within(name, &r->name);
	return rule_covers(r, name);
}

static void check_way_out(const struct policy_reader *reader, const struct rule *r,
			  const struct ways_read *ways)
{
	/* Who typed the name a moment ago knows it, and what ships with Weir is meant: a
	 * hint is enough then. */
	bool is_meant = r->line == 0 || policy_is_built_in(r->file);
	enum fault_level level = is_meant ? FAULT_HINT : FAULT_WARNING;
	char what[300];

	if (r->kind == TARGET_NAME && !may_be_host(ways, &r->name))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(ways_out); i++)
		for (size_t n = 0; ways_out[i].names[n]; n++) {
			if (!opens_way_out(r, &ways_out[i], &ways->names[i][n]))
				continue;
			snprintf(what, sizeof(what), "is a known way out (%s): %s",
				 ways_out[i].names[n], ways_out[i].why);
			add(reader, r, level, what);
			return;
		}
	/* Or may be one, where libpsl can't say. */
	if (r->kind != TARGET_NAME &&
	    name_is_public_suffix(DNS_NAME_SHOWN(&r->name), true) != 0)
		add(reader, r, level, "is a pattern under which anybody can have a name");
}

static int check_ways_out(const struct policy_reader *reader, const struct policy *policy)
{
	struct ways_read ways = { .hosts = { 0 } };

	for (size_t i = 0; i < ARRAY_SIZE(ways_out); i++)
		for (size_t n = 0; ways_out[i].names[n]; n++) {
			struct dns_name *name = &ways.names[i][n];
			unsigned int bit;

			if (dns_name_parse(text_of(ways_out[i].names[n]), name) < 0)
				return -EINVAL;
			bit = sieve_of(name->bytes, name->size);
			if (ways_out[i].scope != WAY_SHARED)
				ways.hosts[bit / 64] |= UINT64_C(1) << bit % 64;
			if (ways_out[i].scope == WAY_TREE)
				ways.trees[bit / 64] |= UINT64_C(1) << bit % 64;
		}
	for (size_t i = 0; i < policy->count; i++) {
		const struct rule *r = &policy->rules[i];

		if (r->action == POLICY_ALLOW && r->kind != TARGET_PREFIX)
			check_way_out(reader, r, &ways);
	}
	return 0;
}

static int check_port_lists(const struct policy_reader *reader,
			    const struct policy *policy)
{
	const struct rule *lists[PLAN_PORT_LISTS_MAX];
	char what[160];
	size_t count = 0;

	for (size_t i = 0; i < policy->count; i++) {
		const struct rule *r = &policy->rules[i];
		size_t k = 0;

		if (r->action == POLICY_DENY || r->ports.count == 0)
			continue;
		while (k < count && !rule_ports_equal(&lists[k]->ports, &r->ports))
			k++;
		if (k < count)
			continue;
		if (count < PLAN_PORT_LISTS_MAX - 1) {
			lists[count++] = r;
			continue;
		}
		snprintf(what, sizeof(what),
			 "brings the %dth different list of ports: %d are possible "
			 "beside the default one",
			 PLAN_PORT_LISTS_MAX, PLAN_PORT_LISTS_MAX - 1);
		add(reader, r, FAULT_ERROR, what);
		return -EINVAL;
	}
	return 0;
}

static int check_lifetimes(const struct policy_reader *r, const struct policy *p)
{
	uint32_t least = p->limits[LIMIT_MIN_LIFETIME_SEC]
				 ?: limit_info(LIMIT_MIN_LIFETIME_SEC)->value;
	uint32_t most = p->limits[LIMIT_MAX_LIFETIME_SEC]
				?: limit_info(LIMIT_MAX_LIFETIME_SEC)->value;

	if (least <= most)
		return 0;
	faults_add(r->faults, FAULT_ERROR, p->source_count > 0 ? p->sources[0] : "", 0, 0,
		   "limits", "min_lifetime (%u) is more than max_lifetime (%u)", least,
		   most);
	return -EINVAL;
}

static void check_rules(struct check *c)
{
	bool has_pattern = false;
	size_t size = 0;

	for (size_t i = 0; i < c->policy->count; i++) {
		const struct rule *r = &c->policy->rules[i];

		c->denies_addr |= r->kind == TARGET_PREFIX && r->action == POLICY_DENY;
		has_pattern |= r->kind == TARGET_BELOW || r->kind == TARGET_WITHIN;
		/* In the plan a name takes its size and one byte. */
		size += r->kind == TARGET_NAME ? r->name.size + 1u : 0;
	}
	/* The plan has no name fewer than there are rules for names. Under another
	 * default it has names that no rule is about. */
	c->names_once = !has_pattern && c->policy->default_action == POLICY_DENY &&
			!c->policy->every_name && plan_names_size(&c->plan) == size;
	for (uint32_t i = 0; i < c->policy->count; i++) {
		const struct rule *r = &c->policy->rules[i];

		if (r->action == POLICY_ALLOW && r->flags & PLAN_RAW)
			add(c->reader, r, FAULT_HINT,
			    "lets bytes without a name pass on web ports (raw): whatever "
			    "lives at its addresses can be reached there");
		if (r->kind == TARGET_PREFIX)
			check_prefix(c, i);
		else
			check_name(c, i);
	}
}

static const char *end_fault(const struct policy *p, const struct rule *r)
{
	struct addr a;

	if (r->until_ms == 0 || r->kind != TARGET_PREFIX)
		return NULL;
	if (p->default_action == POLICY_ALLOW)
		return "can't end: defaultAction: allow opens addresses for good";
	/* What is denied without a rule is so because of the rules that don't name it,
	 * and stays open when one that does has ended. */
	for (size_t i = 0; addr_metadata(i, &a); i++)
		if (r->prefix.bits == 8 * addr_size(&a) &&
		    addr_equal(&r->prefix.addr, &a))
			return "can't be opened for a time: it is a cloud's metadata";
	return NULL;
}

static int check_ended(const struct policy_reader *reader, const struct policy *p)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *r = &p->rules[i];

		if (r->until_ms != 0 && r->until_ms <= reader->now_ms)
			add(reader, r, FAULT_HINT,
			    "has ended, and is as if it weren't there");
	}
	return 0;
}

/* Only the relay sees what comes back. */
static const char *budget_fault(const struct policy *p, const struct rule *r)
{
	if (r->budget.received == 0)
		return NULL;
	if (p->verify != POLICY_VERIFY_TLS)
		return "has a budget of what is received, which needs verify: tls";
	for (size_t i = 0; i < r->ports.count; i++)
		if (r->ports.ranges[i].protocol != IPPROTO_TCP)
			return "has a budget of what is received, which is counted for "
			       "TCP "
			       "alone: list its ports as tcp/443";
	return r->ports.count > 0 && !r->ports.with_default
		       ? NULL
		       : "has a budget of what is received, which is counted for TCP "
			 "alone: it needs ports, as tcp/443";
}

/* The relay is who refuses: it has to be there, and to read what a connection shows. */
static int check_denied_names(const struct policy_reader *r, const struct policy *p)
{
	const struct policy_place *at = &p->denied_names_at;
	const char *key = at->file ? "deniedNames" : "";
	const char *why = NULL;

	if (p->denied_names != POLICY_DENIED_REFUSE)
		return 0;
	if (p->verify != POLICY_VERIFY_TLS)
		why = "'refuse' needs verify: tls: the relay refuses the connections";
	else if (p->dns == POLICY_DNS_PINNED)
		why = "'refuse' needs dns: live: pinned names are all that is answered";
	if (!why)
		return 0;
	faults_add(r->faults, FAULT_ERROR, at->file ? at->file : "--denied-names",
		   at->line, at->column, key, "%s", why);
	return -EINVAL;
}

/* What nobody is asked for, whatever a rule says. */
static const char *ask_fault(const struct policy *p, const struct rule *r)
{
	if (r->action != POLICY_ASK)
		return NULL;
	if (r->kind != TARGET_PREFIX)
		return policy_is_metadata(r) ? "can't be asked for: it is a cloud's "
					       "metadata, which only "
					       "a rule that allows it opens"
					     : NULL;
	if (p->default_action == POLICY_ALLOW)
		return "asks for an address, which defaultAction: allow opens: write "
		       "deny, or defaultAction: ask";
	if (r->prefix.bits == 0 || addr_special_is_offered(addr_special(&r->prefix.addr)))
		return NULL;
	return "can't be asked for: it is special; only a rule that allows it opens it";
}

/* What can be wrong with a rule, whatever the others are. */
static int check_each(const struct policy_reader *reader, const struct policy *p)
{
	static const char *(*const find[])(const struct policy *p,
					   const struct rule *r) = { end_fault, ask_fault,
								     budget_fault };
	int result = 0;

	for (size_t i = 0; i < p->count; i++)
		for (size_t n = 0; n < ARRAY_SIZE(find); n++) {
			const char *why = find[n](p, &p->rules[i]);

			if (!why)
				continue;
			add(reader, &p->rules[i], FAULT_ERROR, why);
			result = -EINVAL;
		}
	return result;
}

int policy_build(const struct policy_reader *reader, const struct policy *policy,
		 uint8_t **ret, size_t *ret_size)
{
	static int (*const checks[])(const struct policy_reader *r,
				     const struct policy *p) = {
		check_port_lists,   check_lifetimes, check_ways_out, policy_check_pinned,
		check_denied_names, check_ended,     check_each,
	};
	struct check c = { .reader = reader, .policy = policy };
	CLEAN(mem) uint8_t *bytes = NULL;
	struct err err = { 0 };
	size_t size;
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		r = faults_worse(r, checks[i](reader, policy));
	if (r < 0)
		return r;
	r = policy_compile(policy, &bytes, &size, &err);
	if (r == 0)
		r = plan_open(bytes, size, &c.plan, &err);
	if (r == -ENOMEM)
		return r;
	if (r < 0) {
		faults_add(reader->faults, FAULT_ERROR, "", 0, 0, "", "%s", err.text);
		return -EINVAL;
	}
	c.plan.ends_ahead = UINT64_MAX;
	check_rules(&c);
	if (ret) {
		*ret_size = c.plan.size;
		*ret = TAKE_PTR(bytes);
	}
	return 0;
}

/* --- dns: pinned --- */

int policy_check_pinned(const struct policy_reader *r, const struct policy *p)
{
	uint32_t most = p->limits[LIMIT_LEARNED_NAMES]
				?: limit_info(LIMIT_LEARNED_NAMES)->value;
	const struct policy_place *at = &p->dns_at;
	size_t before = r->faults->errors, names = 0;

	if (p->dns != POLICY_DNS_PINNED) {
		at = &p->repin_at;
		if (p->repin_ms != 0)
			faults_add(r->faults, FAULT_WARNING, at->file, at->line,
				   at->column, "repin",
				   "changes nothing without dns: pinned");
		return 0;
	}
	if (p->default_action != POLICY_DENY)
		faults_add(r->faults, FAULT_ERROR, at->file, at->line, at->column, "dns",
			   "'pinned' needs defaultAction: deny: the names that are "
			   "allowed have to be known");
	for (size_t i = 0; i < p->count; i++) {
		const struct rule *rule = &p->rules[i];

		if (rule->action == POLICY_ASK && rule->kind != TARGET_PREFIX)
			add(r, rule, FAULT_ERROR,
			    "asks, but dns: pinned resolves every name before the start");
		if (rule->action != POLICY_ALLOW)
			continue;
		if (rule->types != 0)
			add(r, rule, FAULT_ERROR,
			    "has types, but dns: pinned answers with addresses alone");
		if (rule->kind == TARGET_BELOW || rule->kind == TARGET_WITHIN)
			add(r, rule, FAULT_ERROR,
			    "is a wildcard, but dns: pinned resolves every name before "
			    "the start: write the exact names");
		names += rule->kind == TARGET_NAME;
	}
	if (names > most)
		faults_add(r->faults, FAULT_ERROR, at->file, at->line, at->column, "dns",
			   "'pinned' with %zu names is over the limit learned_names (%u)",
			   names, most);
	return r->faults->errors > before ? -EINVAL : 0;
}

bool policy_asks(const struct policy *p)
{
	if (p->default_action == POLICY_ASK)
		return true;
	for (size_t i = 0; i < p->count; i++)
		if (p->rules[i].action == POLICY_ASK && p->rules[i].kind != TARGET_PREFIX)
			return true;
	return false;
}

bool policy_asks_names(const struct policy *p)
{
	if (p->default_action != POLICY_DENY)
		return true;
	for (size_t i = 0; i < p->count; i++)
		if (p->rules[i].action != POLICY_DENY &&
		    p->rules[i].kind != TARGET_PREFIX)
			return true;
	return false;
}

/* --- gathering faults --- */

void faults_add(struct faults *f, enum fault_level level, const char *file, uint32_t line,
		uint32_t column, const char *path, const char *fmt, ...)
{
	char text[ERR_TEXT_SIZE * 2];
	struct fault fault = {
		.level = level, .file = file, .line = line, .column = column
	};
	va_list ap;

	if (level == FAULT_ERROR)
		f->errors++;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (f->count < POLICY_FAULTS_MAX) {
		fault.text = arena_text(&f->arena, text_of(text));
		fault.path = arena_text(&f->arena, text_of(path ? path : ""));
		fault.file = arena_text(&f->arena, text_of(file ? file : ""));
	}
	if (!fault.text || !fault.path || !fault.file) {
		f->dropped++;
		return;
	}
	f->items[f->count++] = fault;
}

void faults_done(struct faults *f)
{
	arena_done(&f->arena);
	f->count = 0;
}

void faults_print(const struct faults *f, bool hints)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < f->count; i++)
		if (hints || f->items[i].level != FAULT_HINT)
			fprintf(stderr, "%s\n",
				fault_format(&f->items[i], line, sizeof(line)));
	if (f->dropped > 0)
		fprintf(stderr, "… and %zu more\n", f->dropped);
}

int faults_worse(int a, int b)
{
	if (a == -ENOMEM || b == -ENOMEM)
		return -ENOMEM;
	return a < 0 ? a : b;
}

char *fault_format(const struct fault *f, char *buf, size_t size)
{
	static const char *const words[] = {
		[FAULT_ERROR] = "",
		[FAULT_WARNING] = "warning: ",
		[FAULT_HINT] = "hint: ",
	};
	char place[32] = "", file[TEXT_ESCAPED_SIZE];

	if (f->line > 0)
		snprintf(place, sizeof(place), "%u:%u:", f->line, f->column);
	text_escape(text_of(f->file), file, sizeof(file));
	snprintf(buf, size, "%s:%s %s%s%s%s", file, place, words[f->level], f->path,
		 f->path[0] ? ": " : "", f->text);
	return buf;
}

int faults_first_error(const struct faults *f, struct err *err)
{
	char line[FAULT_TEXT_SIZE];

	for (size_t i = 0; i < f->count; i++)
		if (f->items[i].level == FAULT_ERROR)
			return err_set(err, -EINVAL, "%s",
				       fault_format(&f->items[i], line, sizeof(line)));
	return 0;
}
