// SPDX-License-Identifier: Apache-2.0
/* launch/images - what the build made for the sandbox and embedded here (images.S). */
#pragma once

#include <stdint.h>

#include "base/err.h"

extern const uint8_t launch_init_start[], launch_init_end[]; /* weir-init */
extern const uint8_t launch_seccomp_start[],
	launch_seccomp_end[]; /* BPF, seccomp_list.c */

/* An empty memfd, to be filled. Return: the descriptor, close-on-exec, owned by the
 * caller; or -errno. */
int image_create(const char *name, struct err *err) MUST_CHECK;

/* Write @size bytes into it and seal it; its offset stays at the start. */
int image_fill(int fd, const void *bytes, size_t size, struct err *err) MUST_CHECK;

/* Both. Return: the descriptor, or -errno. */
int image_open(const char *name, const void *bytes, size_t size,
	       struct err *err) MUST_CHECK;
