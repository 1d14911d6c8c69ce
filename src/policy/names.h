// SPDX-License-Identifier: Apache-2.0
/* policy/names - names as people read them: their letters, their owners, their
 * lookalikes.
 *
 * libidn2 and libpsl are loaded with the first name that needs one: most policies have
 * neither a name with letters outside ASCII nor a pattern, and the loader's work for the
 * two libraries, and for what they need, is a tenth of the start of `weir run`.
 * weir-control, which opens no such file later, is linked with them. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/text.h"
#include "event/event.h"
#include "policy/plan.h"

/* The IDNA 2008 form of the name @text, UTF-8 in NFC or not, with no mapping. Return: 0;
 * -EINVAL, the name has none; -ELIBACC, libidn2 can't be loaded. @ret is for free(). */
int name_to_ascii(const char *text, char **ret) MUST_CHECK;
/* The name whose IDNA form @ascii is. Return: as above. */
int name_to_unicode(const char *ascii, char **ret) MUST_CHECK;

/* Whether anybody can have a name under the suffix @name: by the registries' part of
 * the list, or where @private is set by the companies' part, such as github.io.
 * Return: 1, 0, or -ELIBACC: libpsl can't be loaded. */
int name_is_public_suffix(const char *name, bool is_private) MUST_CHECK;
/* "1", "0x7f", "0x": a name that ends in such a label is a way to write an IPv4 address,
 * which programs read differently, never a host. No top-level domain looks like it. */
static inline bool name_is_number(struct text label)
{
	bool hex = label.len >= 2 && label.ptr[0] == '0' && (label.ptr[1] | 0x20) == 'x';

	for (size_t i = hex ? 2 : 0; i < label.len; i++) {
		if (hex ? text_hex_value(label.ptr[i]) < 0 : !text_is_digit(label.ptr[i]))
			return false;
	}
	return label.len > 0;
}
/* What of @name one owner has: the label in front of the longest suffix, by both parts of
 * the list, and that suffix; all of it where that is no more. Without libpsl the last two
 * labels. */
const char *name_registrable(const char *name);

/* Whether a name could be taken for one that the policy allows.
 *
 * Whoever decides about a name reads it once, in a hurry. What is compared is what
 * somebody can register: of api.githud.com that is githud.com, and of a rule for
 * *.github.com github.com. A name looks like an allowed one when, with letters of other
 * alphabets read as the ASCII letters that they look like:
 *
 *     gіthub.com (xn--gthub-cof.com), g1thub.com   the letters are alike
 *     githb.com, giithub.com, gihtub.com, githud.com   one is missing, added, swapped or
 *                                                     another one
 *     github.co, github.com.co                         only the suffix is another one
 *     git-hub.com, github-login.com                    it stands beside a hyphen
 *     github.com.evil.dev, github-com.evil.dev         it is only the beginning
 *
 * A name of the same registered domain as an allowed one looks like none: it has the same
 * owner. Pure; nothing is allocated. */

/* The allowed name that @wanted could be taken for, in @buf of EVENT_NAME_SIZE; "": there
 * is none, or @wanted is allowed or no host name. It costs one pass over the names of
 * @p. */
const char *lookalike_find(const struct plan *p, const char *wanted, char *buf);
