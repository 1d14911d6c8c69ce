// SPDX-License-Identifier: Apache-2.0
/* Any bytes as what an engine has left behind: what is adopted is sound, allowed, alive,
 * known to the kernel, and the same when it is left behind and adopted once more. */
#include <assert.h>
#include <string.h>

#include "policy/policy.h"
#include "sandbox/learned.h"
#include "sandbox/verdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
	NOW = 1000000,
	USES_MAX = 64,
	HEADER = 24,
	RECORD = 296,
	/* Where what has ended begins; the same records are put there. */
	PAST_AT = HEADER + LEARNED_SNAPSHOT_RECORDS * RECORD,
	PAST_SIZE = LEARNED_SNAPSHOT_SIZE - PAST_AT,
};

static _Alignas(8) uint8_t given[LEARNED_SNAPSHOT_SIZE], again[LEARNED_SNAPSHOT_SIZE];

static const struct hash_key key = { 1, 2 };

static struct plan plan;

static void make_plan(void)
{
	struct rule rules[] = {
		{ .kind = TARGET_WITHIN, .action = POLICY_ALLOW, .target = "**.x.test" },
		{ .kind = TARGET_WITHIN,
		  .action = POLICY_ALLOW,
		  .target = "**.p.test",
		  .flags = PLAN_PRIVATE },
	};
	struct policy policy = { .rules = rules, .count = ARRAY_SIZE(rules) };
	struct err err;
	uint8_t *bytes;
	size_t n;

	for (size_t i = 0; i < policy.count; i++) {
		rules[i].comment = rules[i].file = "";
		assert(dns_name_parse(text_of(rules[i].target + 3), &rules[i].name) == 0);
	}
	assert(policy_compile(&policy, &bytes, &n, &err) == 0);
	assert(plan_open(bytes, n, &plan, &err) == 0);
}

struct asked {
	struct learned *l;
	struct addr addrs[USES_MAX];
	size_t count;
};

static uint32_t has(void *data, const struct addr *a, uint8_t port_list)
{
	struct asked *asked = data;

	assert(addr_size(a) > 0 && port_list < PLAN_PORT_LISTS_MAX);
	if (asked->count < USES_MAX)
		asked->addrs[asked->count++] = *a;
	return a->bytes[3] * 1000u; /* 0: the kernel doesn't have it */
}

static void check(const struct asked *asked)
{
	struct learned_use uses[USES_MAX];

	for (size_t i = 0; i < asked->count; i++) {
		const struct addr *a = &asked->addrs[i];
		size_t count = learned_find(asked->l, a, NOW, uses, USES_MAX);

		for (size_t j = 0; j < count; j++) {
			struct plan_verdict v = plan_match_name(&plan, &uses[j].name);

			assert(dns_name_is_host(&uses[j].name));
			assert(v.action == POLICY_ALLOW &&
			       !rebinding_fault(&plan, &v, a) &&
			       rebinding_teaches(&plan, &v, a));
			assert(uses[j].expires_ms > NOW);
			assert(uses[j].expires_ms <= NOW + a->bytes[3] * 1000);
		}
	}
}

/* What would be kept for flows that are open. */
static size_t count_kept(const struct learned *l)
{
	struct arena arena = { 0 };
	struct learned_rebased next;
	size_t count;

	assert(learned_rebase(l, &plan, NOW, &arena, &next) == 0);
	count = next.draining_count;
	assert(count >= next.learned_count);
	learned_free(next.table);
	arena_done(&arena);
	return count;
}

static void give(const uint8_t *data, size_t size)
{
	memcpy(given, data, size);
	if (size <= HEADER)
		return;
	memcpy(given, "wreimg02", 8);
	memcpy(given + PAST_AT, data + HEADER, MIN(size - HEADER, (size_t)PAST_SIZE));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct learned_snapshot was = { .bytes = given }, is = { .bytes = again };
	struct asked first = { .count = 0 }, second = { .count = 0 };
	size_t n;

	if (!plan.bytes)
		make_plan();
	size = MIN(size, (size_t)PAST_AT);
	give(data, size);
	first.l = learned_new(&plan, &key);
	second.l = learned_new(&plan, &key);
	assert(first.l && second.l);
	(void)learned_snapshot_adopt(first.l, &was, NOW, has, &first);
	check(&first);
	learned_snapshot_keep(first.l, &is);
	n = learned_snapshot_adopt(second.l, &is, NOW, has, &second);
	assert(n == learned_counts(first.l).addresses);
	assert(n == learned_counts(second.l).addresses);
	assert(count_kept(first.l) == count_kept(second.l));
	learned_free(first.l);
	learned_free(second.l);
	memset(given, 0, MAX(size, (size_t)HEADER));
	memset(given + PAST_AT, 0, MIN(size, (size_t)PAST_SIZE));
	return 0;
}
