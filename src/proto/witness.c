// SPDX-License-Identifier: Apache-2.0
#include "proto/witness.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A lookup has no protocol of its own: whoever asked over TCP has dialled somebody. */
static uint8_t protocol_of(const struct event *e)
{
	if (e->layer != EVENT_DNS)
		return e->protocol;
	return e->to.addr.family == ADDR_NONE ? IPPROTO_UDP : IPPROTO_TCP;
}

bool witness_question_of(const struct event *e, int64_t now_ms, int64_t wall_ms,
			 struct witness_question *ret)
{
	const int64_t age_ms = wall_ms - e->ts_ms;
	const uint8_t protocol = protocol_of(e);

	if (e->action != EVENT_DENY || e->from.addr.family == ADDR_NONE ||
	    e->from.port == 0 || (protocol != IPPROTO_UDP && protocol != IPPROTO_TCP) ||
	    age_ms < 0 || age_ms > WITNESS_AGE_MAX_MS)
		return false;
	*ret = (struct witness_question){
		.protocol = protocol,
		.from = e->from,
		.to = e->to,
		.at_ms = now_ms - age_ms,
	};
	return true;
}

void witness_take(struct event *e, const struct owner *o)
{
	size_t i = 0;

	if (o->pid <= 0)
		return;
	e->pid = (uint32_t)o->pid;
	if (e->uid == UINT32_MAX)
		e->uid = o->uid;
	for (; i < sizeof(e->command) - 1 && i < sizeof(o->command) && o->command[i]; i++)
		e->command[i] = o->command[i] >= 0x20 && o->command[i] <= 0x7e
					? o->command[i]
					: '?';
	e->command[i] = '\0';
}

bool witness_may(struct witness_pace *p, int64_t now_ms)
{
	return p->paid_at_us - now_ms * 1000 <= WITNESS_OWED_MS * INT64_C(1000) &&
	       rate_take(&p->rate, WITNESS_PER_SECOND, 1000, WITNESS_PER_SECOND, now_ms);
}

static int64_t worked_us(void)
{
	struct timespec t = { 0 };

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

void witness_look(struct witness_pace *p)
{
	p->begun_us = worked_us();
}

void witness_looked(struct witness_pace *p, int64_t now_ms)
{
	p->paid_at_us = MAX(p->paid_at_us, now_ms * 1000) +
			WITNESS_PART * (worked_us() - p->begun_us);
}
