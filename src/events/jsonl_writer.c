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
};

struct jsonl_writer {
	struct worker *worker;
	struct logfile *file; /* the thread's; NULL: standard output */
	pthread_mutex_t lock; /* of state */
	struct jsonl_state state;
	uint64_t dropped_packets; /* of what the queue did not take */
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

static void on_row(void *data, const void *record, size_t size)
{
	const struct queued *q = record;
	struct jsonl_writer *w = data;
	char line[EVENT_JSON_SIZE + 1];
	struct err err = { 0 };
	int r;

	if (q->order != ORDER_ROW) {
		if (w->file && logfile_open(w->file, &err) < 0)
			note(w, 0, &err);
		return;
	}
	size = event_json(&q->row, line);
	line[size++] = '\n';
	r = w->file ? logfile_write(w->file, line, size, clock_wall_ms(), &err)
		    : file_write_all(STDOUT_FILENO, line, size);
	if (r < 0 && !w->file)
		err_sys(&err, r, "cannot write to standard output");
	note(w, q->row.event.packets, r < 0 ? &err : NULL);
}

/* ---- everybody else ---- */

static void destroy(struct jsonl_writer *w)
{
	pthread_mutex_destroy(&w->lock);
	logfile_free(w->file);
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
	const bool is_stdout = strcmp(config->where, "stdout") == 0;
	int r;

	if (!w)
		return err_set(err, -ENOMEM, "out of memory");
	pthread_mutex_init(&w->lock, NULL);
	w->file = is_stdout ? NULL : logfile_new(config->where, &config->files);
	r = is_stdout || w->file ? worker_new(&worker, &w->worker, err)
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
