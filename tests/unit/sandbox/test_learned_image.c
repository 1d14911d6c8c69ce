// SPDX-License-Identifier: Apache-2.0
/* What outlives the engine: see learned_image.c. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "sandbox/learned.h"
#include "test_plan.h"
#include "unit.h"

enum { NOW = 1000000, DAY_MS = 24 * 3600 * 1000 };

static const struct hash_key key = { 7, 8 };

static struct plan plan;
static uint8_t *plan_bytes, *image;
static struct learned_snapshot snapshot; /* of @image */

static int setup(void **state)
{
	plan_bytes = plan_from("egress:\n"
			       "- {action: allow, target: '*.x.test'}\n"
			       "- {action: allow, target: '*.x.web', ports: [443]}\n"
			       "limits: {addresses: 262144, learned_names: 65536, "
			       "addresses_per_name: 1024}\n",
			       &plan);
	image = mmap(NULL, LEARNED_SNAPSHOT_SIZE, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	snapshot = (struct learned_snapshot){ .bytes = image };
	return image == MAP_FAILED ? -1 : 0;
}

static int teardown(void **state)
{
	free(plan_bytes);
	return munmap(image, LEARNED_SNAPSHOT_SIZE);
}

static struct learned *table(void)
{
	struct learned *l = learned_new(&plan, &key);

	assert_non_null(l);
	return l;
}

static struct learned *table_with_image(void)
{
	struct learned *l = table();

	learned_snapshot_keep(l, &snapshot);
	return l;
}

static struct dns_name name_of(const char *text)
{
	struct dns_name n;

	assert_int_equal(dns_name_parse(text_of(text), &n), 0);
	return n;
}

static void learn(struct learned *l, const char *name, struct addr a, uint32_t ttl,
		  int64_t now_ms)
{
	struct dns_name n = name_of(name);
	struct learned_item item = { .name = &n,
				     .verdict = plan_match_name(&plan, &n),
				     .addr = a,
				     .ttl_sec = ttl };
	struct filter_learn ignored;

	assert_true(learned_prepare(l, &item, now_ms, &ignored) >= 0);
	learned_commit(l, &item, now_ms);
}

/* The address that a name of the tests teaches, so that a mixture of two records shows.
 */
static struct addr addr_for(const char *name)
{
	uint64_t h = hash_bytes(&key, name, strlen(name));

	return addr_v4(45, (uint8_t)(h >> 16), (uint8_t)(h >> 8), (uint8_t)h);
}

static uint32_t has_all(void *data, const struct addr *a, uint8_t port_list)
{
	return DAY_MS;
}

static uint32_t has_none(void *data, const struct addr *a, uint8_t port_list)
{
	return 0;
}

static uint32_t has_for_a_second(void *data, const struct addr *a, uint8_t port_list)
{
	return 1000;
}

static size_t adopt(struct learned *l, int64_t now_ms)
{
	return learned_snapshot_adopt(l, &snapshot, now_ms, has_all, NULL);
}

static bool knows(const struct learned *l, const char *name, int64_t now_ms)
{
	struct addr a = addr_for(name);
	struct dns_name n = name_of(name);
	struct learned_use uses[4];
	size_t count = learned_find(l, &a, now_ms, uses, 4);

	for (size_t i = 0; i < count; i++)
		if (dns_name_equal(&uses[i].name, &n))
			return true;
	return false;
}

TEST_WITH(what_was_learned_outlives_its_table, setup, teardown)
{
	struct addr six =
		addr_from_bytes(ADDR_V6, (const uint8_t[16]){ 0x26, 1, [15] = 7 });
	struct learned *old = table_with_image(), *l = table();
	struct learned_use use;

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	learn(old, "b.x.web", addr_for("b.x.web"), 600, NOW);
	learn(old, "c.x.test", six, 600, NOW);
	learned_free(old);
	assert_int_equal(adopt(l, NOW + 1000), 3);
	assert_true(knows(l, "a.x.test", NOW + 329999));
	assert_false(knows(l, "a.x.test", NOW + 330000));
	assert_true(knows(l, "b.x.web", NOW + 1000));
	assert_int_equal(learned_find(l, &six, NOW + 1000, &use, 1), 1);
	assert_int_equal(use.port_list, 0);
	assert_int_equal(use.expires_ms, NOW + 630000);
	learned_free(l);
}

TEST_WITH(what_was_renewed_lives_as_long, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	learn(old, "a.x.test", addr_for("a.x.test"), 3000, NOW + 1000);
	learned_free(old);
	assert_int_equal(adopt(l, NOW + 1000), 1);
	assert_true(knows(l, "a.x.test", NOW + 3030999));
	learned_free(l);
}

TEST_WITH(what_has_ended_is_taken_out, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();

	learn(old, "a.x.test", addr_for("a.x.test"), 60, NOW);
	learn(old, "b.x.test", addr_for("b.x.test"), 600, NOW);
	learned_expire(old, NOW + 100000);
	/* As if its time had not come. */
	assert_int_equal(adopt(l, NOW), 1);
	assert_false(knows(l, "a.x.test", NOW));
	learned_free(l);
	learned_free(old);
}

TEST_WITH(what_the_kernel_lacks_is_not_adopted, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	assert_int_equal(learned_snapshot_adopt(l, &snapshot, NOW, has_none, NULL), 0);
	assert_int_equal(
		learned_snapshot_adopt(l, &snapshot, NOW, has_for_a_second, NULL), 1);
	assert_true(knows(l, "a.x.test", NOW + 999));
	assert_false(knows(l, "a.x.test", NOW + 1000));
	learned_free(l);
	learned_free(old);
}

TEST_WITH(what_the_policy_does_not_allow_is_not_adopted, setup, teardown)
{
	static const char *const policies[] = {
		"egress: [{action: allow, target: b.x.test}]",
		("egress: [{action: allow, target: x.x.test}, "
		 "{action: allow, target: a.x.test, ports: [80]}]"),
		("egress: [{action: allow, target: a.x.test}, "
		 "{action: deny, target: 45.0.0.0/8}]"),
	};
	struct learned *old = table_with_image();

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	for (size_t i = 0; i < ARRAY_SIZE(policies); i++) {
		struct plan other;
		uint8_t *bytes = plan_from(policies[i], &other);
		struct learned *l = learned_new(&other, &key);

		assert_int_equal(adopt(l, NOW), 0);
		learned_free(l);
		free(bytes);
	}
	learned_free(old);
}

/* The kernel may have elements that nobody remembers. */
TEST_WITH(what_is_learned_after_an_adoption_may_be_there, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();
	struct dns_name n = name_of("new.x.test");
	struct learned_item item = { .name = &n,
				     .verdict = plan_match_name(&plan, &n),
				     .addr = addr_v4(45, 1, 1, 1) };
	struct filter_learn change;

	assert_int_equal(adopt(l, NOW), 0);
	assert_int_equal(learned_prepare(l, &item, NOW, &change), 1);
	assert_true(change.refresh);
	learned_abort(l, &item, NOW);
	learned_free(l);
	learned_free(old);
}

TEST_WITH(no_element_lives_longer_than_an_engine_asks_for, setup, teardown)
{
	const int64_t week_ms = 7 * (int64_t)DAY_MS;
	struct learned *l = table_with_image();

	assert_int_equal(adopt(l, NOW), 0);
	assert_false(learned_bound_doubt(l, NOW + 2 * week_ms));
	assert_false(learned_bound_doubt(l, (int64_t)NOW + UINT32_MAX));
	assert_true(learned_bound_doubt(l, NOW + week_ms));
	assert_true(learned_bound_doubt(l, NOW));
	learned_free(l);
}

static size_t kept_after(const struct learned *l, const char *policy)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct learned_rebased next;
	struct plan other;
	uint8_t *bytes = plan_from(policy, &other);

	assert_int_equal(learned_rebase(l, &other, NOW + 200000, &arena, &next), 0);
	learned_free(next.table);
	free(bytes);
	return next.draining_count;
}

