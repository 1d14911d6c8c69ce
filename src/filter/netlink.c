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

#include "filter/netlink_load.h"
#include "filter/ruleset.h"

enum { LOG_SECOND = 1 }; /* unit of limits, in seconds */

static void compare(struct nl_writer *w, enum filter_field field, uint32_t op,
		    uint32_t value)
{
	struct expression e = expr_begin(w, "cmp");
	uint8_t bytes[4];
	size_t size = expr_field_bytes(field, value, bytes);

	nl_put_be32(w, NFTA_CMP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_CMP_OP, op);
	expr_put_data(w, NFTA_CMP_DATA, bytes, size);
	expr_end(w, e);
}

static void look_up(struct nl_writer *w, const struct filter_set *set, uint32_t flags)
{
	struct expression e = expr_begin(w, "lookup");

	nl_put_text(w, NFTA_LOOKUP_SET, set->name);
	nl_put_be32(w, NFTA_LOOKUP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_LOOKUP_FLAGS, flags);
	expr_end(w, e);
}

/* What the map gives for the key in the first register goes to @reg. */
static void look_up_into(struct nl_writer *w, const struct filter_set *map, uint32_t reg)
{
	struct expression e = expr_begin(w, "lookup");

	nl_put_text(w, NFTA_LOOKUP_SET, map->name);
	nl_put_be32(w, NFTA_LOOKUP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_LOOKUP_DREG, reg);
	nl_put_be32(w, NFTA_LOOKUP_FLAGS, 0);
	expr_end(w, e);
}

/* A value, or with @chain or @code a verdict, into @reg. */
static void immediate(struct nl_writer *w, uint32_t reg, const void *value, size_t size)
{
	struct expression e = expr_begin(w, "immediate");

	nl_put_be32(w, NFTA_IMMEDIATE_DREG, reg);
	expr_put_data(w, NFTA_IMMEDIATE_DATA, value, size);
	expr_end(w, e);
}

