// SPDX-License-Identifier: Apache-2.0
/* supervisor/program - start one of Weir's other programs: weir-control, weir-webhook.
 * They stand beside this one, or where they are installed. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

/* It has the store's library: it shows, keeps and decides, and runs the review command.
 */
#define PROGRAM_EVENTS "weir-events"

struct helper {
	const char *program; /* "weir-control" */
	const char *service; /* the first argument, or NULL */
	char *const *args;   /* behind the program's name; NULL-ended */
	const int *fds;	     /* from INHERITED_FIRST up; all else is closed but 0 to 2 */
	size_t fd_count;
};

/* -ENOENT: it isn't where it should be. */
int helper_check(const char *program, struct err *err) MUST_CHECK;

enum { HELPER_ARGS_MAX = 256 };

/* Become @program in this process; @args (NULL-ended) stand behind its name. Return:
 * -errno. */
int helper_become(const char *program, char *const *args, struct err *err) MUST_CHECK;

/* Arguments and environment are passed as sys/process does it: nobody else can read what
 * the program is told. It ends with the calling process. What keeps it from starting is
 * logged by the child, whose status is then 127. Return: its pid, or -errno. */
pid_t helper_start(const struct helper *h) MUST_CHECK;
