// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * A rule is a list of expressions that work on registers of four bytes: one loads a
 * field, the next compares it. Register numbers are written the way in which the kernel
 * gives them back, and attributes that the kernel would add with their default are
 * sent, so that readback.c can compare bytes. */
#include "filter/netlink.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_nat.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/ruleset.h"

enum { LOG_SECOND = 1 }; /* unit of limits, in seconds */

/* Where a flow's key is put together: registers of 4 bytes, one behind the other. A
 * number of 16-byte registers (1 to 4) stands for the first of its four. */
static const struct flow_registers {
	uint32_t addr, protocol, port;
} flow_registers[] = {
	[FILTER_KEY_FLOW4] = { NFT_REG_1, NFT_REG32_01, NFT_REG32_02 },
	[FILTER_KEY_FLOW6] = { NFT_REG_1, NFT_REG_2, NFT_REG32_05 },
	[FILTER_KEY_LOCAL_PORT] = { 0, NFT_REG_1, NFT_REG32_01 },
};

/* How a field is loaded: by which expression, from where, how many bytes, and whether
 * its value is compared in network order. */
enum source { SOURCE_META, SOURCE_PAYLOAD, SOURCE_CT, SOURCE_FIB };

static const struct field {
	enum source source;
	uint32_t key;	 /* of meta and ct; base of payload; result of fib */
	uint32_t offset; /* of payload; flags of fib */
	uint32_t size;
	bool host_order;
} fields[FILTER_FIELD_COUNT] = {
	/* meta nfproto, meta l4proto, iif, meta oifgroup, meta mark, meta skuid */
	[FILTER_NFPROTO] = { SOURCE_META, NFT_META_NFPROTO, 0, 1, false },
	[FILTER_L4PROTO] = { SOURCE_META, NFT_META_L4PROTO, 0, 1, false },
	[FILTER_IIF] = { SOURCE_META, NFT_META_IIF, 0, 4, true },
	[FILTER_OIF_GROUP] = { SOURCE_META, NFT_META_OIFGROUP, 0, 4, true },
	[FILTER_MARK] = { SOURCE_META, NFT_META_MARK, 0, 4, true },
	[FILTER_SKUID] = { SOURCE_META, NFT_META_SKUID, 0, 4, true },
	/* ip saddr, ip daddr, ip6 daddr, ip6 hoplimit */
	[FILTER_SADDR4] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 12, 4, false },
	[FILTER_DADDR4] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 16, 4, false },
	[FILTER_DADDR6] = { SOURCE_PAYLOAD, NFT_PAYLOAD_NETWORK_HEADER, 24, 16, false },
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
};

/* ---- expressions ---- */

struct expression {
	size_t element, data;
};

static struct expression begin(struct nl_writer *w, const char *name)
{
	struct expression e;

	e.element = nl_nest(w, NFTA_LIST_ELEM);
	nl_put_text(w, NFTA_EXPR_NAME, name);
	e.data = nl_nest(w, NFTA_EXPR_DATA);
	return e;
}

static void end(struct nl_writer *w, struct expression e)
{
	nl_nest_end(w, e.data);
	nl_nest_end(w, e.element);
}

static void put_data(struct nl_writer *w, uint16_t type, const void *value, size_t size)
{
	size_t nest = nl_nest(w, type);

	nl_put(w, NFTA_DATA_VALUE, value, size);
	nl_nest_end(w, nest);
}

static void load_meta(struct nl_writer *w, uint32_t key, uint32_t reg)
{
	struct expression e = begin(w, "meta");

	nl_put_be32(w, NFTA_META_DREG, reg);
	nl_put_be32(w, NFTA_META_KEY, key);
	end(w, e);
}

static void load_payload(struct nl_writer *w, const struct field *f, uint32_t reg)
{
	struct expression e = begin(w, "payload");

	nl_put_be32(w, NFTA_PAYLOAD_DREG, reg);
	nl_put_be32(w, NFTA_PAYLOAD_BASE, f->key);
	nl_put_be32(w, NFTA_PAYLOAD_OFFSET, f->offset);
	nl_put_be32(w, NFTA_PAYLOAD_LEN, f->size);
	end(w, e);
}

