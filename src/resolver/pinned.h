// SPDX-License-Identifier: Apache-2.0
/* resolver/pinned - what is pinned of a sandbox's names (dns: pinned): a table of them,
 * with what was last answered. A part of resolver/resolver_pin.c, which says how it
 * lives. */
#pragma once

#include "dns/answer.h"
#include "resolver/resolver.h"

struct pin_addr {
	struct addr addr;
	int64_t until_ms; /* 0: pinned; else it isn't told, and goes then */
};

/* What is pinned of one type. */
struct pin_answer {
	uint8_t kind;  /* enum dns_answer_kind; DNS_ANSWER_BAD: there was none yet */
	uint8_t asked; /* a question is under way */
	uint16_t count;
	const char *lost;	/* why the last question has no answer; NULL: it has */
	const char *why;	/* there is no address in the answer; NULL: there are */
	struct pin_addr *addrs; /* owned */
};

enum { PIN_FAMILIES = 2 }; /* A, AAAA */

struct pin {
	struct dns_name name;
	struct pin_answer answers[PIN_FAMILIES];
};

struct pins {
	struct pins *next; /* in resolver.pinned */
	struct sandbox *sandbox;
	struct pin *items; /* owned */
	size_t count;
	uint32_t *slots; /* owned; 1 + index by hash of the name; 0: empty */
	size_t slot_mask;
	int64_t repin_ms;
	/* the round */
	size_t families;	   /* that are asked for: A, or both */
	size_t total, asked, left; /* questions: all, asked, without an end */
	size_t waiting;
	bool asking;	     /* in go_on(), further down the stack */
	bool told;	     /* the round is over */
	int64_t deadline_ms; /* of the first round; INT64_MAX when that is over */
	int64_t round_ms;    /* when the next one begins */
	/* the kernel */
	int64_t renew_ms, leave_ms; /* the next time that something is renewed, leaves */
	size_t renew_next;
	resolver_pinned_fn *on_pinned;
	void *data;
};

/* A table of the names that @s's plan allows, nothing pinned yet. Return: 0, -ENOMEM, or
 * -E2BIG (more than may be learned). */
int pins_new(const struct hash_key *key, struct sandbox *s, struct pins **ret) MUST_CHECK;
void pins_free(struct pins *p);
/* NULL: it isn't one of them, or @p is NULL. */
struct pin *pins_find(const struct hash_key *key, const struct pins *p,
		      const struct dns_name *n);
/* NULL: @pin is, or @type is neither A nor AAAA. */
struct pin_answer *pins_answer(struct pin *pin, uint16_t type);
/* What is pinned of names that both have moves to @to. @from may be NULL. */
void pins_carry_over(const struct hash_key *key, struct pins *to, struct pins *from);
