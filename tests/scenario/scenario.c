// SPDX-License-Identifier: Apache-2.0
/* scenario - play one scenario file against the resolver on a clock that is a number.
 *
 * A file is a list of lines, one verb each; '#' begins a comment. SB is a sandbox (0 to
 * 2), S a server, Q an id that the file chooses for a query.
 *
 *   servers S [try=MS] [probe=MS] [name=NAME]
 *                                  first of all; 2 when it is absent
 *   allow|ask|deny TARGET [port=N] [private] [required] [types=ptr+txt+srv+mx]
 *   dns live|pinned
 *   limit NAME VALUE               as under `limits:`
 *   apply                          compile: from now on all sandboxes have this policy
 *   change                         the same as a change of the policy: what was learned
 *                                  and the kernel's sets are carried over
 *   forget                         the rules, to write others
 *   ipv6 SB on|off
 *   state SB testing|running|closed
 *   probe SB NAME ADDRESS          the self-test's, until `probe SB none`
 *   query SB Q TYPE NAME [edns] [tcp]
 *   raw SB HEX                     a query's bytes
 *   turn                           flush, as at the end of a turn of the loop
 *   wait MS                        the resolver is woken when it wants to be
 *   upstream S TYPE NAME [tcp] [plain]
 *                                  such a request is under way; without EDNS
 *   open N                         so many are
 *   respond S TYPE NAME [rcode=N] [tc] [wrong=id|case|name|size|bare]
 *           [: TYPE OWNER VALUE TTL[, …]]
 *   lost S TYPE NAME               its transport fails
 *   dead S|none                    nothing can leave to it
 *   fail N [AFTER]                 the next N transactions fail, or those after AFTER
 * more reply Q RCODE [ADDRESS…] [ttl=N] [ede=CODE] [text=WORDS_WITH_UNDERSCORES] [tc]
 *                                  exactly one came since `query`, with exactly these
 *   noreply Q
 *   learned SB ADDRESS NAME|nobody [rule=N]
 *   kernel SB ADDRESS yes|no
 *   commits N                      since the last such line
 *   items N                        elements in them
 *   events N [WORDS]               since the last such line; the last one's reason
 *   troubles N [KIND S VALUE]      of the servers, since the last such line; the last
 *                                  one is error, rcode, probe or healthy; its errno or
 *                                  rcode
 *   pin SB EVERY_MS                resolve the policy's names
 *   pinned N                       so many rounds have ended since the last such line
 *   unpinned N [NAME WHY_WITH_UNDERSCORES [required] [stays]]
 *                                  so many names lacked something; the last one
 *   count SB COUNTER N
 *   detach SB
 *
 * Exit 0 when all lines held. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "policy/limits.h"
#include "resolver_world.h"

enum { WORDS_MAX = 256, LINE_MAX_SIZE = 16384 };

struct player {
	struct world *w;
	const char *file;
	unsigned int line;
	const char *words[WORDS_MAX];
	size_t count;
	size_t commits_seen, items_seen, events_seen, troubles_seen;
	size_t rounds, unpinned; /* since they were asked for */
	char unpinned_name[DNS_NAME_TEXT_SIZE], unpinned_why[128];
	bool required, stays;
};

static void fail(const struct player *p, const char *what)
{
	fprintf(stderr, "%s:%u: %s\n", p->file, p->line, what);
	exit(1);
}

static void must(const struct player *p, bool ok, const char *what)
{
	if (!ok)
		fail(p, what);
}

/* ---- words ---- */

static const char *word(const struct player *p, size_t i)
{
	must(p, i < p->count, "a word is missing");
	return p->words[i];
}

static uint32_t number(const struct player *p, const char *text)
{
	uint32_t n = 0;

	must(p, text_to_u32(text_of(text), UINT32_MAX, &n), "not a number");
	return n;
}

static uint32_t number_at(const struct player *p, size_t i)
{
	return number(p, word(p, i));
}

static struct sandbox *sandbox_at(const struct player *p, size_t i)
{
	uint32_t n = number_at(p, i);

	must(p, n < WORLD_SANDBOXES, "no such sandbox");
	return &p->w->sandboxes[n];
}

static struct addr addr_at(const struct player *p, size_t i)
{
	struct addr a = { 0 };

