// SPDX-License-Identifier: Apache-2.0
#include "sys/capabilities.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int capabilities_keep(uint64_t keep, struct err *err)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const uint32_t low = (uint32_t)keep, high = (uint32_t)(keep >> 32);
	struct __user_cap_data_struct kept[2] = {
		{ .permitted = low, .effective = low },
		{ .permitted = high, .effective = high },
	};

	/* EINVAL: past the last one that this kernel knows. EPERM: an ordinary user
	 * has nothing to drop; no_new_privs keeps it so. */
	for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (errno != EINVAL && errno != EPERM)
		return err_sys(err, -errno, "cannot empty the bounding set");
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return err_sys(err, -errno, "cannot clear the ambient capabilities");
	if (syscall(SYS_capset, &header, kept) < 0)
		return err_sys(err, -errno, "cannot drop the capabilities");
	return 0;
}

bool capabilities_raise(int capability)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	const size_t word = CAP_TO_INDEX(capability);
	const uint32_t bit = CAP_TO_MASK(capability);
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	if (data[word].effective & bit)
		return true;
	data[word].effective |= bit;
	return (data[word].permitted & bit) && syscall(SYS_capset, &header, data) == 0;
}

int capabilities_lower(uint64_t lower)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].effective &= ~(uint32_t)lower;
	data[1].effective &= ~(uint32_t)(lower >> 32);
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}
