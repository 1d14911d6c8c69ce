// SPDX-License-Identifier: Apache-2.0
#include "unit.h"

#include "sys/confine.h"

TEST(names)
{
	static const struct {
		const char *name;
		bool undoes;
	} cases[] = {
		{ "NET_ADMIN", true },
		{ "net_admin", true },
		{ "CAP_NET_ADMIN", true },
		{ "cap_Net_Admin", true },
		{ "ALL", true },
		{ "CAP_ALL", true },
		{ "SYS_ADMIN", true },
		{ "BPF", true },
		{ "NET_RAW", false },
		{ "CHOWN", false },
		{ "CAP_", true },
		{ "", true },
		{ "NET_ADMINX", true },
		{ "DAC_READ_SEARCH", true },
		{ "cap_sys_boot", true },
		{ "PERFMON", true },
		/* The clock by which rules end. */
		{ "SYS_TIME", true },
		/* Letters that engines turn into I, S and K. */
		{ "NET_ADM\xc4\xb1N", true },
		{ "SY\xc5\xbf_ADMIN", true },
		{ "\xe2\x84\xaaILL", true },
		{ "cap_Sys_Nice", false },
		{ "DAC_OVERRIDE", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		print_message("'%s'\n", cases[i].name);
		assert_int_equal(capability_undoes_filter(text_of(cases[i].name)),
				 cases[i].undoes);
	}
	assert_true(capability_is(text_of("cap_net_raw"), "NET_RAW"));
	assert_false(capability_is(text_of("NET_RA"), "NET_RAW"));
}
