// SPDX-License-Identifier: Apache-2.0
#include "base/index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { FIRST_SIZE = 16 };

/* Clients that name sandboxes are trusted: the key needn't be secret. */
static uint64_t hash_text(const char *text)
{
	const struct hash_key key = { 0 };

	return hash_bytes(&key, text, strlen(text));
}

static struct index_entry **head_of(const struct index *r, uint64_t hash)
{
	return &r->heads[hash & (r->size - 1)];
}

static void push(struct index *r, struct index_entry *e)
{
	struct index_entry **head = head_of(r, e->hash);

	e->next = *head;
	*head = e;
}

int index_add(struct index *r, struct index_entry *e, const char *text)
{
	if (r->count == r->size) {
		struct index more = { .size = r->size > 0 ? r->size * 2 : FIRST_SIZE,
				      .count = r->count };

		more.heads = calloc(more.size, sizeof(struct index_entry *));
		if (!more.heads)
			return -ENOMEM;
		for (size_t i = 0; i < r->size; i++)
			for (struct index_entry *old = r->heads[i], *after; old;
			     old = after) {
				after = old->next;
				push(&more, old);
			}
		free(r->heads);
		*r = more;
	}
	e->text = text;
	e->hash = hash_text(text);
	push(r, e);
	r->count++;
	return 0;
}

void index_remove(struct index *r, struct index_entry *e)
{
	struct index_entry **at;

	if (!e->text)
		return;
	for (at = head_of(r, e->hash); *at != e; at = &(*at)->next)
		continue;
	*at = e->next;
	*e = (struct index_entry){ 0 };
	r->count--;
}

static struct index_entry *first_of(struct index_entry *e, uint64_t hash,
				    const char *text)
{
	while (e && (e->hash != hash || strcmp(e->text, text) != 0))
		e = e->next;
	return e;
}

struct index_entry *index_find(const struct index *r, const char *text)
{
	uint64_t hash = hash_text(text);

	return r->size > 0 ? first_of(*head_of(r, hash), hash, text) : NULL;
}

struct index_entry *index_next(const struct index_entry *e)
{
	return first_of(e->next, e->hash, e->text);
}
