// SPDX-License-Identifier: Apache-2.0
/* HOW IT WORKS
 * The store's writer opens a task a second or two after its denial. So a denial that may
 * open one has the store looked at some times, for tasks that the webhooks don't know
 * of: the store keeps who was told, and is the queue. TELL_MAX of them at a time, and
 * then a pause: a sandbox that is denied hundreds of destinations keeps nobody awake.
 *
 * weir-webhook says what came of each; only what was taken counts as told. A URL that
 * failed gets one task at a time, after a pause that doubles, until it takes one. An
 * outage may be as long as it likes, and a restart loses nothing: what was under way then
 * is told again. */
#include <errno.h>

#include "base/clock.h"
#include "control/control.h"
#include "events/review_notify.h"
#include "outputs/webhook.h"

enum {
	TELL_MAX = 20,
	PAUSE_MS = 20 * 1000, /* so it is TELL_MAX * 3 in a minute */
	SOON_MS = 1500,
	LATER_MS = 30 * 1000,	   /* without any reason */
	TRIES = 4,		   /* so often, SOON_MS apart, after the last denial */
	UNDER_WAY_MS = 600 * 1000, /* weir-webhook's tries, behind TELL_MAX others */
	TROUBLE_MS = 5 * 1000,	   /* after the first failure; doubles */
	TROUBLE_MAX_MS = 160 * 1000,
};

struct telling {
	struct control *side;
	struct review_store *store;
	size_t url;
	struct err err;
};

static void on_task(void *data, const struct review *t)
{
	struct telling *c = data;
	char json[REVIEW_JSON_SIZE];
	size_t size = review_opened_json(t, json);

	if (t->id > 0 && t->id <= UINT32_MAX && size <= WEBHOOK_PAYLOAD_SIZE &&
	    control_webhook_review(c->side, (uint32_t)t->id, c->url, json, size))
		c->side->tells[c->url].under_way++;
	else
		(void)!review_not_told(c->store, t->id, REVIEW_WEBHOOK + (int)c->url,
				       clock_wall_ms(), &c->err);
}

/* How many may be told now. */
static size_t room(struct control_tell *u, int64_t now_ms)
{
	const size_t most = u->pause_ms > 0 ? 1 : TELL_MAX;
	size_t used;

	if (now_ms >= u->again_ms) {
		u->again_ms = now_ms + (u->pause_ms ?: PAUSE_MS);
		u->count = 0;
	}
	used = MAX(u->count, u->under_way);
	return most > used ? most - used : 0;
}

/* Return: after how long there may be more for it. */
static int64_t tell_one(struct telling *c, int64_t now_ms)
{
	struct control_tell *u = &c->side->tells[c->url];
	const size_t most = room(u, now_ms);
	int r = 0;

	if (most > 0)
		r = review_tell(c->store, REVIEW_WEBHOOK + (int)c->url, most,
				UNDER_WAY_MS, clock_wall_ms(), on_task, c, &c->err);
	u->count += r > 0 ? (size_t)r : 0;
	return r == (int)most ? MAX(u->again_ms - now_ms, INT64_C(1)) : LATER_MS;
}

static void start(struct control *s, int64_t after_ms)
{
	const int64_t at_ms = loop_now_ms(s->loop) + after_ms;

	if (s->tell.slot > 0 && s->tell.at_ms <= at_ms)
		return;
	if (loop_timer_start(s->loop, &s->tell, at_ms) < 0)
		s->tell_tries = 0;
}

static void on_tell(struct loop_timer *t)
{
	struct control *s = CONTAINER_OF(t, struct control, tell);
	struct telling c = { .side = s };
	int64_t after_ms = LATER_MS;

	if (s->tell_tries > 0 && --s->tell_tries > 0)
		after_ms = SOON_MS;
	if (review_open(s->spec.state_dir, &c.store, &c.err) == 0)
		for (c.url = 0; c.url < s->spec.review_webhook_count; c.url++)
			after_ms = MIN(after_ms, tell_one(&c, loop_now_ms(s->loop)));
	review_close(c.store);
	start(s, after_ms);
}

void control_tell_soon(struct control *s)
{
	if (!s->store || s->spec.review_webhook_count == 0)
		return;
	s->tell_tries = TRIES;
	start(s, SOON_MS);
}

void control_tell_done(struct control *s, uint32_t id, size_t url, int error)
{
	struct control_tell *u = &s->tells[url];
	struct review_store *store = NULL;
	struct err err = { 0 };
	int r;

	if (url >= s->spec.review_webhook_count)
		return;
	u->under_way -= u->under_way > 0;
	if (error != -EAGAIN && u->pause_ms > 0) {
		u->pause_ms = 0;
		u->again_ms = 0;
	} else if (error == -EAGAIN) {
		u->pause_ms = u->pause_ms ? MIN(u->pause_ms * 2, (uint32_t)TROUBLE_MAX_MS)
					  : TROUBLE_MS;
		u->again_ms = loop_now_ms(s->loop) + u->pause_ms;
	}
	/* What can't be noted now is told again. */
	r = review_open(s->spec.state_dir, &store, &err);
	if (r == 0 && error != -EAGAIN)
		r = review_told(store, id, REVIEW_WEBHOOK + (int)url,
				s->spec.review_webhook_count, &err);
	else if (r == 0)
		r = review_not_told(store, id, REVIEW_WEBHOOK + (int)url, clock_wall_ms(),
				    &err);
	review_close(store);
	start(s, u->pause_ms ?: SOON_MS);
}

void control_tell_anew(struct control *s)
{
	struct review_store *store = NULL;
	struct err err = { 0 };

	if (!s->store || s->spec.review_webhook_count == 0)
		return;
	for (size_t i = 0; i < s->spec.review_webhook_count; i++)
		s->tells[i].under_way = 0;
	if (review_open(s->spec.state_dir, &store, &err) == 0)
		(void)!review_tell_anew(store, REVIEW_WEBHOOK, &err);
	review_close(store);
	control_tell_soon(s);
}

void control_tell_init(struct control *s)
{
	s->tell.on_fire = on_tell;
	control_tell_soon(s);
}
