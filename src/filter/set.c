// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * An element whose lifetime should start anew is added, deleted and added in one
 * transaction: adding one that is there changes nothing on most kernels, and deleting
 * one that isn't would fail the whole batch. To remove one is the same without the last
 * step, or the deletion alone where the caller knows. This needs nothing of newer
 * kernels, and packets only see the outcome.
 *
 * Elements of one set that follow each other share a message: the kernel looks for table
 * and set once per message. Not those to be refreshed: the same one may stand there
 * twice, and deleting it twice would fail. */
#include "filter/set.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/netlink.h"

enum {
	/* One element in a message of its own, with room to spare. */
	ELEMENT_MESSAGE = 116,
	BATCH_SIZE = (FILTER_LEARN_MAX * 3 + 2) * ELEMENT_MESSAGE,
};

/* Start a message about elements of set @name. Return: for end_elements(). */
static size_t begin_elements(struct nl_writer *w, uint16_t type, const char *table,
			     const char *name)
{
	uint16_t flags = type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0;

	nl_message(w, type, flags, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, table);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	return nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
}

static void end_elements(struct nl_writer *w, size_t list)
{
	nl_nest_end(w, list);
	nl_end(w);
}

/* @lifetime_ms 0: none is said. */
static void put_element(struct nl_writer *w, const void *bytes, size_t size,
			uint32_t lifetime_ms)
{
	size_t element = nl_nest(w, NFTA_LIST_ELEM), key;

	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, bytes, size);
	nl_nest_end(w, key);
	if (lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, lifetime_ms);
	nl_nest_end(w, element);
}

/* With @mark the key begins with it, as in sets that many sandboxes share. */
static void put_item(struct nl_writer *w, uint32_t mark, const struct filter_learn *item,
		     bool lifetime)
{
	uint8_t key[FILTER_KEY_MAX];
	size_t size = addr_size(&item->addr), before = mark ? sizeof(mark) : 0;

	memcpy(key, &mark, before);
	memcpy(key + before, item->addr.bytes, size);
	put_element(w, key, before + size, lifetime ? item->lifetime_ms : 0);
}

/* ---- learning ---- */

/* @count elements of one set. */
static void put_elements(struct nl_writer *w, const struct set_owner *o, uint16_t type,
			 const struct filter_learn *items, size_t count)
{
	char name[FILTER_NAME_MAX];
	size_t list;

	filter_set_name(o->naming, FILTER_ROLE_LEARNED, items->addr.family,
			items->port_list, name);
	list = begin_elements(w, type, filter_table(o->naming), name);
	for (size_t i = 0; i < count; i++)
		put_item(w, o->mark, &items[i], type == NFT_MSG_NEWSETELEM);
	end_elements(w, list);
}

/* How many of @items may share the first one's messages. */
static size_t run_of(const struct filter_learn *items, size_t count)
{
	size_t n = 1;

	while (n < count && !items[0].refresh && !items[n].refresh &&
	       items[n].addr.family == items[0].addr.family &&
	       items[n].port_list == items[0].port_list &&
	       items[n].present == items[0].present &&
	       (items[n].lifetime_ms == 0) == (items[0].lifetime_ms == 0))
		n++;
	return n;
}

static void put_run(struct nl_writer *w, const struct set_owner *o,
		    const struct filter_learn *items, size_t count)
{
	if (items->lifetime_ms > 0 || !items->present)
		put_elements(w, o, NFT_MSG_NEWSETELEM, items, count);
	if (items->refresh || items->lifetime_ms == 0)
		put_elements(w, o, NFT_MSG_DELSETELEM, items, count);
	if (items->refresh && items->lifetime_ms > 0)
		put_elements(w, o, NFT_MSG_NEWSETELEM, items, count);
}

bool set_item_is_valid(const struct filter_learn *item)
{
	return addr_size(&item->addr) > 0 && item->port_list < PLAN_PORT_LISTS_MAX;
}

