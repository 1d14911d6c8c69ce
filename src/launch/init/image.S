// SPDX-License-Identifier: Apache-2.0
	.section .rodata
	.global launch_image
	.global launch_image_end
	.balign 16
launch_image:
	.incbin IMAGE
launch_image_end:
	.section .note.GNU-stack, "", %progbits
