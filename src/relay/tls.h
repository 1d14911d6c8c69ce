// SPDX-License-Identifier: Apache-2.0
/* relay/tls - the name in a TLS ClientHello, read from the first bytes of a connection.
 *
 * The bytes may come in any split into segments (call again with more of them, from the
 * start) and into records. Nothing is kept and nothing allocated. Strict: every length
 * has to fit exactly, so that no server can read another name out of the same bytes. */
#pragma once

#include "relay/host.h"

enum {
	TLS_FIRST_MAX = 16 * 1024, /* bytes looked at, record headers included; a hello
				    * that doesn't end there is bad */
	TLS_ALERT_SIZE = 7,
};

enum tls_read {
	TLS_NEED_MORE = 0,
	TLS_NOT, /* no record of TLS */
	TLS_OK,
	TLS_BAD, /* TLS, but see enum tls_fault */
};

enum tls_fault {
	TLS_FAULT_NONE = 0,
	TLS_NO_NAME, /* a sound hello without a server name */
	TLS_SEVERAL_NAMES,
	TLS_NAME_IS_ADDRESS,
	TLS_NAME_MALFORMED,
	TLS_MALFORMED,
	TLS_NOT_A_HELLO, /* another kind of record or message comes first */
	TLS_OLD_HELLO,	 /* in the form of SSL 2 */
	TLS_TOO_LONG,
	TLS_FAULT_COUNT
};

struct tls_hello {
	struct wire_host name; /* of TLS_OK */
	bool ech;	       /* encrypted_client_hello: @name is the outer one */
	bool alpn;
	uint8_t fault; /* enum tls_fault, of TLS_BAD */
};

enum tls_alert { TLS_ALERT_ACCESS_DENIED = 49, TLS_ALERT_UNRECOGNIZED_NAME = 112 };

/* @ret is filled on TLS_OK and TLS_BAD. */
enum tls_read tls_hello_read(const uint8_t *bytes, size_t size, struct tls_hello *ret);
const char *tls_fault_text(enum tls_fault f);
/* A fatal alert in the clear. */
void tls_alert_write(enum tls_alert which, uint8_t ret[TLS_ALERT_SIZE]);
