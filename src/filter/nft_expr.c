// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * Three tables say all that there is to know: `fields`, what a packet can be asked;
 * `keys`, the fields that the key of a set is put together from; `statements`, what a
 * rule can say. Each row has both back ends: how it is written as nf_tables expressions,
 * and how nft(8) spells it. Reading back has no table of its own: install.c writes each
 * rule once more and compares bytes with what the kernel gives.
 *
 * An expression works on registers of four bytes: one loads a field, the next compares
 * it. Register numbers are written the way in which the kernel gives them back, and
 * attributes that the kernel would add with their default are sent, so that bytes can be
 * compared.
 *
 * nft adds what a word lacks (`tcp dport` needs TCP), and would not see that the rule has
 * said it already in other words; so ports are written as `th dport`, and protocols as
 * their own comparisons, which is what the builders put before them anyhow. The one word
 * that depends on what was said is the type of an ICMP message: there are two protocols
 * of that name. */
#include "filter/nft.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/rtnetlink.h>

enum {
	KEY_PARTS_MAX = 4,
	REGISTERS_OF_ONE = 4,
	LIMIT_SECOND = 1, /* unit of limits, in seconds */
};
#define MEMBER_MASK 0xffff0000u

/* ---- what a packet is asked ---- */

/* A line that is being printed. */
struct line {
	FILE *out;
	uint32_t l4proto; /* what the rule has compared the protocol with; 0: nothing */
	bool failed;	  /* there is no text for it */
};

/* nft's numbers of data types; concatenations shift by six bits. */
enum data_type {
	TYPE_IPADDR = 7,
	TYPE_IP6ADDR = 8,
	TYPE_INET_PROTOCOL = 12,
	TYPE_INET_SERVICE = 13,
	TYPE_MARK = 19,
	TYPE_UID = 24,
	TYPE_CGROUP = 46,
	TYPE_BITS = 6,
};

static const char *const type_names[] = {
	[TYPE_IPADDR] = "ipv4_addr",
	[TYPE_IP6ADDR] = "ipv6_addr",
	[TYPE_INET_PROTOCOL] = "inet_proto",
	[TYPE_INET_SERVICE] = "inet_service",
	[TYPE_MARK] = "mark",
	[TYPE_UID] = "uid",
	[TYPE_CGROUP] = "cgroupsv2",
};

/* How nft writes the value of a field. */
enum format {
	AS_NOTHING = 0, /* there is no text for it */
	AS_NUMBER,
	AS_MARK,
	AS_ADDR4,
	AS_HEAD6, /* the first 32 bits of an address */
};

/* By which expression a field is loaded. */
enum source {
	SOURCE_META,
	SOURCE_NETWORK,	  /* from the IP header */
	SOURCE_TRANSPORT, /* from the header behind it */
	SOURCE_CT,
	SOURCE_FIB,
	SOURCE_SOCKET,
	SOURCE_EXTENSION, /* whether there is such a header in an IPv6 packet */
};

