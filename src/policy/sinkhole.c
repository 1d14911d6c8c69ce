// SPDX-License-Identifier: Apache-2.0
/* Addresses that stand for names that aren't open (policy/plan.h). */
#include <string.h>

#include "base/hash.h"
#include "policy/plan.h"

/* The octet that tells names that ask from denied ones, by its lowest bit. */
static size_t kind_at(enum addr_family family)
{
	return family == ADDR_V6 ? 7 : 2;
}

/* A search list has made @n out of a name that a rule allows or asks for: it goes on to
 * that name only if @n doesn't exist. */
static bool completes_another_name(const struct plan *p, const struct dns_name *n)
{
	struct dns_name start = { 0 };
	struct plan_verdict v;

	for (uint8_t labels = 1; labels < n->labels; labels++) {
		uint8_t at = labels == 1 ? 0 : start.size - 1;

		memcpy(start.bytes + at, n->bytes + at, (size_t)n->bytes[at] + 1);
		start.size = (uint8_t)(at + n->bytes[at] + 2);
		start.bytes[start.size - 1] = 0;
		start.labels = labels;
		v = plan_match_name(p, &start);
		if (v.action != POLICY_DENY && v.rule != PLAN_NO_RULE)
			return true;
	}
	return false;
}

bool sinkhole_may_stand(const struct plan *p, const struct dns_name *name)
{
	static const struct dns_name arpa = { 6, 1, "\4arpa" };
	static const struct dns_name invalid = { 9, 1, "\7invalid" };

	return dns_name_is_host(name) && name->labels > 1 &&
	       !dns_name_is_within(name, &arpa) && !dns_name_is_within(name, &invalid) &&
	       !completes_another_name(p, name);
}

struct prefix sinkhole_prefix(size_t i)
{
	const uint8_t head6[16] = { SINKHOLE_HEAD6 >> 24 };
	struct addr a = i == 0 ? addr_v4(SINKHOLE_FIRST4 >> 24,
					 SINKHOLE_FIRST4 >> 16 & 0xff,
					 SINKHOLE_FIRST4 >> 8 & 0xff, 0)
			       : addr_from_bytes(ADDR_V6, head6);

	return prefix_of(&a, i == 0 ? 23 : 32);
}

bool sinkhole_has(const struct addr *a)
{
	for (size_t i = 0; i < SINKHOLES; i++) {
		const struct prefix p = sinkhole_prefix(i);

		if (prefix_contains(&p, a))
			return true;
	}
	return false;
}

struct addr sinkhole_addr(enum addr_family family, const struct dns_name *name)
{
	/* Names may share an address, so nobody gains by choosing them. */
	const struct hash_key key = { 0 };
	struct addr a = sinkhole_prefix(family == ADDR_V6).addr;

	a.bytes[kind_at(family)] |= family == ADDR_V4;
	a.bytes[addr_size(&a) - 1] = (uint8_t)hash_bytes(&key, name->bytes, name->size);
	return a;
}

struct addr sinkhole_ask_addr(enum addr_family family, uint8_t n)
{
	struct addr a = sinkhole_prefix(family == ADDR_V6).addr;

	a.bytes[kind_at(family)] |= family == ADDR_V6;
	a.bytes[addr_size(&a) - 1] = n;
	return a;
}

bool sinkhole_is_ask(const struct addr *a, uint8_t *ret_n)
{
	const uint8_t n = a->bytes[addr_size(a) - 1];
	struct addr own;

	if (a->family == ADDR_NONE)
		return false;
	own = sinkhole_ask_addr((enum addr_family)a->family, n);
	*ret_n = n;
	return addr_equal(&own, a);
}

void sinkholes_give(struct sinkholes *g, const struct addr *a)
{
	uint8_t n = a->bytes[addr_size(a) - 1];

	g->given[n / 8] |= (uint8_t)(1u << n % 8);
}

bool sinkholes_gave(const struct sinkholes *g, const struct addr *a)
{
	uint8_t n = a->bytes[addr_size(a) - 1], ask;

	return sinkhole_has(a) && !sinkhole_is_ask(a, &ask) &&
	       g->given[n / 8] >> n % 8 & 1;
}
