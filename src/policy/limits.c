// SPDX-License-Identifier: Apache-2.0
#include "policy/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "policy/policy.h"

/* Tables have a ceiling, because their memory is taken from one pool; rates may be
 * switched off. Programs that do nothing wrong must not meet a limit. Measured of the
 * busiest, against servers without any delay: Node's fetch() of 600 hosts at once (730
 * connections in all), curl -Z with 300 transfers, which are 600 queries under way, 64
 * threads of Python: up to 440 queries and 90 new connections a second. A load test dials
 * 2,000 times in 1.5 s, with two queries each. The number of new names is no such limit:
 * what stands in them leaves the machine. */
static const struct limit_info limits[] = {
	[LIMIT_LEARNED_NAMES] = { "learned_names", "names", 2048, 16, 65536, false },
	[LIMIT_ADDRESSES_PER_NAME] = { "addresses_per_name", "addresses", 256, 1, 1024,
				       false },
	[LIMIT_ADDRESSES] = { "addresses", "addresses", 8192, 16, 262144, false },
	[LIMIT_QUERIES_IN_FLIGHT] = { "queries_in_flight", "queries", 1024, 1, 4096,
				      false },
	[LIMIT_QUERIES_PER_SECOND] = { "queries_per_second", "per second", 5000, 1,
				       1000000, true },
	[LIMIT_QUERIES_BURST] = { "queries_burst", "queries", 10000, 1, 2000000, true },
	[LIMIT_DNS_TCP_CONNECTIONS] = { "dns_tcp_connections", "connections", 8, 1, 256,
					false },
	[LIMIT_NEW_NAMES_PER_MINUTE] = { "new_names_per_minute", "per minute", 200, 1,
					 1000000, true },
	[LIMIT_FLOWS] = { "flows", "connections", 4096, 1, 65536, false },
	[LIMIT_NEW_FLOWS_PER_SECOND] = { "new_flows_per_second", "per second", 5000, 1,
					 1000000, true },
	[LIMIT_EVENTS_PER_SECOND] = { "events_per_second", "per second", 20, 1, 100000,
				      true },
	[LIMIT_MIN_LIFETIME_SEC] = { "min_lifetime", "seconds", 60, 1, 3600, false },
	[LIMIT_MAX_LIFETIME_SEC] = { "max_lifetime", "seconds", 86400, 1, 604800, false },
	[LIMIT_GRACE_SEC] = { "grace", "seconds", 30, 1, 3600, false },
	[LIMIT_EVENT_WINDOW_SEC] = { "event_window", "seconds", 60, 1, 3600, false },
	[LIMIT_PARKED] = { "parked", "connections", 64, 1, 1024, false },
	[LIMIT_ASK_TIMEOUT_SEC] = { "ask_timeout", "seconds", 60, 1, 3600, false },
};

const struct limit_info *limit_info(enum plan_limit which)
{
	static_assert(ARRAY_SIZE(limits) == LIMIT_COUNT, "a row for every limit");
	assert((size_t)which < LIMIT_COUNT);
	return &limits[which];
}

bool limit_find(struct text name, enum plan_limit *ret)
{
	const struct limit_info *known = TEXT_FIND(name, limits);

	if (known)
		*ret = (enum plan_limit)(known - limits);
	return known != NULL;
}

bool limit_is_valid(enum plan_limit which, uint32_t value)
{
	const struct limit_info *l = limit_info(which);

	if (value == LIMIT_UNLIMITED)
		return l->unlimited;
	return value >= l->minimum && value <= l->ceiling;
}

int cli_option_repin(void *ret_ms, const char *value, struct err *err)
{
	int64_t ms;

	if (!text_to_duration_ms(text_of(value), &ms) || ms < POLICY_REPIN_MIN_MS ||
	    ms > POLICY_REPIN_MAX_MS)
		return err_set(err, -EINVAL,
			       "'%s' is not a time from 10s to 30d, like 6h",
			       SHOWN(value));
	*(int64_t *)ret_ms = ms;
	return 0;
}

/* -- on_denies in words ------------------------------------------------------------- */

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