static void verdict(struct nl_writer *w, int code, const struct filter_chain *chain)
{
	struct expression e = expr_begin(w, "immediate");
	size_t data, nest;

	nl_put_be32(w, NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
	data = nl_nest(w, NFTA_IMMEDIATE_DATA);
	nest = nl_nest(w, NFTA_DATA_VERDICT);
	nl_put_be32(w, NFTA_VERDICT_CODE, (uint32_t)code);
	if (chain)
		nl_put_text(w, NFTA_VERDICT_CHAIN, chain->name);
	nl_nest_end(w, nest);
	nl_nest_end(w, data);
	expr_end(w, e);
}

/* ---- statements ---- */

/* ct state & 2 != 0; tcp dport 53 */
static void put_match(struct nl_writer *w, const struct filter_stmt *s, uint32_t op)
{
	expr_load(w, s->field, NFT_REG_1);
	if (s->mask)
		expr_mask(w, s->field, s->mask, NFT_REG_1);
	compare(w, s->field, op, s->value);
}

/* icmp type 1-4 */
static void put_range(struct nl_writer *w, const struct filter_stmt *s)
{
	expr_load(w, s->field, NFT_REG_1);
	compare(w, s->field, NFT_CMP_GTE, s->value);
	compare(w, s->field, NFT_CMP_LTE, s->value_to);
}

/* ip daddr @allow4_0; meta mark . ip daddr @learned4_0 */
static void put_in_set(struct nl_writer *w, const struct filter_stmt *s)
{
	if (expr_has_key(s->set))
		expr_load_key(w, s->set);
	else
		expr_load(w, s->field, NFT_REG_1);
	look_up(w, s->set, 0);
}

/* meta l4proto . th sport @held_v4 */
static void put_port_in_set(struct nl_writer *w, const struct filter_stmt *s)
{
	expr_load(w, FILTER_L4PROTO, expr_reg(0));
	expr_load(w, s->field, expr_reg(1));
	look_up(w, s->set, 0);
}

/* ip daddr . meta l4proto . th dport != @seen4 */
static void put_flow_new(struct nl_writer *w, const struct filter_stmt *s)
{
	expr_load_key(w, s->set);
	look_up(w, s->set, NFT_LOOKUP_F_INV);
}

static void put_counter_terms(struct nl_writer *w)
{
	nl_put_be64(w, NFTA_COUNTER_BYTES, 0);
	nl_put_be64(w, NFTA_COUNTER_PACKETS, 0);
}

/* add @seen4 { ip daddr . meta l4proto . th dport counter }; an update begins the
 * element's time anew */
static void put_flow(struct nl_writer *w, const struct filter_set *set, uint32_t op)
{
	struct expression e;
	size_t each, terms;

	expr_load_key(w, set);
	e = expr_begin(w, "dynset");
	nl_put_be32(w, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
	nl_put_be32(w, NFTA_DYNSET_OP, op);
	nl_put_text(w, NFTA_DYNSET_SET_NAME, set->name);
	nl_put_be64(w, NFTA_DYNSET_TIMEOUT, set->timeout_sec * UINT64_C(1000));
	if (set->counts) {
		each = nl_nest(w, NFTA_DYNSET_EXPR);
		nl_put_text(w, NFTA_EXPR_NAME, "counter");
		terms = nl_nest(w, NFTA_EXPR_DATA);
		put_counter_terms(w);
		nl_nest_end(w, terms);
		nl_nest_end(w, each);
	}
	nl_put_be32(w, NFTA_DYNSET_FLAGS, 0);
	expr_end(w, e);
}

/* limit rate 20/second burst 40 packets */
static void put_limit_terms(struct nl_writer *w, uint32_t per_sec)
{
	nl_put_be64(w, NFTA_LIMIT_RATE, per_sec ? per_sec : FILTER_LOG_PER_SEC);
	nl_put_be64(w, NFTA_LIMIT_UNIT, LOG_SECOND);
	nl_put_be32(w, NFTA_LIMIT_BURST, per_sec ? 2 * per_sec : FILTER_LOG_BURST);
	nl_put_be32(w, NFTA_LIMIT_TYPE, NFT_LIMIT_PKTS);
	nl_put_be32(w, NFTA_LIMIT_FLAGS, 0);
}

static void put_limit(struct nl_writer *w, uint32_t per_sec)
{
	struct expression e = expr_begin(w, "limit");

	put_limit_terms(w, per_sec);
	expr_end(w, e);
}

/* update @rates { meta mark & 0xffff0000 limit rate 20/second burst 40 packets } */
static void put_limit_each(struct nl_writer *w, const struct filter_stmt *s)
{
	struct expression e;
	size_t each, terms;

	expr_load_key(w, s->set);
	e = expr_begin(w, "dynset");
	nl_put_be32(w, NFTA_DYNSET_SREG_KEY, NFT_REG_1);
	nl_put_be32(w, NFTA_DYNSET_OP, NFT_DYNSET_OP_UPDATE);
	nl_put_text(w, NFTA_DYNSET_SET_NAME, s->set->name);
	nl_put_be64(w, NFTA_DYNSET_TIMEOUT, s->set->timeout_sec * UINT64_C(1000));
	each = nl_nest(w, NFTA_DYNSET_EXPR);
	nl_put_text(w, NFTA_EXPR_NAME, "limit");
	terms = nl_nest(w, NFTA_EXPR_DATA);
	put_limit_terms(w, s->value);
	nl_nest_end(w, terms);
	nl_nest_end(w, each);
	nl_put_be32(w, NFTA_DYNSET_FLAGS, 0);
	expr_end(w, e);
}

static void put_counter(struct nl_writer *w)
{
	struct expression e = expr_begin(w, "counter");

	put_counter_terms(w);
	expr_end(w, e);
}

/* log prefix "weir out" group 100 queue-threshold 1 */
static void put_log(struct nl_writer *w, const char *prefix)
{
	struct expression e = expr_begin(w, "log");

	nl_put_text(w, NFTA_LOG_PREFIX, prefix);
	nl_put_be16(w, NFTA_LOG_GROUP, FILTER_NFLOG_GROUP);
	nl_put_be16(w, NFTA_LOG_QTHRESHOLD, 1);
	expr_end(w, e);
}

static void store_ct_mark(struct nl_writer *w)
{
	struct expression e = expr_begin(w, "ct");

	nl_put_be32(w, NFTA_CT_KEY, NFT_CT_MARK);
	nl_put_be32(w, NFTA_CT_SREG, NFT_REG_1);
	expr_end(w, e);
}

static void store_mark(struct nl_writer *w)
{
	struct expression e = expr_begin(w, "meta");

	nl_put_be32(w, NFTA_META_KEY, NFT_META_MARK);
	nl_put_be32(w, NFTA_META_SREG, NFT_REG_1);
	expr_end(w, e);
}

/* ct mark set 1 */
static void put_ct_mark(struct nl_writer *w, uint32_t mark)
{
	immediate(w, NFT_REG_1, &mark, sizeof(mark));
	store_ct_mark(w);
}

/* socket cgroupv2 level 2 map @cgroup_2 */
static void put_mapped(struct nl_writer *w, const struct filter_set *map, uint32_t reg)
{
	expr_load_key(w, map);
	look_up_into(w, map, reg);
}

/* meta mark & 0x0000ffff vmap @plans */
static void put_go_by(struct nl_writer *w, const struct filter_stmt *s)
{
	put_mapped(w, s->set, NFT_REG_VERDICT);
}

/* reject with tcp reset; reject with icmpx admin-prohibited */
static void put_reject(struct nl_writer *w, uint32_t type, uint8_t code)
{
	struct expression e = expr_begin(w, "reject");

	nl_put_be32(w, NFTA_REJECT_TYPE, type);
	if (type != NFT_REJECT_TCP_RST)
		nl_put_u8(w, NFTA_REJECT_ICMP_CODE, code);
	expr_end(w, e);
}

/* redirect to :53 */
static void put_redirect(struct nl_writer *w, uint32_t port)
{
	uint16_t be = htobe16((uint16_t)port);
	struct expression e;

	immediate(w, NFT_REG_1, &be, sizeof(be));
	e = expr_begin(w, "redir");
	nl_put_be32(w, NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
	nl_put_be32(w, NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1);
	nl_put_be32(w, NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
	expr_end(w, e);
}

/* socket cgroupv2 level 2 "a/b" */
static void put_cgroup(struct nl_writer *w, const struct filter_cgroup *cgroup)
{
	struct expression e = expr_begin(w, "socket");

	nl_put_be32(w, NFTA_SOCKET_KEY, NFT_SOCKET_CGROUPV2);
	nl_put_be32(w, NFTA_SOCKET_DREG, NFT_REG_1);
	nl_put_be32(w, NFTA_SOCKET_LEVEL, cgroup->level);
	expr_end(w, e);
	e = expr_begin(w, "cmp");
	nl_put_be32(w, NFTA_CMP_SREG, NFT_REG_1);
	nl_put_be32(w, NFTA_CMP_OP, NFT_CMP_EQ);
	expr_put_data(w, NFTA_CMP_DATA, &cgroup->id, sizeof(cgroup->id));
	expr_end(w, e);
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
	case FILTER_IN_SET:
		return put_in_set(w, s);
	case FILTER_PORT_IN_SET:
		return put_port_in_set(w, s);
	case FILTER_FLOW_NEW:
		return put_flow_new(w, s);
	case FILTER_FLOW_ADD:
		return put_flow(w, s->set, NFT_DYNSET_OP_ADD);
	case FILTER_FLOW_COUNT:
		return put_flow(w, s->set, NFT_DYNSET_OP_UPDATE);
	case FILTER_LIMIT:
		return put_limit(w, s->value);
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
	case FILTER_GO_BY:
		return put_go_by(w, s);
	case FILTER_MARK_BY:
		put_mapped(w, s->set, NFT_REG_1);
		return store_mark(w);
	case FILTER_SET_MARK:
		immediate(w, NFT_REG_1, &s->value, sizeof(s->value));
		return store_mark(w);
	case FILTER_MARK_FROM_CT:
		expr_load(w, FILTER_CT_MARK, NFT_REG_1);
		return store_mark(w);
	case FILTER_CT_FROM_MARK:
		expr_load(w, FILTER_MARK, NFT_REG_1);
		if (s->mask)
			expr_mask(w, FILTER_MARK, s->mask, NFT_REG_1);
		return store_ct_mark(w);
	case FILTER_LIMIT_EACH:
		return put_limit_each(w, s);
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
