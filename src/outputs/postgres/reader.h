// SPDX-License-Identifier: Apache-2.0
/* outputs/postgres/reader - the service of outputs/postgres_read.h. */
#pragma once

#include "base/err.h"

/* @argv: the service, the connection string, since when, and which sandbox or nothing.
 * Return: 0, or -errno with @err. */
int reader_serve(int argc, char **argv, int fd, struct err *err) MUST_CHECK;
