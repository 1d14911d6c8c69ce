// SPDX-License-Identifier: Apache-2.0
#include "filter/netlink_load.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter/nf_tables.h>

enum { KEY_PARTS_MAX = 4, REGISTERS_OF_ONE = 4 };
#define MEMBER_MASK 0xffff0000u

/* The fields that a key is put together from, one behind the other in registers of four
 * bytes. What stands in a set for many sandboxes begins with the member: the upper half
 * of a mark. */
static const struct key_part {
	enum filter_field field;
	uint32_t mask; /* 0: the whole field */
} key_parts[FILTER_KEY_COUNT][KEY_PARTS_MAX] = {
	[FILTER_KEY_FLOW4] = { { FILTER_DADDR4, 0 },
			       { FILTER_L4PROTO, 0 },
			       { FILTER_DPORT, 0 } },
	[FILTER_KEY_FLOW6] = { { FILTER_DADDR6, 0 },
			       { FILTER_L4PROTO, 0 },
			       { FILTER_DPORT, 0 } },
	[FILTER_KEY_ADDR4] = { { FILTER_DADDR4, 0 } },
	[FILTER_KEY_ADDR6] = { { FILTER_DADDR6, 0 } },
	[FILTER_KEY_MARK] = { { FILTER_MARK, 0 } },
	[FILTER_KEY_MEMBER] = { { FILTER_MARK, MEMBER_MASK } },
	[FILTER_KEY_PLAN] = { { FILTER_MARK, (uint32_t)~MEMBER_MASK } },
	[FILTER_KEY_FLOW_MARK] = { { FILTER_CT_MARK, 0 } },
	[FILTER_KEY_FLOW_MEMBER] = { { FILTER_CT_MARK, MEMBER_MASK } },
	[FILTER_KEY_UID] = { { FILTER_SKUID, 0 } },
	[FILTER_KEY_CGROUP] = { { FILTER_CGROUP, 0 } },
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

/* How a field is loaded: by which expression, from where, how many bytes, and whether
 * its value is compared in network order. */
enum source {
	SOURCE_META,
	SOURCE_PAYLOAD,
	SOURCE_CT,
	SOURCE_FIB,
	SOURCE_SOCKET,
	SOURCE_EXTENSION,
};

static const struct field {
	enum source source;
	uint32_t key;	 /* of meta, ct and IPv6; base of payload; result of fib */
	uint32_t offset; /* of payload; flags of fib */
	uint32_t size;
	bool host_order;
	uint32_t mask; /* 0: all of its bits */
} fields[FILTER_FIELD_COUNT] = {
	/* meta nfproto, meta l4proto, iif, meta oifgroup, meta mark, meta skuid */
	[FILTER_NFPROTO] = { SOURCE_META, NFT_META_NFPROTO, 0, 1, false },
	[FILTER_L4PROTO] = { SOURCE_META, NFT_META_L4PROTO, 0, 1, false },
	[FILTER_IIF] = { SOURCE_META, NFT_META_IIF, 0, 4, true },
	[FILTER_OIF] = { SOURCE_META, NFT_META_OIF, 0, 4, true },
	[FILTER_OIF_GROUP] = { SOURCE_META, NFT_META_OIFGROUP, 0, 4, true },
	[FILTER_MARK] = { SOURCE_META, NFT_META_MARK, 0, 4, true },
	[FILTER_SKUID] = { SOURCE_META, NFT_META_SKUID, 0, 4, true },
	/* ip hdrlength, ip saddr, ip daddr, ip6 daddr, ip6 length, ip6 hoplimit */
	[FILTER_HEADER_WORDS4] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 0, 1,
				   false, 0x0f },
	[FILTER_SADDR4] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 12, 4, false },
	[FILTER_DADDR4] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 16, 4, false },
	[FILTER_DADDR6] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 24, 16, false },
	[FILTER_LENGTH6] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 4, 2, false },
	[FILTER_HOPLIMIT] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 7, 1, false },
	/* th sport, th dport, icmp type and icmpv6 type, tcp flags */
	[FILTER_SPORT] = { SOURCE_PAYLOAD, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, false },
	[FILTER_DPORT] = { SOURCE_PAYLOAD, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, false },
	[FILTER_ICMP_TYPE] = { SOURCE_PAYLOAD, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1,
			       false },
	[FILTER_TCP_FLAGS] = { SOURCE_PAYLOAD, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1,
			       false },
	/* ct state, ct status, ct mark, ct direction */
	[FILTER_CT_STATE] = { SOURCE_CT, NFT_CT_STATE, 0, 4, true },
	[FILTER_CT_STATUS] = { SOURCE_CT, NFT_CT_STATUS, 0, 4, true },
	[FILTER_CT_MARK] = { SOURCE_CT, NFT_CT_MARK, 0, 4, true },
	[FILTER_CT_DIRECTION] = { SOURCE_CT, NFT_CT_DIRECTION, 0, 1, false },
	/* fib daddr type, fib saddr type */
	[FILTER_FIB_DADDR_TYPE] = { SOURCE_FIB, NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_DADDR,
				    4, true },
	[FILTER_FIB_SADDR_TYPE] = { SOURCE_FIB, NFT_FIB_RESULT_ADDRTYPE, NFTA_FIB_F_SADDR,
				    4, true },
	/* exthdr rt exists */
	[FILTER_HAS_ROUTING6] = { SOURCE_EXTENSION, IPPROTO_ROUTING, 0, 1, false },
	/* socket cgroupv2 level 2 */
	[FILTER_CGROUP] = { SOURCE_SOCKET, NFT_SOCKET_CGROUPV2, 0, 8, true },
};

