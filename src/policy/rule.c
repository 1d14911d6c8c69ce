// SPDX-License-Identifier: Apache-2.0
#include "policy/rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "event/json.h"
#include "policy/limits.h"
#include "policy/names.h"

/* -- what a rule names: text to a checked name, wildcard or prefix ------------------ */

enum { TARGET_TEXT_MAX = 512 }; /* bytes; a name of 255 octets fits in any spelling */

/* -EINVAL with "'<target>' is not <what>". */
static int refuse_target(struct err *err, struct text t, const char *what)
{
	return err_set(err, -EINVAL, "'%s' is not %s", TEXT_SHOWN(t), what);
}

static bool text_has(struct text t, char c)
{
	return t.len > 0 && memchr(t.ptr, c, t.len);
}

static bool has_scheme(struct text t)
{
	return t.ptr && memmem(t.ptr, t.len, "://", 3);
}

static int prefix_target(struct text t, struct rule *ret, struct err *err)
{
	const char *slash = memchr(t.ptr, '/', t.len);
	char what[256];
	struct prefix p;
	struct addr a;

	if (!prefix_parse(t.ptr, t.len, false, &p)) {
		if (!addr_parse(t.ptr, slash ? (size_t)(slash - t.ptr) : t.len, &a))
			return refuse_target(
				err, t,
				"a prefix: before the '/' stands an IPv4 or IPv6 "
				"address");
		/* "10.0.0.1/8": name the prefix that was meant. */
		if (prefix_parse(t.ptr, t.len, true, &p))
			snprintf(what, sizeof(what),
				 "a prefix: bits are set behind its length; write %s, or "
				 "%s for that address alone",
				 PREFIX_SHOWN(&p), ADDR_SHOWN(&a));
		else
			snprintf(what, sizeof(what),
				 "a prefix: behind the '/' stands a number from 0 to %zu",
				 8 * addr_size(&a));
		return refuse_target(err, t, what);
	}
	if (addr_is_mapped(&p.addr) && p.bits >= 96) {
		const struct addr v4 = addr_unmapped(&p.addr);
		const struct prefix plain = prefix_of(&v4, p.bits - 96u);

		snprintf(what, sizeof(what), "an address that a packet carries: write %s",
			 PREFIX_SHOWN(&plain));
		return refuse_target(err, t, what);
	}
	ret->kind = TARGET_PREFIX;
	ret->name = (struct dns_name){ 0 };
	ret->prefix = p;
	return 0;
}

/* With ':' it is IPv6, or a name or address with a port. */
static int refuse_colon(struct err *err, struct text t)
{
	if (text_has(t, '['))
		return refuse_target(
			err, t,
			"a target: write the address without brackets, and ports "
			"under `ports`");
	if (text_has(t, '%'))
		return refuse_target(
			err, t, "an address: zones (%) mean nothing outside one machine");
	if (has_scheme(t))
		return refuse_target(
			err, t,
			"a target: write the host alone, without scheme and path");
	return refuse_target(
		err, t, "an IPv6 address; if a port was meant, write it under `ports`");
}

/* What a text has beside letters, digits, '-', '_' and dots. */
enum {
	HAS_BLANK = 1 << 0, /* or a control character */
	HAS_URL = 1 << 1,   /* what stands around the host */
	HAS_BRACKET = 1 << 2,
	HAS_SLASH = 1 << 3,
	HAS_COLON = 1 << 4,
	HAS_STAR = 1 << 5,
	HAS_WIDE = 1 << 6, /* no ASCII */
};

static unsigned int charset_of(struct text t)
{
	static const uint8_t has[UINT8_MAX + 1] = {
		[0 ... ' '] = HAS_BLANK,
		[0x7f] = HAS_BLANK,
		['@'] = HAS_URL,
		['?'] = HAS_URL,
		['#'] = HAS_URL,
		['\\'] = HAS_URL,
		['['] = HAS_BRACKET,
		[']'] = HAS_BRACKET,
		['%'] = HAS_BRACKET,
		['/'] = HAS_SLASH,
		[':'] = HAS_COLON,
		['*'] = HAS_STAR,
		[0x80 ... 0xff] = HAS_WIDE,
	};
	unsigned int ret = 0;

	for (size_t i = 0; i < t.len; i++)
		ret |= has[(uint8_t)t.ptr[i]];
	return ret;
}

