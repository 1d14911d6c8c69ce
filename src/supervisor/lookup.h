// SPDX-License-Identifier: Apache-2.0
/* supervisor/lookup - one DNS question over UDP, and its answer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOOKUP_QUERY_MAX = 12 + 255 + 4, LOOKUP_ANSWER_MAX = 1500 };

struct lookup_answer {
	unsigned int rcode;
	bool has_address; /* an A record was in the answer section */
	uint8_t address[4];
};

/* Write the question for the A records of @name (dots between labels).
 * Return: its size, or 0 when @name is no host name. */
size_t lookup_write(const char *name, uint16_t id, uint8_t *out, size_t size);

/* Read the answer to it. Return: false when it isn't one: another id or question,
 * cut short, or with names that don't end. */
bool lookup_read(const uint8_t *query, size_t query_size, const uint8_t *bytes,
		 size_t size, struct lookup_answer *ret);
