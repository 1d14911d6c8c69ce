// SPDX-License-Identifier: Apache-2.0
/* Any bytes: plan_open() refuses them, or every accessor and match is safe and ends.
 * The magic and the size are put right, so that the fuzzer gets past them. */
#include <string.h>

#include "policy/explain.h"
#include "policy/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_names(const struct plan *p)
{
	static const char *const names[] = { "a.test", "x.a.test", "test", "1.2.3.4",
					     "b.c.d.e.f" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct dns_name n;

		if (dns_name_parse(text_of(names[i]), &n) == 0)
			(void)plan_match_name(p, &n);
	}
}

static void use_addrs(const struct plan *p, const uint8_t *data, size_t size)
{
	for (size_t i = 0; i + 16 <= size && i < 4096; i += 16) {
		struct addr v4 = addr_from_bytes(ADDR_V4, data + i);
		struct addr v6 = addr_from_bytes(ADDR_V6, data + i);

		(void)plan_match_addr(p, &v4, IPPROTO_TCP, 443);
		(void)plan_match_addr(p, &v6, IPPROTO_UDP, 0);
		(void)plan_names_addr(p, &v4);
	}
}

static void use_everything(const struct plan *p)
{
	char buf[POLICY_EXPLAIN_SIZE];
	size_t count;

	for (size_t i = 0; i <= plan_rule_count(p) && i < 4096; i++)
		(void)policy_explain_rule(p, (uint32_t)i, buf, sizeof(buf));
	for (size_t i = 0; i <= plan_prefix_count(p) && i < 4096; i++)
		(void)plan_prefix(p, i);
	for (size_t i = 0; i <= plan_port_list_count(p); i++) {
		(void)plan_port_list(p, i, &count);
		(void)policy_explain_ports(p, (uint8_t)i, buf, sizeof(buf));
	}
	for (size_t i = 0; i < LIMIT_COUNT; i++)
		(void)plan_limit(p, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct layout_header h;
	struct plan plan;
	uint8_t *copy = malloc(size + 1);

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	if (size >= sizeof(h)) {
		memcpy(&h, copy, sizeof(h));
		h.magic = LAYOUT_MAGIC;
		h.size = (uint32_t)size;
		memcpy(copy, &h, sizeof(h));
	}
	if (plan_open(copy, size, &plan, NULL) == 0) {
		use_names(&plan);
		use_addrs(&plan, data, size);
		use_everything(&plan);
	}
	free(copy);
	return 0;
}
