// SPDX-License-Identifier: Apache-2.0
/* sandbox/refused - a packet that the filter refused, as an event: which rule decided,
 * which name the address goes by, and why. */
#pragma once

#include "filter/filter.h"
#include "filter/nflog.h"
#include "sandbox/sandbox.h"

void refused_packet(struct sandbox *s, const struct nflog_packet *p, int64_t now_ms);
/* Packets that left by the link. */
void passed_count(struct sandbox *s, const struct filter_count *c, int64_t now_ms);