static int refuse_number(struct err *err, struct text t)
{
	char copy[64] = "", what[160];
	struct in_addr in;
	struct addr a;

	if (t.len < sizeof(copy))
		memcpy(copy, t.ptr, t.len);
	if (!inet_aton(copy, &in))
		return refuse_target(err, t,
				     "a name or an address: no name ends in a number");
	a = addr_from_bytes(ADDR_V4, (const uint8_t *)&in);
	snprintf(what, sizeof(what),
		 "a name, and programs read it as different addresses; if %s was meant, "
		 "write that",
		 ADDR_SHOWN(&a));
	return refuse_target(err, t, what);
}

static int refuse_unchecked(struct err *err, struct text t, const char *library)
{
	return err_set(err, -ELIBACC, "'%s' can't be judged: %s can't be loaded",
		       TEXT_SHOWN(t), library);
}

/* Convert a name with letters outside ASCII. libidn2 maps some names to others without
 * a word (capitals, compatibility forms, dots of other scripts): what doesn't come back
 * as it was is refused. */
static int idn_target(struct text t, struct dns_name *ret, struct err *err)
{
	char copy[TARGET_TEXT_MAX + 1], what[300], shown[128];
	CLEAN(mem) char *ascii = NULL;
	CLEAN(mem) char *back = NULL;
	struct text came;
	int r;

	memcpy(copy, t.ptr, t.len);
	copy[t.len] = '\0';
	r = name_to_ascii(copy, &ascii);
	if (r == -ELIBACC)
		return refuse_unchecked(err, t, "libidn2");
	if (r < 0)
		return refuse_target(err, t,
				     "a domain name: IDNA 2008 has no form for it");
	if (name_to_unicode(ascii, &back) < 0)
		return refuse_target(err, t,
				     "a domain name: its IDNA form can't be read back");
	came = text_of(back);
	if (!text_same(came, t)) {
		snprintf(what, sizeof(what),
			 "the usual spelling of this name; if %s was meant, write that",
			 text_escape(text_of(ascii), shown, sizeof(shown)));
		return refuse_target(err, t, what);
	}
	if (dns_name_parse(text_of(ascii), ret) < 0)
		return refuse_target(err, t, "a domain name in its IDNA form");
	return 0;
}

static int refuse_name(struct err *err, struct text t)
{
	struct text rest = t, label;

	if (text_has(t, ','))
		return refuse_target(err, t,
				     "one target: write each in a rule or an option of "
				     "its own");
	while (text_split(&rest, '.', &label)) {
		if (label.len == 0)
			return refuse_target(
				err, t,
				"a domain name: between two dots stands at least one "
				"character, and one dot at most ends it");
		if (label.len > DNS_LABEL_MAX)
			return refuse_target(
				err, t,
				"a domain name: a part between dots has at most 63 "
				"characters");
	}
	if (t.len > DNS_NAME_MAX - 2)
		return refuse_target(err, t,
				     "a domain name: it has at most 253 characters");
	return refuse_target(err, t,
			     "a domain name: it has letters, digits, '-', '_' and dots");
}

enum rule_target rule_target_stars(struct text *t)
{
	enum rule_target kind = TARGET_NAME;
	size_t stars = 0;

	if (t->len > 3 && memcmp(t->ptr, "**.", 3) == 0) {
		kind = TARGET_WITHIN;
		stars = 3;
	} else if (t->len > 2 && memcmp(t->ptr, "*.", 2) == 0) {
		kind = TARGET_BELOW;
		stars = 2;
	}
	*t = (struct text){ t->ptr + stars, t->len - stars };
	return kind;
}

static int name_target(struct text whole, unsigned int has, struct rule *ret,
		       struct err *err)
{
	struct text t = whole, last;
	const char *dot;
	const enum rule_target kind = rule_target_stars(&t);
	char text[DNS_NAME_TEXT_SIZE];
	struct dns_name name;
	int r, is_public = 1;

