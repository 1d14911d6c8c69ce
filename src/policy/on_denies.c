// SPDX-License-Identifier: Apache-2.0
#include "policy/on_denies.h"

#include <stdio.h>

const char *policy_on_denies_name(uint8_t action)
{
	return action == ON_DENIES_STOP ? "stop" : "event";
}

char *policy_window_text(uint32_t seconds, char *buf)
{
	static const struct {
		uint32_t seconds;
		char name;
	} units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
	size_t i = 0;

	while (seconds % units[i].seconds != 0)
		i++;
	snprintf(buf, POLICY_WINDOW_SIZE, "%u%c", seconds / units[i].seconds,
		 units[i].name);
	return buf;
}

char *policy_on_denies_text(const struct plan_on_denies *d, char *buf)
{
	char window[POLICY_WINDOW_SIZE];

	buf[0] = '\0';
	if (d->count > 0)
		snprintf(buf, POLICY_ON_DENIES_SIZE, "more than %u packets in %s: %s",
			 d->count, policy_window_text(d->window_sec, window),
			 policy_on_denies_name(d->action));
	return buf;
}
