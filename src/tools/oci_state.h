// SPDX-License-Identifier: Apache-2.0
/* tools/oci_state - which container an OCI runtime is about to start, as its hooks are
 * told on standard input. */
#pragma once

#include "base/err.h"

struct oci_state {
	char id[64];  /* a sandbox's; of a long one of hex digits the first twelve, as
		       * `docker ps` shows it */
	char pid[12]; /* of its first process, in the network namespace of its own */
};

/* Return: 0; -EBADMSG: it is no such state, or says nothing of a process; -errno. */
int oci_state_read(int fd, struct oci_state *ret, struct err *err) MUST_CHECK;