	must(p, addr_parse(word(p, i), strlen(word(p, i)), &a), "not an address");
	return a;
}

/* The value of "key=value" among the words, or NULL. */
static const char *option(const struct player *p, const char *key)
{
	size_t len = strlen(key);

	for (size_t i = 1; i < p->count; i++)
		if (strncmp(p->words[i], key, len) == 0 && p->words[i][len] == '=')
			return p->words[i] + len + 1;
	return NULL;
}

static bool has(const struct player *p, const char *flag)
{
	for (size_t i = 1; i < p->count; i++)
		if (strcmp(p->words[i], flag) == 0)
			return true;
	return false;
}

static const struct {
	const char *name;
	uint16_t type;
} types[] = { { "A", DNS_TYPE_A },
	      { "AAAA", DNS_TYPE_AAAA },
	      { "PTR", DNS_TYPE_PTR },
	      { "TXT", DNS_TYPE_TXT },
	      { "SRV", DNS_TYPE_SRV },
	      { "MX", DNS_TYPE_MX },
	      { "HTTPS", DNS_TYPE_HTTPS },
	      { "SVCB", DNS_TYPE_SVCB },
	      { "ANY", DNS_TYPE_ANY },
	      { "NS", DNS_TYPE_NS },
	      { "NULL", 10 } };

static uint16_t type_at(const struct player *p, size_t i)
{
	for (size_t t = 0; t < ARRAY_SIZE(types); t++)
		if (strcmp(types[t].name, word(p, i)) == 0)
			return types[t].type;
	fail(p, "no such type");
	return 0;
}

/* ---- set-up ---- */

static void do_servers(struct player *p)
{
	const char *try = option(p, "try"), *probe = option(p, "probe");
	const char *name = option(p, "name");
	struct resolver_config config = {
		.key = { 1, 2 },
		.upstream_count = number_at(p, 1),
		.try_ms = try ? number(p, try) : 0,
		.probe_every_ms = probe ? number(p, probe) : 0,
	};

	if (name)
		must(p, dns_name_parse(text_of(name), &config.probe_name) == 0,
		     "not a name");
	world_free(p->w);
	p->w = world_new_with(&config);
}

static void add_rule(struct player *p, enum policy_action action)
{
	const char *port = option(p, "port"), *names = option(p, "types");
	uint8_t bits = 0;

	if (names) {
		bits |= strstr(names, "ptr") ? PLAN_TYPE_PTR : 0;
		bits |= strstr(names, "txt") ? PLAN_TYPE_TXT : 0;
		bits |= strstr(names, "srv") ? PLAN_TYPE_SRV : 0;
		bits |= strstr(names, "mx") ? PLAN_TYPE_MX : 0;
	}
	must(p,
	     world_rule(p->w, action, word(p, 1), port ? (uint16_t)number(p, port) : 0,
			(uint8_t)((has(p, "private") ? PLAN_PRIVATE : 0) |
				  (has(p, "required") ? PLAN_REQUIRED : 0)),
			bits),
	     "not a rule");
}

static void do_allow(struct player *p)
{
	add_rule(p, POLICY_ALLOW);
}

static void do_deny(struct player *p)
{
	add_rule(p, POLICY_DENY);
}

static void do_ask(struct player *p)
{
	add_rule(p, POLICY_ASK);
}

static void do_limit(struct player *p)
{
	enum plan_limit which;

	must(p, limit_find(text_of(word(p, 1)), &which), "no such limit");
	p->w->policy.limits[which] = number_at(p, 2);
}

static void do_dns(struct player *p)
{
	p->w->policy.dns = strcmp(word(p, 1), "pinned") == 0 ? POLICY_DNS_PINNED
							     : POLICY_DNS_LIVE;
}

static void do_apply(struct player *p)
{
	must(p, world_apply(p->w), "the policy can't be compiled");
}

static void do_change(struct player *p)
{
	must(p, world_change(p->w), "the policy can't be changed");
}

static void do_forget(struct player *p)
{
	world_no_rules(p->w);
}

static void do_ipv6(struct player *p)
{
	sandbox_at(p, 1)->ipv6 = strcmp(word(p, 2), "on") == 0;
}