TEST_WITH(open_flows_outlive_what_opened_them_and_the_engine, setup, teardown)
{
	struct learned *old = table(), *l = table(), *third = table();

	/* One has ended before the image is kept, one after it, one while nobody was
	 * there, one has been forgotten by the kernel. */
	learned_keep_past(old);
	learn(old, "before.x.test", addr_for("before.x.test"), 60, NOW);
	learned_expire(old, NOW + 100000);
	learned_snapshot_keep(old, &snapshot);
	learn(old, "after.x.test", addr_for("after.x.test"), 60, NOW);
	learned_expire(old, NOW + 100000);
	learn(old, "meanwhile.x.test", addr_for("meanwhile.x.test"), 60, NOW + 100000);
	learn(old, "gone.x.test", addr_for("gone.x.test"), 6000, NOW + 100000);
	learned_free(old);
	assert_int_equal(
		learned_snapshot_adopt(l, &snapshot, NOW + 200000, has_none, NULL), 0);
	assert_int_equal(kept_after(l, "egress: [{action: allow, target: '*.x.test'}]"),
			 4);
	assert_int_equal(kept_after(l, "egress: [{action: allow, target: after.x.test}]"),
			 1);
	/* And the engine after that one. */
	learned_snapshot_keep(l, &snapshot);
	learned_free(l);
	assert_int_equal(adopt(third, NOW + 200000), 0);
	assert_int_equal(
		kept_after(third, "egress: [{action: allow, target: '*.x.test'}]"), 4);
	learned_free(third);
}

