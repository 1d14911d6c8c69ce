// SPDX-License-Identifier: Apache-2.0
/* proto/run_socket - where the socket is by which a `weir run` is asked and gets another
 * policy: ID.sock in a directory that only the caller may enter.
 *
 * The directory is "weir" in $XDG_RUNTIME_DIR or in /run/user/UID; where there is
 * neither, /tmp/weir-UID, of root /run/weir-0. A sandbox has a /run and a /tmp of its
 * own, so that none of these can be seen inside; a $XDG_RUNTIME_DIR elsewhere is not
 * used. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum { RUN_SOCKET_PLACES = 3, RUN_SOCKET_PATH_SIZE = 108 /* sun_path */ };

/* The directory of place @i, safe to use: the caller's own, and nobody else may enter.
 * @make: it is made where it is missing. Return: a descriptor, with the path in @ret; or
 * -errno. */
int run_socket_place(size_t i, bool make, char ret[RUN_SOCKET_PATH_SIZE]) MUST_CHECK;

/* Of the run @id, in that directory. Return: false when it is too long. */
bool run_socket_path(const char *directory, const char *id,
		     char ret[RUN_SOCKET_PATH_SIZE]);
/* The path of the socket of the run @id: the first of all places where there is one.
 * Return: false when there is none. */
bool run_socket_find(const char *id, char ret[RUN_SOCKET_PATH_SIZE]);
/* Take the directory away, when it is empty and nobody has its lock. */
void run_socket_leave(const char *directory);
/* Call @on_run for each run of the caller's that answers, in no order. What a run that
 * was killed has left is removed. */
void run_socket_each(void (*on_run)(void *data, const char *id, const char *path),
		     void *data);
/* Does anybody answer at @path? What is left of a run that was killed does not. */
bool run_socket_answers(const char *path);
