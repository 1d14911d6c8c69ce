// SPDX-License-Identifier: Apache-2.0
#include "run/audit.h"

#include <string.h>

#include "base/clock.h"
#include "policy/open.h"

void audit_note(struct event_ring *would, const struct run_policy *newest,
		const struct event *e)
{
	struct plan asked = run_policy_of(newest, e)->asked;
	struct event refusal;

	plan_set_time(&asked, clock_wall_ms()); /* what has ended meanwhile */
	if (e->packets == 0 || !policy_would_refuse(&asked, e, &refusal))
		return;
	refusal.action = EVENT_ALLOW;
	event_ring_add(would, &refusal);
}

/* A connection says that the addresses of its name were looked up. */
static bool is_said_by_connection(const struct event_ring *ring, const struct event *e)
{
	if (e->layer != EVENT_DNS || !plan_serves_type(0, e->query_type))
		return false;
	for (size_t i = 0; i < event_ring_count(ring); i++)
		if (event_ring_at(ring, i)->layer != EVENT_DNS &&
		    strcmp(event_ring_at(ring, i)->name, e->name) == 0)
			return true;
	return false;
}

uint64_t audit_settle(struct event_ring **would)
{
	struct event_ring *all = *would, *ret;
	uint64_t lost = event_ring_dropped(all);

	ret = event_ring_new(event_ring_count(all) + 1);
	for (size_t i = 0; ret && i < event_ring_count(all); i++)
		if (!is_said_by_connection(all, event_ring_at(all, i)))
			event_ring_add(ret, event_ring_at(all, i));
	if (!ret)
		return lost;
	lost += event_ring_dropped(ret);
	event_ring_free(all);
	*would = ret;
	return lost;
}