static void ignore_rule(void *data, uint32_t rule, uint8_t port_list)
{
}

/* A flow of a pair that made room for another one goes on, and who pays for it isn't
 * known: in this engine, under another policy, and in the next engine. */
TEST_WITH(that_something_was_forgotten_outlives_the_engine, setup, teardown)
{
	const struct addr a = addr_v4(45, 0, 0, 1);
	struct learned *l = table_with_image(), *next;

	learned_keep_past(l);
	for (uint32_t i = 0; i <= LEARNED_PAST_MAX; i++) {
		char name[32];

		assert_int_equal(learned_past_rules(l, &a, ignore_rule, NULL), true);
		snprintf(name, sizeof(name), "n%u.x.test", i);
		learn(l, name, addr_for(name), 1, NOW);
		learned_expire(l, NOW + DAY_MS);
	}
	assert_false(learned_past_rules(l, &a, ignore_rule, NULL));
	learned_free(l);
	for (int i = 0; i < 2; i++) {
		next = table();
		assert_int_equal(adopt(next, NOW + DAY_MS), 0);
		assert_false(learned_past_rules(next, &a, ignore_rule, NULL));
		learned_snapshot_keep(next, &snapshot);
		learned_free(next);
	}
	/* Another table, which has forgotten nothing. */
	l = table_with_image();
	learned_free(l);
	next = table();
	assert_int_equal(adopt(next, NOW + DAY_MS), 0);
	assert_true(learned_past_rules(next, &a, ignore_rule, NULL));
	learned_free(next);
}

TEST_WITH(another_policy_takes_the_image_along, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();
	CLEAN(arena) struct arena arena = { 0 };
	struct learned_rebased next;
	struct plan other;
	uint8_t *bytes = plan_from("egress: [{action: allow, target: b.x.test}]", &other);

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	learn(old, "b.x.test", addr_for("b.x.test"), 300, NOW);
	assert_int_equal(learned_rebase(old, &other, NOW, &arena, &next), 0);
	learned_snapshot_move(old, next.table);
	learned_free(old);
	assert_int_equal(adopt(l, NOW), 1);
	assert_true(knows(l, "b.x.test", NOW));
	learned_free(next.table);
	learned_free(l);
	free(bytes);
}

static bool is_untouched(void)
{
	for (size_t i = 0; i < LEARNED_SNAPSHOT_SIZE; i++)
		if (image[i] != 0)
			return false;
	return true;
}