static void do_state(struct player *p)
{
	static const char *const names[] = { "none", "testing", "running", "closed" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], word(p, 2)) == 0)
			sandbox_at(p, 1)->state = (enum sandbox_state)i;
}

static void do_probe(struct player *p)
{
	struct sandbox *s = sandbox_at(p, 1);

	if (strcmp(word(p, 2), "none") == 0) {
		s->probe_name.size = 0;
		return;
	}
	must(p, dns_name_parse(text_of(word(p, 2)), &s->probe_name) == 0, "not a name");
	s->probe_addr = addr_at(p, 3);
}

/* ---- what comes in ---- */

static void do_query(struct player *p)
{
	uint32_t id = number_at(p, 2);

	world_query(p->w, number_at(p, 1), (uint16_t)id, word(p, 4), type_at(p, 3),
		    has(p, "edns"), has(p, "tcp"));
}

static uint8_t hex_digit(const struct player *p, char c)
{
	const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c) : NULL;

	must(p, at, "not hexadecimal");
	return (uint8_t)(at - digits);
}

static void do_raw(struct player *p)
{
	struct resolver_client c = { .sandbox = sandbox_at(p, 1) };
	const char *hex = word(p, 2);
	size_t size = strlen(hex) / 2;
	uint8_t buf[512];

	must(p, size <= sizeof(buf), "too long");
	for (size_t i = 0; i < size; i++)
		buf[i] = (uint8_t)(hex_digit(p, hex[2 * i]) << 4 |
				   hex_digit(p, hex[2 * i + 1]));
	resolver_query(p->w->resolver, &c, buf, size, p->w->now_ms);
}

static void do_turn(struct player *p)
{
	resolver_parked_recheck(p->w->resolver, p->w->now_ms);
	resolver_flush(p->w->resolver, p->w->now_ms);
}

static void do_wait(struct player *p)
{
	world_wait(p->w, number_at(p, 1));
}

static struct world_request *request(struct player *p)
{
	struct world_request *q =
		world_request_find(p->w, number_at(p, 1), word(p, 3), type_at(p, 2));

	must(p, q, "no such upstream request is under way");
	return q;
}

static void do_upstream(struct player *p)
{
	enum { ADDITIONAL_COUNT_AT = 11 };
	const struct world_request *q = request(p);

	must(p, q->tcp == has(p, "tcp"), "by the other transport");
	must(p, (q->bytes[ADDITIONAL_COUNT_AT] == 0) == has(p, "plain"), "EDNS");
}

static void do_open(struct player *p)
{
	must(p, world_requests_open(p->w) == number_at(p, 1),
	     "not so many upstream requests");
}

static void add_record(struct player *p, struct world_response *r, size_t i)
{
	const char *type = word(p, i), *owner = word(p, i + 1), *value = word(p, i + 2);
	uint8_t rdata[256] = { 0 };

	if (strcmp(type, "SOA") == 0) {
		world_response_soa(r, owner, number(p, value));
	} else if (strcmp(type, "CNAME") == 0) {
		world_response_cname(r, owner, value, number_at(p, i + 3));
	} else if (strcmp(type, "TXT") == 0) {
		rdata[0] = (uint8_t)strlen(value);
		memcpy(rdata + 1, value, strlen(value));
		world_response_record(r, owner, DNS_TYPE_TXT, number_at(p, i + 3), rdata,
				      strlen(value) + 1);
	} else if (strcmp(type, "PTR") == 0) {
		struct dns_name n;

		must(p, dns_name_parse(text_of(value), &n) == 0, "not a name");
		world_response_record(r, owner, DNS_TYPE_PTR, number_at(p, i + 3),
				      n.bytes, n.size);
	} else {
		world_response_addr(r, owner, value, number_at(p, i + 3));
	}
}

static void falsify(struct player *p, struct world_response *r, const char *what)
{
	if (strcmp(what, "id") == 0)
		r->bytes[0] ^= 1;
	else if (strcmp(what, "case") == 0)
		r->bytes[DNS_HEADER_SIZE + 1] ^= 0x20;
	else if (strcmp(what, "name") == 0)
		r->bytes[DNS_HEADER_SIZE + 1] ^= 0x01;
	else if (strcmp(what, "size") == 0)
		wire_seek(&r->w, DNS_HEADER_SIZE + 3);
	else if (strcmp(what, "bare") == 0) /* without the question */
		r->bytes[5] = (uint8_t)(wire_seek(&r->w, DNS_HEADER_SIZE), 0);
	else
		fail(p, "wrong in which way?");
}

