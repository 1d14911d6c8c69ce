// SPDX-License-Identifier: Apache-2.0
/* launch/images - what the build made for the sandbox and embedded here (images.S). */
#pragma once

#include <stdint.h>

extern const uint8_t launch_init_start[], launch_init_end[]; /* weir-init */
extern const uint8_t launch_seccomp_start[],
	launch_seccomp_end[]; /* BPF, seccomp_list.c */
