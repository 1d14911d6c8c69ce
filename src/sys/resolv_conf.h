// SPDX-License-Identifier: Apache-2.0
/* sys/resolv_conf - the name servers of a resolv.conf(5). */
#pragma once

#include "base/addr.h"
#include "base/err.h"

/* Call @on_server for each `nameserver` line with an address (port 53) that can be read,
 * in their order. A server with a zone (fe80::1%eth0) is left out.
 * Return: 0, or -errno: -ENOENT, what file_read() returns. */
int resolv_conf_read(const char *path,
		     void (*on_server)(void *data, const struct endpoint *server),
		     void *data, struct err *err) MUST_CHECK;
