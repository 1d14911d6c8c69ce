// SPDX-License-Identifier: Apache-2.0
/* relay/host - the host that a connection names, in one canonical form: lower case, no
 * trailing dot, letters, digits, '-' and '_' only. What can't be held so is never held.
 */
#pragma once

#include "base/addr.h"
#include "base/text.h"

enum { WIRE_HOST_MAX = 253, WIRE_LABEL_MAX = 63 };

enum wire_host_kind {
	WIRE_HOST_BAD = 0, /* neither of the two; @ret is untouched */
	WIRE_HOST_NAME,
	WIRE_HOST_ADDRESS, /* strict text only: "10.0.0.5", "[2001:db8::1]" */
};

struct wire_host {
	uint8_t kind; /* enum wire_host_kind */
	uint8_t size; /* of @text, without the NUL */
	char text[WIRE_HOST_MAX + 1];
	struct addr addr; /* of an address; @text is empty then */
};

/* Read a host without a port. One trailing dot of a name is removed. A name whose last
 * label is a number ("127.1", "0x7f.1", "10.0.0.5.") is bad: some readers take it for an
 * address. */
enum wire_host_kind wire_host_read(struct text t, struct wire_host *ret);
/* The same with an optional ":PORT"; @ret_port is 0 when there is none. */
enum wire_host_kind wire_host_port_read(struct text t, struct wire_host *ret,
					uint16_t *ret_port);
bool wire_host_equal(const struct wire_host *a, const struct wire_host *b);
