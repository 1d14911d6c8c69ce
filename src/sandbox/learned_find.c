// SPDX-License-Identifier: Apache-2.0
#include "sandbox/learned_internal.h"

uint32_t learned_name_find(const struct learned *l, const struct dns_name *n,
			   uint64_t hash)
{
	uint32_t i = learned_table_first(&l->names, hash);

	while (i != NONE && (name_at(l, i)->link.hash != hash ||
			     !dns_name_equal(&name_at(l, i)->name, n)))
		i = name_at(l, i)->link.next;
	return i;
}

/* The entry with the highest serial among the heads of @lists, which moves on. */
static const struct entry *next_newest(const struct learned *l, uint32_t *lists,
				       size_t count)
{
	uint32_t *newest = NULL;
	const struct entry *e;

	for (size_t i = 0; i < count; i++)
		if (lists[i] != NONE && (!newest || entry_at(l, lists[i])->serial >
							    entry_at(l, *newest)->serial))
			newest = &lists[i];
	if (!newest)
		return NULL;
	e = entry_at(l, *newest);
	*newest = e->older;
	return e;
}

size_t learned_find(const struct learned *l, const struct addr *a, int64_t now_ms,
		    struct learned_use *ret, size_t max)
{
	uint32_t lists[PLAN_PORT_LISTS_MAX];
	const struct entry *e;
	size_t count = 0, n = 0;
	uint32_t i = learned_table_first(&l->elements, hash_addr(l, a));

	for (; i != NONE && count < ARRAY_SIZE(lists); i = element_at(l, i)->link.next)
		if (addr_equal(&element_at(l, i)->addr, a))
			lists[count++] = element_at(l, i)->newest;
	while (n < max && (e = next_newest(l, lists, count))) {
		if (e->expires_ms <= now_ms)
			continue;
		ret[n++] = (struct learned_use){
			.name = name_at(l, e->name)->name,
			.rule = e->rule,
			.port_list = element_at(l, e->element)->port_list,
			.flags = e->flags,
			.expires_ms = e->expires_ms,
		};
	}
	return n;
}

bool learned_other_addr(const struct learned *l, const struct dns_name *name,
			const struct addr *not_this, int64_t now_ms, size_t index,
			struct addr *ret)
{
	uint32_t n = learned_name_find(l, name, hash_name(l, name));
	uint32_t i = n != NONE ? name_at(l, n)->entries : NONE;

	for (; i != NONE; i = entry_at(l, i)->next_of_name) {
		const struct entry *e = entry_at(l, i);

		if (e->expires_ms <= now_ms || addr_equal(entry_addr(l, e), not_this))
			continue;
		if (index-- > 0)
			continue;
		*ret = *entry_addr(l, e);
		return true;
	}
	return false;
}