static void do_respond(struct player *p)
{
	struct world_request *q = request(p);
	const char *rcode = option(p, "rcode"), *wrong = option(p, "wrong");
	struct world_response r;
	size_t i = 4;

	world_response_begin(
		&r, q,
		(uint16_t)((rcode ? number(p, rcode) : 0) | (has(p, "tc") ? 0x0200 : 0)));
	while (i < p->count && strcmp(p->words[i], ":") != 0)
		i++;
	for (i++; i < p->count; i++) {
		add_record(p, &r, i);
		while (i < p->count && strcmp(p->words[i], ",") != 0)
			i++;
	}
	if (wrong)
		falsify(p, &r, wrong);
	world_respond(p->w, q, &r);
}

static void do_lost(struct player *p)
{
	resolver_send_failed(p->w->resolver, request(p)->token, -ECONNREFUSED,
			     p->w->now_ms);
}

static void do_dead(struct player *p)
{
	if (strcmp(word(p, 1), "none") == 0)
		p->w->dead_servers = 0;
	else
		p->w->dead_servers |= (uint16_t)(1u << number_at(p, 1));
}

static void do_fail(struct player *p)
{
	p->w->fail_commits = number_at(p, 1);
	p->w->fail_after = p->count > 2 ? number_at(p, 2) : 0;
}

static void do_detach(struct player *p)
{
	resolver_detach(p->w->resolver, sandbox_at(p, 1));
}

static void on_pinned(void *data, const struct resolver_unpinned *fault)
{
	struct player *p = data;

	if (!fault) {
		p->rounds++;
		return;
	}
	p->unpinned++;
	dns_name_format(fault->name, p->unpinned_name);
	snprintf(p->unpinned_why, sizeof(p->unpinned_why), "%s", fault->why);
	p->required = fault->required;
	p->stays = fault->stays;
}

static void do_pin(struct player *p)
{
	must(p,
	     resolver_pin(p->w->resolver, sandbox_at(p, 1), number_at(p, 2), on_pinned, p,
			  p->w->now_ms) == 0,
	     "the names can't be pinned");
}

/* ---- what must hold ---- */

static const struct world_reply *find_reply(const struct player *p, uint32_t id,
					    size_t *ret_count)
{
	const struct world_reply *found = NULL;

	*ret_count = 0;
	for (size_t i = 0; i < MIN(p->w->reply_count, (size_t)WORLD_REPLIES_MAX); i++) {
		if (p->w->replies[i].id != id)
			continue;
		found = &p->w->replies[i];
		++*ret_count;
	}
	return found;
}

static bool contains(const struct world_reply *r, const char *words)
{
	char text[256];
	size_t len = strlen(words);

	if (len >= sizeof(text))
		return false;
	for (size_t i = 0; i <= len; i++)
		text[i] = words[i] == '_' ? ' ' : words[i];
	return memmem(r->bytes, MIN(r->size, sizeof(r->bytes)), text, len);
}

/* An option 15 with that code (RFC 8914). */
static bool has_ede(const struct world_reply *r, uint32_t code)
{
	size_t size = MIN(r->size, sizeof(r->bytes));

	for (size_t i = 12; i + 6 <= size; i++)
		if (r->bytes[i] == 0 && r->bytes[i + 1] == 15 && r->bytes[i + 4] == 0 &&
		    r->bytes[i + 5] == code)
			return true;
	return false;
}

static bool carries(const struct world_reply *r, const struct addr *a, uint32_t ttl)
{
	for (size_t i = 0; i < r->addr_count; i++)
		if (addr_equal(&r->addrs[i].addr, a) &&
		    (ttl == UINT32_MAX || r->addrs[i].ttl_sec == ttl))
			return true;
	return false;
}