static const struct field {
	const char *word;   /* for nft */
	enum format format; /* AS_NOTHING: it is only in sets */
	enum source source;
	uint32_t key; /* of meta, ct, fib and IPv6; of a header the offset */
	uint32_t size;
	bool host_order;     /* else values are compared in network order */
	enum data_type type; /* where it is in the key of a set */
	uint32_t mask;	     /* 0: all of its bits */
} fields[FILTER_FIELD_COUNT] = {
	[FILTER_NFPROTO] = { "meta nfproto", AS_NUMBER, SOURCE_META, NFT_META_NFPROTO,
			     1 },
	[FILTER_L4PROTO] = { "meta l4proto", AS_NUMBER, SOURCE_META, NFT_META_L4PROTO, 1,
			     false, TYPE_INET_PROTOCOL },
	[FILTER_IIF] = { "iif", AS_NUMBER, SOURCE_META, NFT_META_IIF, 4, true },
	[FILTER_OIF] = { "oif", AS_NUMBER, SOURCE_META, NFT_META_OIF, 4, true },
	[FILTER_OIF_GROUP] = { "oifgroup", AS_NUMBER, SOURCE_META, NFT_META_OIFGROUP, 4,
			       true },
	[FILTER_MARK] = { "meta mark", AS_MARK, SOURCE_META, NFT_META_MARK, 4, true,
			  TYPE_MARK },
	[FILTER_SKUID] = { "meta skuid", AS_NUMBER, SOURCE_META, NFT_META_SKUID, 4, true,
			   TYPE_UID },
	[FILTER_SADDR4] = { "ip saddr", AS_ADDR4, SOURCE_NETWORK, 12, 4 },
	[FILTER_DADDR4] = { "ip daddr", AS_ADDR4, SOURCE_NETWORK, 16, 4, false,
			    TYPE_IPADDR },
	[FILTER_DADDR6] = { "ip6 daddr", AS_NOTHING, SOURCE_NETWORK, 24, 16, false,
			    TYPE_IP6ADDR },
	[FILTER_DADDR6_HEAD] = { "ip6 daddr", AS_HEAD6, SOURCE_NETWORK, 24, 4 },
	[FILTER_LENGTH6] = { "ip6 length", AS_NUMBER, SOURCE_NETWORK, 4, 2 },
	[FILTER_HEADER_WORDS4] = { "ip hdrlength", AS_NUMBER, SOURCE_NETWORK, 0, 1,
				   .mask = 0x0f },
	[FILTER_HAS_ROUTING6] = { "exthdr rt", AS_NUMBER, SOURCE_EXTENSION,
				  IPPROTO_ROUTING, 1 },
	[FILTER_HOPLIMIT] = { "ip6 hoplimit", AS_NUMBER, SOURCE_NETWORK, 7, 1 },
	[FILTER_SPORT] = { "th sport", AS_NUMBER, SOURCE_TRANSPORT, 0, 2 },
	[FILTER_DPORT] = { "th dport", AS_NUMBER, SOURCE_TRANSPORT, 2, 2, false,
			   TYPE_INET_SERVICE },
	[FILTER_ICMP_TYPE] = { "icmp type", AS_NUMBER, SOURCE_TRANSPORT, 0, 1 },
	[FILTER_TCP_FLAGS] = { "tcp flags", AS_NUMBER, SOURCE_TRANSPORT, 13, 1 },
	[FILTER_CT_STATE] = { "ct state", AS_NUMBER, SOURCE_CT, NFT_CT_STATE, 4, true },
	[FILTER_CT_STATUS] = { "ct status", AS_NUMBER, SOURCE_CT, NFT_CT_STATUS, 4,
			       true },
	[FILTER_CT_MARK] = { "ct mark", AS_MARK, SOURCE_CT, NFT_CT_MARK, 4, true,
			     TYPE_MARK },
	[FILTER_CT_DIRECTION] = { "ct direction", AS_NUMBER, SOURCE_CT, NFT_CT_DIRECTION,
				  1 },
	[FILTER_FIB_DADDR_TYPE] = { "fib daddr type", AS_NUMBER, SOURCE_FIB,
				    NFTA_FIB_F_DADDR, 4, true },
	[FILTER_FIB_SADDR_TYPE] = { "fib saddr type", AS_NUMBER, SOURCE_FIB,
				    NFTA_FIB_F_SADDR, 4, true },
	[FILTER_CGROUP] = { NULL, AS_NOTHING, SOURCE_SOCKET, NFT_SOCKET_CGROUPV2, 8, true,
			    TYPE_CGROUP },
};

/* Bits that nft knows by name alone. */
static const struct bit {
	enum filter_field field;
	uint32_t bit;
	const char *word;
} bits[] = {
	{ FILTER_CT_STATUS, IPS_DST_NAT, "dnat" },
	{ FILTER_CT_STATUS, IPS_ASSURED, "assured" },
	{ FILTER_TCP_FLAGS, 2, "syn" },
	{ FILTER_TCP_FLAGS, 4, "rst" },
	{ FILTER_TCP_FLAGS, 2 | 4, "syn,rst" },
	{ FILTER_TCP_FLAGS, 4 | 16, "rst,ack" },
};

/* Values that have a name in nft's text. Rules compare the state of a packet with one of
 * its three. */
static const struct named_value {
	enum filter_field field;
	uint32_t value;
	const char *word;
} named_values[] = {
	{ FILTER_NFPROTO, NFPROTO_IPV4, "ipv4" },
	{ FILTER_NFPROTO, NFPROTO_IPV6, "ipv6" },
	{ FILTER_IIF, 1, "\"lo\"" }, /* of every network namespace */
	{ FILTER_OIF, 1, "\"lo\"" },
	{ FILTER_HAS_ROUTING6, false, "missing" },
	{ FILTER_HAS_ROUTING6, true, "exists" },
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_ESTABLISHED), "established" },
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_RELATED), "related" },
	{ FILTER_CT_STATE, NF_CT_STATE_BIT(IP_CT_NEW), "new" },
	{ FILTER_CT_DIRECTION, IP_CT_DIR_ORIGINAL, "original" },
	{ FILTER_CT_DIRECTION, IP_CT_DIR_REPLY, "reply" },
	{ FILTER_FIB_DADDR_TYPE, RTN_LOCAL, "local" },
	{ FILTER_FIB_SADDR_TYPE, RTN_LOCAL, "local" },
};

/* ---- keys of sets ---- */

/* The fields of a key, one behind the other in registers of four bytes. What stands in a
 * set for many sandboxes begins with the member: the upper half of a mark. */
