// SPDX-License-Identifier: Apache-2.0
/* tools/events_internal - what tools/events.c and tools/review.c share. */
#pragma once

#include "tools/events.h"

int review_parse(int argc, char **argv, struct events_spec *ret,
		 struct err *err) MUST_CHECK;
