// SPDX-License-Identifier: Apache-2.0
#include "event/traffic.h"

#include <stdlib.h>
#include <string.h>

struct entry {
	char *destination;	 /* owned */
	uint64_t weight;	 /* bytes since it is here, shown or waiting */
	uint64_t sent, received; /* since it is shown */
};

/* The first TRAFFIC_SHOWN are shown. */
struct traffic {
	struct entry entries[TRAFFIC_SHOWN + TRAFFIC_WAITING];
	size_t count;
	uint64_t sent, received; /* of the others */
};

struct traffic *traffic_new(void)
{
	return calloc(1, sizeof(struct traffic));
}

void traffic_free(struct traffic *t)
{
	for (size_t i = 0; t && i < t->count; i++)
		free(t->entries[i].destination);
	free(t);
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static size_t lightest(const struct traffic *t, size_t from, size_t to)
{
	size_t least = from;

	for (size_t i = from; i < to; i++)
		if (t->entries[i].weight < t->entries[least].weight)
			least = i;
	return least;
}

/* The place of @destination: a new one gets the last, or that of a lighter one that
 * waits. @t->count: there is none for it. */
static size_t place_of(struct traffic *t, const char *destination, uint64_t bytes)
{
	const size_t size = TRAFFIC_SHOWN + TRAFFIC_WAITING;
	size_t i = 0;
	char *copy;

	while (i < t->count && strcmp(t->entries[i].destination, destination) != 0)
		i++;
	if (i < t->count)
		return i;
	if (i == size) {
		i = lightest(t, TRAFFIC_SHOWN, size);
		if (t->entries[i].weight >= bytes)
			return t->count;
	}
	copy = strdup(destination);
	if (!copy)
		return t->count;
	free(t->entries[i].destination);
	t->entries[i] = (struct entry){ .destination = copy };
	t->count += i == t->count;
	return i;
}

void traffic_add(struct traffic *t, const struct event *e)
{
	const uint64_t bytes = sum_of(e->bytes, e->received);
	struct entry *at, *shown, old;
	size_t i;

	if (e->action != EVENT_ALLOW || e->layer == EVENT_DNS || bytes == 0)
		return;
	i = place_of(t, e->name[0] ? e->name : ADDR_SHOWN(&e->remote), bytes);
	at = i < t->count ? &t->entries[i] : NULL;
	if (at)
		at->weight = sum_of(at->weight, bytes);
	/* One that waits is shown where it has become heavy enough. */
	if (at && i >= TRAFFIC_SHOWN) {
		shown = &t->entries[lightest(t, 0, TRAFFIC_SHOWN)];
		if (at->weight / 2 >= shown->weight) {
			old = *shown;
			*shown = *at;
			*at = (struct entry){ old.destination, old.weight, 0, 0 };
			at = shown;
		}
	}
	if (at && at < &t->entries[TRAFFIC_SHOWN]) {
		at->sent = sum_of(at->sent, e->bytes);
		at->received = sum_of(at->received, e->received);
	} else {
		t->sent = sum_of(t->sent, e->bytes);
		t->received = sum_of(t->received, e->received);
	}
}

bool traffic_row(const struct traffic *t, size_t i, struct traffic_row *ret)
{
	if (i >= MIN(t->count, (size_t)TRAFFIC_SHOWN))
		return false;
	*ret = (struct traffic_row){ t->entries[i].destination, t->entries[i].sent,
				     t->entries[i].received };
	return true;
}

struct traffic_row traffic_others(const struct traffic *t)
{
	return (struct traffic_row){ NULL, t->sent, t->received };
}