static const struct key_part {
	enum filter_field field;
	uint32_t mask; /* 0: the whole field */
} keys[FILTER_KEY_COUNT][KEY_PARTS_MAX] = {
	[FILTER_KEY_PORT] = { { FILTER_DPORT, 0 } },
	[FILTER_KEY_ADDR4] = { { FILTER_DADDR4, 0 } },
	[FILTER_KEY_ADDR6] = { { FILTER_DADDR6, 0 } },
	[FILTER_KEY_FLOW4] = { { FILTER_DADDR4, 0 },
			       { FILTER_L4PROTO, 0 },
			       { FILTER_DPORT, 0 } },
	[FILTER_KEY_FLOW6] = { { FILTER_DADDR6, 0 },
			       { FILTER_L4PROTO, 0 },
			       { FILTER_DPORT, 0 } },
	[FILTER_KEY_LOCAL_PORT] = { { FILTER_L4PROTO, 0 }, { FILTER_DPORT, 0 } },
	[FILTER_KEY_MARK] = { { FILTER_MARK, 0 } },
	[FILTER_KEY_MEMBER] = { { FILTER_MARK, MEMBER_MASK } },
	[FILTER_KEY_FLOW_MARK] = { { FILTER_CT_MARK, 0 } },
	[FILTER_KEY_FLOW_MEMBER] = { { FILTER_CT_MARK, MEMBER_MASK } },
	[FILTER_KEY_UID] = { { FILTER_SKUID, 0 } },
	[FILTER_KEY_CGROUP] = { { FILTER_CGROUP, 0 } },
	[FILTER_KEY_PLAN] = { { FILTER_MARK, (uint32_t)~MEMBER_MASK } },
	[FILTER_KEY_MARKS] = { { FILTER_MARK, 0 }, { FILTER_CT_MARK, 0 } },
	[FILTER_KEY_MARK_AND_FLOW] = { { FILTER_MARK, 0 },
				       { FILTER_CT_MARK, MEMBER_MASK } },
	[FILTER_KEY_CGROUP_FLOW] = { { FILTER_CGROUP, 0 }, { FILTER_CT_MARK, 0 } },
	[FILTER_KEY_MARK_ADDR4] = { { FILTER_MARK, 0 }, { FILTER_DADDR4, 0 } },
	[FILTER_KEY_MARK_ADDR6] = { { FILTER_MARK, 0 }, { FILTER_DADDR6, 0 } },
	[FILTER_KEY_MEMBER_FLOW4] = { { FILTER_MARK, MEMBER_MASK },
				      { FILTER_DADDR4, 0 },
				      { FILTER_L4PROTO, 0 },
				      { FILTER_DPORT, 0 } },
	[FILTER_KEY_MEMBER_FLOW6] = { { FILTER_MARK, MEMBER_MASK },
				      { FILTER_DADDR6, 0 },
				      { FILTER_L4PROTO, 0 },
				      { FILTER_DPORT, 0 } },
};

static size_t part_count(enum filter_key key)
{
	size_t n = 0;

	while (n < KEY_PARTS_MAX && keys[key][n].field)
		n++;
	return n;
}

/* Four-byte registers that a field takes. */
static uint32_t slots_of(const struct field *f)
{
	return (f->size + 3) / 4;
}

size_t filter_key_size(enum filter_key key)
{
	size_t count = part_count(key), size = 0;

	if (count == 1)
		return fields[keys[key][0].field].size;
	for (size_t i = 0; i < count; i++)
		size += slots_of(&fields[keys[key][i].field]) * sizeof(uint32_t);
	return size;
}

uint32_t nft_key_type(enum filter_key key)
{
	uint32_t type = 0;

	for (size_t i = 0; i < part_count(key); i++)
		type = type << TYPE_BITS | fields[keys[key][i].field].type;
	return type;
}

bool nft_key_type_print(FILE *out, enum filter_key key)
{
	for (size_t i = 0; i < part_count(key); i++) {
		if (keys[key][i].mask)
			return false;
		fprintf(out, "%s%s", i == 0 ? "" : " . ",
			type_names[fields[keys[key][i].field].type]);
	}
	return part_count(key) > 0;
}

uint32_t nft_value_type(enum filter_value value)
{
	static const uint32_t types[] = {
		[FILTER_VALUE_MARK] = TYPE_MARK, [FILTER_VALUE_VERDICT] = NFT_DATA_VERDICT
	};

	return types[value];
}

static void print_field(struct line *t, enum filter_field field)
{
	const char *word = fields[field].word;

	if (field == FILTER_ICMP_TYPE && t->l4proto == IPPROTO_ICMPV6)
		word = "icmpv6 type";
	if (!word)
		t->failed = true;
	else
		fputs(word, t->out);
}

