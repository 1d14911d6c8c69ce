// SPDX-License-Identifier: Apache-2.0
/* policy/limits - the one table of what a sandbox may use: names, units, defaults and
 * what a policy may change them to. `limits:` of a policy and the manual page are
 * made from it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"
#include "policy/plan.h"

enum { LIMIT_UNLIMITED = UINT32_MAX };

struct limit_info {
	const char *name; /* as under `limits:` */
	const char *unit; /* "" for a plain count */
	uint32_t value;	  /* the default */
	uint32_t minimum;
	uint32_t ceiling; /* the highest number that a policy may set */
	bool unlimited;	  /* a policy may say `unlimited` */
};

const struct limit_info *limit_info(enum plan_limit which);
bool limit_find(struct text name, enum plan_limit *ret);
/* @value is one that a policy may set. */
bool limit_is_valid(enum plan_limit which, uint32_t value);

/* A setter of --repin-interval: *@ret_ms is an int64_t. Return: 0, or -EINVAL with @err.
 */
int cli_option_repin(void *ret_ms, const char *value, struct err *err) MUST_CHECK;

/* -- on_denies in words -- */

/* "10m", "90s" */
enum { POLICY_WINDOW_SIZE = 16 };
char *policy_window_text(uint32_t seconds, char *buf);
/* "more than 50 packets in 10m: stop"; "" when nothing is counted. Return: @buf. */
enum { POLICY_ON_DENIES_SIZE = 64 };
char *policy_on_denies_text(const struct plan_on_denies *d, char *buf);
const char *policy_on_denies_name(uint8_t action); /* "event", "stop" */
