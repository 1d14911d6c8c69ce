// SPDX-License-Identifier: Apache-2.0
#include "sys/confine.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "sys/capabilities.h"
#include "sys/process.h"

/* confine.S */
extern const uint8_t confine_engine_start[], confine_engine_end[];
extern const uint8_t confine_socket_owner_start[], confine_socket_owner_end[];
extern const uint8_t confine_control_start[], confine_control_end[];
extern const uint8_t confine_webhook_start[], confine_webhook_end[];
extern const uint8_t confine_postgres_start[], confine_postgres_end[];

int confine_self(struct err *err)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || process_forbid_cores() < 0)
		return err_sys(err, -errno, "cannot give up rights");
	return 0;
}

int confine_rights(uint64_t keep, struct err *err)
{
	int r = confine_self(err);

	return r < 0 ? r : capabilities_keep(keep, err);
}

bool confine_has_calls(void)
{
#ifdef __SANITIZE_ADDRESS__
	return false;
#else
	return true;
#endif
}

int confine_calls(enum confine_program program, struct err *err)
{
	static const struct {
		const uint8_t *start, *end;
	} lists[CONFINE_PROGRAM_COUNT] = {
		[CONFINE_ENGINE] = { confine_engine_start, confine_engine_end },
		[CONFINE_SOCKET_OWNER] = { confine_socket_owner_start,
					   confine_socket_owner_end },
		[CONFINE_CONTROL] = { confine_control_start, confine_control_end },
		[CONFINE_WEBHOOK] = { confine_webhook_start, confine_webhook_end },
		[CONFINE_POSTGRES] = { confine_postgres_start, confine_postgres_end },
	};
	const uint8_t *start = lists[program].start;
	const struct sock_fprog filter = {
		.len = (unsigned short)((size_t)(lists[program].end - start) /
					sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)start,
	};

	if (!confine_has_calls())
		return 0;
	if (filter.len == 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
		return err_sys(err, filter.len == 0 ? -EBADMSG : -errno,
			       "cannot confine by seccomp");
	return 0;
}
