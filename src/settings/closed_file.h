// SPDX-License-Identifier: Apache-2.0
/* settings/closed_file - STATE_DIR/closed.json: the policy of a sidecar that has closed
 * its sandbox and has no file for its policy. Control writes it; the supervisor starts
 * with it.
 */
#pragma once

#include "policy/document.h"

/* @d in the file; one that isn't closed takes the file away. Return: 0 or -errno. */
int closed_file_write(const char *state_dir, const struct document *d,
		      struct err *err) MUST_CHECK;
/* Return: 1 with *@ret; 0: there is none; -errno: it can't be read, and whatever it says
 * may not be opened. */
int closed_file_read(const char *state_dir, struct document **ret,
		     struct err *err) MUST_CHECK;

/* STATE_DIR/policy.set, an empty file: the file for its policy had one. Should that be
 * gone at a restart, or empty, nobody may take other rules in its place. */
int closed_file_note_policy(const char *state_dir, struct err *err) MUST_CHECK;
/* Whatever can't be looked at counts as noted. */
bool closed_file_had_policy(const char *state_dir);
