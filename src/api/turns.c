// SPDX-License-Identifier: Apache-2.0
/* Searches, one after another.
 *
 * What reads the store, or sums what it holds, can take a good part of a second, and
 * all of it is time in which the loop does nothing else: no other caller is answered, no
 * engine is heard, no sandbox is closed. Whoever reaches the API may ask for a search
 * without end, over all connections at once. So one search is made in a turn of the
 * loop; whoever comes meanwhile waits, suspended, in the order of coming. But no network
 * has two turns behind each other while another one waits: what the sandbox asks for
 * without end keeps no decision waiting until its request is too old. */
#include <microhttpd.h>

#include "api/internal.h"

/* The timer lets the next search go on; without memory for it the tick does. */
enum { NEXT_MS = 1 };

bool turns_is_search(const struct api_request *r)
{
	return r->route && r->route->is_search && r->answer == r->route->answer;
}

static void resume(struct api_http *h, struct api_request *r)
{
	TAILQ_REMOVE(&h->searches, r, in_turn);
	r->is_waiting = false;
	r->has_turn = true;
	MHD_resume_connection(r->mhd);
	api_run_soon(h);
}

static void let_next(struct api_http *h)
{
	struct api_request *r = TAILQ_FIRST(&h->searches);

	while (r && (!r->conn || conns_same_network(&r->conn->network, &h->searched_for)))
		r = TAILQ_NEXT(r, in_turn);
	if (!r)
		r = TAILQ_FIRST(&h->searches);
	if (r)
		resume(h, r);
}

static void on_next(struct loop_timer *t)
{
	let_next(CONTAINER_OF(t, struct api_http, search_timer));
}

void turns_init(struct api_http *h)
{
	h->search_timer.on_fire = on_next;
	TAILQ_INIT(&h->searches);
}

static bool is_over(const struct api_http *h, const struct api_request *r)
{
	return h->is_ending || (r->conn && r->conn->is_dying);
}

enum turn turns_take(struct api_http *h, struct api_request *r)
{
	if (!turns_is_search(r))
		return TURN_NOW;
	if (is_over(h, r))
		return TURN_NEVER;
	if (r->has_turn || (h->search_timer.slot == 0 && TAILQ_EMPTY(&h->searches))) {
		r->has_turn = false;
		if (r->conn)
			h->searched_for = r->conn->network;
		(void)!loop_timer_in(h->api.config.loop, &h->search_timer, NEXT_MS);
		return TURN_NOW;
	}
	r->is_waiting = true;
	TAILQ_INSERT_TAIL(&h->searches, r, in_turn);
	MHD_suspend_connection(r->mhd);
	return TURN_LATER;
}

void turns_leave(struct api_http *h, struct api_request *r)
{
	if (r->is_waiting)
		TAILQ_REMOVE(&h->searches, r, in_turn);
	if (r->has_turn)
		(void)!loop_timer_in(h->api.config.loop, &h->search_timer, NEXT_MS);
}

void turns_drop(struct api_http *h)
{
	struct api_request *r = TAILQ_FIRST(&h->searches), *next;

	for (; r; r = next) {
		next = TAILQ_NEXT(r, in_turn);
		if (is_over(h, r))
			resume(h, r);
	}
}

void turns_tick(struct api_http *h)
{
	turns_drop(h);
	if (h->search_timer.slot == 0)
		let_next(h);
}
