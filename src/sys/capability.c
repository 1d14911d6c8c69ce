// SPDX-License-Identifier: Apache-2.0
#include "sys/capability.h"

#include <stddef.h>

bool capability_is(struct text given, const char *name)
{
	static const char prefix[] = "CAP_";
	const size_t skip = sizeof(prefix) - 1;

	if (given.len > skip &&
	    text_equal_nocase((struct text){ given.ptr, skip }, prefix)) {
		given.ptr += skip;
		given.len -= skip;
	}
	return text_equal_nocase(given, name);
}

bool capability_undoes_filter(struct text given)
{
	static const char *const names[] = {
		"ALL",
		"NET_ADMIN",
		"SYS_ADMIN",
		"SYS_PTRACE",
		"SYS_MODULE",
		"SYS_RAWIO",
		"BPF",
		"PERFMON",
		/* open_by_handle_at(): any file of a file system that a mount shows part
		 * of, and with that the host's, and the engine's socket. */
		"DAC_READ_SEARCH",
		/* kexec_load(): another kernel. */
		"SYS_BOOT",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (capability_is(given, names[i]))
			return true;
	return false;
}
