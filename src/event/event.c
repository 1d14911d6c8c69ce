// SPDX-License-Identifier: Apache-2.0
/* The ring is an array in order of arrival; a hash index of slot numbers beside it finds
 * the event that a new one folds into. The index is chained and has as many heads as the
 * ring has slots, so an event that is pushed out is unlinked in a step or two. It begins
 * small and doubles up to its capacity: most sandboxes have few events. */
#include "event/event.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"

#define NONE UINT32_MAX

enum { FIRST_SLOTS = 4 };

struct slot {
	struct event event;
	uint64_t hash;
	uint32_t next; /* in the hash chain */
};

struct event_ring {
	size_t capacity, count;
	size_t size;   /* slots that there are by now */
	size_t oldest; /* slot */
	uint64_t dropped;
	struct hash_key key;
	struct slot *slots; /* @size of them */
	uint32_t *heads;    /* @size of them */
};

static const char *const action_names[] = {
	[EVENT_NONE] = "none",	 [EVENT_ALLOW] = "allow",   [EVENT_DENY] = "deny",
	[EVENT_PANIC] = "panic", [EVENT_CHANGE] = "change", [EVENT_LIMIT] = "limit",
	[EVENT_FAIL] = "fail",	 [EVENT_ASK] = "ask",
};
static_assert(ARRAY_SIZE(action_names) == EVENT_ACTION_COUNT, "an action without a name");

static const char *const layer_names[] = {
	[EVENT_LAYER_NONE] = "none", [EVENT_DNS] = "dns",
	[EVENT_ADDRESS] = "address", [EVENT_NAME] = "name",
	[EVENT_LAUNCH] = "launch",
};
static_assert(ARRAY_SIZE(layer_names) == EVENT_LAYER_COUNT, "a layer without a name");

bool event_is_refusal(const struct event *e)
{
	return e->action == EVENT_DENY ||
	       (e->action == EVENT_ASK && e->layer == EVENT_ADDRESS);
}

void event_set_reason(struct event *e, const char *reason)
{
	snprintf(e->reason, sizeof(e->reason), "%s", reason);
}

const char *event_action_name(enum event_action a)
{
	return (unsigned int)a < EVENT_ACTION_COUNT ? action_names[a] : "unknown";
}

const char *event_layer_name(enum event_layer l)
{
	return (unsigned int)l < EVENT_LAYER_COUNT ? layer_names[l] : "unknown";
}

enum event_action event_action_find(const char *name)
{
	const char *const *known = TEXT_FIND(text_of(name), action_names);

	return known ? (enum event_action)(known - action_names) : EVENT_NONE;
}

enum event_layer event_layer_find(const char *name)
{
	const char *const *known = TEXT_FIND(text_of(name), layer_names);

	return known ? (enum event_layer)(known - layer_names) : EVENT_LAYER_NONE;
}

/* ---- what folds ---- */

bool event_same_reason(const struct event *a, const struct event *b)
{
	bool says_what = a->action == EVENT_CHANGE || a->action == EVENT_PANIC ||
			 a->action == EVENT_FAIL;

	return !says_what || strncmp(a->reason, b->reason, EVENT_REASON_SIZE) == 0;
}

uint64_t event_hash(const struct hash_key *key, const struct event *e)
{
	uint8_t bytes[64 + EVENT_NAME_SIZE];
	struct wire_key {
		uint32_t sandbox, rule;
		uint16_t port;
		uint8_t action, layer, protocol, limit;
		struct addr remote;
	} k = { 0 };
	size_t name = strnlen(e->name, sizeof(e->name));

	static_assert(sizeof(k) <= 64, "the key fits its buffer");
	k.sandbox = e->sandbox;
	k.rule = e->rule;
	k.port = e->port;
	k.action = e->action;
	k.layer = e->layer;
	k.protocol = e->protocol;
	k.limit = e->limit;
	k.remote = e->remote;
	memcpy(bytes, &k, sizeof(k));
	memcpy(bytes + sizeof(k), e->name, name);
	return hash_bytes(key, bytes, sizeof(k) + name);
}

bool event_is_same(const struct event *a, const struct event *b)
{
	return a->sandbox == b->sandbox && a->rule == b->rule && a->port == b->port &&
	       a->action == b->action && a->layer == b->layer &&
	       a->protocol == b->protocol && a->limit == b->limit &&
	       a->claimed == b->claimed && addr_equal(&a->remote, &b->remote) &&
	       strncmp(a->name, b->name, EVENT_NAME_SIZE) == 0 &&
	       strncmp(a->advice, b->advice, EVENT_ADVICE_SIZE) == 0;
}

