// SPDX-License-Identifier: Apache-2.0
/* filter/message - nf_tables messages, of the writer of sys/netlink.h: the exchange of a
 * batch or a dump with the kernel, and the reader of its replies.
 *
 * HOW IT WORKS
 * A batch is one datagram: begin, messages, end; the kernel takes all of it or
 * nothing. Each message has a sequence number of its own, so an error names the
 * message that caused it. The last message asks for an acknowledgement. The kernel
 * answers while it is in sendmsg(): everything is queued when that returns, a failed
 * commit before any acknowledgement. So the first reply that is an error, or the
 * acknowledgement of the last message, decides, and nothing ever waits. */
#pragma once

#include <linux/netlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "filter/filter.h"
#include "sys/netlink.h"

enum {
	/* Elements with their counters, which are 0 then. Of Linux 6.5; headers are older
	 */
	NL_GETSETELEM_RESET = 33,
	NL_GETRULE_RESET = 25, /* rules with theirs; of Linux 6.2 */
};

/* @type is a NFT_MSG_…, or another subsystem's with its number in the high byte; @family
 * an NFPROTO_…. */
void nl_message(struct nl_writer *w, uint16_t type, uint16_t flags, uint8_t family);
/* Open and close a batch; end asks for the acknowledgement of the last message. */
void nl_batch(struct nl_writer *w);
void nl_batch_end(struct nl_writer *w);

/* What the replies to a batch say. */
struct nl_outcome {
	bool done;	    /* acknowledged or failed */
	int error;	    /* 0, or -errno of the first failure */
	uint32_t error_seq; /* the message that failed */
};
/* Read one datagram of replies to sequence numbers @first to @last, sent to @port_id.
 * What is not for us is skipped; a broken message makes -EBADMSG the error. */
void nl_outcome_read(const void *bytes, size_t size, uint32_t port_id, uint32_t first,
		     uint32_t last, struct nl_outcome *o);
/* Send the closed batch and read its outcome. Return: 0 or -errno; @ret_seq (may be
 * NULL) is the message that failed, 0 when it wasn't a single one. */
int nl_transact(struct filter_conn *c, struct nl_writer *w, uint32_t *ret_seq) MUST_CHECK;

/* Called for each message of a dump; not 0 ends the calls. */
typedef int nl_dump_fn(void *data, uint16_t type, uint8_t family,
		       const struct nl_attrs *attrs);
/* Progress of a dump over one datagram of replies: -EBADMSG for broken ones. After an
 * error the rest is read and skipped: the kernel begins no other dump on the socket
 * before this one's end. */
struct nl_dump {
	uint32_t port_id, seq;
	nl_dump_fn *fn;
	void *data;
	bool done;
	int error;
	uint8_t subsystem; /* of the messages that are wanted; 0: nf_tables */
	/* What is told is gone: all of it counts, though others change things meanwhile
	 */
	bool takes;
};
void nl_dump_read(const void *bytes, size_t size, struct nl_dump *d);
/* Ask for @type (NFT_MSG_GET…) with what @fill writes (may be NULL). @flags:
 * NLM_F_DUMP for all objects, NLM_F_ACK for one. */
int nl_ask(struct filter_conn *c, uint16_t type, uint16_t flags, uint8_t family,
	   void (*fill)(struct nl_writer *w, const void *what), const void *what,
	   nl_dump_fn *fn, void *data) MUST_CHECK;