TEST_WITH(a_fresh_one_is_not_touched_before_something_is_learned, setup, teardown)
{
	struct learned *l = table(), *next = table(), *found = table();
	struct dns_name n = name_of("probe.x.test");
	struct learned_item passing = { .name = &n,
					.verdict = plan_match_name(&plan, &n),
					.addr = addr_for("probe.x.test"),
					.lifetime_ms = 5000,
					.is_passing = true };
	struct filter_learn ignored;

	learned_keep_past(l);
	snapshot.is_fresh = true;
	learned_snapshot_keep(l, &snapshot);
	assert_int_equal(learned_prepare(l, &passing, NOW, &ignored), 1);
	learned_commit(l, &passing, NOW);
	assert_int_equal(learned_expire(l, NOW + DAY_MS), INT64_MAX);
	learned_snapshot_move(l, next);
	assert_true(is_untouched());

	/* What an answer has taught as well counts. */
	assert_int_equal(learned_prepare(next, &passing, NOW, &ignored), 1);
	learned_commit(next, &passing, NOW);
	learn(next, "probe.x.test", passing.addr, 300, NOW);
	assert_false(is_untouched());
	assert_int_equal(adopt(found, NOW), 1);
	assert_true(knows(found, "probe.x.test", NOW));
	learned_free(l);
	learned_free(next);
	learned_free(found);
}

TEST_WITH(an_image_of_something_else_is_nothing, setup, teardown)
{
	struct learned *l = table(), *kept;

	memset(image, 0, LEARNED_SNAPSHOT_SIZE);
	assert_int_equal(adopt(l, NOW), 0);
	memset(image, 0xff, LEARNED_SNAPSHOT_SIZE);
	assert_int_equal(adopt(l, NOW), 0);
	kept = table_with_image();
	assert_int_equal(adopt(l, NOW), 0);
	learned_free(kept);
	learned_free(l);
}

