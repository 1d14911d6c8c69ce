// SPDX-License-Identifier: Apache-2.0
#include "filter/ruleset_build.h"

#include <linux/rtnetlink.h>

void stmt_rule(struct builder *b, struct filter_chain *chain)
{
	struct filter_rule *r = arena_alloc(b->arena, sizeof(*r));

	if (!r) {
		b->failed = true;
		b->spare.count = 0;
		b->rule = &b->spare;
		return;
	}
	b->rule = r;
	*chain->rules_end = r;
	chain->rules_end = &r->next;
}

struct filter_stmt *stmt_add(struct builder *b, enum filter_stmt_kind kind)
{
	struct filter_stmt *s = &b->rule->stmts[b->rule->count];

	if (b->rule->count == FILTER_STMTS_MAX - 1)
		b->failed = true;
	else
		b->rule->count++;
	*s = (struct filter_stmt){ .kind = kind };
	return s;
}

void stmt_equal(struct builder *b, enum filter_field field, uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_EQUAL);

	s->field = field;
	s->value = value;
}

void stmt_not_equal(struct builder *b, enum filter_field field, uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_NOT_EQUAL);

	s->field = field;
	s->value = value;
}

void stmt_between(struct builder *b, enum filter_field field, uint32_t from, uint32_t to)
{
	struct filter_stmt *s = stmt_add(b, from == to ? FILTER_EQUAL : FILTER_RANGE);

	s->field = field;
	s->value = from;
	s->value_to = to;
}

void stmt_masked(struct builder *b, enum filter_field field, uint32_t mask,
		 uint32_t value)
{
	struct filter_stmt *s = stmt_add(b, FILTER_EQUAL);

	s->field = field;
	s->mask = mask;
	s->value = value;
}

void stmt_has_bit(struct builder *b, enum filter_field field, uint32_t bit)
{
	struct filter_stmt *s = stmt_add(b, FILTER_NOT_EQUAL);

	s->field = field;
	s->mask = bit;
}

void stmt_in_set(struct builder *b, enum filter_field field, const struct filter_set *set)
{
	struct filter_stmt *s = stmt_add(b, FILTER_IN_SET);

	s->field = field;
	s->set = set;
}

void stmt_daddr_in(struct builder *b, size_t family, const struct filter_set *set)
{
	stmt_equal(b, FILTER_NFPROTO, ruleset_families[family].nfproto);
	stmt_in_set(b, ruleset_families[family].daddr, set);
}

void stmt_port(struct builder *b, uint8_t protocol, uint16_t port)
{
	stmt_equal(b, FILTER_L4PROTO, protocol);
	stmt_equal(b, FILTER_DPORT, port);
}

void stmt_local(struct builder *b)
{
	stmt_equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
}

void stmt_not_local(struct builder *b)
{
	stmt_not_equal(b, FILTER_FIB_DADDR_TYPE, RTN_LOCAL);
}

void stmt_by_a_program(struct builder *b)
{
	stmt_not_equal(b, FILTER_SKUID, UINT32_MAX);
}

void stmt_source_not_local(struct builder *b)
{
	stmt_not_equal(b, FILTER_FIB_SADDR_TYPE, RTN_LOCAL);
}

void stmt_held(struct builder *b, size_t family, enum filter_field port)
{
	struct filter_stmt *s = stmt_add(b, FILTER_PORT_IN_SET);

	s->field = port;
	s->set = b->held[family];
}

void stmt_go(struct builder *b, enum filter_stmt_kind kind,
	     const struct filter_chain *chain)
{
	stmt_add(b, kind)->chain = chain;
}

void stmt_log(struct builder *b, const char *prefix)
{
	stmt_add(b, FILTER_LOG)->prefix = prefix;
}

void stmt_redirect(struct builder *b, uint16_t port)
{
	stmt_add(b, FILTER_REDIRECT)->value = port;
}

/* On the host others may look at marks: ours stays on what is refused. */
void stmt_accept(struct builder *b)
{
	if (b->host)
		stmt_add(b, FILTER_SET_MARK);
	stmt_add(b, FILTER_ACCEPT);
}

void stmt_mark_and_accept(struct builder *b)
{
	if (b->fixed)
		; /* no flow is remembered */
	else if (b->host)
		stmt_add(b, FILTER_CT_FROM_MARK);
	else
		stmt_add(b, FILTER_SET_CT_MARK)->value = b->rs->generation;
	stmt_accept(b);
}

void stmt_mark_and_pass(struct builder *b)
{
	if (!b->passed) {
		stmt_mark_and_accept(b);
		return;
	}
	if (b->host)
		stmt_add(b, FILTER_CT_FROM_MARK);
	else
		stmt_add(b, FILTER_SET_CT_MARK)->value = b->rs->generation;
	stmt_go(b, FILTER_GOTO, b->passed);
}

void stmt_refuse(struct builder *b)
{
	stmt_go(b, FILTER_GOTO, b->refuse);
}

void stmt_return(struct builder *b)
{
	stmt_add(b, FILTER_RETURN);
}

void stmt_redirect_dns(struct builder *b)
{
	stmt_redirect(b, b->dns_port);
}

void stmt_redirect_relay(struct builder *b)
{
	stmt_redirect(b, b->relay_port);
}
