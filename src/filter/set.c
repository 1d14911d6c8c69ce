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
	size_t element = nl_nest(w, NFTA_LIST_ELEM), key;

	key = nl_nest(w, NFTA_SET_ELEM_KEY);
	nl_put(w, NFTA_DATA_VALUE, item->addr.bytes, addr_size(&item->addr));
	nl_nest_end(w, key);
	if (type == NFT_MSG_NEWSETELEM && item->lifetime_ms > 0)
		nl_put_be64(w, NFTA_SET_ELEM_TIMEOUT, item->lifetime_ms);
	nl_nest_end(w, element);
}

/* @count elements of one set. */
static void put_elements(struct nl_writer *w, uint16_t type,
			 const struct filter_learn *items, size_t count)
{
	uint16_t flags = type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0;
	char name[16];
	size_t list;

	set_name(items, name);
	nl_message(w, type, flags, NFPROTO_INET);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, FILTER_TABLE);
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
	list = nl_nest(w, NFTA_SET_ELEM_LIST_ELEMENTS);
	for (size_t i = 0; i < count; i++)
		put_element(w, type, &items[i]);
	nl_nest_end(w, list);
	nl_end(w);
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

static void put_run(struct nl_writer *w, const struct filter_learn *items, size_t count)
{
	if (items->lifetime_ms > 0 || !items->present)
		put_elements(w, NFT_MSG_NEWSETELEM, items, count);
	if (items->refresh || items->lifetime_ms == 0)
		put_elements(w, NFT_MSG_DELSETELEM, items, count);
	if (items->refresh && items->lifetime_ms > 0)
		put_elements(w, NFT_MSG_NEWSETELEM, items, count);
}

static bool is_valid(const struct filter_learn *item)
{
	return addr_size(&item->addr) > 0 && item->port_list < PLAN_PORT_LISTS_MAX;
}

int filter_learn(struct filter_conn *c, const struct filter_learn *items, size_t count)
{
	_Alignas(struct nlmsghdr) uint8_t bytes[BATCH_SIZE];
	struct nl_writer w = nl_writer(bytes, sizeof(bytes), c->seq);

	if (count == 0)
		return 0;
	if (count > FILTER_LEARN_MAX)
		return -E2BIG;
	for (size_t i = 0; i < count; i++)
		if (!is_valid(&items[i]))
			return -EINVAL;
	nl_batch(&w);
	for (size_t i = 0, run; i < count; i += run) {
		run = run_of(items + i, count - i);
		put_run(&w, items + i, run);
	}
	nl_batch_end(&w);
	return nl_transact(c, &w, NULL);
}