int set_learn(struct filter_conn *c, const struct set_owner *o,
	      const struct filter_learn *items, size_t count)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[BATCH_SIZE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);

	if (count == 0)
		return 0;
	if (count > FILTER_LEARN_MAX)
		return -E2BIG;
	for (size_t i = 0; i < count; i++)
		if (!set_item_is_valid(&items[i]))
			return -EINVAL;
	nl_batch(&w);
	for (size_t i = 0, run; i < count; i += run) {
		run = run_of(items + i, count - i);
		put_run(&w, o, items + i, run);
	}
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	return set_learn(c, &(struct set_owner){ .naming = c->naming }, items, count);
}

/* ---- what a new ruleset starts with ---- */

static size_t set_index(const struct filter_learn *item)
{
	return item->port_list * 2u + (item->addr.family != ADDR_V4);
}

/* Those of @items that belong to the set with @index. */
static void put_set(struct nl_writer *w, const struct set_owner *o, const char *name,
		    size_t index, const struct filter_learn *items, size_t count,
		    bool lifetimes)
{
	size_t list = 0, used = 0;

	for (size_t i = 0; i < count; i++) {
		if (set_index(&items[i]) != index ||
		    (lifetimes && items[i].lifetime_ms == 0))
			continue;
		if (used % NETLINK_ELEMENTS_MAX == 0) {
			if (used > 0)
				end_elements(w, list);
			list = begin_elements(w, NFT_MSG_NEWSETELEM,
					      filter_table(o->naming), name);
		}
		put_item(w, o->mark, &items[i], lifetimes);
		used++;
	}
	if (used > 0)
		end_elements(w, list);
}

void set_put_items(struct nl_writer *w, const struct set_owner *o, enum filter_role role,
		   const struct filter_learn *items, size_t count, bool lifetimes)
{
	uint32_t present = 0;
	char name[FILTER_NAME_MAX];

	for (size_t i = 0; i < count; i++)
		present |= UINT32_C(1) << set_index(&items[i]);
	for (size_t i = 0; present >> i; i++) {
		if (!(present >> i & 1))
			continue;
		filter_set_name(o->naming, role, i % 2 ? ADDR_V6 : ADDR_V4, i / 2, name);
		put_set(w, o, name, i, items, count, lifetimes);
	}
}

/* ---- held ports ---- */

size_t set_put_held(struct nl_writer *w, enum filter_naming naming, uint16_t type,
		    const struct filter_held *items, size_t count)
{
	char name[FILTER_NAME_MAX];
	size_t list, n = 0;

	filter_set_name(naming, FILTER_ROLE_HELD, items->family, 0, name);
	list = begin_elements(w, type, filter_table(naming), name);
	for (; n < MIN(count, (size_t)NETLINK_ELEMENTS_MAX); n++) {
		const uint8_t key[8] = {
			items[n].protocol,
			[4] = (uint8_t)(items[n].port >> 8),
			[5] = (uint8_t)items[n].port,
		};

		if (items[n].family != items->family)
			break;
		put_element(w, key, sizeof(key), 0);
	}
	end_elements(w, list);
	return n;
}

bool set_held_is_valid(const struct filter_held *h)
{
	return (h->family == ADDR_V4 || h->family == ADDR_V6) && h->port > 0 &&
	       (h->protocol == IPPROTO_TCP || h->protocol == IPPROTO_UDP);
}

int filter_hold(struct filter_conn *c, const struct filter_held *h, bool hold)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[4 * ELEMENT_MESSAGE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);
	int r;

	if (!set_held_is_valid(h))
		return -EINVAL;
	nl_batch(&w);
	(void)set_put_held(&w, c->naming, hold ? NFT_MSG_NEWSETELEM : NFT_MSG_DELSETELEM,
			   h, 1);
	nl_batch_end(&w);
	r = nl_transact(c, &w, NULL);
	return r == -ENOENT && !hold ? 0 : r;
}