static void print_value(struct line *t, enum filter_field field, uint32_t value)
{
	for (size_t i = 0; i < ARRAY_SIZE(named_values); i++)
		if (named_values[i].field == field && named_values[i].value == value) {
			fputs(named_values[i].word, t->out);
			return;
		}
	switch (fields[field].format) {
	case AS_NOTHING:
		t->failed = true;
		break;
	case AS_NUMBER:
		fprintf(t->out, "%" PRIu32, value);
		break;
	case AS_MARK:
		fprintf(t->out, "0x%08" PRIx32, value);
		break;
	case AS_ADDR4:
		fprintf(t->out, "%u.%u.%u.%u", value >> 24, value >> 16 & 255,
			value >> 8 & 255, value & 255);
		break;
	case AS_HEAD6:
		fprintf(t->out, "%x:%x::/32", value >> 16, value & 0xffff);
		break;
	}
}

/* ip daddr . meta l4proto . th dport */
static void print_key(struct line *t, enum filter_key key)
{
	for (size_t i = 0; i < part_count(key); i++) {
		t->failed |= keys[key][i].mask != 0;
		fputs(i == 0 ? "" : " . ", t->out);
		print_field(t, keys[key][i].field);
	}
}

/* ---- expressions ---- */

/* An expression that is being written. */
struct expression {
	size_t element, data;
};

static struct expression expression_begin(struct nl_writer *w, const char *name)
{
	struct expression e;

	e.element = nl_nest(w, NFTA_LIST_ELEM);
	nl_put_text(w, NFTA_EXPR_NAME, name);
	e.data = nl_nest(w, NFTA_EXPR_DATA);
	return e;
}

static void expression_end(struct nl_writer *w, struct expression e)
{
	nl_nest_end(w, e.data);
	nl_nest_end(w, e.element);
}

/* An attribute of an expression: a number, or @text, or @data, which is nested. */
struct term {
	uint16_t type;
	uint64_t number;
	size_t size; /* bytes of the number, or of @data; 0: four */
	const char *text;
	const void *data;
};

static void put_terms(struct nl_writer *w, const struct term *t, size_t count)
{
	for (; count > 0; t++, count--) {
		size_t nest;

		if (t->text) {
			nl_put_text(w, t->type, t->text);
		} else if (t->data) {
			nest = nl_nest(w, t->type);
			nl_put(w, NFTA_DATA_VALUE, t->data, t->size);
			nl_nest_end(w, nest);
		} else if (t->size == sizeof(uint8_t)) {
			nl_put_u8(w, t->type, (uint8_t)t->number);
		} else if (t->size == sizeof(uint16_t)) {
			nl_put_be16(w, t->type, (uint16_t)t->number);
		} else if (t->size == sizeof(uint64_t)) {
			nl_put_be64(w, t->type, t->number);
		} else {
			nl_put_be32(w, t->type, (uint32_t)t->number);
		}
	}
}

static void put_expression(struct nl_writer *w, const char *name, const struct term *t,
			   size_t count)
{
	struct expression e = expression_begin(w, name);

	put_terms(w, t, count);
	expression_end(w, e);
}

#define TERMS(...)                                                                       \
	(const struct term[]){ __VA_ARGS__ },                                            \
		sizeof((const struct term[]){ __VA_ARGS__ }) / sizeof(struct term)

/* Four-byte register @slot, from 0 on, as the kernel gives it back: a number of 16-byte
 * registers (1 to 4) stands for the first of its four. */
static uint32_t reg_at(uint32_t slot)
{
	return slot % REGISTERS_OF_ONE == 0 ? NFT_REG_1 + slot / REGISTERS_OF_ONE
					    : NFT_REG32_00 + slot;
}

/* @value as the bytes of @field in a register. */
static size_t field_bytes(enum filter_field field, uint32_t value, uint8_t ret[4])
{
	const struct field *f = &fields[field];
	uint32_t be = htobe32(value);

	if (f->host_order)
		memcpy(ret, &value, 4);
	else
		memcpy(ret, (uint8_t *)&be + 4 - MIN(f->size, 4u), MIN(f->size, 4u));
	return MIN(f->size, 4u);
}

/* The register's field & @mask */
static void put_mask(struct nl_writer *w, enum filter_field field, uint32_t mask,
		     uint32_t reg)
{
	static const uint8_t zero[4];
	uint8_t bytes[4];
	size_t size = field_bytes(field, mask, bytes);

	put_expression(w, "bitwise",
		       TERMS({ NFTA_BITWISE_SREG, reg }, { NFTA_BITWISE_DREG, reg },
			     { NFTA_BITWISE_LEN, size },
			     { NFTA_BITWISE_OP, NFT_BITWISE_BOOL },
			     { NFTA_BITWISE_MASK, .data = bytes, .size = size },
			     { NFTA_BITWISE_XOR, .data = zero, .size = size }));
}

