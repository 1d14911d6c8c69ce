// SPDX-License-Identifier: Apache-2.0
/* policy/rule - one rule of a policy, checked. */
#pragma once

#include "base/addr.h"
#include "dns/name.h"
#include "policy/plan.h"

enum rule_target {
	TARGET_NONE = 0,
	TARGET_NAME,   /* api.github.com: that name only */
	TARGET_BELOW,  /* *.pypi.org: every name below, any depth */
	TARGET_WITHIN, /* **.pypi.org: both */
	TARGET_PREFIX, /* an address or a CIDR */
};

struct rule_ports {
	const struct plan_port_range *ranges; /* sorted, disjoint; borrowed */
	size_t count;			      /* 0: the default list */
};

struct rule {
	enum policy_action action;
	enum rule_target kind;
	struct dns_name name; /* TARGET_NAME, _BELOW, _WITHIN */
	struct prefix prefix; /* TARGET_PREFIX */
	struct rule_ports ports;
	uint8_t flags;	     /* PLAN_PRIVATE … */
	uint8_t types;	     /* PLAN_TYPE_… */
	const char *target;  /* as written */
	const char *comment; /* "" when none */
	const char *file;
	uint32_t line, column;
};

/* "443", "80,443", "8000-8100", "tcp/22", "udp/443,tcp/80-90". A number alone is TCP
 * and UDP. Ranges are sorted and merged into @ret (room for PLAN_PORT_RANGES_MAX).
 * Return: count, or -EINVAL with the reason in @err. */
int rule_ports_parse(struct text t, struct plan_port_range *ret,
		     struct err *err) MUST_CHECK;
char *rule_ports_format(const struct plan_port_range *ranges, size_t count, char *buf,
			size_t size);

/* A target alone. Sets kind, name or prefix of @ret. Return: 0, or -EINVAL. */
int rule_target_parse(struct text t, struct rule *ret, struct err *err) MUST_CHECK;
