// SPDX-License-Identifier: Apache-2.0
/* proto/audit - which sockets are open in the network namespace that this process is in
 * whose packets go round the filter. Weir opens none of these: they are the app's, and
 * its right to have them (NET_RAW) is a way round. */
#pragma once

#include "proto/control_supervisor.h"

struct ipc_audit audit_raw_sockets(void);