	if (has & HAS_STAR && text_has(t, '*'))
		return refuse_target(
			err, whole,
			"a pattern: '*.' or '**.' stands once, in front of a name");
	last = t;
	last.len -= t.ptr[t.len - 1] == '.';
	dot = memrchr(last.ptr, '.', last.len);
	if (dot)
		last = (struct text){ dot + 1, (size_t)(last.ptr + last.len - dot - 1) };
	if (name_is_number(last))
		return refuse_number(err, whole);
	if (has & HAS_WIDE)
		r = idn_target(t, &name, err);
	else
		r = dns_name_parse(t, &name) < 0 ? refuse_name(err, whole) : 0;
	if (r < 0)
		return r;
	if (name.labels == 0)
		return refuse_target(err, whole, "a domain name: the root is everything");
	/* A wildcard over `com` or `co.uk` would be one over strangers' names.
	 * policy_build() warns of private suffixes (github.io). */
	if (kind != TARGET_NAME && name.labels > 1)
		is_public = name_is_public_suffix(dns_name_format(&name, text), false);
	if (kind != TARGET_NAME && is_public < 0)
		return refuse_unchecked(err, whole, "libpsl");
	if (kind != TARGET_NAME && is_public)
		return refuse_target(
			err, whole,
			"a pattern that a policy can hold: under this suffix "
			"anybody can have a name");
	ret->kind = kind;
	ret->name = name;
	ret->prefix = (struct prefix){ 0 };
	return 0;
}

int rule_target_parse(struct text t, struct rule *ret, struct err *err)
{
	unsigned int has;
	struct addr a;

	if (t.len == 0)
		return refuse_target(err, t, "a target: it is empty");
	if (t.len > TARGET_TEXT_MAX)
		return refuse_target(err, t, "a target: it is longer than a name can be");
	has = charset_of(t);
	if (has & HAS_BLANK)
		return refuse_target(err, t,
				     "a target: it holds a blank or a control character");
	if (has & HAS_URL)
		return refuse_target(err, t, "a target: write the host alone");
	if (text_equal(t, "*") || text_equal(t, "**") || text_equal(t, "*.") ||
	    text_equal(t, "**."))
		return refuse_target(
			err, t,
			"a target: to open everything, write `defaultAction: allow`");
	if (has & HAS_BRACKET)
		return refuse_colon(err, t);
	if (addr_parse(t.ptr, t.len, &a) || (has & HAS_SLASH && !has_scheme(t)))
		return prefix_target(t, ret, err);
	return has & HAS_COLON ? refuse_colon(err, t) : name_target(t, has, ret, err);
}

bool rule_same_target(const struct rule *a, const struct rule *b)
{
	if (a->kind != b->kind)
		return false;
	return a->kind == TARGET_PREFIX ? addr_equal(&a->prefix.addr, &b->prefix.addr) &&
						  a->prefix.bits == b->prefix.bits
					: dns_name_equal(&a->name, &b->name);
}

bool rule_covers(const struct rule *r, const struct dns_name *name)
{
	switch (r->kind) {
	case TARGET_NAME:
		return dns_name_equal(name, &r->name);
	case TARGET_WITHIN:
		return dns_name_is_within(name, &r->name);
	case TARGET_BELOW:
		return dns_name_is_within(name, &r->name) &&
		       !dns_name_equal(name, &r->name);
	default:
		return false;
	}
}

/* -- lists of ports: text to sorted disjoint ranges and back ------------------------ */

static int range_compare(const void *x, const void *y)
{
	const struct plan_port_range *a = x, *b = y;

	if (a->protocol != b->protocol)
		return a->protocol - b->protocol;
	return a->from != b->from ? a->from - b->from : a->to - b->to;
}

size_t rule_ports_normalise(struct plan_port_range *r, size_t count)
{
	size_t used = 0;

	qsort(r, count, sizeof(*r), range_compare);
	for (size_t i = 0; i < count; i++) {
		struct plan_port_range *last = used > 0 ? &r[used - 1] : NULL;

		if (last && last->protocol == r[i].protocol && r[i].from <= last->to + 1)
			last->to = MAX(last->to, r[i].to);
		else
			r[used++] = r[i];
	}
	return used;
}

size_t rule_ports_default(enum policy_verify verify,
			  struct plan_port_range ret[RULE_DEFAULT_RANGES])
{
	size_t n = 0;