static void load_ct(struct nl_writer *w, uint32_t key, uint32_t reg)
{
	struct expression e = begin(w, "ct");

	nl_put_be32(w, NFTA_CT_DREG, reg);
	nl_put_be32(w, NFTA_CT_KEY, key);
	end(w, e);
}

static void load_fib(struct nl_writer *w, const struct field *f, uint32_t reg)
{
	struct expression e = begin(w, "fib");

	nl_put_be32(w, NFTA_FIB_DREG, reg);
	nl_put_be32(w, NFTA_FIB_RESULT, f->key);
	nl_put_be32(w, NFTA_FIB_FLAGS, f->offset);
	end(w, e);
}

static void load(struct nl_writer *w, enum filter_field field, uint32_t reg)
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
	}
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

static void compare(struct nl_writer *w, enum filter_field field, uint32_t op,
		    uint32_t value)
{
	struct expression e = begin(w, "cmp");
	uint8_t bytes[4];
	size_t size = field_bytes(field, value, bytes);

	nl_put_be32(w, NFTA_CMP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_CMP_OP, op);
	put_data(w, NFTA_CMP_DATA, bytes, size);
	end(w, e);
}

/* field & mask */
static void mask(struct nl_writer *w, enum filter_field field, uint32_t bits)
{
	static const uint8_t zero[4];
	struct expression e = begin(w, "bitwise");
	uint8_t bytes[4];
	size_t size = field_bytes(field, bits, bytes);

	nl_put_be32(w, NFTA_BITWISE_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_BITWISE_DREG, NFT_REG_1);
	nl_put_be32(w, NFTA_BITWISE_LEN, (uint32_t)size);
	nl_put_be32(w, NFTA_BITWISE_OP, NFT_BITWISE_BOOL);
	put_data(w, NFTA_BITWISE_MASK, bytes, size);
	put_data(w, NFTA_BITWISE_XOR, zero, size);
	end(w, e);
}

static void look_up(struct nl_writer *w, const struct filter_set *set, uint32_t flags)
{
	struct expression e = begin(w, "lookup");

	nl_put_text(w, NFTA_LOOKUP_SET, set->name);
	nl_put_be32(w, NFTA_LOOKUP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_LOOKUP_FLAGS, flags);
	end(w, e);
}

/* A value, or with @chain or @code a verdict, into @reg. */
static void immediate(struct nl_writer *w, uint32_t reg, const void *value, size_t size)
{
	struct expression e = begin(w, "immediate");

	nl_put_be32(w, NFTA_IMMEDIATE_DREG, reg);
	put_data(w, NFTA_IMMEDIATE_DATA, value, size);
	end(w, e);
}

