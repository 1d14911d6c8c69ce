// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A rule's statements are written in their order, each as the words that nft turns into
 * the expressions that netlink.c sends. nft adds what a word lacks (`tcp dport` needs
 * TCP), and would not see that the rule has said it already in other words; so ports are
 * written as `th dport`, and protocols as their own comparisons, which is what the
 * builders put before them anyhow. The one word that depends on what was said is the type
 * of an ICMP message: there are two protocols of that name. */
#include "filter/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/rtnetlink.h>

#include "filter/ruleset_internal.h"

struct text_writer {
	FILE *out;
	uint32_t l4proto; /* what the rule has compared the protocol with; 0: nothing */
	bool failed;	  /* there is no text for it */
};

/* ---- values ---- */

static void put_number(FILE *out, uint32_t value)
{
	fprintf(out, "%" PRIu32, value);
}

static void put_mark(FILE *out, uint32_t value)
{
	fprintf(out, "0x%08" PRIx32, value);
}

static void put_family(FILE *out, uint32_t value)
{
	fputs(value == NFPROTO_IPV4 ? "ipv4" : "ipv6", out);
}

static void put_link(FILE *out, uint32_t value)
{
	if (value == 1) /* of every network namespace's lo */
		fputs("\"lo\"", out);
	else
		put_number(out, value);
}

static void put_addr4(FILE *out, uint32_t value)
{
	fprintf(out, "%u.%u.%u.%u", value >> 24, value >> 16 & 255, value >> 8 & 255,
		value & 255);
}

static void put_route(FILE *out, uint32_t value)
{
	if (value == RTN_LOCAL)
		fputs("local", out);
	else
		put_number(out, value);
}

static void put_direction(FILE *out, uint32_t value)
{
	fputs(value == 0 ? "original" : "reply", out);
}

static void put_presence(FILE *out, uint32_t value)
{
	fputs(value ? "exists" : "missing", out);
}

static const struct word {
	const char *word;
	void (*put)(FILE *out, uint32_t value);
} words[FILTER_FIELD_COUNT] = {
	[FILTER_NFPROTO] = { "meta nfproto", put_family },
	[FILTER_L4PROTO] = { "meta l4proto", put_number },
	[FILTER_IIF] = { "iif", put_link },
	[FILTER_OIF] = { "oif", put_link },
	[FILTER_OIF_GROUP] = { "oifgroup", put_number },
	[FILTER_MARK] = { "meta mark", put_mark },
	[FILTER_SKUID] = { "meta skuid", put_number },
	[FILTER_SADDR4] = { "ip saddr", put_addr4 },
	[FILTER_DADDR4] = { "ip daddr", put_addr4 },
	[FILTER_DADDR6] = { "ip6 daddr", NULL }, /* in sets only */
	[FILTER_LENGTH6] = { "ip6 length", put_number },
	[FILTER_HEADER_WORDS4] = { "ip hdrlength", put_number },
	[FILTER_HAS_ROUTING6] = { "exthdr rt", put_presence },
	[FILTER_HOPLIMIT] = { "ip6 hoplimit", put_number },
	[FILTER_SPORT] = { "th sport", put_number },
	[FILTER_DPORT] = { "th dport", put_number },
	[FILTER_ICMP_TYPE] = { "icmp type", put_number },
	[FILTER_TCP_FLAGS] = { "tcp flags", put_number },
	[FILTER_CT_STATE] = { "ct state", put_number },
	[FILTER_CT_STATUS] = { "ct status", put_number },
	[FILTER_CT_MARK] = { "ct mark", put_mark },
	[FILTER_CT_DIRECTION] = { "ct direction", put_direction },
	[FILTER_FIB_DADDR_TYPE] = { "fib daddr type", put_route },
	[FILTER_FIB_SADDR_TYPE] = { "fib saddr type", put_route },
};

/* Bits that nft knows by name alone. */
static const struct bit {
	enum filter_field field;
	uint32_t bit;
	const char *word;
} bits[] = {
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_ESTABLISHED), "established" },
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_RELATED), "related" },
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_NEW), "new" },
	{ FILTER_CT_STATUS, IPS_DST_NAT, "dnat" },
	{ FILTER_TCP_FLAGS, 4, "rst" },
	{ FILTER_TCP_FLAGS, 4 | 16, "rst,ack" },
};

static void put_field(struct text_writer *w, enum filter_field field)
{
	const char *word = words[field].word;

	if (field == FILTER_ICMP_TYPE && w->l4proto == IPPROTO_ICMPV6)
		word = "icmpv6 type";
	if (!word)
		w->failed = true;
	else
		fputs(word, w->out);
}

static void put_value(struct text_writer *w, enum filter_field field, uint32_t value)
{
	if (!words[field].put)
		w->failed = true;
	else
		words[field].put(w->out, value);
}

/* ---- statements ---- */

/* The bit is set, or it isn't. */
static bool put_bit(struct text_writer *w, const struct filter_stmt *s)
{
	for (size_t i = 0; i < ARRAY_SIZE(bits); i++) {
		if (bits[i].field != s->field || bits[i].bit != s->mask || s->value != 0)
			continue;
		put_field(w, s->field);
		fprintf(w->out, s->kind == FILTER_EQUAL ? " & %s == 0" : " %s",
			bits[i].word);
		return true;
	}
	return false;
}

