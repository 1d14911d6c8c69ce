// SPDX-License-Identifier: Apache-2.0
/* sys/bytes - whole reads of files: what read() gives in parts, put together. */
#pragma once

#include <stddef.h>

#include "base/macros.h"

/* Until the end of the file or until @room bytes are there. Return: 0 or -errno. */
int bytes_read(int fd, void *buf, size_t room, size_t *ret_size) MUST_CHECK;