/* @level: of the cgroup that a socket is asked for. */
static void load(struct nl_writer *w, enum filter_field field, uint8_t level,
		 uint32_t reg)
{
	const struct field *f = &fields[field];

	switch (f->source) {
	case SOURCE_META:
		put_expression(w, "meta",
			       TERMS({ NFTA_META_DREG, reg }, { NFTA_META_KEY, f->key }));
		break;
	case SOURCE_NETWORK:
	case SOURCE_TRANSPORT:
		put_expression(w, "payload",
			       TERMS({ NFTA_PAYLOAD_DREG, reg },
				     { NFTA_PAYLOAD_BASE,
				       f->source == SOURCE_NETWORK
					       ? NFT_PAYLOAD_NETWORK_HEADER
					       : NFT_PAYLOAD_TRANSPORT_HEADER },
				     { NFTA_PAYLOAD_OFFSET, f->key },
				     { NFTA_PAYLOAD_LEN, f->size }));
		break;
	case SOURCE_CT:
		put_expression(w, "ct",
			       TERMS({ NFTA_CT_DREG, reg }, { NFTA_CT_KEY, f->key }));
		break;
	case SOURCE_FIB:
		put_expression(w, "fib",
			       TERMS({ NFTA_FIB_DREG, reg },
				     { NFTA_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE },
				     { NFTA_FIB_FLAGS, f->key }));
		break;
	case SOURCE_EXTENSION:
		put_expression(w, "exthdr",
			       TERMS({ NFTA_EXTHDR_DREG, reg },
				     { NFTA_EXTHDR_TYPE, f->key, 1 },
				     { NFTA_EXTHDR_OFFSET, 0 }, { NFTA_EXTHDR_LEN, 1 },
				     { NFTA_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT },
				     { NFTA_EXTHDR_OP, NFT_EXTHDR_OP_IPV6 }));
		break;
	case SOURCE_SOCKET:
		if (level == 0)
			w->failed = -EINVAL;
		put_expression(w, "socket",
			       TERMS({ NFTA_SOCKET_KEY, NFT_SOCKET_CGROUPV2 },
				     { NFTA_SOCKET_DREG, reg },
				     { NFTA_SOCKET_LEVEL, level }));
		break;
	}
	if (f->mask)
		put_mask(w, field, f->mask, reg);
}

static void load_key(struct nl_writer *w, const struct filter_set *set)
{
	const struct key_part *parts = keys[set->key];
	uint32_t slot = 0;

	for (size_t i = 0; i < part_count(set->key); i++) {
		load(w, parts[i].field, set->level, reg_at(slot));
		if (parts[i].mask)
			put_mask(w, parts[i].field, parts[i].mask, reg_at(slot));
		slot += slots_of(&fields[parts[i].field]);
	}
	if (slot == 0)
		w->failed = -EINVAL; /* a key that is nothing must not load */
}

static void put_compare(struct nl_writer *w, uint32_t op, const void *value, size_t size)
{
	put_expression(w, "cmp",
		       TERMS({ NFTA_CMP_SREG, NFT_REG_1 }, { NFTA_CMP_OP, op },
			     { NFTA_CMP_DATA, .data = value, .size = size }));
}

static void put_immediate(struct nl_writer *w, const void *value, size_t size)
{
	put_expression(w, "immediate",
		       TERMS({ NFTA_IMMEDIATE_DREG, NFT_REG_1 },
			     { NFTA_IMMEDIATE_DATA, .data = value, .size = size }));
}

/* ---- statements ---- */

/* What tells apart kinds that share functions. */
struct variant {
	uint32_t code;
	const char *word;
};

static void print_word(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fputs(v.word, t->out);
}

/* ct state & 2 != 0; tcp dport 53; icmp type 1-4 */
static void write_match(struct nl_writer *w, const struct filter_stmt *s,
			struct variant v)
{
	uint8_t bytes[4];
	size_t size = field_bytes(s->field, s->value, bytes);

	load(w, s->field, 0, NFT_REG_1);
	if (s->mask)
		put_mask(w, s->field, s->mask, NFT_REG_1);
	put_compare(w, v.code, bytes, size);
	if (s->kind == FILTER_RANGE) {
		field_bytes(s->field, s->value_to, bytes);
		put_compare(w, NFT_CMP_LTE, bytes, size);
	}
}