static void put_match(struct text_writer *w, const struct filter_stmt *s)
{
	if (s->mask && put_bit(w, s))
		return;
	/* Of the other fields a mask would have to be written in other ways. */
	if (s->mask && s->field != FILTER_CT_MARK)
		w->failed = true;
	put_field(w, s->field);
	if (s->mask)
		fprintf(w->out, " & 0x%08" PRIx32, s->mask);
	if (s->kind == FILTER_NOT_EQUAL)
		fputs(" !=", w->out);
	else if (s->mask)
		fputs(" ==", w->out);
	fputc(' ', w->out);
	put_value(w, s->field, s->value);
	if (s->field == FILTER_L4PROTO && s->kind == FILTER_EQUAL)
		w->l4proto = s->value;
}

static void put_range(struct text_writer *w, const struct filter_stmt *s)
{
	put_field(w, s->field);
	fputc(' ', w->out);
	put_value(w, s->field, s->value);
	fputc('-', w->out);
	put_value(w, s->field, s->value_to);
}

static void put_flow(struct text_writer *w, const struct filter_set *set)
{
	bool flow = set->key == FILTER_KEY_FLOW4 || set->key == FILTER_KEY_FLOW6;
	bool v4 = set->key == FILTER_KEY_FLOW4 || set->key == FILTER_KEY_ADDR4;

	if (!flow && set->key != FILTER_KEY_ADDR4 && set->key != FILTER_KEY_ADDR6)
		w->failed = true;
	fprintf(w->out, "%s%s", v4 ? "ip daddr" : "ip6 daddr",
		flow ? " . meta l4proto . th dport" : "");
}

static void put_in_set(struct text_writer *w, const struct filter_stmt *s)
{
	put_field(w, s->field);
	fprintf(w->out, " @%s", s->set->name);
}

static void put_port_in_set(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("meta l4proto . ", w->out);
	put_field(w, s->field);
	fprintf(w->out, " @%s", s->set->name);
}

static void put_flow_new(struct text_writer *w, const struct filter_stmt *s)
{
	put_flow(w, s->set);
	fprintf(w->out, " != @%s", s->set->name);
}

static void put_flow_add(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "%s @%s { ", s->kind == FILTER_FLOW_ADD ? "add" : "update",
		s->set->name);
	put_flow(w, s->set);
	fprintf(w->out, " timeout %" PRIu32 "s%s }", s->set->timeout_sec,
		s->set->counts ? " counter" : "");
}

static void put_limit(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "limit rate %u/second burst %u packets",
		s->value ? s->value : FILTER_LOG_PER_SEC,
		s->value ? 2 * s->value : FILTER_LOG_BURST);
}

static void put_counter(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("counter", w->out);
}

static void put_log(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "log prefix \"%s\" group %d queue-threshold 1", s->prefix,
		FILTER_NFLOG_GROUP);
}

static void put_ct_mark(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "ct mark set 0x%08" PRIx32, s->value);
}

static void put_accept(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("accept", w->out);
}

static void put_drop(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("drop", w->out);
}

static void put_return(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("return", w->out);
}

static void put_jump(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "jump %s", s->chain->name);
}

static void put_goto(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "goto %s", s->chain->name);
}

static void put_reject_reset(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("reject with tcp reset", w->out);
}

static void put_reject_admin(struct text_writer *w, const struct filter_stmt *s)
{
	fputs("reject with icmpx admin-prohibited", w->out);
}

static void put_redirect(struct text_writer *w, const struct filter_stmt *s)
{
	/* A port belongs to a protocol, to nft. */
	if (w->l4proto == 0)
		w->failed = true;
	fprintf(w->out, "redirect to :%" PRIu32, s->value);
}

static void put_cgroup(struct text_writer *w, const struct filter_stmt *s)
{
	fprintf(w->out, "socket cgroupv2 level %u \"%s\"", s->cgroup->level,
		s->cgroup->path);
}

/* What has no row has no text. */
static void (*const statements[])(struct text_writer *w, const struct filter_stmt *s) = {
	[FILTER_EQUAL] = put_match,
	[FILTER_NOT_EQUAL] = put_match,
	[FILTER_RANGE] = put_range,
	[FILTER_IN_SET] = put_in_set,
	[FILTER_PORT_IN_SET] = put_port_in_set,
	[FILTER_FLOW_NEW] = put_flow_new,
	[FILTER_FLOW_ADD] = put_flow_add,
	[FILTER_FLOW_COUNT] = put_flow_add,
	[FILTER_LIMIT] = put_limit,
	[FILTER_COUNTER] = put_counter,
	[FILTER_LOG] = put_log,
	[FILTER_SET_CT_MARK] = put_ct_mark,
	[FILTER_ACCEPT] = put_accept,
	[FILTER_DROP] = put_drop,
	[FILTER_RETURN] = put_return,
	[FILTER_JUMP] = put_jump,
	[FILTER_GOTO] = put_goto,
	[FILTER_REJECT_RESET] = put_reject_reset,
	[FILTER_REJECT_ADMIN] = put_reject_admin,
	[FILTER_REDIRECT] = put_redirect,
	[FILTER_IN_CGROUP] = put_cgroup,
};