bool event_is_equal(const struct event *a, const struct event *b)
{
	return a->query_type == b->query_type && a->allowable == b->allowable &&
	       event_is_same(a, b);
}

/* Of several none is named, and the command as long as it is the same. */
static void fold_process(struct event *into, const struct event *e)
{
	if (e->pid == 0)
		return;
	if (into->uid == UINT32_MAX)
		into->uid = e->uid;
	if (into->pid == 0 && !into->command[0]) {
		into->pid = e->pid;
		memcpy(into->command, e->command, sizeof(into->command));
		return;
	}
	if (into->pid != e->pid)
		into->pid = 0;
	if (strncmp(into->command, e->command, EVENT_COMMAND_SIZE) != 0)
		snprintf(into->command, sizeof(into->command), "several");
}

/* ---- the ring ---- */

static uint32_t *head_of(const struct event_ring *r, uint64_t hash)
{
	return &r->heads[hash % r->size];
}

static int resize(struct event_ring *r, size_t size)
{
	uint32_t *heads = malloc(size * sizeof(*heads));
	struct slot *slots = heads ? reallocarray(r->slots, size, sizeof(*slots)) : NULL;

	if (!slots) {
		free(heads);
		return -ENOMEM;
	}
	free(r->heads);
	r->heads = heads;
	r->slots = slots;
	r->size = size;
	memset(heads, 0xff, size * sizeof(*heads));
	for (size_t i = 0; i < r->count; i++) {
		uint32_t *head = head_of(r, slots[i].hash);

		slots[i].next = *head;
		*head = (uint32_t)i;
	}
	return 0;
}

struct event_ring *event_ring_new(size_t capacity)
{
	CLEAN(mem) struct event_ring *r = calloc(1, sizeof(*r));

	if (!r || capacity == 0 || capacity >= NONE ||
	    resize(r, MIN(capacity, (size_t)FIRST_SLOTS)) < 0)
		return NULL;
	r->capacity = capacity;
	/* An address that changes from run to run serves as the key: what folds is no
	 * secret, only the chains must not be chosen from outside. */
	r->key = (struct hash_key){ (uintptr_t)r, (uintptr_t)r->slots };
	return TAKE_PTR(r);
}

void event_ring_free(struct event_ring *r)
{
	if (!r)
		return;
	free(r->slots);
	free(r->heads);
	free(r);
}

static struct slot *slot_find(const struct event_ring *r, uint64_t hash,
			      const struct event *e)
{
	uint32_t i = *head_of(r, hash);

	while (i != NONE &&
	       (r->slots[i].hash != hash || !event_is_same(&r->slots[i].event, e) ||
		!event_same_reason(&r->slots[i].event, e)))
		i = r->slots[i].next;
	return i != NONE ? &r->slots[i] : NULL;
}

void event_ring_add(struct event_ring *r, const struct event *e)
{
	uint64_t hash = event_hash(&r->key, e);
	struct slot *s = slot_find(r, hash, e);
	uint32_t *head;
	size_t i;

	if (s) {
		s->event.packets += e->packets;
		s->event.bytes += e->bytes;
		s->event.received += e->received;
		fold_process(&s->event, e);
		return;
	}
	/* Full: it grows, or the oldest goes. Without memory for more the ring stays as
	 * small as it is. */
	if (r->count >= r->size &&
	    (r->size >= r->capacity || resize(r, MIN(r->size * 2, r->capacity)) < 0)) {
		r->capacity = r->size;
		s = &r->slots[r->oldest];
		head = head_of(r, s->hash);
		while (*head != r->oldest)
			head = &r->slots[*head].next;
		*head = s->next;
		r->dropped += s->event.packets;
		r->oldest = (r->oldest + 1) % r->size;
		r->count--;
	}
	head = head_of(r, hash);
	i = (r->oldest + r->count++) % r->size;
	r->slots[i] = (struct slot){ .event = *e, .hash = hash, .next = *head };
	*head = (uint32_t)i;
}

void event_ring_name(struct event_ring *r, const struct event *e)
{
	struct slot *s = slot_find(r, event_hash(&r->key, e), e);

	if (s)
		fold_process(&s->event, e);
}

size_t event_ring_count(const struct event_ring *r)
{
	return r->count;
}

const struct event *event_ring_at(const struct event_ring *r, size_t i)
{
	return i < r->count ? &r->slots[(r->oldest + i) % r->size].event : NULL;
}

uint64_t event_ring_dropped(const struct event_ring *r)
{
	return r->dropped;
}
