// SPDX-License-Identifier: Apache-2.0
	.section .rodata
	.global engine_calls_start
	.global engine_calls_end
	.balign 16
engine_calls_start:
	.incbin CALLS
engine_calls_end:
	.section .note.GNU-stack, "", %progbits