static void print_match(struct line *t, const struct filter_stmt *s, struct variant v)
{
	const struct bit *bit = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bits) && s->mask && s->value == 0 && !bit; i++)
		if (bits[i].field == s->field && bits[i].bit == s->mask)
			bit = &bits[i];
	/* Of the other fields a mask would have to be written in other ways. */
	if (s->mask && !bit && s->field != FILTER_CT_MARK)
		t->failed = true;
	print_field(t, s->field);
	if (bit) { /* it is set, or it isn't */
		fprintf(t->out, s->kind == FILTER_EQUAL ? " & %s == 0" : " %s",
			bit->word);
		return;
	}
	if (s->mask)
		fprintf(t->out, " & 0x%08" PRIx32, s->mask);
	if (s->kind == FILTER_NOT_EQUAL)
		fputs(" !=", t->out);
	else if (s->kind != FILTER_RANGE && (s->mask || s->field == FILTER_CT_STATE))
		fputs(" ==", t->out); /* without it: one of several */
	fputc(' ', t->out);
	print_value(t, s->field, s->value);
	if (s->kind == FILTER_RANGE) {
		fputc('-', t->out);
		print_value(t, s->field, s->value_to);
	}
	if (s->field == FILTER_L4PROTO && s->kind == FILTER_EQUAL)
		t->l4proto = s->value;
}

/* ip daddr @allow4_0; ip daddr . meta l4proto . th dport != @seen4;
 * meta l4proto . th sport @held_v4 */
static void write_in_set(struct nl_writer *w, const struct filter_stmt *s,
			 struct variant v)
{
	if (s->kind == FILTER_PORT_IN_SET) {
		load(w, FILTER_L4PROTO, 0, reg_at(0));
		load(w, s->field, 0, reg_at(1));
	} else {
		load_key(w, s->set);
	}
	put_expression(w, "lookup",
		       TERMS({ NFTA_LOOKUP_SET, .text = s->set->name },
			     { NFTA_LOOKUP_SREG, NFT_REG_1 },
			     { NFTA_LOOKUP_FLAGS, v.code }));
}

static void print_in_set(struct line *t, const struct filter_stmt *s, struct variant v)
{
	if (s->kind == FILTER_PORT_IN_SET) {
		fputs("meta l4proto . ", t->out);
		print_field(t, s->field);
	} else {
		print_key(t, s->set->key);
	}
	fprintf(t->out, " %s@%s", v.word, s->set->name);
}

#define COUNTER_TERMS TERMS({ NFTA_COUNTER_BYTES, 0, 8 }, { NFTA_COUNTER_PACKETS, 0, 8 })
/* limit rate 20/second burst 40 packets */
#define LIMIT_TERMS(per_sec)                                                             \
	TERMS({ NFTA_LIMIT_RATE, (per_sec) ? (per_sec) : FILTER_LOG_PER_SEC, 8 },        \
	      { NFTA_LIMIT_UNIT, LIMIT_SECOND, 8 },                                      \
	      { NFTA_LIMIT_BURST, (per_sec) ? 2 * (per_sec) : FILTER_LOG_BURST },        \
	      { NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS }, { NFTA_LIMIT_FLAGS, 0 })

/* add @seen4 { ip daddr . meta l4proto . th dport counter }; update @rates { meta mark &
 * 0xffff0000 timeout 60s limit rate 20/second burst 40 packets }. Where the statement
 * before has found it missing, the key is in the registers. An update begins its time
 * anew. */
static void write_flow(struct nl_writer *w, const struct filter_stmt *s, struct variant v)
{
	const bool limits = s->kind == FILTER_LIMIT_EACH;
	struct expression e;
	size_t expr, data;

	if (s->kind != FILTER_FLOW_ADD)
		load_key(w, s->set);
	e = expression_begin(w, "dynset");
	put_terms(
		w,
		TERMS({ NFTA_DYNSET_SREG_KEY, NFT_REG_1 }, { NFTA_DYNSET_OP, v.code },
		      { NFTA_DYNSET_SET_NAME, .text = s->set->name },
		      { NFTA_DYNSET_TIMEOUT, s->set->timeout_sec * UINT64_C(1000), 8 }));
	if (limits || s->set->counts) {
		expr = nl_nest(w, NFTA_DYNSET_EXPR);
		nl_put_text(w, NFTA_EXPR_NAME, limits ? "limit" : "counter");
		data = nl_nest(w, NFTA_EXPR_DATA);
		if (limits)
			put_terms(w, LIMIT_TERMS(s->value));
		else
			put_terms(w, COUNTER_TERMS);
		nl_nest_end(w, data);
		nl_nest_end(w, expr);
	}
	nl_put_be32(w, NFTA_DYNSET_FLAGS, 0);
	expression_end(w, e);
}

static void print_flow(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "%s @%s { ", v.word, s->set->name);
	print_key(t, s->set->key);
	fprintf(t->out, " timeout %" PRIu32 "s%s }", s->set->timeout_sec,
		s->set->counts ? " counter" : "");
}

static void write_limit(struct nl_writer *w, const struct filter_stmt *s,
			struct variant v)
{
	put_expression(w, "limit", LIMIT_TERMS(s->value));
}

static void print_limit(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "limit rate %u/second burst %u packets",
		s->value ? s->value : FILTER_LOG_PER_SEC,
		s->value ? 2 * s->value : FILTER_LOG_BURST);
}

