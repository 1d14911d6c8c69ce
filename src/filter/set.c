// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 *
 * An element whose lifetime should start anew is added, deleted and added in one
 * transaction: adding one that is there changes nothing on most kernels, and deleting
 * one that isn't would fail the whole batch. To remove one is the same without the last
 * step. This needs nothing of newer kernels, and packets only see the outcome. */
#include "filter/filter.h"

#include <errno.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/message.h"

enum {
	/* One element in a message of its own, with room to spare. */
	ELEMENT_MESSAGE = 112,
	BATCH_SIZE = (FILTER_LEARN_MAX * 3 + 2) * ELEMENT_MESSAGE,
};

/* "learned4_12" */
static void set_name(const struct filter_learn *item, char name[16])
{
	unsigned int list = item->port_list;
	size_t n = strlen("learned4_");

	memcpy(name, item->addr.family == ADDR_V4 ? "learned4_" : "learned6_", n);
	if (list >= 10)
		name[n++] = (char)('0' + list / 10);
	name[n++] = (char)('0' + list % 10);
	name[n] = '\0';
}

static void put_element(struct nl_writer *w, uint16_t type,
			const struct filter_learn *item)
{
	uint16_t flags = type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0;
	size_t list, element, key;
	char name[16];

	set_name(item, name);
	nl_message(w, type, flags, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, FILTER_TABLE);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	element = nl_nest(w, NFTA_LIST_ELEM);
	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, item->addr.bytes, addr_size(&item->addr));
	nl_nest_end(w, key);
	if (type == NFT_MSG_NEWSETELEM && item->lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, item->lifetime_ms);
	nl_nest_end(w, element);
	nl_nest_end(w, list);
	nl_end(w);
}

static void put_item(struct nl_writer *w, const struct filter_learn *item)
{
	put_element(w, NFT_MSG_NEWSETELEM, item);
	if (item->refresh || item->lifetime_ms == 0)
		put_element(w, NFT_MSG_DELSETELEM, item);
	if (item->refresh && item->lifetime_ms > 0)
		put_element(w, NFT_MSG_NEWSETELEM, item);
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[BATCH_SIZE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);

	if (count == 0)
		return 0;
	if (count > FILTER_LEARN_MAX)
		return -E2BIG;
	nl_batch(&w);
	for (size_t i = 0; i < count; i++) {
		if (addr_size(&items[i].addr) == 0 ||
		    items[i].port_list >= PLAN_PORT_LISTS_MAX)
			return -EINVAL;
		put_item(&w, &items[i]);
	}
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}
