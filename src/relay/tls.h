// SPDX-License-Identifier: Apache-2.0
/* relay/tls - the name in a TLS ClientHello, read from the first bytes of a connection,
 * and whether another ClientHello can follow.
 *
 * The bytes may come in any split into segments (call again with more of them, from the
 * start) and into records. Nothing is kept and nothing allocated. Strict: every length
 * has to fit exactly, so that no server can read another name out of the same bytes.
 *
 * A SECOND HELLO
 * A server of TLS 1.3 may answer with a HelloRetryRequest, and then goes by the name in
 * the client's second hello, which is in the clear like the first. So the records of both
 * sides are read on until one of two things is seen:
 *  - the server's ServerHello: it answers the hello that the server goes by, and every
 *    handshake message of the client is encrypted from there on, or is not a hello;
 *  - a message of the client that can't be followed by a hello in the clear: a
 * Certificate or ClientKeyExchange of TLS 1.2, or application data where no early data
 * was announced. Early data is application data that may come before the second hello;
 * each of its records passes, and the server's answer ends the reading. Nothing is kept
 * between two records. */
#pragma once

#include "relay/host.h"

enum {
	TLS_MAJOR = 3,		   /* of every version from SSL 3.0 to TLS 1.3 */
	TLS_FIRST_MAX = 16 * 1024, /* bytes looked at, record headers included; a hello
				    * that doesn't end there is bad */
	TLS_ALERT_SIZE = 7,
	TLS_ANSWER_LOOK = 64, /* bytes of a server's record that tell what it is */
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
	TLS_BAD_ORDER, /* records that no client sends behind a hello */
	TLS_FAULT_COUNT
};

struct tls_hello {
	struct wire_host name; /* of TLS_OK; with encrypted_client_hello the outer one */
	bool early_data; /* announced: application data may come before a second hello */
	size_t size; /* of its records; of TLS_OK, and where only the name is at fault */
	uint8_t fault; /* enum tls_fault, of TLS_BAD */
};

enum tls_alert { TLS_ALERT_ACCESS_DENIED = 49, TLS_ALERT_UNRECOGNIZED_NAME = 112 };

/* @ret is filled on TLS_OK and TLS_BAD. */
enum tls_read tls_hello_read(const uint8_t *bytes, size_t size, struct tls_hello *ret);

/* One record behind a hello. */
enum tls_next {
	TLS_NEXT_MORE = 0, /* more bytes are needed to tell */
	TLS_NEXT_PASS,	   /* it says nothing about a hello: see @ret_size */
	TLS_NEXT_HELLO,	   /* the client's: another hello begins, for tls_hello_read() */
	TLS_NEXT_END,	   /* no hello can follow */
	TLS_NEXT_UNKNOWN,  /* none of these */
};

/* A record of the client's; @early_data as the last hello announced. @ret_size, for
 * TLS_NEXT_PASS: the record's size with its header, of which not all need be there. */
enum tls_next tls_next_read(const uint8_t *bytes, size_t size, bool early_data,
			    size_t *ret_size);
/* A record of the server's. TLS_NEXT_PASS: an alert, a ChangeCipherSpec or a
 * HelloRetryRequest. */
enum tls_next tls_answer_read(const uint8_t *bytes, size_t size, size_t *ret_size);

const char *tls_fault_text(enum tls_fault f);
/* A fatal alert in the clear. */
void tls_alert_write(enum tls_alert which, uint8_t ret[TLS_ALERT_SIZE]);
