// SPDX-License-Identifier: Apache-2.0
#include "filter/host_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_MIN = 16 };

static size_t place(const struct hash_key *key, const struct addr *a, uint8_t port_list,
		    bool kept, size_t capacity)
{
	uint8_t bytes[sizeof(a->bytes) + 3] = { a->family, port_list, kept };

	memcpy(bytes + 3, a->bytes, sizeof(a->bytes));
	return (size_t)hash_bytes(key, bytes, sizeof(bytes)) & (capacity - 1);
}

/* Where it is, or the free place where it would be. */
static struct host_learned_entry *find(const struct host_learned *l,
				       const struct hash_key *key, const struct addr *a,
				       uint8_t port_list, bool kept)
{
	size_t i = place(key, a, port_list, kept, l->capacity);

	while (l->at[i].taken &&
	       (l->at[i].port_list != port_list || l->at[i].kept != kept ||
		!addr_equal(&l->at[i].addr, a)))
		i = (i + 1) & (l->capacity - 1);
	return &l->at[i];
}

void host_learned_done(struct host_learned *l)
{
	free(l->at);
	*l = (struct host_learned){ 0 };
}

/* What the kernel has no longer is left behind. */
static int move(struct host_learned *l, const struct hash_key *key, size_t capacity,
		int64_t now_ms)
{
	struct host_learned bigger = {
		.at = calloc(capacity, sizeof(*bigger.at)),
		.capacity = capacity,
	};

	if (!bigger.at)
		return -ENOMEM;
	for (size_t i = 0; i < l->capacity; i++) {
		const struct host_learned_entry *e = &l->at[i];

		if (!e->taken || e->until_ms <= now_ms)
			continue;
		*find(&bigger, key, &e->addr, e->port_list, e->kept) = *e;
		bigger.used++;
	}
	free(l->at);
	*l = bigger;
	return 0;
}

static size_t count_live(const struct host_learned *l, int64_t now_ms)
{
	size_t n = 0;

	for (size_t i = 0; i < l->capacity; i++)
		n += l->at[i].taken && l->at[i].until_ms > now_ms;
	return n;
}

/* At most three quarters are taken, and after a move half. */
int host_learned_reserve(struct host_learned *l, const struct hash_key *key, size_t count,
			 int64_t now_ms)
{
	size_t capacity = CAPACITY_MIN, wanted;

	if (l->used + count <= l->capacity / 4 * 3)
		return 0;
	wanted = count_live(l, now_ms) + count;
	while (capacity / 2 < wanted)
		capacity *= 2;
	return move(l, key, capacity, now_ms);
}

/* One that is removed keeps its place until the next move. */
void host_learned_note(struct host_learned *l, const struct hash_key *key,
		       const struct filter_learn *item, bool kept, int64_t now_ms)
{
	struct host_learned_entry *e;

	if (l->capacity == 0)
		return;
	e = find(l, key, &item->addr, item->port_list, kept);
	if (!e->taken) {
		if (!kept && item->lifetime_ms == 0)
			return;
		*e = (struct host_learned_entry){
			.addr = item->addr,
			.port_list = item->port_list,
			.taken = true,
			.kept = kept,
		};
		l->used++;
	}
	if (kept)
		e->until_ms = INT64_MAX;
	else if (item->lifetime_ms == 0)
		e->until_ms = 0;
	else if (item->refresh || e->until_ms <= now_ms)
		e->until_ms = now_ms + item->lifetime_ms;
}
