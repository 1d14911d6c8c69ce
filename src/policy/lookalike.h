// SPDX-License-Identifier: Apache-2.0
/* policy/lookalike - whether a name could be taken for one that the policy allows.
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
#pragma once

#include "event/event.h"
#include "policy/plan.h"

/* The allowed name that @wanted could be taken for, in @buf of EVENT_NAME_SIZE; "": there
 * is none, or @wanted is allowed or no host name. It costs one pass over the names of
 * @p. */
const char *lookalike_find(const struct plan *p, const char *wanted, char *buf);