struct expression expr_begin(struct nl_writer *w, const char *name)
{
	struct expression e;

	e.element = nl_nest(w, NFTA_LIST_ELEM);
	nl_put_text(w, NFTA_EXPR_NAME, name);
	e.data = nl_nest(w, NFTA_EXPR_DATA);
	return e;
}

void expr_end(struct nl_writer *w, struct expression e)
{
	nl_nest_end(w, e.data);
	nl_nest_end(w, e.element);
}

void expr_put_data(struct nl_writer *w, uint16_t type, const void *value, size_t size)
{
	size_t nest = nl_nest(w, type);

	nl_put(w, NFTA_DATA_VALUE, value, size);
	nl_nest_end(w, nest);
}

static void load_meta(struct nl_writer *w, uint32_t key, uint32_t reg)
{
	struct expression e = expr_begin(w, "meta");

	nl_put_be32(w, NFTA_META_DREG, reg);
	nl_put_be32(w, NFTA_META_KEY, key);
	expr_end(w, e);
}

static void load_payload(struct nl_writer *w, const struct field *f, uint32_t reg)
{
	struct expression e = expr_begin(w, "payload");

	nl_put_be32(w, NFTA_PAYLOAD_DREG, reg);
	nl_put_be32(w, NFTA_PAYLOAD_BASE, f->key);
	nl_put_be32(w, NFTA_PAYLOAD_OFFSET, f->offset);
	nl_put_be32(w, NFTA_PAYLOAD_LEN, f->size);
	expr_end(w, e);
}

static void load_ct(struct nl_writer *w, uint32_t key, uint32_t reg)
{
	struct expression e = expr_begin(w, "ct");

	nl_put_be32(w, NFTA_CT_DREG, reg);
	nl_put_be32(w, NFTA_CT_KEY, key);
	expr_end(w, e);
}

static void load_fib(struct nl_writer *w, const struct field *f, uint32_t reg)
{
	struct expression e = expr_begin(w, "fib");

	nl_put_be32(w, NFTA_FIB_DREG, reg);
	nl_put_be32(w, NFTA_FIB_RESULT, f->key);
	nl_put_be32(w, NFTA_FIB_FLAGS, f->offset);
	expr_end(w, e);
}

/* Whether there is a header of the type @type. */
static void load_extension(struct nl_writer *w, uint32_t type, uint32_t reg)
{
	struct expression e = expr_begin(w, "exthdr");

	nl_put_be32(w, NFTA_EXTHDR_DREG, reg);
	nl_put_u8(w, NFTA_EXTHDR_TYPE, (uint8_t)type);
	nl_put_be32(w, NFTA_EXTHDR_OFFSET, 0);
	nl_put_be32(w, NFTA_EXTHDR_LEN, 1);
	nl_put_be32(w, NFTA_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT);
	nl_put_be32(w, NFTA_EXTHDR_OP, NFT_EXTHDR_OP_IPV6);
	expr_end(w, e);
}

