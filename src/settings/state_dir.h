// SPDX-License-Identifier: Apache-2.0
/* settings/state_dir - the directory of --state-dir. What is read back from there says
 * what is open and what stays closed, so others may not have put it there. */
#pragma once

#include "opensandbox/document.h"
#include "settings/settings.h"

/* Make the directory where it is missing, and judge it: nobody but root and the effective
 * user may write there or on the way to it. A volume (a mount of its own) that is theirs
 * may be written to by others, as container platforms make theirs: @ret_shared, which may
 * be NULL. The files in it that count have to be the effective user's own, so that others
 * can take them away and can't forge them.
 * A directory that can't be trusted is not used: spec->state_dir is NULL then, and @err
 * says why. One that can't be had for another reason is left to those who write there,
 * and try again. Return: 0, or -errno when it is not used. */
int state_dir_take(struct sidecar_spec *spec, bool *ret_shared,
		   struct err *err) MUST_CHECK;

/* STATE_DIR/closed.json: the policy of a sidecar that has closed its sandbox. Control
 * writes it; the supervisor starts with it, whatever the file for the policy says. */

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
