// SPDX-License-Identifier: Apache-2.0
/* container/volumes - what of --volume is refused: what would show the container a socket
 * with which the filter can be taken away, or the host's kernel.
 *
 * Such a socket is every one that a program of root's or of the caller's has bound in
 * this network namespace, whatever it is called; every volume that is itself a socket;
 * and the place of an engine's or the daemon's, which may be started later. Files are
 * compared, not their names. */
#pragma once

#include "container/docker.h"

/* "FROM:TO" with ":ro" or ":rw", FROM an absolute path or a volume's name? */
bool volume_is_well_formed(const char *volume);
/* Of well-formed ones. @daemon: its socket. @ret: the same volumes, each path as it was
 * found: the engine is given that, and follows no link that is made later. What is made
 * lies in @arena. Every volume that is refused is told. Return: 0; -EINVAL: one is
 * refused; -errno; with @err. */
int volumes_check(const struct option_list *volumes, const struct docker *engine,
		  const char *daemon, struct arena *arena, struct option_list *ret,
		  struct err *err) MUST_CHECK;
/* The same of what volumes_check() returned, just before the engine binds it: the guard's
 * start takes its time. A path that leads elsewhere by now is refused. */
int volumes_check_again(const struct option_list *resolved, const struct docker *engine,
			const char *daemon, struct arena *arena,
			struct err *err) MUST_CHECK;
