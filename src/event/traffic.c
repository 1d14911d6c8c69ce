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

/* A new one, in the last place or in that of a lighter one that waits. Return: its
 * place; @t->count: there is none for it. */
static size_t place_for(struct traffic *t, const char *destination, uint64_t bytes)
{
	const size_t size = TRAFFIC_SHOWN + TRAFFIC_WAITING;
	size_t i = t->count;
	char *copy;

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

/* The place of @destination, one that is shown where it has become heavy enough. */
static size_t place_of(struct traffic *t, const char *destination, uint64_t bytes)
{
	struct entry *shown, old;
	size_t i = 0;

	while (i < t->count && strcmp(t->entries[i].destination, destination) != 0)
		i++;
	if (i == t->count)
		i = place_for(t, destination, bytes);
	if (i == t->count)
		return i;
	t->entries[i].weight = sum_of(t->entries[i].weight, bytes);
	if (i < TRAFFIC_SHOWN)
		return i;
	shown = &t->entries[lightest(t, 0, TRAFFIC_SHOWN)];
	if (t->entries[i].weight / 2 < shown->weight)
		return i;
	old = *shown;
	*shown = t->entries[i];
	t->entries[i] = (struct entry){ old.destination, old.weight, 0, 0 };
	return (size_t)(shown - t->entries);
}

void traffic_add(struct traffic *t, const struct event *e)
{
	const uint64_t bytes = sum_of(e->bytes, e->received);
	size_t i;

	if (e->action != EVENT_ALLOW || e->layer == EVENT_DNS || bytes == 0)
		return;
	i = place_of(t, e->name[0] ? e->name : ADDR_SHOWN(&e->remote), bytes);
	if (i < MIN(t->count, (size_t)TRAFFIC_SHOWN)) {
		t->entries[i].sent = sum_of(t->entries[i].sent, e->bytes);
		t->entries[i].received = sum_of(t->entries[i].received, e->received);
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
