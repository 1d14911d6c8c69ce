// SPDX-License-Identifier: Apache-2.0
/* proto/launch - what a launch child and weir-init say to the process that started them,
 * and what the self-test of a launch tries. */
#pragma once

#include <stdbool.h>

#include "base/addr.h"

enum launch_self_test {
	SELF_TEST_NONE = 0, /* not reachable from the command line */
	SELF_TEST_DENY,	    /* the default: synthetic name, denied name, denied address */
	SELF_TEST_FULL,	  /* and connect to the first allowed host; warn when it fails */
	SELF_TEST_STRICT, /* and refuse when it fails */
};

struct launch_probe {
	char allowed_name[256];	 /* synthetic, answered by the engine */
	struct endpoint allowed; /* what the engine answers it with, and a port that its
				  * learned set has */
	char denied_name[256];	 /* "" : no name is denied by this policy */
	struct endpoint denied;	 /* family none: no address is denied */
	char first_name[256];	 /* full and strict: the first allowed host, or "" */
	struct endpoint first;	 /* its port; the address when the rule names one */
	bool relay;		 /* the synthetic address answers over TCP */
};

/* weir-init and the launch child to control, over control_fd. */
enum launch_report_type {
	LAUNCH_REPORT_NONE = 0,
	LAUNCH_FAILED,	/* value: exit code to use (125 …), text: why. Ends. */
	LAUNCH_WARNING, /* text; goes on */
	LAUNCH_TESTED,	/* self-test passed; waits for LAUNCH_GO */
	LAUNCH_STARTED, /* the command runs, or its process has ended before */
	LAUNCH_STOPPED, /* value: the signal that stopped it */
	LAUNCH_CONTINUED,
	LAUNCH_EXITED, /* value: wait status of the command */
	/* With a descriptor: to ask the kernel about sockets in the new namespace */
	LAUNCH_DIAG,
	/* control to the command's process, before that process becomes the command */
	LAUNCH_GO,
	/* control to weir-init */
	LAUNCH_SIGNAL, /* value: forward this signal to the command */
	LAUNCH_HOLD,   /* control stops, unless LAUNCH_GO_ON comes at once */
	LAUNCH_GO_ON,  /* control goes on */
};
struct launch_report {
	uint32_t type;
	int32_t value;
	char text[504];
};