/* The SOA that says for how long a name has no address. */
static bool has_soa(const struct world_reply *r, uint32_t ttl)
{
	const uint8_t soa[] = { 0,
				DNS_TYPE_SOA,
				0,
				DNS_CLASS_IN,
				(uint8_t)(ttl >> 24),
				(uint8_t)(ttl >> 16),
				(uint8_t)(ttl >> 8),
				(uint8_t)ttl };

	return memmem(r->bytes, MIN(r->size, sizeof(r->bytes)), soa, sizeof(soa));
}

static void do_reply(struct player *p)
{
	const char *ttl = option(p, "ttl"), *text = option(p, "text");
	const char *ede = option(p, "ede");
	size_t count, addrs = 0;
	const struct world_reply *r = find_reply(p, number_at(p, 1), &count);
	struct addr a;

	must(p, r, "no reply");
	must(p, count == 1, "more than one reply");
	must(p, (r->flags & 15u) == number_at(p, 2), "another rcode");
	must(p, !text || contains(r, text), "the text is not in it");
	must(p, !ede || has_ede(r, number(p, ede)), "another extended error");
	must(p, has(p, "tc") == ((r->flags & 0x0200) != 0), "truncation");
	for (size_t i = 3; i < p->count; i++) {
		if (!addr_parse(p->words[i], strlen(p->words[i]), &a))
			continue;
		addrs++;
		must(p, carries(r, &a, ttl ? number(p, ttl) : UINT32_MAX),
		     "an address or its TTL is not in it");
	}
	must(p, r->addr_count == addrs, "another number of addresses");
	must(p, addrs > 0 || !ttl || has_soa(r, number(p, ttl)), "another TTL");
}

static void do_noreply(struct player *p)
{
	size_t count;

	find_reply(p, number_at(p, 1), &count);
	must(p, count == 0, "there is a reply");
}

static void do_learned(struct player *p)
{
	struct addr a = addr_at(p, 2);
	struct learned_use use[32];
	size_t n = learned_find(sandbox_at(p, 1)->learned, &a, p->w->now_ms, use, 32);
	const char *rule = option(p, "rule");
	struct dns_name name;

	if (strcmp(word(p, 3), "nobody") == 0) {
		must(p, n == 0, "somebody taught it");
		return;
	}
	must(p, dns_name_parse(text_of(word(p, 3)), &name) == 0, "not a name");
	for (size_t i = 0; i < n; i++) {
		if (!dns_name_equal(&use[i].name, &name))
			continue;
		must(p, !rule || use[i].rule == number(p, rule), "under another rule");
		return;
	}
	fail(p, "not learned under that name");
}

static void do_kernel(struct player *p)
{
	struct addr a = addr_at(p, 2);

	must(p,
	     world_kernel_has(p->w, number_at(p, 1), &a) ==
		     (strcmp(word(p, 3), "yes") == 0),
	     "the kernel says otherwise");
}

static void do_commits(struct player *p)
{
	must(p, p->w->commits - p->commits_seen == number_at(p, 1),
	     "another number of commits");
	p->commits_seen = p->w->commits;
}

static void do_items(struct player *p)
{
	must(p, p->w->commit_items - p->items_seen == number_at(p, 1),
	     "another number of elements");
	p->items_seen = p->w->commit_items;
}

static void do_events(struct player *p)
{
	size_t n = p->w->event_count - p->events_seen;
	char reason[EVENT_REASON_SIZE] = "";

	must(p, n == number_at(p, 1), "another number of events");
	p->events_seen = p->w->event_count;
	if (p->count < 3)
		return;
	must(p, n > 0 && p->w->event_count <= WORLD_EVENTS_MAX, "no event to look at");
	for (size_t i = 2; i < p->count; i++)
		snprintf(reason + strlen(reason), sizeof(reason) - strlen(reason), "%s%s",
			 i > 2 ? " " : "", p->words[i]);
	must(p, strcmp(p->w->events[p->w->event_count - 1].reason, reason) == 0,
	     p->w->events[p->w->event_count - 1].reason);
}

