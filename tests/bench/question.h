// SPDX-License-Identifier: Apache-2.0
/* What the programs that ask a DNS server as fast as it answers have in common. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline size_t write_label(uint8_t *to, const char *label, size_t size)
{
	to[0] = (uint8_t)size;
	memcpy(to + 1, label, size);
	return size + 1;
}

/* For the A records of n@index.@suffix, which fit in 512 bytes. Return: how many. */
static inline size_t write_question(uint8_t *to, uint16_t id, uint64_t index,
				    const char *suffix)
{
	static const uint8_t tail[] = { 0, 0, 1, 0, 1 };
	uint8_t head[12] = { (uint8_t)(id >> 8), (uint8_t)id, 1, 0, 0, 1 };
	char text[32];
	size_t at = sizeof(head);

	memcpy(to, head, sizeof(head));
	at += write_label(
		to + at, text,
		(size_t)snprintf(text, sizeof(text), "n%llu", (unsigned long long)index));
	while (*suffix) {
		size_t size = strcspn(suffix, ".");

		at += write_label(to + at, suffix, size);
		suffix += size + (suffix[size] == '.');
	}
	memcpy(to + at, tail, sizeof(tail));
	return at + sizeof(tail);
}