	for (size_t i = 0; i < 2; i++) {
		uint8_t protocol = i == 0 ? IPPROTO_TCP : IPPROTO_UDP;
		bool no_quic = protocol == IPPROTO_UDP && verify == POLICY_VERIFY_TLS;

		ret[n++] = (struct plan_port_range){ protocol, 0, 1, 52 };
		ret[n++] =
			(struct plan_port_range){ protocol, 0, 54, no_quic ? 442 : 852 };
		if (no_quic)
			ret[n++] = (struct plan_port_range){ protocol, 0, 444, 852 };
		ret[n++] = (struct plan_port_range){ protocol, 0, 854, 65535 };
	}
	return n;
}

static int part_fault(struct text part, struct err *err, const char *why)
{
	return err_set(err, -EINVAL, "'%s' is not a port: %s", TEXT_SHOWN(part), why);
}

/* One part: at most two ranges. Return: how many, or -EINVAL. */
static int part_parse(struct text part, struct plan_port_range ret[2], struct err *err)
{
	const char *slash = part.len > 0 ? memchr(part.ptr, '/', part.len) : NULL;
	const char *p = slash ? slash + 1 : part.ptr, *end = part.ptr + part.len;
	const struct text word = { part.ptr, slash ? (size_t)(slash - part.ptr) : 0 };
	const bool is_tcp = text_equal_nocase(word, "tcp");
	uint32_t from, to;

	if (slash && !is_tcp && !text_equal_nocase(word, "udp"))
		return part_fault(part, err, "only tcp/ and udp/ can stand in front");
	if (!parse_u32(&p, end, UINT16_MAX, &from))
		return part_fault(part, err, "write 443, 8000-8100, tcp/22 or udp/443");
	to = from;
	if (p < end && *p == '-') {
		p++;
		if (!parse_u32(&p, end, UINT16_MAX, &to))
			return part_fault(part, err, "the range has no end");
	}
	if (p != end)
		return part_fault(part, err, "write 443, 8000-8100, tcp/22 or udp/443");
	if (from == 0 || to == 0)
		return part_fault(part, err, "ports are 1 to 65535");
	if (from > to)
		return part_fault(part, err, "the range runs backwards");
	ret[0] = ret[1] = (struct plan_port_range){ .protocol = IPPROTO_UDP,
						    .from = (uint16_t)from,
						    .to = (uint16_t)to };
	/* A port without a protocol is one of both. */
	if (is_tcp || !slash)
		ret[0].protocol = IPPROTO_TCP;
	return slash ? 1 : 2;
}

int rule_ports_parse(struct text t, struct plan_port_range *ret, bool *ret_default,
		     struct err *err)
{
	struct plan_port_range all[PLAN_PORT_RANGES_MAX + 2];
	bool with_default = false;
	size_t count = 0;
	struct text part;

	while (text_split(&t, ',', &part)) {
		bool is_default = ret_default && text_equal(text_trim(part), "default");
		int r = is_default ? 0 : part_parse(text_trim(part), all + count, err);

		with_default |= is_default;
		if (r < 0)
			return r;
		count += (size_t)r;
		if (count > PLAN_PORT_RANGES_MAX)
			count = rule_ports_normalise(all, count);
		if (count > PLAN_PORT_RANGES_MAX)
			return err_set(err, -EINVAL,
				       "more than %d separate ranges of ports",
				       PLAN_PORT_RANGES_MAX);
	}
	if (count == 0 && !with_default)
		return err_set(err, -EINVAL, "no port is named");
	count = rule_ports_normalise(all, count);
	memcpy(ret, all, count * sizeof(*ret));
	if (ret_default)
		*ret_default = with_default;
	return (int)count;
}

int rule_ports_read(struct text t, struct arena *arena, struct rule_ports *ret,
		    struct err *err)
{
	struct plan_port_range ranges[PLAN_PORT_RANGES_MAX], *copy;
	bool with_default = false;
	int count = rule_ports_parse(t, ranges, &with_default, err);

	if (count < 0)
		return count;
	copy = arena_array(arena, (size_t)count + 1, sizeof(*copy));
	if (!copy)
		return -ENOMEM;
	memcpy(copy, ranges, (size_t)count * sizeof(*copy));
	*ret = (struct rule_ports){ copy, (size_t)count, with_default && count > 0 };
	return 0;
}

