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
	/* What isn't here isn't harmless: ALL, another kernel's capability, and a letter
	 * that is one of these only in capitals, as engines compare them. */
	static const char *const harmless[] = {
		"AUDIT_READ",	 "AUDIT_WRITE",
		"BLOCK_SUSPEND", "CHOWN",
		"DAC_OVERRIDE",	 "FOWNER",
		"FSETID",	 "IPC_LOCK",
		"IPC_OWNER",	 "KILL",
		"LEASE",	 "LINUX_IMMUTABLE",
		"MKNOD",	 "NET_BIND_SERVICE",
		"NET_BROADCAST", "NET_RAW",
		"SETFCAP",	 "SETGID",
		"SETPCAP",	 "SETUID",
		"SYSLOG",	 "SYS_CHROOT",
		"SYS_RESOURCE",	 "SYS_NICE",
		"SYS_PACCT",	 "SYS_TTY_CONFIG",
		"WAKE_ALARM",
	};

	for (size_t i = 0; i < ARRAY_SIZE(harmless); i++)
		if (capability_is(given, harmless[i]))
			return false;
	return true;
}