static void put_rule(struct text_writer *w, const struct filter_rule *rule)
{
	w->l4proto = 0;
	for (size_t i = 0; i < rule->count; i++) {
		const struct filter_stmt *s = &rule->stmts[i];

		fputs(i == 0 ? "\t\t" : " ", w->out);
		if ((size_t)s->kind >= ARRAY_SIZE(statements) || !statements[s->kind])
			w->failed = true;
		else
			statements[s->kind](w, s);
	}
	fputc('\n', w->out);
}

/* ---- objects ---- */

static void put_chain(struct text_writer *w, const struct filter_chain *c)
{
	static const char *const hooks[] = { [NF_INET_LOCAL_IN] = "input",
					     [NF_INET_FORWARD] = "forward",
					     [NF_INET_LOCAL_OUT] = "output",
					     [NF_INET_POST_ROUTING] = "postrouting" };

	fprintf(w->out, "\n\tchain %s {\n", c->name);
	if (c->generation > 0)
		fprintf(w->out, "\t\tcomment \"generation %u\"\n", c->generation);
	if (c->type != FILTER_CHAIN_PLAIN) {
		const char *hook = c->hook < ARRAY_SIZE(hooks) ? hooks[c->hook] : NULL;

		w->failed |= !hook;
		fprintf(w->out, "\t\ttype %s hook %s priority %d; policy %s;\n",
			c->type == FILTER_CHAIN_NAT ? "nat" : "filter",
			hook ? hook : "none", c->priority, c->accept ? "accept" : "drop");
	}
	for (const struct filter_rule *r = c->rules; r; r = r->next)
		put_rule(w, r);
	fputs("\t}\n", w->out);
}

static void put_key(struct text_writer *w, enum filter_key key, const uint8_t *bytes)
{
	char text[INET6_ADDRSTRLEN];

	if (key == FILTER_KEY_PORT)
		fprintf(w->out, "%u", bytes[0] << 8 | bytes[1]);
	else if (key == FILTER_KEY_ADDR4 || key == FILTER_KEY_ADDR6)
		fputs(inet_ntop(key == FILTER_KEY_ADDR4 ? AF_INET : AF_INET6, bytes, text,
				sizeof(text)),
		      w->out);
	else
		w->failed = true;
}

static void put_elements(struct text_writer *w, const struct filter_set *s)
{
	size_t size = filter_key_size(s->key);

	if (s->range_count == 0)
		return;
	fputs("\t\telements = {", w->out);
	for (size_t i = 0; i < s->range_count; i++) {
		const struct filter_range *r = &s->ranges[i];

		fputs(i == 0 ? " " : ",\n\t\t\t     ", w->out);
		put_key(w, s->key, r->from);
		if (memcmp(r->from, r->to, size) == 0)
			continue;
		fputc('-', w->out);
		put_key(w, s->key, r->to);
	}
	fputs(" }\n", w->out);
}

static const char *type_of(enum filter_key key)
{
	switch (key) {
	case FILTER_KEY_PORT:
		return "inet_service";
	case FILTER_KEY_ADDR4:
		return "ipv4_addr";
	case FILTER_KEY_ADDR6:
		return "ipv6_addr";
	case FILTER_KEY_FLOW4:
		return "ipv4_addr . inet_proto . inet_service";
	case FILTER_KEY_FLOW6:
		return "ipv6_addr . inet_proto . inet_service";
	case FILTER_KEY_LOCAL_PORT:
		return "inet_proto . inet_service";
	default:
		return NULL;
	}
}

static void put_set(struct text_writer *w, const struct filter_set *s)
{
	const char *type = type_of(s->key);
	const char *flags = NULL;

	w->failed |= !type;
	fprintf(w->out, "\n\tset %s {\n\t\ttype %s\n", s->name, type ? type : "none");
	if (s->size > 0)
		fprintf(w->out, "\t\tsize %" PRIu32 "\n", s->size);
	if (s->timeout)
		flags = s->dynamic ? "dynamic,timeout" : "timeout";
	else if (!s->changes)
		flags = "constant,interval";
	if (flags)
		fprintf(w->out, "\t\tflags %s\n", flags);
	put_elements(w, s);
	fputs("\t}\n", w->out);
}

int filter_text(const struct ruleset *rs, const char *table, FILE *out)
{
	struct text_writer w = { .out = out };

	fprintf(out, "table inet %s\ndelete table inet %s\n\ntable inet %s {", table,
		table, table);
	for (const struct filter_set *s = rs->sets; s; s = s->next)
		put_set(&w, s);
	for (const struct filter_chain *c = rs->chains; c; c = c->next)
		put_chain(&w, c);
	fputs("}\n", out);
	if (w.failed)
		return -EOPNOTSUPP;
	return ferror(out) ? -EIO : 0;
}
