// SPDX-License-Identifier: Apache-2.0
/* container/volumes - what of --volume is refused: what would show the container a socket
 * with which the filter can be taken away, an engine's or the daemon's.
 *
 * Names are compared, and no socket has to be there: an engine may be started later. */
#pragma once

#include "container/docker.h"

/* @daemon: its socket. Every volume that is refused is told. Return: 0; -EINVAL with
 * @err. */
int volumes_check(const struct option_list *volumes, const struct docker *engine,
		  const char *daemon, struct err *err) MUST_CHECK;
