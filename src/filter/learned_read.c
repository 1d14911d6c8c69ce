// SPDX-License-Identifier: Apache-2.0
#include "filter/filter.h"

#include <errno.h>
#include <libmnl/libmnl.h>
#include <netinet/in.h>
#include <string.h>

#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "filter/message.h"
#include "filter/ruleset_internal.h"

/* One set being read. */
struct reading {
	enum filter_naming naming;
	enum addr_family family;
	uint8_t port_list;
	filter_learned_fn *fn;
	void *data;
};

/* An element whose time has come meanwhile has none left, and says nothing. */
static int read_element(const struct reading *s, const struct nlattr *a)
{
	struct nl_attrs element, key;
	const struct nlattr *value;
	struct addr addr = { .family = s->family };
	uint64_t left_ms;

	if (!nl_attrs_nested(a, &element) ||
	    !nl_attrs_nested(element.at[NFTA_SET_ELEM_KEY], &key))
		return -EBADMSG;
	value = key.at[NFTA_DATA_VALUE];
	if (!value || mnl_attr_get_payload_len(value) != addr_size(&addr))
		return -EBADMSG;
	memcpy(addr.bytes, mnl_attr_get_payload(value), addr_size(&addr));
	if (nl_get_u64(element.at[NFTA_SET_ELEM_EXPIRATION], &left_ms) && left_ms > 0)
		s->fn(s->data, &addr, s->port_list, (uint32_t)MIN(left_ms, UINT32_MAX));
	return 0;
}

static int on_elements(void *data, uint16_t type, uint8_t family,
		       const struct nl_attrs *attrs)
{
	const struct nlattr *list = attrs->at[NFTA_SET_ELEM_LIST_ELEMENTS];
	struct nlattr *a; /* as libmnl's loop wants it; only read */
	int r = 0;

	if (!list)
		return 0;
	mnl_attr_for_each_nested(a, list)
	{
		if (r == 0)
			r = read_element(data, a);
	}
	return r;
}

static void name_set(struct nl_writer *w, const void *what)
{
	const struct reading *s = what;
	char name[FILTER_NAME_MAX];

	filter_set_name(s->naming, FILTER_ROLE_LEARNED, s->family, s->port_list, name);
	nl_put_text(w, NFTA_SET_ELEM_LIST_TABLE, filter_table(s->naming));
	nl_put_text(w, NFTA_SET_ELEM_LIST_SET, name);
}

int filter_learned_read(struct filter_conn *c, size_t port_list_count,
			filter_learned_fn *fn, void *data)
{
	for (size_t i = 0; i < 2 * MIN(port_list_count, (size_t)PLAN_PORT_LISTS_MAX);
	     i++) {
		struct reading s = {
			.naming = c->naming,
			.family = i % 2 ? ADDR_V6 : ADDR_V4,
			.port_list = (uint8_t)(i / 2),
			.fn = fn,
			.data = data,
		};
		int r = nl_ask(c, NFT_MSG_GETSETELEM, NLM_F_DUMP, NFPROTO_INET, name_set,
			       &s, on_elements, &s);

		/* Not every port list has names, nor every namespace IPv6. */
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}