bool rule_ports_have(const struct rule_ports *ports, uint16_t port)
{
	for (size_t i = 0; i < ports->count; i++) {
		if (port >= ports->ranges[i].from && port <= ports->ranges[i].to)
			return true;
	}
	return false;
}

bool rule_ports_equal(const struct rule_ports *a, const struct rule_ports *b)
{
	return a->count == b->count && a->with_default == b->with_default &&
	       (a->count == 0 ||
		memcmp(a->ranges, b->ranges, a->count * sizeof(*a->ranges)) == 0);
}

char *rule_ports_format(const struct plan_port_range *ranges, size_t count, char *buf,
			size_t size)
{
	buf[0] = '\0';
	for (size_t i = 0; i < count; i++) {
		const struct plan_port_range *r = &ranges[i];
		const bool tcp = r->protocol == IPPROTO_TCP;
		const char *alone = tcp ? "tcp/" : "udp/";
		const size_t used = strlen(buf);
		char text[32], to[8] = "";
		bool both = false;

		for (size_t k = 0; k < count && !both; k++)
			both = ranges[k].protocol == (tcp ? IPPROTO_UDP : IPPROTO_TCP) &&
			       ranges[k].from == r->from && ranges[k].to == r->to;
		if (both && !tcp)
			continue; /* shown with TCP */
		if (r->from != r->to)
			snprintf(to, sizeof(to), "-%u", r->to);
		snprintf(text, sizeof(text), "%s%u%s", both ? "" : alone, r->from, to);
		if (used + 1 + strlen(text) < size) {
			snprintf(buf + used, size - used, "%s%s", used > 0 ? "," : "",
				 text);
			continue;
		}
		if (size >= 4)
			snprintf(buf + MIN(used, size - 4), 4, "...");
		break;
	}
	return buf;
}

char *rule_ports_text(const struct rule_ports *ports, char *buf, size_t size)
{
	static const char word[] = "default,";
	size_t used = ports->with_default && size > sizeof(word) ? strlen(word) : 0;

	memcpy(buf, word, used);
	rule_ports_format(ports->ranges, ports->count, buf + used, size - used);
	return buf;
}

/* -- words -------------------------------------------------------------------------- */

const struct rule_flag_word rule_flag_words[RULE_FLAG_COUNT] = {
	{ "private", PLAN_PRIVATE },
	{ "raw", PLAN_RAW },
	{ "required", PLAN_REQUIRED },
	{ "unmetered", PLAN_UNMETERED },
};

const char *const rule_type_words[RULE_TYPE_COUNT] = { "PTR", "SRV", "TXT", "MX" };

const char *const rule_action_words[RULE_ACTION_COUNT] = {
	[POLICY_DENY] = "deny",
	[POLICY_ALLOW] = "allow",
	[POLICY_ASK] = "ask",
};

const char *policy_action_name(enum policy_action action)
{
	return (size_t)action < RULE_ACTION_COUNT ? rule_action_words[action]
						  : rule_action_words[POLICY_DENY];
}

/* ---- one rule as text, as it stands in a document of either language ---- */

/* What has to be written otherwise. */
struct dialect {
	const char *quote; /* around keys, and words of a list */
	const char *colon, *comma;
};

static const struct dialect json = { "\"", ":", "," }, yaml = { "", ": ", ", " };

static void put(struct jtext *j, const char *text)
{
	jtext_put(j, text_of(text));
}

static void put_key(struct jtext *j, const struct dialect *d, const char *key)
{
	if (j->used > 0 && j->buf[j->used - 1] != '{')
		put(j, d->comma);
	put(j, d->quote);
	put(j, key);
	put(j, d->quote);
	put(j, d->colon);
}

/* A word of Weir's own, in which nothing is to be escaped, or a number. */
static void put_word(struct jtext *j, const struct dialect *d, struct text word)
{
	uint32_t number;
	const char *quote = text_to_u32(word, UINT32_MAX, &number) ? "" : d->quote;

	put(j, quote);
	jtext_put(j, word);
	put(j, quote);
}

static void put_member(struct jtext *j, const struct dialect *d, const char *key,
		       const char *word)
{
	put_key(j, d, key);
	put_word(j, d, text_of(word));
}

