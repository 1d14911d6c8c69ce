// SPDX-License-Identifier: Apache-2.0
/* filter/elements - elements of sets and maps as nf_tables messages: the one writer and
 * the one reader of them. */
#pragma once

#include "filter/message.h"
#include "filter/ruleset_internal.h"

enum {
	ELEMENTS_MAX = 1000, /* in one message: below 64 KiB in any set */
};

struct element {
	const uint8_t *key; /* borrowed */
	size_t size;
	bool end;	      /* of an interval: the first key behind it */
	uint64_t lifetime_ms; /* 0: it has none, or none is left */
	/* What a map gives for the key: a value, or where to jump to. */
	bool maps;
	uint32_t value;
	const char *chain; /* NULL: a value */
	/* Reading only. */
	bool counts;
	uint64_t packets, bytes;
};

/* Elements on their way into a batch. Those that follow each other in one set share a
 * message: the kernel looks for table and set once per message. */
struct elements {
	struct nl_writer *w;
	const char *table;
	char set[FILTER_NAME_MAX];
	bool add;
	size_t list, count; /* of the open message; count 0: none is open */
};
/* Add an element to @set or delete it; for a deletion only its key counts. */
void elements_put(struct elements *k, bool add, const char *set, const struct element *e);
/* Close the open message, if there is one. Nothing else may be written before. */
void elements_end(struct elements *k);
/* Delete all elements of a set. */
void elements_clear(struct nl_writer *w, const char *table, const char *set);

/* Called for each element; a negative value ends the calls. What @e points to is gone
 * afterwards. */
typedef int element_fn(void *data, const struct element *e);
struct elements_query {
	const char *table, *set;
	const uint8_t *key; /* one element; NULL: all */
	size_t key_size;
	bool reset; /* counters are 0 afterwards */
	element_fn *fn;
	void *data;
};
/* -ENOENT: no such set, or no such element; -EBADMSG: an answer that can't be read;
 * -EAGAIN: the set changed meanwhile. */
int elements_read(struct filter_conn *c, const struct elements_query *q) MUST_CHECK;
/* What the expression @expr has counted. false: it is no counter. */
bool elements_read_counter(const struct nlattr *expr, uint64_t *packets, uint64_t *bytes);
