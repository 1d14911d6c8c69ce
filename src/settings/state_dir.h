// SPDX-License-Identifier: Apache-2.0
/* settings/state_dir - the directory of --state-dir. What is read back from there says
 * what is open and what stays closed, so others may not have put it there. */
#pragma once

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
