// SPDX-License-Identifier: Apache-2.0
/* What each unit test includes: cmocka, with the headers that have to come before it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
