// SPDX-License-Identifier: Apache-2.0
	.section .rodata
	.global launch_init_start
	.global launch_init_end
	.global launch_seccomp_start
	.global launch_seccomp_end
	.balign 16
launch_init_start:
	.incbin INIT
launch_init_end:
	.balign 16
launch_seccomp_start:
	.incbin SECCOMP
launch_seccomp_end:
	.section .note.GNU-stack, "", %progbits
