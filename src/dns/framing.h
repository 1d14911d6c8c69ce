// SPDX-License-Identifier: Apache-2.0
/* dns/framing - messages out of a TCP stream (RFC 1035, section 4.2.2; RFC 7766).
 *
 * Each message follows two octets with its length. A segment may hold many, a part of
 * one, or half a length; every message is handed out by itself. The reader owns no
 * memory: the buffer is the caller's and decides how long a message may be. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"

enum { DNS_FRAME_PREFIX = 2 };

struct dns_framing {
	uint8_t *buf; /* borrowed */
	size_t size;
	size_t begin; /* what was handed out ends here */
	size_t end;   /* what was received ends here */
};

/* Messages of up to @size - DNS_FRAME_PREFIX octets will fit. */
void dns_framing_init(struct dns_framing *f, uint8_t *buf, size_t size);

/* Where the next octets of the stream go, and how many may. It is 0 only when a whole
 * message waits in dns_framing_next(), or never fits. Moves what is buffered: messages
 * that were handed out are invalid after it. */
size_t dns_framing_room(struct dns_framing *f, uint8_t **ret);
/* @count octets were put there. */
void dns_framing_received(struct dns_framing *f, size_t count);

/* The next whole message, inside the buffer.
 * Return: 1, 0 when more octets are needed, or -EBADMSG (length 0, or longer than the
 * buffer holds): the stream is of no use any more. */
int dns_framing_next(struct dns_framing *f, const uint8_t **ret_message,
		     size_t *ret_size) MUST_CHECK;

/* Forget what was received but not handed out. Return: how many octets that is; they
 * may be received again. */
size_t dns_framing_put_back(struct dns_framing *f);

/* Octets of a message whose rest hasn't come yet are buffered. */
bool dns_framing_is_within(const struct dns_framing *f);

/* The length in front of a message of @size octets (DNS_MESSAGE_MAX at most). */
void dns_framing_write_prefix(uint8_t prefix[DNS_FRAME_PREFIX], size_t size);
