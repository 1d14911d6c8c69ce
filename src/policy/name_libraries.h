// SPDX-License-Identifier: Apache-2.0
/* policy/name_libraries - libidn2 and libpsl, loaded with the first name that needs one.
 *
 * Most policies have neither a name with letters outside ASCII nor a pattern, and the
 * loader's work for the two libraries, and for what they need, is a tenth of the start of
 * `weir run`. weir-control, which opens no such file later, is linked with them. */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* The IDNA 2008 form of the name @text, UTF-8 in NFC or not, with no mapping. Return: 0;
 * -EINVAL, the name has none; -ELIBACC, libidn2 can't be loaded. @ret is for free(). */
int name_to_ascii(const char *text, char **ret) MUST_CHECK;
/* The name whose IDNA form @ascii is. Return: as above. */
int name_to_unicode(const char *ascii, char **ret) MUST_CHECK;

/* Whether anybody can have a name under the suffix @name: by the registries' part of
 * the list, or where @private is set by the companies' part, such as github.io.
 * Return: 1, 0, or -ELIBACC: libpsl can't be loaded. */
int name_is_public_suffix(const char *name, bool is_private) MUST_CHECK;
/* What of @name one owner has: the label in front of the longest suffix, by both parts of
 * the list, and that suffix; all of it where that is no more. Without libpsl the last two
 * labels. */
const char *name_registrable(const char *name);
