// SPDX-License-Identifier: Apache-2.0
/* engine/pin_names - a policy's names resolved once, in a child that is as confined as
 * the engine: answers are hostile bytes. */
#pragma once

#include "policy/policy.h"

/* Resolve a policy's names once, in a process that can open nothing. What it says is
 * checked by whoever asked. */
struct render_names {
	const struct plan *plan;
	const struct endpoint *upstreams;
	size_t upstream_count;
	void *data;
	void (*on_addr)(void *data, const struct dns_name *name, const struct addr *a);
	/* @name has no address, or not all that it could have: @why. */
	void (*on_fault)(void *data, const struct dns_name *name, const char *why,
			 bool has_some);
};

/* Return: 0, or -errno with @err. */
int pin_names(const struct render_names *names, struct err *err) MUST_CHECK;