static void write_counter(struct nl_writer *w, const struct filter_stmt *s,
			  struct variant v)
{
	put_expression(w, "counter", COUNTER_TERMS);
}

static void write_log(struct nl_writer *w, const struct filter_stmt *s, struct variant v)
{
	put_expression(w, "log",
		       TERMS({ NFTA_LOG_PREFIX, .text = s->prefix },
			     { NFTA_LOG_GROUP, FILTER_NFLOG_GROUP, 2 },
			     { NFTA_LOG_QTHRESHOLD, 1, 2 }));
}

static void print_log(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "log prefix \"%s\" group %d queue-threshold 1", s->prefix,
		FILTER_NFLOG_GROUP);
}

/* From the first register. */
static void store_mark(struct nl_writer *w)
{
	put_expression(
		w, "meta",
		TERMS({ NFTA_META_KEY, NFT_META_MARK }, { NFTA_META_SREG, NFT_REG_1 }));
}

/* ct mark set 1; meta mark set 1; meta mark set ct mark;
 * ct mark set meta mark & 0xffff0000 */
static void write_mark(struct nl_writer *w, const struct filter_stmt *s, struct variant v)
{
	if (s->kind == FILTER_MARK_FROM_CT) {
		load(w, FILTER_CT_MARK, 0, NFT_REG_1);
	} else if (s->kind == FILTER_CT_FROM_MARK) {
		load(w, FILTER_MARK, 0, NFT_REG_1);
		if (s->mask)
			put_mask(w, FILTER_MARK, s->mask, NFT_REG_1);
	} else {
		put_immediate(w, &s->value, sizeof(s->value));
	}
	if (v.code == FILTER_MARK)
		store_mark(w);
	else
		put_expression(
			w, "ct",
			TERMS({ NFTA_CT_KEY, NFT_CT_MARK }, { NFTA_CT_SREG, NFT_REG_1 }));
}

static void print_ct_mark(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "ct mark set 0x%08" PRIx32, s->value);
}

/* meta mark & 0x0000ffff vmap @plans; meta mark set socket cgroupv2 level 2 map
 * @cgroup_2: what the map gives for its key goes to the register @v.code. */
static void write_mapped(struct nl_writer *w, const struct filter_stmt *s,
			 struct variant v)
{
	load_key(w, s->set);
	put_expression(w, "lookup",
		       TERMS({ NFTA_LOOKUP_SET, .text = s->set->name },
			     { NFTA_LOOKUP_SREG, NFT_REG_1 },
			     { NFTA_LOOKUP_DREG, v.code }, { NFTA_LOOKUP_FLAGS, 0 }));
	if (v.code == NFT_REG_1)
		store_mark(w);
}

/* jump refuse; @v.code is the verdict */
static void write_verdict(struct nl_writer *w, const struct filter_stmt *s,
			  struct variant v)
{
	struct expression e = expression_begin(w, "immediate");
	size_t data, nest;

	nl_put_be32(w, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nl_nest(w, NFTA_IMMEDIATE_DATA);
	nest = nl_nest(w, NFTA_DATA_VERDICT);
	nl_put_be32(w, NFTA_VERDICT_CODE, v.code);
	if (s->chain)
		nl_put_text(w, NFTA_VERDICT_CHAIN, s->chain->name);
	nl_nest_end(w, nest);
	nl_nest_end(w, data);
	expression_end(w, e);
}

static void print_go(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "%s %s", v.word, s->chain->name);
}

static void write_reset(struct nl_writer *w, const struct filter_stmt *s,
			struct variant v)
{
	put_expression(w, "reject", TERMS({ NFTA_REJECT_TYPE, NFT_REJECT_TCP_RST }));
}

static void write_reject(struct nl_writer *w, const struct filter_stmt *s,
			 struct variant v)
{
	put_expression(
		w, "reject",
		TERMS({ NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH },
		      { NFTA_REJECT_ICMP_CODE, NFT_REJECT_ICMPX_ADMIN_PROHIBITED, 1 }));
}

/* redirect to :53 */
static void write_redirect(struct nl_writer *w, const struct filter_stmt *s,
			   struct variant v)
{
	uint16_t be = htobe16((uint16_t)s->value);

	put_immediate(w, &be, sizeof(be));
	put_expression(w, "redir",
		       TERMS({ NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1 },
			     { NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1 },
			     { NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED }));
}

static void print_redirect(struct line *t, const struct filter_stmt *s, struct variant v)
{
	/* A port belongs to a protocol, to nft. */
	if (t->l4proto == 0)
		t->failed = true;
	fprintf(t->out, "redirect to :%" PRIu32, s->value);
}

/* socket cgroupv2 level 2 "a/b" */
static void write_cgroup(struct nl_writer *w, const struct filter_stmt *s,
			 struct variant v)
{
	load(w, FILTER_CGROUP, s->cgroup->level, NFT_REG_1);
	put_compare(w, NFT_CMP_EQ, &s->cgroup->id, sizeof(s->cgroup->id));
}

