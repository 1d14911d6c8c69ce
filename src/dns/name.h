// SPDX-License-Identifier: Apache-2.0
/* dns/name - domain names (RFC 1035, RFC 9499) in one canonical form.
 *
 * A struct dns_name is always valid: labels of 1 to 63 octets, 255 octets at most on
 * the wire, ASCII letters in lower case. What can't be held so is never held: the
 * readers refuse it. Two names are the same name when their bytes are. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "base/wire.h"

enum {
	DNS_HEADER_SIZE = 12, /* of a message; names begin behind it */
	DNS_NAME_MAX = 255,   /* octets on the wire, root label included */
	DNS_LABEL_MAX = 63,
	DNS_LABELS_MAX = 127,
	DNS_POINTER = 0xc000, /* top bits of a compression pointer */
	DNS_POINTER_OFFSET_MAX = 0x3fff,
	DNS_NAME_TEXT_SIZE = 1024, /* every octet escaped as \DDD, dots, NUL */
};

struct dns_name {
	uint8_t size;		     /* octets used, root label included; 0: no name */
	uint8_t labels;		     /* without the root */
	uint8_t bytes[DNS_NAME_MAX]; /* wire form, uncompressed, lower case */
};

/* Read a name that may be compressed; @w starts where the message starts. Moves @w
 * behind the name. Pointers must go backwards and not into the header. @ret_raw, when
 * given, gets the same octets with their case kept (for echoing a question); it has
 * DNS_NAME_MAX bytes. Any octet may stand in a label (RFC 2181): see dns_name_is_host().
 * Return: 0, or -EBADMSG (too long, forward or looping pointer, short), and then @w
 * has failed. */
int dns_name_read(struct wire *w, struct dns_name *ret, uint8_t *ret_raw) MUST_CHECK;

/* The name at @offset of @message is the one whose lower-case, uncompressed octets
 * begin at @bytes. Nothing is copied; what can't be read is unequal. */
bool dns_name_is_at(const struct wire *message, size_t offset, const uint8_t *bytes);

/* From presentation text; one trailing dot is allowed, "." is the root. Strict: no
 * escapes, no empty label, letters, digits, '-', '_' only (policy and server names
 * are host names). Return: 0, or -EINVAL. */
int dns_name_parse(struct text t, struct dns_name *ret) MUST_CHECK;

/* Presentation form without the trailing dot ("." for the root), octets outside
 * printable ASCII, '.' and '\' escaped as RFC 4343 has it. @buf holds
 * DNS_NAME_TEXT_SIZE. Return: @buf. */
char *dns_name_format(const struct dns_name *n, char *buf);
/* dns_name_format() into a buffer that lives as long as the block around the call. */
#define DNS_NAME_SHOWN(x) dns_name_format(x, (char[DNS_NAME_TEXT_SIZE]){ 0 })

bool dns_name_equal(const struct dns_name *a, const struct dns_name *b);
/* @n is @ancestor or lies below it. */
bool dns_name_is_within(const struct dns_name *n, const struct dns_name *ancestor);
/* Only letters, digits, '-', '_' in every label, and at least one label: what a host
 * name can be. */
bool dns_name_is_host(const struct dns_name *n);
/* "localhost" and every name below it (RFC 6761). */
bool dns_name_is_localhost(const struct dns_name *n);