/* The words of @list, "a,b". */
static void put_list(struct jtext *j, const struct dialect *d, const char *key,
		     const char *list)
{
	struct text rest = text_of(list), part;

	if (!list[0])
		return;
	put_key(j, d, key);
	for (const char *before = "["; text_split(&rest, ',', &part); before = d->comma) {
		put(j, before);
		put_word(j, d, part);
	}
	put(j, "]");
}

/* A text of a person's. libyaml doesn't read JSON's escapes over U+FFFF, and none is
 * needed in what a policy can hold. */
static void put_text(struct jtext *j, const struct dialect *d, const char *key,
		     const char *text)
{
	bool is_plain = d == &yaml && jtext_is_utf8(text_of(text));

	for (const char *p = text; *p; p++)
		is_plain &= (uint8_t)*p >= 0x20 && *p != 0x7f;
	put_key(j, d, key);
	if (!is_plain) {
		jtext_string(j, text_of(text), strlen(text));
		return;
	}
	put(j, "\"");
	for (; *text; text++) {
		put(j, *text == '"' || *text == '\\' ? "\\" : "");
		jtext_put(j, (struct text){ text, 1 });
	}
	put(j, "\"");
}

char *rule_size_text(uint64_t bytes, char *buf)
{
	static const char units[] = "KMG";
	size_t unit = 0;

	for (; unit < strlen(units) && bytes % 1024 == 0 && bytes > 0; unit++)
		bytes /= 1024;
	snprintf(buf, RULE_SIZE_SIZE, "%" PRIu64 "%.1s", bytes,
		 unit > 0 ? units + unit - 1 : "");
	return buf;
}

static void write_rule(struct jtext *j, const struct dialect *d, const struct rule *r)
{
	char ports[PLAN_PORT_RANGES_MAX * 24], types[RULE_TYPE_COUNT * 8] = "";
	char time[JTEXT_TIME_SIZE];
	size_t used = 0;

	put(j, "{");
	put_member(j, d, "action", policy_action_name(r->action));
	put_text(j, d, "target", r->target);
	put_list(j, d, "ports", rule_ports_text(&r->ports, ports, sizeof(ports)));
	for (size_t i = 0; i < RULE_FLAG_COUNT; i++)
		if (r->flags & rule_flag_words[i].flag) {
			put_key(j, d, rule_flag_words[i].key);
			put(j, "true");
		}
	for (size_t i = 0; i < RULE_TYPE_COUNT; i++)
		if (r->types >> i & 1)
			used += (size_t)snprintf(types + used, sizeof(types) - used,
						 "%s%s", used > 0 ? "," : "",
						 rule_type_words[i]);
	put_list(j, d, "types", types);
	if (r->until_ms != 0)
		put_member(j, d, "until", jtext_time(r->until_ms, true, time));
	if (r->budget.sent > 0 || r->budget.received > 0) {
		char size[RULE_SIZE_SIZE], window[POLICY_WINDOW_SIZE];

		put_key(j, d, "budget");
		put(j, "{");
		if (r->budget.sent > 0)
			put_member(j, d, "sent", rule_size_text(r->budget.sent, size));
		if (r->budget.received > 0)
			put_member(j, d, "received",
				   rule_size_text(r->budget.received, size));
		if (r->budget.per_sec > 0)
			put_member(j, d, "per",
				   policy_window_text(r->budget.per_sec, window));
		put_member(j, d, "action",
			   r->budget.action == BUDGET_EVENT ? "event" : "cut");
		put(j, "}");
	}
	if (r->comment && r->comment[0])
		put_text(j, d, "comment", r->comment);
	put(j, "}");
}

bool rule_write(const struct rule *r, bool is_json, char *buf, size_t size)
{
	struct jtext j;

	jtext_init(&j, buf, size - 1);
	write_rule(&j, is_json ? &json : &yaml, r);
	buf[j.full ? 0 : j.used] = '\0';
	return !j.full;
}

char *rule_text(const struct rule *r, bool is_json)
{
	CLEAN(jtext) struct jtext j = { .grows = true };

	write_rule(&j, is_json ? &json : &yaml, r);
	return jtext_take(&j);
}