static void print_cgroup(struct line *t, const struct filter_stmt *s, struct variant v)
{
	fprintf(t->out, "socket cgroupv2 level %u \"%s\"", s->cgroup->level,
		s->cgroup->path);
}

/* What has no printer has no text: only the host's table says it. */
static const struct statement {
	void (*write)(struct nl_writer *w, const struct filter_stmt *s, struct variant v);
	void (*print)(struct line *t, const struct filter_stmt *s, struct variant v);
	struct variant variant;
} statements[FILTER_STMT_COUNT] = {
	[FILTER_EQUAL] = { write_match, print_match, { NFT_CMP_EQ, NULL } },
	[FILTER_NOT_EQUAL] = { write_match, print_match, { NFT_CMP_NEQ, NULL } },
	[FILTER_RANGE] = { write_match, print_match, { NFT_CMP_GTE, NULL } },
	[FILTER_IN_SET] = { write_in_set, print_in_set, { 0, "" } },
	[FILTER_PORT_IN_SET] = { write_in_set, print_in_set, { 0, "" } },
	[FILTER_FLOW_NEW] = { write_in_set, print_in_set, { NFT_LOOKUP_F_INV, "!= " } },
	[FILTER_FLOW_ADD] = { write_flow, print_flow, { NFT_DYNSET_OP_ADD, "add" } },
	[FILTER_FLOW_COUNT] = { write_flow,
				print_flow,
				{ NFT_DYNSET_OP_UPDATE, "update" } },
	[FILTER_LIMIT] = { write_limit, print_limit },
	[FILTER_COUNTER] = { write_counter, print_word, { 0, "counter" } },
	[FILTER_LOG] = { write_log, print_log },
	[FILTER_SET_CT_MARK] = { write_mark, print_ct_mark, { FILTER_CT_MARK, NULL } },
	[FILTER_ACCEPT] = { write_verdict, print_word, { NF_ACCEPT, "accept" } },
	[FILTER_DROP] = { write_verdict, print_word, { NF_DROP, "drop" } },
	[FILTER_RETURN] = { write_verdict,
			    print_word,
			    { (uint32_t)NFT_RETURN, "return" } },
	[FILTER_JUMP] = { write_verdict, print_go, { (uint32_t)NFT_JUMP, "jump" } },
	[FILTER_GOTO] = { write_verdict, print_go, { (uint32_t)NFT_GOTO, "goto" } },
	[FILTER_REJECT_RESET] = { write_reset,
				  print_word,
				  { 0, "reject with tcp reset" } },
	[FILTER_REJECT_ADMIN] = { write_reject,
				  print_word,
				  { 0, "reject with icmpx admin-prohibited" } },
	[FILTER_REDIRECT] = { write_redirect, print_redirect },
	[FILTER_IN_CGROUP] = { write_cgroup, print_cgroup },
	[FILTER_GO_BY] = { write_mapped, NULL, { NFT_REG_VERDICT, NULL } },
	[FILTER_MARK_BY] = { write_mapped, NULL, { NFT_REG_1, NULL } },
	[FILTER_SET_MARK] = { write_mark, NULL, { FILTER_MARK, NULL } },
	[FILTER_MARK_FROM_CT] = { write_mark, NULL, { FILTER_MARK, NULL } },
	[FILTER_CT_FROM_MARK] = { write_mark, NULL, { FILTER_CT_MARK, NULL } },
	[FILTER_LIMIT_EACH] = { write_flow, NULL, { NFT_DYNSET_OP_UPDATE, NULL } },
};

void nft_rule_write(struct nl_writer *w, const struct filter_rule *rule)
{
	size_t nest = nl_nest(w, NFTA_RULE_EXPRESSIONS);

	for (size_t i = 0; i < rule->count; i++) {
		const struct filter_stmt *s = &rule->stmts[i];
		bool complete =
			s->kind != FILTER_FLOW_ADD ||
			(i > 0 && s[-1].kind == FILTER_FLOW_NEW && s[-1].set == s->set);

		if (statements[s->kind].write && complete)
			statements[s->kind].write(w, s, statements[s->kind].variant);
		else
			w->failed = -EINVAL; /* what says nothing must not load */
	}
	nl_nest_end(w, nest);
}

bool nft_rule_print(FILE *out, const struct filter_rule *rule)
{
	struct line t = { .out = out };

	for (size_t i = 0; i < rule->count; i++) {
		const struct filter_stmt *s = &rule->stmts[i];

		fputs(i == 0 ? "\t\t" : " ", out);
		if (statements[s->kind].print)
			statements[s->kind].print(&t, s, statements[s->kind].variant);
		else
			t.failed = true;
	}
	fputc('\n', out);
	return !t.failed;
}
