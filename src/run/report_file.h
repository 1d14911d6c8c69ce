// SPDX-License-Identifier: Apache-2.0
/* run/report_file - the forms of the report's file. docs/report-schema.json describes the
 * JSON. */
#pragma once

#include "run/report.h"

/* Return: 0, or -ENOMEM or -EIO. */
int report_json(const struct report *r, FILE *out) MUST_CHECK;
int report_markdown(const struct report *r, FILE *out) MUST_CHECK;
