// SPDX-License-Identifier: Apache-2.0
#include "policy/embedded.h"

#include "policy/embedded_files.h" /* generated: profiles[], doh_list[] ... */

const struct policy_embedded *policy_embedded_at(size_t i)
{
	return i < ARRAY_SIZE(profiles) ? &profiles[i] : NULL;
}

const struct policy_embedded *policy_embedded_profile(struct text name)
{
	for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
		if (text_equal(name, profiles[i].name))
			return &profiles[i];
	}
	return NULL;
}

struct text policy_embedded_doh(void)
{
	return (struct text){ doh_list, sizeof(doh_list) - 1 };
}

struct text policy_embedded_telemetry(void)
{
	return (struct text){ telemetry_list, sizeof(telemetry_list) - 1 };
}
