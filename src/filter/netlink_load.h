// SPDX-License-Identifier: Apache-2.0
/* filter/netlink_load - how fields and keys come into registers; for netlink.c, which
 * compares and looks up what is there. */
#pragma once

#include "filter/message.h"
#include "filter/ruleset_internal.h"

/* An expression that is being written. */
struct expression {
	size_t element, data;
};
struct expression expr_begin(struct nl_writer *w, const char *name);
void expr_end(struct nl_writer *w, struct expression e);
void expr_put_data(struct nl_writer *w, uint16_t type, const void *value, size_t size);

void expr_load(struct nl_writer *w, enum filter_field field, uint32_t reg);
/* Four-byte register @slot, from 0 on, as the kernel gives it back. */
uint32_t expr_reg(uint32_t slot);
/* What @set has as its key, from the first register on. */
void expr_load_key(struct nl_writer *w, const struct filter_set *set);
bool expr_has_key(const struct filter_set *set);
/* The register's @field & @bits. */
void expr_mask(struct nl_writer *w, enum filter_field field, uint32_t bits, uint32_t reg);
/* @value as the bytes of @field in a register. */
size_t expr_field_bytes(enum filter_field field, uint32_t value, uint8_t ret[4]);