TEST_WITH(entries_beyond_the_image_are_not_in_it, setup, teardown)
{
	struct learned *old = table_with_image(), *l = table();
	char name[32];

	for (uint32_t i = 0; i < LEARNED_SNAPSHOT_RECORDS + 1000u; i++) {
		snprintf(name, sizeof(name), "m%u.x.test", i / 1000);
		learn(old, name,
		      addr_v4(45, (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i), 300,
		      NOW);
	}
	assert_int_equal(adopt(l, NOW), LEARNED_SNAPSHOT_RECORDS);
	learned_free(l);
	learned_free(old);
}

static size_t room;

static bool reserve(struct learned_snapshot *s, size_t from, size_t to)
{
	assert_true(from % LEARNED_SNAPSHOT_STEP == 0 && to % LEARNED_SNAPSHOT_STEP == 0);
	assert_true(from < to && to <= LEARNED_SNAPSHOT_SIZE);
	assert_ptr_equal(s->bytes, image);
	return to <= room &&
	       mprotect(image + from, to - from, PROT_READ | PROT_WRITE) == 0;
}

static void learn_many(struct learned *l, uint32_t first, uint32_t count)
{
	char name[32];

	for (uint32_t i = first; i < first + count; i++) {
		snprintf(name, sizeof(name), "n%u.x.test", i);
		learn(l, name, addr_for(name), 300, NOW);
	}
}

/* What wasn't reserved can't be touched here: that would end the test. */
TEST_WITH(what_has_no_room_is_not_in_it, setup, teardown)
{
	struct learned *l = table(), *found = table();
	size_t adopted;

	assert_int_equal(mprotect(image, LEARNED_SNAPSHOT_SIZE, PROT_NONE), 0);
	snapshot.reserve = reserve;
	snapshot.is_fresh = true;
	room = 0;
	learned_keep_past(l);
	learned_snapshot_keep(l, &snapshot);
	assert_false(snapshot.is_full);
	learn_many(l, 0, 10);
	assert_true(snapshot.is_full && snapshot.is_fresh);
	room = 3 * LEARNED_SNAPSHOT_STEP;
	learn_many(l, 10, 2);
	assert_false(snapshot.is_full);
	learn_many(l, 12, 100);
	assert_true(snapshot.is_full);
	learned_expire(l, NOW + 400000);
	learned_free(l);

	l = table();
	learned_snapshot_keep(l, &snapshot);
	learn_many(l, 0, 100);
	adopted = adopt(found, NOW);
	assert_in_range(adopted, 3 * LEARNED_SNAPSHOT_STEP / 320,
			3 * LEARNED_SNAPSHOT_STEP / 280);
	learned_free(found);
	/* Not even the header can be had: it is as if there were none. */
	assert_int_equal(mprotect(image, LEARNED_SNAPSHOT_SIZE, PROT_NONE), 0);
	room = 0;
	found = table();
	assert_int_equal(adopt(found, NOW), 0);
	learned_snapshot_keep(found, &snapshot);
	learn_many(found, 0, 10);
	assert_true(snapshot.is_full);
	assert_int_equal(mprotect(image, LEARNED_SNAPSHOT_SIZE, PROT_READ | PROT_WRITE),
			 0);
	learned_free(found);
	learned_free(l);
}

/* A page of the image could not be had. */
TEST_WITH(what_finds_no_room_among_what_has_ended_is_known_as_forgotten, setup, teardown)
{
	const struct addr a = addr_v4(45, 0, 0, 1);
	struct learned *l = table_with_image();

	learned_keep_past(l);
	learn(l, "a.x.test", addr_for("a.x.test"), 1, NOW);
	snapshot.reserve = reserve;
	room = LEARNED_SNAPSHOT_STEP;
	learned_expire(l, NOW + DAY_MS);
	learned_free(l);
	snapshot.reserve = NULL;
	l = table();
	assert_int_equal(adopt(l, NOW + DAY_MS), 0);
	assert_false(learned_past_rules(l, &a, ignore_rule, NULL));
	learned_free(l);
}

/* The next engine doesn't know whose such an entry's flow is. */
TEST_WITH(what_is_learned_and_finds_no_room_is_known_as_forgotten, setup, teardown)
{
	const struct addr a = addr_v4(45, 0, 0, 1);
	struct learned *l = table_with_image();

	learned_keep_past(l);
	snapshot.reserve = reserve;
	room = LEARNED_SNAPSHOT_STEP;
	learn_many(l, 0, 100);
	learned_free(l);
	snapshot.reserve = NULL;
	l = table();
	assert_in_range(adopt(l, NOW), 1, 99);
	assert_false(learned_past_rules(l, &a, ignore_rule, NULL));
	learned_free(l);
}

TEST_WITH(what_was_forgotten_before_is_noted_in_an_image_without_entries, setup, teardown)
{
	const struct addr a = addr_v4(45, 0, 0, 1);
	struct learned *l = table(), *next = table();

	memset(image, 0xff, LEARNED_SNAPSHOT_SIZE);
	assert_int_equal(adopt(l, NOW), 0);
	memset(image, 0, LEARNED_SNAPSHOT_SIZE);
	snapshot.is_fresh = true;
	learned_snapshot_keep(l, &snapshot);
	learned_free(l);
	/* As the next engine finds a file that has pages. */
	snapshot.is_fresh = false;
	assert_int_equal(adopt(next, NOW), 0);
	assert_false(learned_past_rules(next, &a, ignore_rule, NULL));
	learned_free(next);
}

/* Each byte of one record becomes each of these. Whatever it says then, nothing is
 * adopted but names that the policy allows, at most once, for a time that can be. */
TEST_WITH(no_damaged_byte_does_harm, setup, teardown)
{
	static const uint8_t values[] = { 0, 1, 4, 5, 6, 7, 16, 63, 64, 65, 127, 255 };
	struct learned *old = table_with_image();
	const size_t first = 0, last = 400; /* header and record */
	size_t adopted = 0, refused = 0;

	learn(old, "a.x.test", addr_for("a.x.test"), 300, NOW);
	learned_free(old);
	for (size_t at = first; at < last; at++) {
		uint8_t was = image[at];

		for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
			struct learned *l = table();
			size_t n;

			image[at] = values[i];
			n = adopt(l, NOW);
			assert_in_range(n, 0, 1);
			assert_int_equal(learned_counts(l).addresses, n);
			assert_true(learned_expire(l, NOW) == INT64_MAX ||
				    learned_expire(l, NOW) <=
					    NOW + INT64_C(7) * DAY_MS + 3600000 + 2000);
			adopted += n;
			refused += n == 0;
			learned_free(l);
		}
		image[at] = was;
	}
	assert_true(adopted > 0);
	assert_true(refused > 300);
}

