// SPDX-License-Identifier: Apache-2.0
#include <errno.h>

#include "sandbox/sandbox.h"

enum { PORTS = 65536, WORD_BITS = 64, WORDS = PORTS / WORD_BITS, KINDS = 4 };

static const struct {
	enum addr_family family;
	uint8_t protocol;
} kinds[KINDS] = {
	{ ADDR_V4, IPPROTO_TCP },
	{ ADDR_V4, IPPROTO_UDP },
	{ ADDR_V6, IPPROTO_TCP },
	{ ADDR_V6, IPPROTO_UDP },
};

/* The word with the port's bit; NULL: no such kind. */
static uint64_t *word_of(const struct sandbox_self_ports *h,
			 const struct filter_self_port *p)
{
	for (size_t i = 0; i < KINDS; i++)
		if (kinds[i].family == p->family && kinds[i].protocol == p->protocol)
			return &h->bits[i * WORDS + p->port / WORD_BITS];
	return NULL;
}

static uint64_t bit_of(const struct filter_self_port *p)
{
	return UINT64_C(1) << p->port % WORD_BITS;
}

/* Take ports out of the filter that it could not be freed of before. */
static int settle_stale(struct sandbox *s)
{
	struct sandbox_self_ports *h = &s->self_ports;

	for (; h->stale_count > 0; h->stale_count--) {
		int r = filter_self_port_set(&s->filter, &h->stale[h->stale_count - 1],
					     false);

		if (r < 0)
			return r;
	}
	return 0;
}

static int hold(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	const struct filter_self_port p = { family, protocol, port };
	struct sandbox *s = data;
	struct sandbox_self_ports *h = &s->self_ports;
	uint64_t *word;
	int r = settle_stale(s);

	if (r < 0 || h->is_unsure)
		return r < 0 ? r : -EIO;
	if (h->count >= SANDBOX_SELF_PORTS_MAX)
		return -ENOSPC;
	if (!h->stale)
		h->stale = calloc(SANDBOX_SELF_PORTS_STALE_MAX, sizeof(*h->stale));
	if (h->stale && !h->bits)
		h->bits = calloc((size_t)KINDS * WORDS, sizeof(*h->bits));
	if (!h->bits)
		return -ENOMEM;
	word = word_of(h, &p);
	if (!word || *word & bit_of(&p))
		return -EINVAL;
	r = filter_self_port_set(&s->filter, &p, true);
	if (r < 0)
		return r;
	*word |= bit_of(&p);
	h->count++;
	return 0;
}

static void let_go(void *data, enum addr_family family, uint8_t protocol, uint16_t port)
{
	const struct filter_self_port p = { family, protocol, port };
	struct sandbox *s = data;
	struct sandbox_self_ports *h = &s->self_ports;
	uint64_t *word = h->bits ? word_of(h, &p) : NULL;

	if (!word || !(*word & bit_of(&p)))
		return;
	*word &= ~bit_of(&p);
	h->count--;
	if (settle_stale(s) == 0 && filter_self_port_set(&s->filter, &p, false) == 0)
		return;
	if (h->stale_count < SANDBOX_SELF_PORTS_STALE_MAX)
		h->stale[h->stale_count++] = p;
	else
		h->is_unsure = true;
}

void sandbox_own_ports(struct sandbox *s, uint32_t mark)
{
	s->own = (struct own_ports){
		.mark = mark, .data = s, .hold = hold, .let_go = let_go
	};
}

void sandbox_self_ports_done(struct sandbox_self_ports *h)
{
	free(h->bits);
	free(h->stale);
	*h = (struct sandbox_self_ports){ 0 };
}

void sandbox_self_ports_list(const struct sandbox_self_ports *h,
			     struct filter_self_port *ret)
{
	size_t n = 0;

	for (size_t i = 0; h->bits && i < (size_t)KINDS * WORDS; i++)
		for (uint64_t left = h->bits[i]; left != 0; left &= left - 1)
			ret[n++] = (struct filter_self_port){
				.family = kinds[i / WORDS].family,
				.protocol = kinds[i / WORDS].protocol,
				.port = (uint16_t)(i % WORDS * WORD_BITS +
						   (size_t)__builtin_ctzll(left)),
			};
}
