// SPDX-License-Identifier: Apache-2.0
/* base/jansson - jansson, whose values a local may own: CLEAN(json) json_t *j = NULL; */
#pragma once

#include <jansson.h>

#include "base/macros.h"

DEFINE_CLEAN(json, json_t *, json_decref)