static void verdict(struct nl_writer *w, int code, const struct filter_chain *chain)
{
	struct expression e = begin(w, "immediate");
	size_t data, nest;

	nl_put_be32(w, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nl_nest(w, NFTA_IMMEDIATE_DATA);
	nest = nl_nest(w, NFTA_DATA_VERDICT);
	nl_put_be32(w, NFTA_VERDICT_CODE, (uint32_t)code);
	if (chain)
		nl_put_text(w, NFTA_VERDICT_CHAIN, chain->name);
	nl_nest_end(w, nest);
	nl_nest_end(w, data);
	end(w, e);
}

/* ---- statements ---- */

/* ct state & 2 != 0; tcp dport 53 */
static void put_match(struct nl_writer *w, const struct filter_stmt *s, uint32_t op)
{
	load(w, s->field, NFT_REG_1);
	if (s->mask)
		mask(w, s->field, s->mask);
	compare(w, s->field, op, s->value);
}

/* icmp type 1-4 */
static void put_range(struct nl_writer *w, const struct filter_stmt *s)
{
	load(w, s->field, NFT_REG_1);
	compare(w, s->field, NFT_CMP_GTE, s->value);
	compare(w, s->field, NFT_CMP_LTE, s->value_to);
}

/* ip daddr . meta l4proto . th dport */
static void load_flow(struct nl_writer *w, enum filter_key key)
{
	const struct flow_registers *r = &flow_registers[key];

	load(w, key == FILTER_KEY_FLOW4 ? FILTER_DADDR4 : FILTER_DADDR6, r->addr);
	load(w, FILTER_L4PROTO, r->protocol);
	load(w, FILTER_DPORT, r->port);
}

/* meta l4proto . th sport @held_v4 */
static void put_port_in_set(struct nl_writer *w, const struct filter_stmt *s)
{
	const struct flow_registers *r = &flow_registers[FILTER_KEY_LOCAL_PORT];

	load(w, FILTER_L4PROTO, r->protocol);
	load(w, s->field, r->port);
	look_up(w, s->set, 0);
}

/* ip daddr . meta l4proto . th dport != @seen4 */
static void put_flow_new(struct nl_writer *w, const struct filter_stmt *s)
{
	load_flow(w, s->set->key);
	look_up(w, s->set, NFT_LOOKUP_F_INV);
}

/* add @seen4 { ip daddr . meta l4proto . th dport } */
static void put_flow_add(struct nl_writer *w, const struct filter_stmt *s)
{
	struct expression e;

	load_flow(w, s->set->key);
	e = begin(w, "dynset");
	nl_put_be32(w, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
	nl_put_be32(w, NFTA_DYNSET_OP, NFT_DYNSET_OP_ADD);
	nl_put_text(w, NFTA_DYNSET_SET_NAME, s->set->name);
	nl_put_be64(w, NFTA_DYNSET_TIMEOUT, s->set->timeout_sec * UINT64_C(1000));
	nl_put_be32(w, NFTA_DYNSET_FLAGS, 0);
	end(w, e);
}

/* limit rate 20/second burst 40 packets */
static void put_limit(struct nl_writer *w)
{
	struct expression e = begin(w, "limit");

	nl_put_be64(w, NFTA_LIMIT_RATE, FILTER_LOG_PER_SEC);
	nl_put_be64(w, NFTA_LIMIT_UNIT, LOG_SECOND);
	nl_put_be32(w, NFTA_LIMIT_BURST, FILTER_LOG_BURST);
	nl_put_be32(w, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nl_put_be32(w, NFTA_LIMIT_FLAGS, 0);
	end(w, e);
}

static void put_counter(struct nl_writer *w)
{
	struct expression e = begin(w, "counter");

	nl_put_be64(w, NFTA_COUNTER_BYTES, 0);
	nl_put_be64(w, NFTA_COUNTER_PACKETS, 0);
	end(w, e);
}

/* log prefix "weir out" group 100 queue-threshold 1 */
static void put_log(struct nl_writer *w, const char *prefix)
{
	struct expression e = begin(w, "log");

	nl_put_text(w, NFTA_LOG_PREFIX, prefix);
	nl_put_be16(w, NFTA_LOG_GROUP, FILTER_NFLOG_GROUP);
	nl_put_be16(w, NFTA_LOG_QTHRESHOLD, 1);
	end(w, e);
}

/* ct mark set 1 */
static void put_ct_mark(struct nl_writer *w, uint32_t mark)
{
	struct expression e;

	immediate(w, NFT_REG_1, &mark, sizeof(mark));
	e = begin(w, "ct");
	nl_put_be32(w, NFTA_CT_KEY, NFT_CT_MARK);
	nl_put_be32(w, NFTA_CT_SREG, NFT_REG_1);
	end(w, e);
}

/* reject with tcp reset; reject with icmpx admin-prohibited */
static void put_reject(struct nl_writer *w, uint32_t type, uint8_t code)
{
	struct expression e = begin(w, "reject");

	nl_put_be32(w, NFTA_REJECT_TYPE, type);
	if (type != NFT_REJECT_TCP_RST)
		nl_put_u8(w, NFTA_REJECT_ICMP_CODE, code);
	end(w, e);
}

/* redirect to :53 */
static void put_redirect(struct nl_writer *w, uint32_t port)
{
	uint16_t be = htobe16((uint16_t)port);
	struct expression e;

	immediate(w, NFT_REG_1, &be, sizeof(be));
	e = begin(w, "redir");
	nl_put_be32(w, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
	nl_put_be32(w, NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1);
	nl_put_be32(w, NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
	end(w, e);
}

/* socket cgroupv2 level 2 "a/b" */
static void put_cgroup(struct nl_writer *w, const struct filter_cgroup *cgroup)
{
	struct expression e = begin(w, "socket");

	nl_put_be32(w, NFTA_SOCKET_KEY, NFT_SOCKET_CGROUPV2);
	nl_put_be32(w, NFTA_SOCKET_DREG, NFT_REG_1);
	nl_put_be32(w, NFTA_SOCKET_LEVEL, cgroup->level);
	end(w, e);
	e = begin(w, "cmp");
	nl_put_be32(w, NFTA_CMP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_CMP_OP, NFT_CMP_EQ);
	put_data(w, NFTA_CMP_DATA, &cgroup->id, sizeof(cgroup->id));
	end(w, e);
}

static void put_stmt(struct nl_writer *w, const struct filter_stmt *s)
{
	switch (s->kind) {
	case FILTER_EQUAL:
		return put_match(w, s, NFT_CMP_EQ);
	case FILTER_NOT_EQUAL:
		return put_match(w, s, NFT_CMP_NEQ);
	case FILTER_RANGE:
		return put_range(w, s);
	case FILTER_IN_SET: /* ip daddr @allow4_0 */
		load(w, s->field, NFT_REG_1);
		return look_up(w, s->set, 0);
	case FILTER_PORT_IN_SET:
		return put_port_in_set(w, s);
	case FILTER_FLOW_NEW:
		return put_flow_new(w, s);
	case FILTER_FLOW_ADD:
		return put_flow_add(w, s);
	case FILTER_LIMIT:
		return put_limit(w);
	case FILTER_COUNTER:
		return put_counter(w);
	case FILTER_LOG:
		return put_log(w, s->prefix);
	case FILTER_SET_CT_MARK:
		return put_ct_mark(w, s->value);
	case FILTER_ACCEPT:
		return verdict(w, NF_ACCEPT, NULL);
	case FILTER_DROP:
		return verdict(w, NF_DROP, NULL);
	case FILTER_RETURN:
		return verdict(w, NFT_RETURN, NULL);
	case FILTER_JUMP:
		return verdict(w, NFT_JUMP, s->chain);
	case FILTER_GOTO:
		return verdict(w, NFT_GOTO, s->chain);
	case FILTER_REJECT_RESET:
		return put_reject(w, NFT_REJECT_TCP_RST, 0);
	case FILTER_REJECT_ADMIN:
		return put_reject(w, NFT_REJECT_ICMPX_UNREACH,
				  NFT_REJECT_ICMPX_ADMIN_PROHIBITED);
	case FILTER_REDIRECT:
		return put_redirect(w, s->value);
	case FILTER_IN_CGROUP:
		return put_cgroup(w, s->cgroup);
	case FILTER_STMT_NONE:
		break;
	}
	w->failed = -EINVAL; /* a statement that says nothing must not load */
}

void netlink_expressions(struct nl_writer *w, const struct filter_rule *rule)
{
	size_t nest = nl_nest(w, NFTA_RULE_EXPRESSIONS);

	for (size_t i = 0; i < rule->count; i++)
		put_stmt(w, &rule->stmts[i]);
	nl_nest_end(w, nest);
}

void netlink_rule(struct nl_writer *w, const char *table,
		  const struct filter_chain *chain, const struct filter_rule *rule)
{
	nl_message(w, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, NFPROTO_INET);
	nl_put_text(w, NFTA_RULE_TABLE, table);
	nl_put_text(w, NFTA_RULE_CHAIN, chain->name);
	netlink_expressions(w, rule);
	nl_end(w);
}