static void do_troubles(struct player *p)
{
	static const char *const kinds[] = { "none", "error", "rcode", "probe",
					     "healthy" };
	size_t n = p->w->trouble_count - p->troubles_seen;
	const struct upstream_trouble *t;

	must(p, n == number_at(p, 1), "another number of troubles");
	p->troubles_seen = p->w->trouble_count;
	if (p->count < 3)
		return;
	must(p, n > 0 && p->w->trouble_count <= WORLD_TROUBLES_MAX,
	     "no trouble to look at");
	t = &p->w->troubles[p->w->trouble_count - 1];
	must(p, strcmp(word(p, 2), kinds[t->kind]) == 0, "of another kind");
	must(p, t->server == number_at(p, 3), "of another server");
	must(p,
	     (t->kind == UPSTREAM_RCODE ? (int32_t)t->rcode : -t->error) ==
		     (int32_t)number_at(p, 4),
	     "with another reason");
}

static void do_pinned(struct player *p)
{
	must(p, p->rounds == number_at(p, 1), "another number of rounds");
	p->rounds = 0;
}

static void do_unpinned(struct player *p)
{
	char why[128];

	must(p, p->unpinned == number_at(p, 1), "another number of names");
	p->unpinned = 0;
	if (p->count < 3)
		return;
	snprintf(why, sizeof(why), "%s", word(p, 3));
	for (char *c = why; *c; c++)
		*c = *c == '_' ? ' ' : *c;
	must(p, strcmp(word(p, 2), p->unpinned_name) == 0, p->unpinned_name);
	must(p, strcmp(why, p->unpinned_why) == 0, p->unpinned_why);
	must(p, has(p, "required") == p->required, "required or not");
	must(p, has(p, "stays") == p->stays, "it stays or not");
}

static void do_count(struct player *p)
{
	for (int i = 0; i < SANDBOX_COUNTER_COUNT; i++) {
		if (strcmp(sandbox_counter_name((enum sandbox_counter)i), word(p, 2)) !=
		    0)
			continue;
		must(p, sandbox_at(p, 1)->counters[i] == number_at(p, 3),
		     "another count");
		return;
	}
	fail(p, "no such counter");
}

/* ---- play ---- */

static const struct {
	const char *name;
	void (*fn)(struct player *p);
} verbs[] = {
	{ "servers", do_servers },   { "allow", do_allow },
	{ "ask", do_ask },	     { "deny", do_deny },
	{ "limit", do_limit },	     { "apply", do_apply },
	{ "forget", do_forget },     { "ipv6", do_ipv6 },
	{ "state", do_state },	     { "probe", do_probe },
	{ "query", do_query },	     { "raw", do_raw },
	{ "turn", do_turn },	     { "wait", do_wait },
	{ "upstream", do_upstream }, { "open", do_open },
	{ "respond", do_respond },   { "lost", do_lost },
	{ "dead", do_dead },	     { "fail", do_fail },
	{ "reply", do_reply },	     { "noreply", do_noreply },
	{ "learned", do_learned },   { "kernel", do_kernel },
	{ "commits", do_commits },   { "items", do_items },
	{ "events", do_events },     { "count", do_count },
	{ "troubles", do_troubles }, { "change", do_change },
	{ "detach", do_detach },     { "dns", do_dns },
	{ "pin", do_pin },	     { "pinned", do_pinned },
	{ "unpinned", do_unpinned },
};

static void play_line(struct player *p, char *line)
{
	struct text t = { line, strcspn(line, "#\n") }, part;

	p->count = 0;
	while (text_split(&t, ' ', &part)) {
		if (part.len == 0)
			continue;
		must(p, p->count < WORDS_MAX, "too many words");
		line[part.ptr - line + (ptrdiff_t)part.len] = '\0';
		p->words[p->count++] = part.ptr;
	}
	if (p->count == 0)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		if (strcmp(verbs[i].name, p->words[0]) == 0) {
			verbs[i].fn(p);
			return;
		}
	}
	fail(p, "no such verb");
}

int main(int argc, char **argv)
{
	static char line[LINE_MAX_SIZE];
	struct player *p = calloc(1, sizeof(*p));
	FILE *f = argc == 2 ? fopen(argv[1], "re") : NULL;

	if (!f || !p) {
		fprintf(stderr, "usage: scenario FILE\n");
		return 2;
	}
	p->file = argv[1];
	p->w = world_new(2);
	while (fgets(line, sizeof(line), f)) {
		p->line++;
		play_line(p, line);
	}
	fclose(f);
	world_free(p->w);
	free(p);
	return 0;
}
