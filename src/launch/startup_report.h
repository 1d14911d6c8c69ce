// SPDX-License-Identifier: Apache-2.0
/* launch/startup_report - what is told when the command has ended of the files that run
 * outside later. */
#pragma once

#include <stdbool.h>

struct startup_files;

/* Remember the links that git directories have before the command starts. */
void startup_report_begin(struct startup_files *s);
/* Say what is there now that wasn't, or that was changed; @quiet: only what git would
 * obey at once, which gets another name if that can be done. Return: false when there was
 * any of that. */
bool startup_report_new(const struct startup_files *s, bool quiet);
