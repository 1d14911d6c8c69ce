// SPDX-License-Identifier: Apache-2.0
	.section .rodata
	.global witness_calls_start
	.global witness_calls_end
	.balign 16
witness_calls_start:
	.incbin CALLS
witness_calls_end:
	.section .note.GNU-stack, "", %progbits
