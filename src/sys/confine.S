// SPDX-License-Identifier: Apache-2.0
	.section .rodata
	.macro list name, file
	.global confine_\name\()_start
	.global confine_\name\()_end
	.balign 16
confine_\name\()_start:
	.incbin "\file"
confine_\name\()_end:
	.endm
	list engine, ENGINE
	list socket_owner, SOCKET_OWNER
	list control, CONTROL
	list webhook, WEBHOOK
	list postgres, POSTGRES
	.section .note.GNU-stack, "", %progbits
