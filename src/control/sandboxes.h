// SPDX-License-Identifier: Apache-2.0
/* control/sandboxes - what the files about the daemon's sandboxes share.
 *
 *   sandboxes.c       they come, change and go
 *   sandboxes_list.c  those that the daemons have; what the engines enforce */
#pragma once

#include "control/control.h"