/* ---- a crash ---- */

static void learn_for_ever(uint32_t seed)
{
	struct learned *l = table_with_image();
	int64_t now = NOW;
	char name[32];

	learned_keep_past(l);
	for (uint32_t x = seed;; x = x * 1664525u + 1013904223u) {
		/* Names of all lengths, so that places are taken by others. */
		snprintf(name, sizeof(name), "n%.*s%u.%s", (int)(x >> 12 & 15),
			 "xxxxxxxxxxxxxxx", x >> 24 & 63, x & 512 ? "x.test" : "x.web");
		learn(l, name, addr_for(name), (x >> 16) % 200, now);
		now += x >> 16 & 4095;
		learned_expire(l, now);
	}
}

/* The child has written something: from now on a kill may meet it anywhere. */
static void wait_for_the_first_record(void)
{
	const struct timespec step = { .tv_nsec = 100000 };
	const volatile uint8_t *bytes = image;

	for (size_t i = 0, turns = 0; bytes[i] == 0 && turns < 50000; i++) {
		if (i + 1 < 4096)
			continue;
		nanosleep(&step, NULL);
		turns++;
		i = 0;
	}
}

/* What has ended, too. Return: how many addresses are kept. */
static size_t check_kept(const struct learned *l)
{
	CLEAN(arena) struct arena arena = { 0 };
	struct learned_rebased next;
	char name[32];
	size_t found = 0;

	assert_int_equal(learned_rebase(l, &plan, NOW, &arena, &next), 0);
	for (uint32_t i = 0; i < 16 * 64 * 2; i++) {
		struct addr a;

		snprintf(name, sizeof(name), "n%.*s%u.%s", (int)(i & 15),
			 "xxxxxxxxxxxxxxx", i >> 4 & 63, i >> 10 ? "x.test" : "x.web");
		a = addr_for(name);
		for (size_t k = 0; k < next.draining_count; k++)
			found += addr_equal(&next.draining[k].addr, &a);
	}
	assert_int_equal(found, next.draining_count);
	learned_free(next.table);
	return found;
}

static void check_adopted(const struct learned *l)
{
	char name[32];
	size_t found = 0;

	for (uint32_t i = 0; i < 16 * 64 * 2; i++) {
		snprintf(name, sizeof(name), "n%.*s%u.%s", (int)(i & 15),
			 "xxxxxxxxxxxxxxx", i >> 4 & 63, i >> 10 ? "x.test" : "x.web");
		found += knows(l, name, 0);
	}
	/* Each is a name with the very address that it taught. */
	assert_int_equal(found, learned_counts(l).addresses);
}

TEST_WITH(a_crash_at_any_moment_leaves_whole_records, setup, teardown)
{
	enum { ROUNDS = 40 };
	size_t total = 0, kept = 0;

	for (uint32_t round = 0; round < ROUNDS; round++) {
		const struct timespec pause = { .tv_nsec = 500000 + round * 53927 };
		struct learned *l = table();
		pid_t pid;

		memset(image, 0, LEARNED_SNAPSHOT_SIZE);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			learn_for_ever(round + 1);
		wait_for_the_first_record();
		nanosleep(&pause, NULL);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		/* As early as the first of them: no time has come. */
		total += adopt(l, NOW);
		check_adopted(l);
		kept += check_kept(l);
		learned_free(l);
	}
	print_message("%zu adopted, %zu kept\n", total, kept);
	/* How many, depends on the machine. */
	assert_true(total > 0 && kept > 0);
}
