// SPDX-License-Identifier: Apache-2.0
/* Differences for sets that outlive a ruleset. An element whose lifetime changes, or
 * that may have ended by itself, is added before it is deleted: see set.c. */
#include "filter/set_change.h"

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/netlink.h"

/* What becomes of an item, in this order. */
enum pass { PASS_PRESENT = 0, PASS_DELETE, PASS_ADD, PASS_COUNT };

static bool is_in(const struct filter_learn *item, enum pass pass)
{
	bool ends = item->lifetime_ms == 0;

	if (pass == PASS_ADD)
		return !ends;
	if (pass == PASS_DELETE)
		return ends || item->refresh;
	return item->refresh || (ends && !item->present);
}

static void put_element(struct nl_writer *w, const struct filter_learn *item,
			bool lifetime)
{
	size_t element = nl_nest(w, NFTA_LIST_ELEM), key;

	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, item->addr.bytes, addr_size(&item->addr));
	nl_nest_end(w, key);
	if (lifetime && item->lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, item->lifetime_ms);
	nl_nest_end(w, element);
}

static size_t begin(struct nl_writer *w, uint16_t type, const struct set_changes *c,
		    const char *name)
{
	nl_message(w, type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, c->table);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	return nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
}

static void end(struct nl_writer *w, size_t list)
{
	nl_nest_end(w, list);
	nl_end(w);
}

static bool is_of(const struct filter_learn *item, enum addr_family family, size_t list)
{
	return item->addr.family == family && item->port_list == list;
}

bool set_changes_any(const struct set_changes *c, enum addr_family family, size_t list)
{
	for (size_t i = 0; i < c->count; i++)
		if (is_of(&c->items[i], family, list))
			return true;
	return false;
}

static void put_pass(struct nl_writer *w, const struct set_changes *c, enum pass pass,
		     const char *name, enum addr_family family, size_t list)
{
	uint16_t type = pass == PASS_DELETE ? NFT_MSG_DELSETELEM : NFT_MSG_NEWSETELEM;
	bool lifetime = c->lifetimes && pass != PASS_DELETE;
	size_t nest = 0, used = 0;

	for (size_t i = 0; i < c->count; i++) {
		const struct filter_learn *item = &c->items[i];

		if (!is_of(item, family, list) || !is_in(item, pass))
			continue;
		if (used % NETLINK_ELEMENTS_MAX == 0) {
			if (used > 0)
				end(w, nest);
			nest = begin(w, type, c, name);
		}
		put_element(w, item, lifetime);
		used++;
	}
	if (used > 0)
		end(w, nest);
}

void set_put_changes(struct nl_writer *w, const struct set_changes *c, const char *name,
		     enum addr_family family, size_t list, bool is_new)
{
	for (size_t pass = is_new ? PASS_ADD : 0; pass < PASS_COUNT; pass++)
		put_pass(w, c, (enum pass)pass, name, family, list);
}
