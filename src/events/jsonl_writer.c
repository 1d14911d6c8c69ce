// SPDX-License-Identifier: Apache-2.0
#include "events/jsonl_writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "sys/files.h"
#include "sys/worker.h"

enum {
	QUEUE_BYTES = 2 << 20, /* some thousand events; more are lost */
	FREE_TIMEOUT_MS = 2000,
	OPEN_AGAIN_MS = 1000, /* a file that can't be opened is tried as often, and one
			       * that is open looked for */
};

struct jsonl_writer {
	struct worker *worker;
	char *where; /* owned */
	struct logfile_limits limits;
	pthread_mutex_t lock; /* of state */
	struct jsonl_state state;
	uint64_t dropped_packets; /* of what the queue did not take */
	/* The thread's. */
	struct logfile *file; /* NULL: standard output, or not open */
	int64_t open_again_ms, look_ms;
	bool is_stdout;
};

/* What is queued: an order, or an event behind it. */
enum order { ORDER_OPEN = 0, ORDER_ROW };
struct queued {
	uint64_t order;
	struct event_row row;
};

/* ---- in the thread ---- */

static void note(struct jsonl_writer *w, uint64_t packets, const struct err *err)
{
	pthread_mutex_lock(&w->lock);
	if (!err) {
		w->state.rows++;
		w->state.trouble[0] = '\0';
	} else {
		w->state.lost_rows += packets > 0;
		w->state.lost_packets += packets;
		snprintf(w->state.trouble, sizeof(w->state.trouble), "%s", err->text);
	}
	pthread_mutex_unlock(&w->lock);
}

static int open_lines(struct jsonl_writer *w, struct err *err)
{
	int64_t now_ms = clock_now_ms();
	int r;

	if (w->is_stdout)
		return 0;
	if (w->file && now_ms >= w->look_ms && !logfile_is_there(w->file)) {
		logfile_close(w->file);
		w->file = NULL;
		w->open_again_ms = 0;
	}
	if (now_ms >= w->look_ms)
		w->look_ms = now_ms + OPEN_AGAIN_MS;
	if (w->file)
		return 0;
	if (now_ms < w->open_again_ms)
		return err_set(err, -EAGAIN, "%s", w->state.trouble);
	r = logfile_open(w->where, &w->limits, &w->file, err);
	if (r < 0)
		w->open_again_ms = now_ms + OPEN_AGAIN_MS;
	return r;
}

static void on_row(void *data, const void *record, size_t size)
{
	const struct queued *q = record;
	struct jsonl_writer *w = data;
	char line[EVENT_JSON_SIZE + 1];
	struct err err = { 0 };
	int r;

	if (q->order != ORDER_ROW) {
		logfile_close(w->file);
		w->file = NULL;
		w->open_again_ms = 0;
		if (open_lines(w, &err) < 0)
			note(w, 0, &err);
		return;
	}
	size = event_json(&q->row, line);
	line[size++] = '\n';
	r = open_lines(w, &err);
	if (r == 0) {
		r = w->is_stdout ? file_write_all(STDOUT_FILENO, line, size)
				 : logfile_write(w->file, line, size, clock_wall_ms());
		if (r < 0)
			err_sys(&err, r, "cannot write '%s'", w->where);
	}
	note(w, q->row.event.packets, r < 0 ? &err : NULL);
}

/* ---- everybody else ---- */

static void destroy(struct jsonl_writer *w)
{
	pthread_mutex_destroy(&w->lock);
	logfile_close(w->file);
	free(w->where);
	free(w);
}

int jsonl_writer_new(const struct jsonl_config *config, struct jsonl_writer **ret,
		     struct err *err)
{
	struct jsonl_writer *w = calloc(1, sizeof(*w));
	const struct worker_config worker = {
		.name = "weir-jsonl",
		.queue_bytes = QUEUE_BYTES,
		.reserve_bytes = sizeof(struct queued),
		.data = w,
		.on_record = on_row,
	};
	int r;

	if (!w)
		return err_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&w->lock, NULL);
	w->limits = config->files;
	w->is_stdout = strcmp(config->where, "stdout") == 0;
	w->where = strdup(config->where);
	r = w->where ? worker_new(&worker, &w->worker, err)
		     : err_set(err, -ENOMEM, "out of memory");
	if (r < 0) {
		destroy(w);
		return r;
	}
	jsonl_writer_reopen(w);
	*ret = w;
	return 0;
}

void jsonl_writer_free(struct jsonl_writer *w)
{
	/* A thread that hangs in a write goes on using it. */
	if (w && worker_free(w->worker, FREE_TIMEOUT_MS))
		destroy(w);
}

void jsonl_writer_add(struct jsonl_writer *w, const struct event_row *row)
{
	const struct queued q = { .order = ORDER_ROW, .row = *row };

	if (!worker_push(w->worker, &q, sizeof(q), false))
		w->dropped_packets += row->event.packets;
}

void jsonl_writer_reopen(struct jsonl_writer *w)
{
	const uint64_t order = ORDER_OPEN;

	(void)!worker_push(w->worker, &order, sizeof(order), true);
}

void jsonl_writer_state(struct jsonl_writer *w, struct jsonl_state *ret)
{
	pthread_mutex_lock(&w->lock);
	*ret = w->state;
	pthread_mutex_unlock(&w->lock);
	ret->lost_rows += worker_dropped(w->worker);
	ret->lost_packets += w->dropped_packets;
}
