// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The store's writer opens a task a second or two after its denial. So a denial that may
 * open one has the store looked at some times, for tasks that the webhooks don't know
 * of: the store keeps who was told, and is the queue. TELL_MAX of them at a time, and
 * then a pause: a sandbox that is denied hundreds of destinations keeps nobody awake.
 * What is handed to weir-webhook is its affair: see its queue and its tries. */
#include <errno.h>

#include "base/clock.h"
#include "control/side.h"
#include "store/webhook.h"

enum {
	TELL_MAX = 20,
	PAUSE_MS = 20 * 1000, /* so it is TELL_MAX * 3 in a minute */
	SOON_MS = 1500,
	TRIES = 4, /* so often, SOON_MS apart, after the last denial */
};

static void on_task(void *data, const struct review *t)
{
	char json[REVIEW_JSON_SIZE];
	size_t size = review_opened_json(t, json);

	if (size <= WEBHOOK_PAYLOAD_SIZE)
		side_webhook_review(data, json, size);
}

static void start(struct side *s, int64_t after_ms)
{
	if (loop_timer_start(s->loop, &s->tell, loop_now_ms(s->loop) + after_ms) < 0)
		s->tell_tries = 0;
}

/* How many may be told now. */
static size_t room(struct side *s, int64_t now_ms)
{
	if (now_ms >= s->tell_again_ms) {
		s->tell_again_ms = now_ms + PAUSE_MS;
		s->tell_count = 0;
	}
	return TELL_MAX - s->tell_count;
}

static void on_tell(struct loop_timer *t)
{
	struct side *s = CONTAINER_OF(t, struct side, tell);
	const int64_t now_ms = loop_now_ms(s->loop);
	const size_t most = room(s, now_ms);
	struct review_store *store = NULL;
	struct err err = { 0 };
	int r = most > 0 ? review_open(s->spec.state_dir, &store, &err) : 0;

	if (r == 0 && most > 0)
		r = review_tell(store, REVIEW_TOLD_WEBHOOK, most, on_task, s, &err);
	review_close(store);
	s->tell_count += r > 0 ? (size_t)r : 0;
	if (s->tell_tries > 0)
		s->tell_tries--;
	if (s->tell_count == TELL_MAX)
		start(s, s->tell_again_ms - now_ms);
	else if (s->tell_tries > 0)
		start(s, SOON_MS);
}

void side_tell_soon(struct side *s)
{
	if (!s->store || s->spec.review_webhook_count == 0)
		return;
	s->tell_tries = TRIES;
	if (s->tell.slot == 0)
		start(s, SOON_MS);
}

void side_tell_init(struct side *s)
{
	s->tell.on_fire = on_tell;
	side_tell_soon(s);
}
