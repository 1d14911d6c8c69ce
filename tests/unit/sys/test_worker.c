// SPDX-License-Identifier: Apache-2.0
#include <string.h>

#include "unit.h"

#include <fcntl.h>
#include <signal.h>

#include "sys/worker.h"

enum { PATIENCE_MS = 60 * 1000 };

/* A thread that waits in read() until the test lets it go on. */
struct seen {
	int gate[2]; /* -1: no gate */
	uint32_t next;
	bool in_order, aligned, quiet;
	uint32_t pauses; /* atomic */
};

static void on_record(void *data, const void *record, size_t size)
{
	struct seen *s = data;
	sigset_t mask;
	uint32_t n;
	char byte;

	if (s->gate[0] >= 0 && read(s->gate[0], &byte, 1) < 1)
		return;
	memcpy(&n, record, sizeof(n));
	s->in_order = s->in_order && n == s->next++;
	s->aligned = s->aligned && (uintptr_t)record % 8 == 0;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	s->quiet = sigismember(&mask, SIGTERM) && sigismember(&mask, SIGPIPE);
}

static void on_pause(void *data)
{
	struct seen *s = data;

	__atomic_add_fetch(&s->pauses, 1, __ATOMIC_SEQ_CST);
}

static struct worker *start(struct seen *s, size_t queue, size_t reserve, int tick_ms)
{
	const struct worker_config config = { .name = "a-long-name-for-a-thread",
					      .queue_bytes = queue,
					      .reserve_bytes = reserve,
					      .tick_ms = tick_ms,
					      .data = s,
					      .on_record = on_record,
					      .on_pause = on_pause };
	struct worker *w = NULL;

	s->in_order = s->aligned = true;
	assert_int_equal(worker_new(&config, &w, NULL), 0);
	return w;
}

TEST(records_come_in_order_and_whole)
{
	struct seen s = { .gate = { -1, -1 } };
	struct worker *w = start(&s, 1 << 20, 0, 0);
	uint8_t record[61] = { 0 };

	for (uint32_t i = 0; i < 10000; i++) {
		memcpy(record, &i, sizeof(i));
		assert_true(worker_push(w, record, 4 + i % 57, false));
	}
	assert_true(worker_drain(w, 5000));
	assert_int_equal(s.next, 10000);
	assert_true(s.in_order && s.aligned && s.quiet);
	assert_true(worker_free(w, PATIENCE_MS));
}

TEST(a_full_queue_refuses_counts_and_never_waits)
{
	struct seen s = { 0 };
	struct worker *w;
	uint32_t pushed = 0, kept = 0;
	char many[512] = { 0 };

	assert_int_equal(pipe2(s.gate, O_CLOEXEC), 0);
	w = start(&s, 1600, 800, 0);
	for (uint32_t i = 0; i < 1000; i++)
		pushed += worker_push(w, &pushed, sizeof(pushed), false);
	/* The thread holds what it took before it got stuck. */
	assert_in_range(pushed, 100, 200);
	assert_int_equal(worker_dropped(w), 1000 - pushed);
	/* The thread may take some in the middle of this, after one was refused. */
	for (uint32_t i = 0; i < 100; i++) {
		uint32_t next = pushed + kept;

		kept += worker_push(w, &next, sizeof(next), true);
	}
	/* All of them where it took the rest only now. */
	assert_in_range(kept, 50, 100);
	assert_false(worker_drain(w, 10));
	assert_int_equal(write(s.gate[1], many, sizeof(many)), sizeof(many));
	assert_true(worker_free(w, PATIENCE_MS));
	assert_int_equal(s.next, pushed + kept);
	assert_true(s.in_order);
	close(s.gate[0]);
	close(s.gate[1]);
}

TEST(a_record_larger_than_the_queue_is_refused)
{
	struct seen s = { .gate = { -1, -1 } };
	struct worker *w = start(&s, 64, 0, 0);
	char big[65] = { 0 };

	assert_false(worker_push(w, big, sizeof(big), true));
	assert_false(worker_push(w, big, SIZE_MAX - 64, true));
	assert_int_equal(worker_dropped(w), 2);
	assert_true(worker_free(w, PATIENCE_MS));
}

TEST(ticks_come_without_records)
{
	struct seen s = { .gate = { -1, -1 } };
	struct worker *w = start(&s, 64, 0, 5);

	for (int i = 0;
	     i < PATIENCE_MS && __atomic_load_n(&s.pauses, __ATOMIC_SEQ_CST) < 3; i++)
		worker_drain(w, 0), usleep(5000);
	assert_true(__atomic_load_n(&s.pauses, __ATOMIC_SEQ_CST) >= 3);
	assert_true(worker_free(w, PATIENCE_MS));
	assert_true(worker_free(NULL, 0));
}

TEST(a_thread_that_hangs_is_left_behind)
{
	static struct seen s; /* outlives the thread's wait */
	struct worker *w;
	uint32_t zero = 0;
	char byte = 0;

	assert_int_equal(pipe2(s.gate, O_CLOEXEC), 0);
	w = start(&s, 1600, 0, 0);
	assert_true(worker_push(w, &zero, sizeof(zero), false));
	assert_false(worker_free(w, 20));
	/* It frees itself as soon as it comes back. */
	assert_int_equal(write(s.gate[1], &byte, 1), 1);
	for (int i = 0;
	     i < PATIENCE_MS && __atomic_load_n(&s.pauses, __ATOMIC_SEQ_CST) == 0; i++)
		usleep(1000);
	assert_int_equal(s.next, 1);
}