static void load_socket(struct nl_writer *w, uint32_t key, uint8_t level, uint32_t reg)
{
	struct expression e = expr_begin(w, "socket");

	nl_put_be32(w, NFTA_SOCKET_KEY, key);
	nl_put_be32(w, NFTA_SOCKET_DREG, reg);
	nl_put_be32(w, NFTA_SOCKET_LEVEL, level);
	expr_end(w, e);
}

/* Four-byte register @slot, from 0 on, as the kernel gives it back: a number of 16-byte
 * registers (1 to 4) stands for the first of its four. */
uint32_t expr_reg(uint32_t slot)
{
	return slot % REGISTERS_OF_ONE == 0 ? NFT_REG_1 + slot / REGISTERS_OF_ONE
					    : NFT_REG32_00 + slot;
}

void expr_load(struct nl_writer *w, enum filter_field field, uint32_t reg)
{
	const struct field *f = &fields[field];

	switch (f->source) {
	case SOURCE_META:
		load_meta(w, f->key, reg);
		break;
	case SOURCE_PAYLOAD:
		load_payload(w, f, reg);
		break;
	case SOURCE_CT:
		load_ct(w, f->key, reg);
		break;
	case SOURCE_FIB:
		load_fib(w, f, reg);
		break;
	case SOURCE_EXTENSION:
		load_extension(w, f->key, reg);
		break;
	case SOURCE_SOCKET: /* has a level as well: expr_load_key() */
		w->failed = -EINVAL;
		break;
	}
	if (f->mask)
		expr_mask(w, field, f->mask, reg);
}

/* @value as the bytes of @field in a register. */
size_t expr_field_bytes(enum filter_field field, uint32_t value, uint8_t ret[4])
{
	const struct field *f = &fields[field];
	uint32_t be = htobe32(value);

	if (f->host_order)
		memcpy(ret, &value, 4);
	else
		memcpy(ret, (uint8_t *)&be + 4 - MIN(f->size, 4u), MIN(f->size, 4u));
	return MIN(f->size, 4u);
}

/* field & mask */
void expr_mask(struct nl_writer *w, enum filter_field field, uint32_t bits, uint32_t reg)
{
	static const uint8_t zero[4];
	struct expression e = expr_begin(w, "bitwise");
	uint8_t bytes[4];
	size_t size = expr_field_bytes(field, bits, bytes);

	nl_put_be32(w, NFTA_BITWISE_SREG, reg);
	nl_put_be32(w, NFTA_BITWISE_DREG, reg);
	nl_put_be32(w, NFTA_BITWISE_LEN, (uint32_t)size);
	nl_put_be32(w, NFTA_BITWISE_OP, NFT_BITWISE_BOOL);
	expr_put_data(w, NFTA_BITWISE_MASK, bytes, size);
	expr_put_data(w, NFTA_BITWISE_XOR, zero, size);
	expr_end(w, e);
}

/* socket cgroupv2 level 2 . ct mark */
void expr_load_key(struct nl_writer *w, const struct filter_set *set)
{
	const struct key_part *parts = key_parts[set->key];
	uint32_t slot = 0;

	for (size_t i = 0; i < KEY_PARTS_MAX && parts[i].field; i++) {
		const struct field *f = &fields[parts[i].field];

		if (f->source == SOURCE_SOCKET)
			load_socket(w, f->key, set->level, expr_reg(slot));
		else
			expr_load(w, parts[i].field, expr_reg(slot));
		if (parts[i].mask)
			expr_mask(w, parts[i].field, parts[i].mask, expr_reg(slot));
		slot += (f->size + 3) / 4;
	}
	if (slot == 0)
		w->failed = -EINVAL; /* a key that is nothing must not load */
}

bool expr_has_key(const struct filter_set *set)
{
	return key_parts[set->key][0].field != FILTER_FIELD_NONE;
}
