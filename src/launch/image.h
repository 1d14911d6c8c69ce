// SPDX-License-Identifier: Apache-2.0
/* launch/image - the program weir-init, as bytes in this program (init/image.S). */
#pragma once

#include <stdint.h>

extern const uint8_t launch_image[], launch_image_end[];
